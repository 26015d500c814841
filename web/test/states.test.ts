/** What a page says of a run and lets a person do about it: honest states, and a way on from each. */

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const tool = (page: Page, name: string) => page.getByRole("region", { name: `Tool ${name}` });
const composer = (page: Page) => page.getByLabel("Message", { exact: true });
const say = (...text: string[]) => ({ steps: [{ text }] });
const call = (name: string, args: object) => ({
  steps: [{ call: { id: "call_1", name, args: JSON.stringify(args) } }],
});

test("RT-01: what an attempt had said is replaced by the next one, and can still be looked at", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["The answer is 4"] }, { wait_gate: "rt01" }, { cut: true }] },
    { steps: [{ text: ["The answer is 42."] }, { finish: { usage: { input: 1200, output: 34 } } }] },
  );
  await w.say("ses_rt01", "What is the answer?");
  const page = await w.page("/s/ses_rt01");
  await answer(page).getByText("The answer is 4", { exact: true }).waitFor();
  await w.provider.open("rt01");
  await answer(page).getByText("The answer is 42.").waitFor();
  expect((await answer(page).locator(".markdown").textContent())?.trim()).toBe("The answer is 42.");
  await answer(page).getByText("Attempt 2: what an earlier one had said was replaced.").waitFor();
  await answer(page).getByRole("button", { name: "Look at it" }).click();
  const inspector = page.getByRole("complementary", { name: "Run inspector" });
  await inspector.getByText("Step 1, attempt 2").waitFor();
  await inspector.getByText("1,200", { exact: true }).waitFor();
  await inspector.getByText("What it had said").click();
  await inspector.getByText("The answer is 4", { exact: true }).waitFor();
  await inspector.getByRole("tab", { name: "Events" }).click();
  await inspector.getByText("attempt.failed").waitFor();
  const seqs = await inspector.locator(".seq").allTextContents();
  expect(seqs.map(Number)).toEqual(seqs.map(Number).sort((a, b) => b - a));
});

test("a provider that asks for patience is told of, with the time until the next attempt", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ status: { code: 429, retry_after: "6" } }] }, say("Now it works."));
  await w.say("ses_patience", "Try");
  const page = await w.page("/s/ses_patience");
  await answer(page)
    .getByText(/Trying again in [1-6] s \(attempt 1 failed\)/)
    .waitFor();
  await answer(page).getByText("The model's provider asks for fewer requests").waitFor();
  await page.locator(".header").getByText("Waiting").waitFor();
  await answer(page).getByText("Now it works.").waitFor();
});

test.each([
  { choice: "It did not happen", answered: "It is charged.", times: 2 },
  { choice: "Treat it as failed", answered: "I leave it.", times: 1 },
])(
  "a call whose outcome is unknown goes on as the person says: $choice",
  async ({ choice, answered, times }) => {
    const w = world.current;
    const session = `ses_unknown${times}`;
    await w.provider.script(call("charge", { note: session, ms: 3_000 }), say(answered));
    await w.say(session, "Charge it");
    const page = await w.page(`/s/${session}`);
    await tool(page, "Charge").getByText(/\d+ s/).waitFor();
    await w.crash();
    await w.again();
    await tool(page, "Charge").getByText("outcome unknown").waitFor();
    await page.getByText(choice).click();
    await page.getByLabel("Note (optional)").fill("I have looked");
    await page.getByRole("button", { name: "Go on" }).click();
    await answer(page).getByText(answered).waitFor();
    expect(w.ledger().filter((line) => line.endsWith(session))).toHaveLength(times);
  },
);

test("an approval can be given for other arguments, and refused with a note that the model reads", async () => {
  const w = world.current;
  await w.provider.script(call("pay", { note: "rent" }), call("pay", { note: "yacht" }), say("Understood."));
  await w.say("ses_edit", "Pay");
  const page = await w.page("/s/ses_edit");
  await page.getByRole("button", { name: "Edit arguments" }).click();
  await page.getByLabel("Arguments").fill('{"note": "half the rent"');
  await page.getByRole("button", { name: "Approve as edited" }).click();
  await page.getByText("The arguments are not a JSON object.").waitFor();
  await page.getByLabel("Arguments").fill('{"note": "half the rent"}');
  await page.getByRole("button", { name: "Approve as edited" }).click();
  await tool(page, "Pay").getByText("yacht").first().waitFor();
  await page.getByRole("button", { name: "Add a note" }).click();
  await page.getByLabel("Note, which the model reads").fill("not this year");
  await page.getByRole("button", { name: "Deny" }).click();
  await answer(page).getByText("Understood.").waitFor();
  await tool(page, "Pay").last().getByRole("button").first().click();
  await page.getByText("Denied by local · “not this year”").waitFor();
  expect(w.ledger().filter((line) => line.startsWith("pay"))).toEqual([
    expect.stringMatching(/half the rent$/),
  ]);
});

