/** What a reader of server-sent events hears. */
export type SseEars = {
  /** An event with its data. */
  event(data: string): void;
  /** A line that begins with a colon, without it. */
  comment(text: string): void;
  /** How long to wait before coming back, in milliseconds. */
  retry(ms: number): void;
};

/**
 * Reads server-sent events as the HTML standard has them, from pieces of text
 * that may be cut anywhere. An event that the stream's end cuts is no event.
 */
export class SseReader {
  readonly #ears: SseEars;
  #rest = "";
  #data: string[] = [];
  #begun = false;

  constructor(ears: SseEars) {
    this.#ears = ears;
  }

  /** Reads the next piece. */
  push(piece: string): void {
    let text = this.#rest + piece;
    if (!this.#begun && text) {
      this.#begun = true;
      if (text.startsWith("\uFEFF")) text = text.slice(1);
    }
    let start = 0;
    const end = /\r\n|\n|\r(?!$)/g; // a CR at the end of a piece may be half of a CRLF
    for (let found = end.exec(text); found; found = end.exec(text)) {
      this.#line(text.slice(start, found.index));
      start = end.lastIndex;
    }
    this.#rest = text.slice(start);
  }

  #line(line: string): void {
    if (line === "") {
      const data = this.#data;
      this.#data = [];
      if (data.length > 0) this.#ears.event(data.join("\n"));
      return;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (colon === 0) this.#ears.comment(value);
    else if (field === "data") this.#data.push(value);
    else if (field === "retry" && /^\d+$/.test(value)) this.#ears.retry(Number(value));
  }
}
