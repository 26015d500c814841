import { describe, expect, it, vi } from "vitest";
import { json, problem } from "./answers.ts";
import { inFakeTime, open, watch, withTurns } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

const shown = (world: World, id = "ses_1") => world.server.state(id).shown;

describe("a mirror", () => {
  it("shows the snapshot and then what happens", async () => {
    const world = withTurns(1);
    const { view } = await watch(world);
    expect(view()).toMatchObject({ status: { name: "live" }, seq: shown(world).seq });
    world.server.script("ses_1").turn("msg_2", "Again", ["Yes"]);
    await world.pass(20);
    expect(view().messages).toEqual(shown(world).messages);
    expect(world.asked("GET", "/sessions/ses_1")).toBe(1);
  });

  it("lets what did not change be the same object", async () => {
    const world = withTurns(3);
    const { view } = await watch(world);
    const before = view();
    const script = world.server.script("ses_1");
    script.start(script.submit({ id: "msg_4", parts: [{ type: "text", text: "Next" }] }), "msg_4");
    await world.pass(20);
    expect(view().messages.slice(0, 6)).toEqual(before.messages);
    for (const [i, message] of before.messages.entries()) expect(view().messages[i]).toBe(message);
    expect(view().approvals).toBe(before.approvals);
    expect(view().inbox).toBe(before.inbox);
  });

  it("publishes tokens once a frame, facts in a microtask, and a gesture before the call returns", async () => {
    const world = new World();
    const script = world.server.script("ses_1");
    const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Go" }] });
    script.start(run, "msg_1");
    const { session, views, view } = await watch(world);
    const count = () => views.length;
    let before = count();
    for (let i = 0; i < 50; i++) script.say(run, "a");
    await Promise.resolve();
    expect(count()).toBe(before);
    await world.pass(16);
    expect(count()).toBe(before + 1);
    expect(view().messages[1]?.parts[1]?.text).toBe("a".repeat(50));
    before = count();
    script.finish(run, "done");
    await Promise.resolve();
    expect(count()).toBe(before + 1);
    expect(view().run).toBeUndefined();
    session.send("More");
    expect(view().pending).toMatchObject([{ parts: [{ text: "More" }] }]);
  });

  it("starts with the first subscriber, stops after the last, and comes back for what it missed", async () => {
    const world = withTurns(2);
    const { client, session, stop, view, page } = await watch(world);
    stop();
    await world.pass(4_000);
    const again = session.subscribe(() => {});
    await world.pass(4_000);
    expect(page.socket.sent.filter((m) => m.type === "subscribe")).toHaveLength(1); // it had not stopped
    again();
    await world.pass(20_000);
    expect(client.connection.getSnapshot().name).toBe("closed");
    const missed = shown(world).seq;
    world.server.script("ses_1").turn("msg_3", "Missed", ["Yes"]);
    expect(client.sessions.session("ses_1")).toBe(session);
    session.subscribe(() => {});
    await world.pass(50);
    expect(view().messages).toEqual(shown(world).messages);
    expect(world.asked("GET", "/sessions/ses_1")).toBe(1);
    expect(page.socket.sent).toMatchObject([{ type: "subscribe", after: missed }]);
  });

  it("begins anew after a reset, and shows what was until then", async () => {
    const world = withTurns(3);
    const { view, views } = await watch(world);
    const other = withTurns(1);
    views.length = 0;
    world.server.replace("ses_1", other.server.log("ses_1"));
    await world.pass(50);
    expect(view().messages).toEqual(shown(other).messages);
    expect(view().status.name).toBe("live");
    expect(views.every((v) => v.messages.length > 0)).toBe(true);
  });

  it("says that a session is missing, new or deleted", async () => {
    const world = withTurns(1);
    const { client, view } = await watch(world);
    const missing = client.sessions.session("ses_nobody");
    missing.subscribe(() => {});
    const fresh = client.sessions.create();
    fresh.subscribe(() => {});
    await world.pass(50);
    expect(missing.getSnapshot().status).toEqual({ name: "missing" });
    expect(fresh.getSnapshot().status).toEqual({ name: "new" });
    world.server.delete("ses_1");
    await world.pass(50);
    expect(view()).toMatchObject({ status: { name: "deleted" }, messages: [], session: undefined });
  });

  it("finds a missing session when the list tells of it", async () => {
    const world = new World();
    const { client, view } = await watch(world);
    client.sessions.subscribe(() => {});
    await world.pass(50);
    expect(view().status.name).toBe("missing");
    withTurns(1, world);
    await world.pass(50);
    expect(view()).toMatchObject({ status: { name: "live" }, seq: shown(world).seq });
  });

  it("does not take a proxy's 404 for the end of a session", async () => {
    const world = withTurns(1);
    let broken = true;
    world.intercept = (_, path) =>
      broken && path.includes("/sessions/ses_1")
        ? Promise.resolve(new Response("<h1>Not Found</h1>", { status: 404 }))
        : undefined;
    const { view } = await watch(world);
    expect(view().status).toMatchObject({ name: "loading", failure: { code: "http_404" } });
    broken = false;
    await world.pass(1_500);
    expect(view().status.name).toBe("live");
  });

  it("pages backwards to the first message without a hole", async () => {
    const world = withTurns(120);
    const { session, view } = await watch(world);
    expect(view()).toMatchObject({ hasMore: true, older: { name: "idle" } });
    expect(view().messages).toHaveLength(50);
    while (view().hasMore) {
      const loading = session.loadOlder();
      expect(view().older.name).toBe("loading");
      await world.pass(20);
      await loading;
    }
    expect(view().messages).toEqual(shown(world).messages);
    expect(world.asked("GET", "/messages")).toBe(4);
  });

  it("goes on showing new messages while a page comes", async () => {
    const world = withTurns(60);
    const { session, view } = await watch(world);
    world.intercept = (method, path) => {
      if (!path.includes("/messages?before")) return undefined;
      world.intercept = () => undefined;
      const page = world.server.answer(method, path, undefined);
      return new Promise((resolve) => setTimeout(() => resolve(page), 500));
    };
    const loading = session.loadOlder();
    world.server.script("ses_1").turn("msg_new", "New", ["Yes"]);
    await world.pass(100);
    expect(view().messages.at(-2)?.id).toBe("msg_new");
    await world.pass(500);
    await loading;
    expect(view().messages).toEqual(shown(world).messages.slice(-102));
  });

  it("asks again for a page that was read while one of its messages was being written", async () => {
    const world = new World();
    const script = world.server.script("ses_1");
    const slow = script.submit({ id: "msg_slow", parts: [{ type: "text", text: "Slow" }], background: true });
    const answer = script.start(slow, "msg_slow", true);
    script.say(slow, "One ");
    script.head = answer; // a person goes on behind an answer that is still being written
    for (let i = 0; i < 30; i++) {
      const parent = i === 0 ? { parent: answer } : {};
      const run = script.submit({ id: `msg_${i}`, parts: [{ type: "text", text: "Go" }], ...parent });
      script.start(run, `msg_${i}`);
      script.finish(run, "Done");
    }
    const { session, view } = await watch(world);
    let pages = 0;
    world.intercept = (method, path) => {
      if (!path.includes("/messages?before")) return undefined;
      const page = world.server.answer(method, path, undefined);
      if (pages++ === 0) script.say(slow, "two ");
      return Promise.resolve(page);
    };
    const loading = session.loadOlder();
    await world.pass(3_000);
    await loading;
    script.say(slow, "three");
    await world.pass(50);
    expect(pages).toBe(2);
    expect(view().messages[1]?.parts[1]?.text).toBe("One two three");
    expect(view().messages).toEqual(shown(world).messages);
  });

  it("says why earlier messages did not come, and tries again when asked", async () => {
    const world = withTurns(60);
    const { session, view } = await watch(world);
    world.intercept = (_, path) =>
      path.includes("before") ? Promise.resolve(problem(422, "invalid")) : undefined;
    await session.loadOlder();
    expect(view()).toMatchObject({ older: { name: "failed", failure: { code: "invalid" } }, hasMore: true });
    world.intercept = () => undefined;
    await session.loadOlder();
    expect(view().messages).toHaveLength(100);
  });

  it("keeps the window when the branch changes to one that was not loaded", async () => {
    const world = withTurns(60);
    const script = world.server.script("ses_1");
    // A second answer to message 30, off the branch that is shown.
    const first = script.head;
    script.turn("msg_30b", "Another 30", ["Else"], "ans_run_ses_1_29");
    const branch = script.head;
    script.head = first;
    script.write(script.event("session.updated", { head: first }));
    const { session, view } = await watch(world);
    await session.loadOlder();
    expect(view().messages).toHaveLength(100);
    script.write(script.event("session.updated", { head: branch }));
    await world.pass(50);
    expect(view()).toMatchObject({ status: { name: "live" }, head: branch });
    expect(view().messages).toEqual(shown(world).messages.slice(-view().messages.length));
    script.write(script.event("session.updated", { head: first }));
    await world.pass(50);
    expect(view().messages.length).toBeGreaterThanOrEqual(100);
    expect(view().messages).toEqual(shown(world).messages.slice(-view().messages.length));
    expect(world.asked("GET", "/sessions/ses_1?window")).toBe(2); // one to begin with, one for the other branch
  });

  it("asks for a new snapshot if the one that came is older than what it has", async () => {
    const world = withTurns(60);
    const script = world.server.script("ses_1");
    const first = script.head;
    script.turn("msg_1b", "Another root", ["Else"], "");
    const branch = script.head;
    script.write(script.event("session.updated", { head: first }));
    const { view } = await watch(world);
    const old = world.server.answer("GET", "/v1/sessions/ses_1?window=50", undefined);
    let snapshots = 0;
    world.intercept = (_, path) =>
      path.includes("window") && snapshots++ === 0 ? Promise.resolve(old) : undefined;
    script.write(script.event("session.updated", { head: branch }));
    await world.pass(1_000);
    expect(snapshots).toBe(2);
    expect(view().messages).toEqual(shown(world).messages);
  });

  it("does not let the log pile up while a snapshot does not come", async () => {
    const world = withTurns(60);
    const script = world.server.script("ses_1");
    const first = script.head;
    script.turn("msg_1b", "Another root", ["Else"], "");
    script.write(script.event("session.updated", { head: first }));
    const { view, page } = await watch(world);
    let answer = (_: Response) => {};
    world.intercept = (_, path) =>
      path.includes("window")
        ? new Promise((resolve) => {
            answer = resolve;
          })
        : undefined;
    script.turn("msg_2b", "On the other branch", ["Yes"], "ans_run_ses_1_61");
    const run = script.submit({ id: "msg_3b", parts: [{ type: "text", text: "Long" }] });
    script.start(run, "msg_3b");
    await world.pass(20);
    expect(view().status.name).toBe("behind");
    for (let i = 0; i < 21_000; i++) script.say(run, "x");
    await world.pass(1_000);
    expect(page.socket.sent.at(-1)).toMatchObject({ type: "unsubscribe", session: "ses_1" });
    answer(world.server.answer("GET", "/v1/sessions/ses_1?window=50", undefined));
    script.finish(run, "short");
    await world.pass(1_000);
    expect(view()).toMatchObject({ status: { name: "live" }, seq: script.seq });
    expect(view().messages).toEqual(shown(world).messages);
  });

  it("shows 100,000 deltas with one view a frame, each in constant work", async () => {
    const world = new World();
    const script = world.server.script("ses_1");
    const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Go" }] });
    script.start(run, "msg_1");
    const { views, view } = await watch(world);
    views.length = 0;
    world.server.live = false; // nobody folds them twice
    const total = 100_000;
    const batch = 128;
    let frames = 0;
    for (let sent = 0; sent < total; sent += batch, frames++) {
      const events = Array.from({ length: Math.min(batch, total - sent) }, () =>
        script.event(
          "text.delta",
          { message: `ans_${run}`, part: 0, text: "token " },
          { run, step: 1, attempt: 1 },
        ),
      );
      const [from, to] = [events[0]?.seq, events.at(-1)?.seq];
      world.server.deliver("ses_1", { type: "events", session: "ses_1", from, to, events });
      await world.pass(16);
    }
    expect(view().messages[1]?.parts[1]?.text).toBe("token ".repeat(total));
    expect(views).toHaveLength(frames);
    const [first, last] = [views[0], views.at(-1)];
    expect(last?.messages[0]).toBe(first?.messages[0]);
    expect(last?.runs).toBe(first?.runs);
  });
});

