import { fromMarkdown } from "mdast-util-from-markdown";
import { gfmFromMarkdown } from "mdast-util-gfm";
import { gfm } from "micromark-extension-gfm";

/** A text in pieces that can be rendered one by one. */
export type Blocks = {
  /** The source of each top-level block. All but the last stay as they are while the text grows. */
  readonly blocks: readonly string[];
  /** What links and footnotes anywhere refer to. */
  readonly definitions: string;
  /** What is too long for markdown: shown as it is. */
  readonly rest: string;
};

/** Text beyond this many characters is not read as markdown. */
export const markdownMost = 60_000;

/**
 * Splits a text that grows. Only its last block is read again: in CommonMark
 * nothing that follows changes a block before it, but for definitions. So a
 * long answer costs what its last block costs, each time.
 */
export class Splitter {
  #text = "";
  #starts: number[] = [];
  #kinds: boolean[] = [];
  #result: Blocks = { blocks: [], definitions: "", rest: "" };

  split(whole: string): Blocks {
    const text = whole.length > markdownMost ? whole.slice(0, edge(whole)) : whole;
    const rest = whole.slice(text.length);
    if (text !== this.#text) this.#read(text);
    if (rest !== this.#result.rest) this.#result = { ...this.#result, rest };
    return this.#result;
  }

  #read(text: string): void {
    const grows = text.startsWith(this.#text);
    const from = grows ? (this.#starts.at(-1) ?? 0) : 0;
    const kept = grows ? Math.max(0, this.#starts.length - 1) : 0;
    const tree = fromMarkdown(text.slice(from), { extensions: [gfm()], mdastExtensions: [gfmFromMarkdown()] });
    this.#starts.length = kept;
    this.#kinds.length = kept;
    for (const node of tree.children) {
      this.#starts.push(from + (node.position?.start.offset ?? 0));
      this.#kinds.push(node.type === "definition" || node.type === "footnoteDefinition");
    }
    this.#text = text;
    const before = this.#result.blocks;
    const blocks: string[] = [];
    let definitions = "";
    for (const [i, start] of this.#starts.entries()) {
      const source = i < kept ? (before[i] ?? "") : text.slice(start, this.#starts[i + 1]);
      blocks.push(source);
      if (this.#kinds[i]) definitions += `\n\n${source.trim()}`;
    }
    this.#result = { blocks, definitions, rest: this.#result.rest };
  }
}

/** Where markdown ends in a text that is too long: at the end of a line, if there is one. */
function edge(text: string): number {
  const line = text.lastIndexOf("\n", markdownMost);
  return line > markdownMost / 2 ? line + 1 : markdownMost;
}
