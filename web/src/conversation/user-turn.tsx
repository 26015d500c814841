import type { Message, Part, Pending } from "@holdfast/client";
import { Link2, Pencil } from "lucide-react";
import { memo, type ReactElement, useState } from "react";
import { useNow } from "../lib/clock.ts";
import { linkTo } from "../lib/route.ts";
import { countdown, textOf, wholeTime } from "../lib/words.ts";
import { CopyButton } from "../ui/copy-button.tsx";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { Branches } from "./branches.tsx";
import { EditBox } from "./edit-box.tsx";
import { ForkButton } from "./fork-button.tsx";
import { Said } from "./said.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = { readonly message: Message; readonly busy: boolean };

/** What a person said. */
export const UserTurn = memo(function UserTurn({ message, busy }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const [editing, setEditing] = useState(false);
  if (editing) {
    return (
      <article className="user-turn" aria-label="You, editing">
        <EditBox
          text={textOf(message)}
          hint="This begins a new branch; what was said stays on the other one."
          submitWords="Send"
          onCancel={() => setEditing(false)}
          onSubmit={(text) => {
            const files = message.parts.filter((part) => part.type === "file" && part.file?.url);
            mirror.edit(message.id, [
              { type: "text", text },
              ...files.flatMap((part) =>
                part.file?.url ? [{ type: "file" as const, file: { ...part.file, url: part.file.url } }] : [],
              ),
            ]);
            setEditing(false);
          }}
        />
      </article>
    );
  }
  return (
    <article className="user-turn" aria-label="You">
      <Said parts={message.parts} />
      <div className="turn-actions">
        <Branches message={message} busy={busy} />
        <span className="quiet-until-near">
          <CopyButton text={() => textOf(message)} />
          <IconButton
            small
            label="Copy a link to this message"
            onClick={() =>
              act(
                "copy the link",
                navigator.clipboard.writeText(
                  linkTo({ name: "session", session: mirror.id, message: message.id }),
                ),
              )
            }
          >
            <Link2 size={16} />
          </IconButton>
          <ForkButton message={message} />
          <IconButton small label="Edit" onClick={() => setEditing(true)}>
            <Pencil size={16} />
          </IconButton>
          {message.createdAt && <time className="sr-only">{wholeTime(message.createdAt)}</time>}
        </span>
      </div>
    </article>
  );
});

/** What was sent and is not known to be in the log. */
export function PendingTurn({ pending }: { readonly pending: Pending }): ReactElement {
  const { mirror, compose } = useSessionActions();
  const now = useNow();
  const { state } = pending;
  const refused = state.name === "failed";
  const takeBack = (keep: boolean) => {
    const submission = mirror.takeBack(pending.id);
    if (submission && keep) compose(textOf({ parts: submission.parts as readonly Part[] }));
  };
  return (
    <article className={`user-turn ${refused ? "refused" : "pending"}`} aria-label="You, not yet received">
      <Said parts={pending.parts as readonly Part[]} />
      <div className="pending-line" role={refused ? "alert" : undefined}>
        {state.name === "failed" && <span>Not accepted: {state.reason.message}</span>}
        {state.name === "waiting" && (
          <span>
            Not delivered yet. Trying again{" "}
            {state.retryAt > now ? `in ${countdown(state.retryAt, now)}` : "now"}
          </span>
        )}
        {(state.name === "sending" || state.name === "accepted") && <span>Sending…</span>}
        {state.name === "queued" && <span>Waiting to be sent</span>}
        {(refused || state.name === "waiting") && (
          <>
            <button type="button" className="button link" onClick={() => takeBack(true)}>
              Edit
            </button>
            <button type="button" className="button link" onClick={() => takeBack(false)}>
              Discard
            </button>
          </>
        )}
      </div>
    </article>
  );
}
