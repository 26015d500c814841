/** Of several tries the last one: to begin one gives up the one before. */
export class Latest {
  #stop: AbortController | undefined;

  /** Begins one. Its signal says when it is given up. */
  begin(): AbortSignal {
    this.end();
    this.#stop = new AbortController();
    return this.#stop.signal;
  }

  /** Gives up what is under way. */
  end(): void {
    this.#stop?.abort();
    this.#stop = undefined;
  }

  /** Whether something was begun and not given up. */
  get isOn(): boolean {
    return this.#stop !== undefined;
  }
}
