import type { Run, SessionMirror, SessionView } from "@holdfast/client";
import { useMemo } from "react";
import { useClient } from "./provider.tsx";
import { useStore, whole } from "./store.ts";

/** What a person can do in a session. The functions stay the same as long as the session does. */
export type SessionCommands = Pick<
  SessionMirror,
  | "send"
  | "takeBack"
  | "edit"
  | "stop"
  | "retry"
  | "regenerate"
  | "decide"
  | "resolve"
  | "editInbox"
  | "removeInbox"
  | "switchTo"
  | "rename"
  | "delete"
  | "loadOlder"
>;

/** A session: what it shows, and what can be done. */
export type Session = SessionView & SessionCommands;

/** The mirror of a session, to command it without being rendered with it. */
export function useMirror(id: string): SessionMirror {
  const { sessions } = useClient();
  return useMemo(() => sessions.session(id), [sessions, id]);
}

/** Follows a session and gives all of it. */
export function useSession(id: string): Session;
/**
 * Follows a session and gives what `select` picks of it, such as
 * `(view) => view.messages`. It picks what is there: what it builds would be
 * another value each time.
 */
export function useSession<V>(id: string, select: (view: SessionView) => V): V;
export function useSession<V>(id: string, select?: (view: SessionView) => V): V | Session {
  const mirror = useMirror(id);
  const shown = useStore<SessionView, V | SessionView>(mirror, select ?? whole);
  return useMemo(
    () => (select ? (shown as V) : { ...commandsOf(mirror), ...(shown as SessionView) }),
    [select, shown, mirror],
  );
}

/** Follows one run of a session, or its active one. Undefined while there is none, or none is known. */
export function useRun(session: string, run?: string): Run | undefined {
  return useStore(useMirror(session), (view) => (run ? view.runs.find(({ id }) => id === run) : view.run));
}

function commandsOf(mirror: SessionMirror): SessionCommands {
  const { send, takeBack, edit, stop, retry, regenerate, decide, resolve } = mirror;
  const { editInbox, removeInbox, switchTo, rename, loadOlder, delete: remove } = mirror;
  const conversation = { send, takeBack, edit, stop, retry, regenerate, decide, resolve };
  return { ...conversation, editInbox, removeInbox, switchTo, rename, loadOlder, delete: remove };
}
