import type { SessionManager, SessionsView } from "@holdfast/client";
import { useMemo } from "react";
import { useClient } from "./provider.tsx";
import { useStore, whole } from "./store.ts";

/** The list of sessions, and what can be done with it. */
export type Sessions = SessionsView & {
  /** Shows the sessions whose title holds a text; "" shows all. */
  readonly setSearch: SessionManager["search"];
  readonly loadMore: SessionManager["loadMore"];
  readonly create: SessionManager["create"];
  readonly markRead: SessionManager["markRead"];
};

/** Follows the list of sessions. */
export function useSessions(): Sessions;
/** Follows the list of sessions and gives what `select` picks of it. */
export function useSessions<V>(select: (view: SessionsView) => V): V;
export function useSessions<V>(select?: (view: SessionsView) => V): V | Sessions {
  const { sessions } = useClient();
  const shown = useStore<SessionsView, V | SessionsView>(sessions, select ?? whole);
  return useMemo(() => {
    if (select) return shown as V;
    const { search: setSearch, loadMore, create, markRead } = sessions;
    return { ...(shown as SessionsView), setSearch, loadMore, create, markRead };
  }, [select, shown, sessions]);
}
