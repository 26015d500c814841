/** What a page shows of a call that a service answers later. */

import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, expect, test } from "vitest";
import { worldOfFile } from "./world.ts";

/** A service that takes every call, and where it is to tell their results. */
const callbacks: string[] = [];
const service = createServer(async (req, res) => {
  let body = "";
  for await (const chunk of req) body += chunk;
  callbacks.push((JSON.parse(body) as { callback: { url: string } }).callback.url);
  res.writeHead(202).end();
});
await new Promise<void>((resolve) => service.listen(0, "127.0.0.1", resolve));
afterAll(() => void service.close());

const world = worldOfFile({
  agents: `  - name: traveller
    model: fake/fake-model
    tools: [book]
`,
  settings: `http:
  book:
    url: http://127.0.0.1:${(service.address() as AddressInfo).port}
    description: Books.
    parameters: {type: object}
    approval: never
    allowPrivate: true
    async: {timeout: 2h}
`,
});

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const book = (page: Page) => page.getByRole("region", { name: "Tool Book" });
const call = { steps: [{ call: { id: "call_1", name: "book", args: '{"to":"Lisbon"}' } }] };

async function waiting(session: string): Promise<Page> {
  const w = world.current;
  await w.say(session, "Book it", "traveller");
  const page = await w.page(`/s/${session}`);
  await book(page).getByText("waits for its service").waitFor();
  await book(page)
    .getByText(/It works on it for \d.* and has 1 h 59 min left\. You can close this page\./)
    .waitFor();
  return page;
}

test("a call that a service works on says so, over a restart, until the service tells its result", async () => {
  const w = world.current;
  await w.provider.script(call, { steps: [{ text: ["You have seat 7."] }] });
  const page = await waiting("ses_booked");
  await w.crash();
  await w.again();
  const told = await fetch(callbacks.at(-1) ?? "", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: '{"result": {"seat": 7}}',
  });
  expect(told.status).toBe(200);
  await answer(page).getByText("You have seat 7.").waitFor();
  expect(await book(page).getByText("waits for its service").count()).toBe(0);
});

test("a run that waits for a service can be cancelled on the card of its call", async () => {
  await world.current.provider.script(call);
  const page = await waiting("ses_unbooked");
  await book(page).getByRole("button", { name: "Cancel the run" }).click();
  await book(page).getByText("cancelled").waitFor();
  expect(await book(page).getByRole("button", { name: "Cancel the run" }).count()).toBe(0);
});
