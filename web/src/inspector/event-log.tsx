import type { Frame, Json } from "@holdfast/client";
import { isDelta, rangeOf, stringifyJson } from "@holdfast/client";
import { Download } from "lucide-react";
import { type ReactElement, useMemo, useRef, useState } from "react";
import { Virtualizer } from "virtua";
import { count, exactTime } from "../lib/words.ts";
import { IconButton } from "../ui/icon-button.tsx";
import { JsonView } from "../ui/json-view.tsx";
import { useLog } from "./use-log.ts";

type Props = { readonly session: string; readonly seq: number };

/** So many seqs from the end are read at first, and before them when asked. */
const stretch = 500;

/** The log of a session, event by event. */
export function EventLog({ session, seq }: Props): ReactElement {
  const [after, setAfter] = useState(() => Math.max(0, seq - stretch));
  const [deltas, setDeltas] = useState(false);
  const [open, setOpen] = useState<ReadonlySet<number>>(new Set());
  const list = useRef<HTMLDivElement>(null);
  const log = useLog(session, after, seq);
  const shown = useMemo(
    () => log.frames.filter((frame) => deltas || frame.type === "folded" || !isDelta(frame)).reverse(),
    [log.frames, deltas],
  );

  function toggle(at: number): void {
    setOpen((before) => {
      const next = new Set(before);
      if (!next.delete(at)) next.add(at);
      return next;
    });
  }

  function save(): void {
    const lines = log.frames.map((frame) => stringifyJson(frame)).join("\n");
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([lines], { type: "application/x-ndjson" }));
    link.download = `${session}.ndjson`;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  return (
    <div ref={list}>
      <div className="events-tools">
        <p>
          {count(seq)} events, the newest first
          {log.failed && ". The log cannot be read now."}
        </p>
        <label className="badge">
          <input type="checkbox" checked={deltas} onChange={(event) => setDeltas(event.target.checked)} />{" "}
          Deltas
        </label>
        <IconButton small label="Save these events" onClick={save}>
          <Download size={16} />
        </IconButton>
      </div>
      <Virtualizer data={shown}>
        {(frame) => {
          const { to } = rangeOf(frame);
          return <EventRow key={to} frame={frame} open={open.has(to)} onToggle={() => toggle(to)} />;
        }}
      </Virtualizer>
      {after > 0 && log.complete && (
        <div className="clamp-foot">
          <button
            type="button"
            className="button quiet"
            onClick={() => setAfter(Math.max(0, after - stretch * 4))}
          >
            Show earlier events
          </button>
        </div>
      )}
    </div>
  );
}

type RowProps = { readonly frame: Frame; readonly open: boolean; readonly onToggle: () => void };

function EventRow({ frame, open, onToggle }: RowProps): ReactElement {
  const { from, to } = rangeOf(frame);
  if (frame.type === "folded") {
    return (
      <div className="event folded">
        <button type="button" onClick={onToggle} aria-expanded={open}>
          <span className="seq">{to}</span>
          <span className="mono truncate">
            {count(to - from + 1)} deltas folded away, from {from}
          </span>
        </button>
      </div>
    );
  }
  const event = frame as Exclude<Frame, { type: "folded" }> & { at: string };
  return (
    <div className="event">
      <button type="button" onClick={onToggle} aria-expanded={open}>
        <span className="seq">{to}</span>
        <span className="mono truncate">{event.type}</span>
        <time dateTime={event.at}>{exactTime(event.at)}</time>
      </button>
      {open && <JsonView value={event as unknown as Json} />}
    </div>
  );
}
