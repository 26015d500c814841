/**
 * The commands of a session, and what the page shows of them before they are
 * facts.
 *
 * @module
 */

import type { Parts } from "./parts.ts";
import { persist } from "./retry.ts";
import type { Decision, Snapshot } from "./wire.ts";

/** What the person did, from the moment on until its effect is in the log. */
export type Gesture =
  | { readonly kind: "stop"; readonly run: string }
  | { readonly kind: "retry"; readonly run: string }
  | { readonly kind: "resolve"; readonly run: string; readonly call: string }
  | { readonly kind: "decide"; readonly approval: string; readonly decision: Decision }
  | { readonly kind: "editInbox" | "removeInbox" | "switch"; readonly message: string }
  | { readonly kind: "rename"; readonly title: string }
  | { readonly kind: "delete" };

/** An answer to a command: its effect is in the log at `seq`. */
type Answer = { readonly seq: number } | undefined;

/** `isDone` is there once it was answered. */
type Entry = { readonly gesture: Gesture; isDone: ((shown: Snapshot) => boolean) | undefined };

/** For how long a command is tried, in milliseconds. */
const patience = 60_000;

const none: readonly Gesture[] = [];

/** The gestures of one session. */
export class Commands {
  readonly #parts: Pick<Parts, "env" | "connection">;
  readonly #changed: () => void;
  #open: readonly Entry[] = [];
  #gestures = none;

  /** `changed` is called at once when a gesture begins, and when one ends. */
  constructor(parts: Pick<Parts, "env" | "connection">, changed: () => void) {
    this.#parts = parts;
    this.#changed = changed;
  }

  /** The gestures that are no facts yet. The array is replaced, never changed. */
  get gestures(): readonly Gesture[] {
    return this.#gestures;
  }

  /**
   * Sends a command until it is answered, and shows its gesture meanwhile, and
   * then until the log has its effect: where the answer says, or when `isDone`.
   * Refusals, and a server that cannot be reached for a minute, reject.
   */
  async send<T extends Answer>(
    gesture: Gesture,
    ask: () => Promise<T>,
    isDone: (shown: Snapshot) => boolean = () => true,
  ): Promise<T> {
    const entry: Entry = { gesture, isDone: undefined };
    this.#set([...this.#open, entry]);
    try {
      const { env, connection } = this.#parts;
      const answer = await persist(ask, { env, wake: connection.onReturn, patience });
      entry.isDone = answer ? (shown) => shown.seq >= answer.seq : isDone;
      this.#changed();
      return answer;
    } catch (error) {
      this.#set(this.#open.filter((other) => other !== entry));
      throw error;
    }
  }

  /** Drops the gestures whose effect is shown. Nothing shown, nothing follows: those that were answered. */
  settle(shown: Snapshot | undefined): void {
    const left = this.#open.filter(({ isDone }) => !isDone || (shown && !isDone(shown)));
    if (left.length === this.#open.length) return;
    this.#open = left;
    this.#gestures = left.map(({ gesture }) => gesture);
  }

  #set(open: readonly Entry[]): void {
    this.#open = open;
    this.#gestures = open.map(({ gesture }) => gesture);
    this.#changed();
  }
}
