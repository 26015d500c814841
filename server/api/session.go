package api

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/store"
)

// CreateSession begins a session without a message.
type CreateSession struct {
	ID       string          `json:"id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"chosen by the client; absent: the server makes one"`
	Title    string          `json:"title,omitempty" maxLength:"500" doc:"at most 500 bytes"`
	Agent    string          `json:"agent,omitempty" doc:"default: the server's"`
	Metadata json.RawMessage `json:"metadata,omitempty" doc:"a JSON object of at most 16 KiB, passed on byte for byte"`
}

// UpdateSession changes what is given and leaves the rest.
type UpdateSession struct {
	Title    *string         `json:"title,omitempty" maxLength:"500" doc:"at most 500 bytes"`
	Metadata json.RawMessage `json:"metadata,omitempty" doc:"a JSON object of at most 16 KiB; replaces the metadata whole"`
	Head     *string         `json:"head,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"a message: the newest below it becomes the head"`
}

// ForkSession begins a session with a copy of a branch.
type ForkSession struct {
	ID      string `json:"id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"of the new session, chosen by the client so that repeating is safe"`
	Message string `json:"message" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the last message that is copied"`
}

// SessionDone is the answer of a command on a session.
type SessionDone struct {
	Session holdfast.Session `json:"session"`
	Seq     int64            `json:"seq" doc:"the session's seq when it was done"`
}

// SessionList is a page of sessions, the last changed first.
type SessionList struct {
	Items []store.SessionRow `json:"items"`
	Next  string             `json:"next,omitempty" doc:"the cursor of the next page; absent at the end"`
}
