import type { ConnectionState, ReasonCode } from "@holdfast/client";
import { useClient, useConnection } from "@holdfast/react";
import { type ReactElement, useEffect, useState } from "react";
import { useNow } from "../lib/clock.ts";
import { countdown } from "../lib/words.ts";

const reasons: Record<ReasonCode, string> = {
  offline: "You are offline",
  unreachable: "The server cannot be reached",
  lost: "The connection was lost",
  silent: "The server went silent",
  goodbye: "The server is restarting",
  unavailable: "The server is not available",
  full: "The server has too many connections",
  unauthenticated: "The server wants to know who you are",
  forbidden: "The server refuses this page",
  blocked: "Something on the way blocks the connection",
};

/** The connection in words. */
function connectionWords(state: ConnectionState, now: number): string {
  switch (state.name) {
    case "open":
      return state.transport === "socket" ? "Connected" : "Connected over HTTP";
    case "connecting":
      return state.attempt > 1 ? `Connecting, attempt ${state.attempt}…` : "Connecting…";
    case "waiting":
      return `${reasons[state.reason]}. Trying again in ${countdown(state.retryAt, now)}`;
    case "closed":
      return "Not connected";
  }
}

/** The indicator at the foot of the sidebar. */
export function ConnectionLine(): ReactElement {
  const state = useConnection();
  const now = useNow();
  const dot = { open: "good", connecting: "running", waiting: "waiting", closed: "" }[state.name];
  return (
    <p className="connection">
      <span className={`dot ${dot}`} aria-hidden="true" />
      <span>{connectionWords(state, now)}</span>
    </p>
  );
}

/** A connection that is back at once is no news. */
const patience = 1_200;

/** The banner over a conversation that may be old. */
export function ConnectionBanner(): ReactElement | null {
  const state = useConnection();
  const { connection } = useClient();
  const now = useNow();
  const away = state.name === "waiting" || (state.name === "connecting" && state.attempt > 1);
  const [shown, setShown] = useState(false);
  useEffect(() => {
    if (!away) {
      setShown(false);
      return;
    }
    const timer = setTimeout(() => setShown(true), patience);
    return () => clearTimeout(timer);
  }, [away]);
  if (!shown || !away) return null;
  return (
    <div className="banner">
      <span>{connectionWords(state, now)}. What runs goes on without this page.</span>
      {state.name === "waiting" && (
        <button type="button" className="button" onClick={() => connection.retry()}>
          Try now
        </button>
      )}
    </div>
  );
}
