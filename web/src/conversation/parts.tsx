import type { Approval, Gesture, Message, Part } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { ExternalLink } from "lucide-react";
import { type ReactElement, useMemo } from "react";
import { byteSize, prettyJson } from "../lib/words.ts";
import { Prose } from "../markdown/prose.tsx";
import { JsonView } from "../ui/json-view.tsx";
import { FileView } from "./file.tsx";
import { Fold } from "./fold.tsx";
import { type Segment, segmentsOf } from "./segments.ts";
import { useSessionActions } from "./session-context.ts";
import { ToolCard } from "./tool-card.tsx";

/** What a message says, where nothing of it can be decided. */
export function Parts({ message }: { message: Message }): ReactElement {
  const segments = useMemo(() => segmentsOf(message.parts), [message.parts]);
  return (
    <>
      {segments.map((segment) => (
        <SegmentView key={segment.key} segment={segment} run={message.run} approvals={none} gestures={none} />
      ))}
    </>
  );
}

const none: readonly never[] = [];

type SegmentProps = {
  readonly segment: Segment;
  readonly run: string | undefined;
  readonly approvals: readonly Approval[];
  readonly gestures: readonly Gesture[];
};

/** One piece of what a message says. */
export function SegmentView({ segment, run, approvals, gestures }: SegmentProps): ReactElement | null {
  switch (segment.kind) {
    case "text":
      return <TextView part={segment.part} />;
    case "reasoning":
      return <Reasoning part={segment.part} />;
    case "tools":
      return (
        <div className="tools">
          {segment.calls.map((call) => (
            <ToolCard
              key={call.id}
              call={call}
              run={run}
              approval={approvals.find(({ id }) => id === call.approval)}
              gestures={gestures}
            />
          ))}
        </div>
      );
    case "files":
      return (
        <div className="sources">
          {segment.parts.map((part) => part.file && <FileView key={placeOf(part)} file={part.file} />)}
        </div>
      );
    case "sources":
      return <Sources parts={segment.parts} />;
    case "data":
      return <Fold summary="Data">{() => <JsonView value={segment.part.data} />}</Fold>;
    case "superseded":
      return (
        <Fold className="superseded" summary="What had been said before it broke off">
          {() => segment.parts.map((part) => <Prose key={placeOf(part)} text={partText(part)} />)}
        </Fold>
      );
  }
}

/** Where a part is in its message. */
function placeOf(part: Part): string {
  return `${part.step ?? 0}.${part.part ?? 0}.${part.type}`;
}

function partText(part: Part): string {
  if (part.tool) return `\`${part.tool.name}\` ${part.tool.rawArguments ?? prettyJson(part.tool.arguments)}`;
  return part.text ?? "";
}

function TextView({ part }: { part: Part }): ReactElement {
  const { mirror } = useSessionActions();
  const { api } = useClient();
  return (
    <>
      <Prose text={part.text ?? ""} growing={part.state === "streaming"} />
      {part.blob && (
        <a className="button link" href={api.blobUrl(mirror.id, part.blob.hash)} download>
          The whole text ({byteSize(part.blob.size)})
        </a>
      )}
    </>
  );
}

function Reasoning({ part }: { part: Part }): ReactElement {
  const streaming = part.state === "streaming";
  const text = part.text ?? "";
  const summary = streaming ? <span className="shimmer">Thinking…</span> : "Thought about it";
  return <Fold summary={summary}>{() => <Prose text={text} growing={streaming} />}</Fold>;
}

function Sources({ parts }: { parts: readonly Part[] }): ReactElement {
  return (
    <div className="sources">
      {parts.map((part) => {
        const source = sourceOf(part);
        return source.url ? (
          <a
            key={placeOf(part)}
            className="badge"
            href={source.url}
            target="_blank"
            rel="noopener noreferrer nofollow"
          >
            <ExternalLink size={12} aria-hidden="true" />
            {source.title}
          </a>
        ) : (
          <span key={placeOf(part)} className="badge">
            {source.title}
          </span>
        );
      })}
    </div>
  );
}

function sourceOf(part: Part): { title: string; url?: string } {
  const data = part.data;
  if (typeof data !== "object" || data === null || Array.isArray(data))
    return { title: String(data ?? "Source") };
  const { title, url } = data as { title?: unknown; url?: unknown };
  const link = typeof url === "string" && /^https?:\/\//i.test(url) ? url : undefined;
  const words = typeof title === "string" && title ? title : (link ?? prettyJson(data).slice(0, 80));
  return link ? { title: words, url: link } : { title: words };
}
