/**
 * Holdfast for React: each hook follows one part of the client and renders its
 * snapshot. Everything else is the client's.
 *
 * @module
 */

export { type ApprovalsInbox, useApprovals } from "./approvals.ts";
export { useConnection } from "./connection.ts";
export { useDraft } from "./draft.ts";
export { HoldfastProvider, useClient } from "./provider.tsx";
export { type Session, type SessionCommands, useMirror, useRun, useSession } from "./session.ts";
export { type Sessions, useSessions } from "./sessions.ts";
