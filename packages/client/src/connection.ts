/**
 * The connection of a page: one WebSocket, or HTTP streams where that is
 * blocked. It comes back by itself, with every cursor, until it is closed.
 *
 * @module
 */

import { backoff } from "./backoff.ts";
import type { Environment, Signal } from "./environment.ts";
import type { Wake } from "./retry.ts";
import { Subscribable } from "./subscribable.ts";
import type { ReasonCode, Transport, TransportEvents } from "./transport.ts";
import { SocketTransport } from "./transport-socket.ts";
import { SseTransport } from "./transport-sse.ts";
import type { Frame, SessionRow } from "./wire.ts";

/** Where a connection is. Times are milliseconds since 1970. */
export type ConnectionState =
  | { readonly name: "connecting"; readonly attempt: number }
  | { readonly name: "open"; readonly since: number; readonly transport: Transport["kind"] }
  | {
      readonly name: "waiting";
      readonly retryAt: number;
      readonly reason: ReasonCode;
      /** The server asked for this wait: it is not cut short. */
      readonly asked: boolean;
      /** Failures in a row. */
      readonly attempt: number;
    }
  /** Nobody follows anything, or it was closed. */
  | { readonly name: "closed" };

/** Who follows the log of one session. */
export type Follower = {
  /** The last seq that it has: the log is asked for from there. */
  cursor(): number;
  /** The log comes, and ends at `head` for now. */
  following(head: number): void;
  /** A piece of the log, which ends at `to`. */
  frames(to: number, frames: readonly Frame[]): void;
  /** The log comes no more, for now: the connection is gone. */
  paused(): void;
  reset(): void;
  deleted(): void;
  refused(code: string): void;
};

/** Who follows the list of sessions. */
export type ListFollower = {
  /** Changes come from now on: ask for the list. */
  listed(): void;
  rows(upsert: readonly SessionRow[], removed: readonly string[]): void;
};

/** Silence after which a connection is taken for dead. The server speaks every 15 s. */
const silence = 45_000;
/** How long a probe's answer may take. */
const probePatience = 2_000;
/** A timer that is this late slept: the machine did, or the page. */
const nap = 10_000;
/** Uptime after which failures are forgotten. There are proxies that end every answer after five seconds. */
const stable = 5_000;
/** The least time between two attempts, whatever wakes us. */
const breath = 1_000;
/** How long the WebSocket is not tried again where it was blocked. */
const blockedFor = 300_000;
/** WebSockets in a row that are blocked before it is believed: one may have met a server that was starting. */
const blocksMost = 2;
/** How long a connection that nobody uses is kept. */
const linger = 5_000;
/** How long a subscription may go unanswered before it is asked for again. */
const answerPatience = 15_000;

const nothing = () => {};

/** A session that is followed, and the timer of what it waits for. */
type Followed = { readonly follower: Follower; stopTimer: () => void; refusals: number };

/** See the module. */
export class Connection extends Subscribable<ConnectionState> {
  readonly #base: string;
  readonly #env: Environment;
  readonly #sessions = new Map<string, Followed>();
  readonly #lists = new Set<ListFollower>();
  readonly #users = new Set<object>();
  readonly #wakes = new Set<() => void>();
  /** Attempts since somebody began to use it. */
  #attempts = 0;
  /** Grows with each attempt: what an earlier transport still tells is not heard. */
  #generation = 0;
  #transport: Transport | undefined;
  /** In a row, since the connection was last stable. */
  #failures = 0;
  /** WebSockets in a row that were blocked. */
  #blocks = 0;
  #attemptAt = 0;
  #heardAt = 0;
  #blockedUntil = 0;
  /** The timer of the state: the next attempt, or the watchdog. */
  #stopTimer = nothing;
  #stopProbe: (() => void) | undefined;
  #stopRest = nothing;
  #stopSignals = nothing;
  #over = false;

  constructor(baseUrl: string, env: Environment) {
    super({ name: "closed" });
    this.#base = baseUrl;
    this.#env = env;
  }

