import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { sizes, worldOfFile } from "./world.ts";

const world = worldOfFile();
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

type Violation = { id: string; impact: string; nodes: { html: string; failureSummary: string }[] };

/** What axe finds on a page that would keep somebody out. */
async function barriers(page: Page): Promise<string[]> {
  // The page's own policy lets no script in but its own; the protocol of the debugger does.
  await page.evaluate(axe);
  const violations = await page.evaluate(async () => {
    const { axe } = window as unknown as {
      axe: { run(options: object): Promise<{ violations: Violation[] }> };
    };
    return (await axe.run({ resultTypes: ["violations"] })).violations;
  });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.html}\n${node.failureSummary}`));
}

const screens: readonly {
  name: string;
  path: string;
  prepare?: () => Promise<unknown>;
  ready: (page: Page) => Promise<unknown>;
}[] = [
  {
    name: "a new conversation",
    path: "/",
    ready: (page) => page.getByRole("button", { name: /^Show markdown/ }).waitFor(),
  },
  {
    name: "an answer in markdown",
    path: "/s/ses_markdown",
    prepare: async () => {
      await world.current.say("ses_markdown", "Show markdown", "demo");
      await world.current.until("ses_markdown", (s) => s.session.status === "idle");
    },
    ready: (page) => page.locator(".hljs-keyword").first().waitFor(),
  },
  {
    name: "a failed run",
    path: "/s/ses_failed",
    prepare: () => world.current.say("ses_failed", "break", "demo"),
    ready: (page) => page.getByRole("button", { name: "Try again" }).waitFor(),
  },
  {
    name: "an approval",
    path: "/s/ses_ask",
    prepare: () => world.current.say("ses_ask", "Delete the old reports", "demo"),
    ready: async (page) => {
      await page.getByRole("button", { name: "Edit arguments" }).click();
      await page.getByRole("button", { name: "Add a note" }).click();
    },
  },
  {
    name: "subagents",
    path: "/s/ses_share",
    prepare: () => world.current.say("ses_share", "Delegate to subagents", "demo"),
    ready: async (page) => {
      await page.getByRole("button", { name: "Approve" }).waitFor();
      await page.getByText("Open the conversation of Helper").first().waitFor();
    },
  },
  {
    name: "the inbox of approvals",
    path: "/approvals",
    ready: (page) => page.getByRole("button", { name: "Approve" }).first().waitFor(),
  },
  {
    name: "a run with a queue, its tools and the inspector",
    path: "/s/ses_busy",
    prepare: async () => {
      await world.current.say("ses_busy", "Run a long task of 200 seconds", "demo");
      await world.current.say("ses_busy", "And then plan a trip", "demo");
    },
    ready: async (page) => {
      await page.getByRole("progressbar").waitFor();
      await page.getByRole("button", { name: "How it went" }).click();
      await page.getByRole("list").getByText("Long task").waitFor();
    },
  },
  {
    name: "a conversation with a background run and its result",
    path: "/s/ses_beside",
    prepare: async () => {
      const { api } = world.current.client;
      const parts = (text: string) => [{ type: "text" as const, text }];
      const beside = { agent: "demo", background: true };
      await api.send("ses_beside", { id: "msg_1", parts: parts("Plan a trip"), ...beside });
      await world.current.until("ses_beside", (s) => s.messages.length === 1);
      await api.send("ses_beside", {
        id: "msg_2",
        parts: parts("Run a long task of 200 seconds"),
        ...beside,
      });
    },
    ready: async (page) => {
      await page.getByRole("article", { name: "Result of a background run" }).waitFor();
      await page.getByRole("button", { name: "Run a long task of 200 seconds", exact: true }).click();
      await page.getByRole("dialog").getByRole("progressbar").waitFor();
    },
  },
  {
    name: "two versions of an answer in comparison",
    path: "/s/ses_compared",
    prepare: async () => {
      const { run } = await world.current.say("ses_compared", "Show markdown", "demo");
      await world.current.until("ses_compared", (s) => s.session.status === "idle");
      await world.current.client.api.retryRun(run.id);
      await world.current.until("ses_compared", (s) => s.messages.some((m) => m.siblings?.length === 2));
    },
    ready: async (page) => {
      await page.getByRole("button", { name: "Compare versions" }).click();
      await page.getByRole("dialog").locator(".hljs-keyword").first().waitFor();
    },
  },
  {
    name: "a session that is not there",
    path: "/s/ses_nowhere",
    ready: (page) => page.getByText("There is no such").waitFor(),
  },
];

for (const screen of screens) {
  test(`axe finds nothing serious on ${screen.name}`, async () => {
    await screen.prepare?.();
    for (const [size, options] of Object.entries(sizes)) {
      const page = await world.current.page(screen.path, options);
      await screen.ready(page);
      for (const colorScheme of ["light", "dark"] as const) {
        await page.emulateMedia({ colorScheme });
        expect(await barriers(page), `${size}, ${colorScheme}`).toEqual([]);
      }
      await page.context().close();
    }
  });
}

test("axe is there, and finds what is wrong", async () => {
  const page = await world.current.page("/");
  await page.getByRole("button", { name: /^Show markdown/ }).waitFor();
  await page.getByRole("button", { name: "Attach files" }).evaluate((button) => {
    button.removeAttribute("aria-label");
    button.removeAttribute("title");
  });
  expect((await barriers(page)).join()).toContain("button-name");
});

test("no screen is wider than its window, and nothing on it needs scrolling sideways", async () => {
  const w = world.current;
  const long =
    "Delete the old reports, all of them, since nobody will ever read them again, and tell me ".repeat(3);
  await w.say("ses_wide", long, "demo");
  await w.until("ses_wide", (s) => s.approvals.length === 1);
  for (const options of Object.values(sizes)) {
    for (const path of ["/", "/s/ses_markdown", "/s/ses_wide", "/approvals"]) {
      const page = await w.page(path, options);
      await page.getByRole("main").getByRole("button").first().waitFor();
      if (path === "/approvals") await page.getByText("Delete the old reports, all").last().waitFor();
      const wide = await page.evaluate(() =>
        [document.documentElement, ...document.querySelectorAll("main, main *")]
          .filter((element) => {
            const { overflowY } = getComputedStyle(element);
            const scrolls = element === document.documentElement || overflowY === "auto";
            // A table and code may be wider than their place.
            return (
              scrolls && !element.matches("pre, .table-scroll") && element.scrollWidth > element.clientWidth
            );
          })
          .map((element) => `${element.tagName}.${element.className}`),
      );
      expect(wide, path).toEqual([]);
      await page.context().close();
    }
  }
});
