import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";
import { expect, test } from "vitest";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const root = join(import.meta.dirname, "../../examples/react-chat");

test("the page of thirty lines streams, asks, and is the same after a reload", async () => {
  const w = world.current;
  const built = await build({ root, logLevel: "error", build: { write: false } });
  if (!("output" in built)) throw new Error("one page is built once");
  const files = new Map(built.output.map((file) => [`/${file.fileName}`, file]));
  const page = await w.blank();
  await page.route(
    ({ pathname }) => pathname === "/" || files.has(pathname),
    (route) => {
      const { pathname } = new URL(route.request().url());
      const file = files.get(pathname === "/" ? "/index.html" : pathname);
      const body = file?.type === "chunk" ? file.code : String(file?.source);
      return route.fulfill({ body, contentType: pathname.endsWith(".js") ? "text/javascript" : "text/html" });
    },
  );
  await page.goto(`${w.url}/`);
  await page.getByLabel("Message").fill("Delete the old reports");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByRole("button", { name: "Stop" }).waitFor();
  await page.getByRole("button", { name: "Allow notes_delete" }).waitFor();
  await page.reload();
  await page.getByRole("button", { name: "Allow notes_delete" }).click();
  await page.getByText("Done: the old report is deleted").waitFor();
  await page.getByRole("button", { name: "Send" }).waitFor();
  const shown = () => page.getByRole("main").textContent();
  const live = await shown();
  await page.reload();
  await expect.poll(shown).toBe(live);
  const lines = readFileSync(join(root, "src/main.tsx"), "utf8").split("\n");
  expect(lines.filter((line) => line && !line.startsWith("import")).length).toBeLessThanOrEqual(30);
});
