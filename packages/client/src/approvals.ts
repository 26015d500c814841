import { Commands } from "./commands.ts";
import { Latest } from "./latest.ts";
import type { Parts } from "./parts.ts";
import { failureOf } from "./problem.ts";
import { persist } from "./retry.ts";
import { Subscribable, same } from "./subscribable.ts";
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
/** The least time between two requests, in milliseconds. It doubles while answers are overtaken. */
const shortest = 200;

/** The inbox of approvals. It is asked for anew whenever the list of sessions says that one may have changed. */
export class Approvals extends Subscribable<ApprovalsView> {
  readonly #parts: Parts;
  readonly #commands: Commands;
  #items: readonly Approval[] = [];
  #loaded = false;
  #failure: Failure | undefined;
  readonly #load = new Latest();
  #askedAt = 0;
  #pause = shortest;
  /** Something changed since they were asked for: they are asked for again then. */
  #stopWait: (() => void) | undefined;
  #stopList = () => {};

  constructor(parts: Parts) {
    super({ items: [], loaded: false, failure: undefined, deciding: [] });
    this.#parts = parts;
    this.#commands = new Commands(parts, () => this.#publish());
  }

  /** Decides. A `Problem` with `approval_decided` has the approval as somebody else decided it. */
  decide = async (
    approval: string,
    decision: Decision,
    options: { note?: string; arguments?: Json } = {},
  ): Promise<Approval> => {
    const ask = async () => {
      const answer = await this.#parts.api.decide(approval, { decision, ...options });
      this.#items = this.#items.filter(({ id }) => id !== approval);
      return answer;
    };
    try {
      return (await this.#commands.send({ kind: "decide", approval, decision }, ask)).approval;
    } finally {
      if (this.#loaded) this.#refresh();
    }
  };

  /** Stops following. Who subscribes next begins anew. */
  close(): void {
    this.#stopList();
    this.#stopWait?.();
    this.#stopWait = undefined;
    this.#load.end();
  }

  protected override started(): void {
    this.#stopList = this.#parts.connection.followList({
      listed: () => this.#refresh(),
      rows: (upsert, removed) => {
        // Only the row of a session tells that something was asked, or decided.
        const has = new Set(this.#items.map(({ session }) => session));
        const concerns = upsert.some((row) => row.approvals > 0 || has.has(row.id));
        if (concerns || removed.some((id) => has.has(id))) this.#refresh();
      },
    });
    this.#refresh();
  }

  protected override stopped(): void {
    this.close();
  }

  /** They may have changed: asks for them, soon. */
  #refresh(): void {
    const { after, now } = this.#parts.env;
    this.#stopWait ??= after(Math.max(this.#askedAt + this.#pause - now(), 0), () => {
      this.#stopWait = undefined;
      void this.#fetch();
    });
  }

  async #fetch(): Promise<void> {
    const { api, env, connection } = this.#parts;
    if (this.#load.isOn) this.#pause *= 2; // it was read before the change, or hangs
    const signal = this.#load.begin();
    this.#askedAt = env.now();
    const ask = () => api.approvals({ status: "pending", limit: pageSize, signal });
    const onFailure = (error: unknown) => {
      this.#failure = failureOf(error);
      this.#publish();
    };
    try {
      const how = { env, wake: connection.onReturn, signal, passes: () => true, onFailure };
      const { items } = await persist(ask, how);
      // An answer that was overtaken by a change would take back what is shown already.
      if (this.#stopWait && this.#loaded) return;
      this.#load.end();
      this.#pause = shortest;
      this.#loaded = true;
      this.#failure = undefined;
      const known = new Map(this.#items.map((item) => [item.id, item]));
      this.#items = same(this.#items, items.map((item) => known.get(item.id) ?? item).reverse());
      this.#publish();
    } catch {
      // It was asked for anew, or nobody wants to know any more.
    }
  }

  #publish(): void {
    // An answered decision is a fact, and the list is asked for again.
    this.#commands.settle(undefined);
    const deciding = this.#commands.gestures.flatMap((g) => (g.kind === "decide" ? [g.approval] : []));
    this.show({
      items: this.#items,
      loaded: this.#loaded,
      failure: this.#failure,
      deciding: same(this.getSnapshot().deciding, deciding),
    });
  }
}
