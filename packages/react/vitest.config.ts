import { defineConfig } from "vitest/config";

export default defineConfig({
  resolve: { conditions: ["@holdfast/source"] },
  ssr: { resolve: { conditions: ["@holdfast/source"] } },
  test: { name: "react", include: ["test/**/*.test.tsx"], environment: "happy-dom" },
});
