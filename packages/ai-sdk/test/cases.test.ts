import { readFileSync } from "node:fs";
import { empty, foldAll, type Message, type SessionView } from "@holdfast/client";
import type { UIMessage } from "ai";
import { describe, expect, it } from "vitest";
import { type Conversation, conversations } from "../../client/test/cases.ts";
import { Answer, historyOf } from "../src/answer.ts";
import type { Chunk, Part, Profile } from "../src/chunk.ts";
import { Large } from "../src/large.ts";
import { read, seen } from "./read.ts";

const blobUrl = (_: string, hash: string) => `/blobs/${hash.slice(0, 8)}`;
const large = new Large({ blobUrl } as never, "ses_1");

/** Every view of a conversation, as a page is shown them. */
function viewsOf({ session, frames }: Conversation): SessionView[] {
  let state = empty(session);
  return frames.map((frame) => {
    state = foldAll(state, [frame]);
    const { shown } = state;
    return { ...shown, run: shown.runs.find(({ id }) => id === shown.session.run) } as unknown as SessionView;
  });
}

/** What a page has of an answer that looks at these views, and comes again whenever it has to. */
async function follow(
  views: readonly SessionView[],
  { id, run = "" }: Message,
  profile: Profile,
): Promise<UIMessage | undefined> {
  let shown: UIMessage | undefined;
  let answer = new Answer({ run, message: id, profile, large });
  let told: Chunk[] = [];
  for (const view of views) {
    if (answer.isBroken) {
      told = [];
      shown = undefined;
      answer = new Answer({ run, message: id, profile, large });
    }
    if (answer.isOver && told.length > 0) {
      shown = await read(told, shown);
      told = [];
    }
    const parts = (shown?.parts ?? []) as readonly Part[];
    const isDecided = (part: Part) =>
      "approval" in part && isWaiting(part) && !view.approvals.some(({ id }) => id === part.approval?.id);
    if (answer.isOver && parts.some(isDecided)) {
      answer = new Answer({ run, message: id, profile, large, behind: parts });
    }
    told.push(...answer.next(view));
  }
  expect(answer.isOver).toBe(true);
  return told.length > 0 ? read(told, shown) : shown;
}

function isWaiting(part: Part): boolean {
  return "state" in part && part.state === "approval-requested";
}

function answers(views: readonly SessionView[]): readonly Message[] {
  return views.at(-1)?.messages.filter(({ role, run }) => role === "assistant" && run) ?? [];
}

/** What the server's adapter tells of a conversation. */
function server(name: string): { streams: Map<string, { end: string; chunks: Chunk[] }>; history: unknown } {
  const file = new URL(`../../../server/aisdk/testdata/${name}.txt`, import.meta.url);
  const [told = "", history = ""] = readFileSync(file, "utf8").split("history:\n");
  const streams = told.split("\n\n").flatMap((stream) => {
    const [head = "", ...lines] = stream.trim().split("\n");
    const [, message = "", end = ""] = /^(\S+) of \S+: ?(\S*)$/.exec(head) ?? [];
    return message
      ? [[message, { end, chunks: lines.map((line) => JSON.parse(line) as Chunk) }] as const]
      : [];
  });
  return { streams: new Map(streams), history: json(JSON.parse(history)) };
}

/** A view does not say how a model's last answer ended. */
function comparable(chunk: Chunk): unknown {
  return json(chunk.type === "finish" ? { ...chunk, finishReason: "" } : chunk);
}

function json(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

describe.each(conversations())("$name", (conversation) => {
  const views = viewsOf(conversation);

  it("is told in the words of the server's adapter", () => {
    const golden = server(conversation.name);
    expect(json(historyOf(views.at(-1) as SessionView, "safe", large))).toEqual(golden.history);
    for (const [id, { end, chunks }] of golden.streams) {
      const run = views.flatMap(({ messages }) => messages).find((message) => message.id === id)?.run;
      if (!run) continue; // a background run answers beside the branch that a page shows
      const answer = new Answer({ run, message: id, profile: "safe", large });
      const told = views.flatMap((view) => answer.next(view));
      expect(told.map(comparable)).toEqual(chunks.map(comparable));
      expect(answer.isBroken ? "superseded" : answer.isOver ? "finished" : "").toBe(end);
    }
  });

  it.each(["safe", "v5", "v7"] as const)(
    "is the same from whichever view on it is told (%s)",
    async (profile) => {
      const history = historyOf(views.at(-1) as SessionView, profile, large);
      for (const message of answers(views)) {
        const kept = history?.find(({ id }) => id === message.id);
        for (let first = 0; first < views.length; first++) {
          const shown = await follow(views.slice(first), message, profile);
          expect(shown?.id).toBe(message.id);
          expect(shown?.metadata).toMatchObject({ runId: message.run, status: kept?.metadata?.status });
          expect(seen(shown?.parts)).toEqual(seen(kept?.parts));
        }
      }
    },
  );
});
