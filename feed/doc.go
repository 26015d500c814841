// Package feed is how readers follow: first what is in the log, then what comes.
//
//	store ─── OnCommit ──▶ Publish ─┐
//	elsewhere ─ doorbell ─▶ Ring ───┤              ┌─▶ ServeSSE     a session as an event stream
//	heal poll, every 2 s ───────────┴▶ topic: ─────┼─▶ ServeSocket  a page's sessions and their list
//	                                   hot tail    ├─▶ Page         JSON pages and long poll
//	store ◀──────── pages ──────────── Reader ◀────┴── Follow       in Go
//
// The log is the truth and the hub only a doorbell with a cache. A [Reader]
// holds a cursor and pulls: what the hot tail of its session still has comes
// from memory and is shared by all readers, what is older comes from the store
// in pages. A reader that is slow, asleep or gone therefore costs a cursor, and
// nobody waits for it.
//
// To follow is to subscribe, to read to the head and only then to wait: an event
// that is committed in between is past the cursor and above the head, so it
// cannot fall between history and live. Every batch is checked to join at
// cursor+1 before it is given; what does not join is [ErrBroken], never skipped.
package feed
