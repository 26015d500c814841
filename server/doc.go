// Package server is how the outside asks: the HTTP API of protocol/PROTOCOL.md
// over a [holdfast.Runtime].
//
//	request ─▶ door: Host, Origin, request id, log
//	            ├─▶ commands and reads: huma validates, one handler a route ─▶ Runtime
//	            └─▶ streams: SSE, WebSocket, long poll ─▶ feed
//
// Package server/api has the requests and answers as Go structs. Every answer of
// 400 and above is an api.Problem, made in one table from the error; what the
// table does not know is logged and told as "internal", with nothing but a
// request id.
//
// Routes that hold a connection do not pass through huma: nothing on a stream's
// path reflects, and an idle watcher costs little more than its goroutine.
package server
