/** Exponential backoff with jitter. Pure: time and chance come in. @module */

/** The wait before the first retry, in milliseconds. It doubles with each failure. */
const first = 1_000;
/** The longest wait, in milliseconds. */
const most = 30_000;

/**
 * How long to wait after the given number of failures in a row (from 1), in
 * milliseconds: 1 s doubled with each failure up to 30 s, of which a random
 * half. `chance` is a number from 0 up to 1. A wait that the server asked for
 * is never cut short.
 */
export function backoff(failures: number, chance: number, asked = 0): number {
  const full = Math.min(first * 2 ** Math.min(failures - 1, 16), most);
  return Math.max(full / 2 + (full / 2) * chance, asked);
}
