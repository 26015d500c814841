/** `useChat` of each version over `@holdfast/ai-sdk`, in a real browser. */

import { expect, test } from "vitest";
import { browserOfFile } from "./browser.ts";
import { callsOf, history, plain, textOf } from "./look.ts";
import { sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const browser = browserOfFile();

test.each(sdks)("$name: two pages show the same over a refresh, an approval and a Stop", async ({ name }) => {
  const w = world.current;
  const id = `hook_${name}`;
  const before = await w.provider.requests();
  await w.provider.script(
    {
      steps: [{ text: ["I "] }, { wait_gate: id }, { text: ["pay."] }, { call: { name: "pay", args: "{}" } }],
    },
    { steps: [{ text: ["It is paid."] }] },
    { steps: [{ text: ["As far as this"] }, { stall: true }] },
  );
  const [one, two] = [
    await browser.current.open(w, name, id, "?holdfast"),
    await browser.current.open(w, name, id, "?holdfast"),
  ];
  await one.say("Pay");
  for (const page of [one, two]) await page.until(({ messages }) => textOf(messages[1]) === "I ");
  await two.refresh();
  await two.until(({ status, messages }) => status === "streaming" && textOf(messages[1]) === "I ");
  await w.provider.open(id);

  const { id: approval } = await w.approval(id);
  for (const page of [one, two]) {
    await page.until(({ status, messages }) => {
      const state = callsOf(messages[1])[0]?.state;
      return status === "ready" && (state === "approval-requested" || state === "input-available");
    });
  }
  await w.client.api.decide(approval, { decision: "approve" });
  for (const page of [one, two]) {
    await page.until(
      ({ status, messages }) => status === "ready" && textOf(messages[1]) === "I pay.It is paid.",
    );
  }

  await two.say("Go on");
  for (const page of [one, two]) await page.until(({ messages }) => textOf(messages[3]) === "As far as this");
  await one.press("Stop");
  expect((await w.ended(id)).status).toBe("cancelled");
  for (const page of [one, two]) {
    const { messages } = await page.until((shown) => shown.status === "ready" && shown.messages.length === 4);
    expect(plain(messages)).toEqual(plain(await history(w.api, id)));
    await page.refresh();
    const again = await page.until((shown) => shown.status === "ready" && shown.messages.length === 4);
    expect(plain(again.messages)).toEqual(plain(messages));
  }
  expect(await w.provider.requests()).toBe(before + 3);
  await one.close();
  await two.close();
});
