import type { Approval, Failure, Run } from "./wire.ts";

/** What a server says when it refuses, as `application/problem+json`. */
type ProblemBody = {
  readonly title?: string;
  readonly detail?: string;
  readonly code?: string;
  readonly errors?: readonly FieldError[];
  readonly run?: Run;
  readonly approval?: Approval;
  readonly retryAfterMs?: number;
};

/** What is wrong with one field: `parts.0.text`. */
export type FieldError = { readonly field: string; readonly message: string };

/** The codes of PROTOCOL.md §3. More may come. */
export type ProblemCode =
  | "malformed"
  | "invalid_id"
  | "invalid_cursor"
  | "unauthenticated"
  | "forbidden_host"
  | "forbidden_origin"
  | "not_found"
  | "request_timeout"
  | "message_conflict"
  | "run_active"
  | "run_terminal"
  | "run_not_terminal"
  | "approval_decided"
  | "approval_gone"
  | "tool_outcome_known"
  | "call_not_open"
  | "inbox_delivered"
  | "too_large"
  | "invalid"
  | "inbox_full"
  | "internal"
  | "too_many_streams"
  | "unavailable"
  | (string & {});

/** The server refused, or failed. A refused command has changed nothing. */
export class Problem extends Error {
  override readonly name = "Problem";
  /** The HTTP status. */
  readonly status: number;
  /** What is wrong, for programs; stable. An answer that is not the server's own has `http_<status>`. */
  readonly code: ProblemCode;
  readonly errors: readonly FieldError[];
  /** The run that the refusal is about. */
  readonly run: Run | undefined;
  /** The approval as it was decided. */
  readonly approval: Approval | undefined;
  /** When to try again, in milliseconds from the answer; 0 if the server did not say. */
  readonly retryAfterMs: number;

  constructor(status: number, body: ProblemBody, headers?: Headers) {
    super(body.detail || body.title || `HTTP ${status}`);
    this.status = status;
    this.code = body.code || `http_${status}`;
    this.errors = body.errors ?? [];
    this.run = body.run;
    this.approval = body.approval;
    this.retryAfterMs = body.retryAfterMs ?? (Number(headers?.get("Retry-After")) * 1_000 || 0);
  }
}

/** No answer came: nobody knows whether the request was done. The same request again finds out. */
export class Unanswered extends Error {
  override readonly name = "Unanswered";

  constructor(cause: unknown) {
    super("the server did not answer", { cause });
  }
}

/** Whether the same request may do better later: the server is overloaded, restarting, or cannot be reached. */
export function isPassing(error: unknown): boolean {
  if (!(error instanceof Problem)) return error instanceof Unanswered;
  const { status, code } = error;
  return status === 408 || status >= 500 || (status === 429 && code !== "inbox_full");
}

/** What an error says, as a value that can be kept and shown. */
export function failureOf(error: unknown): Failure {
  const code =
    error instanceof Problem ? error.code : error instanceof Unanswered ? "unanswered" : "internal";
  const message = error instanceof Error ? error.message : String(error);
  return { code, message, retryable: isPassing(error) };
}
