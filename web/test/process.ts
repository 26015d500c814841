import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

/** Where a binary is that `make web-check` builds. */
export function binary(name: string): string {
  const path = join(import.meta.dirname, "../../bin", name);
  if (!existsSync(path)) throw new Error(`${path} is missing: run "make web-check", which builds it`);
  return path;
}

/** A program that runs beside a test. */
export class Process {
  readonly url: string;
  readonly #child: ChildProcess;
  readonly #ended: Promise<void>;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
    this.#ended = new Promise((resolve) => child.once("exit", () => resolve()));
  }

  /** Starts a program of ours. It is up when it has told its URL. */
  static async start(
    name: string,
    args: readonly string[],
    cwd: string,
    env: Record<string, string> = {},
  ): Promise<Process> {
    const child = spawn(binary(name), args, {
      cwd,
      env: { ...process.env, ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let told = "";
    const url = await new Promise<string>((resolve, reject) => {
      const hear = (data: Buffer) => {
        told += data;
        const found = /http:\/\/[0-9.:]+/.exec(told);
        if (found) resolve(found[0]);
      };
      child.stdout.on("data", hear);
      child.stderr.on("data", (data: Buffer) => {
        told += data;
      });
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`${name} ended with ${code}: ${told}`)));
    });
    return new Process(child, url);
  }

  /** Ends it and waits until it is gone. SIGKILL is a crash. */
  async end(signal: NodeJS.Signals = "SIGTERM"): Promise<void> {
    this.#child.kill(signal);
    await this.#ended;
  }
}
