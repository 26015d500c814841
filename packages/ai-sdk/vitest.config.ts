import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { conditions: ["@holdfast/source"] },
  ssr: { resolve: { conditions: ["@holdfast/source"] } },
  test: { name: "ai-sdk", include: ["test/**/*.test.ts"] },
});
