import fc from "fast-check";
import { expect, it } from "vitest";
import { fold, foldAll, rangeOf } from "../src/fold.ts";
import { adopt, empty, fromSnapshot, prepend, type State } from "../src/state.ts";
import type { Frame } from "../src/wire.ts";
import { deed, History } from "./history.ts";
import { FakeServer, windowed } from "./server.ts";

const runs = Number(process.env.RUNS ?? 150);

/** The log that deeds write. */
function logOf(deeds: readonly Parameters<History["do"]>[0][]): readonly Frame[] {
  const server = new FakeServer();
  server.script("ses_1").begin();
  const history = new History(server, "ses_1");
  for (const one of deeds) history.do(one);
  return server.log("ses_1");
}

function freeze<T>(value: T): T {
  if (typeof value !== "object" || value === null || Object.isFrozen(value)) return value;
  Object.freeze(value);
  for (const part of value instanceof Map ? value.values() : Object.values(value)) freeze(part);
  return value;
}

/** What a state is, as values. */
function plain({ shown, aside, runs, places, lost }: State): unknown {
  return { shown, aside: [...aside.values()], runs, places: Object.fromEntries(places), lost };
}

const deeds = fc.array(deed, { maxLength: 60 });

it("folding in any pieces is folding one by one, and changes neither a state nor an event", () => {
  fc.assert(
    fc.property(deeds, fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (done, sizes) => {
      const log = freeze(logOf(done));
      let one = freeze(empty("ses_1"));
      for (const frame of log) one = freeze(fold(one, frame));
      let pieces = freeze(empty("ses_1"));
      for (let at = 0, n = 0; at < log.length; n++) {
        const size = sizes[n % sizes.length] ?? 1;
        pieces = freeze(foldAll(pieces, log.slice(at, at + size)));
        at += size;
      }
      expect(plain(pieces)).toEqual(plain(one));
      expect(foldAll(pieces, log)).toBe(pieces); // all of it was there
    }),
    { numRuns: runs },
  );
});

it("a reader of a window goes on as one who saw everything, until it says that it is lost", () => {
  fc.assert(
    fc.property(deeds, deeds, fc.integer({ min: 1, max: 8 }), (before, after, window) => {
      const log = logOf([...before, ...after]);
      const whole = foldAll(empty("ses_1"), log);
      const start = foldAll(empty("ses_1"), logOf(before)).shown;
      let reader = fromSnapshot(windowed(start, window));
      for (const frame of log) {
        reader = fold(reader, frame);
        if (reader.lost) break;
      }
      // Lost, it takes a new snapshot of the same seq, and knows what it knew.
      const { seq } = reader.shown;
      const all = foldAll(
        empty("ses_1"),
        log.filter((frame) => rangeOf(frame).to <= seq),
      );
      if (reader.lost) reader = adopt(reader, windowed(all.shown, window));
      reader = foldAll(reader, log);
      if (reader.lost) return;
      // Page by page it gets the rest.
      for (let first = reader.shown.messages[0]; first?.parent; first = reader.shown.messages[0]) {
        const parent = first.parent;
        const known = new Map([...whole.aside, ...whole.shown.messages.map((m) => [m.id, m] as const)]);
        const messages = [known.get(parent)].flatMap((m) => m ?? []);
        reader = prepend(reader, {
          messages,
          hasMore: messages[0]?.parent !== undefined,
          seq: whole.shown.seq,
        });
      }
      const { runs: mine, ...shown } = reader.shown;
      const { runs: theirs, ...want } = whole.shown;
      expect(shown).toEqual(want);
      for (const run of mine) expect(theirs).toContainEqual(run);
    }),
    { numRuns: runs },
  );
});

it("a frame that does not join is no frame to fold", () => {
  const log = logOf([{ kind: "turn", words: 2 }]);
  const state = foldAll(empty("ses_1"), log.slice(0, 3));
  expect(() => fold(state, log[4] as Frame)).toThrow(RangeError);
  expect(fold(state, log[1] as Frame)).toBe(state);
});
