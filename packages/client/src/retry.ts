import { backoff } from "./backoff.ts";
import type { Environment } from "./environment.ts";
import { isPassing, Problem } from "./problem.ts";

/** What can end a wait early: registers a function to call, and gives the one that unregisters it. */
export type Wake = (wake: () => void) => () => void;

/** Nothing wakes it. */
export const never: Wake = () => () => {};

/** How something is tried again. */
export type Persistence = {
  readonly env: Environment;
  readonly wake: Wake;
  /** Gives up: the promise is rejected with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** For how long, in milliseconds. Default: for ever. */
  readonly patience?: number;
  /** Whether an error is worth another try. Default: {@link isPassing}. */
  readonly passes?: (error: unknown) => boolean;
  /** Hears of each failure, and when it is tried again, in milliseconds since 1970. */
  readonly onFailure?: (error: unknown, retryAt: number, attempt: number) => void;
};

/**
 * Asks until there is an answer that stays, with backoff, and at once when
 * something wakes it. Only for what can be repeated safely: every read, and
 * every command of the protocol.
 */
export async function persist<T>(ask: (attempt: number) => Promise<T>, how: Persistence): Promise<T> {
  const { env, wake, signal, patience, passes = isPassing, onFailure } = how;
  const start = env.now();
  for (let attempt = 1; ; attempt++) {
    try {
      return await ask(attempt);
    } catch (error) {
      signal?.throwIfAborted();
      const wait = backoff(attempt, env.random(), error instanceof Problem ? error.retryAfterMs : 0);
      const retryAt = env.now() + wait;
      if (!passes(error) || (patience && retryAt > start + patience)) throw error;
      onFailure?.(error, retryAt, attempt);
      await sleep(wait, env, wake, signal);
      signal?.throwIfAborted();
    }
  }
}

/** Waits, unless something wakes it. */
export function sleep(ms: number, env: Environment, wake: Wake, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      stopTimer();
      stopWake();
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const stopTimer = env.after(ms, end);
    const stopWake = wake(end);
    signal?.addEventListener("abort", end);
  });
}
