/**
 * What a session's messages are to the AI SDK. A history has their parts as
 * they are; a stream tells how they came to be.
 *
 * @module
 */

import type { File, Json, Message, Part as SessionPart, ToolCall } from "@holdfast/client";
import type { CallPart, DataPart, FilePart, Part, Profile, TextPart } from "./chunk.ts";
import { clean } from "./clean.ts";
import type { Large } from "./large.ts";

/** How messages are read. */
export type Reading = {
  readonly profile: Profile;
  /** The approvals that wait. */
  readonly pending: ReadonlySet<string>;
  readonly large: Large;
};

/** A part of an answer, the step it belongs to, and what a stream calls it. */
export type Piece = {
  readonly step: number;
  readonly id: string;
  readonly part: Exclude<Part, { type: "step-start" }>;
  /** A file that a call gave, told when its step is over. */
  readonly isResult?: boolean;
  /** Nothing of it is being written any more. */
  readonly isWhole: boolean;
  /** Beside a call: how far it is, and that a person is asked. They are told, and are no part of the message. */
  readonly beside?: readonly DataPart[];
};

/** The pieces of an answer. Undefined: a large text of it is on its way. */
export function piecesOf(message: Message, reading: Reading): Piece[] | undefined {
  const pieces: Piece[] = [];
  let results: Piece[] = [];
  let step = 0;
  for (const part of message.parts) {
    if (part.step !== step) pieces.push(...results.splice(0));
    step = part.step ?? 0;
    const found = read(part, reading);
    if (!found) return undefined;
    pieces.push(...found);
    results = [...results, ...filesOf(part.tool, step, reading.large)];
  }
  return message.status === "streaming" ? pieces : [...pieces, ...results];
}

/** What a call gave beside its result. */
function filesOf(tool: ToolCall | undefined, step: number, large: Large): Piece[] {
  return (tool?.files ?? []).flatMap((file, i) => {
    const { mediaType, url } = fileOf(file, large);
    const part = { type: "file", mediaType, url } as const;
    return url ? [{ step, id: `${tool?.id} ${i}`, part, isWhole: true, isResult: true }] : [];
  });
}

/** The parts of an answer in a history. */
export function answerParts(pieces: readonly Piece[], isOver: boolean): Part[] {
  const parts: Part[] = [];
  let step = 0;
  for (const piece of pieces) {
    if (piece.step !== step) parts.push({ type: "step-start" });
    step = piece.step;
    parts.push(piece.part);
  }
  // A page that goes on by itself after calls must not do so after the last.
  const calls = pieces.some((piece) => piece.step === step && isCall(piece.part));
  return isOver && calls ? [...parts, { type: "step-start" }] : parts;
}

/** The parts of what a person said. */
export function questionParts(message: Message, large: Large): Part[] {
  return message.parts.flatMap((part): Part[] => {
    if (part.type === "text") return [{ type: "text", text: part.text ?? "" }];
    if (part.type === "file" && part.file) return [fileOf(part.file, large)];
    return part.type === "data" ? [dataOf(part.data)] : [];
  });
}

export function isCall(part: Part): part is CallPart {
  return "toolCallId" in part;
}

function read(part: SessionPart, reading: Reading): Piece[] | undefined {
  const step = part.step ?? 0;
  const id = `s${step}p${part.part ?? 0}`;
  const isWhole = part.state !== "streaming";
  const as = (content: Piece["part"]): Piece[] => [{ step, id, part: content, isWhole }];
  switch (part.type) {
    case "text":
    case "reasoning": {
      const text = part.blob ? reading.large.text(part.blob, part.text ?? "") : (part.text ?? "");
      if (text === undefined) return undefined;
      const type = part.type as TextPart["type"];
      return text ? as({ type, text, state: part.state === "streaming" ? "streaming" : "done" }) : [];
    }
    case "tool":
      return part.tool ? call(part.tool, step, isWhole, reading) : [];
    case "file": {
      const file = part.file && fileOf(part.file, reading.large);
      return file?.url ? as({ type: "file", mediaType: file.mediaType, url: file.url }) : [];
    }
    case "source": {
      const { url, title } = (part.data ?? {}) as { url?: string; title?: string };
      return url ? as({ type: "source-url", sourceId: id, url, ...(title && { title }) }) : [];
    }
    case "data":
      return as({ type: "data-part", id, data: clean(part.data) });
    default:
      return [];
  }
}

