import type { Message } from "@holdfast/client";
import { ChevronLeft, ChevronRight, Columns2 } from "lucide-react";
import { lazy, type ReactElement, Suspense, useState } from "react";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

/** Few compare: it comes when somebody does. */
const Compare = lazy(() => import("./compare.tsx"));

type Props = { readonly message: Message; readonly busy: boolean };

/** Which of several versions is shown, and the way to the others: ‹ 2/3 ›. */
export function Branches({ message, busy }: Props): ReactElement | null {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const [comparing, setComparing] = useState(false);
  const { siblings } = message;
  if (!siblings || siblings.length < 2) return null;
  const at = siblings.indexOf(message.id);
  const go = (step: number) => {
    const next = siblings[at + step];
    if (next) act("change the branch", mirror.switchTo(next));
  };
  const why = busy ? " (when the run has ended)" : "";
  return (
    <span className="branches">
      <IconButton small label={`Previous version${why}`} disabled={busy || at === 0} onClick={() => go(-1)}>
        <ChevronLeft size={16} />
      </IconButton>
      <span>
        <span className="sr-only">Version </span>
        {at + 1}/{siblings.length}
      </span>
      <IconButton
        small
        label={`Next version${why}`}
        disabled={busy || at === siblings.length - 1}
        onClick={() => go(1)}
      >
        <ChevronRight size={16} />
      </IconButton>
      <IconButton small label="Compare versions" onClick={() => setComparing(true)}>
        <Columns2 size={16} />
      </IconButton>
      {comparing && (
        <Suspense>
          <Compare message={message} siblings={siblings} busy={busy} onClose={() => setComparing(false)} />
        </Suspense>
      )}
    </span>
  );
}
