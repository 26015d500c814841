import type { Gesture, InboxItem, OnBusy } from "@holdfast/client";
import { Check, Pencil, Trash2, X } from "lucide-react";
import { type ReactElement, useState } from "react";
import { textOf } from "../lib/words.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = { readonly items: readonly InboxItem[]; readonly gestures: readonly Gesture[] };

const modes: Record<OnBusy, string> = {
  enqueue: "Queued",
  steer: "Steers",
  interrupt: "Next",
  rollback: "Replaces",
  reject: "Queued",
};

/** What was said and waits for its turn: it can still be changed, or taken back. */
export function Queue({ items, gestures }: Props): ReactElement | null {
  const shown = items.filter(
    ({ message }) => !gestures.some((g) => g.kind === "removeInbox" && g.message === message.id),
  );
  if (shown.length === 0) return null;
  return (
    <section className="queue" aria-label="Waiting messages">
      <h2>Next</h2>
      <ul>
        {shown.map((item) => (
          <QueueItem key={item.message.id} item={item} />
        ))}
      </ul>
    </section>
  );
}

function QueueItem({ item }: { item: InboxItem }): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const { id } = item.message;
  const text = textOf(item.message);
  const [edited, setEdited] = useState<string>();

  function save(): void {
    if (edited?.trim() && edited.trim() !== text)
      act("change the message", mirror.editInbox(id, edited.trim()));
    setEdited(undefined);
  }

  return (
    <li className="queue-item">
      <span className={`badge ${item.mode === "steer" ? "accent" : ""}`}>{modes[item.mode]}</span>
      {edited === undefined ? (
        <>
          <span className="truncate">{text || "A file"}</span>
          <IconButton small label="Edit this waiting message" onClick={() => setEdited(text)}>
            <Pencil size={16} />
          </IconButton>
          <IconButton
            small
            label="Take this waiting message back"
            onClick={() => act("take it back", mirror.removeInbox(id))}
          >
            <Trash2 size={16} />
          </IconButton>
        </>
      ) : (
        <div className="queue-edit">
          <textarea
            className="field"
            aria-label="Edit the waiting message"
            rows={2}
            value={edited}
            // biome-ignore lint/a11y/noAutofocus: it was opened to type here.
            autoFocus
            onChange={(event) => setEdited(event.target.value)}
            onKeyDown={(event) => {
              if (event.key === "Escape") setEdited(undefined);
              if (event.key === "Enter" && !event.shiftKey && !event.nativeEvent.isComposing) {
                event.preventDefault();
                save();
              }
            }}
          />
          <IconButton small label="Keep the change" onClick={save}>
            <Check size={16} />
          </IconButton>
          <IconButton small label="Leave it as it was" onClick={() => setEdited(undefined)}>
            <X size={16} />
          </IconButton>
        </div>
      )}
    </li>
  );
}
