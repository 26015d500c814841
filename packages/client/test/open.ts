import { afterEach, beforeEach, vi } from "vitest";
import { type Client, type ClientOptions, createClient } from "../src/client.ts";
import type { SessionMirror } from "../src/mirror.ts";
import type { SessionView } from "../src/view.ts";
import { type Page, World } from "./world.ts";

/** Fake timers for each test of the file, and everything ended after it. */
export function inFakeTime(): void {
  beforeEach(() => {
    vi.useFakeTimers({ now: Date.UTC(2026, 0, 1) });
  });
  afterEach(() => {
    for (const client of opened.splice(0)) client.close();
    vi.useRealTimers();
  });
}

const opened: Client[] = [];

/** A client on a page. */
export function open(
  world: World,
  page: Page = world.page(),
  options: ClientOptions = {},
): { client: Client; page: Page } {
  const client = createClient({ baseUrl: "http://server", environment: page.env, ...options });
  opened.push(client);
  return { client, page };
}

/** A page that looks at a session, and every view that it was shown. */
export async function watch(
  world: World,
  id = "ses_1",
  page: Page = world.page(),
): Promise<{
  client: Client;
  page: Page;
  session: SessionMirror;
  views: SessionView[];
  view: () => SessionView;
  stop: () => void;
}> {
  const { client } = open(world, page);
  const session = client.sessions.session(id);
  const views: SessionView[] = [];
  const stop = session.subscribe(() => views.push(session.getSnapshot()));
  await world.pass(20);
  return { client, page, session, views, view: session.getSnapshot, stop };
}

/** A world with a session of some turns. */
export function withTurns(turns: number, world = new World(), id = "ses_1"): World {
  const script = world.server.script(id);
  for (let i = 1; i <= turns; i++) script.turn(`msg_${i}`, `Question ${i}`, [`Answer ${i}`, "."]);
  return world;
}
