import { Lexer } from "marked";

/** One top-level block of a text. */
export type Block = {
  readonly source: string;
  /** Set for a block of code: what is in it needs no reading. */
  readonly code?: { readonly text: string; readonly language: string };
};

/** A text in pieces that can be rendered one by one. */
export type Blocks = {
  /** All but the last stay the same objects while the text grows. */
  readonly blocks: readonly Block[];
  /** What links and footnotes anywhere refer to. */
  readonly definitions: string;
  /** What is too long for markdown: shown as it is. */
  readonly rest: string;
};

/** Text beyond this many characters is not read as markdown. */
export const markdownMost = 60_000;

const footnote = /^ {0,3}\[\^[^\]\n]+\]:/;

/**
 * Splits a text that grows. Only its last block is read again: nothing that
 * follows changes a block before it, but for definitions. So a long answer
 * costs what its last block costs, each time.
 */
export class Splitter {
  #text = "";
  /** Where reading goes on: at the last block, with so many blocks and definitions before it. */
  #tail = { at: 0, blocks: 0, definitions: 0 };
  #blocks: readonly Block[] = [];
  #definitions: readonly string[] = [];
  #result: Blocks = { blocks: [], definitions: "", rest: "" };

  split(whole: string): Blocks {
    const cut = whole.length > markdownMost ? edge(whole) : whole.length;
    const rest = whole.slice(cut);
    let text = whole.slice(0, cut);
    if (text.includes("\r")) text = text.replace(/\r\n?/g, "\n");
    if (text !== this.#text) this.#read(text);
    if (rest !== this.#result.rest || this.#blocks !== this.#result.blocks) {
      this.#result = { blocks: this.#blocks, definitions: this.#definitions.join("\n\n"), rest };
    }
    return this.#result;
  }

  #read(text: string): void {
    const grows = text.startsWith(this.#text);
    const tail = grows ? this.#tail : { at: 0, blocks: 0, definitions: 0 };
    const blocks = this.#blocks.slice(0, tail.blocks);
    const definitions = this.#definitions.slice(0, tail.definitions);
    let { at } = tail;
    this.#tail = tail;
    for (const token of new Lexer().blockTokens(text.slice(at), [])) {
      const { raw, type } = token;
      if (type === "def" || (type === "paragraph" && footnote.test(raw))) definitions.push(raw.trim());
      else if (type !== "space") {
        this.#tail = { at, blocks: blocks.length, definitions: definitions.length };
        const isCode = type === "code" && token.codeBlockStyle !== "indented";
        blocks.push(
          isCode ? { source: raw, code: { text: token.text, language: token.lang ?? "" } } : { source: raw },
        );
      }
      at += raw.length;
    }
    this.#text = text;
    this.#blocks = blocks;
    this.#definitions = definitions;
  }
}

/** Where markdown ends in a text that is too long: at the end of a line, if there is one. */
function edge(text: string): number {
  const line = text.lastIndexOf("\n", markdownMost);
  return line > markdownMost / 2 ? line + 1 : markdownMost;
}
