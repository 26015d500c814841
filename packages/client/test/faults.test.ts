/**
 * Faults that the field has reported of such clients, by the ids of our
 * catalogue. Those of the outbox, the connection and JSON are with their tests.
 */

import { describe, expect, it, vi } from "vitest";
import type { Message } from "../src/wire.ts";
import { conversations } from "./cases.ts";
import { inFakeTime, open, watch, withTurns } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

const text = (message: Message | undefined) => message?.parts.map((part) => part.text ?? "").join("");

/** A session whose run is open, and the pieces that it will say. */
function answering(world: World, id = "ses_1") {
  const script = world.server.script(id);
  const run = script.submit({ id: `msg_${id}`, parts: [{ type: "text", text: "Hello" }] });
  script.start(run, `msg_${id}`);
  return { script, run };
}

describe("resume", () => {
  it("RG-01: no event falls between the snapshot and the log, whenever a page opens", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const pages = [];
    for (let n = 1; n <= 500; n++) {
      script.say(run, `${n} `);
      if (n % 25 === 0) pages.push(watch(world));
      if (n % 10 === 0) await world.pass(n % 7);
    }
    const all = await Promise.all(pages);
    await world.pass(50);
    const want = Array.from({ length: 500 }, (_, i) => `${i + 1} `).join("");
    for (const { view } of all) expect(text(view().messages[1])).toBe(want);
  });

  it("RG-03: a cursor in a folded range goes on behind it, and one ahead of the log begins anew", async () => {
    const world = withTurns(1);
    const { script, run } = answering(world);
    const { view, page } = await watch(world);
    script.say(run, "Hel");
    await world.pass(20);
    world.up = false;
    page.socket.cut();
    script.say(run, "lo ");
    script.say(run, "world");
    script.finish(run, "Hello world");
    world.server.fold("ses_1");
    world.up = true;
    await world.pass(2_000);
    expect(text(view().messages.at(-1))).toBe("Hello world");
    expect(world.asked("GET", "window")).toBe(1);
    page.socket.cut();
    world.server.replace("ses_1", withTurns(1).server.log("ses_1"));
    await world.pass(2_000);
    expect(view().messages).toEqual(world.server.state("ses_1").shown.messages);
  });

  it("RG-05: a cursor that the server refuses is dropped, and a snapshot taken", async () => {
    const world = withTurns(1);
    const { view, page } = await watch(world);
    const { length } = page.socket.sent;
    page.socket.deliver({ type: "error", session: "ses_1", code: "invalid_cursor", detail: "" });
    world.server.script("ses_1").turn("msg_2", "On", ["Yes"]);
    await world.pass(1_000);
    expect(world.asked("GET", "window")).toBe(2);
    expect(page.socket.sent.length).toBe(length + 1);
    expect(view().messages).toEqual(world.server.state("ses_1").shown.messages);
  });

  it("RG-06: heartbeats move no cursor, on either transport", async () => {
    for (const over of [{}, { WebSocket: undefined }]) {
      const world = new World();
      const { script, run } = answering(world);
      const { view, page } = await watch(world, "ses_1", world.page(over));
      for (let i = 0; i < 10; i++) {
        script.say(run, `${i}`);
        for (const beat of world.server.beats) beat();
        page.sockets.at(-1)?.deliver({ type: "heartbeat" });
        page.sockets.at(-1)?.cut();
        for (const end of [...world.server.streams]) end("cut");
        await world.pass(40_000);
      }
      expect(text(view().messages[1])).toBe("0123456789");
    }
  });

  it("RG-08: the end of a run shows, although the connection died at that moment without a word", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const { view, page } = await watch(world);
    await world.pass(20_000);
    page.socket.dead = true;
    script.finish(run, "The end");
    await world.pass(20_000);
    expect(view().run?.status).toBe("running");
    await world.pass(30_000);
    expect(page.sockets).toHaveLength(2);
    expect(view()).toMatchObject({ run: undefined, session: { status: "idle" } });
    expect(text(view().messages[1])).toBe("The end");
  });

  it("RG-10: who rejoins gets every type of event, children and unknown ones too", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const types = (list: string[]) => list.filter((type) => type !== "text.delta").join();
    const { view, page, client } = await watch(world);
    page.socket.cut();
    script.write(
      script.event(
        "run.queued",
        { agent: "child", input: "msg_c", message: "ans_c", parentRunId: run },
        { run: "run_c" },
      ),
      script.event("moon.rose", { phase: "full" }),
    );
    script.say(run, "x");
    await world.pass(2_000);
    expect(view()).toMatchObject({ seq: script.seq });
    expect(view().runs.map((r) => r.parentRunId)).toContain(run);
    const all = await client.api.events("ses_1");
    expect(types(all.frames.map((f) => f.type))).toContain("run.queued,moon.rose");
  });
});

