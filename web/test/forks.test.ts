import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();
const says = (text: string) => ({ steps: [{ text: [text] }] });
const answers = (page: Page) => page.getByRole("article", { name: "Assistant" });

test("a conversation is forked at a message, goes on by itself, and links back to where it is from", async () => {
  const w = world.current;
  await w.provider.script(says("The first answer."), says("The second answer."), says("Said in the fork."));
  for (const text of ["First question", "Second question"]) {
    await w.say("ses_origin", text);
    await w.until("ses_origin", (s) => s.session.status === "idle");
  }
  const page = await w.page("/s/ses_origin");
  await answers(page).first().getByRole("button", { name: "Fork from here" }).click();
  await page.getByText("Forked from").waitFor();
  const fork = sessionOf(page);
  expect(fork).not.toBe("ses_origin");
  expect(await page.getByText("The first answer.").count()).toBe(1);
  expect(await page.getByText("Second question").count()).toBe(0);
  await page.getByRole("navigation").getByText("First question (fork)").waitFor();
  const box = page.getByRole("textbox", { name: "Message" });
  await box.fill("Go on");
  await box.press("Enter");
  await page.getByText("Said in the fork.").waitFor();
  await page.getByRole("link", { name: "another conversation" }).click();
  await page.getByText("The second answer.").waitFor();
  expect(await page.getByText("Said in the fork.").count()).toBe(0);
  await w.client.api.deleteSession("ses_origin");
  const again = await w.page(`/s/${fork}`);
  await again.getByText("The first answer.").waitFor();
  for (const one of [page, again]) await one.context().close();
});

test("two versions are compared from where they part, with the keyboard alone, and one is chosen", async () => {
  const w = world.current;
  await w.provider.script(
    says("A short tale."),
    says("And so it ended."),
    says("A tale of two towns."),
    says("A third tale."),
  );
  for (const text of ["Tell me a tale", "How did it end?"]) {
    await w.say("ses_versions", text);
    await w.until("ses_versions", (s) => s.session.status === "idle");
  }
  const { runs } = await w.snapshot("ses_versions");
  const first = runs[0]?.id ?? "";
  for (let i = 0; i < 2; i++) {
    await w.client.api.retryRun(first, { id: `run_again_${i}` });
    await w.until("ses_versions", (s) => s.session.status === "idle" && s.messages.length === 2);
  }
  for (const size of [sizes.desk, sizes.phone]) {
    const page = await w.page("/s/ses_versions", size);
    const open = page.getByRole("button", { name: "Compare versions" });
    await open.focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog", { name: "Compare versions" });
    const left = dialog.getByRole("region", { name: "Version 2 of 3", exact: true });
    const right = dialog.getByRole("region", { name: "Version 3 of 3", exact: true });
    await left.getByText("A tale of two towns.").waitFor();
    await right.getByText("A third tale.").waitFor();
    expect(await dialog.getByRole("article", { name: "You" }).count()).toBe(0); // what is the same is not there twice
    await left.getByRole("combobox").selectOption({ label: "Version 1 of 3" });
    const whole = dialog.getByRole("region", { name: "Version 1 of 3", exact: true });
    await whole.getByText("And so it ended.").waitFor();
    const boxes = await Promise.all([whole, right].map((column) => column.boundingBox()));
    const [a, b] = boxes;
    if (size === sizes.phone) expect(a && b && a.y < b.y && a.x === b.x).toBe(true);
    else expect(a && b && a.x < b.x && a.y === b.y).toBe(true);
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    expect(await page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe(
      "Compare versions",
    );
    await page.context().close();
  }
  const page = await w.page("/s/ses_versions");
  await page.getByRole("button", { name: "Compare versions" }).click();
  await page
    .getByRole("region", { name: "Version 2 of 3", exact: true })
    .getByRole("button", { name: "Show this one" })
    .click();
  await page.getByText("2/3").waitFor();
  await answers(page).getByText("A tale of two towns.").waitFor();
  await page.context().close();
});
