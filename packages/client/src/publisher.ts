import type { Environment } from "./environment.ts";

/**
 * When what changed is shown. A token waits for the next frame, a fact for the
 * end of the task, and what the person did is shown before the call returns.
 */
export class Publisher {
  readonly #env: Environment;
  readonly #publish: () => void;
  #stopFrame: (() => void) | undefined;
  #soon = false;

  /** `publish` must do nothing when there is nothing new. */
  constructor(env: Environment, publish: () => void) {
    this.#env = env;
    this.#publish = publish;
  }

  /** Once before the next paint. */
  frame(): void {
    this.#stopFrame ??= this.#env.frame(this.now);
  }

  /** Once, after the task that runs now. */
  soon(): void {
    this.#soon = true;
    queueMicrotask(() => {
      if (this.#soon) this.now();
    });
  }

  /** Before this call returns. */
  now = (): void => {
    this.#stopFrame?.();
    this.#stopFrame = undefined;
    this.#soon = false;
    this.#publish();
  };
}
