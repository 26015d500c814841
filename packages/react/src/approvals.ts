import type { Approvals, ApprovalsView } from "@holdfast/client";
import { useMemo } from "react";
import { useClient } from "./provider.tsx";
import { useStore, whole } from "./store.ts";

/** The inbox of approvals, and the way to decide one. */
export type ApprovalsInbox = ApprovalsView & { readonly decide: Approvals["decide"] };

/** Follows the approvals that wait, over all sessions. */
export function useApprovals(): ApprovalsInbox;
/** Follows the approvals that wait and gives what `select` picks of them. */
export function useApprovals<V>(select: (view: ApprovalsView) => V): V;
export function useApprovals<V>(select?: (view: ApprovalsView) => V): V | ApprovalsInbox {
  const { approvals } = useClient();
  const shown = useStore<ApprovalsView, V | ApprovalsView>(approvals, select ?? whole);
  return useMemo(
    () => (select ? (shown as V) : { ...(shown as ApprovalsView), decide: approvals.decide }),
    [select, shown, approvals],
  );
}
