package api

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/session"
)

// SendMessage says something in a session and asks for a run that answers.
type SendMessage struct {
	ID         string         `json:"id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"chosen by the client, so that repeating is safe; absent: the Idempotency-Key header, or else the server makes one"`
	Parts      []Part         `json:"parts" minItems:"1" maxItems:"100"`
	OnBusy     session.OnBusy `json:"onBusy,omitempty" enum:"enqueue,reject,interrupt,rollback,steer" doc:"what to do when a foreground run is active; default: enqueue"`
	Agent      string         `json:"agent,omitempty" doc:"default: the session's, then the server's"`
	Background bool           `json:"background,omitempty" doc:"run beside the foreground run, without moving the head"`
	Parent     *string        `json:"parent,omitempty" pattern:"^[A-Za-z0-9_-]{0,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"the message that this one follows; empty: a new root; absent: the head"`
}

// Part is a piece of a message that a person sends.
type Part struct {
	Type session.PartType `json:"type" enum:"text,file,data"`
	Text string           `json:"text,omitempty" doc:"of a text part; not empty"`
	File *File            `json:"file,omitempty" doc:"of a file part"`
	Data json.RawMessage  `json:"data,omitempty" doc:"of a data part: any JSON value, passed on byte for byte"`
}

// File is a file that a person sends, by reference.
type File struct {
	Name      string `json:"name,omitempty" maxLength:"500"`
	MediaType string `json:"mediaType" minLength:"1" maxLength:"200"`
	URL       string `json:"url" minLength:"1" doc:"an https:, http: or data: URL"`
}

// MessageAccepted says what a message became.
type MessageAccepted struct {
	Message session.Message    `json:"message"`
	Run     session.Run        `json:"run" doc:"answers the message; for a steer the active run"`
	Seq     int64              `json:"seq" doc:"the session's seq when it was done"`
	Inbox   *session.InboxItem `json:"inbox,omitempty" doc:"while the message waits"`
}

// EditInbox replaces what a waiting message says.
type EditInbox struct {
	Parts []Part `json:"parts" minItems:"1" maxItems:"100"`
}

// InboxDone is the answer of a command on a waiting message.
type InboxDone struct {
	Inbox session.InboxItem `json:"inbox"`
	Seq   int64             `json:"seq" doc:"the session's seq when it was done"`
}
