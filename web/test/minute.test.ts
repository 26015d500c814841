/** What takes its time: nothing is made to pass faster here. */

import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { patience, World } from "./world.ts";

const answer = (page: Page) => page.getByRole("article", { name: "Assistant" }).last();
const minute = 60_000;

/** A world of a test's own, since both run at the same time. */
async function inWorld(act: (w: World) => Promise<void>): Promise<void> {
  const w = await World.start();
  try {
    await act(w);
    expect(w.complaints).toEqual([]);
  } finally {
    await w.close();
  }
}

test.concurrent(
  "TP-02: a proxy that ends what is silent for 60 s ends nothing while a run waits for a person",
  () =>
    inWorld(async (w) => {
      const network = await w.network(minute);
      await w.provider.script(
        { steps: [{ call: { id: "call_1", name: "pay", args: '{"note":"rent"}' } }] },
        { steps: [{ text: ["It is paid."] }] },
      );
      await w.say("ses_wait", "Pay the rent");
      const sockets: string[] = [];
      const page = await w.blank();
      page.on("websocket", (socket) => sockets.push(socket.url()));
      await page.goto(`${network.url}/s/ses_wait`);
      await page.getByText("Allow Pay?").waitFor();
      await passes(page, minute + 12_000);
      await page.getByRole("button", { name: "Approve" }).click();
      await answer(page).getByText("It is paid.").waitFor();
      expect(sockets).toHaveLength(1);
    }),
  3 * minute,
);

test.concurrent(
  "TP-07: a server that flaps for a minute is asked seldom by each page, and every page recovers by itself",
  () =>
    inWorld(async (w) => {
      const words = Array.from({ length: 600 }, (_, i) => `w${i} `);
      await w.provider.script({ steps: [{ paced: { every: "150ms", pieces: words } }], times: 40 });
      await w.say("ses_flap", "Go on for long");
      const network = await w.network();
      const pages: Page[] = [];
      const tries: number[] = [];
      for (let i = 0; i < 5; i++) {
        const page = await w.page("/s/ses_flap", { base: network.url });
        page.on("websocket", () => {
          tries[i] = (tries[i] ?? 0) + 1;
        });
        await answer(page).getByText("w0 ").waitFor();
        pages.push(page);
      }
      const before = network.attempts;
      const until = performance.now() + minute;
      let flaps = 0;
      while (performance.now() < until) {
        await w.crash();
        await w.again();
        flaps++;
        await passes(pages[0], 2_000);
      }
      const attempts = network.attempts - before;
      const most = Math.max(...tries);
      console.info(`${flaps} flaps; attempts by page ${tries.join(", ")}; connections ${attempts}`);
      expect(flaps).toBeGreaterThan(8);
      // Waits of 0.5 to 1 s, 1 to 2 s, and so on up to 30 s make seven or eight attempts in a minute.
      expect(most).toBeLessThanOrEqual(12);
      expect(Math.min(...tries)).toBeGreaterThanOrEqual(2);
      // Each is a WebSocket and a question why it failed; a return asks for what was missed and the lists.
      expect(attempts / pages.length).toBeLessThan(40);
      // So many crashes end the run, and each page says so.
      const { runs } = await w.until("ses_flap", (s) => s.session.status === "idle");
      expect(runs).toHaveLength(1);
      for (const page of pages) {
        await answer(page)
          .getByRole("button", { name: "Try again" })
          .waitFor({ timeout: 2 * patience });
      }
    }),
  4 * minute,
);

/** Lets time pass in a page. */
const passes = (page: Page | undefined, ms: number) =>
  page?.evaluate((ms) => new Promise<void>((resolve) => setTimeout(resolve, ms)), ms);
