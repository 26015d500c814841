import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sessionOf, sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();

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
  const page = await w.page("/");
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
