/** Pages against the real binary, over a network that is really cut. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { type Client, createClient } from "../src/client.ts";
import type { Environment } from "../src/environment.ts";
import { foldAll, rangeOf } from "../src/fold.ts";
import type { SessionMirror } from "../src/mirror.ts";
import { Problem } from "../src/problem.ts";
import { empty, type State } from "../src/state.ts";
import type { SessionView } from "../src/view.ts";
import type { Message, Snapshot } from "../src/wire.ts";
import { Binary, build, Network } from "./binary.ts";
import { windowed } from "./server.ts";
import { Bus, Memory } from "./world.ts";

const server = new Binary(build());
const network = new Network(() => server.address);
let url = "";

beforeAll(async () => {
  await server.start();
  url = await network.open();
}, 60_000);

afterAll(async () => {
  await server.remove();
  await network.close();
}, 60_000);

/** A browser: what its pages share. */
class Browser {
  readonly storage = new Memory();
  readonly bus = new Bus();
  readonly #over: Partial<Environment>;

  constructor(over: Partial<Environment> = {}) {
    this.#over = over;
  }

  page(): Client {
    const environment = { storage: this.storage, channel: this.bus.open, ...this.#over };
    return createClient({ baseUrl: url, environment });
  }
}

/** Waits until a session shows something. */
function until(
  session: SessionMirror,
  is: (view: SessionView) => boolean,
  ms = 40_000,
): Promise<SessionView> {
  return new Promise((resolve, reject) => {
    const end = () => {
      clearTimeout(timer);
      stop();
    };
    const look = () => {
      const view = session.getSnapshot();
      if (!is(view)) return;
      end();
      resolve(view);
    };
    const timer = setTimeout(() => {
      end();
      reject(new Error(`it was not shown: ${JSON.stringify(session.getSnapshot()).slice(0, 2_000)}`));
    }, ms);
    const stop = session.subscribe(look);
    look();
  });
}

const text = (message: Message | undefined) => message?.parts.map((part) => part.text ?? "").join("") ?? "";
const posts = () => network.requests.filter((line) => /^POST \S+\/messages$/.test(line)).length;
/** A run was there, and all have ended. */
const done = (view: SessionView) =>
  view.status.name === "live" && view.pending.length === 0 && view.runs.length > 0 && view.run === undefined;

/** The fold of a session's whole log, up to a seq. */
async function folded(client: Client, id: string, seq: number): Promise<State> {
  let state = empty(id);
  while (state.shown.seq < seq) {
    const page = await client.api.events(id, { after: state.shown.seq, limit: 1_000 });
    state = foldAll(
      state,
      page.frames.filter((frame) => rangeOf(frame).to <= seq),
    );
  }
  return state;
}

/** A snapshot without what the server adds for the one who asks. */
function plain(snapshot: Snapshot): unknown {
  return JSON.parse(JSON.stringify(snapshot));
}

describe.each([
  ["a WebSocket", { WebSocket: WebSocket as never }],
  ["HTTP streams", {}],
])("over %s", (_, over) => {
  it("a page that is refreshed, cut off and restarted under ends with one whole answer", async () => {
    const browser = new Browser(over);
    const before = posts();
    let client = browser.page();
    const { id } = client.sessions.create();
    let session = client.sessions.session(id);
    let seen = 0;
    session.subscribe(() => {});
    session.send("count to 300 slowly");
    const more = (view: SessionView) => view.seq > seen + 10;
    for (let refresh = 1; refresh <= 10; refresh++) {
      ({ seq: seen } = await until(session, more));
      if (refresh % 3 === 0) {
        network.cut();
        await until(session, (view) => view.status.name === "paused");
        network.mend();
      }
      if (refresh === 5) {
        await server.kill();
        await server.start();
      }
      client.close();
      client = browser.page();
      session = client.sessions.session(id);
      session.subscribe(() => {});
    }
    const view = await until(session, done);
    expect(view.messages).toHaveLength(2);
    expect(text(view.messages[1])).toBe(Array.from({ length: 300 }, (_, i) => i + 1).join(" "));
    expect(view.runs).toMatchObject([{ status: "completed" }]);
    expect(view.pending).toEqual([]);
    expect(posts() - before).toBe(1);
    const state = await folded(client, id, view.seq);
    expect(plain(state.shown)).toEqual(plain(await client.api.snapshot(id, { window: 200 })));
    client.close();
  }, 90_000);

  it("two tabs show the same: Stop in one stops both, an approval decided in one is gone in the other", async () => {
    const browser = new Browser(over);
    const [one, two] = [browser.page(), browser.page()];
    const mine = one.sessions.create();
    const other = two.sessions.session(mine.id);
    two.approvals.subscribe(() => {});
    mine.send("count to 500 slowly");
    await until(mine, (view) => text(view.messages[1]).includes("9"));
    await until(other, (view) => text(view.messages[1]).includes("9"));
    const stopped = mine.stop();
    expect(mine.getSnapshot().gestures).toMatchObject([{ kind: "stop" }]);
    for (const session of [mine, other]) {
      const view = await until(session, done);
      expect(view.messages[1]).toMatchObject({ status: "interrupted", reason: "cancelled" });
      expect(view.runs).toMatchObject([{ status: "cancelled" }]);
    }
    await stopped;
    expect(mine.getSnapshot().gestures).toEqual([]);
    mine.send("delete the old reports");
    const asked = await until(other, (view) => view.approvals.length > 0);
    await until(mine, (view) => view.approvals.length > 0);
    const [approval] = asked.approvals;
    if (!approval) throw new Error("there is no approval");
    expect(await mine.decide(approval.id, "deny", { note: "keep them" })).toMatchObject({ status: "denied" });
    await until(other, (view) => view.approvals.length === 0);
    const late = await other.decide(approval.id, "approve").catch((error: unknown) => error);
    expect(late).toBeInstanceOf(Problem);
    expect(late).toMatchObject({
      code: "approval_decided",
      approval: { status: "denied", by: "local", note: "keep them" },
    });
    await until(mine, done);
    await until(other, done);
    expect(mine.getSnapshot().messages).toEqual(other.getSnapshot().messages);
    one.close();
    two.close();
  }, 60_000);
});

it("the fold is the server's at every moment of a long and varied session", async () => {
  const browser = new Browser({ WebSocket: WebSocket as never });
  const client = browser.page();
  const session = client.sessions.create();
  const { id } = session;
  const moments: Snapshot[] = [];
  let stopped = false;
  session.subscribe(() => {});
  session.send("plan a trip to Lisbon");
  await until(session, (view) => view.seq > 0);
  const watching = (async () => {
    while (!stopped) moments.push(await client.api.snapshot(id, { window: 200 }));
  })();
  await until(session, done);
  session.send("show a retry");
  await until(session, (view) => view.run?.waitingReason === "retry");
  session.send("what is 12 * 7", { onBusy: "enqueue" });
  session.send("what time is it", { onBusy: "steer" });
  await until(session, (view) => view.inbox.length > 0);
  await until(session, done, 60_000);
  const asked = session.getSnapshot().messages.find((m) => text(m) === "what is 12 * 7");
  session.edit(asked?.id ?? "", "what is 13 * 7");
  await until(session, (view) => view.messages.some((m) => text(m) === "what is 13 * 7") && done(view));
  const answer = session.getSnapshot().messages.at(-1);
  await session.regenerate(answer?.id ?? "");
  await until(session, (view) => (view.messages.at(-1)?.siblings?.length ?? 0) === 2 && done(view));
  await session.switchTo(asked?.id ?? "");
  await until(session, (view) => view.messages.some((m) => m.id === asked?.id));
  session.send("delete the old reports");
  const { approvals } = await until(session, (view) => view.approvals.length > 0);
  await session.decide(approvals[0]?.id ?? "", "approve");
  await until(session, done);
  session.send("count to 500 slowly");
  await until(session, (view) => view.run?.status === "running");
  session.send("think", { onBusy: "rollback" });
  await until(session, (view) => text(view.messages.at(-2)) === "think" && done(view));
  await session.rename("All of it");
  stopped = true;
  await watching;
  const last = await client.api.snapshot(id, { window: 200 });
  let state = empty(id);
  const log = await folded(client, id, last.seq);
  expect(plain(log.shown)).toEqual(plain(last));
  const events = [];
  for (let after = 0; after < last.seq; ) {
    const page = await client.api.events(id, { after, limit: 1_000 });
    events.push(...page.frames);
    after = rangeOf(page.frames.at(-1) as (typeof page.frames)[number]).to;
  }
  const seqs = new Map(moments.map((moment) => [moment.seq, moment]));
  let compared = 0;
  for (const frame of events) {
    state = foldAll(state, [frame]);
    const moment = seqs.get(state.shown.seq);
    if (!moment) continue;
    compared++;
    expect(plain(windowed(state.shown, 200))).toEqual(plain(moment));
  }
  expect(compared).toBeGreaterThan(50);
  client.close();
}, 120_000);
