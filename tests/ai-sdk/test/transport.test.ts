/** The real clients over `@holdfast/ai-sdk`, against the real server. */

import { HoldfastChatTransport, type TransportOptions } from "@holdfast/ai-sdk";
import { type Client, createClient } from "@holdfast/client";
import { afterEach, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { callsOf, plain, textOf, until } from "./look.ts";
import { type Chat, type Message, type Sdk, sdks } from "./sdk.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const open: Tab[] = [];
let count = 0;

afterEach(() => {
  for (const tab of open.splice(0)) tab.close();
});

/** One page: it has nothing of those before it. */
class Tab {
  readonly client: Client;
  readonly transport: HoldfastChatTransport;
  /** Whether what it asks for arrives. */
  online = true;
  chat!: Chat;
  #stop = () => {};

  private constructor(options: TransportOptions) {
    const send: typeof fetch = (...request) =>
      this.online ? fetch(...request) : Promise.reject(new TypeError("fetch failed"));
    const environment = { WebSocket: WebSocket as never, fetch: send };
    this.client = createClient({ baseUrl: world.current.url, environment });
    this.transport = new HoldfastChatTransport(this.client, options);
  }

  /** A page as the README has it: its history, then what happens now. */
  static async open(
    sdk: Sdk,
    id: string,
    options: TransportOptions & { looksOn?: boolean } = {},
  ): Promise<Tab> {
    const { looksOn = true, ...rest } = options;
    const tab = new Tab(rest);
    open.push(tab);
    const messages = (await tab.transport.messages(id)) as unknown as Message[];
    tab.chat = sdk.chat({
      id,
      transport: tab.transport,
      messages,
      sendAutomaticallyWhen: sdk.isApproved,
      onStatus: () => looksOn && tab.#follow(),
    });
    if (looksOn) tab.#follow();
    return tab;
  }

  get last(): Message | undefined {
    return this.chat.messages.at(-1);
  }

  close(): void {
    this.#stop();
    this.client.close();
  }

  /** What an effect does that depends on the status. */
  #follow(): void {
    this.#stop();
    const { chat } = this;
    this.#stop = this.transport.follow({
      id: chat.id,
      status: chat.status,
      messages: chat.messages as never[],
      setMessages: (messages) => {
        chat.messages = messages as unknown as Message[];
      },
      resumeStream: () => chat.resumeStream(),
    });
  }
}

const fresh = (sdk: Sdk) => `chat_${sdk.name}_${++count}`;

/** The page shows what one shows that is loaded now. */
async function agrees(sdk: Sdk, tab: Tab): Promise<void> {
  const other = await Tab.open(sdk, tab.chat.id);
  expect(plain(tab.chat.messages)).toEqual(plain(other.chat.messages));
  await sdk.validate(other.chat.messages);
}

const isReady = (tab: Tab) => tab.chat.status === "ready";

