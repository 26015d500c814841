import { describe, expect, it } from "vitest";
import { Problem, Unanswered } from "../src/problem.ts";
import { json, problem } from "./answers.ts";
import { inFakeTime, watch, withTurns } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

/** A session with an active run. */
async function running() {
  const world = new World();
  const script = world.server.script("ses_1");
  const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Go" }] });
  script.start(run, "msg_1");
  const watched = await watch(world);
  return { ...watched, world, script, run };
}

/** Lets the test answer one route. */
function answers(world: World, part: string): ((response: Response | Error) => void)[] {
  const given: ((response: Response | Error) => void)[] = [];
  world.intercept = (method, path) => {
    if (method === "GET" || !path.includes(part)) return undefined;
    return new Promise((resolve, reject) => {
      given.push((response) => (response instanceof Error ? reject(response) : resolve(response)));
    });
  };
  return given;
}

describe("stop", () => {
  it("shows at once, is repeated until it is answered, and shows until it is a fact", async () => {
    const { world, session, view, script, run } = await running();
    const given = answers(world, "/cancel");
    const stopped = session.stop();
    expect(view().gestures).toEqual([{ kind: "stop", run }]);
    await world.pass(10);
    given[0]?.(new TypeError("Load failed"));
    await world.pass(1_000);
    given[1]?.(problem(503, "unavailable"));
    await world.pass(2_000);
    const requested = script.event(
      "run.cancel_requested",
      { by: "local", deadline: "2026-01-02T00:00:09Z" },
      { run },
    );
    given[2]?.(json(202, { run: { id: run, status: "running" }, seq: requested.seq }));
    expect(await stopped).toMatchObject({ id: run });
    expect(view().gestures).toHaveLength(1); // recorded, and the page does not know it yet
    script.write(requested);
    await world.pass(1);
    expect(view()).toMatchObject({ gestures: [], run: { cancelRequestedAt: requested.at } });
    expect(world.requests.filter((r) => r.path.includes("/cancel")).map((r) => r.path)).toEqual(
      Array(3).fill(`/v1/runs/${run}/cancel`),
    );
  });

  it("is content when the run has ended first, and does nothing when there is none", async () => {
    const { world, session, view, script, run } = await running();
    const given = answers(world, "/cancel");
    const stopped = session.stop();
    await world.pass(1);
    script.finish(run, "Done");
    given[0]?.(problem(409, "run_terminal", { run: { id: run, status: "completed" } }));
    expect(await stopped).toMatchObject({ status: "completed" });
    await world.pass(1);
    expect(view().gestures).toEqual([]);
    expect(await session.stop()).toBeUndefined();
    expect(given).toHaveLength(1);
  });

  it("gives up after a minute without an answer, and says so", async () => {
    const { world, session, view } = await running();
    world.up = false;
    const stopped = session.stop().catch((error: unknown) => error);
    await world.pass(120_000);
    expect(await stopped).toBeInstanceOf(Unanswered);
    expect(view().gestures).toEqual([]);
  });
});

describe("decide", () => {
  it("shows at once, and tells who had decided otherwise", async () => {
    const { world, session, view, script, run } = await running();
    script.ask(run, "apr_1");
    await world.pass(1);
    const given = answers(world, "/approvals");
    const decided = session.decide("apr_1", "deny", { note: "no" }).catch((error: unknown) => error);
    expect(view().gestures).toEqual([{ kind: "decide", approval: "apr_1", decision: "deny" }]);
    await world.pass(1);
    const approval = { id: "apr_1", status: "approved", by: "anna" };
    given[0]?.(problem(409, "approval_decided", { approval }));
    const error = (await decided) as Problem;
    expect(error).toBeInstanceOf(Problem);
    expect(error).toMatchObject({ code: "approval_decided", status: 409, approval });
    expect(view().gestures).toEqual([]);
    expect(world.requests.at(-1)?.body).toEqual({ decision: "deny", note: "no" });
  });

  it("works from the inbox of all sessions, where the decision of another tab shows too", async () => {
    const { world, client, script, run } = await running();
    script.ask(run, "apr_1");
    const views: string[] = [];
    client.approvals.subscribe(() => {
      const { items, deciding } = client.approvals.getSnapshot();
      views.push(`${items.map((a) => a.id)} ${deciding}`);
    });
    await world.pass(50);
    expect(client.approvals.getSnapshot()).toMatchObject({ loaded: true, items: [{ id: "apr_1" }] });
    const given = answers(world, "/approvals/apr_1");
    const decided = client.approvals.decide("apr_1", "approve");
    expect(client.approvals.getSnapshot().deciding).toEqual(["apr_1"]);
    await world.pass(1);
    script.decide(run, "apr_1", "approve");
    given[0]?.(json(200, { approval: { id: "apr_1", status: "approved" }, seq: script.seq }));
    await decided;
    await world.pass(500);
    expect(client.approvals.getSnapshot()).toMatchObject({ items: [], deciding: [] });
    script.ask(run, "apr_2", "call_2");
    await world.pass(500);
    expect(client.approvals.getSnapshot().items.map((a) => a.id)).toEqual(["apr_2"]);
    script.decide(run, "apr_2", "deny"); // in another tab
    await world.pass(500);
    expect(client.approvals.getSnapshot().items).toEqual([]);
    expect(views.filter((v) => v === "apr_1 ")).toHaveLength(1); // it did not come back after it was decided
  });

  it("does not lose the inbox to a request that fails or hangs", async () => {
    const { world, client, script, run } = await running();
    let asked = 0;
    world.intercept = (_, path) => {
      if (!path.includes("/approvals")) return undefined;
      asked++;
      if (asked === 1) return Promise.resolve(problem(500, "internal"));
      return asked === 2 ? new Promise(() => {}) : undefined;
    };
    client.approvals.subscribe(() => {});
    await world.pass(20);
    expect(client.approvals.getSnapshot()).toMatchObject({ loaded: false, failure: { code: "internal" } });
    await world.pass(1_000);
    script.ask(run, "apr_1");
    await world.pass(500);
    expect(client.approvals.getSnapshot()).toMatchObject({ items: [{ id: "apr_1" }], failure: undefined });
  });

  it("asks for the inbox seldom, however busy the sessions are", async () => {
    const { world, client, script, run } = await running();
    script.ask(run, "apr_1");
    client.approvals.subscribe(() => {});
    await world.pass(50);
    world.requests.length = 0;
    for (let i = 0; i < 100; i++) {
      script.write(script.event("session.updated", { title: `Title ${i}` }));
      await world.pass(20);
    }
    expect(world.asked("GET", "/approvals")).toBeLessThan(15);
  });
});

