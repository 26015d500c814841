import type { Failure, Gesture, Message, Run } from "@holdfast/client";
import { isTerminal } from "@holdfast/client";
import { CircleAlert, CircleSlash, Clock, LoaderCircle, TriangleAlert } from "lucide-react";
import type { ReactElement, ReactNode } from "react";
import { useNow } from "../lib/clock.ts";
import { countdown } from "../lib/words.ts";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = {
  readonly run: Run;
  /** What it writes; absent while it is queued. */
  readonly message: Message | undefined;
  readonly gestures: readonly Gesture[];
  /** Whether the session has an active run. */
  readonly busy: boolean;
};

/** How a run stands, in words, where that is not plain to see; and the way on. */
export function RunLine({ run, message, gestures, busy }: Props): ReactElement | null {
  if (isStopping(run, gestures)) return <Stopping run={run} />;
  switch (run.status) {
    case "queued":
      return <Quiet>Queued</Quiet>;
    case "running":
      return <Working run={run} message={message} />;
    case "waiting":
      return <Waiting run={run} />;
    case "failed":
      return (
        <Failed run={run} retry={<Retry run={run} message={message} gestures={gestures} busy={busy} />} />
      );
    case "cancelled":
      return (
        <Cancelled
          run={run}
          message={message}
          retry={<Retry run={run} message={message} gestures={gestures} busy={busy} />}
        />
      );
    case "completed":
      return <Completed run={run} />;
  }
}

/** Whether somebody has asked a run to stop, and it has not yet. */
export function isStopping(run: Run, gestures: readonly Gesture[]): boolean {
  if (isTerminal(run)) return false;
  return run.cancelRequestedAt !== undefined || gestures.some((g) => g.kind === "stop" && g.run === run.id);
}

function Quiet({ children }: { children: ReactNode }): ReactElement {
  return (
    <div className="run-line">
      <LoaderCircle size={16} className="spin" aria-hidden="true" />
      {children}
    </div>
  );
}

function Stopping({ run }: { run: Run }): ReactElement {
  const now = useNow();
  const deadline = run.cancelDeadline ? Date.parse(run.cancelDeadline) : undefined;
  return (
    <Quiet>
      Stopping{deadline && deadline > now ? `: at the latest in ${countdown(deadline, now)}` : "…"}
    </Quiet>
  );
}

/** A run that writes shows that by itself; between steps there would be nothing to see. */
function Working({ run, message }: { run: Run; message: Message | undefined }): ReactElement | null {
  const last = message?.parts.at(-1);
  const retry = run.attempt && run.attempt > 1 ? <AttemptNote run={run} /> : null;
  if (last?.state === "streaming" && last.type !== "reasoning") return retry;
  if (last?.type === "tool" && last.tool && !last.tool.endedAt) return retry;
  return (
    <>
      {retry}
      <div className="thinking" role="img" aria-label="Working">
        <i />
        <i />
        <i />
      </div>
    </>
  );
}

function AttemptNote({ run }: { run: Run }): ReactElement {
  const { inspect } = useSessionActions();
  return (
    <div className="run-line">
      <span>Attempt {run.attempt}: what an earlier one had said was replaced.</span>
      <button type="button" className="button link" onClick={() => inspect(run.id)}>
        Look at it
      </button>
    </div>
  );
}

function Waiting({ run }: { run: Run }): ReactElement | null {
  const now = useNow();
  const until = run.waitingUntil ? Date.parse(run.waitingUntil) : undefined;
  switch (run.waitingReason) {
    case "approval":
      return (
        <Note icon={<Clock size={16} />}>
          Waiting for your approval. You can close this page; nothing is lost.
        </Note>
      );
    case "tool_outcome":
      return (
        <Note icon={<Clock size={16} />}>Waiting for your word on a call whose outcome is unknown.</Note>
      );
    case "child_run":
      return <Note icon={<Clock size={16} />}>Waiting for a subagent to finish its task.</Note>;
    case "callback":
      return (
        <Note icon={<Clock size={16} />}>
          Waiting for a service to tell the result of a call
          {until && until > now ? `, for ${countdown(until, now)} at most` : ""}. You can close this page.
        </Note>
      );
    case "retry":
      return (
        <div className="run-line waiting">
          <TriangleAlert size={16} aria-hidden="true" />
          <div className="run-line-body">
            <p>
              {until && until > now ? `Trying again in ${countdown(until, now)}` : "Trying again…"}
              {run.attempt ? ` (attempt ${run.attempt} failed)` : ""}
            </p>
            {run.error && <p>{failureWords(run.error)}</p>}
          </div>
        </div>
      );
    case "worker":
      return (
        <Quiet>
          {until && until > now
            ? `The worker was lost. The run goes on in ${countdown(until, now)}`
            : "The worker was lost. Another one takes the run on…"}
        </Quiet>
      );
    default:
      return <Quiet>Waiting{run.waitingReason ? `: ${run.waitingReason}` : ""}</Quiet>;
  }
}

