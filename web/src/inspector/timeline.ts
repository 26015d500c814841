import type { EventData, Failure, Frame, KnownEvent, Usage } from "@holdfast/client";
import { count, toolTitle } from "../lib/words.ts";

/** One thing that happened in a run. */
export type Moment = {
  readonly seq: number;
  readonly at: string;
  readonly title: string;
  readonly kind: "plain" | "running" | "waiting" | "failed" | "good";
  readonly words?: string;
  readonly failure?: Failure;
  /** How long it took, in milliseconds, if it has ended. */
  readonly took?: number;
  /** What an attempt had said that was replaced. */
  readonly said?: string;
  /** The attempt whose model call it is. */
  readonly asked?: { readonly step: number; readonly attempt: number };
  /** What stands for earlier messages from here on. */
  readonly summary?: string;
};

function queued({ retryOf, fromStep = 1 }: EventData["run.queued"]): string {
  if (!retryOf) return "Queued";
  return fromStep > 1 ? `Asked to go on from step ${fromStep}` : "Asked for again";
}

type Known<T extends keyof EventData> = Extract<KnownEvent, { type: T }>;

/** What happened in a run, in the order in which it happened. */
export function timelineOf(frames: readonly Frame[], run: string): readonly Moment[] {
  const timeline = new Timeline();
  for (const frame of frames) {
    if (frame.type === "folded" || (frame as KnownEvent).run !== run) continue;
    timeline.add(frame as KnownEvent);
  }
  return timeline.moments;
}

class Timeline {
  readonly moments: Moment[] = [];
  /** Where the moment of something that goes on is, by its key. */
  readonly #open = new Map<string, number>();
  /** What each attempt has said so far. */
  readonly #said = new Map<string, string>();

  add(event: KnownEvent): void {
    switch (event.type) {
      case "run.queued":
        this.#push(event, { title: queued(event.data), kind: "plain" });
        return;
      case "run.started":
        this.#push(event, { title: "Started", kind: "plain", words: `by worker ${event.data.worker}` });
        return;
      case "run.waiting":
        this.#begin(`wait`, event, waiting(event));
        return;
      case "run.resumed":
        this.#end("wait", event, {});
        this.#push(event, { title: "Went on", kind: "plain", words: `with worker ${event.data.worker}` });
        return;
      case "run.reconciled":
        this.#interrupt(event);
        this.#push(event, {
          title: causes[event.data.cause] ?? event.data.cause,
          kind: "waiting",
          words: decisions[event.data.decision] ?? event.data.decision,
        });
        return;
      case "run.cancel_requested":
        this.#push(event, {
          title: "Asked to stop",
          kind: "waiting",
          words: `by ${event.data.by}${event.data.reason ? `: ${event.data.reason}` : ""}`,
        });
        return;
      case "run.completed":
        this.#end("wait", event, {});
        this.#push(event, { title: "Completed", kind: "good", words: tokens(event.data.usage) });
        return;
      case "run.failed":
        this.#end("wait", event, {});
        this.#push(event, { title: "Failed", kind: "failed", failure: event.data.error });
        return;
      case "run.cancelled":
        this.#end("wait", event, {});
        this.#push(event, { title: "Stopped", kind: "plain", words: `by ${event.data.by}` });
        return;
      default:
        this.#addOfStep(event);
    }
  }

  #addOfStep(event: KnownEvent): void {
    const attempt = `${event.step}.${event.attempt}`;
    switch (event.type) {
      case "step.started": {
        this.#end("wait", event, {});
        this.#superseded(event);
        const again = event.attempt && event.attempt > 1;
        this.#begin(`model.${attempt}`, event, {
          title: `Step ${event.step}${again ? `, attempt ${event.attempt}` : ""}`,
          kind: "running",
          words: again ? because(event) : "Asks the model",
          asked: { step: event.step ?? 1, attempt: event.attempt ?? 1 },
        });
        return;
      }
      case "context.compacted":
        this.#push(event, compacted(event));
        return;
      case "text.delta":
        this.#said.set(attempt, (this.#said.get(attempt) ?? "") + event.data.text);
        return;
      case "model.completed":
        this.#end(`model.${attempt}`, event, {
          kind: "good",
          words: `${finishes[event.data.finish] ?? event.data.finish}, ${tokens(event.data.usage)}`,
        });
        this.#said.delete(attempt);
        return;
      case "attempt.failed":
        this.#end(`model.${attempt}`, event, {
          kind: "failed",
          failure: event.data.error,
          ...said(event.data.parts?.map((part) => part.text ?? "").join("") || this.#said.get(attempt)),
        });
        this.#said.delete(attempt);
        return;
      default:
        this.#addOfCall(event);
    }
  }

  #addOfCall(event: KnownEvent): void {
    switch (event.type) {
      case "tool.called":
        this.#begin(`call.${event.data.call}`, event, {
          title: toolTitle(event.data.name),
          kind: "running",
          words: "Called",
        });
        return;
      case "tool.started":
        this.#change(`call.${event.data.call}`, {
          words: event.data.try > 1 ? `Runs, try ${event.data.try}` : "Runs",
        });
        return;
      case "tool.deferred":
        this.#change(`call.${event.data.call}`, { kind: "waiting", words: "Others work on it" });
        return;
      case "tool.completed":
        this.#end(`call.${event.data.call}`, event, {
          kind: "good",
          words: event.data.by ? `Done, says ${event.data.by}` : "Done",
        });
        return;
      case "tool.failed":
        this.#end(`call.${event.data.call}`, event, {
          kind: "failed",
          words: "Failed",
          failure: event.data.error,
        });
        return;
      case "tool.denied":
        this.#end(`call.${event.data.call}`, event, {
          kind: "plain",
          words: `Denied${event.data.by ? ` by ${event.data.by}` : ""}${event.data.note ? `: ${event.data.note}` : ""}`,
        });
        return;
      case "tool.cancelled":
        this.#end(`call.${event.data.call}`, event, { kind: "plain", words: "Cancelled" });
        return;
      case "tool.unknown":
        this.#change(`call.${event.data.call}`, { kind: "waiting", words: "Its outcome is unknown" });
        return;
      case "tool.resolved":
        this.#change(`call.${event.data.call}`, {
          words: `${event.data.by} says: ${outcomes[event.data.outcome]}${event.data.note ? ` (${event.data.note})` : ""}`,
        });
        return;
      case "approval.requested":
        this.#begin(`approval.${event.data.approval.id}`, event, {
          title: `Approval of ${toolTitle(event.data.approval.name)}`,
          kind: "waiting",
          words: "Asked",
        });
        return;
      case "approval.decided":
        this.#end(`approval.${event.data.id}`, event, {
          kind: event.data.decision === "approve" ? "good" : "plain",
          words: `${event.data.decision === "approve" ? "Approved" : "Denied"} by ${event.data.by}${event.data.note ? `: ${event.data.note}` : ""}`,
        });
        return;
      case "approval.expired":
        this.#end(`approval.${event.data.id}`, event, { kind: "plain", words: "Expired" });
        return;
      case "approval.voided":
        this.#end(`approval.${event.data.id}`, event, { kind: "plain", words: "Not needed any more" });
        return;
    }
  }

  #push(event: KnownEvent, moment: Omit<Moment, "seq" | "at">): void {
    this.moments.push({ seq: event.seq, at: event.at, ...moment });
  }

  #begin(key: string, event: KnownEvent, moment: Omit<Moment, "seq" | "at">): void {
    this.#open.set(key, this.moments.length);
    this.#push(event, moment);
  }

  #change(key: string, change: Partial<Moment>): void {
    const index = this.#open.get(key);
    const moment = index === undefined ? undefined : this.moments[index];
    if (index !== undefined && moment) this.moments[index] = { ...moment, ...change };
  }

  #end(key: string, event: KnownEvent, change: Partial<Moment>): void {
    const index = this.#open.get(key);
    const moment = index === undefined ? undefined : this.moments[index];
    if (moment) this.#change(key, { took: Date.parse(event.at) - Date.parse(moment.at), ...change });
    this.#open.delete(key);
  }

  /** The worker is gone: what it was writing has no end of its own. */
  #interrupt(event: KnownEvent): void {
    for (const key of [...this.#open.keys()]) {
      if (key.startsWith("model.")) this.#lost(key, event);
    }
  }

  #superseded(event: KnownEvent): void {
    for (const key of [...this.#open.keys()]) {
      if (key.startsWith(`model.${event.step}.`)) this.#lost(key, event);
    }
  }

  #lost(key: string, event: KnownEvent): void {
    const attempt = key.slice("model.".length);
    this.#end(key, event, { kind: "failed", words: "Broke off", ...said(this.#said.get(attempt)) });
    this.#said.delete(attempt);
  }
}

