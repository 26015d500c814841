/**
 * The sessions of a page: their list, as it changes, and the mirrors of those
 * that are open.
 *
 * @module
 */

import { Kept } from "./kept.ts";
import { Latest } from "./latest.ts";
import { type MirrorParts, SessionMirror } from "./mirror.ts";
import { failureOf } from "./problem.ts";
import { Publisher } from "./publisher.ts";
import { persist } from "./retry.ts";
import { Subscribable, same, settled } from "./subscribable.ts";
import type { Failure, SessionRow } from "./wire.ts";

/** A session in the list. */
export type SessionItem = SessionRow & {
  /** Something happened since it was read in this browser. */
  readonly unread: boolean;
};

/** The list of sessions. It is replaced, never changed; a row that did not change is the same object. */
export type SessionsView = {
  /** The last changed first: those that are loaded and whose titles hold `search`. */
  readonly items: readonly SessionItem[];
  readonly search: string;
  /** Whether there are more: see `loadMore`. */
  readonly hasMore: boolean;
  readonly status: "loading" | "ready";
  /** Why the list may be old, or incomplete. It is tried again. */
  readonly failure: Failure | undefined;
};

const pageSize = 50;
const pageMost = 200;
/** Mirrors that nobody watches and that are kept: to come back to one costs only what was missed. */
const keptMost = 20;
/** How long a search waits for the next letter, in milliseconds. */
const typing = 200;

/** See the module. The list is followed while somebody subscribes. */
export class SessionManager extends Subscribable<SessionsView> {
  readonly #parts: MirrorParts;
  /** The last seq of each session that was read in this browser. */
  readonly #marks: Kept;
  readonly #publisher: Publisher;
  /** Mirrors, the longest unused first. */
  readonly #mirrors = new Map<string, SessionMirror>();
  /** All rows that are known. */
  readonly #rows = new Map<string, SessionRow>();
  /** The end of what is loaded of the list that is shown, by order; undefined: all of it. */
  #edge: SessionRow | undefined;
  #next: string | undefined;
  #search = "";
  #loaded = false;
  #failure: Failure | undefined;
  readonly #load = new Latest();
  /** Sessions that changed, or went, while the list was on its way. */
  readonly #meanwhile = new Set<string>();
  #loading: Promise<void> | undefined;
  #stopList = () => {};
  #stopTyping = () => {};

  constructor(parts: MirrorParts) {
    super({ items: [], search: "", hasMore: false, status: "loading", failure: undefined });
    this.#parts = { ...parts, onWatched: (mirror, watched) => this.#watched(mirror, watched) };
    this.#publisher = new Publisher(parts.env, () => this.#publish());
    this.#marks = new Kept("read", parts.store, parts.tabs);
    this.#marks.subscribe(() => this.#publisher.soon());
  }

  /** The mirror of a session: the same one for all who ask while it is in use. It starts when somebody subscribes. */
  session = (id: string): SessionMirror => {
    const known = this.#mirrors.get(id);
    return known ?? this.#add(new SessionMirror(id, this.#parts));
  };

  /** The mirror of a session that the server does not have: its first message begins it. */
  create = (): SessionMirror => this.#add(new SessionMirror(this.#parts.env.id("ses_"), this.#parts, true));