describe("five faults of a well-known client", () => {
  it("1: a pending approval stays when the fresh state comes before the rebuild ends", async () => {
    const world = new World();
    const script = world.server.script("ses_1");
    const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Delete" }] });
    script.start(run, "msg_1");
    const { client, view, views, page } = await watch(world);
    client.approvals.subscribe(() => {});
    const inbox = client.approvals.getSnapshot;
    await world.pass(50);
    // The approval is asked for while the page is away, and the page comes back.
    page.socket.cut();
    script.ask(run, "apr_1");
    views.length = 0;
    await world.pass(1_500);
    expect(view().approvals.map((a) => a.id)).toEqual(["apr_1"]);
    expect(inbox().items.map((a) => a.id)).toEqual(["apr_1"]);
    // It comes back again. The list of approvals is read, another one is asked for, and the list arrives late.
    let late = (_: Response) => {};
    world.intercept = (_, path) => {
      if (!path.includes("/approvals")) return undefined;
      world.intercept = () => undefined;
      return new Promise((resolve) => {
        late = resolve;
      });
    };
    const ids: string[] = [];
    client.approvals.subscribe(() =>
      ids.push(
        inbox()
          .items.map((a) => a.id)
          .join(),
      ),
    );
    page.socket.cut();
    await world.pass(2_000);
    script.decide(run, "apr_1", "approve");
    script.ask(run, "apr_2");
    late(json(200, { items: [] }));
    await world.pass(500);
    expect(ids).not.toContain("");
    expect(inbox().items.map((a) => a.id)).toEqual(["apr_2"]);
    expect(view().approvals.map((a) => a.id)).toEqual(["apr_2"]);
    expect(views.every((v) => v.approvals.length <= 1)).toBe(true);
    script.decide(run, "apr_2", "approve");
    await world.pass(500);
    expect(view().approvals).toEqual([]);
    expect(inbox().items).toEqual([]);
  });

  it("2: the window does not open with a hole: what does not join the snapshot is asked for", async () => {
    const world = withTurns(1);
    const script = world.server.script("ses_1");
    const { seq } = shown(world);
    let holes = 0;
    world.link = (message) => {
      const m = message as { type: string; from?: number };
      if (m.type === "events" && m.from === seq + 1 && holes++ === 0) return [];
      return [message];
    };
    const { views, view, page } = await watch(world);
    script.turn("msg_2", "Again", ["Yes"]);
    await world.pass(50);
    expect(holes).toBe(2);
    expect(page.socket.sent).toMatchObject([{ after: seq }, { after: seq }]);
    expect(view().messages).toEqual(shown(world).messages);
    const ids = ["msg_1", "ans_run_ses_1_1", "msg_2", "ans_run_ses_1_2"];
    for (const v of views) expect(v.messages.map((m) => m.id)).toEqual(ids.slice(0, v.messages.length));
  });

  it("3: repairing a gap keeps the older pages that are loaded", async () => {
    const world = withTurns(90);
    const script = world.server.script("ses_1");
    const { session, views, view, page } = await watch(world);
    await session.loadOlder();
    expect(view().messages).toHaveLength(100);
    views.length = 0;
    let lost = 0;
    world.link = (message) =>
      (message as { type: string }).type === "events" && lost++ === 0 ? [] : [message];
    script.turn("msg_91", "After the gap", ["Yes"]);
    await world.pass(50);
    page.socket.cut();
    script.turn("msg_92", "After the cut", ["Yes"]);
    await world.pass(1_500);
    expect(view().messages).toEqual(shown(world).messages.slice(-104));
    expect(views.every((v) => v.messages.length >= 100)).toBe(true);
    expect(world.asked("GET", "/sessions/ses_1")).toBe(2); // the snapshot and the page
  });

  it("4: a repair that hangs and is superseded leaves nothing waiting for ever", async () => {
    const world = withTurns(60);
    const script = world.server.script("ses_1");
    const first = script.head;
    script.turn("msg_1b", "Another root", ["Else"], "");
    const branch = script.head;
    script.write(script.event("session.updated", { head: first }));
    const { view, page } = await watch(world);
    // The branch changes to one that is not loaded, and the snapshot hangs.
    const hung: ((response: Response) => void)[] = [];
    world.intercept = (_, path) =>
      path.includes("window") ? new Promise((resolve) => hung.push(resolve)) : undefined;
    script.write(script.event("session.updated", { head: branch }));
    script.head = branch;
    script.turn("msg_2b", "Waits", ["Yes"]);
    await world.pass(50);
    expect(hung).toHaveLength(1);
    expect(view().status.name).toBe("behind");
    // The connection goes and comes back: another repair, and the first one answers late and wrong.
    world.intercept = () => undefined;
    page.socket.cut();
    await world.pass(1_500);
    hung[0]?.(json(200, { ...shown(world), seq: 1, messages: [] }));
    script.turn("msg_3b", "And on", ["Yes"]);
    await world.pass(50);
    expect(view()).toMatchObject({ status: { name: "live" }, seq: script.seq });
    expect(view().messages).toEqual(shown(world).messages);
  });

  it("4: a repair that hangs by itself is given up and tried again", async () => {
    const world = withTurns(1);
    let hangs = 2;
    world.intercept = (_, path) =>
      path.includes("window") && hangs-- > 0 ? new Promise(() => {}) : undefined;
    const { view } = await watch(world);
    await world.pass(10_500);
    expect(view().status).toMatchObject({ name: "loading", failure: { code: "unanswered" } });
    await world.pass(35_000);
    expect(view().status.name).toBe("live");
  });

  it("5: a repair that fails is tried again, with backoff, until it succeeds", async () => {
    const world = withTurns(60);
    const script = world.server.script("ses_1");
    const first = script.head;
    script.turn("msg_1b", "Another root", ["Else"], "");
    const branch = script.head;
    script.write(script.event("session.updated", { head: first }));
    const { view } = await watch(world);
    let failures = 0;
    world.intercept = (_, path) =>
      path.includes("window") && failures++ < 4 ? Promise.resolve(problem(500, "internal")) : undefined;
    script.write(script.event("session.updated", { head: branch }));
    await world.pass(50);
    expect(view().status).toMatchObject({ name: "behind", failure: { code: "internal" } });
    expect(view().messages).toHaveLength(50); // what was shown is shown
    await world.pass(60_000);
    expect(failures).toBe(5);
    expect(view().messages).toEqual(shown(world).messages);
    expect(view().status.name).toBe("live");
  });

  it("5: a gap that is not filled is asked for again, with backoff", async () => {
    const world = withTurns(1);
    const { view, page } = await watch(world);
    const { seq } = shown(world);
    let asked = 1;
    world.link = (message) => {
      const m = message as { type: string; from?: number };
      if (m.type === "subscribed") asked++;
      return m.type === "events" && m.from === seq + 1 && asked < 4 ? [] : [message];
    };
    world.server.script("ses_1").turn("msg_2", "Again", ["Yes"]);
    await world.pass(50);
    expect(view().seq).toBe(seq);
    await world.pass(10_000);
    expect(asked).toBe(4);
    expect(page.sockets).toHaveLength(1);
    expect(view().messages).toEqual(shown(world).messages);
  });
});

