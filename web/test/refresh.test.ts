import { expect, test } from "vitest";
import { patience, sessionOf, worldOfFile } from "./world.ts";

const world = worldOfFile();

test("ten refreshes, three cuts of the network and a crash of the server change nothing", async () => {
  const w = world.current;
  const words = Array.from({ length: 120 }, (_, i) => `word${i} `);
  await w.provider.script({ steps: [{ paced: { every: "60ms", pieces: words } }] });
  const network = await w.network();
  const page = await w.page("/", { base: network.url });
  const posts: string[] = [];
  page.on("request", (request) => {
    if (request.method() === "POST") posts.push(request.postData() ?? "");
  });

  await page.getByLabel("Agent").selectOption("scripted");
  await page.getByLabel("Message", { exact: true }).fill("Tell me a long story");
  await page.keyboard.press("Enter");
  await page.getByText("word3 ").waitFor();
  const session = sessionOf(page);

  for (let i = 1; i <= 10; i++) {
    await page.reload();
    await page.getByRole("article", { name: "Assistant" }).getByText("word0").waitFor();
    if (i % 3 === 0) {
      network.drop();
      await page
        .getByText(`word${i * 4} `)
        .first()
        .waitFor();
    }
  }
  await w.crash();
  await w.again();
  // The answer that the crash cut off is asked for anew.
  await w.provider.script({ steps: [{ paced: { every: "5ms", pieces: words } }] });
  const snapshot = await w.until(session, (s) => s.session.status === "idle");

  await page.getByText("word119").waitFor({ timeout: patience });
  expect(snapshot.messages.map((m) => m.role)).toEqual(["user", "assistant"]);
  expect(snapshot.runs.map((run) => run.status)).toEqual(["completed"]);
  const said = await page.getByRole("article", { name: "Assistant" }).locator(".markdown").textContent();
  expect((said ?? "").trim().split(/\s+/)).toEqual(words.map((word) => word.trim()));
  expect(await page.getByRole("article", { name: "You" }).count()).toBe(1);
  expect(posts).toHaveLength(1);
  expect(await w.provider.requests()).toBe(2); // one, and one for the attempt that the crash ended
});
