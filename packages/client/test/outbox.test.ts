import { describe, expect, it } from "vitest";
import { json, problem } from "./answers.ts";
import { inFakeTime, open, watch, withTurns } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

const posts = (world: World) =>
  world.requests.filter((r) => r.method === "POST" && r.path.endsWith("/messages"));
const runs = (world: World, id = "ses_1") =>
  world.server.log(id).filter((frame) => frame.type === "run.queued").length;
const kept = (world: World) => [...world.storage.values.keys()].filter((key) => key.includes("outbox"));

describe("a submission", () => {
  it("has its id before it is sent, is kept until acknowledged, and shows until the log has it", async () => {
    const world = withTurns(1);
    const { session, view, views } = await watch(world);
    const pending = session.send("Hello");
    expect(pending).toMatchObject({
      id: "msg_p2",
      session: "ses_1",
      parts: [{ type: "text", text: "Hello" }],
    });
    expect(view().pending.map((p) => p.id)).toEqual(["msg_p2"]);
    expect(kept(world)).toHaveLength(1);
    await world.pass(50);
    expect(kept(world)).toHaveLength(0);
    expect(view().pending).toEqual([]);
    expect(view().messages.at(-1)).toMatchObject({ id: "msg_p2", role: "user" });
    for (const v of views) {
      const both = [...v.messages.map((m) => m.id), ...v.pending.map((p) => p.id)];
      expect(new Set(both).size).toBe(both.length);
    }
  });

  it("makes a session that was not there", async () => {
    const world = new World();
    const { client } = open(world);
    const session = client.sessions.create();
    const names: string[] = [];
    session.subscribe(() => names.push(session.getSnapshot().status.name));
    session.send("The first words");
    await world.pass(50);
    expect(session.getSnapshot()).toMatchObject({
      status: { name: "live" },
      session: { title: "The first words" },
      messages: [{ role: "user" }],
      pending: [],
    });
    expect(names).not.toContain("missing");
    expect(world.asked("GET", "/v1/sessions/")).toBe(0); // its log is read from the beginning
  });

  it("is sent again with the same id when the answer is lost, and is accepted once (DU-05)", async () => {
    const world = withTurns(1);
    const { session, view } = await watch(world);
    let lost = 0;
    world.intercept = (method, path) => {
      if (method !== "POST" || lost++ >= 3) return undefined;
      // The first is done and its answer is lost; a proxy answers the second; nothing answers the third.
      if (lost === 1) world.server.answer(method, path, posts(world)[0]?.body);
      if (lost === 2) return Promise.resolve(new Response("Bad Gateway", { status: 502 }));
      return Promise.reject(new TypeError("Load failed"));
    };
    session.send("Once");
    await world.pass(20);
    expect(view().pending).toEqual([]); // the log has it already
    await world.pass(30_000);
    expect(posts(world)).toHaveLength(4);
    expect(new Set(posts(world).map((r) => JSON.stringify(r.body))).size).toBe(1);
    expect(runs(world)).toBe(2);
    expect(view().messages.filter((m) => m.role === "user")).toHaveLength(2);
    expect(kept(world)).toHaveLength(0);
  });

  it("says when it is tried again, and is at once when the connection is back", async () => {
    const world = withTurns(1);
    const { session, view, page } = await watch(world);
    world.up = false;
    page.socket.cut();
    session.send("Later");
    await world.pass(60_000);
    expect(view().pending).toMatchObject([
      { state: { name: "waiting", reason: { code: "unanswered", retryable: true } } },
    ]);
    expect(posts(world).length).toBeLessThan(10);
    world.up = true;
    await world.pass(30_000);
    expect(view().pending).toEqual([]);
    expect(runs(world)).toBe(2);
  });

  it("waits as long as the server says", async () => {
    const world = withTurns(1);
    const { session } = await watch(world);
    world.intercept = (method) => {
      if (method !== "POST" || posts(world).length > 1) return undefined;
      return Promise.resolve(problem(503, "unavailable", { retryAfterMs: 9_000 }));
    };
    session.send("Patience");
    await world.pass(8_900);
    expect(posts(world)).toHaveLength(1);
    await world.pass(200);
    expect(posts(world)).toHaveLength(2);
  });

  it("survives a reload at any moment, and no reload sends it twice (UI-06)", async () => {
    const world = withTurns(1);
    const first = await watch(world);
    world.up = false;
    first.session.send("Survive");
    await world.pass(10);
    first.client.close();
    for (let i = 0; i < 5; i++) {
      const { client, view } = await watch(world);
      await world.pass(700);
      expect(view().pending).toMatchObject([{ id: "msg_p2", parts: [{ text: "Survive" }] }]);
      client.close();
    }
    world.up = true;
    for (let i = 0; i < 5; i++) {
      const { client, view } = await watch(world);
      await world.pass(1_000);
      expect(view().pending).toEqual([]);
      expect(view().messages.at(-1)?.parts).toEqual([{ type: "text", text: "Survive" }]);
      client.close();
    }
    expect(runs(world)).toBe(2);
    expect(new Set(posts(world).map((r) => (r.body as { id: string }).id))).toEqual(new Set(["msg_p2"]));
  });

  it("goes in the order in which things were said, one after the other", async () => {
    const world = withTurns(1);
    const { session, view } = await watch(world);
    const answers: (() => void)[] = [];
    world.intercept = (method, path) =>
      method === "POST"
        ? new Promise((resolve) =>
            answers.push(() => resolve(world.server.answer(method, path, posts(world).at(-1)?.body))),
          )
        : undefined;
    for (const text of ["one", "two", "three"]) session.send(text);
    expect(view().pending.map((p) => p.state.name)).toEqual(["sending", "queued", "queued"]);
    for (let i = 0; i < 3; i++) {
      await world.pass(20);
      expect(answers).toHaveLength(i + 1);
      answers[i]?.();
    }
    await world.pass(20);
    expect(
      view()
        .messages.slice(2)
        .map((m) => m.parts[0]?.text),
    ).toEqual(["one", "two", "three"]);
  });

  it("keeps two that say the same apart (DU-04)", async () => {
    const world = withTurns(1);
    const { session, view, views } = await watch(world);
    session.send("ok");
    session.send("ok");
    expect(view().pending).toHaveLength(2);
    await world.pass(50);
    const oks = (v: (typeof views)[number]) =>
      [...v.messages, ...v.pending].filter((m) => JSON.stringify(m.parts).includes('"ok"')).length;
    const counts = views.map(oks);
    expect(counts.slice(counts.indexOf(2)).every((count) => count === 2)).toBe(true); // from the second on, at all times
    expect(oks(view())).toBe(2);
  });

  it.each([
    [409, "message_conflict"],
    [409, "run_active"],
    [422, "invalid"],
    [413, "too_large"],
    [429, "inbox_full"],
  ])("that is refused with %d %s goes back to the composer, even after a reload", async (status, code) => {
    const world = withTurns(1);
    const one = await watch(world);
    world.intercept = (method) => (method === "POST" ? Promise.resolve(problem(status, code)) : undefined);
    one.session.send("Not this", { onBusy: "reject" });
    await world.pass(50);
    expect(one.view().pending).toMatchObject([{ state: { name: "failed", reason: { code } } }]);
    await world.pass(60_000);
    expect(posts(world)).toHaveLength(1);
    one.client.close();
    const two = await watch(world);
    await world.pass(1_000);
    expect(two.view().pending).toMatchObject([{ state: { name: "failed", reason: { code } } }]);
    expect(posts(world)).toHaveLength(1);
    expect(two.session.takeBack("msg_p2")).toEqual({
      id: "msg_p2",
      parts: [{ type: "text", text: "Not this" }],
      onBusy: "reject",
    });
    expect(two.view().pending).toEqual([]);
    expect(kept(world)).toEqual([]);
  });

  it("lets the next one go although it was refused", async () => {
    const world = withTurns(1);
    const { session, view } = await watch(world);
    world.intercept = (method) =>
      method === "POST" && posts(world).length === 1 ? Promise.resolve(problem(422, "invalid")) : undefined;
    session.send("bad");
    session.send("good");
    await world.pass(50);
    expect(view().pending.map((p) => p.state.name)).toEqual(["failed"]);
    expect(view().messages.at(-1)?.parts[0]?.text).toBe("good");
  });

  it("can be taken back while it waits, and not while it is on its way or accepted", async () => {
    const world = withTurns(1);
    const { session, view } = await watch(world);
    world.up = false;
    const { id } = session.send("Never mind");
    expect(session.takeBack(id)).toBeUndefined();
    await world.pass(10);
    expect(view().pending[0]?.state.name).toBe("waiting");
    expect(session.takeBack(id)).toMatchObject({ id });
    world.up = true;
    await world.pass(60_000);
    expect(runs(world)).toBe(1);
    const sent = session.send("This");
    await world.pass(1);
    expect(session.takeBack(sent.id)).toBeUndefined();
  });

  it("is sent although the browser keeps nothing", async () => {
    const world = withTurns(1);
    const refuse = () => {
      throw new DOMException("full", "QuotaExceededError");
    };
    const storage = { getItem: refuse, setItem: refuse, removeItem: refuse, key: refuse, length: 0 };
    const { session, view } = await watch(world, "ses_1", world.page({ storage, channel: undefined }));
    session.send("Hello");
    await world.pass(50);
    expect(view().messages.at(-1)?.parts[0]?.text).toBe("Hello");
  });

  it("of another version's making is left alone", async () => {
    const world = withTurns(1);
    world.storage.setItem("holdfast:http://server:outbox:x", "not json");
    world.storage.setItem("holdfast:http://server:outbox:y", '{"other":1}');
    const { view } = await watch(world);
    await world.pass(1_000);
    expect(view().pending).toEqual([]);
    expect(kept(world)).toHaveLength(2);
  });

  it("keeps integers that JavaScript would round", async () => {
    const world = withTurns(1);
    let body = "";
    world.intercept = (method, _, init) => {
      if (method !== "POST") return undefined;
      body = String(init?.body);
      return Promise.resolve(json(202, { message: {}, run: {}, seq: 1 }));
    };
    const { session } = await watch(world);
    session.send([{ type: "data", data: { id: 2512292042121000001n } }]);
    await world.pass(20);
    expect(body).toContain('"id":2512292042121000001');
  });
});

