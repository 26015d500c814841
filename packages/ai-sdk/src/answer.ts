/**
 * One answer, from what a session shows to what a client is told.
 *
 * @module
 */

import { type Failure, isTerminal, type Message, type Run, type SessionView } from "@holdfast/client";
import type { Chunk, Metadata, Part, Profile } from "./chunk.ts";
import type { Large } from "./large.ts";
import { answerParts, type Piece, piecesOf, questionParts, type Reading } from "./pieces.ts";
import { Teller } from "./teller.ts";

/** Which answer, and to whom. */
export type AnswerOptions = {
  readonly run: string;
  readonly message: string;
  readonly profile: Profile;
  readonly large: Large;
  /** The parts that the client has, if it goes on behind them. */
  readonly behind?: readonly Part[] | undefined;
};

/** Follows one answer. Ask it for more with each view of its session. */
export class Answer {
  readonly #options: AnswerOptions;
  readonly #teller: Teller;
  #behind: readonly Part[] | undefined;
  #hasBegun = false;
  #attempt: readonly [step: number, attempt: number] = [0, 0];
  #isOver = false;

  constructor(options: AnswerOptions) {
    this.#options = options;
    this.#behind = options.behind;
    this.#teller = new Teller(options.profile === "v7");
  }

  /** Nothing more comes, for now if it waits for a person. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** The client was told what is not so any more: it has to begin anew. */
  get isBroken(): boolean {
    return this.#teller.isBroken;
  }

