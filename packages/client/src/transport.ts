/**
 * What a connection needs of a transport: to follow logs and the list of
 * sessions, one page over one network channel. A transport ends once and is
 * not used again; who comes back is the connection.
 *
 * @module
 */

import type { Problem } from "./problem.ts";
import type { Frame, SessionRow } from "./wire.ts";

/** Why there is no connection, for programs and for a sentence in a UI. */
export type ReasonCode =
  /** The browser says that there is no network. */
  | "offline"
  /** No answer: the server is down, or something on the way is. */
  | "unreachable"
  /** The server is there, but no WebSocket comes through to it. */
  | "blocked"
  /** A connection that worked has ended. */
  | "lost"
  /** A connection that worked has been silent for too long. */
  | "silent"
  /** The server is shutting down, as in a deploy. */
  | "goodbye"
  /** The server answers that it cannot serve now. */
  | "unavailable"
  /** The server holds as many streams as it will. */
  | "full"
  /** The server wants to know who asks. */
  | "unauthenticated"
  /** The server refuses this page or this host. */
  | "forbidden";

/** What a transport tells its connection. */
export type TransportEvents = {
  /** It works: logs are followed from now on. */
  opened(): void;
  /** A sign of life. */
  heard(): void;
  /** What comes of this session from now on is what was asked for last. `head` is the last seq there is. */
  following(session: string, head: number): void;
  /** A piece of a log, which ends at `to`. */
  frames(session: string, to: number, frames: readonly Frame[]): void;
  /** The cursor was ahead of the log. */
  reset(session: string): void;
  /** The session is gone, and its subscription with it. */
  deleted(session: string): void;
  /** A subscription was refused or has ended; `null` is the list. The connection goes on. */
  refused(session: string | null, code: string): void;
  /** Changes of the list come from now on: what the list is has to be asked now. */
  listed(): void;
  /** Rows that changed, and sessions that are gone. */
  rows(upsert: readonly SessionRow[], removed: readonly string[]): void;
  /** It is over. `retryAfterMs` is a wait that the server asked for, or 0. */
  ended(reason: ReasonCode, retryAfterMs: number): void;
};

/** One network channel. */
export type Transport = {
  readonly kind: "socket" | "sse";
  /** Follows a log after a cursor. Doing it again moves the subscription. */
  follow(session: string, after: number): void;
  unfollow(session: string): void;
  followList(): void;
  unfollowList(): void;
  /** Provokes a sign of life, or ends. */
  probe(): void;
  /** Ends it. It tells nothing afterwards. */
  close(): void;
};

/** What a refusal of a stream means. */
export function reasonOf({ status, code }: Problem): ReasonCode {
  if (status === 401) return "unauthenticated";
  if (status === 403) return "forbidden";
  if (code === "goodbye") return "goodbye";
  return code === "too_many_streams" ? "full" : "unavailable";
}
