import { Api } from "./api.ts";
import { Approvals } from "./approvals.ts";
import { Connection } from "./connection.ts";
import { browser, type Environment } from "./environment.ts";
import { Kept } from "./kept.ts";
import { SessionManager } from "./manager.ts";
import { Outbox } from "./outbox.ts";
import type { Wake } from "./retry.ts";
import { Store } from "./store.ts";
import { Tabs } from "./tabs.ts";

/** What a client is made of. */
export type ClientOptions = {
  /** Where the server is, without `/v1`. Default: the origin of the page. */
  readonly baseUrl?: string;
  /** Messages of a snapshot, and of a page of earlier ones: 1 to 200. Default: 50. */
  readonly window?: number;
  /** What differs from the page's own world. Default: nothing. */
  readonly environment?: Partial<Environment>;
};

/**
 * A page's side of Holdfast. It keeps caches, never facts: throw it away at any
 * moment and make another one. It does nothing until somebody subscribes to
 * one of its parts, or a submission was left by an earlier page.
 */
export type Client = {
  /** The HTTP API, for what the rest has no word for. */
  readonly api: Api;
  /** The connection and its state. */
  readonly connection: Connection;
  /** The list of sessions, and their mirrors. */
  readonly sessions: SessionManager;
  /** The approvals that wait, over all sessions. */
  readonly approvals: Approvals;
  /** What is typed and not sent. */
  readonly drafts: Kept;
  /** Ends everything for good. What was not acknowledged is kept for the next page. */
  close(): void;
};

/** Makes a client. One a page is enough. */
export function createClient(options: ClientOptions = {}): Client {
  const env: Environment = { ...browser(), ...options.environment };
  const baseUrl = options.baseUrl ?? "";
  const name = `holdfast:${baseUrl}:`;
  const api = new Api(baseUrl, env);
  const connection = new Connection(baseUrl, env);
  const wake = returns(connection);
  const store = new Store(env.storage, name);
  const tabs = new Tabs(name, env);
  const outbox = new Outbox(api, env, store, tabs, wake);
  const drafts = new Kept("draft", store, tabs);
  const window = options.window ?? 50;
  const sessions = new SessionManager({ api, connection, env, outbox, wake, window, store, tabs });
  const approvals = new Approvals(api, env, wake, connection);
  return {
    api,
    connection,
    sessions,
    approvals,
    drafts,
    close() {
      connection.close();
      sessions.close();
      approvals.close();
      outbox.close();
      drafts.close();
      tabs.close();
    },
  };
}

/** Calls when the connection is there again after it was not: what failed meanwhile may do better now. */
function returns(connection: Connection): Wake {
  const wakes = new Set<() => void>();
  let opened = false;
  let left = false;
  connection.subscribe(() => {
    const { name } = connection.getSnapshot();
    if (name !== "open") {
      left ||= name !== "connecting" || opened;
      return;
    }
    opened = true;
    const back = left;
    left = false;
    if (back) for (const wake of [...wakes]) wake();
  });
  return (wake) => {
    wakes.add(wake);
    return () => wakes.delete(wake);
  };
}
