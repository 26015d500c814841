import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();

/** What everybody said, from the first to the last. */
const turns = async (page: Page): Promise<string[]> => {
  const texts = await page.getByRole("article").locator(".bubble, .markdown").allTextContents();
  return texts.map((text) => text.trim());
};

/** Two pages of one browser, which may speak to each other, and a phone, which may not. */
async function three(path: string): Promise<readonly [Page, Page, Page]> {
  const w = world.current;
  const first = await w.page(path);
  const second = await first.context().newPage();
  w.watch(second);
  await second.goto(w.url + path);
  return [first, second, await w.page(path, sizes.phone)];
}

test("two tabs and a phone show the same, and stop in one stops all", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["A beginning"] }, { wait_gate: "never" }] });
  await w.say("ses_stop", "Go on until you are stopped");
  const pages = await three("/s/ses_stop");
  for (const page of pages) await answer(page).getByText("A beginning").waitFor();

  await pages[1].getByRole("button", { name: "Stop", exact: true }).click();
  for (const page of pages) {
    await answer(page).getByText("Stopped").waitFor();
    expect(await answer(page).textContent()).toContain("A beginning");
    expect(await page.getByRole("button", { name: "Stop", exact: true }).count()).toBe(0);
  }
  const { runs } = await w.snapshot("ses_stop");
  expect(runs.map((run) => run.status)).toEqual(["cancelled"]);
});

test("what is said in one tab is in the other, once", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["An answer"] }], times: 2 });
  await w.say("ses_two", "Hello");
  const pages = await three("/s/ses_two");
  await pages[0].getByLabel("Message", { exact: true }).fill("And again");
  await pages[0].keyboard.press("Enter");
  for (const page of pages) {
    await page.getByRole("article", { name: "You" }).getByText("And again").waitFor();
    await expect
      .poll(() => page.getByRole("article", { name: "Assistant" }).getByText("An answer").count())
      .toBe(2);
    expect(await page.getByRole("article", { name: "You" }).getByText("And again").count()).toBe(1);
  }
});

test("an approval decided in one tab is gone from the others, and from the inbox", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } }] },
    { steps: [{ text: ["It is paid."] }] },
  );
  await w.say("ses_pay", "Pay the rent");
  const pages = await three("/s/ses_pay");
  const inbox = await w.page("/approvals");
  await inbox.getByText("Allow Pay?").waitFor();
  for (const page of pages) await page.getByText("Allow Pay?").waitFor();

  await pages[2].getByRole("button", { name: "Approve" }).click();
  for (const page of pages) {
    await answer(page).getByText("It is paid.").waitFor();
    expect(await page.getByText("Allow Pay?").count()).toBe(0);
  }
  await inbox.getByText("Nothing waits for you").waitFor();
});

test("a decision from a page that is behind says who decided", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } }] },
    { steps: [{ text: ["As you wish."] }] },
  );
  await w.say("ses_late", "Pay the rent again");
  const page = await w.blank();
  // Commands come through; what happens is not told any more.
  let held = false;
  await page.routeWebSocket(/\/v1\/connect/, (socket) => {
    const server = socket.connectToServer();
    server.onMessage((message) => {
      if (!held) socket.send(message);
    });
  });
  await page.goto(`${w.url}/s/ses_late`);
  await page.getByText("Allow Pay?").waitFor();
  held = true;
  const [approval] = (await w.snapshot("ses_late")).approvals;
  if (!approval) throw new Error("nothing is asked");
  await w.client.api.decide(approval.id, { decision: "deny", note: "not today" });

  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByRole("alert").getByText("it was denied by local first.").waitFor();
});

test("what waits for its turn is seen in every tab, and can be changed and taken back in any", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["Busy"] }, { wait_gate: "later" }] },
    { steps: [{ text: ["Next."] }], times: 3 },
  );
  await w.say("ses_queue", "Be busy");
  const [first, second, phone] = await three("/s/ses_queue");
  await answer(first).getByText("Busy").waitFor();
  for (const text of ["one", "two"]) {
    await first.getByLabel("Message", { exact: true }).fill(text);
    await first.keyboard.press("Enter");
  }
  const queue = (page: Page) => page.getByRole("region", { name: "Waiting messages" }).getByRole("listitem");
  await expect.poll(() => queue(phone).count()).toBe(2);
  await queue(second).first().getByRole("button", { name: "Edit this waiting message" }).click();
  await second.getByLabel("Edit the waiting message").fill("one, but better");
  await second.keyboard.press("Enter");
  await queue(phone).getByText("one, but better").waitFor();
  await queue(phone).last().getByRole("button", { name: "Take this waiting message back" }).click();
  await expect.poll(() => queue(first).count()).toBe(1);
  await w.provider.open("later");
  const { messages } = await w.until(
    sessionOf(first),
    (s) => s.session.status === "idle" && s.inbox.length === 0,
  );
  expect(messages.filter((m) => m.role === "user").map((m) => m.parts[0]?.text)).toEqual([
    "Be busy",
    "one, but better",
  ]);
});

