/** The field's faults of resuming, of doubles and of several tabs, by their ids, in a real browser over a network that is really cut. */

import { cpSync, rmSync } from "node:fs";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { worldOfFile } from "./world.ts";

const world = worldOfFile({ settings: "retention: 1s\n" });

const answers = (page: Page) => page.getByRole("article", { name: "Assistant" });
const said = (page: Page) => page.getByRole("article", { name: "You", exact: true });

/** What an answer says, without what can be done with it. */
const prose = async (page: Page, at = -1): Promise<string> => {
  const found = await answers(page).nth(at).locator(".markdown").allTextContents();
  return found.join("").trim().replace(/\s+/g, " ");
};

const numbers = (n: number, from = 0) => Array.from({ length: n }, (_, i) => `w${from + i} `);

const send = async (page: Page, text: string) => {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
};

test("RG-01: whenever a page is opened while much is said, it misses nothing", async () => {
  const w = world.current;
  const words = numbers(400);
  await w.provider.script({ steps: [{ paced: { every: "10ms", pieces: words } }] });
  await w.say("ses_rg01", "Go");
  const context = await w.browser.newContext();
  const pages: Page[] = [];
  for (let i = 0; i < 8; i++) {
    const page = await context.newPage();
    w.watch(page);
    await page.goto(`${w.url}/s/ses_rg01`, { waitUntil: "commit" });
    pages.push(page);
  }
  await w.until("ses_rg01", (s) => s.session.status === "idle");
  for (const page of pages) {
    await expect.poll(() => prose(page)).toBe(words.join("").trim());
  }
  await context.close();
});

test("RG-03: a page that comes back after its place was folded away shows the whole, and one ahead of the log begins anew", async () => {
  const w = world.current;
  const network = await w.network();
  const words = numbers(60);
  await w.provider.script({
    steps: [
      { text: words.slice(0, 20) },
      { wait_gate: "rg03" },
      { paced: { every: "5ms", pieces: words.slice(20) } },
    ],
  });
  await w.say("ses_rg03", "Go");
  const page = await w.page("/s/ses_rg03", { base: network.url });
  await answers(page).getByText("w19").waitFor();
  network.cut();
  await w.provider.open("rg03");
  await w.until("ses_rg03", (s) => s.session.status === "idle");
  const isFolded = async () =>
    (await w.client.api.events("ses_rg03")).frames.some(({ type }) => type === "folded");
  await expect.poll(isFolded).toBe(true);
  network.restore();
  await expect.poll(() => prose(page)).toBe(words.join("").trim());
  // What was folded is said where the log is shown.
  await page.getByRole("button", { name: "How it went" }).click();
  await page.getByRole("tab", { name: "Events" }).click();
  await page
    .getByText(/\d+ deltas folded away/)
    .first()
    .waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  // The server is restored from a copy that knows less than the page.
  await w.crash();
  await w.again((data) => cpSync(data, `${data}.copy`, { recursive: true }));
  await w.provider.script({ steps: [{ text: ["What the copy does not have."] }] });
  await w.say("ses_rg03", "More");
  await answers(page).getByText("What the copy does not have.").waitFor();
  await w.crash();
  await w.again((data) => {
    rmSync(data, { recursive: true });
    cpSync(`${data}.copy`, data, { recursive: true });
  });
  await page.getByText("What the copy does not have.").waitFor({ state: "detached" });
  await expect.poll(() => prose(page)).toBe(words.join("").trim());
  expect(await said(page).count()).toBe(1);
});

test("RG-05: a cursor that the server refuses costs a snapshot, and no endless loop", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["One."] }] }, { steps: [{ text: ["Two."] }] });
  await w.say("ses_rg05", "First");
  await w.until("ses_rg05", (s) => s.session.status === "idle");
  const page = await w.blank();
  const snapshots: string[] = [];
  page.on("request", (request) => {
    if (/\/sessions\/ses_rg05\?/.test(request.url())) snapshots.push(request.url());
  });
  let spoilt = 0;
  await page.routeWebSocket(/\/v1\/connect/, (socket) => {
    const server = socket.connectToServer();
    socket.onMessage((message) => {
      const spoil = spoilt === 0 && String(message).includes('"ses_rg05"');
      if (spoil) spoilt++;
      server.send(spoil ? String(message).replace(/"after":\d+/, '"after":-1') : message);
    });
  });
  await page.goto(`${w.url}/s/ses_rg05`);
  await answers(page).getByText("One.").waitFor();
  await w.say("ses_rg05", "Second");
  await answers(page).getByText("Two.").waitFor();
  expect(spoilt).toBe(1);
  expect(snapshots).toHaveLength(2);
});

test("RG-08: the end of a run is seen although the connection died at that moment without a word", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({ steps: [{ text: ["Begun, "] }, { wait_gate: "rg08" }, { text: ["ended."] }] });
  await w.say("ses_rg08", "Go");
  const context = await w.browser.newContext();
  const page = await context.newPage();
  w.watch(page);
  await page.clock.install();
  await page.goto(`${network.url}/s/ses_rg08`);
  await answers(page).getByText("Begun,").waitFor();
  network.strand();
  await w.provider.open("rg08");
  await w.until("ses_rg08", (s) => s.session.status === "idle");
  // The silence alone tells: 45 s of it, which pass faster here.
  expect(await page.getByRole("button", { name: "Stop", exact: true }).count()).toBe(1);
  for (let s = 0; s < 60; s++) await page.clock.runFor(1_000);
  await answers(page).getByText("Begun, ended.").waitFor();
  await page.getByRole("button", { name: "Stop", exact: true }).waitFor({ state: "detached" });
  await context.close();
});