describe("doubles", () => {
  it("DU-01: text is not doubled: on the same page, on a fresh one, or by a proxy that repeats", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const one = await watch(world);
    script.say(run, "Hello");
    script.say(run, " wor");
    await world.pass(20);
    one.page.socket.cut();
    const two = await watch(world);
    const sent: object[] = [];
    world.link = (message) => {
      if ((message as { type: string }).type !== "events") return [message];
      sent.push(message);
      return [...sent.slice(-3), message];
    };
    await world.pass(2_000);
    script.say(run, "ld");
    await world.pass(20);
    for (const { view } of [one, two]) {
      expect(text(view().messages[1])).toBe("Hello world");
      expect(view().messages[1]?.parts).toHaveLength(2);
    }
  });

  it("DU-02: a page that is loaded in the second turn does not take the first answer for it", async () => {
    const world = withTurns(1);
    const script = world.server.script("ses_1");
    const run = script.submit({ id: "msg_2", parts: [{ type: "text", text: "two" }] });
    script.start(run, "msg_2");
    script.say(run, "ANSWER-");
    const { view } = await watch(world);
    script.say(run, "2");
    script.finish(run, "ANSWER-2");
    await world.pass(20);
    expect(view().messages.map(text)).toEqual(["Question 1", "Answer 1.", "two", "ANSWER-2"]);
    const again = await watch(world);
    expect(again.view().messages).toEqual(view().messages);
  });
});

describe("several sessions and tabs", () => {
  it("MT-01: two tabs that send at once show the same, in the same order", async () => {
    const world = withTurns(1);
    const one = await watch(world);
    const two = await watch(world);
    one.session.send("A");
    two.session.send("B");
    one.session.send("C");
    await world.pass(50);
    expect(one.view().messages).toEqual(two.view().messages);
    const said = one.view().messages.slice(2).map(text);
    expect([...said].sort()).toEqual(["A", "B", "C"]);
    expect(said.indexOf("A")).toBeLessThan(said.indexOf("C"));
    expect([...one.view().pending, ...two.view().pending]).toEqual([]);
  });

  it("MT-03: sessions do not bleed into each other while a page switches between them", async () => {
    const world = new World();
    const one = answering(world, "ses_1");
    const two = answering(world, "ses_2");
    const { client } = open(world);
    const foreign: string[] = [];
    let stop = () => {};
    for (let i = 0; i < 200; i++) {
      one.script.say(one.run, "S1-");
      two.script.say(two.run, "S2-");
      if (i % 5 === 0) {
        stop();
        const id = i % 10 === 0 ? "ses_1" : "ses_2";
        const session = client.sessions.session(id);
        stop = session.subscribe(() => {
          const said = text(session.getSnapshot().messages[1]) ?? "";
          if (said.includes(id === "ses_1" ? "S2" : "S1")) foreign.push(said);
        });
      }
      await world.pass(20);
    }
    expect(foreign).toEqual([]);
    for (const id of ["ses_1", "ses_2"]) {
      const { view } = await watch(world, id);
      expect(text(view().messages[1])).toBe(`S${id.slice(4)}-`.repeat(200));
    }
  });

  it("MT-04: who repeats a lost start gets his own answer, and not that of another tab", async () => {
    const world = withTurns(1);
    const one = await watch(world);
    const two = await watch(world);
    let lost = 0;
    world.intercept = (method, path) => {
      if (method !== "POST" || lost++ > 0) return undefined;
      world.server.answer(method, path, world.requests.at(-1)?.body);
      return Promise.reject(new TypeError("Load failed"));
    };
    const a = one.session.send("a");
    await world.pass(10);
    const b = two.session.send("b");
    await world.pass(2_000);
    const script = world.server.script("ses_1");
    for (const { id } of [a, b]) {
      const run = script.submitted.get(id)?.run ?? "";
      script.start(run, id);
      script.finish(run, `re:${id}`);
    }
    await world.pass(20);
    for (const { view } of [one, two]) {
      const answers = view().messages.filter((m) => m.role === "assistant" && m.parent !== "msg_1");
      for (const answer of answers) expect(text(answer)).toBe(`re:${answer.parent}`);
    }
    expect(one.view().messages).toEqual(two.view().messages);
  });

  it("MT-06: a page that nobody looks at holds no HTTP stream, and one that is looked at two at most", async () => {
    const world = new World();
    const ids = ["ses_1", "ses_2", "ses_3", "ses_4"];
    const scripts = ids.map((id) => answering(world, id));
    const { client, page } = open(world, world.page({ WebSocket: undefined }));
    const sessions = ids.map((id) => client.sessions.session(id));
    for (const session of sessions) session.subscribe(() => {});
    await world.pass(100);
    expect(world.server.streams.size).toBe(2);
    for (const { script, run } of scripts) script.say(run, "visible ");
    await world.pass(3_100);
    for (const session of sessions) expect(text(session.getSnapshot().messages[1])).toBe("visible ");
    page.signal("hidden");
    await world.pass(100);
    expect(world.server.streams.size).toBe(0);
    for (const { script, run } of scripts) script.say(run, "hidden ");
    await world.pass(15_100);
    for (const session of sessions) expect(text(session.getSnapshot().messages[1])).toBe("visible hidden ");
    for (const { script, run } of scripts) script.say(run, "back");
    page.signal("visible");
    await world.pass(100);
    expect(world.server.streams.size).toBe(2);
    for (const session of sessions)
      expect(text(session.getSnapshot().messages[1])).toBe("visible hidden back");
    expect(client.connection.getSnapshot().name).toBe("open");
  });
});

