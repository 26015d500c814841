import { expect } from "vitest";
import type { Message, Part } from "./sdk.ts";
import { patience } from "./world.ts";

/** Waits until something holds. */
export async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  await expect.poll(holds, { timeout: patience, interval: 10 }).toBe(true);
}

/** The text of a message. */
export function textOf(message: Message | undefined): string {
  return message?.parts.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join("") ?? "";
}

/** The calls of an answer. */
export function callsOf(message: Message | undefined): readonly Part[] {
  return message?.parts.filter((part) => part.toolCallId !== undefined) ?? [];
}

/** Messages as a person sees them: without what only some versions of the client keep. */
export function plain(messages: readonly Message[]): unknown {
  return messages.map(({ id, role, parts }) => ({ id, role, parts: parts.map(seen) }));
}

const shown = [
  "type",
  "text",
  "state",
  "toolCallId",
  "input",
  "output",
  "errorText",
  "url",
  "mediaType",
  "data",
];

function seen(part: Part): unknown {
  const asks = part.state === "approval-requested" && { approval: part.approval?.id };
  return {
    ...Object.fromEntries(shown.flatMap((key) => (part[key] === undefined ? [] : [[key, part[key]]]))),
    ...asks,
  };
}

/** What a page that is loaded now begins with. */
export async function history(api: string, chat: string, profile = "safe"): Promise<Message[]> {
  const response = await fetch(`${api}/${chat}`, { headers: { "X-Aisdk-Profile": profile } });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  return ((await response.json()) as { messages: Message[] }).messages;
}

/** The thoughts of an answer. */
export function thoughtOf(message: Message | undefined): string {
  return message?.parts.map((part) => (part.type === "reasoning" ? (part.text ?? "") : "")).join("") ?? "";
}
