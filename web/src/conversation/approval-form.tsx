import { type Approval, type Decision, type Json, parseJson, type SessionMirror } from "@holdfast/client";
import { type ReactElement, type ReactNode, useId, useState } from "react";
import { useNow } from "../lib/clock.ts";
import { countdown, prettyJson, toolTitle } from "../lib/words.ts";
import { JsonView } from "../ui/json-view.tsx";
import { explain, useToasts } from "../ui/toast.tsx";

type Props = {
  readonly approval: Approval;
  /** What was decided here and is not a fact yet. */
  readonly deciding: Decision | undefined;
  readonly decide: SessionMirror["decide"];
  /** Whether it stands alone, without the call's own card around it. */
  readonly standing?: boolean;
  readonly children?: ReactNode;
};

const effectWords = {
  read_only: "Only reads",
  idempotent: "Safe to repeat",
  unsafe: "Changes something",
};

/** A question that a run waits on: these arguments, or others, or not at all. */
export function ApprovalForm({
  approval,
  deciding,
  decide,
  standing = false,
  children,
}: Props): ReactElement {
  const [edited, setEdited] = useState<string>();
  const [note, setNote] = useState<string>();
  const [error, setError] = useState<string>();
  const { say } = useToasts();
  const id = useId();

  async function answer(decision: Decision): Promise<void> {
    setError(undefined);
    let changed: { arguments?: Json } = {};
    if (decision === "approve" && edited !== undefined) {
      const parsed = readObject(edited);
      if (!parsed) return setError("The arguments are not a JSON object.");
      changed = { arguments: parsed };
    }
    try {
      await decide(approval.id, decision, { ...(note?.trim() && { note: note.trim() }), ...changed });
    } catch (failure) {
      // The card may be gone by now: somebody else has decided.
      say(`${toolTitle(approval.name)}: ${explain(failure)}`);
      setError(explain(failure));
    }
  }

  return (
    <section className={`ask ${standing ? "standing" : ""}`} aria-labelledby={`${id}t`}>
      {children}
      <div className="ask-title" id={`${id}t`}>
        <span>Allow {toolTitle(approval.name)}?</span>
        <span className={`badge ${approval.effects === "unsafe" ? "bad" : ""}`}>
          {effectWords[approval.effects]}
        </span>
        <Expiry at={approval.expiresAt} />
      </div>
      {edited === undefined ? (
        <JsonView value={approval.arguments} height={200} />
      ) : (
        <div>
          <label className="label" htmlFor={`${id}a`}>
            Arguments
          </label>
          <textarea
            id={`${id}a`}
            className="field mono"
            spellCheck={false}
            value={edited}
            aria-invalid={readObject(edited) === undefined}
            rows={Math.min(14, edited.split("\n").length + 1)}
            onChange={(event) => setEdited(event.target.value)}
          />
        </div>
      )}
      {note !== undefined && (
        <div>
          <label className="label" htmlFor={`${id}n`}>
            Note, which the model reads when you deny
          </label>
          <textarea
            id={`${id}n`}
            className="field"
            rows={2}
            maxLength={1_000}
            value={note}
            // biome-ignore lint/a11y/noAutofocus: it was opened to type here.
            autoFocus
            onChange={(event) => setNote(event.target.value)}
          />
        </div>
      )}
      {error && (
        <p className="ask-error" role="alert">
          {error}
        </p>
      )}
      <div className="ask-actions">
        <button
          type="button"
          className="button primary"
          disabled={deciding !== undefined}
          onClick={() => void answer("approve")}
        >
          {deciding === "approve" ? "Approving…" : edited === undefined ? "Approve" : "Approve as edited"}
        </button>
        <button
          type="button"
          className="button danger"
          disabled={deciding !== undefined}
          onClick={() => void answer("deny")}
        >
          {deciding === "deny" ? "Denying…" : "Deny"}
        </button>
        <span className="spacer" />
        <button
          type="button"
          className="button quiet"
          onClick={() => setEdited(edited === undefined ? prettyJson(approval.arguments) : undefined)}
        >
          {edited === undefined ? "Edit arguments" : "Undo edits"}
        </button>
        {note === undefined && (
          <button type="button" className="button quiet" onClick={() => setNote("")}>
            Add a note
          </button>
        )}
      </div>
    </section>
  );
}

function Expiry({ at }: { at: string | undefined }): ReactElement | null {
  const now = useNow();
  if (!at) return null;
  const until = Date.parse(at);
  return (
    <span className="ask-facts">
      {until > now ? `Refused by itself in ${countdown(until, now)}` : "Expired"}
    </span>
  );
}

function readObject(text: string): Json | undefined {
  try {
    const value = parseJson(text) as Json;
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