test("while a run is active a message waits, steers or interrupts, as the person chooses", async () => {
  const w = world.current;
  await w.provider.script(
    call("look", { ms: 2_500 }),
    { when: { body: "turn left" }, steps: [{ text: ["Turning left."] }, { wait_gate: "never" }] },
    say("Starting anew."),
  );
  await w.say("ses_steer", "Drive");
  const page = await w.page("/s/ses_steer");
  await tool(page, "Look").waitFor();
  await composer(page).fill("turn left");
  await page.getByText("Steer", { exact: true }).click();
  await composer(page).press("Enter");
  await page.getByRole("region", { name: "Waiting messages" }).getByText("Steers").waitFor();
  await answer(page).getByText("Turning left.").waitFor();
  expect(await page.getByRole("region", { name: "Waiting messages" }).count()).toBe(0);
  await composer(page).fill("start anew");
  await page.getByText("Interrupt", { exact: true }).click();
  await composer(page).press("Enter");
  await answer(page).getByText("Starting anew.").waitFor();
  await page.getByText("Stopped by the next message. What had been said is kept.").waitFor();
  const { runs } = await w.snapshot("ses_steer");
  expect(runs.map((run) => run.status)).toEqual(["cancelled", "completed"]);
});

test("a stop shows in every tab as stopping, with the time that it may take, until it is a fact", async () => {
  const w = world.current;
  await w.provider.script(call("deaf", { ms: 60_000 }));
  await w.say("ses_deaf", "Do not listen");
  const page = await w.page("/s/ses_deaf");
  const other = await w.page("/s/ses_deaf", sizes.phone);
  for (const one of [page, other]) await tool(one, "Deaf").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  for (const one of [page, other]) {
    await answer(one)
      .getByText(/Stopping: at the latest in \d s/)
      .waitFor();
    expect(await one.getByRole("button", { name: "Stopping" }).isDisabled()).toBe(true);
  }
  for (const one of [page, other]) await answer(one).getByText("Stopped.").waitFor();
});

test("whoever wants no motion gets none", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ reasoning: ["Hm."] }, { wait_gate: "never" }] });
  await w.say("ses_motion", "Think");
  const moving = async (reducedMotion: "reduce" | "no-preference") => {
    const page = await w.page("/s/ses_motion", { reducedMotion });
    await answer(page).getByText("Thinking…").waitFor();
    return page.evaluate(() => document.getAnimations().length);
  };
  expect(await moving("reduce")).toBe(0);
  expect(await moving("no-preference")).toBeGreaterThan(0);
});

test("an answer that is made again is another version, and every tab shows the one that is chosen", async () => {
  const w = world.current;
  await w.provider.script(say("One way."), say("Another way."));
  await w.say("ses_again", "Which way?");
  const page = await w.page("/s/ses_again");
  const other = await w.page("/s/ses_again");
  await answer(page).getByText("One way.").waitFor();
  await page.getByRole("button", { name: "Answer again" }).click();
  for (const one of [page, other]) {
    await answer(one).getByText("Another way.").waitFor();
    await one.getByText("Version 2/2").waitFor();
    expect(await one.getByText("One way.").count()).toBe(0);
  }
  await other.getByRole("button", { name: "Previous version" }).click();
  for (const one of [page, other]) await answer(one).getByText("One way.").waitFor();
});