describe("the network", () => {
  it("TP-02: a long silence with heartbeats ends nothing, on either transport", async () => {
    for (const over of [{}, { WebSocket: undefined }]) {
      const world = new World();
      answering(world);
      const { client, page, view } = await watch(world, "ses_1", world.page(over));
      const states: string[] = [];
      client.connection.subscribe(() => states.push(client.connection.getSnapshot().name));
      for (let i = 0; i < 20; i++) {
        await world.pass(15_000);
        page.sockets.at(-1)?.deliver({ type: "heartbeat" });
        for (const beat of world.server.beats) beat();
      }
      expect(states).toEqual([]);
      expect(view().status.name).toBe("live");
    }
  });

  it("TP-04: a clean end in the middle of a run is no end of the run", async () => {
    const world = new World();
    const { script, run } = answering(world);
    world.server.life = 5_000;
    const { view, views, client } = await watch(world, "ses_1", world.page({ WebSocket: undefined }));
    let ends = 0;
    client.connection.subscribe(() => {
      if (client.connection.getSnapshot().name === "waiting") ends++;
    });
    for (let i = 1; i <= 30; i++) {
      script.say(run, `${i} `);
      await world.pass(1_000);
    }
    expect(ends).toBe(5);
    script.finish(run, "done");
    expect(views.every((v) => v.messages.length < 2 || v.run?.status === "running")).toBe(true);
    await world.pass(5_000);
    expect(view().run).toBeUndefined();
    const said = views.map((v) => text(v.messages[1]));
    expect(said).toContain(Array.from({ length: 30 }, (_, i) => `${i + 1} `).join(""));
  });

  it("a stream that falls silent is replaced, and a goodbye's wait is kept", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const { view, client } = await watch(world, "ses_1", world.page({ WebSocket: undefined }));
    world.server.mute = true;
    script.say(run, "unheard");
    await world.pass(40_000);
    expect(view().messages[1]?.parts).toHaveLength(1);
    world.server.mute = false;
    await world.pass(10_000);
    expect(text(view().messages[1])).toBe("unheard");
    for (const end of [...world.server.streams]) end("goodbye");
    await world.pass(0);
    expect(client.connection.getSnapshot()).toMatchObject({
      name: "waiting",
      reason: "goodbye",
      asked: true,
    });
    const before = world.requests.length;
    await world.pass(3_900);
    expect(world.requests.length).toBe(before);
    await world.pass(200);
    expect(client.connection.getSnapshot().name).toBe("open");
  });

  it.each([
    ["rejects like a phone does", new TypeError("Load failed")],
    ["is aborted, and not by us", new DOMException("The user aborted a request.", "AbortError")],
  ])("TP-05: a read that %s is a lost connection: no error, no cancel", async (_, error) => {
    const world = new World();
    const { script, run } = answering(world);
    const { view } = await watch(world, "ses_1", world.page({ WebSocket: undefined }));
    for (const end of [...world.server.streams]) end(error);
    script.finish(run, "done");
    await world.pass(2_000);
    expect(text(view().messages[1])).toBe("done");
    expect(view().status.name).toBe("live");
    expect(world.requests.filter((r) => r.method !== "GET")).toEqual([]);
  });

  it("TP-05: a read that never ends while the page is frozen is replaced within 3 s of its return", async () => {
    for (const over of [{}, { WebSocket: undefined }]) {
      const world = new World();
      const { script, run } = answering(world);
      const { view, page } = await watch(world, "ses_1", world.page(over));
      page.visible = false;
      if (page.sockets[0]) page.sockets[0].dead = true;
      world.server.mute = true;
      script.finish(run, "done");
      vi.setSystemTime(Date.now() + 60_000); // no timer runs in a frozen page
      world.server.mute = false;
      page.signal("visible");
      page.signal("shown");
      await world.pass(3_000);
      expect(text(view().messages[1])).toBe("done");
      expect(view()).toMatchObject({ run: undefined, status: { name: "live" } });
      expect(world.requests.filter((r) => r.method !== "GET")).toEqual([]);
    }
  });
});

