/**
 * The transport: what `useChat` asks for, said to the mirror of a session.
 *
 * @module
 */

import { type Client, failureOf, isTerminal, type OnBusy, Problem, type SessionView } from "@holdfast/client";
import type { ChatTransport, UIMessage, UIMessageChunk } from "ai";
import { Answer, editedId, historyOf, shownId, waitsForPerson } from "./answer.ts";
import { ChatSession } from "./chat.ts";
import type { Chunk, Part, Profile } from "./chunk.ts";
import { outgoing } from "./outgoing.ts";

/** How a transport is made. */
export type TransportOptions = {
  /** Which chunks the page's version of the SDK takes. Default: `safe`. */
  readonly profile?: Profile;
  /** Who answers. Default: the session's agent. */
  readonly agent?: string;
  /** What a message does while a run is active. Default: it waits for its turn. */
  readonly onBusy?: Exclude<OnBusy, "steer">;
};

/** What `useChat` gives, as far as it is needed to show what happens elsewhere. */
export type FollowingChat<M extends UIMessage> = {
  readonly id: string;
  readonly status: "submitted" | "streaming" | "ready" | "error";
  readonly messages: M[];
  readonly setMessages: (messages: M[]) => void;
  readonly resumeStream: () => Promise<void>;
};

type Sending<M extends UIMessage> = Parameters<ChatTransport<M>["sendMessages"]>[0];
type Reconnecting<M extends UIMessage> = Parameters<ChatTransport<M>["reconnectToStream"]>[0];

/** An answer: who writes it, and what of it the page has. */
type Target = { readonly run: string; readonly message: string; readonly behind?: readonly Part[] };

/** See the module. One for a page; the id of a chat is the id of its session. */
export class HoldfastChatTransport<M extends UIMessage = UIMessage> implements ChatTransport<M> {
  /** A resumed stream tells its message from the beginning. */
  readonly resumeStreamIsReplay = true;
  readonly #client: Client;
  readonly #options: TransportOptions;
  readonly #profile: Profile;
  readonly #chats = new Map<string, ChatSession>();
  /** The runs of whose answers a page has nothing, or the wrong beginning, by chat: they are told even if they end before it asks. */
  readonly #owed = new Map<string, string>();

  constructor(client: Client, options: TransportOptions = {}) {
    this.#client = client;
    this.#options = options;
    this.#profile = options.profile ?? "safe";
  }

  /** Asks for an answer, another answer, or lets one go on that waited for approvals. To abort it ends the stream, and not the run. */
  sendMessages = async (asked: Sending<M>): Promise<ReadableStream<UIMessageChunk>> => {
    const { trigger, chatId, messageId, messages, abortSignal } = asked;
    const chat = this.#chat(chatId);
    const last = messages.at(-1);
    if (!last) throw new TypeError("there is no message to send");
    const view = await chat.loaded(abortSignal);
    const answer = messages.find((m) => m.role === "assistant" && m.id === messageId);
    let target: Target;
    if (trigger === "regenerate-message") target = await this.#again(chat, view, last, abortSignal);
    else if (answer || last.role === "assistant")
      target = await this.#goOn(chat, messages, answer ?? last, abortSignal);
    else target = await this.#say(chat, view, messages, last, messageId, abortSignal);
    return this.#stream(chat, target, abortSignal);
  };

