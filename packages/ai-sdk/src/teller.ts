/**
 * The telling of an answer: of each state of it, the chunks that a client
 * lacks.
 *
 * @module
 */

import { stringifyJson } from "@holdfast/client";
import type { CallPart, Chunk, DataPart, FilePart, Part, SourcePart, TextPart } from "./chunk.ts";
import { isCall, type Piece } from "./pieces.ts";

/** A text that was told. At most one is open. */
type ToldText = { readonly kind: TextPart["type"]; id: string; text: string; readonly step: number };

/** A call that was told. */
type ToldCall = {
  readonly name: string;
  readonly step: number;
  raw: string;
  input: string | undefined;
  isMade: boolean;
  isCalled: boolean;
  isAsked: boolean;
  isAnswered: boolean;
  isSettled: boolean;
};

type OtherPart = FilePart | SourcePart | DataPart;

/** Tells one answer to one client. */
export class Teller {
  /** Told something that is not so any more, and a client cannot take it back. */
  isBroken = false;
  readonly #canTakeBack: boolean;
  readonly #texts = new Map<string, ToldText>();
  readonly #calls = new Map<string, ToldCall>();
  /** What stands beside the text and the calls, as JSON. */
  readonly #others = new Map<string, string>();
  /** Steps whose answer was whole. */
  readonly #compared = new Set<number>();
  #open: ToldText | undefined;
  /** The last step of which something was told. */
  #step = 0;
  #isInStep = false;
  #chunks: Chunk[] = [];

  /** `canTakeBack`: the client knows `reset-step`. */
  constructor(canTakeBack: boolean) {
    this.#canTakeBack = canTakeBack;
  }

  /** What was told since the last time. */
  take(): Chunk[] {
    const chunks = this.#chunks;
    this.#chunks = [];
    return chunks;
  }

  say(chunk: Chunk): void {
    this.#chunks.push(chunk);
  }

  /** Tells what is new in an answer. `isOver`: nothing is added to it any more. */
  tell(pieces: readonly Piece[], isOver: boolean): void {
    this.#compare(pieces, isOver);
    if (this.isBroken) return;
    for (const piece of pieces) {
      const { part } = piece;
      if (isCall(part)) this.#tellCall(piece, part);
      else if (part.type === "text" || part.type === "reasoning") this.#tellText(piece, part as TextPart);
      else this.#tellOther(piece, part as OtherPart);
    }
  }

  /** The client has these parts of the pieces: it goes on behind them. */
  skip(parts: readonly Part[], pieces: readonly Piece[]): void {
    let at = 0;
    for (const part of parts) {
      const index = pieces.findIndex((piece, i) => i >= at && isSame(part, piece.part));
      const piece = pieces[index];
      if (!piece) continue;
      at = index + 1;
      this.#step = piece.step;
      if (isCall(part)) this.#calls.set(part.toolCallId, had(part, piece.step));
      else if (part.type === "text" || part.type === "reasoning") {
        const { type: kind, text } = part as TextPart;
        this.#texts.set(piece.id, { kind, id: piece.id, text, step: piece.step });
      } else this.#others.set(piece.id, stringifyJson(piece.part));
    }
  }

