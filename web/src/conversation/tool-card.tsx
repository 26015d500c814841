import type { Approval, Gesture, Json, ToolCall } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import {
  Ban,
  ChevronRight,
  CircleAlert,
  CircleCheck,
  CircleHelp,
  CircleSlash,
  Clock,
  LoaderCircle,
  ShieldQuestion,
} from "lucide-react";
import { memo, type ReactElement, useId, useState } from "react";
import { useNow } from "../lib/clock.ts";
import { briefJson, byteSize, duration, toolTitle } from "../lib/words.ts";
import { JsonView } from "../ui/json-view.tsx";
import { LongText } from "../ui/long-text.tsx";
import { ApprovalForm } from "./approval-form.tsx";
import { ChildRun } from "./child-run.tsx";
import { Deferred } from "./deferred.tsx";
import { FileView } from "./file.tsx";
import { OutcomeForm } from "./outcome-form.tsx";
import { useSessionActions } from "./session-context.ts";

type Props = {
  readonly call: ToolCall;
  readonly run: string | undefined;
  /** The question that it waits on, while nobody has decided it. */
  readonly approval: Approval | undefined;
  readonly gestures: readonly Gesture[];
};

/** A call of a tool: what was asked, how far it is, what came of it, and what a person has to say. */
export const ToolCard = memo(function ToolCard({ call, run, approval, gestures }: Props): ReactElement {
  const { mirror } = useSessionActions();
  const [open, setOpen] = useState(false);
  const id = useId();
  const asks = approval !== undefined || call.status === "unknown";
  const deciding = gestures.find((g) => g.kind === "decide" && g.approval === approval?.id);
  const resolving = gestures.some((g) => g.kind === "resolve" && g.call === call.id);
  return (
    <section className={`tool ${asks ? "asks" : ""}`} aria-label={`Tool ${toolTitle(call.name)}`}>
      <button
        type="button"
        className="tool-head"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
      >
        <StateIcon call={call} asks={approval !== undefined} />
        <span className="tool-name truncate">{toolTitle(call.name)}</span>
        <span className="tool-sum truncate">
          {briefJson(call.arguments) || call.rawArguments?.slice(0, 120)}
        </span>
        <span className="tool-state">
          <StateWords call={call} asks={approval !== undefined} />
        </span>
        <ChevronRight size={16} className="chevron" aria-hidden="true" />
      </button>
      {call.status === "started" && call.progress && <ProgressBar progress={call.progress} />}
      {open && (
        <div id={id} className="tool-body">
          <Details call={call} session={mirror.id} />
        </div>
      )}
      {call.status === "deferred" && !call.child && run && <Deferred call={call} run={run} />}
      {call.child && <ChildRun child={call.child} ended={call.endedAt !== undefined} />}
      {approval && (
        <ApprovalForm
          approval={approval}
          deciding={deciding?.kind === "decide" ? deciding.decision : undefined}
          decide={mirror.decide}
        />
      )}
      {call.status === "unknown" && run && <OutcomeForm run={run} call={call} sending={resolving} />}
    </section>
  );
});

function StateIcon({ call, asks }: { call: ToolCall; asks: boolean }): ReactElement {
  const size = 18;
  if (asks) return <ShieldQuestion size={size} className="warn" aria-hidden="true" />;
  switch (call.status) {
    case "completed":
      return <CircleCheck size={size} className="good" aria-hidden="true" />;
    case "failed":
      return <CircleAlert size={size} className="bad" aria-hidden="true" />;
    case "denied":
      return <Ban size={size} aria-hidden="true" />;
    case "cancelled":
      return <CircleSlash size={size} aria-hidden="true" />;
    case "unknown":
      return <CircleHelp size={size} className="warn" aria-hidden="true" />;
    case "deferred":
      if (!call.child) return <Clock size={size} className="accent" aria-hidden="true" />;
  }
  return <LoaderCircle size={size} className="spin accent" aria-hidden="true" />;
}

