// again runs vitest with the given arguments, and the files in which a test has failed once more by
// themselves: the tests are real browsers and processes on clocks, and a machine that stood still for seconds
// is not broken. What fails twice is; what failed once is told.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";

const most = 3; // more files than this are no accident
const dir = mkdtempSync(join(tmpdir(), "again-"));
const report = join(dir, "report.json");

function vitest(args) {
  const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
  return spawnSync("npx", ["vitest", "run", ...reporters, ...args], { stdio: "inherit" }).status ?? 1;
}

let status = vitest(process.argv.slice(2));
if (status !== 0) {
  let failed = [];
  try {
    const { testResults } = JSON.parse(readFileSync(report, "utf8"));
    failed = testResults.filter((file) => file.status === "failed").map(({ name }) => relative(process.cwd(), name));
  } catch {
    // It did not come so far as to say what failed.
  }
  if (failed.length > 0 && failed.length <= most) {
    console.log(`\nonce more, by themselves: ${failed.join(" ")}\n`);
    status = vitest(failed);
  }
}
rmSync(dir, { recursive: true, force: true });
process.exit(status);