describe.each(sdks)("$name", (sdk) => {
  test("an answer with thoughts and a call is streamed, and is the same after a refresh", async () => {
    const { provider } = world.current;
    await provider.script(
      {
        steps: [
          { reasoning: ["Let me ", "look."] },
          { text: ["I ", "look."] },
          { call: { name: "look", args: "{}" } },
        ],
      },
      { steps: [{ text: ["It ", "is ", "there."] }] },
    );
    const tab = await Tab.open(sdk, fresh(sdk));
    await tab.chat.sendMessage({ text: "Look for it" });
    expect(tab.chat.error).toBeUndefined();
    expect(textOf(tab.last)).toBe("I look.It is there.");
    expect(callsOf(tab.last)).toMatchObject([{ type: "tool-look", state: "output-available" }]);
    await agrees(sdk, tab);
  });

  test("a refresh in mid-answer goes on, and asks the model nothing", async () => {
    const { provider } = world.current;
    const gate = fresh(sdk);
    const before = await provider.requests();
    await provider.script({
      steps: [{ text: ["Half ", "of it "] }, { wait_gate: gate }, { text: ["and the rest."] }],
    });
    const first = await Tab.open(sdk, gate);
    void first.chat.sendMessage({ text: "Tell me" });
    await until(() => textOf(first.last) === "Half of it ");
    first.close();
    const second = await Tab.open(sdk, gate);
    await until(() => textOf(second.last) === "Half of it ");
    await provider.open(gate);
    await until(() => isReady(second));
    expect(second.chat.messages.map(textOf)).toEqual(["Tell me", "Half of it and the rest."]);
    expect(await provider.requests()).toBe(before + 1);
    await agrees(sdk, second);
  });

  test("two tabs show the same, and what one says while the other's run is active waits for its turn", async () => {
    const { provider } = world.current;
    const id = fresh(sdk);
    await provider.script(
      {
        steps: [{ text: ["One"] }, { wait_gate: `${id} 1` }, { text: [" done."] }],
        when: { last_user: `first ${id}` },
      },
      {
        steps: [{ text: ["Two"] }, { wait_gate: `${id} 2` }, { text: [" done."] }],
        when: { last_user: `second ${id}` },
      },
    );
    const [one, two] = [await Tab.open(sdk, id), await Tab.open(sdk, id)];
    void one.chat.sendMessage({ text: `first ${id}` });
    await until(() => [one, two].every((tab) => textOf(tab.last) === "One"));
    const third = await Tab.open(sdk, id, { looksOn: false });
    void third.chat.sendMessage({ text: `second ${id}` });
    await until(() => one.client.sessions.session(id).getSnapshot().inbox.length === 1);
    expect(third.chat.status).toBe("submitted");
    await provider.open(`${id} 1`);
    await until(() => [one, two, third].every((tab) => textOf(tab.last) === "Two"));
    await provider.open(`${id} 2`);
    await until(() => [one, two, third].every((tab) => isReady(tab) && textOf(tab.last) === "Two done."));
    expect(one.chat.messages.map(textOf)).toEqual([`first ${id}`, "One done.", `second ${id}`, "Two done."]);
    await agrees(sdk, one);
    await agrees(sdk, two);
  });

  test("Stop ends the run, the provider's answer and both tabs' streams, and keeps what was said", async () => {
    const { provider } = world.current;
    const id = fresh(sdk);
    await provider.script({ steps: [{ text: ["So far"] }, { stall: true }] });
    const [one, two] = [await Tab.open(sdk, id), await Tab.open(sdk, id)];
    void one.chat.sendMessage({ text: "Talk for ever" });
    await until(() => [one, two].every((tab) => textOf(tab.last) === "So far"));
    const number = await provider.requests();
    await two.transport.stop(id);
    await world.current.closed(number);
    await until(() => isReady(one) && isReady(two));
    for (const tab of [one, two]) {
      expect(textOf(tab.last)).toBe("So far");
      expect(tab.last?.metadata).toMatchObject({ status: "cancelled" });
      await agrees(sdk, tab);
    }
    expect(await provider.requests()).toBe(number);
  });

  test("Stop before the first token leaves a chat that goes on", async () => {
    const { provider } = world.current;
    const id = fresh(sdk);
    await provider.script({ steps: [{ stall: true }] });
    const number = (await provider.requests()) + 1;
    const tab = await Tab.open(sdk, id);
    const sent = tab.chat.sendMessage({ text: "Never mind" });
    await world.current.arrived(number);
    await tab.transport.stop(id);
    await world.current.closed(number);
    await sent;
    await provider.script({ steps: [{ text: ["Here I am."] }] });
    await tab.chat.sendMessage({ text: "And now?" });
    expect(textOf(tab.last)).toBe("Here I am.");
    await agrees(sdk, tab);
  });

  test("another answer is a new message in the place of the old one, and so is an edited question", async () => {
    const { provider } = world.current;
    const tab = await Tab.open(sdk, fresh(sdk));
    await provider.script({ steps: [{ text: ["First."] }] });
    await tab.chat.sendMessage({ text: "Say something" });
    const { id: first } = tab.last as Message;
    await provider.script({ steps: [{ text: ["Second."] }] });
    await tab.chat.regenerate();
    expect(tab.chat.messages.map(textOf)).toEqual(["Say something", "Second."]);
    expect(tab.last?.id).not.toBe(first);
    await agrees(sdk, tab);
    await provider.script({ steps: [{ text: ["Third."] }] });
    await tab.chat.sendMessage({ text: "Say something else", messageId: tab.chat.messages[0]?.id ?? "" });
    expect(tab.chat.messages.map(textOf)).toEqual(["Say something else", "Third."]);
    await agrees(sdk, tab);
  });

  test("an attempt that broke off is never shown together with the next one", async () => {
    const { provider } = world.current;
    const tab = await Tab.open(sdk, fresh(sdk), sdk.name === "v7" ? { profile: "v7" } : {});
    await provider.script(
      { steps: [{ text: ["The answer is 4"] }, { cut: true }] },
      { steps: [{ text: ["Forty-two is the answer."] }] },
    );
    void tab.chat.sendMessage({ text: "What is it?" });
    await until(() => isReady(tab) && textOf(tab.last) === "Forty-two is the answer.");
    await agrees(sdk, tab);
  });

  test("a text that is too large for the log is told whole", async () => {
    const { provider } = world.current;
    const text = "0123456789abcdef".repeat(8_000);
    await provider.script({ steps: [{ text: [text] }] });
    const tab = await Tab.open(sdk, fresh(sdk));
    await tab.chat.sendMessage({ text: "Say a lot" });
    expect(textOf(tab.last)).toBe(text);
    await agrees(sdk, tab);
  });

  test("an approval that somebody else decides lets the page go on, with one more model call", async () => {
    const { provider } = world.current;
    const before = await provider.requests();
    await provider.script(
      { steps: [{ text: ["I pay."] }, { call: { name: "pay", args: '{"note":"rent"}' } }] },
      { steps: [{ text: ["It is paid."] }] },
    );
    const tab = await Tab.open(sdk, fresh(sdk));
    await tab.chat.sendMessage({ text: "Pay the rent" });
    const approval = await world.current.approval(tab.chat.id);
    await world.current.client.api.decide(approval.id, { decision: "approve" });
    await until(() => isReady(tab) && textOf(tab.last) === "I pay.It is paid.");
    expect(callsOf(tab.last)).toMatchObject([{ state: "output-available" }]);
    expect(await provider.requests()).toBe(before + 2);
    await agrees(sdk, tab);
  });

  test("who writes on instead of deciding has said no, and is answered", async () => {
    const { provider } = world.current;
    const tab = await Tab.open(sdk, fresh(sdk));
    await provider.script({ steps: [{ text: ["I pay."] }, { call: { name: "pay", args: "{}" } }] });
    await tab.chat.sendMessage({ text: "Pay" });
    const approval = await world.current.approval(tab.chat.id);
    await provider.script({ steps: [{ text: ["As you like."] }] });
    await tab.chat.sendMessage({ text: "Rather not" });
    expect(textOf(tab.last)).toBe("As you like.");
    expect(tab.chat.messages).toHaveLength(4);
    await until(() => callsOf(tab.chat.messages[1])[0]?.state === "output-denied");
    expect(await world.current.client.api.approval(approval.id)).toMatchObject({ status: "voided" });
    await agrees(sdk, tab);
  });

  test("Stop takes back what was never sent, and the chat goes on", async () => {
    const { provider } = world.current;
    const before = await provider.requests();
    const tab = await Tab.open(sdk, fresh(sdk));
    tab.online = false;
    const sent = tab.chat.sendMessage({ text: "Is anybody there?" });
    await until(() => {
      const [pending] = tab.client.sessions.session(tab.chat.id).getSnapshot().pending;
      return pending?.state.name === "waiting";
    });
    await tab.transport.stop(tab.chat.id);
    await sent;
    expect(tab.chat.error).toBeUndefined();
    tab.online = true;
    await provider.script({ steps: [{ text: ["Yes."] }] });
    await tab.chat.sendMessage({ text: "And now?" });
    expect(textOf(tab.last)).toBe("Yes.");
    expect(await provider.requests()).toBe(before + 1);
  });

  test("a message that the server refuses stays in the page, with the reason", async () => {
    const tab = await Tab.open(sdk, fresh(sdk));
    const file = { type: "file", mediaType: "text/plain", url: "ftp://example.org/a" };
    await tab.chat.sendMessage({ id: "refused", role: "user", parts: [file] });
    expect(tab.chat.status).toBe("error");
    expect(tab.chat.error?.message).toMatch(/url/);
    expect(tab.chat.messages).toMatchObject([{ id: "refused", parts: [file] }]);
  });
});