test("MT-01: two tabs that speak at once show the same, in the same order, and only one run is active", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ text: ["Heard."] }], times: 3 });
  await w.say("ses_mt01", "Begin");
  const pages = await three("/s/ses_mt01");
  for (const page of pages) await answer(page).getByText("Heard.").waitFor();
  // Two tabs of one browser would share what is typed.
  const [one, , phone] = pages;
  await one.getByLabel("Message", { exact: true }).fill("A");
  await phone.getByLabel("Message", { exact: true }).fill("B");
  await Promise.all([one.keyboard.press("Enter"), phone.keyboard.press("Enter")]);
  const { messages } = await w.until(
    "ses_mt01",
    (s) => s.session.status === "idle" && s.messages.length === 6,
  );
  const want = messages.map((m) => m.parts.map((part) => part.text ?? "").join(""));
  expect([want[2], want[4]].sort()).toEqual(["A", "B"]);
  for (const page of pages) await expect.poll(() => turns(page)).toEqual(want);
});

test("MT-03: two sessions that are said at once do not bleed into each other while a page switches between them", async () => {
  const w = world.current;
  const ids = ["ses_mt03a", "ses_mt03b"];
  for (const id of ids) {
    const pieces = Array.from({ length: 200 }, () => `${id} `);
    await w.provider.script({ when: { last_user: id }, steps: [{ paced: { every: "20ms", pieces } }] });
    await w.say(id, `Say ${id}`);
  }
  const page = await w.page(`/s/${ids[0]}`);
  await page.evaluate(() => {
    const seen = { foreign: [] as string[] };
    Object.assign(window, { seen });
    new MutationObserver(() => {
      const other = location.pathname.endsWith("a") ? "ses_mt03b" : "ses_mt03a";
      const text = document.querySelector(".thread")?.textContent ?? "";
      if (text.includes(other)) seen.foreign.push(text);
    }).observe(document.body, { childList: true, subtree: true, characterData: true });
  });
  for (let i = 1; i <= 20; i++) {
    await page
      .locator(".session-link")
      .getByText(`Say ${ids[i % 2]}`)
      .click();
    await answer(page)
      .getByText(ids[i % 2] ?? "")
      .waitFor();
  }
  for (const id of ids) await w.until(id, (s) => s.session.status === "idle");
  expect(
    await page.evaluate(() => (window as unknown as { seen: { foreign: string[] } }).seen.foreign),
  ).toEqual([]);
  for (const id of ids) {
    const fresh = await w.page(`/s/${id}`);
    await expect.poll(() => turns(fresh)).toEqual([`Say ${id}`, `${id} `.repeat(200).trim()]);
  }
});

test("MT-04: a tab whose message got no answer gets its own run, and not the one that another tab began meanwhile", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ text: ["Ready."] }] },
    { when: { last_user: "said-a" }, steps: [{ text: ["re:a"] }] },
    { when: { last_user: "said-b" }, steps: [{ text: ["re:b"] }] },
  );
  await w.say("ses_mt04", "Begin");
  const network = await w.network();
  const one = await w.page("/s/ses_mt04", { base: network.url });
  const two = await w.page("/s/ses_mt04", sizes.phone);
  for (const page of [one, two]) await answer(page).getByText("Ready.").waitFor();
  network.loseAnswer(/^POST \S+\/messages /);
  await one.getByLabel("Message", { exact: true }).fill("said-a");
  await one.keyboard.press("Enter");
  await two.getByLabel("Message", { exact: true }).fill("said-b");
  await two.keyboard.press("Enter");
  await w.until("ses_mt04", (s) => s.session.status === "idle" && s.messages.length === 6);
  for (const page of [one, two]) {
    await expect
      .poll(async () => (await turns(page)).slice(2).join(" "))
      .toMatch(/^(said-a re:a said-b re:b|said-b re:b said-a re:a)$/);
  }
});

test.each(["socket", "http"] as const)(
  "MT-06: eight tabs of eight sessions load, and Stop works in the last (%s)",
  async (over) => {
    const w = world.current;
    const context = await w.browser.newContext();
    if (over === "http") {
      await context.addInitScript(() => Object.defineProperty(window, "WebSocket", { value: undefined }));
    }
    const pages: Page[] = [];
    for (let i = 0; i < 8; i++) {
      const session = `ses_mt06${over}${i}`;
      await w.provider.script({
        when: { last_user: session },
        steps: [{ text: [`I am ${session}`] }, { wait_gate: "never" }],
      });
      await w.say(session, `Be ${session}`);
      const page = await context.newPage();
      w.watch(page);
      await page.goto(`${w.url}/s/${session}`);
      await answer(page).getByText(`I am ${session}`).waitFor();
      // Who opens another tab does not look at this one any more.
      if (i < 7) {
        await page.evaluate(() => {
          Object.defineProperty(document, "visibilityState", { value: "hidden" });
          document.dispatchEvent(new Event("visibilitychange"));
        });
      }
      pages.push(page);
    }
    const last = pages[7];
    await last?.getByRole("button", { name: "Stop", exact: true }).click();
    await last?.getByText("Stopped. What").waitFor();
    await last?.close();
    for (let i = 0; i < 7; i++)
      await w.client.api.cancelRun((await w.snapshot(`ses_mt06${over}${i}`)).runs[0]?.id ?? "");
    for (const page of pages.slice(0, 7)) await page.getByText("Stopped. What").waitFor();
    await context.close();
  },
);