describe("what is shown", () => {
  it.each(conversations())(
    "UI-01: when all runs of $name have ended, nothing is shown as running",
    ({ states }) => {
      for (const state of Object.values(states)) {
        for (const message of state.messages) {
          const run = state.runs.find((r) => r.message === message.id);
          if (!run?.finishedAt) continue;
          expect(message.status).not.toBe("streaming");
          for (const part of message.parts) {
            expect(part.state).not.toBe("streaming");
            if (part.tool) expect(part.tool.endedAt).toBeDefined();
          }
        }
      }
    },
  );

  it("UI-04: a run that waits for an answer is not over, and says what it waits for", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const { view } = await watch(world);
    script.ask(run, "apr_1");
    await world.pass(20);
    expect(view()).toMatchObject({
      run: { status: "waiting", waitingReason: "approval" },
      session: { status: "waiting", approvals: 1 },
      approvals: [{ id: "apr_1", call: "call_apr_1" }],
      messages: [{}, { status: "streaming" }],
    });
  });

  it("UI-06: an answer that was cut before its first word says so, with a run to retry", async () => {
    const world = new World();
    const { script, run } = answering(world);
    const { view } = await watch(world);
    const usage = { inputTokens: 0, outputTokens: 0 };
    script.write(
      script.event("message.interrupted", { message: `ans_${run}`, reason: "failed" }, { run }),
      script.event("run.failed", { error: { code: "unauthorized", message: "no key" }, usage }, { run }),
    );
    await world.pass(20);
    expect(view().messages[1]).toMatchObject({ status: "interrupted", reason: "failed", run });
    expect(view().runs[0]).toMatchObject({ id: run, status: "failed", error: { code: "unauthorized" } });
    expect(view().run).toBeUndefined();
  });

  it("SM-03: a very long session opens with a window, and comes back for what was missed only", async () => {
    const world = withTurns(1_000);
    const { view, page } = await watch(world);
    expect(view().messages).toHaveLength(50);
    const { seq } = view();
    page.socket.cut();
    world.server.script("ses_1").turn("msg_new", "New", ["Yes"]);
    let events = 0;
    world.link = (message) => {
      events += (message as { events?: unknown[] }).events?.length ?? 0;
      return [message];
    };
    await world.pass(2_000);
    expect(events).toBe(world.server.script("ses_1").seq - seq);
    expect(view().messages.at(-2)?.id).toBe("msg_new");
  });
});
