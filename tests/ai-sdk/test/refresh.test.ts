/** A page that is loaded again at any moment, in a real browser, with the real hook of each version. */

import { describe, expect, test } from "vitest";
import { browserOfFile } from "./browser.ts";
import { callsOf, history, plain, textOf, thoughtOf } from "./look.ts";
import { sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const browser = browserOfFile();

describe.each(sdks)("$name", ({ name }) => {
  test("a refresh during thoughts, text, a call's arguments, the call itself and after the end changes nothing", async () => {
    const w = world.current;
    const { provider } = w;
    const id = `refresh_${name}`;
    const gate = (what: string) => `${id}_${what}`;
    const args = JSON.stringify({ note: "all of it", gate: `${provider.url}/_gates/${gate("tool")}` });
    await provider.script(
      {
        steps: [
          { reasoning: ["Let me "] },
          { wait_gate: gate("thought") },
          { reasoning: ["see."] },
          { text: ["I "] },
          { wait_gate: gate("text") },
          { text: ["look."] },
          { fragments: [{ id: "call_1", name: "look", args: args.slice(0, 9) }] },
          { wait_gate: gate("input") },
          { fragments: [{ args: args.slice(9) }] },
        ],
      },
      { steps: [{ text: ["It is "] }, { wait_gate: gate("answer") }, { text: ["there."] }] },
    );
    const before = await provider.requests();
    const page = await browser.current.open(w, name, id);
    await page.say("Where is it?");
    const at = async (shows: Parameters<typeof page.until>[0]) => {
      await page.until(shows);
      await page.refresh();
      await page.until((shown) => shows(shown) && shown.status === "streaming");
    };
    await at(({ messages }) => thoughtOf(messages[1]) === "Let me ");
    await provider.open(gate("thought"));
    await at(({ messages }) => textOf(messages[1]) === "I ");
    await provider.open(gate("text"));
    await at(({ messages }) => callsOf(messages[1])[0]?.state === "input-streaming");
    await provider.open(gate("input"));
    await at(({ messages }) => callsOf(messages[1])[0]?.state === "input-available");
    await provider.open(gate("tool"));
    await at(({ messages }) => textOf(messages[1]) === "I look.It is ");
    await provider.open(gate("answer"));
    const live = await page.until((shown) => shown.status === "ready" && shown.messages.length === 2);
    expect(textOf(live.messages[1])).toBe("I look.It is there.");
    expect(plain(live.messages)).toEqual(plain(await history(w.api, id)));
    expect(new Set(page.resumed)).toEqual(new Set([204, 200])); // the first load found nothing to resume

    page.resumed.length = 0;
    await page.refresh();
    const later = await page.until((shown) => shown.status === "ready" && page.resumed.length > 0);
    expect(plain(later.messages)).toEqual(plain(live.messages));
    // Somebody may have loaded the page just before the end: it is told once more, or there is nothing to tell.
    expect(page.resumed.every((status) => status === 200 || status === 204)).toBe(true);
    expect(page.posts).toHaveLength(1);
    expect(await provider.requests()).toBe(before + 2);
    await page.close();
  });

  test("of two answers in one chat neither is ever shown twice", async () => {
    const w = world.current;
    const id = `turns_${name}`;
    await w.provider.script(
      { steps: [{ text: ["The first."] }] },
      { steps: [{ text: ["The "] }, { wait_gate: id }, { text: ["second."] }] },
    );
    const page = await browser.current.open(w, name, id);
    await page.say("One");
    await page.until(({ status, messages }) => status === "ready" && textOf(messages[1]) === "The first.");
    await page.say("Two");
    await page.until(({ messages }) => textOf(messages[3]) === "The ");
    await page.refresh();
    await page.until(({ messages }) => textOf(messages[3]) === "The ");
    await w.provider.open(id);
    const { messages } = await page.until(
      (shown) => shown.status === "ready" && textOf(shown.messages[3]) === "The second.",
    );
    expect(messages.map(textOf)).toEqual(["One", "The first.", "Two", "The second."]);
    expect(plain(messages)).toEqual(plain(await history(w.api, id)));
    await page.close();
  });

  test("a page that is closed cancels nothing", async () => {
    const w = world.current;
    const id = `closed_${name}`;
    await w.provider.script({ steps: [{ text: ["Without "] }, { wait_gate: id }, { text: ["anybody."] }] });
    const page = await browser.current.open(w, name, id);
    await page.say("Go on alone");
    await page.until(({ messages }) => textOf(messages[1]) === "Without ");
    await page.close();
    await w.provider.open(id);
    const again = await browser.current.open(w, name, id);
    const { messages } = await again.until(({ messages }) => textOf(messages[1]) === "Without anybody.");
    expect(messages).toHaveLength(2);
    expect(again.posts).toEqual([]);
    await again.close();
  });
});
