import type { Environment } from "./environment.ts";
import { parseJson } from "./json.ts";
import { Problem, Unanswered } from "./problem.ts";

/** One request. */
export type Ask = {
  readonly method?: string;
  readonly accept?: string;
  /** A JSON text. */
  readonly body?: string | undefined;
  /** Gives up: the promise is rejected with its reason. */
  readonly signal?: AbortSignal | undefined;
  /** How long the answer may take, in milliseconds. */
  readonly patience: number;
};

/**
 * Sends a request, and reads the answer before it lets go of it. `alive` gives
 * an answer that goes on another stretch of time. Rejects with a
 * {@link Problem}, or with {@link Unanswered} if there was no answer or it broke
 * off.
 */
export async function send<T>(
  env: Environment,
  url: string,
  ask: Ask,
  read: (response: Response, alive: (ms: number) => void) => Promise<T>,
): Promise<T> {
  const { method = "GET", accept = "application/json", body, signal, patience } = ask;
  const stop = new AbortController();
  const giveUp = () => stop.abort();
  if (signal?.aborted) throw signal.reason;
  signal?.addEventListener("abort", giveUp);
  let stopTimer = () => {};
  const alive = (ms: number) => {
    stopTimer();
    stopTimer = env.after(ms, giveUp);
  };
  alive(patience);
  try {
    const response = await env.fetch(url, {
      method,
      signal: stop.signal,
      cache: "no-store",
      headers: { Accept: accept, ...(body && { "Content-Type": "application/json" }) },
      ...(body && { body }),
    });
    if (!response.ok) throw await problemOf(response);
    return await read(response, alive);
  } catch (error) {
    if (signal?.aborted) throw signal.reason;
    throw error instanceof Problem ? error : new Unanswered(error);
  } finally {
    stopTimer();
    signal?.removeEventListener("abort", giveUp);
    giveUp(); // an answer that is not read to its end holds its connection
  }
}

/** Reads an answer that is JSON. */
export async function readJson<T>(response: Response): Promise<T> {
  return (response.status === 204 ? undefined : parseJson(await response.text())) as T;
}

/** Reads a refusal. The body may be anything: a proxy has its own words. */
async function problemOf(response: Response): Promise<Problem> {
  let body: unknown;
  try {
    body = parseJson(await response.text());
  } catch {
    // Not JSON, or cut short: the status says enough.
  }
  return new Problem(response.status, body ?? {}, response.headers);
}
