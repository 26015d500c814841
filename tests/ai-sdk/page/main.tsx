/**
 * The page of the browser tests: `useChat` as its documentation has it. It is
 * built once for each version of the SDK.
 *
 * @module
 */

import { useChat } from "@ai-sdk/react";
import { HoldfastChatTransport } from "@holdfast/ai-sdk";
import { createClient } from "@holdfast/client";
import * as ai from "ai";
import { StrictMode, useEffect } from "react";
import { createRoot } from "react-dom/client";

declare global {
  /** What the page shows, for a test to look at. */
  var shown: { messages: readonly ai.UIMessage[]; status: string; error: string | undefined };
}

type Hooked = ReturnType<typeof useChat<ai.UIMessage>>;

/** How a page talks to the server, and what it does beside `useChat`. */
type Way = {
  readonly transport: ai.ChatTransport<ai.UIMessage>;
  readonly load: () => Promise<ai.UIMessage[]>;
  readonly stop: () => Promise<unknown>;
  /** Runs anew with each status and question. */
  readonly watch: (chat: Hooked, isAsked: boolean) => (() => void) | undefined;
  readonly resume: boolean;
};

const id = location.hash.slice(1);
const query = new URLSearchParams(location.search);

/** The SDK's own transport, and one URL. */
function plain(api: string): Way {
  const profile = query.get("profile");
  const headers = profile ? { "x-aisdk-profile": profile } : {};
  const load = async () => {
    const response = await fetch(`${api}/${id}`, { headers });
    return ((await response.json()) as { messages: ai.UIMessage[] }).messages;
  };
  return {
    transport: new ai.DefaultChatTransport({ api, headers }),
    load,
    stop: () => fetch(`${api}/${id}/stop`, { method: "POST" }),
    resume: true,
    watch: (chat, isAsked) => (isAsked ? decidedElsewhere(chat, load) : undefined),
  };
}

/** Goes on when somebody else decides. */
function decidedElsewhere({ setMessages, resumeStream }: Hooked, load: Way["load"]): () => void {
  const socket = new WebSocket("/v1/connect");
  socket.onopen = () => socket.send(JSON.stringify({ type: "subscribe", id: "list", sessions: true }));
  socket.onmessage = async ({ data }) => {
    if (!data.includes('"subscribed"') && !data.includes(id)) return;
    const messages = await load();
    if (asks(messages) || socket.readyState > WebSocket.OPEN) return;
    setMessages(messages);
    void resumeStream();
  };
  return () => socket.close();
}

/** The package's transport. */
function holdfast(): Way {
  const transport = new HoldfastChatTransport(createClient());
  return {
    transport,
    load: () => transport.messages(id),
    stop: () => transport.stop(id),
    watch: (chat) => transport.follow(chat),
    resume: false,
  };
}

function asks(messages: readonly ai.UIMessage[]): boolean {
  return messages.some((m) => m.parts.some((part) => "state" in part && part.state === "approval-requested"));
}

function Chat({ way, first }: { way: Way; first: ai.UIMessage[] }) {
  const chat = useChat({
    id,
    messages: first,
    transport: way.transport,
    resume: way.resume,
    // Not in v5, which knows no approvals.
    sendAutomaticallyWhen: ai.lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const { messages, status, error, sendMessage, addToolApprovalResponse } = chat;
  const isAsked = asks(messages);
  // biome-ignore lint/correctness/useExhaustiveDependencies: it looks at the chat as it is when one of these changes
  useEffect(() => way.watch(chat, isAsked), [way, status, isAsked]);
  const say = (data: FormData) => void sendMessage({ text: String(data.get("text")) });
  const decide = (approval: string, approved: boolean, reason?: string) =>
    void addToolApprovalResponse({ id: approval, approved, ...(reason && { reason }) });
  globalThis.shown = { messages, status, error: error?.message };
  return (
    <>
      {messages.flatMap((m) =>
        m.parts.map((part, i) => {
          const key = `${m.id} ${i}`;
          if (part.type === "text") return <p key={key}>{part.text}</p>;
          if (!ai.isToolUIPart(part) || part.state !== "approval-requested") return null;
          const { id: approval } = part.approval;
          return (
            <fieldset key={key}>
              <button type="button" onClick={() => decide(approval, true)}>
                Approve
              </button>
              <button type="button" onClick={() => decide(approval, false, "not today")}>
                Deny
              </button>
            </fieldset>
          );
        }),
      )}
      <form action={say}>
        <input name="text" aria-label="Message" />
        <button type="submit">Send</button>
        <button type="button" onClick={() => void way.stop()}>
          Stop
        </button>
      </form>
    </>
  );
}

const way = query.has("holdfast") ? holdfast() : plain("/api/chat");
const first = await way.load();
createRoot(document.getElementById("root") as HTMLElement).render(
  <StrictMode>
    <Chat way={way} first={first} />
  </StrictMode>,
);
