import { useCallback, useSyncExternalStore } from "react";
import { useClient } from "./provider.tsx";

/** What is typed in a session and not sent, and the way to change it. It outlives the page, and other tabs see it. */
export function useDraft(session: string): [text: string, set: (text: string) => void] {
  const { drafts } = useClient();
  const text = useSyncExternalStore(
    drafts.subscribe,
    () => drafts.get(session),
    () => "",
  );
  return [text, useCallback((next: string) => drafts.set(session, next), [drafts, session])];
}
