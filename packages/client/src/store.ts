import type { KeyValues } from "./environment.ts";

/** What outlives the page. A browser may refuse any of it (full, private, forbidden): then it is not kept. */
export class Store {
  readonly #values: KeyValues | undefined;
  readonly #prefix: string;

  /** Keys of different prefixes do not meet. */
  constructor(values: KeyValues | undefined, prefix: string) {
    this.#values = values;
    this.#prefix = prefix;
  }

  get(key: string): string | undefined {
    return this.#try((values) => values.getItem(this.#prefix + key) ?? undefined);
  }

  /** Keeps a value; `undefined` and the empty string remove it. */
  set(key: string, value: string | undefined): void {
    this.#try((values) => {
      if (value) values.setItem(this.#prefix + key, value);
      else values.removeItem(this.#prefix + key);
    });
  }

  /** The keys that begin with a prefix. */
  keys(prefix: string): string[] {
    const found: string[] = [];
    this.#try((values) => {
      for (let i = 0; i < values.length; i++) {
        const key = values.key(i);
        if (key?.startsWith(this.#prefix + prefix)) found.push(key.slice(this.#prefix.length));
      }
    });
    return found;
  }

  #try<T>(use: (values: KeyValues) => T): T | undefined {
    try {
      return this.#values && use(this.#values);
    } catch {
      return undefined;
    }
  }
}