  get #state(): ConnectionState {
    return this.getSnapshot();
  }

  /** Tells that the connection is there again after it was not: what failed meanwhile may do better now. */
  onReturn: Wake = (wake) => {
    this.#wakes.add(wake);
    return () => this.#wakes.delete(wake);
  };

  /** Has the connection there, until the returned function is called. */
  use(): () => void {
    const user = {};
    this.#users.add(user);
    this.#start();
    return () => {
      if (this.#users.delete(user)) this.#rest();
    };
  }

  /** Follows a session's log after the follower's cursor, until the returned function is called. One follower a session. */
  follow(session: string, follower: Follower): () => void {
    const followed: Followed = { follower, stopTimer: nothing, refusals: 0 };
    this.#sessions.get(session)?.stopTimer();
    this.#sessions.set(session, followed);
    const release = this.use();
    this.again(session);
    return () => {
      followed.stopTimer();
      release();
      if (this.#sessions.get(session) !== followed) return;
      this.#sessions.delete(session);
      if (this.#state.name === "open") this.#transport?.unfollow(session);
    };
  }

  /** Asks for a session's log, after the follower's cursor, until it is answered. */
  again(session: string): void {
    const followed = this.#sessions.get(session);
    if (!followed || this.#state.name !== "open") return; // it is asked for when the connection is there
    followed.stopTimer();
    followed.stopTimer = this.#env.after(answerPatience, () => this.again(session));
    this.#transport?.follow(session, followed.follower.cursor());
  }

  /** Follows the list of sessions, until the returned function is called. */
  followList(follower: ListFollower): () => void {
    this.#lists.add(follower);
    const release = this.use();
    if (this.#state.name === "open") {
      if (this.#lists.size === 1) this.#transport?.followList();
      else follower.listed();
    }
    return () => {
      release();
      if (!this.#lists.delete(follower) || this.#lists.size > 0) return;
      if (this.#state.name === "open") this.#transport?.unfollowList();
    };
  }

  /** Tries now, if it waits: a person asked for it. */
  retry = (): void => {
    if (this.#state.name === "waiting") this.#connect();
  };

  /** Ends it for good. */
  close(): void {
    this.#over = true;
    this.#stopRest();
    if (this.#state.name !== "closed") this.#enter({ name: "closed" });
  }

  /** The one door: leaves the state before, and does what the new one asks. */
  #enter(state: ConnectionState): void {
    const before = this.#state;
    this.replace(state);
    this.#stopTimer();
    this.#stopTimer = nothing;
    this.#stopProbe?.();
    this.#stopProbe = undefined;
    if (state.name === "waiting" || state.name === "closed") {
      this.#generation++;
      this.#transport?.close();
      this.#transport = undefined;
    }
    if (state.name === "open") this.#watch();
    if (state.name === "waiting") {
      this.#stopTimer = this.#env.after(state.retryAt - this.#env.now(), () => this.#connect());
    }
    if (state.name === "closed") {
      this.#attempts = 0;
      this.#stopSignals();
    }
    if (before.name === "open") {
      for (const followed of this.#sessions.values()) {
        followed.stopTimer();
        followed.follower.paused();
      }
    }
    this.tell();
  }

  #start(): void {
    this.#stopRest();
    if (this.#over || this.#state.name !== "closed") return;
    this.#stopSignals = this.#env.onSignal((signal) => this.#stir(signal));
    this.#connect();
  }

  /** Ends a connection that nobody uses, after a while. */
  #rest(): void {
    if (this.#users.size > 0 || this.#state.name === "closed") return;
    this.#stopRest();
    this.#stopRest = this.#env.after(linger, () => {
      this.#failures = 0;
      this.#enter({ name: "closed" });
    });
  }

  #connect(): void {
    this.#transport?.close();
    const generation = ++this.#generation;
    this.#attempts++;
    const now = this.#env.now();
    this.#attemptAt = now;
    this.#heardAt = 0;
    const ears = this.#fenced(generation);
    const socket = this.#env.WebSocket && this.#blockedUntil <= now;
    const Kind = socket ? SocketTransport : SseTransport;
    try {
      this.#transport = new Kind(this.#base, this.#env, ears);
    } catch {
      this.#transport = undefined; // a page may be forbidden to open one
      this.#blocks = blocksMost;
      queueMicrotask(() => ears.ended("blocked", 0));
    }
    this.#enter({ name: "connecting", attempt: this.#failures + 1 });
  }

  /** What a transport may tell. */
  readonly #ears: TransportEvents = {
    opened: () => this.#opened(),
    heard: () => this.#heard(),
    following: (session, head) => {
      const followed = this.#sessions.get(session);
      followed?.stopTimer();
      followed?.follower.following(head);
    },
    frames: (session, to, frames) => {
      const followed = this.#sessions.get(session);
      if (!followed) return;
      followed.refusals = 0;
      followed.follower.frames(to, frames);
    },
    reset: (session) => this.#sessions.get(session)?.follower.reset(),
    deleted: (session) => this.#sessions.get(session)?.follower.deleted(),
    refused: (session, code) => this.#refused(session, code),
    listed: () => {
      for (const list of [...this.#lists]) list.listed();
    },
    rows: (upsert, removed) => {
      for (const list of [...this.#lists]) list.rows(upsert, removed);
    },
    ended: (reason, asked) => this.#ended(reason, asked),
  };

  /** The ears as long as the generation lasts: afterwards nothing is heard. */
  #fenced(generation: number): TransportEvents {
    return new Proxy(this.#ears, {
      get: (ears, name: keyof TransportEvents) => (generation === this.#generation ? ears[name] : nothing),
    });
  }

  #opened(): void {
    const transport = this.#transport;
    if (!transport) return;
    this.#enter({ name: "open", since: this.#env.now(), transport: transport.kind });
    for (const session of [...this.#sessions.keys()]) this.again(session);
    if (this.#lists.size > 0) transport.followList();
    if (this.#attempts > 1) for (const wake of [...this.#wakes]) wake();
  }

  #ended(reason: ReasonCode, asked: number): void {
    const { now, random, online } = this.#env;
    const state = this.#state;
    // Something on the way may take a WebSocket and let nothing through.
    const mute = state.name === "open" && state.transport === "socket" && this.#heardAt === 0;
    if (reason === "blocked" || mute) this.#blocks++;
    else if (state.name === "open") this.#blocks = 0;
    if (this.#blocks >= blocksMost) {
      this.#blocks = 0;
      this.#blockedUntil = now() + blockedFor;
      this.#connect(); // in the other way, and at once: the server is there
      return;
    }
    if (state.name === "open" && now() - state.since >= stable) this.#failures = 0;
    this.#failures++;
    this.#enter({
      name: "waiting",
      reason: asked > 0 || online() ? reason : "offline",
      retryAt: now() + backoff(this.#failures, random(), asked),
      asked: asked > 0,
      attempt: this.#failures,
    });
  }

  #refused(session: string | null, code: string): void {
    const { after, random } = this.#env;
    if (session === null) {
      after(backoff(1, random()), () => {
        if (this.#state.name === "open" && this.#lists.size > 0) this.#transport?.followList();
      });
      return;
    }
    const followed = this.#sessions.get(session);
    if (!followed) return;
    followed.stopTimer();
    if (code === "internal" || code === "unavailable") {
      const wait = backoff(++followed.refusals, random());
      followed.stopTimer = after(wait, () => this.again(session));
    } else {
      followed.follower.refused(code);
    }
  }

  #heard(): void {
    this.#heardAt = this.#env.now();
    this.#stopProbe?.();
    this.#stopProbe = undefined;
  }

  /** Looks after an open connection: ends one that is silent, and probes it after a sleep. */
  #watch(): void {
    const { after, now } = this.#env;
    const due = now() + nap;
    this.#stopTimer = after(nap, () => {
      if (this.#state.name !== "open") return;
      const silent = now() - Math.max(this.#heardAt, this.#state.since);
      // A late timer may only mean that what came meanwhile has not been delivered yet.
      const late = now() - due > nap;
      if (late && silent > nap) this.#probe();
      if (!late && silent >= silence) this.#ended("silent", 0);
      else this.#watch();
    });
  }

  /** Asks for a sign of life. Without one soon the connection is taken for dead, and there is no wait. */
  #probe(): void {
    if (this.#state.name !== "open" || this.#stopProbe) return;
    this.#stopProbe = this.#env.after(probePatience, () => this.#connect());
    this.#transport?.probe();
  }

  /** Something changed that may have ended the connection, or may let it come back. */
  #stir(signal: Signal): void {
    if (signal === "hidden") return;
    const state = this.#state;
    if (state.name === "open") this.#probe();
    if (state.name !== "waiting" || state.asked || signal === "offline") return;
    this.#enter({ ...state, retryAt: Math.min(state.retryAt, this.#attemptAt + breath) });
  }
}
