import fc from "fast-check";
import { expect, it, vi } from "vitest";
import { foldAll } from "../src/fold.ts";
import { parseJson, stringifyJson } from "../src/json.ts";
import { empty } from "../src/state.ts";
import type { Frame } from "../src/wire.ts";
import { problem } from "./answers.ts";
import { conversations } from "./cases.ts";
import { type Deed, deed, History } from "./history.ts";
import { inFakeTime, open } from "./open.ts";
import { World } from "./world.ts";

inFakeTime();

/** What happens to the page and its network. */
type Trouble =
  | { readonly kind: "deed"; readonly deed: Deed }
  | { readonly kind: "cut" | "older" | "leave" | "return" }
  | { readonly kind: "wait"; readonly ms: number };

const trouble: fc.Arbitrary<Trouble> = fc.oneof(
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("deed" as const), deed }) },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constantFrom("cut" as const, "older" as const, "leave" as const, "return" as const),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 20, 500, 5_000) }),
  },
);

/** What becomes of the messages of a link, one after the other: most arrive. */
const fate = fc.constantFrom(
  ...Array.from({ length: 12 }, () => "arrive" as const),
  "lose" as const,
  "double" as const,
  "hold" as const,
  "cutFront" as const,
  "cutBack" as const,
  "cutMiddle" as const,
);
type Fate = "arrive" | "lose" | "double" | "hold" | "cutFront" | "cutBack" | "cutMiddle";

/** A link that does to each message what fate says, and in the end lets everything through. */
class Link {
  healed = false;
  readonly #fates: readonly Fate[];
  #next = 0;
  #held: object[] = [];

  constructor(fates: readonly Fate[]) {
    this.#fates = fates;
  }

  carry = (message: object): object[] => {
    const fate = this.healed ? "arrive" : this.#fates[this.#next++ % this.#fates.length];
    const m = message as { type: string; events?: Frame[] };
    const half = Math.ceil((m.events?.length ?? 0) / 2);
    switch (fate) {
      case "lose":
        return [];
      case "double":
        return [message, ...this.#release(), message];
      case "hold":
        this.#held.push(message);
        return [];
      case "cutFront":
        return [{ ...message, events: m.events?.slice(half) }];
      case "cutBack":
        return [{ ...message, events: m.events?.slice(0, half) }];
      case "cutMiddle":
        return [{ ...message, events: m.events?.filter((_, i) => i !== half) }];
      default:
        return [message, ...this.#release()];
    }
  };

  #release(): object[] {
    const held = this.#held;
    this.#held = [];
    return held;
  }
}

it("any loss, double, reorder and cut of what comes ends in the same snapshot", async () => {
  const property = fc.asyncProperty(
    fc.array(deed, { maxLength: 40 }),
    fc.array(trouble, { minLength: 5, maxLength: 60 }),
    fc.array(fate, { minLength: 20, maxLength: 60 }),
    fc.array(fc.boolean(), { minLength: 5, maxLength: 10 }),
    fc.integer({ min: 2, max: 9 }),
    fc.integer({ min: 1, max: 4 }),
    async (before, troubles, fates, answers, window, batch) => {
      vi.clearAllTimers();
      const world = new World();
      world.server.batch = batch;
      const history = new History(world.server, "ses_1");
      world.server.script("ses_1").begin();
      for (const d of before) history.do(d);
      const link = new Link(fates);
      world.link = link.carry;
      let request = 0;
      world.intercept = (method, path) => {
        if (link.healed || method !== "GET" || answers[request++ % answers.length]) return undefined;
        return path.includes("before") ? new Promise(() => {}) : Promise.resolve(problem(503, "unavailable"));
      };
      const { client, page } = open(world, world.page(), { window });
      const session = client.sessions.session("ses_1");
      let seq = 0;
      const look = () => {
        const view = session.getSnapshot();
        expect(view.seq).toBeGreaterThanOrEqual(seq);
        seq = view.seq;
        // Whatever is shown, it is one branch without a hole.
        for (const [i, m] of view.messages.entries()) {
          if (i > 0) expect(m.parent).toBe(view.messages[i - 1]?.id);
        }
      };
      let stop = session.subscribe(look);
      for (const t of troubles) {
        if (t.kind === "deed") history.do(t.deed);
        else if (t.kind === "cut") {
          page.sockets.at(-1)?.cut();
          for (const end of [...world.server.streams]) end("cut");
        } else if (t.kind === "older") void session.loadOlder();
        else if (t.kind === "wait") await world.pass(t.ms);
        else {
          stop();
          if (t.kind === "return") stop = session.subscribe(look);
        }
      }
      stop();
      stop = session.subscribe(look);
      link.healed = true;
      await world.pass(120_000);
      const script = world.server.script("ses_1");
      script.write(script.event("session.updated", { title: "The end" })); // what was lost last shows with what comes next
      await world.pass(60_000);
      for (let i = 0; i < 200 && session.getSnapshot().hasMore; i++) {
        const loading = session.loadOlder();
        await world.pass(50);
        await loading;
      }
      const view = session.getSnapshot();
      const { shown } = world.server.state("ses_1");
      expect(view.status).toEqual({ name: "live" });
      for (const field of [
        "seq",
        "session",
        "head",
        "messages",
        "hasMore",
        "below",
        "approvals",
        "inbox",
      ] as const) {
        expect(view[field], field).toEqual(shown[field]);
      }
      for (const run of view.runs) expect(shown.runs).toContainEqual(run);
      for (const run of shown.runs) {
        if (!run.finishedAt) expect(view.runs).toContainEqual(run);
      }
      client.close();
    },
  );
  await fc.assert(property, { numRuns: Number(process.env.RUNS ?? 150) });
}, 600_000);

it("a log of the protocol's cases, however it comes, ends in the case's last state", async () => {
  const cases = conversations();
  const property = fc.asyncProperty(
    fc.constantFrom(...cases),
    fc.array(fc.nat({ max: 6 }), { minLength: 1, maxLength: 30 }),
    fc.array(fate, { minLength: 20, maxLength: 60 }),
    fc.integer({ min: 1, max: 50 }),
    async ({ session: id, frames }, steps, fates, window) => {
      vi.clearAllTimers();
      const world = new World();
      const link = new Link(fates);
      world.link = link.carry;
      world.server.append(id, frames.slice(0, 1));
      const { client, page } = open(world, world.page(), { window });
      const session = client.sessions.session(id);
      session.subscribe(() => {});
      await world.pass(20);
      let sent = 1;
      for (const step of steps) {
        world.server.append(id, frames.slice(sent, sent + step));
        sent += step;
        await world.pass(step * 100);
      }
      link.healed = true;
      world.server.append(id, frames.slice(sent));
      await world.pass(1_000);
      page.sockets.at(-1)?.cut();
      await world.pass(60_000);
      while (session.getSnapshot().hasMore) {
        const loading = session.loadOlder();
        await world.pass(50);
        await loading;
      }
      const { shown } = foldAll(empty(id), frames);
      const view = session.getSnapshot();
      for (const field of ["seq", "session", "head", "messages", "below", "approvals", "inbox"] as const) {
        expect(view[field], field).toEqual(wire(shown[field]));
      }
      client.close();
    },
  );
  await fc.assert(property, { numRuns: Number(process.env.RUNS ?? 150) });
}, 600_000);

/** As it comes over a wire that is JSON: there is no Infinity, and no -0. */
function wire(value: unknown): unknown {
  return value && parseJson(stringifyJson(value));
}
