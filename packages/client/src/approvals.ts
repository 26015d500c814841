import type { Api } from "./api.ts";
import { Commands } from "./commands.ts";
import type { Connection } from "./connection.ts";
import type { Environment } from "./environment.ts";
import { Listeners } from "./listeners.ts";
import { failureOf } from "./problem.ts";
import { type Wake, waitAfter } from "./retry.ts";
import { same } from "./state.ts";
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
  /** Something changed since they were asked for. */
  #stale = false;
  #askedAt = 0;
  #skips = 0;
  #failures = 0;
  #stopWait: (() => void) | undefined;
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
    const ask = async () => {
      const answer = await this.#api.decide(approval, { decision, ...options });
      this.#items = this.#items.filter(({ id }) => id !== approval);
      return answer;
    };
    try {
      return (await this.#commands.send({ kind: "decide", approval, decision }, ask)).approval;
    } finally {
      if (this.#listeners.any) this.#refresh();
      this.#publish();
    }
  };

  /** Stops following. Who subscribes next begins anew. */
  close(): void {
    this.#stopList();
    this.#stopWait?.();
    this.#stopWait = undefined;
    this.#load?.abort();
    this.#load = undefined;
  }

  /** They may have changed: asks for them, soon. */
  #refresh(): void {
    this.#stale = true;
    if (this.#stopWait) return;
    const wait = this.#askedAt + pause - this.#env.now();
    if (wait <= 0) this.#ask();
    else this.#wait(wait);
  }

  #wait(ms: number): void {
    const end = () => {
      stop();
      this.#stopWait = undefined;
      this.#ask();
    };
    const stops = [this.#env.after(ms, end), this.#wake(end)];
    const stop = () => {
      for (const one of stops) one();
    };
    this.#stopWait = stop;
  }

  #ask(): void {
    // What is under way was read before the change, or hangs.
    if (this.#load && this.#skips++ >= skipsMost) return;
    this.#load?.abort();
    this.#load = new AbortController();
    this.#stale = false;
    this.#askedAt = this.#env.now();
    void this.#fetch(this.#load);
  }

  async #fetch(load: AbortController): Promise<void> {
    try {
      const page = await this.#api.approvals({ status: "pending", limit: pageSize, signal: load.signal });
      if (load.signal.aborted) return;
      this.#failures = 0;
      this.#failure = undefined;
      // An answer that was overtaken by a change would take back what is shown already.
      if (!this.#stale || !this.#loaded || this.#skips++ >= skipsMost) {
        this.#skips = 0;
        const known = new Map(this.#items.map((item) => [item.id, item]));
        this.#items = same(page.items.map((item) => known.get(item.id) ?? item).reverse(), this.#items);
        this.#loaded = true;
      }
    } catch (error) {
      if (load.signal.aborted) return;
      this.#failure = failureOf(error);
      this.#stale = true;
      this.#stopWait?.();
      this.#wait(waitAfter(error, ++this.#failures, this.#env));
    }
    this.#load = undefined;
    if (this.#stale) this.#refresh();
    this.#publish();
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
