/** What a page shows of the subagents that work for its conversation, and lets a person say to them. */

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, worldOfFile } from "./world.ts";

const world = worldOfFile();

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const say = (text: string, when: string) => ({ steps: [{ text: [text] }], when: { last_user: when } });
const asks = (...tasks: string[]) => ({
  steps: tasks.map((task, i) => ({
    call: { id: `call_${i}`, name: "clerk", args: JSON.stringify({ task }) },
  })),
  when: { last_user: "Share it out" },
});
const call = (name: string, note: string) => ({
  steps: [{ call: { id: "call_9", name, args: JSON.stringify({ note }) } }],
  when: { last_user: note },
});

test("a subagent's question is answered on its parent's page, and both go on", async () => {
  const w = world.current;
  await w.provider.script(
    asks("pay the rent", "read the post"),
    call("pay", "pay the rent"),
    {
      steps: [{ text: ["Half of it "] }, { wait_gate: "post" }, { text: ["is read."] }],
      when: { last_user: "read the post" },
    },
    say("The rent is paid.", "pay the rent"),
    say("Both are done.", "Share it out"),
  );
  await w.say("ses_shared", "Share it out");
  const page = await w.page("/s/ses_shared");
  const other = await w.page("/s/ses_shared");
  await answer(page).getByText("Half of it").waitFor();
  await answer(page).getByText("It asks you:").waitFor();
  await answer(other).getByText("Allow Pay?").waitFor();
  // The conversation of a subagent is not one of the person's.
  await page.getByRole("navigation").getByText("Share it out").first().waitFor();
  expect(await page.getByRole("navigation").getByText("pay the rent").count()).toBe(0);
  // It survives a refresh and a crash, as everything does.
  await w.crash();
  await w.again();
  await page.reload();
  await answer(page).getByRole("button", { name: "Approve" }).click();
  await answer(other).getByText("Allow Pay?").waitFor({ state: "detached" });
  await w.provider.open("post");
  await answer(page).getByText("Both are done.").waitFor();
  await answer(other).getByText("Both are done.").waitFor();
  expect(w.ledger().filter((line) => line.endsWith("pay the rent"))).toHaveLength(1);

  await answer(page).getByRole("link", { name: "Open the conversation of Clerk" }).first().click();
  await page.getByText("A subagent’s work for another conversation").waitFor();
  await answer(page).getByText("The rent is paid.").waitFor();
  expect(sessionOf(page)).not.toBe("ses_shared");
  await page.getByRole("link", { name: "another conversation" }).click();
  await answer(page).getByText("Both are done.").waitFor();
});

test("Stop ends the subagents too, and says so on their cards", async () => {
  const w = world.current;
  await w.provider.script(asks("pay the fee"), call("pay", "pay the fee"));
  await w.say("ses_stopped", "Share it out");
  const page = await w.page("/s/ses_stopped");
  await answer(page).getByText("Allow Pay?").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).click();
  await answer(page).getByText("Allow Pay?").waitFor({ state: "detached" });
  await answer(page).getByText("cancelled").waitFor();
  await w.until("ses_stopped", (s) => s.session.status === "idle");
  await page.goto(`${w.url}/approvals`);
  await page.getByText("Nothing waits for you").waitFor();
});
