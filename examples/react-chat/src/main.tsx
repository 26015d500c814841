import { createClient } from "@holdfast/client";
import { HoldfastProvider, useSession } from "@holdfast/react";
import { createRoot } from "react-dom/client";

const client = createClient();
const id = location.hash.slice(1) || client.sessions.create().id;
location.hash = id; // refresh it, open it in another tab, come back tomorrow: the address is the conversation

function Chat() {
  const { messages, approvals, run, send, stop, decide } = useSession(id);
  return (
    <>
      {messages.map((m) => (
        <p key={m.id}>
          <b>{m.role}</b> {m.parts.map(({ text, tool }) => text ?? tool?.name).join(" ")}
        </p>
      ))}
      {approvals.map((a) => (
        <button key={a.id} type="button" onClick={() => decide(a.id, "approve")}>
          Allow {a.name}
        </button>
      ))}
      <form action={(data) => void send(String(data.get("text")))}>
        <input name="text" aria-label="Message" placeholder="Plan a trip to Lisbon" required />
        <input type={run ? "button" : "submit"} value={run ? "Stop" : "Send"} onClick={() => run && stop()} />
      </form>
    </>
  );
}

createRoot(document.body.appendChild(document.createElement("main"))).render(
  <HoldfastProvider client={client}>
    <Chat />
  </HoldfastProvider>,
);
