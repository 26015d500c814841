import { type Browser as Chromium, chromium, type Page as Tab } from "playwright-core";
import { afterAll, beforeAll, expect, inject } from "vitest";
import type { Message, Sdk } from "./sdk.ts";
import { Site } from "./site.ts";
import { patience, type World } from "./world.ts";

const switches = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"];

/** What a page shows: see page/main.tsx. */
type Shown = { messages: Message[]; status: string; error?: string };

/** A browser, and the site that its pages are from. */
export class Browser {
  readonly #chromium: Chromium;
  #site: Site | undefined;
  /** What went wrong in any page, as its console says. */
  readonly complaints: string[] = [];

  private constructor(chromium: Chromium) {
    this.#chromium = chromium;
  }

  static async start(): Promise<Browser> {
    const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
    return new Browser(await chromium.launch({ executablePath, args: switches }));
  }

  /** A page on a chat, built with a version of the SDK. */
  async open(world: World, name: Sdk["name"], chat: string, query = ""): Promise<Page> {
    this.#site ??= await Site.before(world.url, inject("pages"));
    const page = new Page(await this.tab(`${this.#site.url}/page/${name}/${query}#${chat}`));
    await page.until((shown) => shown.status !== "");
    return page;
  }

  /** What is at an address, for a new person. */
  async tab(url: string): Promise<Tab> {
    const context = await this.#chromium.newContext();
    context.setDefaultTimeout(patience);
    const tab = await context.newPage();
    tab.on("pageerror", (error) => this.complaints.push(String(error)));
    await tab.goto(url);
    return tab;
  }

  async close(): Promise<void> {
    await this.#chromium.close();
    this.#site?.close();
  }
}

/** One page of a person. */
export class Page {
  readonly tab: Tab;
  /** The bodies of the requests that asked for an answer. */
  readonly posts: string[] = [];
  /** The statuses with which the resumptions were answered. */
  readonly resumed: number[] = [];

  constructor(tab: Tab) {
    this.tab = tab;
    tab.on("request", (request) => {
      if (request.method() === "POST" && request.url().endsWith("/api/chat")) {
        this.posts.push(request.postData() ?? "");
      }
    });
    tab.on("response", (response) => {
      if (response.url().endsWith("/stream")) this.resumed.push(response.status());
    });
  }

  async say(text: string): Promise<void> {
    await this.tab.getByLabel("Message").fill(text);
    await this.press("Send");
  }

  press(button: string): Promise<void> {
    return this.tab.getByRole("button", { name: button }).click();
  }

  /** What the page shows now. Until it is there, nothing. */
  shown(): Promise<Shown> {
    return this.tab.evaluate(
      () => globalThis.shown ?? { messages: [], status: "" },
    ) as Promise<unknown> as Promise<Shown>;
  }

  /** Waits until the page shows something. */
  async until(holds: (shown: Shown) => boolean): Promise<Shown> {
    let last: Shown | undefined;
    await expect
      .poll(
        async () => {
          last = await this.shown();
          return holds(last) ? "shown" : JSON.stringify(last);
        },
        { timeout: patience, interval: 20 },
      )
      .toBe("shown");
    if (!last) throw new Error("the page shows nothing");
    return last;
  }

  /** Loads the page again. */
  async refresh(): Promise<void> {
    await this.tab.reload();
    await this.until((shown) => shown.status !== "");
  }

  close(): Promise<void> {
    return this.tab.close();
  }
}

/** The browser of a file of tests. No page may have complained in the end. */
export function browserOfFile(): { readonly current: Browser } {
  const holder: { current: Browser } = { current: undefined as never };
  beforeAll(async () => {
    holder.current = await Browser.start();
  });
  afterAll(async () => {
    await holder.current.close();
    expect(holder.current.complaints).toEqual([]);
  });
  return holder;
}
