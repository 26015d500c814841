import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { conditions: ["@holdfast/source"] },
  ssr: { resolve: { conditions: ["@holdfast/source"] } },
  test: {
    name: "web",
    include: ["test/**/*.test.ts"],
    // Each file has a browser, a server and a provider of its own: two processors carry one at a time.
    fileParallelism: false,
    // A machine that is busy with other things is slow, not broken: what is waited for may take its time.
    testTimeout: 180_000,
    hookTimeout: 60_000,
    expect: { poll: { timeout: 30_000, interval: 50 } },
  },
});
