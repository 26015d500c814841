import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Frame } from "@holdfast/client";
import { expect, test } from "vitest";
import { type Moment, timelineOf } from "../src/inspector/timeline.ts";

const cases = join(import.meta.dirname, "../../protocol/cases");

/** What the timeline of a conversation's first run says, in short. */
function told(name: string): readonly string[] {
  const { frames } = JSON.parse(readFileSync(join(cases, `${name}.json`), "utf8")) as { frames: Frame[] };
  const run = frames.find((frame) => frame.type === "run.queued") as { run?: string } | undefined;
  return timelineOf(frames, run?.run ?? "").map(line);
}

const line = ({ title, words, failure, said }: Moment): string =>
  [title, words, failure?.code, said && "and had said something"].filter((part) => part).join(": ");

test("an attempt that broke off is told with its reason and what it had said", () => {
  const lines = told("retry");
  const failed = lines.findIndex((text) => text.endsWith("and had said something"));
  expect(lines[failed]).toMatch(/^Step 1: Asks the model: \w+: and had said something$/);
  expect(lines.slice(failed + 1).join("\n")).toContain("attempt 2: Answered");
  expect(lines.at(-1)).toMatch(/^Completed: /);
});

test("an attempt that a crash ended is told without a reason of its own", () => {
  const lines = told("crash");
  expect(lines.join("\n")).toMatch(/Step \d: Broke off/);
  expect(lines.join("\n")).toContain("The worker was lost: The run goes on with another worker");
});

test("an approval is told with who decided it", () => {
  expect(told("approval-deny").join("\n")).toMatch(/Approval of .*: Denied by/);
  expect(told("approval-approve").join("\n")).toMatch(/Approval of .*: Approved by/);
  expect(told("approval-expired").join("\n")).toMatch(/Approval of .*: Expired/);
});

test("a call whose outcome was unknown is told with the person's word", () => {
  expect(told("unknown-outcome").join("\n")).toMatch(/Done, says|it happened|it did not happen/);
});

test("what others work on and what the run waits for is told", () => {
  const lines = told("deferred").join("\n");
  expect(lines).toMatch(/^Waits for a (service|subagent)/m);
  expect(lines).not.toContain("Waits: ");
});

test("a stopped run is told with who stopped it, and only its own events are", () => {
  const lines = told("cancel-text");
  expect(lines.at(-1)).toMatch(/^Stopped: by /);
  expect(timelineOf([], "run_1")).toEqual([]);
  const { frames } = JSON.parse(readFileSync(join(cases, "cancel-text.json"), "utf8")) as { frames: Frame[] };
  expect(timelineOf(frames, "another run")).toEqual([]);
});
