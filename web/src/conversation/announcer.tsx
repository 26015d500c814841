import type { SessionView } from "@holdfast/client";
import { type ReactElement, useEffect, useRef, useState } from "react";
import { toolTitle } from "../lib/words.ts";

/** Says to screen readers what changed, once and in words; the stream itself would drown them. */
export function Announcer({ view }: { readonly view: SessionView }): ReactElement {
  const [words, setWords] = useState("");
  const before = useRef(view);
  useEffect(() => {
    const news = newsOf(before.current, view);
    before.current = view;
    if (news) setWords(news);
  }, [view]);
  return (
    <div className="sr-only" role="status" aria-live="polite">
      {words}
    </div>
  );
}

function newsOf(before: SessionView, view: SessionView): string | undefined {
  if (before.id !== view.id || before.status.name === "loading") return undefined;
  const asked = view.approvals.find(({ id }) => !before.approvals.some((known) => known.id === id));
  if (asked) return `${toolTitle(asked.name)} needs your approval.`;
  for (const run of view.runs) {
    const was = before.runs.find(({ id }) => id === run.id)?.status;
    if (was === run.status) continue;
    if (run.status === "running" && was !== "waiting") return "The assistant is answering.";
    if (run.status === "completed") return "The answer is complete.";
    if (run.status === "failed") return `The run failed. ${run.error?.message ?? ""}`;
    if (run.status === "cancelled") return "The run is stopped.";
    if (run.status === "waiting" && run.waitingReason === "retry")
      return "The attempt failed, and is tried again.";
    if (run.status === "waiting" && run.waitingReason === "tool_outcome")
      return "The run needs your word on a call.";
  }
  return undefined;
}
