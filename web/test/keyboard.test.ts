import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, worldOfFile } from "./world.ts";

const world = worldOfFile();

/** What has the focus, by its name. */
const focused = (page: Page) =>
  page.evaluate(() => {
    const element = document.activeElement;
    return element?.getAttribute("aria-label") ?? element?.textContent ?? "";
  });

/** Goes on with Tab until something has the focus. */
async function tabTo(page: Page, name: string): Promise<void> {
  for (let i = 0; i < 60; i++) {
    if ((await focused(page)).includes(name)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not lead to ${name}: it is at ${await focused(page)}`);
}

test("a conversation can be begun, approved and left with the keyboard alone", async () => {
  const w = world.current;
  const page = await w.page("/");
  await expect.poll(() => focused(page)).toBe("Message"); // a page is for typing
  await page.keyboard.type("Delete the old reports");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("please");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "You" }).getByText("Delete the old reports please").waitFor();
  expect(await focused(page)).toBe("Message");

  await page.getByRole("button", { name: "Approve" }).waitFor();
  await page.keyboard.press("Shift+Tab"); // out of the composer, into the conversation
  for (let i = 0; i < 30 && (await focused(page)) !== "Approve"; i++) await page.keyboard.press("Shift+Tab");
  expect(await focused(page)).toBe("Approve");
  await page.keyboard.press("Enter");
  await page.getByText("Done: the old report is deleted").waitFor();

  await page.keyboard.press("Alt+n");
  await expect.poll(() => new URL(page.url()).pathname).toBe("/");
  await page.keyboard.press("Alt+ArrowDown");
  await expect.poll(() => new URL(page.url()).pathname).toMatch(/^\/s\//);
});

test("dialogs hold the focus, close on Escape, and give the focus back", async () => {
  const w = world.current;
  await w.say("ses_dialog", "What is 1 + 1?", "demo");
  await w.until("ses_dialog", (s) => s.session.status === "idle");
  const page = await w.page("/s/ses_dialog");
  await page.getByText("That is 2").waitFor();
  const more = page.getByRole("main").getByRole("button", { name: /^More for/ });
  await more.focus();
  await page.keyboard.press("Enter");
  await expect.poll(() => focused(page)).toBe("Rename");
  await page.keyboard.press("ArrowDown");
  expect(await focused(page)).toBe("Copy link");
  await page.keyboard.press("Escape");
  expect(await focused(page)).toMatch(/^More for/);

  await page.keyboard.press("Enter");
  await expect.poll(() => focused(page)).toBe("Rename");
  await page.keyboard.press("Enter");
  await expect.poll(() => focused(page)).toBe("Title");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("Small sums");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Small sums" }).waitFor();

  await page.keyboard.press("Control+/");
  const help = page.getByRole("dialog", { name: "Keyboard shortcuts" });
  await help.waitFor();
  for (let i = 0; i < 5; i++) {
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest("dialog, body")?.tagName)).toMatch(
      /DIALOG|BODY/,
    );
  }
  await page.keyboard.press("Escape");
  await help.waitFor({ state: "detached" });
});

test("a run is stopped, edited and looked into with the keyboard", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["Begun"] }, { wait_gate: "never" }] },
    { steps: [{ text: ["The other branch."] }] },
  );
  await w.say("ses_keys", "First wording");
  const page = await w.page("/s/ses_keys");
  await page.getByText("Begun").waitFor();
  await page.keyboard.press("Control+.");
  await page.getByText("Stopped. What had been said is kept.").waitFor();

  await page.getByRole("button", { name: "Edit", exact: true }).focus();
  await page.keyboard.press("Enter");
  await expect.poll(() => focused(page)).toBe("Edit the message");
  await page.keyboard.press("Control+a");
  await page.keyboard.type("Second wording");
  await page.keyboard.press("Enter");
  await page.getByText("The other branch.").waitFor();
  await page.getByText("Version 2/2").waitFor();
  await tabTo(page, "Previous version");
  await page.keyboard.press("Enter");
  await page.getByRole("article", { name: "You" }).getByText("First wording").waitFor();
  expect(await page.getByText("The other branch.").count()).toBe(0);

  await page.keyboard.press("Alt+i");
  await page.getByRole("complementary", { name: "Run inspector" }).waitFor();
  await page.getByRole("tab", { name: "Timeline" }).focus();
  await page.keyboard.press("ArrowRight");
  await page.getByText("session.created").waitFor();
  expect(sessionOf(page)).toBe("ses_keys");
});

test("a screen reader hears what changed, not the stream", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["word "] }, { wait_gate: "heard" }, { text: ["more"] }] });
  const page = await w.page("/s/ses_heard");
  await page.goto(w.url);
  await page.getByLabel("Agent").selectOption("scripted");
  await page.getByLabel("Message", { exact: true }).fill("Say something");
  await page.keyboard.press("Enter");
  const spoken = page.locator("[role=status].sr-only");
  await expect.poll(() => spoken.textContent()).toBe("The assistant is answering.");
  await w.provider.open("heard");
  await expect.poll(() => spoken.textContent()).toBe("The answer is complete.");
  expect(await page.getByRole("log").getAttribute("aria-live")).toBe("off");
});

test("the end is followed until the person scrolls away, and again when they come back", async () => {
  const w = world.current;
  const words = Array.from({ length: 400 }, (_, i) => `Paragraph ${i}.\n\n`);
  await w.provider.script({ steps: [{ paced: { every: "20ms", pieces: words } }] });
  await w.say("ses_follow", "Write many paragraphs");
  const page = await w.page("/s/ses_follow");
  await page.getByText("Paragraph 40.").waitFor();
  const away = () =>
    page.locator(".scroller").evaluate((e) => Math.round(e.scrollHeight - e.clientHeight - e.scrollTop));
  await expect.poll(away).toBeLessThan(3);

  await page.locator(".scroller").hover();
  await page.mouse.wheel(0, -600);
  const jump = page.getByRole("button", { name: "Jump to latest" });
  await jump.waitFor();
  const top = () => page.locator(".scroller").evaluate((e) => e.scrollTop);
  const held = await top();
  const far = await away();
  await expect.poll(away).toBeGreaterThan(far + 300); // it grew below
  expect(await top()).toBe(held); // and what is read stayed where it was
  await jump.click();
  await expect.poll(away).toBeLessThan(3);
  await w.until("ses_follow", (s) => s.session.status === "idle");
  await expect.poll(away).toBeLessThan(3);
});