function said(text: string | undefined): { said?: string } {
  return text ? { said: text } : {};
}

function waiting(event: Known<"run.waiting">): Omit<Moment, "seq" | "at"> {
  const { reason, error } = event.data;
  const title = {
    approval: "Waits for an approval",
    tool_outcome: "Waits for a person's word",
    callback: "Waits for a service",
    child_run: "Waits for a subagent",
    retry: "Waits to try again",
  }[reason as string];
  return { title: title ?? `Waits: ${reason}`, kind: "waiting", ...(error && { failure: error }) };
}

function compacted({ data }: Known<"context.compacted">): Omit<Moment, "seq" | "at"> {
  const told = data.usage.outputTokens > 0 && !data.error;
  const how = told
    ? "Earlier messages were summarised"
    : data.error
      ? "Earlier messages were left out without a summary"
      : "Older results were shortened";
  return {
    title:
      data.because === "refused" ? "Made the context smaller: it was refused" : "Made the context smaller",
    kind: "plain",
    words: `${how}: ${count(data.before)} tokens became ${count(data.after)}`,
    ...(data.error && { failure: data.error }),
    ...(told && data.summary && { summary: data.summary }),
  };
}

function because(event: Known<"step.started">): string {
  switch (event.data.because) {
    case "retry":
      return "The attempt before failed";
    case "crash":
      return "The worker of the attempt before was lost";
    default:
      return "Asks the model again";
  }
}

const finishes: Record<string, string> = {
  stop: "Answered",
  tool_calls: "Asked for tools",
  length: "Ended at the length limit",
  content_filter: "Ended by the provider's filter",
};

const causes: Record<string, string> = {
  lease_expired: "The worker was lost",
  restart: "The server was started anew",
  drain: "The worker was shut down",
  cancel_timeout: "The worker did not stop in time",
};

const decisions: Record<string, string> = {
  continue: "The run goes on with another worker",
  hand_over: "The run is handed over",
  fail: "The run is given up",
  cancel: "The run is cancelled without it",
};

const outcomes: Record<string, string> = {
  happened: "it happened",
  did_not: "it did not happen",
  failed: "it failed",
};

function tokens(usage: Usage): string {
  return `${count(usage.inputTokens)} tokens in, ${count(usage.outputTokens)} out`;
}
