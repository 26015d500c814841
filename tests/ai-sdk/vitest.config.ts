import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { conditions: ["@holdfast/source"] },
  ssr: { resolve: { conditions: ["@holdfast/source"] } },
  test: {
    name: "ai-sdk",
    include: ["test/**/*.test.ts"],
    globalSetup: "test/pages.ts",
    // Each file has a browser, a server and a provider of its own: two processors carry one at a time.
    fileParallelism: false,
    testTimeout: 90_000,
    hookTimeout: 60_000,
  },
});