  /** Tells the active answer from its beginning, and goes on. Null if there is none. */
  reconnectToStream = async ({
    chatId,
    abortSignal,
  }: Reconnecting<M>): Promise<ReadableStream<UIMessageChunk> | null> => {
    const chat = this.#chat(chatId);
    const view = await chat.loaded(abortSignal);
    const owed = view.runs.find(({ id }) => id === this.#owed.get(chatId));
    this.#owed.delete(chatId);
    const run = view.run && !waitsForPerson(view.run, view, this.#profile) ? view.run : owed;
    return run ? this.#stream(chat, { run: run.id, message: run.message }, abortSignal) : null;
  };

  /** The messages of a chat, to begin a page with. An answer that is being written is left out: resume its stream. */
  messages = async (chatId: string, signal?: AbortSignal): Promise<M[]> => {
    const chat = this.#chat(chatId);
    const { mirror } = chat;
    const stop = mirror.subscribe(() => {});
    try {
      while ((await chat.loaded(signal)).hasMore) {
        await mirror.loadOlder();
        const { older } = mirror.getSnapshot();
        if (older.name === "failed") throw new Error(older.failure.message);
      }
      return await chat.until((view) => this.#history(chatId, chat, view), signal);
    } finally {
      stop();
    }
  };

  /** Stops the active run of a chat, whoever watches it, and takes back what was not sent yet. */
  stop = async (chatId: string): Promise<void> => {
    const chat = this.#chat(chatId);
    const { mirror } = chat;
    await chat.loaded();
    for (const { id } of mirror.getSnapshot().pending) mirror.takeBack(id);
    await chat.until(({ pending }) => pending.every(({ state }) => state.name === "failed") || undefined);
    await mirror.stop();
  };

  /**
   * Shows in a page what happens elsewhere: what another tab says, a queued
   * message whose turn it is, an approval that somebody else decides. It looks
   * while the chat is idle: call it again when its status changes. The returned
   * function ends it.
   */
  follow = (shown: FollowingChat<M>): (() => void) => {
    if (shown.status === "submitted" || shown.status === "streaming") return () => {};
    const chat = this.#chat(shown.id);
    let { messages } = shown;
    let isOver = false;
    let stopList = () => {};
    const stop = chat.watch((view) => {
      stopList();
      // The list of sessions tells of one that begins elsewhere.
      stopList =
        !isOver && view.status.name === "missing" ? this.#client.sessions.subscribe(() => {}) : () => {};
      if (isOver || !isSettled(view)) return;
      const kept = this.#history(shown.id, chat, view);
      if (!kept) return;
      const now = joined(messages, kept, view.hasMore, shown.status === "error");
      if (summary(now) !== summary(messages)) shown.setMessages(now);
      messages = now;
      if (!this.#owed.has(shown.id)) return;
      isOver = true;
      void shown.resumeStream();
    });
    return () => {
      isOver = true;
      stop();
      stopList();
    };
  };

  #chat(id: string): ChatSession {
    const chat = this.#chats.get(id) ?? new ChatSession(this.#client, id);
    this.#chats.set(id, chat);
    return chat;
  }

  #history(id: string, { large }: ChatSession, view: SessionView): M[] | undefined {
    const told = historyOf(view, this.#profile, large);
    const { run } = view;
    if (told && run && !waitsForPerson(run, view, this.#profile)) this.#owed.set(id, run.id);
    return told as M[] | undefined;
  }

  async #say(
    chat: ChatSession,
    view: SessionView,
    messages: readonly M[],
    said: M,
    edited: string | undefined,
    signal: AbortSignal | undefined,
  ): Promise<Target> {
    const { agent, onBusy } = this.#options;
    const isEdit = edited === said.id;
    const id = isEdit ? editedId(said.id, view.messages) : said.id;
    const parent = isEdit && { parent: idIn(view, messages.at(-2)?.id) };
    // Who writes on does not wait for what was asked; and what answers an edited message is of no use any more.
    const movesOn = isEdit || (view.run && waitsForPerson(view.run, view, this.#profile));
    const how = movesOn ? { onBusy: "interrupt" as const } : onBusy && { onBusy };
    chat.mirror.send(outgoing(said), { id, ...parent, ...how, ...(agent && { agent }) });
    const found = chat.until((now) => {
      const pending = now.pending.find((one) => one.id === id);
      if (pending?.state.name === "failed") throw new Error(pending.state.reason.message);
      const target = targetOf(now, id);
      if (!target && !pending) throw new DOMException("It was stopped before it was sent.", "AbortError");
      return target;
    }, signal);
    return found.finally(() => {
      const { pending } = chat.mirror.getSnapshot();
      const isRefused = pending.some((one) => one.id === id && one.state.name === "failed");
      if (isRefused) chat.mirror.takeBack(id); // the page has it, and says why
    });
  }

  async #again(
    chat: ChatSession,
    view: SessionView,
    last: M,
    signal: AbortSignal | undefined,
  ): Promise<Target> {
    const input = idIn(view, last.id);
    const run = view.runs.findLast((one) => one.input === input);
    if (!run) return this.#say(chat, view, [last], last, undefined, signal);
    // One that is being written is the other answer: the page did not have it to its end.
    if (!isTerminal(run) && !waitsForPerson(run, view, this.#profile))
      return { run: run.id, message: run.message };
    if (!isTerminal(run)) await chat.mirror.stop(run.id);
    await chat.until(
      (now) => now.runs.some((one) => one.id === run.id && isTerminal(one)) || undefined,
      signal,
    );
    const { id, message } = await chat.mirror.retry(run.id);
    return { run: id, message };
  }

  async #goOn(
    chat: ChatSession,
    messages: readonly M[],
    answer: M,
    signal: AbortSignal | undefined,
  ): Promise<Target> {
    const decided = messages.flatMap(({ parts }) => (parts as readonly Part[]).flatMap(decisionOf));
    await Promise.all(
      decided.map(async ({ id, approved = false, reason }) => {
        const note = reason && { note: reason };
        await chat.mirror.decide(id, approved ? "approve" : "deny", { ...note }).catch(unlessDecided);
      }),
    );
    const run = await chat.until((view) => {
      if (view.approvals.some(({ id }) => decided.some((one) => one.id === id))) return undefined;
      return view.messages.find(({ id }) => id === answer.id)?.run;
    }, signal);
    return { run, message: answer.id, behind: answer.parts as readonly Part[] };
  }

  #stream(
    chat: ChatSession,
    target: Target,
    signal: AbortSignal | undefined,
  ): ReadableStream<UIMessageChunk> {
    const answer = new Answer({ ...target, profile: this.#profile, large: chat.large });
    const owed = this.#owed;
    let end = () => {};
    const stream = new ReadableStream<Chunk>({
      start(controller) {
        let isOver = false;
        let leave = () => {};
        const close = (settle: () => void) => {
          if (isOver) return;
          end();
          settle();
        };
        const giveUp = () => close(() => controller.error(signal?.reason));
        end = () => {
          isOver = true;
          leave();
          signal?.removeEventListener("abort", giveUp);
        };
        if (signal?.aborted) return giveUp();
        signal?.addEventListener("abort", giveUp);
        leave = chat.watch((view) => {
          if (isOver) return;
          for (const chunk of answer.next(view)) controller.enqueue(chunk);
          if (answer.isOver) close(() => controller.close());
          else if (answer.isBroken) {
            owed.set(chat.mirror.id, target.run);
            close(() => controller.error(new TypeError(brokenText)));
          } else if (isGone(view)) close(() => controller.error(new Error("This chat was deleted.")));
        });
        if (isOver) leave();
      },
      cancel: () => end(),
    });
    return stream as ReadableStream<unknown> as ReadableStream<UIMessageChunk>;
  }
}

/** The SDK takes a TypeError of the network for what can be resumed, and it can. */
const brokenText = "network: the answer was begun anew";

/** The session's own id of a message that a page knows. */
function idIn(view: SessionView, id = ""): string {
  return view.messages.findLast((message) => shownId(message.id) === id)?.id ?? id;
}

/** The run that answers a message, and with what. */
function targetOf(view: SessionView, id: string): Target | undefined {
  const item = view.inbox.find(({ message }) => message.id === id);
  if (item) return { run: item.run, message: item.output };
  const asked = view.messages.find((message) => message.id === id)?.run;
  const run = view.runs.findLast((one) => one.input === id) ?? view.runs.find((one) => one.id === asked);
  return run && { run: run.id, message: run.message };
}

function decisionOf(part: Part): NonNullable<Extract<Part, { approval?: unknown }>["approval"]>[] {
  if (!("approval" in part) || part.state !== "approval-responded" || !part.approval) return [];
  return [part.approval];
}

/** The first decision wins, whoever made it. */
function unlessDecided(error: unknown): void {
  const { code } = failureOf(error);
  if (error instanceof Problem && (code === "approval_decided" || code === "approval_gone")) return;
  throw error;
}

function isGone({ status }: SessionView): boolean {
  return status.name === "deleted" || status.name === "missing";
}

/** Whether a view has what there is, and nothing said here is on its way. */
function isSettled({ status, pending, gestures }: SessionView): boolean {
  return status.name === "live" && pending.length === 0 && gestures.length === 0;
}

/** A history, behind what a page has of before it, and before what the server would not take. */
function joined<M extends UIMessage>(
  shown: readonly M[],
  kept: M[],
  hasMore: boolean,
  hasFailed: boolean,
): M[] {
  const last = shown.at(-1);
  const first = shown.findIndex(({ id }) => id === kept[0]?.id);
  const before = hasMore && first > 0 ? shown.slice(0, first) : [];
  const isUnsent = hasFailed && last?.role === "user" && !kept.some(({ id }) => id === last.id);
  return [...before, ...kept, ...(isUnsent ? [last] : [])];
}

/** What a page shows of messages, as far as it changes. */
function summary(messages: readonly UIMessage[]): string {
  const states = messages.map(({ id, parts }) => {
    return [
      id,
      ...parts.map((part) => [part.type, "state" in part && part.state, "text" in part && part.text]),
    ];
  });
  return JSON.stringify(states);
}