  /** Another attempt at a step begins: what the one before said is not in the answer. */
  supersede(step: number): void {
    const texts = [...this.#texts].filter(([, told]) => told.step === step);
    const calls = [...this.#calls].filter(([, told]) => told.step === step && told.input === undefined);
    if (texts.length + calls.length === 0) return;
    if (!this.#canTakeBack) {
      this.isBroken = true;
      return;
    }
    this.#silence();
    this.say({ type: "reset-step" });
    this.#compared.delete(step);
    for (const [id] of texts) this.#texts.delete(id);
    for (const [id] of calls) this.#calls.delete(id);
  }

  /** Asks what the answer waits for. */
  ask(pieces: readonly Piece[]): void {
    this.#silence();
    for (const { part } of pieces) {
      if (isCall(part) && part.state === "approval-requested") this.#ask(part);
    }
  }

  finishStep(): void {
    this.#silence();
    if (this.#isInStep) this.say({ type: "finish-step" });
    this.#isInStep = false;
  }

  /** Ends an answer: what was never finished is cut off, and no call is the last word. */
  end(): void {
    this.#silence();
    for (const [toolCallId, told] of this.#calls) {
      if (told.isSettled) continue;
      told.isSettled = true;
      this.say({ type: "tool-output-error", toolCallId, errorText: "This call was cut off.", ...made(told) });
    }
    this.finishStep();
    if (![...this.#calls.values()].some(({ step, isCalled }) => isCalled && step === this.#step)) return;
    this.say({ type: "start-step" });
    this.say({ type: "finish-step" });
  }

  /** Takes back what was told of a step, once, if it is not in its whole answer. */
  #compare(pieces: readonly Piece[], isOver: boolean): void {
    const open = new Set([...this.#texts.values()].map(({ step }) => step));
    for (const step of this.#compared) open.delete(step);
    for (const step of open) {
      const answer = pieces.filter((piece) => piece.step === step);
      if (!isOver && (answer.length === 0 || answer.some(({ isWhole }) => !isWhole))) continue;
      const isThere = ([id, told]: [string, ToldText]) => {
        const part = answer.find((piece) => piece.id === id)?.part;
        return told.step !== step || (part && "text" in part && part.text.startsWith(told.text));
      };
      if (![...this.#texts].every(isThere)) this.supersede(step);
      this.#compared.add(step);
    }
  }

  #tellText({ id, step, isWhole }: Piece, { type: kind, text }: TextPart): void {
    const told = this.#texts.get(id) ?? this.#begin(id, kind, step, "");
    if (!text.startsWith(told.text)) return; // it grows again
    const delta = text.slice(told.text.length);
    if (delta) {
      // One that goes on behind another one is a part of its own: a client cannot go back.
      const open = told === this.#open ? told : this.#begin(`${told.id}b`, kind, step, told.text, id);
      this.#content(step, { type: `${kind}-delta`, id: open.id, delta });
      open.text = text;
    }
    if (isWhole && this.#texts.get(id) === this.#open) this.#silence();
  }

  #begin(id: string, kind: TextPart["type"], step: number, text: string, key: string = id): ToldText {
    this.#silence();
    const told = { kind, id, text, step };
    this.#texts.set(key, told);
    this.#content(step, { type: `${kind}-start`, id });
    this.#open = told;
    return told;
  }

  #tellCall({ step, beside = [] }: Piece, part: CallPart): void {
    const { toolCallId, state, input, rawInput = "", providerExecuted } = part;
    const told = this.#called(part, step);
    if (state === "input-streaming") {
      const delta = String(rawInput).slice(told.raw.length);
      if (!delta) return;
      told.raw += delta;
      this.#content(step, { type: "tool-input-delta", toolCallId, inputTextDelta: delta });
      return;
    }
    if (told.isSettled) return;
    if (!told.isCalled) this.#silence();
    told.isCalled = true;
    const given = input === undefined ? undefined : stringifyJson(input);
    if (input !== undefined && given !== told.input) {
      told.input = given;
      told.isMade = providerExecuted ?? false;
      this.say({ type: "tool-input-available", toolCallId, toolName: told.name, input, ...made(told) });
    }
    for (const data of beside) {
      const isNews = this.#isNews(`${data.type} ${data.id}`, data);
      if (isNews && !(data.type === "data-tool-progress" && isSettled(part)))
        this.say({ ...data, transient: true });
    }
    this.#tellOutcome(part, told);
  }

  #tellOutcome(part: CallPart, told: ToldCall): void {
    const { toolCallId, state, output = null, errorText = "", rawInput } = part;
    if (part.approval?.approved && told.isAsked) this.#answer(part.approval, told);
    if (!isSettled(part)) return;
    told.isSettled = true;
    if (state === "output-available") {
      this.say({ type: "tool-output-available", toolCallId, output, ...made(told) });
    } else if (state === "output-denied") {
      this.#ask(part);
      this.say({ type: "tool-output-denied", toolCallId });
    } else if (told.input === undefined && rawInput !== undefined) {
      this.say({ type: "tool-input-error", toolCallId, toolName: told.name, input: rawInput, errorText });
    } else {
      this.say({ type: "tool-output-error", toolCallId, errorText, ...made(told) });
    }
  }

  #ask({ toolCallId, approval }: CallPart): void {
    const told = this.#calls.get(toolCallId);
    if (!told || !approval || told.isAsked) return;
    told.isAsked = true;
    this.say({ type: "tool-approval-request", approvalId: approval.id, toolCallId });
  }

  /** Tells what somebody said to a question: newer clients show it. */
  #answer({ id, approved = true }: NonNullable<CallPart["approval"]>, told: ToldCall): void {
    if (!this.#canTakeBack || told.isAnswered) return;
    told.isAnswered = true;
    this.say({ type: "tool-approval-response", approvalId: id, approved });
  }

  #tellOther({ id, step, isResult }: Piece, part: OtherPart): void {
    const isNew = !this.#others.has(id);
    if (!this.#isNews(id, part)) return;
    this.#silence();
    if (isNew && !isResult) this.#content(step, part);
    else this.say(part);
  }

  #isNews(key: string, part: OtherPart): boolean {
    const said = stringifyJson(part);
    const isNews = this.#others.get(key) !== said;
    this.#others.set(key, said);
    return isNews;
  }

  /** The call, which is told of once. */
  #called(part: CallPart, step: number): ToldCall {
    const { toolCallId } = part;
    const known = this.#calls.get(toolCallId);
    if (known) return known;
    const told = had({ ...part, state: "input-streaming" }, step);
    if (this.#open?.kind === "reasoning") this.#silence(); // a text may go on behind a call
    this.#content(step, { type: "tool-input-start", toolCallId, toolName: told.name });
    this.#calls.set(toolCallId, told);
    return told;
  }

  /** Tells something that shows: it is part of a step. */
  #content(step: number, chunk: Chunk): void {
    if (step !== this.#step) this.finishStep();
    if (!this.#isInStep) this.say({ type: "start-step" });
    this.#isInStep = true;
    this.#step = step;
    this.say(chunk);
  }

  #silence(): void {
    if (this.#open) this.say({ type: `${this.#open.kind}-end`, id: this.#open.id });
    this.#open = undefined;
  }
}

/** Made here: no page has to make it, or to send its result. So is what never was a call. */
function made({ isMade, input }: ToldCall): { providerExecuted?: true } {
  return isMade || input === undefined ? { providerExecuted: true } : {};
}

function isSettled({ state }: CallPart): boolean {
  return state.startsWith("output-");
}

/** A call as a client has it that shows this part. */
function had(part: CallPart, step: number): ToldCall {
  const { type, state, input, providerExecuted } = part;
  const isCalled = state !== "input-streaming";
  return {
    name: type.slice("tool-".length),
    step,
    raw: "",
    input: isCalled && input !== undefined ? stringifyJson(input) : undefined,
    isMade: providerExecuted ?? false,
    isCalled,
    isAsked: state.startsWith("approval-"),
    isAnswered: state === "approval-responded",
    isSettled: isSettled(part),
  };
}

function isSame(part: Part, other: Part): boolean {
  if (part.type !== other.type) return false;
  if (isCall(part) && isCall(other)) return part.toolCallId === other.toolCallId;
  if ("text" in part && "text" in other) return other.text.startsWith(part.text);
  return true;
}
