/** Wherever a stream breaks off, the real clients end with the message that the history has. */

import { WorkflowChatTransport } from "@ai-sdk/workflow/client";
import { describe, expect, test, vi } from "vitest";
import { history, plain, textOf, until } from "./look.ts";
import { type Chat, type Message, type Sdk, sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();

/** What follows the first chunks: an error of the network, or the rest, asked for by its index. */
type Then = "breaks" | "resumes";

/** A fetch whose answers to a POST are over after some chunks. `count` has how many came. */
function cut(chunks: number, then: Then, count = { chunks: 0 }): typeof fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (init?.method !== "POST" || !response.body) return response;
    const stream = response.headers.get("x-workflow-run-id");
    const rest = () =>
      fetch(`${input}/${stream}/stream?startIndex=${chunks}`, { signal: init.signal ?? null });
    const pieces = first(response.body, chunks, then, rest, count);
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
    });
    return new Response(body, response);
  };
}

async function* first(
  body: ReadableStream<Uint8Array>,
  chunks: number,
  then: Then,
  rest: () => Promise<Response>,
  count: { chunks: number },
): AsyncGenerator<Uint8Array, undefined> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  while (count.chunks < chunks) {
    const { done, value } = await reader.read();
    if (done) return undefined;
    const events = (text + decoder.decode(value, { stream: true })).split("\n\n");
    text = events.pop() ?? "";
    for (const event of events) {
      if (count.chunks === chunks) break;
      if (event.startsWith("data: {")) count.chunks++;
      yield new TextEncoder().encode(`${event}\n\n`);
    }
  }
  await reader.cancel();
  if (then === "breaks") throw new TypeError("network error");
  const { body: more } = await rest();
  if (!more) return undefined;
  const end = more.getReader();
  for (let next = await end.read(); !next.done; next = await end.read()) yield next.value;
  return undefined;
}

type Client = { readonly chat: Chat; readonly k: number; readonly over: Promise<void> };

/** Every client has, in the end, what the history has. */
async function agree(sdk: Sdk, id: string, clients: readonly Client[]): Promise<Message[]> {
  await Promise.all(clients.map(({ over }) => over));
  const kept = await history(world.current.api, id);
  await sdk.validate(kept);
  for (const { chat, k } of clients) {
    const { status, error, messages } = chat;
    const shown = { k, status, error, messages: plain(messages) };
    expect(shown).toEqual({ k, status: "ready", error: undefined, messages: plain(kept) });
  }
  return kept;
}

const thought = { reasoning: ["Let me ", "think ", "it over."] };
const looks = { call: { name: "look", args: '{"note":"the whole house"}', every: 9 } };

describe.each(sdks)("$name", (sdk: Sdk) => {
  test("for every k: k chunks and the rest, or k chunks and a whole replay, are the message", async () => {
    const { api, provider } = world.current;
    const id = `k_${sdk.name}`;
    await provider.script(
      { steps: [thought, { text: ["I ", "look."] }, looks] },
      { steps: [{ text: ["It ", "is "] }, { wait_gate: id }, { text: ["there."] }] },
    );
    const question: Message = {
      id: `ask_${id}`,
      role: "user",
      parts: [{ type: "text", text: "Where is it?" }],
    };
    const clients: Client[] = [];
    const ask = (k: number, then: Then, count?: { chunks: number }): Client => {
      const chat = sdk.chat({ id, transport: sdk.transport({ api, fetch: cut(k, then, count) }) });
      return { chat, k, over: chat.sendMessage(question) };
    };
    const held = { chunks: 0 };
    const whole = ask(1_000, "breaks", held);
    clients.push(whole);
    await until(() => textOf(whole.chat.messages[1]).endsWith("It is "));
    expect(held.chunks).toBeGreaterThan(12); // on a busy machine several words are one chunk

    for (let k = 0; k <= held.chunks; k++) {
      clients.push(ask(k, "resumes"));
      const { chat, over } = ask(k, "breaks");
      await over;
      expect(chat.status).toBe("error");
      // A page that is loaded again begins with the history. The same page has what it saw: v5 would append to that.
      const again = sdk.chat({ id, transport: sdk.transport({ api }), messages: await history(api, id) });
      clients.push({ chat: again, k, over: again.resumeStream() });
      if (sdk.name !== "v5") clients.push({ chat, k, over: chat.resumeStream() });
    }
    await provider.open(id);
    const kept = await agree(sdk, id, clients);
    expect(kept.map(textOf)).toEqual(["Where is it?", "I look.It is there."]);
  });
});

