import type { Approval, Gesture, Message, Run } from "@holdfast/client";
import { Activity, RotateCcw } from "lucide-react";
import { memo, type ReactElement, useMemo } from "react";
import { count, textOf, wholeTime } from "../lib/words.ts";
import { CopyButton } from "../ui/copy-button.tsx";
import { IconButton } from "../ui/icon-button.tsx";
import { useToasts } from "../ui/toast.tsx";
import { Branches } from "./branches.tsx";
import { ForkButton } from "./fork-button.tsx";
import { SegmentView } from "./parts.tsx";
import { RunLine } from "./run-line.tsx";
import { segmentsOf } from "./segments.ts";
import { useSessionActions } from "./session-context.ts";

type Props = {
  readonly message: Message;
  /** The run that writes it, or wrote it, if this is its message. */
  readonly run: Run | undefined;
  readonly approvals: readonly Approval[];
  readonly gestures: readonly Gesture[];
  /** Whether the session has an active run. */
  readonly busy: boolean;
};

/** What the assistant said, and how its run stands. */
export const AssistantTurn = memo(function AssistantTurn(props: Props): ReactElement {
  const { message, run, approvals, gestures, busy } = props;
  const segments = useMemo(() => segmentsOf(message.parts), [message.parts]);
  const streaming = message.status === "streaming";
  return (
    <article className="assistant-turn" aria-label="Assistant" aria-busy={streaming}>
      {segments.map((segment) => (
        <SegmentView
          key={segment.key}
          segment={segment}
          run={run?.id ?? message.run}
          approvals={approvals}
          gestures={gestures}
        />
      ))}
      {run && <RunLine run={run} message={message} gestures={gestures} busy={busy} />}
      {!streaming && <Actions message={message} run={run} busy={busy} gestures={gestures} />}
    </article>
  );
});

type ActionProps = Pick<Props, "message" | "run" | "busy" | "gestures">;

function Actions({ message, run, busy, gestures }: ActionProps): ReactElement {
  const { mirror, inspect } = useSessionActions();
  const { act } = useToasts();
  const runId = run?.id ?? message.run;
  const retrying = gestures.some((gesture) => gesture.kind === "retry" && gesture.run === runId);
  return (
    <div className="turn-actions">
      <Branches message={message} busy={busy} />
      <span className="quiet-until-near">
        <CopyButton text={() => textOf(message)} />
        <ForkButton message={message} />
        {runId && (
          <>
            <IconButton
              small
              label={busy ? "Answer again (when the run has ended)" : "Answer again"}
              disabled={busy || retrying}
              onClick={() => act("answer again", mirror.retry(runId, { fresh: true }))}
            >
              <RotateCcw size={16} />
            </IconButton>
            <IconButton small label="How this run went" onClick={() => inspect(runId)}>
              <Activity size={16} />
            </IconButton>
          </>
        )}
      </span>
      {run && run.usage.outputTokens > 0 && (
        <span className="quiet-until-near" title={message.createdAt && wholeTime(message.createdAt)}>
          {count(run.usage.inputTokens + run.usage.outputTokens)} tokens
        </span>
      )}
    </div>
  );
}
