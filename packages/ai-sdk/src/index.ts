/**
 * Holdfast under `useChat`.
 *
 * @module
 */

export type { Chunk, Metadata, Part, Profile } from "./chunk.ts";
export { type FollowingChat, HoldfastChatTransport, type TransportOptions } from "./transport.ts";
