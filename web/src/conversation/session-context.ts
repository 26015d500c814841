import type { SessionMirror } from "@holdfast/client";
import { createContext, useContext } from "react";

/** What the pieces of a conversation can do. It stays the same while the conversation is shown. */
export type SessionActions = {
  readonly mirror: SessionMirror;
  /** Shows how a run went. */
  readonly inspect: (run: string) => void;
  /** Puts a text into the composer. */
  readonly compose: (text: string) => void;
};

/** The session that is shown. */
export const SessionContext = createContext<SessionActions | undefined>(undefined);

/** The session that is shown. */
export function useSessionActions(): SessionActions {
  const actions = useContext(SessionContext);
  if (!actions) throw new Error("there is no session around this component");
  return actions;
}
