import { describe, expect, it, vi } from "vitest";
import type { Connection, ConnectionState } from "../src/connection.ts";
import { problem } from "./answers.ts";
import { inFakeTime, open, watch, withTurns } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

const state = (client: { connection: Connection }): ConnectionState => client.connection.getSnapshot();

/** A page that looks at the list, and so has a connection. */
async function connected(world = new World()) {
  const { client, page } = open(world);
  client.sessions.subscribe(() => {});
  const states: string[] = [];
  client.connection.subscribe(() => states.push(state(client).name));
  await world.pass(20);
  return { world, client, page, states };
}

describe("a connection", () => {
  it("is there when somebody follows something, and goes a while after the last has left", async () => {
    const world = withTurns(1);
    const { client } = open(world);
    await world.pass(60_000);
    expect(state(client)).toEqual({ name: "closed" });
    expect(world.connects).toHaveLength(0);
    const stop = client.sessions.subscribe(() => {});
    expect(state(client)).toEqual({ name: "connecting", attempt: 1 });
    await world.pass(20);
    expect(state(client)).toEqual({ name: "open", since: expect.any(Number), transport: "socket" });
    stop();
    const again = client.sessions.subscribe(() => {});
    await world.pass(20_000);
    expect(state(client).name).toBe("open");
    again();
    await world.pass(6_000);
    expect(state(client)).toEqual({ name: "closed" });
  });

  it("is one WebSocket for all that a page looks at", async () => {
    const world = withTurns(1);
    withTurns(1, world, "ses_2");
    const { client, page } = await watch(world);
    client.sessions.session("ses_2").subscribe(() => {});
    client.sessions.subscribe(() => {});
    client.approvals.subscribe(() => {});
    await world.pass(50);
    expect(page.sockets).toHaveLength(1);
  });

  it("waits longer with each failure, by chance half of it, and forgets failures after a stable time only", async () => {
    const { world, client, page } = await connected();
    const waits: number[] = [];
    const lose = async () => {
      page.socket.cut();
      const now = state(client);
      if (now.name !== "waiting") throw new Error(`the connection is ${now.name}`);
      waits.push(now.retryAt - Date.now());
      await world.pass(now.retryAt - Date.now() + 20);
      expect(state(client).name).toBe("open");
    };
    world.random = () => 0;
    for (let i = 0; i < 7; i++) await lose();
    expect(waits.splice(0)).toEqual([500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    world.random = () => 0.999999;
    await lose();
    expect(Math.round(waits.splice(0)[0] ?? 0)).toBe(30_000);
    await world.pass(4_900);
    await lose();
    expect(Math.round(waits.splice(0)[0] ?? 0)).toBe(30_000);
    await world.pass(5_000);
    await lose();
    expect(Math.round(waits[0] ?? 0)).toBe(1_000);
  });

  it("comes back when the server said, no sooner, whatever wakes it", async () => {
    const { world, client, page } = await connected();
    page.socket.deliver({ type: "goodbye", retryAfterMs: 7_000 });
    page.socket.cut();
    expect(state(client)).toMatchObject({ name: "waiting", reason: "goodbye", asked: true });
    await world.pass(3_000);
    page.signal("visible");
    page.signal("online");
    await world.pass(3_900);
    expect(world.connects).toHaveLength(1);
    await world.pass(200);
    expect(state(client).name).toBe("open");
  });

  it("tries at once when a person asks for it", async () => {
    const { world, client, page } = await connected();
    page.socket.deliver({ type: "goodbye", retryAfterMs: 60_000 });
    page.socket.cut();
    client.connection.retry();
    await world.pass(20);
    expect(state(client).name).toBe("open");
  });

  it("takes 45 s of silence for its end, and lives on heartbeats", async () => {
    const { world, client, page } = await connected();
    for (let i = 0; i < 20; i++) {
      await world.pass(15_000);
      page.socket.deliver({ type: "heartbeat" });
    }
    expect(page.sockets).toHaveLength(1);
    await world.pass(44_000);
    expect(state(client).name).toBe("open");
    await world.pass(10_000);
    expect(page.sockets).toHaveLength(2);
    expect(state(client).name).toBe("open");
  });

  it.each(["online", "visible", "shown"] as const)(
    "probes at once on %s, and keeps what answers",
    async (signal) => {
      const { world, client, page } = await connected();
      await world.pass(30_000);
      page.signal(signal);
      expect(page.socket.sent.at(-1)).toMatchObject({ type: "unsubscribe", session: "probe" });
      await world.pass(10_000);
      expect(page.sockets).toHaveLength(1);
      expect(state(client).name).toBe("open");
    },
  );

  it.each(["online", "visible", "shown", "offline"] as const)(
    "replaces a dead socket within 3 s of %s, without a wait",
    async (signal) => {
      const { world, client, page } = await connected();
      await world.pass(30_000);
      world.deaf = true;
      page.signal(signal);
      await world.pass(1_900);
      expect(page.sockets).toHaveLength(1);
      world.deaf = false;
      await world.pass(1_000);
      expect(page.sockets).toHaveLength(2);
      expect(state(client).name).toBe("open");
    },
  );

  it("finds out by itself that the machine slept", async () => {
    const { world, client, page } = await connected();
    world.deaf = true;
    vi.setSystemTime(Date.now() + 3_600_000); // timers stood still
    await world.pass(10_000); // the next one is an hour late
    expect(page.socket.sent.at(-1)).toMatchObject({ session: "probe" });
    world.deaf = false;
    await world.pass(2_100);
    expect(page.sockets).toHaveLength(2);
    expect(state(client).name).toBe("open");
  });

  it("does not take late timers for silence: what came meanwhile is delivered first", async () => {
    const { world, page } = await connected();
    vi.setSystemTime(Date.now() + 300_000);
    await world.pass(10_000);
    page.socket.deliver({ type: "heartbeat" });
    await world.pass(20_000);
    expect(page.sockets).toHaveLength(1);
  });

  it("comes back at once when the network does, and not in a storm of signals", async () => {
    const { world, client, page } = await connected();
    world.up = false;
    page.signal("offline");
    page.socket.cut();
    expect(state(client)).toMatchObject({ name: "waiting", reason: "offline" });
    await world.pass(60_000);
    const { length } = world.connects;
    for (let i = 0; i < 100; i++) {
      page.signal("offline");
      page.signal("online");
      await world.pass(20);
    }
    expect(world.connects.length - length).toBeLessThanOrEqual(3);
    world.up = true;
    await world.pass(1_000);
    page.signal("online");
    await world.pass(20);
    expect(state(client).name).toBe("open");
  });

  it("says in a code why it waits", async () => {
    const refusals = [
      [undefined, "unreachable"],
      [problem(503, "unavailable", { retryAfterMs: 5_000 }), "unavailable"],
      [problem(503, "too_many_streams"), "full"],
      [problem(401, "unauthenticated"), "unauthenticated"],
      [problem(403, "forbidden_host"), "forbidden"],
    ] as const;
    for (const [answer, reason] of refusals) {
      const world = new World();
      world.up = false;
      world.intercept = (_, path) => (path === "/v1/connect" && answer ? Promise.resolve(answer) : undefined);
      const { client } = await connected(world);
      expect(state(client)).toMatchObject({ name: "waiting", reason, asked: reason === "unavailable" });
      client.close();
    }
  });

  it("goes on over HTTP where WebSockets are blocked, and tries them again later", async () => {
    const world = withTurns(1);
    const { client, page, view } = await watch(world);
    const before = world.connects.length;
    world.blocked = true;
    page.socket.cut();
    await world.pass(3_000);
    expect(state(client)).toMatchObject({ name: "open", transport: "sse" });
    expect(world.connects.length - before).toBe(2);
    world.server.script("ses_1").turn("msg_2", "Over HTTP", ["Yes"]);
    await world.pass(50);
    expect(view().messages).toEqual(world.server.state("ses_1").shown.messages);
    world.blocked = false;
    await world.pass(310_000);
    for (const end of [...world.server.streams]) end("cut");
    await world.pass(3_000);
    expect(state(client)).toMatchObject({ name: "open", transport: "socket" });
  });

  it("does not take a server that is starting for a wall", async () => {
    const { world, client, page } = await connected();
    world.up = false;
    page.socket.cut();
    await world.pass(500);
    page.socket.cut();
    world.up = true; // the upgrade failed, and the question why is answered
    await world.pass(5_000);
    expect(state(client)).toMatchObject({ name: "open", transport: "socket" });
  });

  it("goes on over HTTP when WebSockets open and let nothing through", async () => {
    const world = withTurns(1);
    world.link = () => [];
    const { client } = await watch(world);
    await world.pass(120_000);
    expect(state(client)).toMatchObject({ name: "open", transport: "sse" });
  });

  it("goes on over HTTP where there is no WebSocket, or the page may not open one", async () => {
    for (const WebSocket of [
      undefined,
      class {
        constructor() {
          throw new DOMException("no", "SecurityError");
        }
      } as never,
    ]) {
      const world = withTurns(1);
      const { client, view } = await watch(world, "ses_1", world.page({ WebSocket }));
      await world.pass(50);
      expect(state(client)).toMatchObject({ name: "open", transport: "sse" });
      expect(view().status.name).toBe("live");
      client.close();
    }
  });

  it("does not hear what an earlier socket still has to say", async () => {
    const world = withTurns(1);
    const { client, page, view } = await watch(world);
    const old = page.socket;
    const hear = old.onmessage;
    const bye = old.onclose;
    old.cut();
    await world.pass(1_000);
    expect(state(client).name).toBe("open");
    const { seq } = view();
    const frame = {
      session: "ses_1",
      seq: seq + 1,
      type: "session.updated",
      at: "",
      data: { title: "Ghost" },
    };
    const message = { type: "events", session: "ses_1", from: seq + 1, to: seq + 1, events: [frame] };
    hear?.({ data: JSON.stringify(message) } as never);
    bye?.({} as never);
    await world.pass(20);
    expect(view().session?.title).toBe("Question 1");
    expect(state(client).name).toBe("open");
  });

  it("does not mix what an earlier question brings with the answer to the later one", async () => {
    const world = withTurns(3);
    const { client, page, view } = await watch(world);
    const { seq } = view();
    const answers: object[] = [];
    world.link = (message) => {
      answers.push(message);
      return [];
    };
    client.connection.again("ses_1");
    client.connection.again("ses_1");
    world.server.script("ses_1").turn("msg_4", "New", ["Yes"]);
    const [first, second, ...events] = answers as { id: string }[];
    expect([first, second]).toMatchObject([{ type: "subscribed" }, { type: "subscribed" }]);
    world.link = (message) => [message];
    page.socket.deliver(first as object);
    for (const message of events) page.socket.deliver(message);
    await world.pass(20);
    expect(view().seq).toBe(seq); // those are not of the subscription that was asked for last
    page.socket.deliver(second as object);
    for (const message of events) page.socket.deliver(message);
    await world.pass(20);
    expect(view().messages).toEqual(world.server.state("ses_1").shown.messages);
  });

  it("asks again for a session when the server could not serve it, with backoff, and leaves the rest alone", async () => {
    const world = withTurns(1);
    withTurns(1, world, "ses_2");
    const { client, page, view } = await watch(world);
    client.sessions.session("ses_2").subscribe(() => {});
    await world.pass(20);
    page.socket.deliver({ type: "error", session: "ses_1", code: "unavailable", detail: "" });
    expect(page.socket.sent.filter((m) => m.session === "ses_1")).toHaveLength(1);
    await world.pass(1_000);
    expect(page.socket.sent.filter((m) => m.session === "ses_1")).toHaveLength(2);
    expect(page.socket.sent.filter((m) => m.session === "ses_2")).toHaveLength(1);
    world.server.script("ses_1").turn("msg_2", "After", ["Yes"]);
    await world.pass(20);
    expect(view().messages).toHaveLength(4);
  });

  it("asks again for what is not answered in 15 s", async () => {
    const world = withTurns(1);
    let lost = 0;
    world.link = (message) => {
      const m = message as { type: string; session?: string };
      return m.type === "subscribed" && m.session && lost++ < 2 ? [] : [message];
    };
    const { view, page } = await watch(world);
    expect(view().status.name).toBe("behind");
    for (let i = 0; i < 3; i++) {
      await world.pass(14_000);
      page.socket.deliver({ type: "heartbeat" });
    }
    expect(page.sockets).toHaveLength(1);
    expect(view().status.name).toBe("live");
  });
});

describe("many connections", () => {
  it("come back spread over seconds after a restart, and a flapping server is asked seldom (TP-07)", async () => {
    const world = new World();
    world.random = Math.random;
    const clients = await Promise.all(Array.from({ length: 100 }, () => connected(world)));
    world.connects.length = 0;
    world.up = false;
    for (const { page } of clients) page.socket.cut();
    await world.pass(5_000);
    world.up = true;
    const back = Date.now();
    await world.pass(60_000);
    expect(clients.every(({ client }) => state(client).name === "open")).toBe(true);
    const after = world.connects.filter((at) => at >= back);
    const buckets = new Map<number, number>();
    for (const at of after) buckets.set(Math.floor(at / 250), (buckets.get(Math.floor(at / 250)) ?? 0) + 1);
    expect(Math.max(...buckets.values())).toBeLessThan(clients.length / 4);
    expect(world.connects.length / clients.length).toBeLessThan(6);
    // For a minute the server comes for half a second and goes for half a second.
    world.connects.length = 0;
    for (let i = 0; i < 60; i++) {
      world.up = false;
      for (const { page } of clients) page.sockets.at(-1)?.cut();
      await world.pass(500);
      world.up = true;
      await world.pass(500);
    }
    expect(world.connects.length / clients.length).toBeLessThan(15);
    await world.pass(31_000);
    expect(clients.every(({ client }) => state(client).name === "open")).toBe(true);
  }, 60_000);
});
