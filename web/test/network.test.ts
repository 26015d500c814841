import { expect, test } from "vitest";
import { sessionOf, worldOfFile } from "./world.ts";

const world = worldOfFile();

test("a message that was typed while the server was down is sent once when it is back", async () => {
  const w = world.current;
  const page = await w.page("/s/ses_down");
  await page.goto(w.url);
  await page.getByText("Connected").first().waitFor();
  await w.crash();
  await page.getByText("Trying again in").first().waitFor();
  await page.getByLabel("Message", { exact: true }).fill("What is 12 * 7?");
  await page.keyboard.press("Enter");
  await page.getByText("Not delivered yet").waitFor();
  const session = sessionOf(page);
  // A reload while nobody answers keeps it: the page itself comes from the server, so it is back first.
  await w.again();
  await page.reload();
  await page.getByText("That is 84").waitFor();
  const { messages } = await w.snapshot(session);
  expect(messages.filter((m) => m.role === "user")).toHaveLength(1);
});

test("a page behind a network that is cut says so, counts down, and comes back by itself", async () => {
  const w = world.current;
  const network = await w.network();
  await w.provider.script({
    steps: [{ text: ["First half, "] }, { wait_gate: "cut" }, { text: ["second half."] }],
  });
  await w.say("ses_cut", "Say it in two halves");
  const page = await w.page("/s/ses_cut", { base: network.url });
  await page.getByText("First half,").waitFor();
  network.cut();
  const banner = page.locator(".banner");
  await banner.getByText(/Trying again in \d+ s\. What runs goes on without this page\./).waitFor();
  await w.provider.open("cut");
  await w.until("ses_cut", (s) => s.session.status === "idle");
  expect(await page.getByText("second half.").count()).toBe(0);
  network.restore();
  await page.getByText("First half, second half.").waitFor();
  await banner.waitFor({ state: "detached" });
});

test("a browser without a network says that it is offline, and comes back at once", async () => {
  const w = world.current;
  const page = await w.page("/s/ses_cut");
  await page.getByText("Connected").first().waitFor();
  await page.context().setOffline(true);
  await page.locator(".connection").getByText("You are offline").waitFor({ timeout: 60_000 });
  await page.context().setOffline(false);
  await page.getByText("Connected").first().waitFor();
});

test("where WebSockets are blocked, the same comes over HTTP", async () => {
  const w = world.current;
  await w.provider.script({ steps: [{ paced: { every: "50ms", pieces: ["over ", "another ", "way"] } }] });
  const page = await w.blank();
  await page.addInitScript(() => {
    Object.defineProperty(window, "WebSocket", { value: undefined });
  });
  await page.goto(w.url);
  await page.getByLabel("Agent").selectOption("scripted");
  await page.getByLabel("Message", { exact: true }).fill("Find a way");
  await page.keyboard.press("Enter");
  await page.getByText("over another way").waitFor();
  await page.getByText("Connected over HTTP").first().waitFor();
});

test("a call whose outcome is unknown after a crash asks the person, and goes on with their word", async () => {
  const w = world.current;
  await w.provider.script(
    { steps: [{ call: { id: "call_1", name: "charge", args: '{"note":"card","ms":60000}' } }] },
    { steps: [{ text: ["Noted: the card was charged."] }] },
  );
  await w.say("ses_unknown", "Charge the card");
  const page = await w.page("/s/ses_unknown");
  await page
    .getByRole("region", { name: "Tool Charge" })
    .getByText(/\d+ s|running/)
    .waitFor();
  await w.crash();
  await w.again();
  await page.getByText("Did this happen?").waitFor();
  await page.getByText("It happened").click();
  await page.getByLabel(/^Result/).fill('{"receipt": 7}');
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByText("Noted: the card was charged.").waitFor();
});
