/** Approvals, in a real browser, with the real hooks. */

import { describe, expect, test } from "vitest";
import { browserOfFile, type Page } from "./browser.ts";
import { callsOf, history, plain, textOf } from "./look.ts";
import { type Message, type Sdk, sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const browser = browserOfFile();
const isAsked = ({ messages }: { messages: Message[] }) =>
  callsOf(messages[1])[0]?.state === "approval-requested";

/** A page that asked for something that needs an approval, and waits for it. */
async function asking(name: Sdk["name"], id: string): Promise<{ page: Page; before: number }> {
  const w = world.current;
  const before = await w.provider.requests();
  await w.provider.script(
    { steps: [{ text: ["I pay."] }, { call: { name: "pay", args: '{"note":"rent"}' } }] },
    { steps: [{ text: ["That "] }, { wait_gate: id }, { text: ["was it."] }] },
  );
  const page = await browser.current.open(w, name, id);
  await page.say("Pay the rent");
  await page.until((shown) => shown.status === "ready" && isAsked(shown));
  return { page, before };
}

/** The answer goes on to its end in the page, in one message, with one more call of the model. */
async function goesOn(
  page: Page,
  id: string,
  before: number,
  state: string,
  profile?: string,
): Promise<void> {
  const w = world.current;
  await page.until(({ messages }) => textOf(messages[1]) === "I pay.That ");
  await w.provider.open(id);
  const { messages } = await page.until(
    (shown) => shown.status === "ready" && textOf(shown.messages[1]) === "I pay.That was it.",
  );
  expect(messages).toHaveLength(2);
  expect(callsOf(messages[1])).toMatchObject([{ state }]);
  const run = await w.ended(id);
  expect(run.status).toBe("completed");
  expect(plain(messages)).toEqual(plain(await history(w.api, id, profile)));
  expect(await w.provider.requests()).toBe(before + 2);
  await page.refresh();
  const again = await page.until((shown) => shown.status === "ready" && shown.messages.length === 2);
  expect(plain(again.messages)).toEqual(plain(messages));
  await page.close();
}

describe.each(sdks.filter(({ approvals }) => approvals))("$name", ({ name }) => {
  test("approved in the page: the call is made, and the answer goes on", async () => {
    const id = `approve_${name}`;
    const { page, before } = await asking(name, id);
    await page.press("Approve");
    await goesOn(page, id, before, "output-available");
    expect(page.posts).toHaveLength(2);
  });

  test("denied in the page: the model reads the reason", async () => {
    const id = `deny_${name}`;
    const { page, before } = await asking(name, id);
    const { id: approval } = await world.current.approval(id);
    await page.press("Deny");
    await goesOn(page, id, before, "output-denied");
    expect(page.posts).toHaveLength(2);
    const decided = await world.current.client.api.approval(approval);
    expect(decided).toMatchObject({ status: "denied", note: "not today" });
  });

  test("decided after a refresh, and loaded again while the answer goes on", async () => {
    const id = `later_${name}`;
    const { page, before } = await asking(name, id);
    await page.refresh();
    await page.until((shown) => shown.status === "ready" && isAsked(shown));
    await page.press("Approve");
    await page.until(({ messages }) => textOf(messages[1]) === "I pay.That ");
    await page.refresh();
    await goesOn(page, id, before, "output-available");
    expect(page.posts).toHaveLength(2);
  });

  test("decided elsewhere while the page is open: it goes on without asking", async () => {
    const id = `elsewhere_${name}`;
    const { page, before } = await asking(name, id);
    const { id: approval } = await world.current.approval(id);
    await world.current.client.api.decide(approval, { decision: "approve" });
    await goesOn(page, id, before, "output-available");
    expect(page.posts).toHaveLength(1);
  });
});

test("v5, which knows no approvals, waits with its stream open until somebody decides elsewhere", async () => {
  const w = world.current;
  const id = "elsewhere_v5";
  const before = await w.provider.requests();
  await w.provider.script(
    { steps: [{ text: ["I pay."] }, { call: { name: "pay", args: '{"note":"rent"}' } }] },
    { steps: [{ text: ["That "] }, { wait_gate: id }, { text: ["was it."] }] },
  );
  const page = await browser.current.open(w, "v5", id, "?profile=v5");
  await page.say("Pay the rent");
  const { id: approval } = await w.approval(id);
  await page.until(({ messages }) => callsOf(messages[1])[0]?.state === "input-available");
  await w.client.api.decide(approval, { decision: "deny", note: "not today" });
  await goesOn(page, id, before, "output-error", "v5");
  expect(page.posts).toHaveLength(1);
});
