import type { Run, SessionView } from "@holdfast/client";
import { useSession } from "@holdfast/react";
import { X } from "lucide-react";
import { type ReactElement, useId, useMemo, useState } from "react";
import { Fold } from "../conversation/fold.tsx";
import { useNow } from "../lib/clock.ts";
import { count, duration, exactTime, toolTitle, wholeTime } from "../lib/words.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { LongText } from "../ui/long-text.tsx";
import { EventLog } from "./event-log.tsx";
import { SeenView } from "./seen-view.tsx";
import { type Moment, timelineOf } from "./timeline.ts";
import { useLog } from "./use-log.ts";
import "../styles/inspector.css";

type Props = {
  readonly session: string;
  /** The run to look at; by default the last one. */
  readonly run: string | undefined;
  readonly onClose: () => void;
};

type Tab = "timeline" | "events";

/** How a run went: in steps, and in the log's own words. */
export default function Inspector({ session, run: wanted, onClose }: Props): ReactElement {
  const view = useSession(session, all);
  const [tab, setTab] = useState<Tab>("timeline");
  const [chosen, setChosen] = useState<string>();
  const id = useId();
  const run = view.runs.find((r) => r.id === (chosen ?? wanted)) ?? view.run ?? view.runs.at(-1);
  return (
    <aside className="inspector" aria-label="Run inspector">
      <div className="inspector-head">
        <h2>How it went</h2>
        {view.runs.length > 1 && (
          <select
            className="select"
            aria-label="Run"
            value={run?.id ?? ""}
            onChange={(event) => setChosen(event.target.value)}
          >
            {view.runs.map((r, i) => (
              <option key={r.id} value={r.id}>
                Run {i + 1}, {r.status}
              </option>
            ))}
          </select>
        )}
        <IconButton label="Close" onClick={onClose}>
          <X size={18} />
        </IconButton>
      </div>
      <div className="tabs" role="tablist" aria-label="Views">
        {(["timeline", "events"] as const).map((name) => (
          <button
            key={name}
            type="button"
            role="tab"
            id={`${id}${name}`}
            aria-selected={tab === name}
            aria-controls={`${id}panel`}
            tabIndex={tab === name ? 0 : -1}
            onClick={() => setTab(name)}
            onKeyDown={(event) => {
              if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
              const other = name === "timeline" ? "events" : "timeline";
              setTab(other);
              document.getElementById(`${id}${other}`)?.focus();
            }}
          >
            {name === "timeline" ? "Timeline" : "Events"}
          </button>
        ))}
      </div>
      <div className="inspector-body" role="tabpanel" id={`${id}panel`} aria-labelledby={`${id}${tab}`}>
        {tab === "events" ? (
          <EventLog session={session} seq={view.seq} />
        ) : run ? (
          <Timeline key={run.id} view={view} run={run} />
        ) : (
          <p className="muted">No run yet.</p>
        )}
      </div>
    </aside>
  );
}

const all = (view: SessionView): SessionView => view;

function Timeline({ view, run }: { view: SessionView; run: Run }): ReactElement {
  const input = view.messages.find(({ id }) => id === run.input);
  // What a run did comes after what it answers, but for its being queued.
  const [after] = useState(() => Math.max(0, (input?.seq ?? 3) - 3));
  const log = useLog(view.id, after, view.seq);
  const moments = useMemo(() => timelineOf(log.frames, run.id), [log.frames, run.id]);
  const { usage } = run;
  return (
    <>
      <dl className="facts">
        <dt>Status</dt>
        <dd>
          {run.status}
          {run.waitingReason ? ` (${run.waitingReason.replace("_", " ")})` : ""}
        </dd>
        <dt>Agent</dt>
        <dd>{run.agent}</dd>
        <dt>Run</dt>
        <dd className="mono">{run.id}</dd>
        {run.retryOf && (
          <>
            <dt>Retry of</dt>
            <dd className="mono">{run.retryOf}</dd>
            {run.fromStep && run.fromStep > 1 && (
              <>
                <dt>From step</dt>
                <dd>{run.fromStep}</dd>
              </>
            )}
          </>
        )}
        <dt>Queued</dt>
        <dd>{wholeTime(run.queuedAt)}</dd>
        <dt>Took</dt>
        <dd>
          <Took run={run} />
        </dd>
      </dl>
      <div className="tokens">
        <Tokens n={usage.inputTokens} words="tokens in" />
        <Tokens n={usage.outputTokens} words="tokens out" />
        {usage.reasoningTokens ? <Tokens n={usage.reasoningTokens} words="thought" /> : null}
        {usage.cachedTokens ? <Tokens n={usage.cachedTokens} words="cached" /> : null}
        <Tokens n={run.currentStep} words={run.currentStep === 1 ? "step" : "steps"} />
      </div>
      {log.failed && <p className="muted">The log cannot be read now.</p>}
      <ol className="timeline">
        {moments.map((moment) => (
          <MomentView key={moment.seq} moment={moment} run={run.id} />
        ))}
      </ol>
    </>
  );
}

function Took({ run }: { run: Run }): ReactElement {
  const now = useNow();
  const end = run.finishedAt ? Date.parse(run.finishedAt) : now;
  return <>{duration(end - Date.parse(run.queuedAt))}</>;
}

function Tokens({ n, words }: { n: number; words: string }): ReactElement {
  return (
    <div className="token">
      <b>{count(n)}</b>
      <span>{words}</span>
    </div>
  );
}

function MomentView({ moment, run }: { moment: Moment; run: string }): ReactElement {
  const { at, title, kind, words, failure, took, said, asked, summary } = moment;
  return (
    <li className="timeline-item">
      <span className={`dot ${kind === "running" && took !== undefined ? "" : kind}`} aria-hidden="true" />
      <div className="timeline-head">
        <b>{title}</b>
        {took !== undefined && <span>{duration(took)}</span>}
        <time dateTime={at}>{exactTime(at)}</time>
      </div>
      {words && <p>{words}</p>}
      {failure && (
        <p className="bad">
          {toolTitle(failure.code)}: {failure.message}
        </p>
      )}
      {summary && (
        <Fold summary="The summary">{() => <LongText text={summary} className="plain-text" />}</Fold>
      )}
      {asked && <Fold summary="What the model saw">{() => <SeenView run={run} {...asked} />}</Fold>}
      {said && (
        <Fold className="superseded" summary="What it had said">
          {() => <div className="plain-text">{said.slice(0, 20_000)}</div>}
        </Fold>
      )}
    </li>
  );
}
