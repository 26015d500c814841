import { backoff } from "./backoff.ts";
import type { Environment } from "./environment.ts";
import { isPassing, Problem } from "./problem.ts";

/** What can end a wait early: registers a function to call, and gives the one that unregisters it. */
export type Wake = (wake: () => void) => () => void;

/** How long to wait after an error, in milliseconds. */
export function waitAfter(error: unknown, failures: number, env: Environment): number {
  return backoff(failures, env.random(), error instanceof Problem ? error.retryAfterMs : 0);
}

/** Waits, unless something wakes it. */
export function sleep(ms: number, env: Environment, wake: Wake): Promise<void> {
  return new Promise((resolve) => {
    const end = () => {
      stopTimer();
      stopWake();
      resolve();
    };
    const stopTimer = env.after(ms, end);
    const stopWake = wake(end);
  });
}

/**
 * Asks until there is an answer that stays: an error that may pass is tried
 * again, for `patienceMs`. Only for what can be repeated safely, which every
 * command can.
 */
export async function persist<T>(
  ask: () => Promise<T>,
  env: Environment,
  wake: Wake,
  patienceMs = 60_000,
): Promise<T> {
  const until = env.now() + patienceMs;
  for (let failures = 1; ; failures++) {
    try {
      return await ask();
    } catch (error) {
      const wait = isPassing(error) ? waitAfter(error, failures, env) : Number.POSITIVE_INFINITY;
      if (env.now() + wait > until) throw error;
      await sleep(wait, env, wake);
    }
  }
}
