import type { Json } from "@holdfast/client";

/** What was cleaned before: a view is told again with each word that comes. */
const known = new WeakMap<object, Json>();

/**
 * A JSON value as a page may have it: integers are numbers, however large, and
 * keys that would reach a prototype are in brackets, as the server has them.
 */
export function clean(value: Json | undefined, inside = ""): Json {
  if (typeof value === "bigint") return Number(value);
  if (value === null || typeof value !== "object") return value ?? null;
  const before = known.get(value);
  if (before !== undefined) return before;
  const next: Json = Array.isArray(value)
    ? value.map((item) => clean(item))
    : Object.fromEntries(Object.entries(value).map(([key, item]) => [named(key, inside), clean(item, key)]));
  known.set(value, next);
  return next;
}

function named(key: string, inside: string): string {
  const isReserved = key === "__proto__" || (key === "prototype" && inside === "constructor");
  return isReserved ? `[${key}]` : key;
}