function call(
  tool: ToolCall,
  step: number,
  isWhole: boolean,
  { profile, pending, large }: Reading,
): Piece[] | undefined {
  const { id, name, approval, argumentsBlob, rawArguments = "", progress } = tool;
  const base = { type: `tool-${name}`, toolCallId: id } as const;
  if (tool.status === "writing") {
    return [{ step, id, part: { ...base, state: "input-streaming", rawInput: rawArguments }, isWhole }];
  }
  let input: Pick<CallPart, "input" | "rawInput" | "providerExecuted">;
  const made = !approval && { providerExecuted: true };
  if (tool.arguments !== undefined) input = { input: clean(tool.arguments), ...made };
  else if (argumentsBlob) {
    const text = large.text(argumentsBlob, "null");
    if (text === undefined) return undefined;
    input = { input: clean(JSON.parse(text) as Json), ...made };
  } else input = rawArguments ? { rawInput: rawArguments } : {};
  const beside: DataPart[] = [];
  if (progress) beside.push({ type: "data-tool-progress", id, data: clean(progress as Json) });
  if (profile === "v5" && approval) beside.push(question(tool, approval, pending));
  return [
    { step, id, part: { ...base, ...input, ...outcome(tool, profile, pending) }, isWhole: true, beside },
  ];
}

/** How a client without approvals is told of one. */
function question(tool: ToolCall, id: string, pending: ReadonlySet<string>): DataPart {
  const decided = tool.status === "denied" ? "denied" : tool.by ? "approved" : "voided";
  const status = pending.has(id) ? "pending" : decided;
  return { type: "data-approval", id, data: { toolCallId: tool.id, toolName: tool.name, status } };
}

/** How far a call is, and what a person said to it. */
function outcome(
  tool: ToolCall,
  profile: Profile,
  pending: ReadonlySet<string>,
): Pick<CallPart, "state" | "output" | "errorText" | "approval"> {
  const { note } = tool;
  const asks = profile === "v5" ? undefined : tool.approval;
  const said = (approved: boolean) =>
    asks ? { approval: { id: asks, approved, ...(note && { reason: note }) } } : {};
  const stopped = note ? `stopped: ${note}` : "stopped";
  const refused = (errorText: string) =>
    asks
      ? ({ state: "output-denied", ...said(false) } as const)
      : ({ state: "output-error", errorText } as const);
  switch (tool.status) {
    case "completed":
      return { state: "output-available", output: clean(tool.result), ...said(true) };
    case "failed":
      return {
        state: "output-error",
        errorText: tool.error?.message || tool.error?.code || "It failed.",
        ...said(true),
      };
    case "denied":
      return refused(note ? `denied: ${note}` : "denied");
    case "cancelled":
      if (tool.approval && !tool.by) return refused(stopped);
      return { state: "output-error", errorText: stopped, ...said(true) };
    default:
      if (!asks) return { state: "input-available" };
      if (pending.has(asks)) return { state: "approval-requested", approval: { id: asks } };
      return { state: "approval-responded", ...said(true) };
  }
}

function fileOf({ mediaType, name, url, blob }: File, large: Large): FilePart {
  return {
    type: "file",
    mediaType,
    ...(name && { filename: name }),
    url: url ?? (blob ? large.url(blob) : ""),
  };
}

/** A data part that a person sent, with the name it had. */
function dataOf(sent: Json | undefined): DataPart {
  const { type, id, data } = (sent ?? {}) as { type?: string; id?: string; data?: Json };
  if (!type?.startsWith("data-") || data === undefined) return { type: "data-part", data: clean(sent) };
  return { type: type as DataPart["type"], ...(id && { id }), data: clean(data) };
}
