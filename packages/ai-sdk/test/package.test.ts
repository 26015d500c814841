import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { expect, it } from "vitest";
import * as aiSdk from "../src/index.ts";

it("costs a page less than 7 kB beside the client, minified and gzipped, and needs nothing else", async () => {
  const input = fileURLToPath(new URL("../src/index.ts", import.meta.url));
  const bundle = await rolldown({ input, external: (id) => !id.startsWith(".") && !id.startsWith("/") });
  const { output } = await bundle.generate({ format: "esm", minify: true });
  expect(output).toHaveLength(1);
  expect(output[0].imports).toEqual(["@holdfast/client"]);
  expect(gzipSync(output[0].code, { level: 9 }).length).toBeLessThan(7_000);
});

it("has these public names and no others", () => {
  expect(Object.keys(aiSdk)).toEqual(["HoldfastChatTransport"]);
});
