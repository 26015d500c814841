/**
 * The connection of a page: one WebSocket, or HTTP streams where that is
 * blocked. It comes back by itself, with every cursor, until it is closed.
 *
 * @module
 */

import { backoff } from "./backoff.ts";
import type { Environment, Signal } from "./environment.ts";
import { Listeners } from "./listeners.ts";
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
  frames(from: number, to: number, frames: readonly Frame[]): void;
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
/** Uptime after which failures are forgotten. */
const stable = 10_000;
/** The least time between two attempts, whatever wakes us. */
const breath = 1_000;
/** How long the WebSocket is not tried again where it was blocked and HTTP streams work. */
const blockedFor = 300_000;
/** How long a connection that nobody uses is kept. */
const linger = 5_000;
/** How long a subscription may go unanswered before it is asked for again. */
const answerPatience = 15_000;

type Followed = { readonly follower: Follower; stopTimer: () => void; refusals: number };

/** See the module. `subscribe` and `getSnapshot` give its state. */
export class Connection {
  readonly #base: string;
  readonly #env: Environment;
  readonly #listeners = new Listeners();
  readonly #sessions = new Map<string, Followed>();
  readonly #lists = new Set<ListFollower>();
  #state: ConnectionState = { name: "closed" };
  /** Grows with each transport: what an earlier one still tells is not heard. */
  #generation = 0;
  #transport: Transport | undefined;
  #failures = 0;
  #attemptAt = 0;
  #heardAt = 0;
  #blockedUntil = 0;
  /** The timer of the state: the next attempt, the watchdog, or the linger. */
  #stopTimer = () => {};
  #stopProbe: (() => void) | undefined;
  #stopList = () => {};
  #stopSignals = () => {};
  #over = false;

  constructor(baseUrl: string, env: Environment) {
    this.#base = baseUrl;
    this.#env = env;
  }

  /** Calls back after each change of the state, until the returned function is called. */
  subscribe = (listener: () => void): (() => void) => this.#listeners.add(listener);

  /** The state. It is replaced, never changed. */
  getSnapshot = (): ConnectionState => this.#state;

