import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Approval, type Client, createClient, isTerminal, type Run } from "@holdfast/client";
import { afterAll, beforeAll, expect } from "vitest";
import { Process } from "../../../web/test/process.ts";
import { Provider } from "../../../web/test/provider.ts";

/** How long something may take on a busy machine, in milliseconds. */
export const patience = 30_000;

/** A request of the provider: see internal/fakellm. */
type Exchange = { readonly closed_at: string; readonly client_left: boolean };

/** The real server and its provider. */
export class World {
  readonly provider: Provider;
  readonly client: Client;
  readonly url: string;
  readonly #dir: string;
  readonly #server: Process;

  private constructor(provider: Provider, server: Process, dir: string) {
    this.provider = provider;
    this.#server = server;
    this.#dir = dir;
    this.url = server.url;
    this.client = createClient({ baseUrl: server.url });
  }

  static async start(): Promise<World> {
    const dir = mkdtempSync(join(tmpdir(), "holdfast-ai-sdk-"));
    const provider = await Provider.start();
    const config = join(dir, "holdfast.yaml");
    writeFileSync(config, configured(provider.url));
    const args = ["serve", "--listen", "127.0.0.1:0", "--data", join(dir, "data"), "--config", config];
    const env = { FAKE_KEY: "none", LEDGER: join(dir, "ledger") };
    const server = await Process.start("faultsd", [...args, "--log-level", "error"], dir, env);
    return new World(provider, server, dir);
  }

  /** The one URL that a page needs. */
  get api(): string {
    return `${this.url}/api/chat`;
  }

  /** Waits until the provider has heard of so many requests. */
  async arrived(number: number): Promise<void> {
    await this.#ask(`count=${number}`);
  }

  /** Waits until the exchange of a request of the provider is over: when, and whether the server left it. */
  async closed(number: number): Promise<{ closedAt: number; clientLeft: boolean }> {
    const request = (await this.#ask(`closed=${number}`))[number - 1];
    if (!request) throw new Error(`there is no request ${number}`);
    return { closedAt: Date.parse(request.closed_at), clientLeft: request.client_left };
  }

  /** Waits until a chat asks for an approval. */
  approval(session: string): Promise<Approval> {
    return found(async () => (await this.client.api.approvals({ session, status: "pending" })).items[0]);
  }

  /** Waits until the last run of a chat has ended. */
  ended(session: string): Promise<Run> {
    return found(async () => (await this.client.api.runs({ session })).items.slice(0, 1).find(isTerminal));
  }

  async close(): Promise<void> {
    this.client.close();
    await this.#server.end("SIGKILL");
    await this.provider.close();
    rmSync(this.#dir, { recursive: true, force: true });
  }

  async #ask(query: string): Promise<readonly Exchange[]> {
    const response = await fetch(`${this.provider.url}/_requests?${query}`);
    if (!response.ok) throw new Error(await response.text());
    return ((await response.json()) as { requests: readonly Exchange[] }).requests;
  }
}

/** Asks until there is an answer. */
async function found<T>(ask: () => Promise<T | undefined>): Promise<T> {
  let last: T | undefined;
  const again = async () => {
    last = await ask();
    return last !== undefined;
  };
  await expect.poll(again, { timeout: patience, interval: 20 }).toBe(true);
  return last as T;
}

/** The world of a file of tests. */
export function worldOfFile(): { readonly current: World } {
  const holder: { current: World } = { current: undefined as never };
  beforeAll(async () => {
    holder.current = await World.start();
  });
  afterAll(() => holder.current.close());
  return holder;
}

function configured(provider: string): string {
  return `
providers:
  fake:
    type: openai-compatible
    baseURL: ${provider}/v1
    apiKeyEnv: FAKE_KEY
agents:
  - name: scripted
    model: fake/fake-model
    tools: [look, put, charge, pay]
engine:
  lease: 2s
  poll: 200ms
  retryFirst: 100ms
  retryMax: 1s
  crashFirst: 100ms
`;
}
