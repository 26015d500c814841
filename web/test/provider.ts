import { tmpdir } from "node:os";
import { Process } from "./process.ts";

/** One step of a scripted answer: see internal/fakellm. */
type Step = Record<string, unknown>;

/** One scripted answer. */
export type Turn = {
  readonly steps: readonly Step[];
  readonly times?: number;
  readonly when?: { readonly last_user?: string; readonly body?: string };
};

/** A model provider on a real socket that plays a script. */
export class Provider {
  readonly #process: Process;

  private constructor(process: Process) {
    this.#process = process;
  }

  static async start(): Promise<Provider> {
    return new Provider(await Process.start("fakellm", ["-keep", "50"], tmpdir()));
  }

  get url(): string {
    return this.#process.url;
  }

  /** Says what the model answers next. */
  async script(...turns: readonly Turn[]): Promise<void> {
    const response = await fetch(`${this.url}/_script`, { method: "POST", body: JSON.stringify({ turns }) });
    if (!response.ok) throw new Error(`fakellm refuses the script: ${await response.text()}`);
  }

  /** Forgets what it would have answered next. */
  async clear(): Promise<void> {
    await fetch(`${this.url}/_script`, { method: "DELETE" });
  }

  /** Lets an answer go on that waits at a gate. */
  async open(gate: string): Promise<void> {
    await fetch(`${this.url}/_gates/${gate}`, { method: "POST" });
  }

  /** How many requests came. */
  async requests(): Promise<number> {
    const state = (await (await fetch(`${this.url}/_requests`)).json()) as { requests: readonly unknown[] };
    return state.requests.length;
  }

  close(): Promise<void> {
    return this.#process.end();
  }
}
