/**
 * The real clients: the newest of each major version, as npm has them.
 *
 * @module
 */

import * as v7 from "ai";
import * as v5 from "ai-v5";
import * as v6 from "ai-v6";

/** A part of a message, as any version has it. */
export type Part = {
  readonly type: string;
  readonly text?: string;
  readonly state?: string;
  readonly toolCallId?: string;
  readonly approval?: { readonly id: string; readonly approved?: boolean; readonly reason?: string };
  readonly [key: string]: unknown;
};

/** A message, as any version has it. */
export type Message = {
  readonly id: string;
  readonly role: "user" | "assistant" | "system";
  readonly parts: readonly Part[];
  readonly metadata?: unknown;
};

/** What all versions of the client can do. */
export type Chat = {
  readonly id: string;
  messages: Message[];
  readonly status: "submitted" | "streaming" | "ready" | "error";
  readonly error: Error | undefined;
  sendMessage(message?: { text: string; messageId?: string } | Message): Promise<void>;
  regenerate(): Promise<void>;
  resumeStream(): Promise<void>;
  stop(): Promise<void>;
  addToolApprovalResponse(response: { id: string; approved: boolean; reason?: string }): Promise<void>;
};

/** How a chat is made. */
type ChatInit = {
  readonly id: string;
  readonly transport: object;
  readonly messages?: readonly Message[];
  readonly sendAutomaticallyWhen?: ((options: { messages: Message[] }) => boolean) | undefined;
  /** Hears of each change of the status, as a hook would. */
  readonly onStatus?: () => unknown;
};

/** One version of the SDK. */
export type Sdk = {
  readonly name: "v5" | "v6" | "v7";
  /** Whether its client knows approvals. */
  readonly approvals: boolean;
  readonly chat: (init: ChatInit) => Chat;
  readonly transport: (options: { api: string; fetch?: typeof fetch }) => object;
  /** Refuses what is no history. */
  readonly validate: (messages: readonly Message[]) => Promise<unknown>;
  readonly isApproved: ((options: { messages: Message[] }) => boolean) | undefined;
  readonly isComplete: (options: { messages: Message[] }) => boolean;
};

/** What a chat shows, without a framework. */
class State {
  error: Error | undefined;
  messages: Message[];
  #status: Chat["status"] = "ready";
  readonly #onStatus: () => unknown;
  constructor(messages: readonly Message[], onStatus: () => unknown) {
    this.messages = structuredClone(messages) as Message[];
    this.#onStatus = onStatus;
  }
  get status(): Chat["status"] {
    return this.#status;
  }
  set status(status: Chat["status"]) {
    this.#status = status;
    this.#onStatus();
  }
  pushMessage = (message: Message): void => {
    this.messages = [...this.messages, structuredClone(message)];
  };
  popMessage = (): void => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index: number, message: Message): void => {
    this.messages = this.messages.with(index, structuredClone(message));
  };
  snapshot = <T>(thing: T): T => structuredClone(thing);
}

/** The types of three versions do not fit into one: what is used of them is in {@link Sdk}. */
function sdk(name: Sdk["name"], ai: object): Sdk {
  const { AbstractChat, DefaultChatTransport, validateUIMessages, ...more } = ai as {
    AbstractChat: new (init: object) => Chat;
    DefaultChatTransport: new (options: object) => object;
    validateUIMessages: (options: { messages: readonly Message[] }) => Promise<unknown>;
    lastAssistantMessageIsCompleteWithApprovalResponses?: Sdk["isComplete"];
    lastAssistantMessageIsCompleteWithToolCalls: Sdk["isComplete"];
  };
  class Real extends AbstractChat {}
  return {
    name,
    approvals: name !== "v5",
    chat: ({ messages = [], onStatus = () => {}, ...init }) =>
      new Real({ ...init, state: new State(messages, onStatus) }),
    transport: (options) => new DefaultChatTransport(options),
    validate: (messages) => validateUIMessages({ messages }),
    isApproved: more.lastAssistantMessageIsCompleteWithApprovalResponses,
    isComplete: more.lastAssistantMessageIsCompleteWithToolCalls,
  };
}

export const sdks: readonly Sdk[] = [sdk("v5", v5), sdk("v6", v6), sdk("v7", v7)];
