import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();

const asideStrip = (page: Page) => page.getByRole("region", { name: "In the background" });
const result = (page: Page) => page.getByRole("article", { name: "Result of a background run" });

test("RT-04: a failed run is retried from the step that failed, and what it did before is not done again", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "charge", args: '{"note":"once"}' } }] },
    { steps: [{ status: { code: 400 } }] },
    { steps: [{ text: ["Charged it."] }] },
  );
  await w.say("ses_retry", "Charge it");
  const page = await w.page("/s/ses_retry");
  await page.getByRole("button", { name: "Retry from step 2" }).click();
  await page.getByText("Charged it.").waitFor();
  expect(w.ledger().filter((line) => line.includes("once"))).toHaveLength(1);
  expect(await page.getByRole("region", { name: "Tool Charge" }).count()).toBe(1);
  await page.getByText("2/2").waitFor();
  await page.context().close();
});

test("a background run goes on beside the conversation, can be looked into, and tells its result once", async () => {
  const w = world.current;
  await w.provider.script(
    {
      steps: [{ text: ["Here is the long answer"] }, { wait_gate: "front" }, { text: [", at last."] }],
      when: { last_user: "A long question" },
    },
    {
      steps: [{ text: ["Looking it up"] }, { wait_gate: "aside" }, { text: [": it is 42."] }],
      when: { last_user: "Look it up" },
    },
  );
  await w.say("ses_aside", "A long question");
  const page = await w.page("/s/ses_aside");
  await page.getByText("Here is the long answer").waitFor();
  const box = page.getByRole("textbox", { name: "Message" });
  await box.fill("Look it up");
  await page.getByText("Background", { exact: true }).click();
  await box.press("Enter");
  await asideStrip(page).getByText("Working").waitFor();
  const phone = await w.page("/s/ses_aside", sizes.phone); // after a reload it is the same
  for (const one of [page, phone]) {
    await asideStrip(one).getByRole("button", { name: "Look it up", exact: true }).click();
    await one.getByRole("dialog").getByText("Looking it up").waitFor();
    expect(await one.getByRole("log").getByText("Look it up").count()).toBe(0);
  }
  await w.provider.open("aside");
  for (const one of [page, phone]) {
    await one.getByRole("dialog").getByText("It has ended.").waitFor();
    await one.getByRole("button", { name: "Close" }).click();
    expect(await result(one).count()).toBe(0); // the active run comes first
  }
  await w.provider.open("front");
  for (const one of [page, phone]) {
    await result(one).getByText("Looking it up: it is 42.").waitFor();
    await asideStrip(one).waitFor({ state: "detached" });
    expect(await one.getByText("/2").count()).toBe(0);
  }
  const fresh = await w.page("/s/ses_aside");
  await result(fresh).getByText("it is 42").waitFor();
  expect(await result(fresh).count()).toBe(1);
  for (const one of [page, phone, fresh]) await one.context().close();
});

test("a background run is stopped from its strip, and one that waits for a person is decided in its dialog", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["On and on"] }, { wait_gate: "never" }], when: { last_user: "Never end" } },
    {
      steps: [{ call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } }],
      when: { last_user: "Pay the rent" },
    },
    { steps: [{ text: ["Paid the rent."] }], when: { last_user: "Pay the rent" } },
  );
  const page = await w.page("/s/ses_ask_aside");
  for (const text of ["Never end", "Pay the rent"]) {
    await w.client.api.send("ses_ask_aside", {
      id: `msg_${text.replaceAll(" ", "_")}`,
      parts: [{ type: "text", text }],
      agent: "scripted",
      background: true,
    });
  }
  await asideStrip(page).getByText("Needs you").waitFor();
  await page.getByRole("button", { name: "Stop: Never end" }).click();
  await page.getByRole("button", { name: "Stop: Never end" }).waitFor({ state: "detached" });
  await page.getByRole("button", { name: "Pay the rent", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Approve" }).click();
  await page.getByRole("button", { name: "Close" }).click();
  await result(page).getByText("Paid the rent.").waitFor();
  await page.context().close();
});
