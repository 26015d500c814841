import type { SessionView } from "@holdfast/client";
import { act, cleanup, render, renderHook, screen } from "@testing-library/react";
import { type ReactNode, StrictMode } from "react";
import { hydrateRoot } from "react-dom/client";
import { renderToString } from "react-dom/server";
import { afterEach, expect, test, vi } from "vitest";
import { inFakeTime, open, withTurns } from "../../client/test/open.ts";
import { World } from "../../client/test/world.ts";
import {
  HoldfastProvider,
  useApprovals,
  useConnection,
  useDraft,
  useMirror,
  useRun,
  useSession,
  useSessions,
} from "../src/index.ts";

inFakeTime();
afterEach(cleanup);

/** A page with a client in a world, and what wraps its components. */
function pageIn(world: World) {
  const { client, page } = open(world);
  const wrapper = ({ children }: { children: ReactNode }) => (
    <StrictMode>
      <HoldfastProvider client={client}>{children}</HoldfastProvider>
    </StrictMode>
  );
  const pass = (ms: number) => act(() => world.pass(ms));
  return { client, page, wrapper, pass };
}

function Both() {
  useSession("ses_1");
  return <Counted />;
}

function Counted() {
  return <p>{useSession("ses_1", (view) => view.messages.length)} messages</p>;
}

function Title({ renders }: { renders: () => void }) {
  renders();
  return <h1>{useSession("ses_1", (view) => view.session?.title)}</h1>;
}

function Hi({ renders }: { renders: () => void }) {
  const mirror = useMirror("ses_1");
  renders();
  return (
    <button type="button" onClick={() => mirror.send("Hi")}>
      Say hi
    </button>
  );
}

function Count() {
  const { status, messages } = useSession("ses_1");
  return (
    <p>
      {status.name}, {messages.length}
    </p>
  );
}

const textOf = (view: SessionView) => view.messages.map((m) => m.parts.map((part) => part.text).join(""));

test("a session is shown as it is, and as it changes", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  const { result } = renderHook(() => useSession("ses_1"), { wrapper });
  expect(result.current.status.name).toBe("loading");
  await pass(50);
  expect(result.current.status.name).toBe("live");
  expect(textOf(result.current)).toEqual(["Question 1", "Answer 1."]);

  await act(async () => {
    world.server.script("ses_1").turn("msg_2", "Question 2", ["Answer 2"]);
    await world.pass(50);
  });
  expect(textOf(result.current)).toEqual(["Question 1", "Answer 1.", "Question 2", "Answer 2"]);
});

test("StrictMode and two components make one subscription of one connection", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  render(<Both />, { wrapper });
  await pass(50);
  expect(screen.getByText("2 messages")).toBeTruthy();
  expect(world.connects).toHaveLength(1);
  expect(world.asked("GET", "/v1/sessions/ses_1")).toBe(1);
});

test("who picks a part is rendered anew only when that part changes", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  const renders = vi.fn();
  render(<Title renders={renders} />, { wrapper });
  await pass(50);
  const before = renders.mock.calls.length;
  await act(async () => {
    world.server.script("ses_1").turn("msg_2", "Question 2", ["word ", "after ", "word"]);
    await world.pass(200);
  });
  expect(renders.mock.calls.length).toBe(before);
  expect(screen.getByRole("heading").textContent).toBe("Question 1");
});

test("commands keep their identity over renders, and show at once", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  const { result } = renderHook(() => useSession("ses_1"), { wrapper });
  await pass(50);
  const { send } = result.current;
  act(() => void send("Hello"));
  expect(result.current.pending.map((p) => p.parts)).toEqual([[{ type: "text", text: "Hello" }]]);
  await pass(50);
  expect(result.current.pending).toEqual([]);
  expect(textOf(result.current).at(-1)).toBe("Hello");
  expect(result.current.send).toBe(send);
  expect(world.asked("POST", "/messages")).toBe(1);
});

test("another session is shown at once, and the one before is let go of", async () => {
  const world = withTurns(1);
  withTurns(2, world, "ses_2");
  const { wrapper, pass } = pageIn(world);
  const { result, rerender } = renderHook(({ id }) => useSession(id), {
    wrapper,
    initialProps: { id: "ses_1" },
  });
  await pass(50);
  rerender({ id: "ses_2" });
  expect(result.current.id).toBe("ses_2");
  await pass(50);
  expect(result.current.messages).toHaveLength(4);
  await pass(10_000);
  expect(result.current.messages).toHaveLength(4);
});

