import type { ConnectionState } from "@holdfast/client";
import { useClient } from "./provider.tsx";
import { useStore, whole } from "./store.ts";

/** Follows the state of the connection. It does not connect by itself: following something does. */
export function useConnection(): ConnectionState {
  return useStore(useClient().connection, whole);
}
