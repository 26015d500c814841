import { expect, test } from "vitest";
import { type Blocks, markdownMost, Splitter } from "../src/markdown/blocks.ts";

const text = `# A heading

A paragraph with [a link][there] and a footnote[^1].

- one
- two

  still two

\`\`\`ts
const a = "\n";

const b = 1;
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

> quoted
> twice

[there]: https://example.com
[^1]: What it says.

The end.`;

const sources = ({ blocks }: Blocks) => blocks.map(({ source }) => source.trim());

test("a text that grows letter by letter ends in the same blocks as the whole", () => {
  const growing = new Splitter();
  let last: Blocks | undefined;
  for (let i = 1; i <= text.length; i++) last = growing.split(text.slice(0, i));
  const whole = new Splitter().split(text);
  expect(last).toEqual(whole);
  expect(sources(whole)).toHaveLength(7);
  expect(whole.definitions).toBe("[there]: https://example.com\n\n[^1]: What it says.");
});

test("blocks before the last stay the same objects", () => {
  const splitter = new Splitter();
  const before = splitter.split("One.\n\nTwo.\n\nThr");
  const after = splitter.split("One.\n\nTwo.\n\nThree.\n\nFour.");
  expect(after.blocks[0]).toBe(before.blocks[0]);
  expect(after.blocks[1]).toBe(before.blocks[1]);
  expect(after.blocks[2]?.source.trim()).toBe("Three.");
});

test("a block of code is one, open or closed, and knows its language", () => {
  const open = new Splitter().split("```go\nfunc main() {\n\n\tprintln()");
  expect(open.blocks).toHaveLength(1);
  expect(open.blocks[0]?.code).toEqual({ text: "func main() {\n\n\tprintln()", language: "go" });
});

test("a text that is replaced is read anew", () => {
  const splitter = new Splitter();
  splitter.split("What an attempt had said.\n\nMuch of it.");
  expect(sources(splitter.split("Another one."))).toEqual(["Another one."]);
  expect(splitter.split("")).toEqual({ blocks: [], definitions: "", rest: "" });
});

test("nothing of a very long text is lost, and most of it is not read", () => {
  const long = "A line of text that is not short.\n\n".repeat(20_000);
  const { blocks, rest } = new Splitter().split(long);
  const read = blocks.map(({ source }) => source).join("\n\n");
  expect(read.length).toBeLessThanOrEqual(markdownMost);
  expect(`${read}\n${rest}`.replace(/\s+/g, " ").trim()).toBe(long.replace(/\s+/g, " ").trim());
});
