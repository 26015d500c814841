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
 * Reads server-sent events as the HTML standard has them. What it gives takes
 * the text in pieces that may be cut anywhere. An event that the stream's end
 * cuts is no event.
 */
export function readSse(ears: SseEars): (piece: string) => void {
  let rest = "";
  let data: string[] = [];
  let begun = false;
  const read = (line: string) => {
    if (line === "") {
      if (data.length > 0) ears.event(data.join("\n"));
      data = [];
      return;
    }
    const [, field, value = ""] = /^([^:]*)(?:: ?(.*))?$/s.exec(line) ?? [];
    if (field === "") ears.comment(value);
    else if (field === "data") data.push(value);
    else if (field === "retry" && /^\d+$/.test(value)) ears.retry(Number(value));
  };
  return (piece) => {
    if (piece && !begun) piece = piece.replace(/^\uFEFF/, "");
    begun ||= piece !== "";
    // A CR at the end of a piece may be half of a CRLF.
    const lines = (rest + piece).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop() ?? "";
    for (const line of lines) read(line);
  };
}
