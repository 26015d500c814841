import type { Api } from "./api.ts";
import { Commands } from "./commands.ts";
import type { Connection } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { Listeners } from "./listeners.ts";
import { failureOf } from "./problem.ts";
import { never, sleep, type Wake, waitAfter } from "./retry.ts";
import { settled } from "./view.ts";
import type { Approval, Decision, Failure, Json } from "./wire.ts";

/** The approvals that wait for a decision, over all sessions. It is replaced, never changed. */
export type ApprovalsView = {
  /** Oldest first: who has waited longest comes first. */
  readonly items: readonly Approval[];
  /** Whether they were ever loaded. */
  readonly loaded: boolean;
  /** Why they may be old. */
  readonly failure: Failure | undefined;
  /** Ids of those that were decided here, until that is a fact. */
  readonly deciding: readonly string[];
};

/** The most that a list gives at once. */
const pageSize = 200;
/** The least time between two requests, in milliseconds: a busy session tells of itself more often than anybody can look. */
const pause = 200;
/** Answers in a row that may be left out because something changed meanwhile. */
const skipsMost = 4;

/** The inbox of approvals. It is asked for anew whenever the list of sessions says that one may have changed. */
export class Approvals {
  readonly #api: Api;
  readonly #env: Environment;
  readonly #wake: Wake;
  readonly #commands: Commands;
  readonly #listeners: Listeners;
  #items: readonly Approval[] = [];
  #loaded = false;
  #failure: Failure | undefined;
  #load: AbortController | undefined;
  #stale = false;
  #skips = 0;
  #stopAnew: (() => void) | undefined;
  #stopList = () => {};
  #view: ApprovalsView = { items: [], loaded: false, failure: undefined, deciding: [] };

  constructor(api: Api, env: Environment, wake: Wake, connection: Connection) {
    this.#api = api;
    this.#env = env;
    this.#wake = wake;
    this.#commands = new Commands(env, wake, () => this.#publish());
    this.#listeners = new Listeners(
      () => {
        this.#stopList = connection.followList({
          listed: () => this.#refresh(),
          rows: (upsert, removed) => {
            // Only the row of a session tells that something was asked, or decided.
            const has = new Set(this.#items.map(({ session }) => session));
            if (
              upsert.some((row) => row.approvals > 0 || has.has(row.id)) ||
              removed.some((id) => has.has(id))
            ) {
              this.#refresh();
            }
          },
        });
        this.#refresh();
      },
      () => {
        this.close();
      },
    );
  }

  /** Calls back after each new view, until the returned function is called. */
  subscribe = (listener: () => void): (() => void) => this.#listeners.add(listener);

  /** The view. */
  getSnapshot = (): ApprovalsView => this.#view;

  /** Decides. A `Problem` with `approval_decided` has the approval as somebody else decided it. */
  decide = async (
    approval: string,
    decision: Decision,
    options: { note?: string; arguments?: Json } = {},
  ): Promise<Approval> => {
    const ask = () => this.#api.decide(approval, { decision, ...options });
    try {
      const { approval: decided } = await this.#commands.send({ kind: "decide", approval, decision }, ask);
      this.#items = this.#items.filter(({ id }) => id !== approval);
      return decided;
    } finally {
      this.#refresh();
      this.#publish();
    }
  };

  /** Stops following. Who subscribes next begins anew. */
  close(): void {
    this.#stopList();
    this.#stopAnew?.();
    this.#stopAnew = undefined;
    this.#load?.abort();
    this.#load = undefined;
  }

  /** They may have changed: asks for them, if anybody watches. */
  #refresh(): void {
    if (!this.#listeners.any) return;
    this.#stale = true;
    if (!this.#load) {
      void this.#fetch();
      return;
    }
    // What is under way may have been read before the change, and may hang.
    this.#stopAnew ??= this.#env.after(pause, () => {
      this.#stopAnew = undefined;
      if (!this.#stale || this.#skips++ >= skipsMost) return;
      this.#load?.abort();
      void this.#fetch();
    });
  }

  async #fetch(): Promise<void> {
    const load = new AbortController();
    this.#load = load;
    for (let failures = 1; this.#stale; ) {
      this.#stale = false;
      try {
        const page = await this.#api.approvals({ status: "pending", limit: pageSize, signal: load.signal });
        if (load.signal.aborted) return;
        failures = 1;
        this.#failure = undefined;
        // An answer that was overtaken by a change would take back what is shown already.
        if (!this.#stale || this.#skips++ >= skipsMost) {
          this.#skips = 0;
          this.#items = [...page.items].reverse();
          this.#loaded = true;
        }
        this.#publish();
        if (this.#stale) await sleep(pause, this.#env, never);
      } catch (error) {
        if (load.signal.aborted) return;
        this.#failure = failureOf(error);
        this.#stale = true;
        this.#publish();
        await sleep(waitAfter(error, failures++, this.#env), this.#env, this.#wake);
      }
      if (load.signal.aborted) return;
    }
    this.#load = undefined;
  }

  #publish(): void {
    // An answered decision is a fact, and the list is asked for again.
    this.#commands.settle(undefined);
    const deciding = this.#commands.gestures.flatMap((g) => (g.kind === "decide" ? [g.approval] : []));
    const kept = deciding.join() === this.#view.deciding.join() ? this.#view.deciding : deciding;
    const next = { items: this.#items, loaded: this.#loaded, failure: this.#failure, deciding: kept };
    const view = settled(this.#view, next);
    if (view === this.#view) return;
    this.#view = view;
    this.#listeners.call();
  }
}
