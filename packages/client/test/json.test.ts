import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { parseJson, stringifyJson } from "../src/json.ts";

afterEach(() => {
  vi.restoreAllMocks();
});

describe("JSON", () => {
  it("keeps integers beyond 2^53, as they are written (TD-03)", () => {
    const text =
      '{"id":2512292042121000001,"neg":-9007199254740993,"list":[9007199254740993],"x":100,"y":1.1,"b":true}';
    expect(parseJson(text)).toEqual({
      id: 2512292042121000001n,
      neg: -9007199254740993n,
      list: [9007199254740993n],
      x: 100,
      y: 1.1,
      b: true,
    });
    expect(stringifyJson(parseJson(text))).toBe(text);
  });

  it("leaves alone what a double holds, and strings of digits", () => {
    expect(parseJson('[9007199254740991,-9007199254740991,1e20,"12345678901234567890"]')).toEqual([
      9007199254740991,
      -9007199254740991,
      1e20,
      "12345678901234567890",
    ]);
  });

  it("is JSON for everything else", () => {
    fc.assert(
      fc.property(
        fc.jsonValue().filter((value) => !/\d{16}/.test(JSON.stringify(value))),
        (value) => {
          const text = JSON.stringify(value);
          expect(parseJson(text)).toEqual(JSON.parse(text));
          expect(stringifyJson(value)).toBe(text);
        },
      ),
    );
    expect(() => parseJson('{"a":1234567890123456789')).toThrow(SyntaxError);
  });

  it("leaves strings alone that look like what it does inside", () => {
    vi.spyOn(Math, "random").mockReturnValue(0.5);
    expect(stringifyJson({ id: 1n, say: '#0.5:1"', list: [-1n] })).toBe(
      '{"id":1,"say":"#0.5:1\\"","list":[-1]}',
    );
  });

  it("rounds what it reads where the platform does not show the source text", () => {
    const { parse } = JSON;
    vi.spyOn(JSON, "parse").mockImplementation((text, reviver) =>
      parse(text, reviver && ((key, value) => reviver(key, value))),
    );
    expect(parseJson('{"id":2512292042121000001}')).toEqual({ id: Number("2512292042121000001") });
  });
});
