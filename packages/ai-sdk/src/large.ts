import type { Api, Blob } from "@holdfast/client";

/** The large texts of a session, which its log only names. */
export class Large {
  readonly #api: Api;
  readonly #session: string;
  readonly #texts = new Map<string, string | undefined>();
  readonly #ears = new Set<() => void>();

  constructor(api: Api, session: string) {
    this.#api = api;
    this.#session = session;
  }

  /** The text of a blob. Undefined: it is on its way. What cannot be had is its preview. */
  text(blob: Blob, preview: string): string | undefined {
    if (!this.#texts.has(blob.hash)) void this.#load(blob.hash, preview);
    return this.#texts.get(blob.hash);
  }

  /** Where a blob's bytes are. */
  url(blob: Blob): string {
    return this.#api.blobUrl(this.#session, blob.hash);
  }

  /** Calls back when a text has come, until the returned function is called. */
  onText(hear: () => void): () => void {
    this.#ears.add(hear);
    return () => this.#ears.delete(hear);
  }

  async #load(hash: string, preview: string): Promise<void> {
    this.#texts.set(hash, undefined);
    try {
      this.#texts.set(hash, await (await this.#api.blob(this.#session, hash)).text());
    } catch {
      this.#texts.set(hash, preview);
    }
    for (const hear of [...this.#ears]) hear();
  }
}
