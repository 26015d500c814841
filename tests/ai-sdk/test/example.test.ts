/** examples/ai-sdk-chat, as it is built and served. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { build, type PreviewServer, preview } from "vite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { browserOfFile } from "./browser.ts";
import { until } from "./look.ts";
import { worldOfFile } from "./world.ts";

const world = worldOfFile();
const browser = browserOfFile();
const outDir = mkdtempSync(join(tmpdir(), "holdfast-example-"));
let site: PreviewServer;

beforeAll(async () => {
  process.env.HOLDFAST_URL = world.current.url;
  const how = { root: join(import.meta.dirname, "../../../examples/ai-sdk-chat"), build: { outDir } };
  await build({ ...how, logLevel: "error" });
  site = await preview({ ...how, preview: { host: "127.0.0.1", port: 0 } });
});

afterAll(async () => {
  await site.close();
  rmSync(outDir, { recursive: true, force: true });
});

test("the example shows an answer over a refresh, asks, goes on, and stops", async () => {
  const w = world.current;
  await w.provider.script(
    {
      steps: [
        { reasoning: ["Rent is due."] },
        { text: ["I will "] },
        { wait_gate: "go" },
        { text: ["pay."] },
        { call: { name: "pay", args: '{"note":"rent"}' } },
      ],
    },
    { steps: [{ text: ["It is paid."] }] },
    { steps: [{ text: ["As far as this"] }, { stall: true }] },
  );
  const tab = await browser.current.tab(`${site.resolvedUrls?.local[0]}#example`);
  const say = async (text: string) => {
    await tab.getByLabel("Message").fill(text);
    await tab.getByRole("button", { name: "Send" }).click();
  };
  await say("Pay the rent");
  await tab.getByText("I will").waitFor();
  await tab.reload();
  await tab.getByText("I will").waitFor();
  await w.provider.open("go");
  await tab.getByRole("button", { name: "Approve" }).waitFor();
  await tab.reload();
  await tab.getByRole("button", { name: "Approve" }).click();
  await tab.getByText("It is paid.").waitFor();
  await tab.getByText("output available").waitFor();
  expect(await tab.getByText("I will pay.").count()).toBe(1);

  await tab.getByRole("button", { name: "Send" }).waitFor();
  await say("Talk for ever");
  await tab.getByText("As far as this").waitFor();
  await tab.getByRole("button", { name: "Stop" }).click();
  await tab.getByRole("button", { name: "Send" }).waitFor();
  expect((await w.ended("example")).status).toBe("cancelled");
  await tab.reload();
  await until(async () => (await tab.locator("article").count()) === 4);
  expect(await tab.getByText("As far as this").count()).toBe(1);
  expect(await tab.getByRole("alert").count()).toBe(0);
});