test("a conversation has its title from the first message, is found by it, and carries files", async () => {
  const w = world.current;
  await w.provider.script(say("I have read it."));
  const page = await w.page("/");
  await page.getByLabel("Agent").selectOption("scripted");
  await page.locator("input[type=file]").setInputFiles({
    name: "ledger of all the ships that sailed in spring.txt",
    mimeType: "text/plain",
    buffer: Buffer.from("three ships"),
  });
  await composer(page).fill("Read the harbour master's ledger");
  await composer(page).press("Enter");
  await answer(page).getByText("I have read it.").waitFor();
  await page.getByRole("heading", { name: "Read the harbour master's ledger" }).waitFor();
  await page.getByRole("article", { name: "You" }).getByText("ledger of all the ships").waitFor();
  await page.reload();
  await page.getByRole("article", { name: "You" }).getByText("ledger of all the ships").waitFor();
  const rows = page.locator(".session-link");
  await page.getByLabel("Search conversations").fill("harbour");
  await expect.poll(() => rows.count()).toBe(1);
  expect(await rows.first().getAttribute("href")).toBe(`/s/${sessionOf(page)}`);
  await page.getByLabel("Search conversations").fill("nothing like it");
  await page.getByText("No title has “nothing like it”.").waitFor();
});

test("a very long result neither freezes nor fills the page, and can be had whole", async () => {
  const w = world.current;
  const args = '{"letters": 300000, "then": "the very end"}';
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "output", args } }] },
    say("That was long."),
  );
  await w.say("ses_output", "Give me all");
  const page = await w.page("/s/ses_output");
  await answer(page).getByText("That was long.").waitFor();
  await tool(page, "Output").getByRole("button").first().click();
  const link = page.getByRole("link", { name: /^The whole result/ });
  await link.waitFor();
  expect(((await answer(page).textContent()) ?? "").length).toBeLessThan(70_000);
  const whole = await page.request.get(new URL((await link.getAttribute("href")) ?? "", w.url).href);
  expect(await whole.text()).toContain("the very end");
});

test("who edits a message far up is left in peace while the answer below goes on", async () => {
  const w = world.current;
  const lines = Array.from({ length: 20 }, (_, i) => `Line ${i}\n\n`); // a little more than fits
  await w.provider.script({
    steps: [{ text: lines }, { wait_gate: "more" }, { paced: { every: "20ms", pieces: lines } }],
  });
  await w.say("ses_edits", "Write much");
  const page = await w.page("/s/ses_edits");
  await answer(page).getByText("Line 19").waitFor();
  await page.getByRole("button", { name: "Edit", exact: true }).focus();
  await page.keyboard.press("Enter");
  const box = page.getByLabel("Edit the message");
  await box.waitFor();
  await w.provider.open("more");
  await w.until("ses_edits", (s) => s.session.status === "idle");
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
  const { y } = (await box.boundingBox()) ?? { y: -1 };
  expect(y).toBeGreaterThan(0);
  await page.keyboard.press("Escape");
  await page.getByRole("button", { name: "Jump to latest" }).click();
});

test("nothing jumps while an answer is written, with thoughts, calls and a table", async () => {
  const w = world.current;
  const words = Array.from({ length: 60 }, (_, i) => (i % 12 === 11 ? "\n\n" : `word ${i} `));
  await w.provider.script(
    {
      steps: [
        { reasoning: ["Let me think about it."] },
        { paced: { every: "8ms", pieces: words } },
        { call: { id: "call_1", name: "look", args: '{"ms":300}' } },
        { call: { id: "call_2", name: "look", args: '{"ms":500}' } },
      ],
    },
    {
      steps: [{ paced: { every: "8ms", pieces: ["| a | b |\n", "|---|---|\n", "| 1 | 2 |\n\n", ...words] } }],
    },
  );
  const page = await w.page("/");
  await page.getByLabel("Agent").selectOption("scripted");
  await composer(page).fill("Write");
  await page.evaluate(() => {
    const seen = { jumps: [] as string[] };
    Object.assign(window, { seen });
    new PerformanceObserver((list) => {
      for (const entry of list.getEntries() as unknown as Shift[]) {
        const from = entry.sources.map(({ node }) => (node as Element | null)?.className ?? "");
        if (entry.value > 0.01) seen.jumps.push(`${entry.value.toFixed(3)} ${from.join(", ")}`);
      }
    }).observe({ type: "layout-shift" });
  });
  await composer(page).press("Enter");
  await page.getByRole("button", { name: "Answer again" }).waitFor();
  type Seen = { seen: { jumps: string[] } };
  expect(await page.evaluate(() => (window as unknown as Seen).seen.jumps)).toEqual([]);
});

/** What the browser tells of a jump. */
type Shift = { readonly value: number; readonly sources: readonly { readonly node: Node | null }[] };