describe.each(sdks.filter(({ approvals }) => approvals))("$name", (sdk) => {
  test.each([true, false])("an approval is decided in the page: %s", async (approved) => {
    const { provider } = world.current;
    const before = await provider.requests();
    await provider.script(
      { steps: [{ call: { name: "pay", args: "{}" } }] },
      { steps: [{ text: ["That was it."] }] },
    );
    const tab = await Tab.open(sdk, fresh(sdk));
    await tab.chat.sendMessage({ text: "Pay" });
    const [call] = callsOf(tab.last);
    expect(call).toMatchObject({ state: "approval-requested" });
    const refreshed = await Tab.open(sdk, tab.chat.id);
    await refreshed.chat.addToolApprovalResponse({
      id: call?.approval?.id ?? "",
      approved,
      reason: "so I say",
    });
    await until(() => isReady(refreshed) && textOf(refreshed.last) === "That was it.");
    await until(() => isReady(tab) && textOf(tab.last) === "That was it.");
    expect(callsOf(refreshed.last)).toMatchObject([
      { state: approved ? "output-available" : "output-denied" },
    ]);
    const decided = await world.current.client.api.approval(call?.approval?.id ?? "");
    expect(decided).toMatchObject({ status: approved ? "approved" : "denied", note: "so I say" });
    expect(await provider.requests()).toBe(before + 2);
    await agrees(sdk, refreshed);
  });
});
