/** The field's faults of transports and proxies, by their ids, in a real browser. */

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { Gateway } from "./gateway.ts";
import { type World, worldOfFile } from "./world.ts";

/** The server speaks every second where it else does every 15 s: silences pass 15 times as fast. */
const world = worldOfFile({ settings: "server:\n  heartbeat: 1s\n" });

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const ticks = (n: number) => Array.from({ length: n }, (_, i) => `tick${i} `);

/** An empty page that has no WebSocket, as in some places. */
async function blankOverHttp(w: World): Promise<Page> {
  const page = await w.blank();
  await page.addInitScript(() => Object.defineProperty(window, "WebSocket", { value: undefined }));
  return page;
}

/** Remembers how often what is shown grew. */
const watchGrowth = (page: Page) =>
  page.evaluate(() => {
    const seen = { sizes: new Set<number>() };
    Object.assign(window, { seen });
    new MutationObserver(() => {
      seen.sizes.add(document.querySelector(".markdown")?.textContent?.length ?? 0);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });

const growth = (page: Page) =>
  page.evaluate(() => (window as unknown as { seen: { sizes: Set<number> } }).seen.sizes.size);

test("TP-01: over HTTP, and although the browser would take it compressed, each word is shown as it is said", async () => {
  const w = world.current;
  await w.provider.script({
    steps: [{ wait_gate: "tp01" }, { paced: { every: "200ms", pieces: ticks(10) } }],
  });
  await w.say("ses_tp01", "Go");
  const page = await blankOverHttp(w);
  await page.goto(`${w.url}/s/ses_tp01`);
  await page.getByText("Connected over HTTP").first().waitFor();
  await page.getByLabel("Working").waitFor();
  await watchGrowth(page);
  await w.provider.open("tp01");
  await answer(page).getByText("tick9").waitFor();
  expect(await growth(page)).toBeGreaterThanOrEqual(5);
});

test.each(["socket", "http"] as const)(
  "TP-02: a proxy that ends what is silent ends nothing during a long call (%s)",
  async (over) => {
    const w = world.current;
    const network = await w.network(4_000); // as 60 s to 15 s
    await w.provider.script(
      { steps: [{ call: { id: "call_1", name: "look", args: '{"ms":9000}' } }] },
      { steps: [{ text: ["I have looked."] }] },
    );
    await w.say(`ses_tp02${over}`, "Look for long");
    const url = `${network.url}/s/ses_tp02${over}`;
    const streams: string[] = [];
    const page = await (over === "http" ? blankOverHttp(w) : w.blank());
    page.on("websocket", () => streams.push("socket"));
    page.on("request", (request) => {
      if (request.url().includes("/events?after=")) streams.push("stream");
    });
    await page.goto(url);
    await page.getByRole("region", { name: "Tool Look" }).waitFor();
    await answer(page).getByText("I have looked.").waitFor();
    if (over === "socket") expect(network.idleEnds).toBeGreaterThan(0); // of what nobody used any more
    expect(streams).toHaveLength(1);
  },
);

test("RG-06: what follows a heartbeat is not skipped by a page that comes back", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: "rg06" }, { text: ["ended."] }] });
  await w.say("ses_rg06", "Go");
  const page = await blankOverHttp(w);
  const debug = await page.context().newCDPSession(page);
  await debug.send("Network.enable");
  let heard = 0;
  debug.on("Network.dataReceived", () => heard++);
  await page.goto(`${network.url}/s/ses_rg06`);
  await answer(page).getByText("Begun,").waitFor();
  const before = heard;
  await expect.poll(() => heard - before).toBeGreaterThanOrEqual(3);
  network.cut();
  await w.provider.open("rg06");
  await w.until("ses_rg06", (s) => s.session.status === "idle");
  network.restore();
  await answer(page).getByText("Begun, ended.").waitFor();
});

test("TP-04: a gateway that ends each answer cleanly ends no run: every tick is shown, once", async () => {
  const w = world.current;
  const gateway = await Gateway.before(w.url, 1_200);
  try {
    const said = ticks(30);
    await w.provider.script({ steps: [{ paced: { every: "250ms", pieces: said } }] });
    await w.say("ses_tp04", "Go");
    const page = await w.page("/s/ses_tp04", { base: gateway.url });
    await answer(page).getByText("tick0 ").waitFor();
    await page.evaluate(() => {
      const seen = { ends: 0, busy: true };
      Object.assign(window, { seen });
      new MutationObserver(() => {
        const busy = document.querySelector(".stop") !== null;
        if (seen.busy && !busy) seen.ends++;
        seen.busy = busy;
      }).observe(document.body, { childList: true, subtree: true });
    });
    await answer(page).getByText("tick29").waitFor();
    expect(gateway.ends).toBeGreaterThanOrEqual(2);
    expect((await answer(page).locator(".markdown").textContent())?.trim()).toBe(said.join("").trim());
    await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
    // It ended once: no end of an answer was taken for the run's.
    expect(await page.evaluate(() => (window as unknown as { seen: { ends: number } }).seen.ends)).toBe(1);
    await page.context().close();
  } finally {
    gateway.close();
  }
});