  /** Follows a session's log after the follower's cursor. One follower a session. */
  follow(session: string, follower: Follower): () => void {
    const followed: Followed = { follower, stopTimer: () => {}, refusals: 0 };
    this.#sessions.set(session, followed);
    this.#start();
    this.#askFor(session);
    return () => {
      if (this.#sessions.get(session) !== followed) return;
      followed.stopTimer();
      this.#sessions.delete(session);
      if (this.#state.name === "open") this.#transport?.unfollow(session);
      this.#rest();
    };
  }

  /** Asks for a session's log again, after the follower's cursor. */
  again(session: string): void {
    this.#askFor(session);
  }

  /** Follows the list of sessions. */
  followList(follower: ListFollower): () => void {
    const first = this.#lists.size === 0;
    this.#lists.add(follower);
    this.#start();
    if (this.#state.name === "open") {
      if (first) this.#transport?.followList();
      else follower.listed();
    }
    return () => {
      if (!this.#lists.delete(follower) || this.#lists.size > 0) return;
      this.#stopList();
      if (this.#state.name === "open") this.#transport?.unfollowList();
      this.#rest();
    };
  }

  /** Tries now, if it waits: a person asked for it. */
  retry(): void {
    if (this.#state.name === "waiting") this.#connect();
  }

  /** Ends it for good. */
  close(): void {
    this.#over = true;
    this.#stopList();
    for (const followed of this.#sessions.values()) followed.stopTimer();
    this.#enter({ name: "closed" });
  }

  /** The one door: leaves the state before, and does what the new one asks. */
  #enter(state: ConnectionState): void {
    const before = this.#state;
    this.#state = state;
    this.#stopTimer();
    this.#stopProbe?.();
    this.#stopProbe = undefined;
    if (state.name !== "open" && state.name !== "connecting") {
      this.#generation++;
      this.#transport?.close();
      this.#transport = undefined;
    }
    switch (state.name) {
      case "connecting":
        this.#stopTimer = () => {};
        break;
      case "open":
        this.#watch();
        break;
      case "waiting":
        this.#stopTimer = this.#env.after(state.retryAt - this.#env.now(), () => this.#connect());
        break;
      case "closed":
        this.#stopTimer = () => {};
        this.#stopSignals();
        this.#stopSignals = () => {};
    }
    if (before.name === "open" && state.name !== "open") {
      for (const followed of this.#sessions.values()) {
        followed.stopTimer();
        followed.follower.paused();
      }
    }
    this.#listeners.call();
  }

  #start(): void {
    if (this.#over) return;
    if (this.#state.name === "closed") {
      this.#stopSignals = this.#env.onSignal((signal) => this.#stir(signal));
      this.#connect();
    }
  }

  /** Ends a connection that nobody uses, after a while. */
  #rest(): void {
    this.#env.after(linger, () => {
      if (this.#sessions.size + this.#lists.size > 0 || this.#state.name === "closed") return;
      this.#failures = 0;
      this.#enter({ name: "closed" });
    });
  }

  #connect(): void {
    this.#generation++;
    this.#transport?.close();
    this.#attemptAt = this.#env.now();
    const sockets = this.#env.WebSocket && this.#blockedUntil <= this.#attemptAt;
    const Kind = sockets ? SocketTransport : SseTransport;
    this.#transport = new Kind(this.#base, this.#env, this.#ears(this.#generation));
    this.#enter({ name: "connecting", attempt: this.#failures + 1 });
  }

  /** What a transport may tell, as long as it is the one. */
  #ears(generation: number): TransportEvents {
    const fence =
      <A extends unknown[]>(hear: (...args: A) => void) =>
      (...args: A) => {
        if (generation === this.#generation) hear(...args);
      };
    const of = (session: string) => this.#sessions.get(session)?.follower;
    return {
      opened: fence(() => this.#opened()),
      heard: fence(() => this.#heard()),
      following: fence((session, head) => {
        this.#sessions.get(session)?.stopTimer();
        of(session)?.following(head);
      }),
      frames: fence((session, from, to, frames) => {
        const followed = this.#sessions.get(session);
        if (!followed) return;
        followed.refusals = 0;
        followed.follower.frames(from, to, frames);
      }),
      reset: fence((session) => of(session)?.reset()),
      deleted: fence((session) => of(session)?.deleted()),
      refused: fence((session, code) => this.#refused(session, code)),
      listed: fence(() => {
        for (const list of this.#lists) list.listed();
      }),
      rows: fence((upsert, removed) => {
        for (const list of this.#lists) list.rows(upsert, removed);
      }),
      ended: fence((reason, asked) => this.#ended(reason, asked)),
    };
  }

  #opened(): void {
    const transport = this.#transport;
    if (!transport) return;
    this.#heardAt = this.#env.now();
    this.#enter({ name: "open", since: this.#heardAt, transport: transport.kind });
    for (const session of [...this.#sessions.keys()]) this.#askFor(session);
    if (this.#lists.size > 0) transport.followList();
  }

  #ended(reason: ReasonCode | "blocked", asked: number): void {
    const { now, random, online } = this.#env;
    if (reason === "blocked") {
      // Something on the way lets requests through and no WebSocket.
      this.#blockedUntil = now() + blockedFor;
      this.#connect();
      return;
    }
    if (this.#state.name === "open" && now() - this.#state.since >= stable) this.#failures = 0;
    this.#failures++;
    this.#enter({
      name: "waiting",
      reason: online() || asked ? reason : "offline",
      retryAt: now() + backoff(this.#failures, random(), asked),
      asked: asked > 0,
      attempt: this.#failures,
    });
  }

  #askFor(session: string): void {
    const followed = this.#sessions.get(session);
    if (!followed || this.#state.name !== "open") return;
    followed.stopTimer();
    followed.stopTimer = this.#env.after(answerPatience, () => this.#askFor(session));
    this.#transport?.follow(session, followed.follower.cursor());
  }

  #refused(session: string | null, code: string): void {
    const passing = code === "internal" || code === "unavailable";
    if (session === null) {
      this.#stopList = this.#env.after(backoff(1, this.#env.random()), () => this.#transport?.followList());
      return;
    }
    const followed = this.#sessions.get(session);
    if (!followed) return;
    followed.stopTimer();
    if (!passing) {
      followed.follower.refused(code);
      return;
    }
    followed.refusals++;
    followed.stopTimer = this.#env.after(backoff(followed.refusals, this.#env.random()), () =>
      this.#askFor(session),
    );
  }

  #heard(): void {
    this.#heardAt = this.#env.now();
    this.#stopProbe?.();
    this.#stopProbe = undefined;
  }

  /** Looks after an open connection: ends one that is silent, probes after a sleep. */
  #watch(): void {
    const due = Math.min(this.#heardAt + silence, this.#env.now() + nap);
    this.#stopTimer = this.#env.after(due - this.#env.now(), () => {
      const now = this.#env.now();
      // A late timer may only mean that what came meanwhile has not been delivered yet.
      if (now - due > nap) this.#probe();
      if (now - due <= nap && now - this.#heardAt >= silence) this.#ended("silent", 0);
      else this.#watch();
    });
  }

  /** Asks for a sign of life. Without one soon, the connection is taken for dead and there is no wait. */
  #probe(): void {
    if (this.#state.name !== "open" || this.#stopProbe) return;
    this.#stopProbe = this.#env.after(probePatience, () => {
      this.#stopProbe = undefined;
      this.#enter({ name: "connecting", attempt: this.#failures + 1 });
      this.#connect();
    });
    this.#transport?.probe();
  }

  /** Something changed that may have ended the connection, or may let it come back. */
  #stir(signal: Signal): void {
    if (signal === "hidden") return;
    if (this.#state.name === "open") this.#probe();
    if (this.#state.name !== "waiting" || signal === "offline" || this.#state.asked) return;
    const earliest = this.#attemptAt + breath;
    if (this.#env.now() >= earliest) this.#connect();
    else if (this.#state.retryAt > earliest) this.#enter({ ...this.#state, retryAt: earliest });
  }
}
