// Package holdfast is a durable runtime for AI agents on the web. An agent's
// execution outlives the browser tab, the connection and the process that asked for it.
//
// Four things have four lifetimes:
//
//	Session     what has happened: a log of events with a dense seq    session, store
//	Run         one execution, carried by a worker under a lease       agent, engine
//	Connection  a channel that may vanish and resumes from a cursor    feed
//	Page        a view, rebuilt from the server                        server
//
// A disconnect ends a connection. Only cancel ends a run. A refresh never submits.
//
// Data flows one way:
//
//	command → session.Decide → store.Append → feed and engine are told
//	engine carries the run, appending more → feed replays and follows
//
// The rooms:
//
//	session  what happened: events, State, Fold and Decide, pure
//	store    where it is kept: the contract; storetest; memory, sqlite
//	feed     how readers follow: replay, then live; SSE, WebSocket, pages
//	model    who answers: openai, anthropic, demo
//	tool     who acts: builtin
//	agent    what a run does: what comes next, and what the model sees
//	engine   who carries a run: local
//	server   how the outside asks: the HTTP API
//
// [Open] joins them into a [Runtime]; cmd/holdfast and the examples name the
// backends.
package holdfast