function StateWords({ call, asks }: { call: ToolCall; asks: boolean }): ReactElement {
  if (asks) return <>needs you</>;
  switch (call.status) {
    case "writing":
      return <>writing…</>;
    case "called":
      return <>waiting</>;
    case "deferred":
      if (!call.child) return <>waits for its service</>;
      return <Running since={call.startedAt} tries={call.try} />;
    case "started":
      return <Running since={call.startedAt} tries={call.try} />;
    case "completed":
    case "failed": {
      const took =
        call.startedAt && call.endedAt ? Date.parse(call.endedAt) - Date.parse(call.startedAt) : undefined;
      return (
        <>
          {call.status === "failed" ? "failed" : <span className="sr-only">done</span>}
          {took !== undefined && ` ${call.status === "failed" ? "after " : ""}${duration(took)}`}
        </>
      );
    }
    case "unknown":
      return <>outcome unknown</>;
    default:
      return <>{call.status}</>;
  }
}

function Running({ since, tries }: { since: string | undefined; tries: number | undefined }): ReactElement {
  const now = useNow();
  const seconds = since ? Math.max(0, Math.floor((now - Date.parse(since)) / 1000)) : 0;
  return (
    <>
      {tries && tries > 1 ? `try ${tries}, ` : ""}
      {seconds > 0 ? `${seconds} s` : "running"}
    </>
  );
}

function ProgressBar({ progress }: { progress: NonNullable<ToolCall["progress"]> }): ReactElement {
  const { fraction, message } = progress;
  const percent = fraction === undefined ? undefined : Math.round(Math.min(1, Math.max(0, fraction)) * 100);
  return (
    <div className="progress">
      <div className="progress-words">
        <span className="truncate">{message}</span>
        {percent !== undefined && <span>{percent}%</span>}
      </div>
      <div
        className={`progress-track ${percent === undefined ? "unsure" : ""}`}
        role="progressbar"
        aria-label={message || "Progress"}
        {...(percent !== undefined && { "aria-valuenow": percent })}
      >
        <div className="progress-fill" style={percent === undefined ? undefined : { width: `${percent}%` }} />
      </div>
    </div>
  );
}

function Details({ call, session }: { call: ToolCall; session: string }): ReactElement {
  const { api } = useClient();
  return (
    <>
      <div className="tool-section">
        <h4>Arguments</h4>
        {call.arguments === undefined ? (
          <LongText text={call.rawArguments || "none"} className="json" />
        ) : (
          <JsonView value={call.arguments} />
        )}
        {call.argumentsBlob && (
          <a className="button link" href={api.blobUrl(session, call.argumentsBlob.hash)} download>
            All arguments ({byteSize(call.argumentsBlob.size)})
          </a>
        )}
      </div>
      {call.result !== undefined && (
        <div className="tool-section">
          <h4>Result</h4>
          <Result value={call.result} />
          {call.blob && (
            <a className="button link" href={api.blobUrl(session, call.blob.hash)} download>
              The whole result ({byteSize(call.blob.size)})
            </a>
          )}
          {call.cut !== undefined && <p className="muted">{byteSize(call.cut)} of output were not kept.</p>}
          {call.files && (
            <div className="sources">
              {call.files.map((file) => (
                <FileView key={file.blob?.hash ?? file.url} file={file} />
              ))}
            </div>
          )}
        </div>
      )}
      {call.error && (
        <div className="tool-section">
          <h4>Error</h4>
          <div className="result-text bad">{call.error.message || call.error.code}</div>
        </div>
      )}
      <Origin call={call} />
    </>
  );
}

function Result({ value }: { value: Json }): ReactElement {
  return typeof value === "string" ? (
    <LongText text={value} className="result-text" />
  ) : (
    <JsonView value={value} />
  );
}

/** Who had a word in it, and what makes a repeated try harmless. */
function Origin({ call }: { call: ToolCall }): ReactElement | null {
  const facts = [
    call.by && `${call.status === "denied" ? "Denied" : "Decided"} by ${call.by}`,
    call.note && `“${call.note}”`,
    call.effects === "read_only" && "Only reads",
    call.effects === "idempotent" && "May be repeated",
    call.try && call.try > 1 && `Try ${call.try}`,
  ].filter((fact) => fact);
  return facts.length > 0 ? <p className="muted">{facts.join(" · ")}</p> : null;
}
