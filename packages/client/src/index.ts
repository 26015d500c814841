/**
 * The client runtime of Holdfast, without a framework.
 *
 * @module
 */

export type { Api, PageOptions, RequestOptions } from "./api.ts";
export type { Approvals, ApprovalsView } from "./approvals.ts";
export { type Client, type ClientOptions, createClient } from "./client.ts";
export type { Gesture } from "./commands.ts";
export type { Connection, ConnectionState } from "./connection.ts";
export {
  browser,
  type Channel,
  type Environment,
  type KeyValues,
  type Signal,
  type Socket,
} from "./environment.ts";
export { fold, foldAll, isDelta, rangeOf } from "./fold.ts";
export { parseJson, stringifyJson } from "./json.ts";
export type { Kept } from "./kept.ts";
export type { SessionItem, SessionManager, SessionsView } from "./manager.ts";
export type { SendOptions, SessionMirror } from "./mirror.ts";
export type { Pending, PendingState } from "./outbox.ts";
export { type FieldError, failureOf, isPassing, Problem, type ProblemCode, Unanswered } from "./problem.ts";
export { empty, fromSnapshot, isTerminal, type State } from "./state.ts";
export type { ReasonCode } from "./transport.ts";
export type { OlderStatus, SessionView, SyncStatus } from "./view.ts";
export type {
  Accepted,
  Agent,
  Approval,
  Below,
  Blob,
  CallStatus,
  Decision,
  Effects,
  EventData,
  EventPage,
  Failure,
  File,
  Folded,
  Frame,
  InboxItem,
  Json,
  KnownEvent,
  LogEvent,
  Message,
  MessagePage,
  OnBusy,
  Outcome,
  OutgoingPart,
  Page,
  Part,
  PartType,
  Progress,
  Run,
  RunStatus,
  SessionRow,
  Snapshot,
  Step,
  Submission,
  ToolCall,
  Usage,
  WaitingReason,
} from "./wire.ts";
