/** The field's faults of what is shown at the end of a run, by their ids, in a real browser. */

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import type { Turn } from "./provider.ts";
import { sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const stop = (page: Page) => page.getByRole("button", { name: "Stop", exact: true });
const look = (args: object, name = "look") => ({
  steps: [{ call: { id: "call_1", name, args: JSON.stringify(args) } }],
});
const say = (...text: string[]) => ({ steps: [{ text }] });

/** What an answer shows of itself, without the times that it took. */
const shown = async (page: Page): Promise<string> =>
  ((await answer(page).textContent()) ?? "").replace(/\d+(\.\d+)? (ms|s)\b/g, "");

type End = {
  readonly name: string;
  readonly script: readonly Turn[];
  /** What ends it, once it is on the page. */
  readonly act?: (page: Page) => Promise<unknown>;
  /** How the page tells which end it is. */
  readonly words: string;
};

const ends: readonly End[] = [
  { name: "well", script: [look({}), say("All is well.")], words: "All is well." },
  {
    name: "after a tool that failed",
    script: [look({ fail: "no such thing" }), say("It failed.")],
    words: "failed after",
  },
  {
    name: "stopped in a call",
    script: [look({ ms: 60_000 })],
    act: async (page) => {
      await page.getByRole("region", { name: "Tool Look" }).waitFor();
      await stop(page).click();
    },
    words: "cancelled",
  },
  {
    name: "after a crash in a call",
    script: [look({ ms: 1_500 }, "put"), say("Put at last.")],
    act: async (page) => {
      await page.getByRole("region", { name: "Tool Put" }).waitFor();
      await world.current.crash();
      await world.current.again();
    },
    words: "Put at last.",
  },
  {
    name: "after a deploy in a call",
    script: [look({ ms: 1_500 }), say("Looked at last.")],
    act: async (page) => {
      await page.getByRole("region", { name: "Tool Look" }).waitFor();
      await world.current.deploy();
    },
    words: "Looked at last.",
  },
  {
    name: "with a provider that cuts every answer",
    script: [{ steps: [{ text: ["Half of "] }, { cut: true }], times: 20 }],
    words: "Try again",
  },
  {
    name: "denied",
    script: [look({}, "pay"), say("As you wish.")],
    act: (page) => page.getByRole("button", { name: "Deny" }).click(),
    words: "denied",
  },
];

test.each(ends)(
  "UI-01: a run that ends $name shows nothing as running, live as after a reload",
  async (end) => {
    const w = world.current;
    const session = `ses_ui01_${ends.indexOf(end)}`;
    await w.provider.script(...end.script);
    await w.say(session, "Go");
    const page = await w.page(`/s/${session}`);
    const other = await w.page(`/s/${session}`, sizes.phone);
    await end.act?.(page);
    await w.until(session, (s) => s.session.status === "idle" && s.runs.every((run) => run.finishedAt));
    for (const one of [page, other]) {
      await answer(one).getByText(end.words).first().waitFor();
      await stop(one).waitFor({ state: "detached" });
      expect(await one.getByRole("main").locator(".spin, .thinking, [role=progressbar]").count()).toBe(0);
    }
    const fresh = await w.page(`/s/${session}`);
    await answer(fresh).getByText(end.words).first().waitFor();
    const pages = [page, other, fresh];
    await expect.poll(async () => new Set(await Promise.all(pages.map(shown))).size).toBe(1);
    for (const one of pages) await one.context().close();
  },
);

test("UI-04: of two questions one is denied and one approved: the run waits for both, then goes on once with both", async () => {
  const w = world.current;
  await w.provider.script(
    {
      steps: [
        { call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } },
        { call: { id: "call_2", name: "pay", args: '{"note":"lunch"}' } },
      ],
    },
    say("One was paid."),
  );
  const before = await w.provider.requests();
  await w.say("ses_ui04", "Pay both");
  const page = await w.page("/s/ses_ui04");
  const tools = page.getByRole("region", { name: "Tool Pay" });
  await expect.poll(() => tools.getByRole("button", { name: "Approve" }).count()).toBe(2);
  await tools.filter({ hasText: "rent" }).getByRole("button", { name: "Deny" }).click();
  await tools.filter({ hasText: "rent" }).getByText("denied").waitFor();
  expect(await stop(page).count()).toBe(1);
  expect(await page.getByText("Waiting for your approval").count()).toBe(1);
  await page.reload();
  await tools.filter({ hasText: "lunch" }).getByRole("button", { name: "Approve" }).click();
  await answer(page).getByText("One was paid.").waitFor();
  await stop(page).waitFor({ state: "detached" });
  expect((await w.provider.requests()) - before).toBe(2);
});

test("UI-06: an answer that was stopped before its first word, or refused, says so; F5 sends nothing, and a new try makes one", async () => {
  const w = world.current;
  const posts: string[] = [];
  const watch = (page: Page) =>
    page.on("request", (request) => {
      if (request.method() !== "GET") posts.push(`${request.method()} ${new URL(request.url()).pathname}`);
    });

  await w.provider.script({ steps: [{ begin: true }, { wait_gate: "never" }] });
  await w.say("ses_ui06", "Say nothing");
  const stopped = await w.page("/s/ses_ui06");
  await stop(stopped).click();
  await answer(stopped).getByText("Stopped").waitFor();
  watch(stopped);
  for (let i = 0; i < 5; i++) {
    await stopped.reload();
    await answer(stopped).getByText("Stopped").waitFor();
  }
  expect(posts).toEqual([]);
  await w.provider.script(say("Now I speak."));
  await stopped.getByRole("button", { name: "Answer again" }).click();
  await answer(stopped).getByText("Now I speak.").waitFor();
  expect(posts).toHaveLength(1);
  expect((await w.snapshot("ses_ui06")).messages).toHaveLength(2);

  posts.length = 0;
  await w.provider.script({ steps: [{ status: { code: 401 } }] });
  await w.say("ses_ui06k", "Without a key");
  const refused = await w.page("/s/ses_ui06k");
  await answer(refused).getByText("The model's provider refused the key").waitFor();
  watch(refused);
  for (let i = 0; i < 5; i++) {
    await refused.reload();
    await answer(refused).getByRole("button", { name: "Try again" }).waitFor();
  }
  expect(posts).toEqual([]);
  await w.provider.script(say("Here it is."));
  await answer(refused).getByRole("button", { name: "Try again" }).click();
  await answer(refused).getByText("Here it is.").waitFor();
  expect(posts).toHaveLength(1);
});