function Note({ icon, children }: { icon: ReactNode; children: ReactNode }): ReactElement {
  return (
    <div className="run-line">
      {icon}
      <span>{children}</span>
    </div>
  );
}

/** Goes on from the step that failed, or was cut short. */
function Retry({ run, message, gestures, busy }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const retrying = gestures.some((g) => g.kind === "retry" && g.run === run.id);
  const step = nextStep(run, message);
  const words = step > 1 ? `Retry from step ${step}` : "Try again";
  return (
    <button
      type="button"
      className="button"
      disabled={retrying || busy}
      title={step > 1 ? "What its earlier steps said and did is kept, and not done again." : undefined}
      onClick={() => act("try again", mirror.retry(run.id))}
    >
      {retrying ? "Trying again…" : words}
    </button>
  );
}

/** The step that a retry goes on with. */
function nextStep(run: Run, message: Message | undefined): number {
  const last = run.currentStep;
  const answered = message?.parts.some((part) => part.step === last && part.tool);
  return Math.max(answered ? last + 1 : last, run.fromStep ?? 1);
}

function Failed({ run, retry }: { run: Run; retry: ReactNode }): ReactElement {
  const { inspect } = useSessionActions();
  return (
    <div className="run-line failed">
      <CircleAlert size={16} aria-hidden="true" />
      <div className="run-line-body">
        <p>{failureTitle(run.error)}</p>
        {run.error?.message && <p>{run.error.message}</p>}
      </div>
      <div className="run-line-actions">
        {retry}
        <button type="button" className="button quiet" onClick={() => inspect(run.id)}>
          Details
        </button>
      </div>
    </div>
  );
}

type Ended = { readonly run: Run; readonly message: Message | undefined; readonly retry: ReactNode };

function Cancelled({ run, message, retry }: Ended): ReactElement {
  const kept = message?.parts.some((part) => part.type !== "step");
  const reason = reasons[run.cancelReason ?? ""];
  const who = run.cancelBy && run.cancelBy !== "local" ? ` by ${run.cancelBy}` : "";
  return (
    <Note icon={<CircleSlash size={16} aria-hidden="true" />}>
      Stopped{reason ?? `${who}${run.cancelReason ? `: ${run.cancelReason}` : ""}`}.{" "}
      {kept ? "What had been said is kept. " : ""}
      {retry}
    </Note>
  );
}

/** Why a run was stopped, where nobody pressed Stop. */
const reasons: Record<string, string> = {
  interrupt: " by the next message",
  rollback: " and replaced by the next message",
};

function Completed({ run }: { run: Run }): ReactElement | null {
  return run.attempt && run.attempt > 1 ? <AttemptNote run={run} /> : null;
}

const titles: Record<string, string> = {
  crash: "The run was given up: too many workers were lost while they carried it",
  rate_limited: "The model's provider asks for fewer requests",
  overloaded: "The model's provider is overloaded",
  unavailable: "The model's provider cannot be reached",
  stalled: "The model fell silent",
  incomplete: "The model's answer was cut off",
  protocol: "The model's answer could not be read",
  too_large: "The model's answer was too large",
  context_too_long: "The conversation is too long for the model",
  invalid_request: "The model's provider refused the request",
  unauthorized: "The model's provider refused the key",
};

/** What went wrong, in a line. */
export function failureTitle(failure: Failure | undefined): string {
  return (failure && titles[failure.code]) ?? "The run failed";
}

function failureWords(failure: Failure): string {
  const title = titles[failure.code];
  return title ? `${title}: ${failure.message}` : failure.message;
}
