import { readdirSync, readFileSync } from "node:fs";
import { parseJson } from "../src/json.ts";
import type { Frame, Snapshot } from "../src/wire.ts";

/** One file of protocol/cases that is a conversation. */
export type Conversation = {
  readonly name: string;
  readonly about: string;
  readonly session: string;
  readonly frames: readonly Frame[];
  readonly states: Readonly<Record<string, Snapshot>>;
};

const folder = new URL("../../../protocol/cases/", import.meta.url);

/** Files of protocol/cases that are not conversations. */
const others = ["sse.json", "cursor.json"];

export function readCase(file: string): unknown {
  return parseJson(readFileSync(new URL(file, folder), "utf8"));
}

export function conversations(): Conversation[] {
  const files = readdirSync(folder).filter((file) => file.endsWith(".json") && !others.includes(file));
  if (files.length === 0) throw new Error("there are no cases");
  return files.map((file) => readCase(file) as Conversation);
}
