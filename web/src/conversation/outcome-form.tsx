import { type Json, type Outcome, parseJson, type ToolCall } from "@holdfast/client";
import { type ReactElement, useId, useState } from "react";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = { readonly run: string; readonly call: ToolCall; readonly sending: boolean };

const choices: readonly { outcome: Outcome; title: string; words: string }[] = [
  { outcome: "happened", title: "It happened", words: "The model goes on with the result that you give." },
  { outcome: "did_not", title: "It did not happen", words: "The call is made now." },
  { outcome: "failed", title: "Treat it as failed", words: "The model is told that it failed, and goes on." },
];

/** A call may have acted, and whoever carried it was lost before it said so. Only a person can find out. */
export function OutcomeForm({ run, call, sending }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const [outcome, setOutcome] = useState<Outcome>();
  const [result, setResult] = useState("");
  const [note, setNote] = useState("");
  const id = useId();

  function send(): void {
    if (!outcome) return;
    const given = outcome === "happened" && result.trim() ? { result: readJson(result) } : {};
    act(
      "say what it did",
      mirror.resolve(run, call.id, outcome, { ...given, ...(note.trim() && { note: note.trim() }) }),
    );
  }

  return (
    <form
      className="ask"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div className="ask-title">Did this happen?</div>
      <p className="ask-facts">
        The call was started, and the worker was lost before it could say how it ended. It is not repeated by
        itself, since that might do it twice. Please look, and say:
      </p>
      <fieldset className="choices">
        <legend className="sr-only">What the call did</legend>
        {choices.map((choice) => (
          <label key={choice.outcome} className="choice">
            <input
              type="radio"
              name={`${id}o`}
              checked={outcome === choice.outcome}
              onChange={() => setOutcome(choice.outcome)}
            />
            <span>
              <strong>{choice.title}</strong>
              {choice.words}
            </span>
          </label>
        ))}
      </fieldset>
      {outcome === "happened" && (
        <div>
          <label className="label" htmlFor={`${id}r`}>
            Result: text or JSON (empty: none)
          </label>
          <textarea
            id={`${id}r`}
            className="field mono"
            rows={3}
            value={result}
            onChange={(event) => setResult(event.target.value)}
          />
        </div>
      )}
      {outcome && (
        <div>
          <label className="label" htmlFor={`${id}n`}>
            Note (optional)
          </label>
          <input
            id={`${id}n`}
            className="field"
            maxLength={1_000}
            value={note}
            onChange={(event) => setNote(event.target.value)}
          />
        </div>
      )}
      <div className="ask-actions">
        <button type="submit" className="button primary" disabled={!outcome || sending}>
          {sending ? "Going on…" : "Go on"}
        </button>
      </div>
    </form>
  );
}

function readJson(text: string): Json {
  try {
    return parseJson(text) as Json;
  } catch {
    return text;
  }
}
