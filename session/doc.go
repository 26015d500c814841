// Package session is what happened: the events of a conversation, the fold that
// makes a state of them, and the decisions that make more events.
//
// A session is an append-only log of [Event] values with a dense seq. [State] is
// the fold of a log and nothing else: [State.Apply] takes one event at a time,
// never fails, and gives the same state for the same log everywhere. A command,
// such as [Submit], [Cancel] or [DecideApproval], has a [Decide] rule that looks
// at a state and gives the events that make its wish true, or refuses with an
// [Error]. A worker's writes go through [Carry], which lets nobody write who
// does not hold the run's fence. All of it is pure: no clock, no I/O, no
// randomness; times and fresh ids come with the command.
//
// So a store needs one way to write (run a rule on the state, append what it
// gives), and idempotency, fencing, decide-once and exactly-one-end are one
// mechanism.
//
// Event payloads are the types in events.go. Their JSON is the wire, described
// with the fold in protocol/PROTOCOL.md.
package session
