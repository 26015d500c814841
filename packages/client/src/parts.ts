import type { Api } from "./api.ts";
import type { Connection } from "./connection.ts";
import type { Environment } from "./environment.ts";
import type { Store } from "./store.ts";
import type { Tabs } from "./tabs.ts";

/** What the parts of a client share. */
export type Parts = {
  readonly env: Environment;
  readonly api: Api;
  readonly connection: Connection;
  readonly store: Store;
  readonly tabs: Tabs;
};