describe("two tabs", () => {
  it("show each other's submissions, and only one of them sends", async () => {
    const world = withTurns(1);
    const one = await watch(world);
    const two = await watch(world);
    world.up = false;
    one.session.send("From one");
    await world.pass(10);
    expect(two.view().pending).toMatchObject([{ parts: [{ text: "From one" }], state: { name: "queued" } }]);
    world.requests.length = 0;
    two.page.signal("visible");
    two.page.signal("online");
    await world.pass(2_000);
    world.up = true;
    await world.pass(10_000);
    expect(runs(world)).toBe(2);
    expect(one.view().messages).toEqual(two.view().messages);
    expect(one.view().pending).toEqual([]);
    expect(two.view().pending).toEqual([]);
    const bodies = posts(world).length;
    await world.pass(60_000);
    expect(posts(world)).toHaveLength(bodies);
  });

  it("take over from one that is gone, when they look again", async () => {
    const world = withTurns(1);
    const one = await watch(world);
    const two = await watch(world);
    world.up = false;
    one.session.send("Orphan");
    await world.pass(10);
    one.client.close();
    world.up = true;
    await world.pass(10_000);
    expect(runs(world)).toBe(1);
    two.page.signal("visible");
    await world.pass(1_000);
    expect(runs(world)).toBe(2);
    expect(two.view().pending).toEqual([]);
  });

  it("do not send twice what both took for an orphan, though they cannot speak to each other", async () => {
    const world = withTurns(1);
    const one = await watch(world, "ses_1", world.page({ channel: undefined }));
    world.up = false;
    one.session.send("Alone");
    await world.pass(10);
    world.up = true;
    const two = await watch(world, "ses_1", world.page({ channel: undefined }));
    await world.pass(30_000);
    expect(posts(world).length).toBeGreaterThanOrEqual(2);
    expect(runs(world)).toBe(2);
    expect(one.view().messages).toEqual(two.view().messages);
    expect([...one.view().pending, ...two.view().pending]).toEqual([]);
  });

  it("take a failed one back once", async () => {
    const world = withTurns(1);
    const one = await watch(world);
    const two = await watch(world);
    world.intercept = (method) => (method === "POST" ? Promise.resolve(problem(422, "invalid")) : undefined);
    const { id } = one.session.send("Bad");
    await world.pass(50);
    expect(two.view().pending).toMatchObject([{ state: { name: "failed" } }]);
    expect(two.session.takeBack(id)).toBeDefined();
    await world.pass(10);
    expect(one.view().pending).toEqual([]);
    expect(one.session.takeBack(id)).toBeUndefined();
  });

  it("share what is typed and what was read", async () => {
    const world = withTurns(1);
    const one = open(world).client;
    const two = open(world).client;
    let heard = 0;
    two.drafts.subscribe(() => heard++);
    one.drafts.set("ses_1", "half a sen");
    await world.pass(1);
    expect([heard, two.drafts.get("ses_1")]).toEqual([1, "half a sen"]);
    one.close();
    two.close();
    const three = open(world).client;
    expect(three.drafts.get("ses_1")).toBe("half a sen");
    three.drafts.set("ses_1", "");
    expect(open(world).client.drafts.get("ses_1")).toBe("");
    expect([...world.storage.values.keys()].filter((key) => key.includes("draft"))).toEqual([]);
  });
});
