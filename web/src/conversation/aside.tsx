import type { Message, Run, SessionView } from "@holdfast/client";
import { isTerminal } from "@holdfast/client";
import { Square, X } from "lucide-react";
import { type ReactElement, useState } from "react";
import { Dialog } from "../ui/dialog.tsx";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { AssistantTurn } from "./assistant-turn.tsx";
import { isStopping } from "./run-line.tsx";
import { Said } from "./said.tsx";
import { useSessionActions } from "./session-context.ts";

/** The runs that go on beside the conversation, and the way to look at each. */
export function Aside({ view }: { view: SessionView }): ReactElement | null {
  const [opened, setOpened] = useState<string>();
  const runs = view.runs.filter((run) => run.background && !isTerminal(run));
  return (
    <>
      {runs.length > 0 && (
        <section className="queue aside" aria-label="In the background">
          <h2>In the background</h2>
          <ul>
            {runs.map((run) => (
              <AsideItem key={run.id} run={run} view={view} onOpen={() => setOpened(run.id)} />
            ))}
          </ul>
        </section>
      )}
      {opened && <AsideDialog id={opened} view={view} onClose={() => setOpened(undefined)} />}
    </>
  );
}

type ItemProps = { readonly run: Run; readonly view: SessionView; readonly onOpen: () => void };

function AsideItem({ run, view, onOpen }: ItemProps): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const stopping = isStopping(run, view.gestures);
  const title = run.title || "A run in the background";
  return (
    <li className="queue-item">
      <span className={`badge ${asks(run) ? "accent" : ""}`}>{stopping ? "Stopping" : standing(run)}</span>
      <button type="button" className="truncate aside-title" onClick={onOpen}>
        {title}
      </button>
      <IconButton
        small
        label={stopping ? "Stopping" : `Stop: ${title}`}
        disabled={stopping}
        onClick={() => act("stop it", mirror.stop(run.id))}
      >
        <Square size={12} fill="currentColor" />
      </IconButton>
    </li>
  );
}

function asks(run: Run): boolean {
  return run.waitingReason === "approval" || run.waitingReason === "tool_outcome";
}

function standing(run: Run): string {
  if (asks(run)) return "Needs you";
  return run.status === "running" ? "Working" : run.status === "queued" ? "Queued" : "Waiting";
}

type DialogProps = { readonly id: string; readonly view: SessionView; readonly onClose: () => void };

/** What a background run was asked and writes, live; when it has ended, as it was then. */
function AsideDialog({ id, view, onClose }: DialogProps): ReactElement {
  const run = view.runs.find((one) => one.id === id);
  const messages = run ? [run.input, run.message].map((m) => view.aside?.find((one) => one.id === m)) : [];
  const [last, setLast] = useState<readonly (Message | undefined)[]>([]);
  if (messages.some((m) => m) && messages.some((m, i) => m !== last[i])) setLast(messages);
  const [input, answer] = last;
  const told = view.messages.some((m) => m.background?.run === id);
  return (
    <Dialog onClose={onClose} className="dialog wide" label="A run in the background">
      <header className="dialog-head">
        <h2>In the background</h2>
        <IconButton label="Close" onClick={onClose}>
          <X size={18} />
        </IconButton>
      </header>
      <div className="dialog-body">
        {input && (
          <article className="user-turn" aria-label="You">
            <Said parts={input.parts} />
          </article>
        )}
        {answer && run && !isTerminal(run) && (
          <AssistantTurn
            message={answer}
            run={run}
            approvals={view.approvals}
            gestures={view.gestures}
            busy={view.run !== undefined}
          />
        )}
        {(!run || isTerminal(run)) && (
          <p className="run-line" role="status">
            It has ended.{told && " Its result is in the conversation."}
          </p>
        )}
      </div>
    </Dialog>
  );
}
