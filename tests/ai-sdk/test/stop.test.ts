/** Stop, in a real browser, with the real hook of each version. */

import { describe, expect, test } from "vitest";
import { browserOfFile, type Page } from "./browser.ts";
import { callsOf, history, plain, textOf } from "./look.ts";
import { type Message, type Sdk, sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const browser = browserOfFile();

/** Where Stop is pressed. */
const places = ["the page that asked", "a page that was loaded again", "another tab"] as const;

/**
 * The run is over and its answer kept, the provider heard of it within a second,
 * and no page begins it anew.
 */
async function isOver(page: Page, id: string, number: number): Promise<Message[]> {
  const w = world.current;
  const { closedAt, clientLeft } = await w.closed(number);
  const run = await w.ended(id);
  expect(run.status).toBe("cancelled");
  expect(clientLeft).toBe(true);
  expect(closedAt - Date.parse(run.cancelRequestedAt ?? "")).toBeLessThan(1_000);

  const { messages, error } = await page.until(({ status }) => status === "ready");
  expect(error).toBeUndefined();
  const kept = await history(w.api, id);
  expect(plain(messages)).toEqual(plain(kept));
  page.resumed.length = 0;
  await page.refresh();
  await page.until(() => page.resumed.length > 0);
  expect(new Set(page.resumed)).toEqual(new Set([204]));
  expect(plain((await page.shown()).messages)).toEqual(plain(kept));
  expect(page.posts.length).toBeLessThanOrEqual(1);
  expect(await w.provider.requests()).toBe(number);
  return kept;
}

describe.each(sdks)("$name", ({ name }: Sdk) => {
  const open = (id: string) => browser.current.open(world.current, name, id);

  test.each(places)("Stop in %s ends the run and keeps what was said", async (place) => {
    const w = world.current;
    const id = `stop_${name}_${places.indexOf(place)}`;
    const number = (await w.provider.requests()) + 1;
    await w.provider.script({ steps: [{ text: ["As far ", "as this"] }, { stall: true }] });
    const page = await open(id);
    await page.say("Talk for ever");
    await page.until(({ messages }) => textOf(messages[1]) === "As far as this");
    if (place === "a page that was loaded again") {
      await page.refresh();
      await page.until(({ messages }) => textOf(messages[1]) === "As far as this");
    }
    const other = place === "another tab" ? await open(id) : undefined;
    await (other ?? page).press("Stop");
    const kept = await isOver(page, id, number);
    expect(kept.map(textOf)).toEqual(["Talk for ever", "As far as this"]);
    await other?.close();

    await w.provider.script({ steps: [{ text: ["At once."] }] });
    await page.say("And now?");
    await page.until(({ status, messages }) => status === "ready" && textOf(messages[3]) === "At once.");
    await page.close();
  });

  test("Stop before the first token leaves a chat that goes on", async () => {
    const w = world.current;
    const id = `stop_${name}_first`;
    const number = (await w.provider.requests()) + 1;
    await w.provider.script({ steps: [{ stall: true }] });
    const page = await open(id);
    await page.say("Never mind");
    await w.arrived(number);
    await page.press("Stop");
    const kept = await isOver(page, id, number);
    expect(textOf(kept[0])).toBe("Never mind");
    await page.close();
  });

  test("Stop while a tool runs closes the call, and the page does not send it again", async () => {
    const w = world.current;
    const id = `stop_${name}_tool`;
    const number = (await w.provider.requests()) + 1;
    const args = JSON.stringify({ gate: `${w.provider.url}/_gates/never?wait=10m` });
    await w.provider.script({ steps: [{ call: { name: "look", args } }] });
    const page = await open(id);
    await page.say("Look for ever");
    await page.until(({ messages }) => callsOf(messages[1])[0]?.state === "input-available");
    await page.press("Stop");
    const { messages } = await page.until(({ status }) => status === "ready");
    expect(callsOf(messages[1])).toMatchObject([{ state: "output-error" }]);
    expect(plain(messages)).toEqual(plain(await history(w.api, id)));
    expect(page.posts).toHaveLength(1);
    expect(await w.provider.requests()).toBe(number);
    await page.close();
  });
});