test.each(["socket", "http"] as const)(
  "TP-05: a page that was frozen while its run ended shows the whole answer when it is back, and cancelled nothing (%s)",
  async (over) => {
    const w = world.current;
    const network = await w.network();
    const gate = `tp05${over}`;
    await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: gate }, { text: ["ended."] }] });
    const session = `ses_tp05${over}`;
    await w.say(session, "Go");
    const url = `${network.url}/s/${session}`;
    const page = await (over === "http" ? blankOverHttp(w) : w.blank());
    await page.goto(url);
    await answer(page).getByText("Begun,").waitFor();
    // The browser keeps as many connections for later as it may, and every one of them will be dead.
    await page.evaluate(() =>
      Promise.all(Array.from({ length: 6 }, () => fetch("/healthz").then((r) => r.text()))),
    );
    const posts: string[] = [];
    page.on("request", (request) => {
      if (request.method() !== "GET") posts.push(request.url());
    });
    await turn(page, "hidden");
    const thaw = await freeze(page);
    network.strand(); // as a phone does with a page that it has put away
    await w.provider.open(gate);
    await w.until(session, (s) => s.session.status === "idle");
    await thaw();
    await turn(page, "visible");
    // Within seconds: a dead connection that the browser kept costs two before another is tried.
    await answer(page).getByText("Begun, ended.").waitFor();
    await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
    expect(await page.locator(".banner").count()).toBe(0);
    expect(posts).toEqual([]);
  },
);

test("TP-05: a page that was left and comes back with the browser's own button shows what happened meanwhile", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: "back" }, { text: ["ended."] }] });
  await w.say("ses_back", "Go");
  const page = await w.page("/s/ses_back");
  await answer(page).getByText("Begun,").waitFor();
  const posts: string[] = [];
  page.on("request", (request) => {
    if (request.method() !== "GET") posts.push(request.url());
  });
  await page.goto("data:text/html,elsewhere");
  await w.provider.open("back");
  await w.until("ses_back", (s) => s.session.status === "idle");
  await page.goBack();
  await answer(page).getByText("Begun, ended.").waitFor();
  expect(posts).toEqual([]);
});

test("a tab that is hidden for five minutes stays connected, goes on, and paints at once when it is looked at", async () => {
  const w = world.current;
  await w.provider.script({
    steps: [{ text: ["Begun, "] }, { wait_gate: "hidden" }, { text: ["ended."] }, { wait_gate: "seen" }],
  });
  await w.say("ses_hidden", "Go");
  const page = await w.blank();
  await page.clock.install();
  let heard = 0;
  const sockets: string[] = [];
  page.on("websocket", (socket) => {
    sockets.push(socket.url());
    socket.on("framereceived", () => heard++);
  });
  await page.goto(`${w.url}/s/ses_hidden`);
  await answer(page).getByText("Begun,").waitFor();
  await turn(page, "hidden");
  for (let minute = 1; minute <= 5; minute++) {
    if (minute === 3) await w.provider.open("hidden");
    const before = heard;
    await expect.poll(() => heard - before).toBeGreaterThan(1);
    // A hidden page's timers run once a minute.
    await page.clock.fastForward(60_000);
  }
  // No frame is painted: a timer has published it.
  await expect.poll(() => answer(page).locator(".markdown").textContent()).toContain("Begun, ended.");
  await turn(page, "visible");
  await answer(page).getByText("Begun, ended.").waitFor();
  expect(sockets).toHaveLength(1);
  expect(await page.locator(".banner").count()).toBe(0);
  await w.provider.open("seen");
});

test("a laptop that slept for a night is there again after one attempt", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: "night" }, { text: ["ended."] }] });
  await w.say("ses_night", "Go");
  const page = await w.blank();
  await page.clock.install();
  let sockets = 0;
  page.on("websocket", () => sockets++);
  await page.goto(`${network.url}/s/ses_night`);
  await answer(page).getByText("Begun,").waitFor();
  network.strand();
  await w.provider.open("night");
  await w.until("ses_night", (s) => s.session.status === "idle");
  const before = network.attempts;
  await page.clock.fastForward("08:00:00");
  await page.clock.runFor(3_000); // the time that a sign of life may take
  await answer(page).getByText("Begun, ended.").waitFor();
  expect(sockets).toBe(2);
  // One WebSocket, and what is asked anew: the lists, and what was missed.
  expect(network.attempts - before).toBeLessThan(10);
});

/** Stops all scripts of a page, as a browser does with one that is put away, until the returned function is called. */
async function freeze(page: Page): Promise<() => Promise<unknown>> {
  const debug = await page.context().newCDPSession(page);
  await debug.send("Debugger.enable");
  const frozen = new Promise((resolve) => debug.once("Debugger.paused", resolve));
  void debug.send("Runtime.evaluate", { expression: "debugger" }).catch(() => {});
  await frozen;
  return () => debug.send("Debugger.resume");
}

/** Has a page believe that it is looked at, or not: then it paints no frames. */
const turn = (page: Page, state: "hidden" | "visible") =>
  page.evaluate((state) => {
    const world = window as unknown as { paint?: typeof requestAnimationFrame };
    world.paint ??= window.requestAnimationFrame;
    window.requestAnimationFrame = state === "hidden" ? () => 0 : world.paint;
    Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, state);
