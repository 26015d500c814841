import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, createClient, type Run, type Snapshot } from "@holdfast/client";
import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, beforeEach, expect } from "vitest";
import { Network } from "./network.ts";
import { Process } from "./process.ts";
import { Provider } from "./provider.ts";

const switches = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** A phone, a tablet and a desk. */
export const sizes = {
  phone: { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true },
  tablet: { viewport: { width: 834, height: 1112 } },
  desk: { viewport: { width: 1440, height: 900 } },
} satisfies Record<string, BrowserContextOptions>;

/** How long something may take on a busy machine, in milliseconds. */
export const patience = 30_000;

export type WorldOptions = {
  /** May write into the data folder before the server has it. */
  readonly prepare?: (data: string) => void;
  /** More agents of the server, as YAML. */
  readonly agents?: string;
  /** More of the server's configuration. */
  readonly settings?: string;
};

/** The server, its provider, and a browser. */
export class World {
  readonly browser: Browser;
  readonly provider: Provider;
  readonly client: Client;
  /** What went wrong in any page, as its console says. */
  readonly complaints: string[] = [];
  readonly #dir: string;
  readonly #networks: Network[] = [];
  #server: Process;

  private constructor(browser: Browser, provider: Provider, server: Process, dir: string) {
    this.browser = browser;
    this.provider = provider;
    this.#server = server;
    this.#dir = dir;
    this.client = createClient({ baseUrl: server.url });
  }

  static async start({ prepare = () => {}, agents = "", settings = "" }: WorldOptions = {}): Promise<World> {
    const dir = mkdtempSync(join(tmpdir(), "holdfast-browser-"));
    prepare(join(dir, "data"));
    const provider = await Provider.start();
    writeFileSync(join(dir, "holdfast.yaml"), config(provider.url, agents) + settings);
    const server = await serve(dir, "127.0.0.1:0");
    const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";
    const browser = await chromium.launch({ executablePath, args: switches });
    return new World(browser, provider, server, dir);
  }

  get url(): string {
    return this.#server.url;
  }

  /** Ends the server as a crash does. */
  async crash(): Promise<void> {
    await this.#server.end("SIGKILL");
  }

  /** Ends the server as a deploy does, and starts it again. */
  async deploy(): Promise<void> {
    await this.#server.end();
    await this.again();
  }

  /** Starts the server again, where it was. `between` may change what it will find in the data folder. */
  async again(between: (data: string) => void = () => {}): Promise<void> {
    between(join(this.#dir, "data"));
    this.#server = await serve(this.#dir, new URL(this.url).host);
  }

  /** A network before the server that can be cut. It may end what is silent for `idle` milliseconds. */
  async network(idle?: number): Promise<Network> {
    const network = await Network.before(this.url, idle);
    this.#networks.push(network);
    return network;
  }

  /** An empty page of a new person: nothing is shared with others but the server. */
  async blank(options: BrowserContextOptions = {}): Promise<Page> {
    const context = await this.browser.newContext({ reducedMotion: "reduce", ...sizes.desk, ...options });
    context.setDefaultTimeout(patience);
    const page = await context.newPage();
    this.watch(page);
    return page;
  }

  /** A new page of a new person. */
  async page(path: string, options: BrowserContextOptions & { base?: string } = {}): Promise<Page> {
    const { base = this.url, ...rest } = options;
    const page = await this.blank(rest);
    await page.goto(base + path);
    return page;
  }

  /** Has a page's complaints kept. That a network is down is no complaint of the page. */
  watch(page: Page): void {
    page.on("pageerror", (error) => this.complaints.push(String(error)));
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() === "error" && !/ERR_|Failed to load resource|WebSocket connection/.test(text)) {
        this.complaints.push(text);
      }
    });
  }

  /** Says something without a page. */
  say(session: string, text: string, agent = "scripted"): Promise<{ run: Run }> {
    return this.client.api.send(session, {
      id: `msg_${crypto.randomUUID()}`,
      parts: [{ type: "text", text }],
      agent,
    });
  }

  /** What the tools did, one line for each effect: the tool, the key, and what was noted. */
  ledger(): string[] {
    return readFileSync(join(this.#dir, "ledger"), "utf8").trim().split("\n");
  }

  snapshot(session: string): Promise<Snapshot> {
    return this.client.api.snapshot(session, { window: 200 });
  }

  /** Waits until a session is as it should be. */
  async until(session: string, holds: (snapshot: Snapshot) => boolean): Promise<Snapshot> {
    let last: Snapshot | undefined;
    await expect
      .poll(
        async () => {
          last = await this.snapshot(session).catch(() => undefined);
          return last !== undefined && holds(last);
        },
        { timeout: patience, interval: 50 },
      )
      .toBe(true);
    if (!last) throw new Error("there is no snapshot");
    return last;
  }

  async close(): Promise<void> {
    this.client.close();
    await this.browser.close();
    for (const network of this.#networks) network.close();
    await this.#server.end("SIGKILL");
    await this.provider.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }
}

/** The world of a file of tests. */
export function worldOfFile(options?: WorldOptions): { readonly current: World } {
  const holder: { current: World } = { current: undefined as never };
  beforeAll(async () => {
    holder.current = await World.start(options);
  });
  // What one test did not use is not another one's answer.
  beforeEach(() => holder.current.provider.clear());
  afterAll(async () => {
    await holder.current.close();
    expect(holder.current.complaints).toEqual([]);
  });
  return holder;
}

/** The session that a page shows. */
export function sessionOf(page: Page): string {
  return new URL(page.url()).pathname.split("/")[2] ?? "";
}

function serve(dir: string, listen: string): Promise<Process> {
  const args = [
    "serve",
    "--listen",
    listen,
    "--data",
    join(dir, "data"),
    "--config",
    join(dir, "holdfast.yaml"),
    "--log-level",
    "error",
  ];
  return Process.start("faultsd", args, dir, { FAKE_KEY: "none", LEDGER: join(dir, "ledger") });
}

function config(provider: string, agents: string): string {
  return `
providers:
  fake:
    type: openai-compatible
    baseURL: ${provider}/v1
    apiKeyEnv: FAKE_KEY
agents:
  - name: demo
    model: demo/demo
    tools: [clock, calculator, notes_list, notes_read, notes_write, notes_delete, weather_sample, long_task, flaky]
    subagents: [helper]
  - name: scripted
    model: fake/fake-model
    tools: [look, put, charge, pay, output, deaf]
    subagents: [clerk]
  - name: helper
    model: demo/demo
    tools: [notes_list, notes_write, notes_delete, weather_sample, long_task]
  - name: clerk
    model: fake/fake-model
    tools: [look, pay]
${agents}engine:
  lease: 2s
  poll: 200ms
  retryFirst: 100ms
  retryMax: 1s
  crashFirst: 100ms
`;
}
