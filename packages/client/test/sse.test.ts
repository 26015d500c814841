import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { rangeOf } from "../src/fold.ts";
import { readSse } from "../src/sse.ts";
import type { Frame } from "../src/wire.ts";
import { readCase } from "./cases.ts";

type StreamCase = {
  readonly name: string;
  readonly then: "silence" | "deleted" | "shutdown";
  readonly bytes: string;
  readonly messages: readonly { readonly id: string; readonly data: Frame }[];
};

/** Everything that a reader hears of pieces of a stream. */
function hear(...pieces: string[]): string[] {
  const heard: string[] = [];
  const read = readSse({
    event: (data) => heard.push(`event ${data}`),
    comment: (text) => heard.push(`comment ${text}`),
    retry: (ms) => heard.push(`retry ${ms}`),
  });
  for (const piece of pieces) read(piece);
  return heard;
}

describe.each(readCase("sse.json") as StreamCase[])("the stream $name", ({ then, bytes, messages }) => {
  it("is read as the protocol's cases have it, cut anywhere", () => {
    const whole = hear(bytes);
    const events = whole.filter((line) => line.startsWith("event ")).map((line) => JSON.parse(line.slice(6)));
    expect(events).toEqual(messages.map((m) => m.data));
    expect(whole[0]).toBe("retry 2317");
    expect(whole.at(-1)).toMatch(
      { silence: /^comment hb$/, deleted: /^event/, shutdown: /^comment goodbye$/ }[then],
    );
    for (let i = 0; i <= bytes.length; i++) expect(hear(bytes.slice(0, i), bytes.slice(i))).toEqual(whole);
    expect(hear(...bytes)).toEqual(whole);
  });

  it("says in its ids what its frames cover", () => {
    for (const { id, data } of messages) {
      if (data.type !== ("reset" as string) && data.type !== ("deleted" as string)) {
        expect(id).toBe(String(rangeOf(data).to));
      }
    }
  });
});

describe("a reader of server-sent events", () => {
  it.each([
    ["lines end in LF, CR or CRLF", "data: a\r\ndata: b\rdata: c\n\r\n", ["event a\nb\nc"]],
    ["a byte order mark at the beginning is none of it", "\uFEFFdata: a\n\n", ["event a"]],
    ["one space after the colon is dropped, and no more", "data:  a\ndata:b\n\n", ["event  a\nb"]],
    ["a line without a colon is a field without a value", "data\ndata\n\n", ["event \n"]],
    ["an event without data is none", "id: 1\nevent: x\n\n", []],
    ["an event that is cut off is none", "data: a\n", []],
    ["a retry is a number", "retry: 12\nretry: 1.5\nretry: x\n", ["retry 12"]],
    ["a comment may be empty", ":\n: hb\n", ["comment ", "comment hb"]],
  ])("%s", (_, text, want) => {
    expect(hear(text)).toEqual(want);
    expect(hear(...text)).toEqual(want);
  });

  it("does not depend on where the pieces are cut", () => {
    const text = fc.string({ unit: fc.constantFrom("\n", "\r", ":", " ", "data", "retry", "1", "x") });
    fc.assert(
      fc.property(text, fc.array(fc.nat({ max: 20 })), (whole, cuts) => {
        const pieces: string[] = [];
        let at = 0;
        for (const cut of cuts) {
          pieces.push(whole.slice(at, at + cut));
          at += cut;
        }
        pieces.push(whole.slice(at));
        expect(hear(...pieces, "\n\n")).toEqual(hear(whole, "\n\n"));
      }),
    );
  });
});
