/**
 * The words of the AI SDK: what its clients take, from 5.0.92 on; approvals
 * from 6.0 on. Fields that only newer releases know are left out.
 *
 * @module
 */

import type { Failure, Json, RunStatus } from "@holdfast/client";

/** Which chunks a client takes. `safe`: every release from 5.0.92 on. */
export type Profile =
  | "safe"
  /** Approvals are a `data-approval` part beside their call, and the stream stays open while they wait. */
  | "v5"
  /** 7.0.100 and later: what an attempt said that failed is taken back in the open stream. */
  | "v7";

/** What an answer says of the run that wrote it. */
export type Metadata = {
  readonly runId: string;
  readonly status: RunStatus;
  /** Once the run has ended. */
  readonly usage?: {
    readonly inputTokens: number;
    readonly outputTokens: number;
    readonly totalTokens: number;
    readonly reasoningTokens?: number;
    readonly cachedInputTokens?: number;
  };
  /** Why it failed. */
  readonly error?: Failure;
};

/** How an answer ended. */
type FinishReason = "stop" | "tool-calls" | "error" | "other";

type Called = { readonly toolCallId: string; readonly providerExecuted?: boolean };
type Named = Called & { readonly toolName: string };

/** One piece of a UI message stream. */
export type Chunk =
  | { readonly type: "start"; readonly messageId: string; readonly messageMetadata: Metadata }
  | { readonly type: "start-step" | "finish-step" | "reset-step" | "abort" }
  | { readonly type: "text-start" | "text-end" | "reasoning-start" | "reasoning-end"; readonly id: string }
  | { readonly type: "text-delta" | "reasoning-delta"; readonly id: string; readonly delta: string }
  | ({ readonly type: "tool-input-start" } & Named)
  | ({ readonly type: "tool-input-delta"; readonly inputTextDelta: string } & Called)
  | ({ readonly type: "tool-input-available"; readonly input: Json } & Named)
  | ({ readonly type: "tool-input-error"; readonly input: Json; readonly errorText: string } & Named)
  | ({ readonly type: "tool-output-available"; readonly output: Json } & Called)
  | ({ readonly type: "tool-output-error"; readonly errorText: string } & Called)
  | ({ readonly type: "tool-approval-request"; readonly approvalId: string } & Called)
  | { readonly type: "tool-approval-response"; readonly approvalId: string; readonly approved: boolean }
  | ({ readonly type: "tool-output-denied" } & Called)
  | FilePart
  | SourcePart
  | (DataPart & { readonly transient?: true })
  | { readonly type: "message-metadata"; readonly messageMetadata: Metadata }
  | { readonly type: "error"; readonly errorText: string }
  | { readonly type: "finish"; readonly finishReason: FinishReason; readonly messageMetadata?: Metadata };

/** A text or a thought. Those that a person sent have no state. */
export type TextPart = {
  readonly type: "text" | "reasoning";
  readonly text: string;
  readonly state?: "streaming" | "done";
};
export type FilePart = {
  readonly type: "file";
  readonly mediaType: string;
  readonly filename?: string;
  readonly url: string;
};
export type SourcePart = {
  readonly type: "source-url";
  readonly sourceId: string;
  readonly url: string;
  readonly title?: string;
};
export type DataPart = { readonly type: `data-${string}`; readonly id?: string; readonly data: Json };

/** A call of a tool. */
export type CallPart = {
  readonly type: `tool-${string}`;
  readonly toolCallId: string;
  readonly state:
    | "input-streaming"
    | "input-available"
    | "approval-requested"
    | "approval-responded"
    | "output-available"
    | "output-error"
    | "output-denied";
  readonly input?: Json;
  /** The text of arguments that are being written, or are no JSON object. */
  readonly rawInput?: Json;
  readonly output?: Json;
  readonly errorText?: string;
  /** Made here, without asking: no page has to make it, or to send its result. */
  readonly providerExecuted?: boolean;
  readonly approval?: { readonly id: string; readonly approved?: boolean; readonly reason?: string };
};

/** A part of a message. */
export type Part = { readonly type: "step-start" } | TextPart | FilePart | SourcePart | DataPart | CallPart;
