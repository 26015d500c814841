import type { ToolCall } from "@holdfast/client";
import type { ReactElement } from "react";
import { useNow } from "../lib/clock.ts";
import { countdown, duration, wholeTime } from "../lib/words.ts";
import { useToasts } from "../ui/toast.tsx";
import { useSessionActions } from "./session-context.ts";

/** A call that a service works on: since when, until when, and the way out. */
export function Deferred({ call, run }: { call: ToolCall; run: string }): ReactElement {
  const { mirror } = useSessionActions();
  const { act } = useToasts();
  const now = useNow();
  const since = call.startedAt && Date.parse(call.startedAt);
  const until = call.until && Date.parse(call.until);
  return (
    <div className="child">
      <p className="child-now">
        The service has taken it and tells the result later.
        {since && ` It works on it for ${duration(Math.max(0, now - since))}`}
        {until && until > now && (
          <>
            {" "}
            and has <time title={wholeTime(call.until ?? "")}>{countdown(until, now)}</time> left
          </>
        )}
        {since && "."} You can close this page.
      </p>
      <button type="button" className="button link" onClick={() => act("stop it", mirror.stop(run))}>
        Cancel the run
      </button>
    </div>
  );
}
