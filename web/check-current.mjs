// Builds the page aside and compares it with web/dist, which is committed.
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { build } from "vite";

const root = import.meta.dirname;
const aside = mkdtempSync(join(tmpdir(), "holdfast-page-"));
try {
  await build({ root, logLevel: "error", build: { outDir: aside, emptyOutDir: true } });
  const built = filesOf(aside);
  const kept = filesOf(join(root, "dist"));
  const differ = [...new Set([...built.keys(), ...kept.keys()])].filter(
    (name) => !built.get(name)?.equals(kept.get(name) ?? Buffer.alloc(0)),
  );
  if (differ.length > 0) {
    console.error(`web/dist is not what web/src builds. Run "make web" and commit it.\n  ${differ.join("\n  ")}`);
    process.exitCode = 1;
  }
} finally {
  rmSync(aside, { recursive: true, force: true });
}

function filesOf(dir) {
  const names = readdirSync(dir, { recursive: true }).map((name) => join(dir, name));
  return new Map(names.filter((name) => statSync(name).isFile()).map((name) => [relative(dir, name), readFileSync(name)]));
}
