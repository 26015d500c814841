import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build } from "vite";
import type { TestProject } from "vitest/node";

declare module "vitest" {
  interface ProvidedContext {
    /** The folder with the built page of each version. */
    pages: string;
  }
}

/** The packages of each version. */
const versions = {
  v5: { ai: "ai-v5", "@ai-sdk/react": "ai-sdk-react-v5" },
  v6: { ai: "ai-v6", "@ai-sdk/react": "ai-sdk-react-v6" },
  v7: { ai: "ai", "@ai-sdk/react": "@ai-sdk/react" },
};

/** Builds the pages, once for all tests. */
export default async function setup({ provide }: TestProject): Promise<() => void> {
  const dist = mkdtempSync(join(tmpdir(), "holdfast-pages-"));
  for (const [name, packages] of Object.entries(versions)) {
    await build({
      configFile: false,
      root: join(import.meta.dirname, "../page"),
      base: "./",
      logLevel: "error",
      resolve: {
        alias: Object.entries(packages).map(([name, replacement]) => ({
          find: new RegExp(`^${name}$`),
          replacement,
        })),
        dedupe: ["react", "react-dom"],
        conditions: ["@holdfast/source", "module", "browser", "production"],
      },
      build: { outDir: join(dist, name), emptyOutDir: true, minify: false, modulePreload: false },
    });
  }
  provide("pages", dist);
  return () => rmSync(dist, { recursive: true, force: true });
}
