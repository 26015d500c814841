import { describe, expect, it } from "vitest";
import { foldAll, rangeOf } from "../src/fold.ts";
import { empty, fromSnapshot } from "../src/state.ts";
import { conversations } from "./cases.ts";

describe.each(conversations())("the case $name", ({ session, frames, states }) => {
  const seqs = Object.keys(states).map(Number);

  it("folds to each of its states, frame by frame and in pieces", () => {
    let state = empty(session);
    let last = empty(session);
    let piece = [];
    let seen = 0;
    for (const frame of frames) {
      state = foldAll(state, [frame]);
      piece.push(frame);
      const want = states[state.shown.seq];
      if (!want) continue;
      seen++;
      expect(state.shown).toEqual(want);
      last = foldAll(last, piece);
      expect(last.shown).toEqual(want);
      piece = [];
    }
    expect(seen).toBe(seqs.length);
  });

  it.each(seqs)("goes on from the snapshot at %d to each later state", (k) => {
    let state = fromSnapshot(states[k] as (typeof states)[string]);
    for (const frame of frames) {
      if (rangeOf(frame).to <= k) continue;
      state = foldAll(state, [frame]);
      if (state.lost) break;
      const want = states[state.shown.seq];
      if (want) expect(state.shown).toEqual(want);
    }
  });
});