test("the active run is there while it is active, and any other by its id", async () => {
  const world = withTurns(1);
  const script = world.server.script("ses_1");
  const { wrapper, pass } = pageIn(world);
  const { result } = renderHook(() => useRun("ses_1"), { wrapper });
  await pass(50);
  expect(result.current).toBeUndefined();
  let run = "";
  await act(async () => {
    run = script.submit({ id: "msg_2", parts: [{ type: "text", text: "Go" }] });
    script.start(run, "msg_2");
    script.say(run, "Going");
    await world.pass(50);
  });
  expect(result.current?.status).toBe("running");
  await act(async () => {
    script.finish(run, "Gone");
    await world.pass(50);
  });
  expect(result.current).toBeUndefined();
  const { result: named } = renderHook(() => useRun("ses_1", run), { wrapper });
  await pass(50);
  expect(named.current?.status).toBe("completed");
});

test("the list of sessions is followed, and searched", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  const { result } = renderHook(() => useSessions(), { wrapper });
  await pass(50);
  expect(result.current.items.map(({ title }) => title)).toEqual(["Question 1"]);
  await act(async () => {
    withTurns(1, world, "ses_2");
    await world.pass(50);
  });
  expect(result.current.items).toHaveLength(2);
  act(() => result.current.setSearch("nothing has this"));
  expect(result.current.items).toEqual([]);
  const { result: titles } = renderHook(() => useSessions((view) => view.search), { wrapper });
  expect(titles.current).toBe("nothing has this");
});

test("approvals of all sessions are shown until somebody decides", async () => {
  const world = new World();
  const script = world.server.script("ses_1");
  const run = script.submit({ id: "msg_1", parts: [{ type: "text", text: "Pay" }] });
  script.start(run, "msg_1");
  script.ask(run, "apr_1");
  world.intercept = (method, path) => {
    if (method !== "POST" || path !== "/v1/approvals/apr_1") return undefined;
    script.decide(run, "apr_1", "approve");
    return Promise.resolve(Response.json({ approval: { id: "apr_1", status: "approved" }, seq: script.seq }));
  };
  const { wrapper, pass } = pageIn(world);
  const { result } = renderHook(() => useApprovals(), { wrapper });
  const { result: many } = renderHook(() => useApprovals((view) => view.items.length), { wrapper });
  await pass(50);
  expect(result.current.items.map(({ id }) => id)).toEqual(["apr_1"]);
  expect(many.current).toBe(1);
  await act(async () => {
    const decided = result.current.decide("apr_1", "approve");
    await world.pass(50);
    await decided;
  });
  expect(result.current.items).toEqual([]);
  expect(many.current).toBe(0);
});

test("the connection is told in its own words", async () => {
  const world = withTurns(1);
  const { page, wrapper, pass } = pageIn(world);
  const { result } = renderHook(
    () => {
      useSession("ses_1", (view) => view.seq);
      return useConnection();
    },
    { wrapper },
  );
  await pass(50);
  expect(result.current.name).toBe("open");
  world.up = false;
  await act(async () => {
    page.socket.cut();
    await world.pass(10);
  });
  expect(result.current).toMatchObject({ name: "waiting", reason: "lost" });
});

test("a draft is the same for all who look", () => {
  const { wrapper } = pageIn(new World());
  const { result: first } = renderHook(() => useDraft("ses_1"), { wrapper });
  const { result: second } = renderHook(() => useDraft("ses_1"), { wrapper });
  act(() => first.current[1]("half a sen"));
  expect(second.current[0]).toBe("half a sen");
  act(() => second.current[1](""));
  expect(first.current[0]).toBe("");
});

test("a command can be given without following", async () => {
  const world = withTurns(1);
  const { wrapper, pass } = pageIn(world);
  const renders = vi.fn();
  render(<Hi renders={renders} />, { wrapper });
  const before = renders.mock.calls.length;
  act(() => screen.getByRole("button").click());
  await pass(50);
  expect(world.asked("POST", "/messages")).toBe(1);
  expect(renders.mock.calls.length).toBe(before);
});

test("a server renders what nobody knows yet, and its page is taken over without a word", async () => {
  const world = withTurns(1);
  const { client, wrapper, pass } = pageIn(world);
  const html = renderToString(wrapper({ children: <Count /> }));
  expect(html).toContain("loading");
  const root = document.createElement("div");
  root.innerHTML = html;
  const complaints = vi.spyOn(console, "error");
  const mounted = await act(async () => hydrateRoot(root, wrapper({ children: <Count /> })));
  await pass(50);
  expect(root.textContent).toBe("live, 2");
  expect(complaints).not.toHaveBeenCalled();
  act(() => mounted.unmount());
  client.close();
});

test("a hook without a provider says what is missing", () => {
  const complaints = vi.spyOn(console, "error").mockImplementation(() => {});
  expect(() => renderHook(() => useConnection())).toThrow(
    "there is no HoldfastProvider above this component",
  );
  complaints.mockRestore();
});
