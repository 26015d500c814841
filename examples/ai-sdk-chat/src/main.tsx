import { useChat } from "@ai-sdk/react";
import * as ai from "ai";
import { useEffect } from "react";
import { createRoot } from "react-dom/client";

const api = "/api/chat"; // Holdfast: the one URL
const id = location.hash.slice(1) || crypto.randomUUID();
location.hash = id; // refresh it, close it, come back tomorrow: the address is the conversation

const transport = new ai.DefaultChatTransport<ai.UIMessage>({ api });
const load = async (): Promise<ai.UIMessage[]> => (await (await fetch(`${api}/${id}`)).json()).messages;
const stop = () => fetch(`${api}/${id}/stop`, { method: "POST" }); // the run, whichever page watches it
const asks = (messages: ai.UIMessage[]) =>
  messages.some((m) => m.parts.some((part) => ai.isToolUIPart(part) && part.state === "approval-requested"));

function Chat({ first }: { first: ai.UIMessage[] }) {
  const sendAutomaticallyWhen = ai.lastAssistantMessageIsCompleteWithApprovalResponses;
  const chat = useChat({ id, transport, messages: first, resume: true, sendAutomaticallyWhen });
  const { messages, status, error, sendMessage, addToolApprovalResponse } = chat;
  const { setMessages, resumeStream } = chat;
  const isBusy = status === "submitted" || status === "streaming";
  const isAsked = asks(messages);

  useEffect(() => {
    if (!isAsked) return; // somebody else may decide, in another tab or in Holdfast's own page
    const socket = new WebSocket("/v1/connect");
    socket.onopen = () => socket.send('{"type":"subscribe","id":"list","sessions":true}');
    socket.onmessage = async ({ data }) => {
      if (!data.includes(id) && !data.includes('"subscribed"')) return;
      const now = await load();
      if (asks(now) || socket.readyState !== WebSocket.OPEN) return;
      setMessages(now);
      void resumeStream();
    };
    return () => socket.close();
  }, [isAsked, setMessages, resumeStream]);

  const show = (part: ai.UIMessage["parts"][number], key: number) => {
    if (part.type === "text") return <p key={key}>{part.text}</p>;
    if (part.type === "reasoning") return <blockquote key={key}>{part.text}</blockquote>;
    if (!ai.isToolUIPart(part)) return null;
    const decide = (approved: boolean) =>
      addToolApprovalResponse({ id: part.approval?.id ?? "", approved, reason: "decided in the chat" });
    return (
      <section key={key}>
        <b>{ai.getToolName(part)}</b> {part.state.replace("-", " ")}
        <pre>{JSON.stringify(part.output ?? part.errorText ?? part.input, null, 2)}</pre>
        {part.state === "approval-requested" && (
          <>
            <button type="button" onClick={() => decide(true)}>
              Approve
            </button>
            <button type="button" onClick={() => decide(false)}>
              Deny
            </button>
          </>
        )}
      </section>
    );
  };
  return (
    <>
      {messages.map((m) => (
        <article key={m.id} data-role={m.role}>
          {m.parts.map(show)}
        </article>
      ))}
      {error && <p role="alert">{error.message}</p>}
      <form action={(data) => void sendMessage({ text: String(data.get("text")) })}>
        <input name="text" aria-label="Message" placeholder="Delete the old reports" required />
        <button type={isBusy ? "button" : "submit"} onClick={() => isBusy && stop()}>
          {isBusy ? "Stop" : "Send"}
        </button>
      </form>
    </>
  );
}

createRoot(document.getElementById("root") as HTMLElement).render(<Chat first={await load()} />);
