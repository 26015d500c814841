import type { Frame, LogEvent, OutgoingPart, Part } from "../src/wire.ts";

type Body = { id: string; parts: readonly OutgoingPart[]; parent?: string; background?: boolean };

/** Writes a log as the engine does: the events that belong together, in their order. */
export class Script {
  readonly session: string;
  readonly submitted = new Map<string, { body: Body; seq: number; run: string }>();
  readonly #write: (frames: readonly Frame[]) => void;
  #seq = 0;
  #head: string | undefined;
  #count = 0;

  constructor(session: string, write: (frames: readonly Frame[]) => void) {
    this.session = session;
    this.#write = write;
  }

  get seq(): number {
    return this.#seq;
  }

  /** The last message of the active branch. */
  get head(): string | undefined {
    return this.#head;
  }

  set head(id: string | undefined) {
    this.#head = id;
  }

  event(type: string, data: unknown, more: Partial<LogEvent> = {}): LogEvent {
    const seq = ++this.#seq;
    const at = new Date(Date.UTC(2026, 0, 2) + seq * 137).toISOString();
    return { session: this.session, seq, type, at, ...more, data } as LogEvent;
  }

  write(...frames: Frame[]): void {
    this.#write(frames);
  }

  begin(title = "A session"): void {
    if (this.#seq === 0)
      this.write(this.event("session.created", { tenant: "local", owner: "local", title, agent: "demo" }));
  }

  /** Accepts a message: its run is queued, and it is in the tree. */
  submit(body: Body): string {
    const text = body.parts.map((part) => ("text" in part ? part.text : "")).join("");
    this.begin(text);
    const run = `run_${this.session}_${++this.#count}`;
    const parent = body.parent ?? this.#head;
    const { background } = body;
    this.write(
      this.event(
        "run.queued",
        { agent: "demo", input: body.id, message: `ans_${run}`, ...(background && { background }) },
        { run },
      ),
      this.event(
        "message.created",
        {
          message: {
            id: body.id,
            role: "user",
            ...(parent && { parent }),
            parts: body.parts,
            status: "completed",
            run,
          },
        },
        { run },
      ),
    );
    if (!background) this.#head = body.id;
    this.submitted.set(body.id, { body, seq: this.#seq, run });
    return run;
  }

  /** Starts a run, or another answer to the same message. Gives the id of what it writes. */
  start(run: string, input: string, background = false): string {
    const message = `ans_${run}`;
    this.write(
      this.event("run.started", { worker: "wrk_a", fence: 1 }, { run }),
      this.event(
        "message.created",
        { message: { id: message, role: "assistant", parent: input, parts: [], status: "streaming", run } },
        { run },
      ),
      this.event("step.started", { message }, { run, step: 1, attempt: 1 }),
    );
    if (!background) this.#head = message;
    return message;
  }

  say(run: string, text: string, step = 1): void {
    this.write(this.event("text.delta", { message: `ans_${run}`, part: 0, text }, { run, step, attempt: 1 }));
  }

  /** Ends a step, the message and the run. */
  finish(run: string, text: string, step = 1): void {
    const at = { run, step, attempt: 1 };
    const usage = { inputTokens: 1, outputTokens: 2 };
    const parts: Part[] = [{ type: "text", text }];
    this.write(
      this.event("model.completed", { message: `ans_${run}`, parts, finish: "stop", usage }, at),
      this.event("step.completed", {}, at),
      this.event("message.completed", { message: `ans_${run}` }, at),
      this.event("run.completed", { usage }, { run }),
    );
  }

  /** Asks for approval of a call and waits. */
  ask(run: string, approval: string, call = `call_${approval}`): void {
    const at = { run, step: 1, attempt: 1 };
    const message = `ans_${run}`;
    const usage = { inputTokens: 1, outputTokens: 2 };
    const tool = { id: call, name: "delete", arguments: { path: "a" }, status: "writing" as const };
    this.write(
      this.event(
        "model.completed",
        { message, parts: [{ type: "tool", tool }], finish: "tool_calls", usage },
        at,
      ),
      this.event(
        "tool.called",
        { message, call, name: "delete", arguments: { path: "a" }, effects: "unsafe", approval },
        at,
      ),
      this.event(
        "approval.requested",
        {
          approval: {
            id: approval,
            session: this.session,
            run,
            message,
            call,
            name: "delete",
            effects: "unsafe",
            arguments: { path: "a" },
            argumentsHash: "00",
            status: "pending",
            requestedAt: "",
          },
        },
        at,
      ),
      this.event("run.waiting", { reason: "approval" }, { run }),
    );
  }

  decide(run: string, approval: string, decision: "approve" | "deny"): void {
    this.write(this.event("approval.decided", { id: approval, decision, by: "local" }, { run }));
  }

  /** One turn, from the question to the end of the answer. */
  turn(id: string, text: string, answer: readonly string[], parent?: string): string {
    const run = this.submit({ id, parts: [{ type: "text", text }], ...(parent !== undefined && { parent }) });
    this.start(run, id);
    for (const piece of answer) this.say(run, piece);
    this.finish(run, answer.join(""));
    return run;
  }
}
