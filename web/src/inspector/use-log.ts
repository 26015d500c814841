import type { Frame } from "@holdfast/client";
import { rangeOf } from "@holdfast/client";
import { useClient } from "@holdfast/react";
import { useEffect, useRef, useState } from "react";

/** A piece of a session's log, joined, oldest first. */
export type Log = {
  readonly frames: readonly Frame[];
  readonly failed: boolean;
  /** Whether all there is, after its beginning, is here. */
  readonly complete: boolean;
};

const pageSize = 1_000;
/** A log that is longer than this many pages is shown as far as they go. */
const pagesMost = 50;
/** What comes while it is looked at is fetched so often, in milliseconds. */
const pause = 400;

const nothing: Log = { frames: [], failed: false, complete: false };

/** Reads the log of a session after a cursor, and what is added until `seq`. */
export function useLog(session: string, after: number, seq: number): Log {
  const { api } = useClient();
  const [log, setLog] = useState(nothing);
  const kept = useRef({ session, after, frames: [] as readonly Frame[] });

  useEffect(() => {
    if (kept.current.session !== session || kept.current.after !== after) {
      kept.current = { session, after, frames: [] };
      setLog(nothing);
    }
    const known = kept.current.frames.at(-1);
    if (known && rangeOf(known).to >= seq) return;
    const stop = new AbortController();
    const read = async () => {
      for (let page = 0; page < pagesMost; page++) {
        const { frames } = kept.current;
        const last = frames.at(-1);
        const cursor = last ? rangeOf(last).to : after;
        const answer = await api.events(session, { after: cursor, limit: pageSize, signal: stop.signal });
        if (answer.reset) {
          kept.current = { session, after, frames: [] };
          return;
        }
        kept.current = { session, after, frames: [...frames, ...answer.frames] };
        setLog({ frames: kept.current.frames, failed: false, complete: !answer.more });
        if (!answer.more) return;
      }
    };
    const timer = setTimeout(
      () => {
        read().catch(() => {
          if (!stop.signal.aborted) setLog((before) => ({ ...before, failed: true }));
        });
      },
      kept.current.frames.length > 0 ? pause : 0,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [api, session, after, seq]);

  return log;
}
