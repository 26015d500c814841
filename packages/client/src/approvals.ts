import type { Api } from "./api.ts";
import { Commands } from "./commands.ts";
import type { Environment } from "./environment.ts";
import { Listeners } from "./listeners.ts";
import { failureOf } from "./problem.ts";
import { sleep, type Wake, waitAfter } from "./retry.ts";
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
  #stopList = () => {};
  #view: ApprovalsView = { items: [], loaded: false, failure: undefined, deciding: [] };

  /** `watchList` has the list of sessions followed until the returned function is called. */
  constructor(api: Api, env: Environment, wake: Wake, watchList: () => () => void) {
    this.#api = api;
    this.#env = env;
    this.#wake = wake;
    this.#commands = new Commands(env, wake, () => this.#publish());
    this.#listeners = new Listeners(
      () => {
        this.#stopList = watchList();
        this.refresh();
      },
      () => {
        this.#stopList();
        this.#load?.abort();
        this.#load = undefined;
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
      this.refresh();
      this.#publish();
    }
  };

  /** They may have changed: asks for them, if anybody watches. */
  refresh(): void {
    if (!this.#listeners.any) return;
    // What is under way may have been read before the change, so its answer is not the last.
    this.#stale = true;
    if (!this.#load) void this.#fetch();
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
        this.#items = [...page.items].reverse();
        this.#loaded = true;
        this.#failure = undefined;
      } catch (error) {
        if (load.signal.aborted) return;
        this.#failure = failureOf(error);
        this.#stale = true;
        this.#publish();
        await sleep(waitAfter(error, failures++, this.#env), this.#env, this.#wake);
        if (load.signal.aborted) return;
      }
      this.#publish();
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
