import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { binary } from "./process.ts";
import { patience, worldOfFile } from "./world.ts";

const messages = 10_000;

const world = worldOfFile((data) => {
  mkdirSync(data, { recursive: true });
  execFileSync(binary("longsession"), [data, "ses_long", String(messages)]);
});

type Watched = { longest: number; blanks: number; frames: number; stop: boolean };

/** Begins to look at each frame: how long the page was held up, and whether there was nothing where turns belong. */
async function watchFrames(page: Page): Promise<() => Promise<Watched>> {
  await page.evaluate(() => {
    const seen: Watched = { longest: 0, blanks: 0, frames: 0, stop: false };
    Object.assign(window, { seen });
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) seen.longest = Math.max(seen.longest, duration);
    }).observe({ type: "longtask" });
    const look = () => {
      if (seen.stop) return;
      seen.frames++;
      const room = document.querySelector(".scroller")?.getBoundingClientRect();
      if (room) {
        const turns = [...document.querySelectorAll(".turn")].map((turn) => turn.getBoundingClientRect());
        const covered = turns.some(({ top, bottom }) => top < room.bottom - 40 && bottom > room.top + 40);
        if (!covered) seen.blanks++;
      }
      requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
  });
  return () =>
    page.evaluate(() => {
      const { seen } = window as unknown as { seen: Watched };
      seen.stop = true;
      return seen;
    });
}

test("a session of 10,000 messages shows its end, with few of them on the page", async () => {
  const page = await world.current.page("/s/ses_long");
  await page.getByText(`Answer ${messages - 1}.`).waitFor();
  const opened = await page.evaluate(() => performance.now());
  console.log(`opened after ${Math.round(opened)} ms`);
  expect(await page.locator(".turn").count()).toBeLessThan(40);
  const away = await page
    .locator(".scroller")
    .evaluate((element) => element.scrollHeight - element.clientHeight - element.scrollTop);
  expect(away).toBeLessThan(2);
});

test("a long session scrolls without a blank frame, and keeps its place while earlier messages come", async () => {
  const page = await world.current.page("/s/ses_long");
  await page.getByText(`Answer ${messages - 1}.`).waitFor();
  const seen = await watchFrames(page);
  const scroller = page.locator(".scroller");
  await scroller.hover();
  for (let i = 0; i < 120; i++) {
    await page.mouse.wheel(0, -400);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.getByRole("button", { name: "Jump to latest" }).waitFor();
  const { blanks, frames, longest } = await seen();
  console.log(`${frames} frames, the longest task took ${Math.round(longest)} ms`);
  expect(blanks).toBe(0);
  expect(await page.locator(".turn").count()).toBeLessThan(60);
  await page.getByRole("button", { name: "Jump to latest" }).click();
  await page.getByText(`Answer ${messages - 1}.`).waitFor();
});

test("a link leads to a message far back", async () => {
  const wanted = messages - 1_501;
  const page = await world.current.page(`/s/ses_long?m=msg_${wanted}`);
  await page.getByText(`Answer ${wanted}.`).waitFor({ timeout: patience });
  await expect
    .poll(() =>
      page.getByText(`Answer ${wanted}.`).evaluate((element) => {
        const { top } = element.getBoundingClientRect();
        return top > 40 && top < 300;
      }),
    )
    .toBe(true);
});

test("100,000 deltas in a few seconds do not hold up the page, and all of it is there", async () => {
  const w = world.current;
  const words = 100_000;
  await w.provider.script({ steps: [{ tokens: { n: words, rate: 8_000, size: 21 } }] });
  const page = await w.page("/s/ses_fast");
  await page.goto(`${w.url}/s/ses_fast`);
  await page.goto(w.url);
  await page.getByLabel("Agent").selectOption("scripted");
  const seen = await watchFrames(page);
  await page.getByLabel("Message", { exact: true }).fill("As fast as you can");
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Answer again" }).waitFor({ timeout: 120_000 });
  const { longest, frames } = await seen();
  console.log(`${frames} frames, the longest task took ${Math.round(longest)} ms`);
  const nodes = await page.evaluate(() => document.querySelectorAll("*").length);
  expect(nodes).toBeLessThan(5_000);
}, 180_000);
