// Package protocol holds the wire: PROTOCOL.md says what passes between
// Holdfast and a client, and cases/*.json are conversations and streams with
// their right outcome, which every implementation replays. There is no code
// here but the tests that replay them in Go.
package protocol