describe("what is asked of the server", () => {
  it("is nothing that changes anything, however often a page is opened", async () => {
    const world = withTurns(2);
    for (let i = 0; i < 10; i++) {
      const { client } = await watch(world);
      client.sessions.subscribe(() => {});
      client.approvals.subscribe(() => {});
      await world.pass(100);
      client.close();
    }
    expect(world.requests.filter((r) => r.method !== "GET")).toEqual([]);
  });

  it("ends when the client is closed", async () => {
    const world = withTurns(1);
    world.up = false;
    const { client } = open(world);
    client.sessions.session("ses_1").subscribe(() => {});
    client.sessions.subscribe(() => {});
    client.approvals.subscribe(() => {});
    await world.pass(5_000);
    client.close();
    const before = world.requests.length + world.connects.length;
    await world.pass(300_000);
    expect(world.requests.length + world.connects.length).toBe(before);
  });
});

describe("what nobody expects", () => {
  it("an event that cannot be folded is reported, and what the server makes of it is shown", async () => {
    const world = withTurns(1);
    const script = world.server.script("ses_1");
    const { view } = await watch(world);
    const reported = vi.fn();
    vi.stubGlobal("reportError", reported);
    const { seq } = shown(world);
    const bad = { session: "ses_1", seq: seq + 1, type: "text.delta", at: "", data: null };
    world.server.deliver("ses_1", {
      type: "events",
      session: "ses_1",
      from: seq + 1,
      to: seq + 1,
      events: [bad],
    });
    script.write(script.event("session.updated", { title: "What the server made of it" }));
    await world.pass(100);
    expect(reported).toHaveBeenCalledOnce();
    expect(view()).toMatchObject({ seq: seq + 1, status: { name: "live" } });
    expect(view().session?.title).toBe("What the server made of it");
    vi.unstubAllGlobals();
  });

  it("a listener that throws is reported, and keeps nothing from the others", async () => {
    const world = withTurns(1);
    const reported = vi.fn();
    vi.stubGlobal("reportError", reported);
    const { client, view } = await watch(world);
    const heard = vi.fn();
    const session = client.sessions.session("ses_1");
    const stops = [
      session.subscribe(() => {
        throw new Error("mine");
      }),
      session.subscribe(heard),
    ];
    world.server.script("ses_1").turn("msg_2", "On", ["Yes"]);
    await world.pass(50);
    expect(reported).toHaveBeenCalled();
    expect(heard).toHaveBeenCalledTimes(reported.mock.calls.length);
    expect(view().messages).toHaveLength(4);
    for (const stop of stops) stop();
    vi.unstubAllGlobals();
  });
});
