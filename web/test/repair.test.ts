/** Five faults of a well-known client, in a real browser: what a rebuild or a repair must not lose. */

import { execFileSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import type { Page, WebSocketRoute } from "playwright-core";
import { expect, test } from "vitest";
import { binary } from "./process.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile({
  prepare(data) {
    mkdirSync(data, { recursive: true });
    execFileSync(binary("longsession"), [data, "ses_old", "400"]);
  },
});

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const words = Array.from({ length: 40 }, (_, i) => `w${i} `);

/** Opens a page whose pieces of the log can be lost on the way: `lose` says which. */
async function leaky(path: string, lose: (message: string) => boolean): Promise<Page> {
  const page = await world.current.blank();
  await page.routeWebSocket(/\/v1\/connect/, (socket: WebSocketRoute) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      if (!lose(String(message))) socket.send(message);
    });
  });
  await page.goto(world.current.url + path);
  return page;
}

// The rebuild cleared what was pending after the fresh state had come.
test("1: a pending approval is there all the time, however often the page reconnects", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } }] },
    { steps: [{ text: ["Paid."] }] },
  );
  await w.say("ses_pending", "Pay the rent");
  const network = await w.network();
  const page = await w.page("/s/ses_pending", { base: network.url });
  await page.getByText("Allow Pay?").waitFor();
  await page.evaluate(() => {
    const seen = { gone: 0 };
    Object.assign(window, { seen });
    new MutationObserver(() => {
      if (!document.querySelector(".ask")) seen.gone++;
    }).observe(document.body, { childList: true, subtree: true });
  });
  let sockets = 0;
  page.on("websocket", () => sockets++);
  for (let i = 1; i <= 4; i++) {
    network.drop();
    await expect.poll(() => sockets).toBeGreaterThanOrEqual(i);
    await page.getByText("Connected").first().waitFor();
  }
  expect(await page.evaluate(() => (window as unknown as { seen: { gone: number } }).seen.gone)).toBe(0);
  await page.getByRole("button", { name: "Approve" }).click();
  await answer(page).getByText("Paid.").waitFor();
});

// Only that pieces overlap was checked, not that they join: the window opened as "… 5, 9".
test("2: a piece that is lost between the snapshot and the stream is asked for, and no hole is shown", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ paced: { every: "40ms", pieces: words } }] });
  await w.say("ses_hole", "Go");
  let lost = 0;
  let pieces = 0;
  const page = await leaky("/s/ses_hole", (message) => {
    if (!message.includes('"type":"events"')) return false;
    pieces++;
    const lose = pieces === 1 || pieces === 4;
    if (lose) lost++;
    return lose;
  });
  await page.evaluate(() => {
    const seen = { holes: [] as string[] };
    Object.assign(window, { seen });
    new MutationObserver(() => {
      const text = document.querySelector(".markdown")?.textContent?.trim() ?? "";
      const said = text ? text.split(/\s+/) : [];
      // The last word may be half written.
      if (said.slice(0, -1).some((word, i) => word !== `w${i}`)) seen.holes.push(text);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  await answer(page).getByText("w39").waitFor();
  expect(lost).toBe(2);
  expect(await answer(page).locator(".markdown").textContent()).toContain(words.join("").trim());
  expect(await page.evaluate(() => (window as unknown as { seen: { holes: string[] } }).seen.holes)).toEqual(
    [],
  );
});

// The repair took a new snapshot, and the older pages that had been loaded were gone with the old one.
test("3: the repair of a gap keeps the earlier messages that are loaded, and fetches only what is missing", async () => {
  const w = world.current;
  let lose = false;
  const page = await leaky("/s/ses_old", (message) => {
    const lost = lose && message.includes('"type":"events"');
    if (lost) lose = false;
    return lost;
  });
  await page.getByText("Answer 399.").waitFor();
  const scroller = page.locator(".scroller");
  await scroller.hover();
  for (let i = 0; i < 200 && (await page.getByText("Answer 301.").count()) === 0; i++) {
    await page.mouse.wheel(0, -600);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.getByText("Answer 301.").waitFor();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(`${request.method()} ${new URL(request.url()).pathname}`));
  lose = true;
  await w.provider.script({ steps: [{ paced: { every: "30ms", pieces: words } }] });
  await w.say("ses_old", "One more");
  await w.until("ses_old", (s) => s.session.status === "idle");
  expect(lose).toBe(false);
  await page.getByText("Answer 301.").waitFor();
  await page.getByRole("button", { name: "Jump to latest" }).click();
  await answer(page).getByText("w39").waitFor();
  // Up again: what was loaded is still there, without a question to the server.
  await scroller.hover();
  for (let i = 0; i < 200 && (await page.getByText("Answer 351.").count()) === 0; i++) {
    await page.mouse.wheel(0, -600);
    await page.evaluate(() => new Promise(requestAnimationFrame));
  }
  await page.getByText("Answer 351.").waitFor();
  // What a run's end may have added to the compactions is asked for; no message is.
  const again = asked.filter((line) => line.includes("/sessions/ses_old") && !line.endsWith("/compactions"));
  expect(again).toEqual([]);
});

// What had come while it hung waited for it in a buffer, for ever.
test("4: a snapshot that hangs is superseded when the connection returns, and what came meanwhile is shown", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: "hang" }, { text: ["ended."] }] });
  await w.say("ses_hang", "Hang on");
  const page = await w.page("/", { base: network.url });
  await page.getByText("Connected").first().waitFor();
  let hung = 0;
  await page.route(/\/sessions\/ses_hang\?window/, (route) => {
    if (hung++ > 0) return route.continue(); // the first is never answered
  });
  await page.locator(".session-link").getByText("Hang on", { exact: true }).click();
  await page.getByLabel("Loading the conversation").waitFor();
  await expect.poll(() => hung).toBe(1);
  await w.provider.open("hang");
  network.drop();
  await answer(page).getByText("Begun, ended.").waitFor();
  expect(hung).toBe(2);
});

// It failed once, and nobody tried again.
test("5: a snapshot that fails is tried again until it comes, and says so meanwhile", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["Here I am."] }] });
  await w.say("ses_fails", "Come");
  const page = await w.blank();
  let failed = 0;
  await page.route(/\/sessions\/ses_fails\?window/, (route) => {
    if (failed >= 3) return route.continue();
    failed++;
    return route.fulfill({ status: 503, body: "not now" });
  });
  await page.goto(`${w.url}/s/ses_fails`);
  await answer(page).getByText("Here I am.").waitFor();
  expect(failed).toBe(3);
});
