import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { describe, expect, it } from "vitest";
import * as client from "../src/index.ts";

describe("the package", () => {
  it("costs a page less than 15 kB, minified and gzipped, and needs nothing else", async () => {
    const input = fileURLToPath(new URL("../src/index.ts", import.meta.url));
    const bundle = await rolldown({ input, external: (id) => !id.startsWith(".") && !id.startsWith("/") });
    const { output } = await bundle.generate({ format: "esm", minify: true, comments: false });
    expect(output).toHaveLength(1);
    expect(output[0].imports).toEqual([]);
    expect(gzipSync(output[0].code, { level: 9 }).length).toBeLessThan(15_000);
  });

  it("has these public names and no others", () => {
    expect(Object.keys(client).sort()).toEqual([
      "Problem",
      "Unanswered",
      "browser",
      "createClient",
      "empty",
      "failureOf",
      "fold",
      "foldAll",
      "fromSnapshot",
      "isDelta",
      "isPassing",
      "isTerminal",
      "parseJson",
      "rangeOf",
      "stringifyJson",
    ]);
  });
});
