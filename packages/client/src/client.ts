import { Api } from "./api.ts";
import { Approvals } from "./approvals.ts";
import { Connection } from "./connection.ts";
import { browser, type Environment } from "./environment.ts";
import { Kept } from "./kept.ts";
import { SessionManager } from "./manager.ts";
import { Outbox } from "./outbox.ts";
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
  const store = new Store(env.storage, name);
  const tabs = new Tabs(name, env);
  const parts = { env, api, connection, store, tabs };
  const outbox = new Outbox(parts);
  const drafts = new Kept("draft", store, tabs);
  const sessions = new SessionManager({ ...parts, outbox, window: options.window ?? 50 });
  const approvals = new Approvals(parts);
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