  /** Shows the sessions whose title holds a text, in any case; "" shows all. */
  search = (text: string): void => {
    if (text === this.#search) return;
    this.#search = text;
    this.#edge = undefined;
    this.#next = undefined;
    this.#loaded = false;
    this.#load.end();
    this.#stopTyping();
    this.#stopTyping = this.#parts.env.after(typing, () => this.#fetch());
    this.#publisher.now();
  };

  /** Loads the next page. What fails shows in `failure`, and is tried again. */
  loadMore = (): Promise<void> => {
    if (!this.#loading && this.#next) this.#fetch(this.#next);
    return this.#loading ?? Promise.resolve();
  };

  /** A person has seen a session, up to a seq; by default all that the list knows of. */
  markRead = (id: string, seq: number = this.#rows.get(id)?.seq ?? 0): void => {
    if (seq > Number(this.#marks.get(id))) this.#marks.set(id, String(seq));
  };

  /** Ends it, and the mirrors, for good. */
  close(): void {
    this.#stopList();
    this.#stopTyping();
    this.#load.end();
    for (const mirror of this.#mirrors.values()) mirror.close();
    this.#marks.close();
  }

  protected override started(): void {
    this.#stopList = this.#parts.connection.followList({
      listed: () => this.#fetch(),
      rows: (upsert, removed) => this.#take(upsert, removed),
    });
  }

  protected override stopped(): void {
    this.#stopList();
    this.#load.end();
  }

  #add(mirror: SessionMirror): SessionMirror {
    this.#mirrors.set(mirror.id, mirror);
    this.#evict();
    return mirror;
  }

  #watched(mirror: SessionMirror, watched: boolean): void {
    if (watched) {
      // It is the one that others get, and the last used.
      this.#mirrors.delete(mirror.id);
      this.#mirrors.set(mirror.id, mirror);
    }
    this.#evict();
  }

  #evict(): void {
    let spare = [...this.#mirrors.values()].filter((mirror) => !mirror.isWatched).length - keptMost;
    for (const [id, mirror] of this.#mirrors) {
      if (spare <= 0) return;
      if (mirror.isWatched) continue;
      this.#mirrors.delete(id);
      spare--;
    }
  }

  /** Gets the list as far as it was loaded, or what follows a cursor, however long it takes. */
  #fetch(cursor?: string): void {
    const signal = this.#load.begin();
    this.#meanwhile.clear();
    const onFailure = (error: unknown) => {
      this.#failure = failureOf(error);
      this.#publisher.soon();
    };
    const { env, connection } = this.#parts;
    const how = { env, wake: connection.onReturn, signal, passes: () => true, onFailure };
    const loading = persist(() => this.#read(signal, cursor), how)
      .catch(() => {}) // it was asked for anew
      .finally(() => {
        if (this.#loading === loading) this.#loading = undefined;
      });
    this.#loading = loading;
  }

  async #read(signal: AbortSignal, from: string | undefined): Promise<void> {
    const wanted = from ? pageSize : Math.max(this.#shown().length, pageSize);
    const found = new Map<string, SessionRow>();
    let cursor = from;
    do {
      const limit = Math.max(Math.min(wanted - found.size, pageMost), 1);
      const page = await this.#parts.api.sessions({ search: this.#search, limit, cursor, signal });
      signal.throwIfAborted();
      for (const row of page.items) found.set(row.id, row);
      cursor = page.next;
    } while (cursor && found.size < wanted);
    this.#edge = cursor ? [...found.values()].at(-1) : undefined;
    this.#next = cursor;
    this.#loaded = true;
    this.#failure = undefined;
    // A row that was within reach and is not there any more is gone.
    for (const { id } of from ? [] : this.#shown()) {
      if (!found.has(id) && !this.#meanwhile.has(id)) this.#rows.delete(id);
    }
    for (const row of found.values()) this.#upsert(row, true);
    this.#publisher.soon();
  }

  #take(upsert: readonly SessionRow[], removed: readonly string[]): void {
    for (const row of upsert) {
      this.#meanwhile.add(row.id);
      this.#upsert(row, false);
    }
    for (const id of removed) {
      this.#meanwhile.add(id);
      this.#rows.delete(id);
      this.#marks.set(id, "");
    }
    this.#publisher.soon();
  }

  /** Takes a row, unless a newer one is known or, of a list that was on its way, the session went meanwhile. */
  #upsert(row: SessionRow, listed: boolean): void {
    const before = this.#rows.get(row.id);
    if (before && before.seq > row.seq) return;
    if (!before && listed && this.#meanwhile.has(row.id)) return;
    this.#rows.set(row.id, before ? settled(before, row) : row);
    // What is in the first list is no news; what comes up later is.
    if (!this.#marks.get(row.id)) this.#marks.set(row.id, String(listed ? row.seq : 0));
    if (!before) this.#mirrors.get(row.id)?.appeared();
  }

  /** The rows of the list that is shown, in its order. */
  #shown(): SessionRow[] {
    const search = this.#search.toLowerCase();
    const edge = this.#edge;
    return [...this.#rows.values()]
      .filter((row) => row.title.toLowerCase().includes(search) && (!edge || order(row, edge) <= 0))
      .sort(order);
  }

  #publish(): void {
    const items = this.#shown().map((row) => this.#item(row));
    this.show({
      items: same(this.getSnapshot().items, items),
      search: this.#search,
      hasMore: this.#next !== undefined,
      status: this.#loaded ? "ready" : "loading",
      failure: this.#failure,
    });
  }

  readonly #items = new WeakMap<SessionRow, SessionItem>();

  #item(row: SessionRow): SessionItem {
    const unread = row.seq > Number(this.#marks.get(row.id));
    const known = this.#items.get(row);
    if (known?.unread === unread) return known;
    const item = { ...row, unread };
    this.#items.set(row, item);
    return item;
  }
}

/** The last changed first. */
function order(a: SessionRow, b: SessionRow): number {
  return Date.parse(b.updatedAt) - Date.parse(a.updatedAt) || (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);
}
