/**
 * JSON whose integers survive. Ids beyond 2^53 turn up in tool arguments and
 * results; the platform's parser would round them without a word.
 *
 * @module
 */

type Reviver = (key: string, value: unknown, context?: { source?: string }) => unknown;

function parse(text: string, reviver?: Reviver): unknown {
  return JSON.parse(text, reviver as (key: string, value: unknown) => unknown);
}

/** A run of digits that a double may not hold. Almost no text has one, and then the quick parser does. */
const longNumber = /\d{16}/;

/**
 * Parses JSON. An integer beyond ±(2^53 - 1) becomes a `bigint` where the
 * platform shows a number's source text (Chrome 114, Firefox 135, Safari 18.4,
 * Node 21, or later); elsewhere it is rounded, as `JSON.parse` does.
 */
export function parseJson(text: string): unknown {
  if (!longNumber.test(text)) return parse(text);
  return parse(text, (_, value, context) => {
    const source = context?.source;
    return typeof value === "number" && !Number.isSafeInteger(value) && source && /^-?\d+$/.test(source)
      ? BigInt(source)
      : value;
  });
}

/** Writes JSON. A `bigint` becomes the number it is, digit by digit. */
export function stringifyJson(value: unknown): string {
  const mark = `#${Math.random()}:`;
  const text = JSON.stringify(value, (_, item: unknown) => (typeof item === "bigint" ? mark + item : item));
  return text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
}