describe.each(sdks.filter(({ approvals }) => approvals))("$name", (sdk: Sdk) => {
  test("for every k of an answer that goes on after an approval, too", async () => {
    const { api, provider } = world.current;
    const id = `ak_${sdk.name}`;
    await provider.script(
      { steps: [thought, { text: ["I ", "pay."] }, { call: { name: "pay", args: '{"note":"rent"}' } }] },
      { steps: [{ text: ["It ", "is "] }, { wait_gate: id }, { text: ["paid."] }] },
    );
    const first = sdk.chat({ id, transport: sdk.transport({ api }) });
    await first.sendMessage({ text: "Pay the rent" });
    const asked = await history(api, id);
    const approval = asked[1]?.parts.find((part) => part.approval)?.approval?.id ?? "";
    const clients: Client[] = [];
    const decide = async (k: number, then: Then, count?: { chunks: number }): Promise<Client> => {
      const chat = sdk.chat({
        id,
        transport: sdk.transport({ api, fetch: cut(k, then, count) }),
        messages: asked,
      });
      await chat.addToolApprovalResponse({ id: approval, approved: true, reason: "it is due" });
      return { chat, k, over: chat.sendMessage() };
    };
    const held = { chunks: 0 };
    const whole = await decide(1_000, "breaks", held);
    clients.push(whole);
    await until(() => textOf(whole.chat.messages[1]).endsWith("It is "));
    expect(held.chunks).toBeGreaterThan(4);

    for (let k = 0; k <= held.chunks; k++) {
      clients.push(await decide(k, "resumes"));
      const { chat, over } = await decide(k, "breaks");
      await over;
      expect(chat.status).toBe("error");
      const again = sdk.chat({ id, transport: sdk.transport({ api }), messages: await history(api, id) });
      clients.push({ chat: again, k, over: again.resumeStream() });
      clients.push({ chat, k, over: chat.resumeStream() });
    }
    await provider.open(id);
    const kept = await agree(sdk, id, clients);
    expect(kept.map(textOf)).toEqual(["Pay the rent", "I pay.It is paid."]);
  });
});

test("for every k the transport that resumes by run and index gives the message", async () => {
  const { api, provider } = world.current;
  const sdk = sdks.find(({ name }) => name === "v7") as Sdk;
  const id = "chat_ask_workflow"; // this transport names no chat: its first message does
  const complaints = vi.spyOn(console, "error").mockImplementation(() => {}); // it tells of each cut
  await provider.script(
    { steps: [thought, { text: ["I ", "look."] }, looks] },
    { steps: [{ text: ["It ", "is "] }, { wait_gate: id }, { text: ["there."] }] },
  );
  const question: Message = {
    id: "ask_workflow",
    role: "user",
    parts: [{ type: "text", text: "Where is it?" }],
  };
  const clients: Client[] = [];
  const ask = (k: number, count?: { chunks: number }): Chat => {
    const chat = sdk.chat({
      id,
      transport: new WorkflowChatTransport({ api, fetch: cut(k, "breaks", count) }),
    });
    clients.push({ chat, k, over: chat.sendMessage(question) });
    return chat;
  };
  const held = { chunks: 0 };
  const whole = ask(1_000, held);
  await until(() => textOf(whole.messages[1]).endsWith("It is "));
  for (let k = 0; k <= held.chunks; k++) ask(k);
  await provider.open(id);
  await agree(sdk, id, clients);
  expect(complaints).toHaveBeenCalled();
  complaints.mockRestore();
});
