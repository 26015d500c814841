import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sizes, worldOfFile } from "./world.ts";

const world = worldOfFile({
  agents:
    "  - name: small\n    model: fake/fake-model\n    instructions: Be exact.\n    tools: [output]\n    context:\n      window: 4000\n",
});
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const summary = "The person counts. They have come far, and the password is swordfish.";

let grown: Promise<void> | undefined;

/** A conversation that has grown out of the window. */
function aLongConversation(): Promise<void> {
  grown ??= grow();
  return grown;
}

async function grow(): Promise<void> {
  const w = world.current;
  for (let i = 1; i <= 8; i++) {
    await w.provider.script(
      { steps: [{ text: [summary] }], when: { body: "Write the summary that will stand" } },
      { steps: [{ text: ["Let me see."] }, { call: { name: "output", args: '{"letters":2500}' } }] },
      { steps: [{ text: [`That was number ${i}. `, "And so it goes on and on. ".repeat(20)] }] },
    );
    await w.say("ses_small", `Number ${i}, if you please. ${"It matters a lot to me. ".repeat(20)}`, "small");
    await w.until("ses_small", (s) => s.session.status === "idle" && s.messages.length === 2 * i);
    await w.provider.clear();
  }
}

async function barriers(page: Page): Promise<string[]> {
  await page.evaluate(axe);
  return await page.evaluate(async () => {
    type Found = { id: string; impact: string; nodes: { html: string }[] };
    const { axe } = window as unknown as { axe: { run(options: object): Promise<{ violations: Found[] }> } };
    const { violations } = await axe.run({ resultTypes: ["violations"] });
    return violations
      .filter(({ impact }) => impact === "serious" || impact === "critical")
      .map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
  });
}

test("a quiet line says where earlier messages were summarised, and opens the summary", async () => {
  await aLongConversation();
  const page = await world.current.page("/s/ses_small");
  const line = page.getByText("Earlier messages were summarised for the model");
  await line.waitFor();
  expect(await page.getByText(summary).count()).toBe(0);
  await line.click();
  await page.getByText(summary).waitFor();
  await page.getByText(/tokens became \d+\. Everything is still here/).waitFor();
  await page.context().close();
});

test("the inspector shows what the model saw at a step, on every screen, by mouse and by keyboard", async () => {
  await aLongConversation();
  for (const [size, options] of Object.entries(sizes)) {
    const page = await world.current.page("/s/ses_small", options);
    await page.getByText("That was number 8.").waitFor();
    await page.getByRole("button", { name: "How it went" }).click();
    const step = page.getByRole("listitem").filter({ hasText: "Step 2" });
    const fold = step.locator("summary", { hasText: "What the model saw" }).first();
    await fold.focus();
    await page.keyboard.press("Enter");
    const meter = step.getByRole("meter", { name: "Use of the model's window" });
    await meter.waitFor();
    expect(await meter.getAttribute("aria-valuetext")).toMatch(/^about [\d,]+ of 4,000 tokens$/);
    await step.getByText("Instructions and 1 tool").click();
    await step.getByText("Be exact.").waitFor();

    const messages = step.getByRole("list", { name: "Messages" });
    await messages.locator("summary").first().click();
    await messages.getByText(summary).waitFor();
    expect(await messages.locator("summary").first().textContent()).toContain("summary");
    const last = messages.locator("summary").last();
    expect(await last.textContent()).toMatch(/^Results, step 1: Output/);
    await last.click();
    await messages.getByText("Result of output").waitFor();

    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await barriers(page), `${size}, ${colorScheme}`).toEqual([]);
      if (process.env.SHOTS)
        await page.screenshot({ path: `${process.env.SHOTS}/${size}-${colorScheme}.png` });
    }
    const wide = await page.evaluate(() => {
      const body = document.querySelector(".inspector-body");
      return body ? body.scrollWidth - body.clientWidth : -1;
    });
    expect(wide, size).toBe(0);
    await page.context().close();
  }
});

test("the timeline tells when and why the context was made smaller", async () => {
  await aLongConversation();
  const page = await world.current.page("/s/ses_small");
  await page.getByText("That was number 8.").waitFor();
  await page.getByRole("button", { name: "How it went" }).click();
  const { items } = (await (
    await fetch(`${world.current.url}/v1/sessions/ses_small/compactions`)
  ).json()) as { items: { run: string; usage: { outputTokens: number } }[] };
  const run = items.find(({ usage }) => usage.outputTokens > 0)?.run ?? "";
  await page.getByRole("combobox", { name: "Run" }).selectOption(run);
  await page.getByText(/^Earlier messages were summarised: [\d,]+ tokens became/).waitFor();
  await page.getByText("The summary", { exact: true }).click();
  await page.getByRole("list").getByText(summary).waitFor();
  await page.context().close();
});