describe("the other commands", () => {
  it("retry and regenerate run a message again under an id of their own, once", async () => {
    const { world, session, view, script, run } = await running();
    script.finish(run, "Done");
    await world.pass(1);
    const given = answers(world, "/retry");
    const again = session.regenerate(`ans_${run}`);
    expect(view().gestures).toEqual([{ kind: "retry", run }]);
    await world.pass(1);
    given[0]?.(new TypeError("Load failed"));
    await world.pass(1_000);
    given[1]?.(json(202, { run: { id: "run_new" }, seq: script.seq }));
    expect(await again).toEqual({ id: "run_new" });
    const bodies = world.requests
      .filter((r) => r.path.endsWith("/retry"))
      .map((r) => r.body as { id: string });
    expect(bodies).toHaveLength(2);
    expect(bodies[0]?.id).toMatch(/^run_/);
    expect(bodies[1]).toEqual(bodies[0]);
    await expect(session.regenerate("msg_nobody")).rejects.toThrow(RangeError);
  });

  it("edit says something else in the place of a message, and of a root", async () => {
    const world = withTurns(2);
    const { session, view } = await watch(world);
    session.edit("msg_2", "Otherwise", { onBusy: "interrupt" });
    await world.pass(20);
    expect(world.requests.at(-1)?.body).toMatchObject({ parent: "ans_run_ses_1_1", onBusy: "interrupt" });
    expect(view().messages.at(-1)?.siblings).toHaveLength(2);
    session.edit("msg_1", "A new beginning");
    await world.pass(20);
    expect(world.requests.at(-1)?.body).toMatchObject({ parent: "" });
    expect(() => session.edit("msg_nobody", "x")).toThrow(RangeError);
  });

  it("removing from the inbox shows until it is gone, and what is gone already is no error", async () => {
    const { world, session, view, script } = await running();
    const queue = (id: string) => {
      const message = {
        id,
        role: "user",
        parts: [{ type: "text", text: id }],
        status: "completed",
        run: `run_${id}`,
      };
      script.write(
        script.event("run.queued", { agent: "demo", input: id, message: `ans_${id}` }, { run: `run_${id}` }),
        script.event("inbox.queued", {
          item: { message, mode: "enqueue", run: `run_${id}`, output: `ans_${id}` },
        }),
      );
    };
    queue("msg_w");
    queue("msg_x");
    await world.pass(1);
    expect(view().inbox.map((item) => item.message.id)).toEqual(["msg_w", "msg_x"]);
    const given = answers(world, "/inbox/");
    const removed = session.removeInbox("msg_w");
    await world.pass(1);
    given[0]?.(json(204, undefined));
    await removed;
    expect(view().gestures).toEqual([{ kind: "removeInbox", message: "msg_w" }]);
    script.write(script.event("inbox.removed", { id: "msg_w" }));
    await world.pass(1);
    expect(view()).toMatchObject({ gestures: [], inbox: [{ message: { id: "msg_x" } }] });
    const again = session.removeInbox("msg_w");
    await world.pass(1);
    given[1]?.(problem(404, "not_found"));
    await again;
    const late = session.removeInbox("msg_x").catch((error: unknown) => error);
    await world.pass(1);
    given[2]?.(problem(409, "inbox_delivered"));
    expect(await late).toMatchObject({ code: "inbox_delivered" });
    const edited = session.editInbox("msg_x", "Better");
    await world.pass(1);
    given[3]?.(json(200, { inbox: {}, seq: script.seq }));
    await edited;
    expect(world.requests.at(-1)).toMatchObject({ method: "PATCH", body: { parts: [{ text: "Better" }] } });
  });

  it("rename, switch the branch, resolve and delete are one request each", async () => {
    const { world, session, view, run, script } = await running();
    const seq = script.seq;
    world.intercept = (method, path) =>
      method === "GET" || method === "DELETE" || path.includes("messages")
        ? undefined
        : Promise.resolve(json(200, { run: { id: run }, session: {}, seq }));
    world.requests.length = 0;
    await session.rename("Better");
    await session.switchTo("msg_1");
    await session.resolve(run, "call_1", "happened", { result: { paid: true }, note: "I looked" });
    expect(view().gestures).toEqual([]);
    await session.delete();
    expect(world.requests.map((r) => [r.method, r.path, r.body])).toEqual([
      ["PATCH", "/v1/sessions/ses_1", { title: "Better" }],
      ["PATCH", "/v1/sessions/ses_1", { head: "msg_1" }],
      [
        "POST",
        `/v1/runs/${run}/tools/call_1`,
        { outcome: "happened", result: { paid: true }, note: "I looked" },
      ],
      ["DELETE", "/v1/sessions/ses_1", undefined],
    ]);
    await world.pass(1);
    expect(view().status).toEqual({ name: "deleted" });
  });
});