test("RG-10: a page that rejoins in the middle has all kinds of parts", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script(
    {
      steps: [
        { reasoning: ["Let me see."] },
        { text: ["First I look. "] },
        { wait_gate: "rg10" },
        { call: { id: "call_1", name: "look", args: '{"note":"a"}' } },
        { call: { id: "call_2", name: "put", args: '{"note":"b"}' } },
      ],
    },
    { steps: [{ reasoning: ["I have it."] }, { text: ["That is **all**."] }] },
  );
  await w.say("ses_rg10", "Go");
  const page = await w.page("/s/ses_rg10", { base: network.url });
  await answers(page).getByText("First I look.").waitFor();
  network.cut();
  await w.provider.open("rg10");
  await w.until("ses_rg10", (s) => s.session.status === "idle");
  network.restore();
  const fresh = await w.page("/s/ses_rg10");
  for (const one of [page, fresh]) {
    await answers(one).getByText("That is all.").waitFor();
    expect(await answers(one).getByText("Thought about it").count()).toBe(2);
    expect(await one.getByRole("region", { name: /^Tool/ }).count()).toBe(2);
  }
  await expect.poll(() => answers(page).textContent()).toBe(await answers(fresh).textContent());
});

test("DU-01: a text is not doubled by a rejoin, on the same page or on a fresh one, over either transport", async () => {
  const w = world.current;
  for (const [session, over] of [
    ["ses_du01", "socket"],
    ["ses_du01h", "http"],
  ] as const) {
    const network = await w.network();
    await w.provider.script({
      steps: [{ text: ["Hello", " wor"] }, { wait_gate: session }, { text: ["ld"] }],
    });
    await w.say(session, "Greet");
    const page = await w.blank();
    if (over === "http") {
      await page.addInitScript(() => Object.defineProperty(window, "WebSocket", { value: undefined }));
    }
    await page.goto(`${network.url}/s/${session}`);
    await answers(page).getByText("Hello wor").waitFor();
    network.drop();
    await page
      .getByText(/^Connected/)
      .first()
      .waitFor();
    const fresh = await w.page(`/s/${session}`);
    await answers(fresh).getByText("Hello wor").waitFor();
    await w.provider.open(session);
    for (const one of [page, fresh]) {
      await expect.poll(() => prose(one)).toBe("Hello world");
      await one.reload();
      await expect.poll(() => prose(one)).toBe("Hello world");
      expect(await answers(one).count()).toBe(1);
    }
  }
});

test("DU-02: a page that is loaded in the second turn does not take the first answer for it", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["ANSWER-1"] }] },
    { steps: [{ text: ["ANSWER-"] }, { wait_gate: "du02" }, { text: ["2"] }] },
  );
  await w.say("ses_du02", "one");
  await w.until("ses_du02", (s) => s.session.status === "idle");
  await w.say("ses_du02", "two");
  const page = await w.page("/s/ses_du02");
  await expect.poll(() => answers(page).count()).toBe(2);
  await page.reload();
  await expect.poll(() => answers(page).count()).toBe(2);
  await w.provider.open("du02");
  await answers(page).getByText("ANSWER-2").waitFor();
  const turns = () => page.getByRole("article").locator(".bubble, .markdown").allTextContents();
  const want = ["one", "ANSWER-1", "two", "ANSWER-2"];
  expect((await turns()).map((text) => text.trim())).toEqual(want);
  await page.reload();
  await expect.poll(async () => (await turns()).map((text) => text.trim())).toEqual(want);
});

test("DU-04: two messages that say the same are two, live, after a reload and in another tab", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({ steps: [{ text: ["Yes."] }], times: 3 });
  await w.say("ses_du04", "Begin");
  const page = await w.page("/s/ses_du04", { base: network.url });
  await answers(page).getByText("Yes.").waitFor();
  await send(page, "ok");
  await expect.poll(() => answers(page).getByText("Yes.").count()).toBe(2);
  network.cut();
  await send(page, "ok");
  await page.getByRole("article", { name: "You, not yet received" }).getByText("ok").waitFor();
  expect(await said(page).getByText("ok", { exact: true }).count()).toBe(1);
  network.restore();
  await expect.poll(() => answers(page).getByText("Yes.").count()).toBe(3);
  const other = await w.page("/s/ses_du04");
  await page.reload();
  for (const one of [page, other]) {
    await expect.poll(() => answers(one).getByText("Yes.").count()).toBe(3);
    expect(await said(one).getByText("ok", { exact: true }).count()).toBe(2);
    expect(await one.getByRole("article", { name: "You, not yet received" }).count()).toBe(0);
  }
});

test("DU-05: a message whose answer is lost on the way is sent again, and makes one run", async () => {
  const w = world.current;
  const network = await w.network();
  const before = await w.provider.requests();
  await w.provider.script({ steps: [{ text: ["Once."] }] });
  const page = await w.page("/", { base: network.url });
  await page.getByText("Connected").first().waitFor();
  await page.getByLabel("Agent").selectOption("scripted");
  network.loseAnswer(/^POST \S+\/messages /);
  await send(page, "Do it once");
  await answers(page).getByText("Once.").waitFor();
  expect(network.posts).toHaveLength(2); // by the browser itself, or by the outbox
  expect(network.posts[1]).toBe(network.posts[0]);
  expect(await page.getByRole("article", { name: /^You/ }).count()).toBe(1);
  const session = new URL(page.url()).pathname.split("/")[2] ?? "";
  expect((await w.snapshot(session)).runs).toHaveLength(1);
  expect((await w.provider.requests()) - before).toBe(1);
});
