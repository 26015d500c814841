// Package aisdk tells a session in the words of the AI SDK: its log as a UI
// message stream, its messages as UIMessage objects, and a useChat request as
// what a session understands. It has no clock, no network and no state of its own.
//
//	session.Frame ──▶ Projector ──▶ Chunk ──▶ data: {"type":"text-delta",…}
//	session.Message ─▶ History ───▶ Message    {"id":…,"role":…,"parts":[…]}
//
// A stream is a pure function of the log and of a [View]: which message, told
// from where. So a chunk has an index, a cursor "I have k chunks" is translated by
// telling the stream again and leaving out k, and nothing about streams is kept
// anywhere. What the client folds from the chunks is what [History] gives.
//
// Only chunks that every release of the SDK from 5.0.92 on takes are sent, unless
// a request asks for another [Profile].
package aisdk