  /** What is new. */
  next(view: SessionView): Chunk[] {
    const run = view.runs.find(({ id }) => id === this.#options.run);
    const message = view.messages.find(({ id }) => id === this.#options.message);
    if (!this.#isOver && !this.isBroken) {
      if (message) this.#tell(message, run, view);
      else if (run && isTerminal(run)) this.#neverBegan(run);
    }
    return this.#teller.take();
  }

  #tell(message: Message, run: Run | undefined, view: SessionView): void {
    const reading = readingOf(view, this.#options.profile, this.#options.large);
    const pieces = piecesOf(message, reading);
    if (!pieces) return; // a large text is on its way
    const teller = this.#teller;
    if (this.#behind) teller.skip(this.#behind, pieces);
    this.#behind = undefined;
    if (!this.#hasBegun) {
      const messageMetadata: Metadata = { runId: this.#options.run, status: "running" };
      teller.say({ type: "start", messageId: message.id, messageMetadata });
      this.#hasBegun = true;
    }
    if (run) this.#noteAttempt(run);
    if (teller.isBroken) return;
    teller.tell(pieces, message.status !== "streaming");
    if (teller.isBroken) return;
    if (message.status !== "streaming") this.#conclude(message, run);
    else if (run && waitsForPerson(run, view, this.#options.profile) && !goesOn(run, pieces))
      this.#pause(pieces);
  }

  #noteAttempt({ currentStep, attempt = 0 }: Run): void {
    const [step, before] = this.#attempt;
    if (currentStep === step && attempt !== before) this.#teller.supersede(step);
    this.#attempt = [currentStep, attempt];
  }

  #pause(pieces: readonly Piece[]): void {
    const teller = this.#teller;
    teller.ask(pieces);
    teller.finishStep();
    const messageMetadata: Metadata = { runId: this.#options.run, status: "waiting" };
    teller.say({ type: "finish", finishReason: "tool-calls", messageMetadata });
    this.#isOver = true;
  }

  /** How it ended is known once the run has, or has gone on in another message. */
  #conclude(message: Message, run: Run | undefined): void {
    if (run && run.message === message.id && !isTerminal(run)) return;
    const teller = this.#teller;
    const messageMetadata = metadataOf(message, run) ?? { runId: this.#options.run, status: "completed" };
    teller.end();
    switch (messageMetadata.status) {
      case "cancelled":
        teller.say({ type: "abort" });
        teller.say({ type: "finish", finishReason: "other", messageMetadata });
        break;
      case "failed":
        teller.say({ type: "message-metadata", messageMetadata });
        teller.say({ type: "error", errorText: textOf(messageMetadata.error) });
        teller.say({ type: "finish", finishReason: "error", messageMetadata });
        break;
      default:
        teller.say({ type: "finish", finishReason: "stop", messageMetadata });
    }
    this.#isOver = true;
  }

  /** It ended in the queue: there is no message, and there must be none on the page. */
  #neverBegan(run: Run): void {
    const failed = run.status === "failed";
    this.#teller.say(failed ? { type: "error", errorText: textOf(run.error) } : { type: "abort" });
    this.#teller.say({ type: "finish", finishReason: failed ? "error" : "other" });
    this.#isOver = true;
  }
}

/** A message of a history. */
export type Told = {
  readonly id: string;
  readonly role: "user" | "assistant";
  readonly parts: readonly Part[];
  readonly metadata?: Metadata;
};

/**
 * The messages of a view. An answer that is being written is left out: its
 * stream tells it whole. Undefined: a large text is on its way.
 */
export function historyOf(view: SessionView, profile: Profile, large: Large): Told[] | undefined {
  const reading = readingOf(view, profile, large);
  const told: Told[] = [];
  for (const message of view.messages) {
    const { id, role, status } = message;
    if (role === "user") {
      told.push({ id: shownId(id), role, parts: questionParts(message, large) });
      continue;
    }
    const run = view.runs.find((one) => one.id === message.run);
    const isWaiting = run?.message === id && waitsForPerson(run, view, profile);
    if (status === "streaming" && !isWaiting) continue;
    const pieces = piecesOf(message, reading);
    if (!pieces) return undefined;
    const metadata = metadataOf(message, run);
    told.push({
      id,
      role,
      parts: answerParts(finished(pieces), status !== "streaming"),
      ...(metadata && { metadata }),
    });
  }
  return told;
}

/** The pieces without what is still being written. */
function finished(pieces: readonly Piece[]): Piece[] {
  return pieces.flatMap((piece) => {
    const { part } = piece;
    if (!("state" in part)) return [piece];
    if (part.state === "input-streaming") return [];
    return part.state === "streaming" ? [{ ...piece, part: { ...part, state: "done" } } as Piece] : [piece];
  });
}

/** Whether a run goes on only when somebody decides one of its approvals: to a page its answer is over for now. */
export function waitsForPerson(run: Run, view: SessionView, profile: Profile): boolean {
  const { status, waitingReason: reason } = run;
  if (profile === "v5" || status !== "waiting") return false;
  return (
    (reason === "approval" || reason === "tool_outcome") && view.approvals.some((one) => one.run === run.id)
  );
}

/** Whether a decision was made that the run has not heard of yet. */
function goesOn(run: Run, pieces: readonly Piece[]): boolean {
  const isDecided = ({ part }: Piece) => "state" in part && part.state === "approval-responded";
  return run.waitingReason === "approval" && pieces.some(isDecided);
}

/** The id that a page knows a message by: an edited message keeps it there, and a session never uses one twice. */
export function shownId(id: string): string {
  return id.replace(/^(.+)--edit-\d+$/, "$1");
}

/** The id of the next edit of a message that a page knows by this id. */
export function editedId(id: string, known: readonly Message[]): string {
  const edits = known.filter((message) => shownId(message.id) === shownId(id));
  const numbers = edits.flatMap(({ id, siblings = [] }) => [id, ...siblings]).map((each) => editOf(each));
  return `${shownId(id)}--edit-${Math.max(0, ...numbers) + 1}`;
}

function editOf(id: string): number {
  return Number(/--edit-(\d+)$/.exec(id)?.[1] ?? 0);
}

function readingOf(view: SessionView, profile: Profile, large: Large): Reading {
  return { profile, large, pending: new Set(view.approvals.map(({ id }) => id)) };
}

function metadataOf(message: Message, run: Run | undefined): Metadata | undefined {
  if (!run) return undefined;
  const { id, status, error } = run;
  if (run.message !== message.id) return { runId: id, status: "completed" };
  if (!isTerminal(run)) return { runId: id, status };
  const { inputTokens, outputTokens, reasoningTokens, cachedTokens } = run.usage;
  const usage = {
    inputTokens,
    outputTokens,
    totalTokens: inputTokens + outputTokens,
    ...(reasoningTokens && { reasoningTokens }),
    ...(cachedTokens && { cachedInputTokens: cachedTokens }),
  };
  return { runId: id, status, usage, ...(error && { error }) };
}

/** What is wrong, and never nothing. */
function textOf(failure: Failure | undefined): string {
  return failure?.message || failure?.code || "It failed.";
}
