import { defineConfig } from "vitest/config";

// What newer platforms have without asking: the source text of a number.
const execArgv = process.version.startsWith("v20.") ? ["--harmony-json-parse-with-source"] : [];

export default defineConfig({
  resolve: { conditions: ["@holdfast/source"] },
  ssr: { resolve: { conditions: ["@holdfast/source"] } },
  test: { name: "client", include: ["test/**/*.test.ts"], execArgv, testTimeout: 30_000 },
});
