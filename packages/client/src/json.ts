/**
 * JSON whose integers survive. Ids beyond 2^53 turn up in tool arguments and
 * results; the platform's parser would round them without a word.
 *
 * @module
 */

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

/** A run of digits that a double may not hold. Almost no text has one, and then the quick parser does. */
const longNumber = /\d{16}/;

/**
 * Parses JSON. An integer beyond ±(2^53 - 1) becomes a `bigint` where the
 * platform shows a number's source text (Chrome 114, Firefox 135, Safari 18.4,
 * Node 21, or later); elsewhere it is rounded, as `JSON.parse` does.
 */
export function parseJson(text: string): unknown {
  const revive: Reviver = (_, value, context) => {
    const source = context?.source ?? "";
    return Number.isSafeInteger(value) || !/^-?\d+$/.test(source) ? value : BigInt(source);
  };
  return JSON.parse(text, longNumber.test(text) ? (revive as Parameters<typeof JSON.parse>[1]) : undefined);
}

/** Writes JSON. A `bigint` becomes the number it is, digit by digit. */
export function stringifyJson(value: unknown): string {
  const mark = `#${Math.random()}:`;
  const text = JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" ? mark + item : item));
  return text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
}
