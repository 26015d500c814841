import { describe, expect, it } from "vitest";
import type { SessionsView } from "../src/manager.ts";
import { problem } from "./answers.ts";
import { inFakeTime, open } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

/** A world with sessions, the last one the last changed. */
function sessions(count: number): World {
  const world = new World();
  for (let i = 1; i <= count; i++) {
    const script = world.server.script(`ses_${i}`);
    script.begin(`Title ${i}`);
    for (let n = 0; n < i; n++) script.write(script.event("session.updated", { title: `Title ${i}` }));
  }
  return world;
}

async function listed(world: World) {
  const { client, page } = open(world);
  const views: SessionsView[] = [];
  const stop = client.sessions.subscribe(() => views.push(client.sessions.getSnapshot()));
  await world.pass(20);
  const view = client.sessions.getSnapshot;
  return { client, page, views, view, stop, titles: () => view().items.map((item) => item.title) };
}

describe("the list of sessions", () => {
  it("has the last changed first, and follows what changes, comes and goes", async () => {
    const world = sessions(3);
    const { view, titles } = await listed(world);
    expect(view()).toMatchObject({ status: "ready", hasMore: false, search: "" });
    expect(titles()).toEqual(["Title 3", "Title 2", "Title 1"]);
    const [, second] = view().items;
    const script = world.server.script("ses_1");
    for (let i = 0; i < 5; i++) script.write(script.event("session.updated", { title: "First again" }));
    await world.pass(1);
    expect(titles()).toEqual(["First again", "Title 3", "Title 2"]);
    expect(view().items[2]).toBe(second);
    world.server.script("ses_4").turn("msg_1", "A new one", Array(9).fill("x"));
    world.server.delete("ses_3");
    await world.pass(1);
    expect(titles()).toEqual(["A new one", "First again", "Title 2"]);
    expect(world.asked("GET", "/v1/sessions")).toBe(1);
  });

  it("subscribes first and asks then, so that nothing falls between", async () => {
    const world = sessions(2);
    let late: (response: Response) => void = () => {};
    world.intercept = (method, path) => {
      if (!path.startsWith("/v1/sessions?")) return undefined;
      world.intercept = () => undefined;
      const old = world.server.answer(method, path, undefined);
      return new Promise((resolve) => {
        late = () => resolve(old);
      });
    };
    const { page, titles, client } = await listed(world);
    expect(page.socket.sent).toMatchObject([{ type: "subscribe", sessions: true }]);
    const script = world.server.script("ses_1");
    for (let i = 0; i < 5; i++) script.write(script.event("session.updated", { title: "Newer" }));
    world.server.delete("ses_2");
    world.server.script("ses_3").begin("Came meanwhile");
    late(new Response());
    await world.pass(20);
    expect(titles()).toEqual(["Newer", "Came meanwhile"]);
    client.close();
  });

  it("is asked for anew after each reconnect: what changed, came or went is seen", async () => {
    const world = sessions(120);
    const { client, page, titles, view } = await listed(world);
    await client.sessions.loadMore();
    await world.pass(1);
    expect(titles()).toHaveLength(100);
    world.up = false;
    page.socket.cut();
    world.server.delete("ses_90");
    const script = world.server.script("ses_1");
    for (let i = 0; i < 200; i++)
      script.write(script.event("session.updated", { title: "Title 1, changed" }));
    world.up = true;
    await world.pass(2_000);
    expect(titles().slice(0, 2)).toEqual(["Title 1, changed", "Title 120"]);
    expect(titles()).not.toContain("Title 90");
    expect(titles()).toHaveLength(100); // as many as there were
    expect(view().hasMore).toBe(true);
  });

  it("pages to its end without a hole, while it changes", async () => {
    const world = sessions(130);
    const { client, titles, view } = await listed(world);
    expect(titles()).toHaveLength(50);
    const script = world.server.script("ses_5");
    for (let i = 0; i < 200; i++) script.write(script.event("session.updated", { title: "Title 5" }));
    while (view().hasMore) {
      const more = client.sessions.loadMore();
      expect(client.sessions.loadMore()).toBe(more); // one at a time
      await more;
      await world.pass(1);
    }
    expect(new Set(titles()).size).toBe(130);
    expect(titles()[0]).toBe("Title 5");
  });

  it("finds what is not loaded by its title, and goes back to all", async () => {
    const world = sessions(130);
    const { client, titles, view } = await listed(world);
    client.sessions.search("title 1");
    expect(view()).toMatchObject({ search: "title 1", status: "loading" });
    expect(titles().every((title) => title.startsWith("Title 1"))).toBe(true);
    client.sessions.search("title 12");
    await world.pass(300);
    expect(world.asked("GET", "search=title+12&")).toBe(1);
    expect(world.asked("GET", "search=title+1&")).toBe(0);
    expect(titles()).toEqual([
      "Title 129",
      "Title 128",
      "Title 127",
      "Title 126",
      "Title 125",
      "Title 124",
      "Title 123",
      "Title 122",
      "Title 121",
      "Title 120",
      "Title 12",
    ]);
    world.server.script("ses_new").begin("Not a title");
    await world.pass(1);
    expect(titles()).not.toContain("Not a title");
    client.sessions.search("");
    await world.pass(300);
    expect(titles()).toHaveLength(52); // as many as are known
    expect(titles().filter((title) => title === "Title 12")).toEqual([]); // it is behind the edge of what is loaded
    expect(view().hasMore).toBe(true);
  });

  it("is tried again when it fails, and says why it may be old", async () => {
    const world = sessions(2);
    let failures = 0;
    world.intercept = (_, path) =>
      path.startsWith("/v1/sessions?") && failures++ < 3
        ? Promise.resolve(problem(500, "internal"))
        : undefined;
    const { view, titles } = await listed(world);
    expect(view()).toMatchObject({ status: "loading", failure: { code: "internal" }, items: [] });
    await world.pass(20_000);
    expect(view()).toMatchObject({ status: "ready", failure: undefined });
    expect(titles()).toHaveLength(2);
  });

  it("marks what happened since it was read, in every tab, and not what was there before", async () => {
    const world = sessions(2);
    const one = await listed(world);
    const two = await listed(world);
    const unread = (of: typeof one) =>
      of
        .view()
        .items.filter((item) => item.unread)
        .map((item) => item.id);
    expect(unread(one)).toEqual([]);
    const script = world.server.script("ses_1");
    script.write(script.event("session.updated", { title: "News" }));
    world.server.script("ses_3").begin("New");
    await world.pass(1);
    expect(unread(one).sort()).toEqual(["ses_1", "ses_3"]);
    one.client.sessions.markRead("ses_1");
    await world.pass(1);
    expect(unread(one)).toEqual(["ses_3"]);
    expect(unread(two)).toEqual(["ses_3"]);
    one.client.close();
    two.client.close();
    const three = await listed(world);
    expect(unread(three)).toEqual(["ses_3"]);
    three.client.sessions.markRead("ses_3", world.server.state("ses_3").shown.session.seq);
    await world.pass(1);
    expect(unread(three)).toEqual([]);
  });

  it("shows how many approvals wait, and what a session does", async () => {
    const world = new World();
    const script = world.server.script("ses_1");
    const { view } = await listed(world);
    const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Go" }] });
    script.start(run, "msg_1");
    await world.pass(1);
    expect(view().items[0]).toMatchObject({ status: "running", approvals: 0, run });
    script.ask(run, "apr_1");
    await world.pass(1);
    expect(view().items[0]).toMatchObject({ status: "waiting", approvals: 1 });
  });

  it("is asked for every few seconds where it cannot be followed", async () => {
    const world = sessions(1);
    const { client } = open(world, world.page({ WebSocket: undefined }));
    client.sessions.subscribe(() => {});
    await world.pass(20);
    world.server.script("ses_2").begin("Later");
    await world.pass(3_100);
    expect(client.sessions.getSnapshot().items).toHaveLength(2);
  });
});

describe("mirrors", () => {
  it("are shared while they are in use, and the longest unused are let go of", async () => {
    const world = sessions(40);
    const { client } = open(world);
    const { sessions: manager } = client;
    const used = manager.session("ses_1");
    used.subscribe(() => {});
    expect(manager.session("ses_1")).toBe(used);
    const second = manager.session("ses_2");
    for (let i = 3; i <= 40; i++) manager.session(`ses_${i}`);
    const last = manager.session("ses_40");
    expect(manager.session("ses_1")).toBe(used);
    expect(manager.session("ses_40")).toBe(last);
    expect(manager.session("ses_2")).not.toBe(second);
    // One that was let go of and is used after all is the one that others get.
    second.subscribe(() => {});
    expect(manager.session("ses_2")).toBe(second);
    await world.pass(20);
    expect(second.getSnapshot().session?.title).toBe("Title 2");
  });
});
