package api

import "encoding/json"

// EventPage is a piece of a log: the frames after a cursor.
type EventPage struct {
	Session string `json:"session"`
	After   int64  `json:"after"`
	// Frames are events, which session.Event reads, and session.Folded ranges. They
	// join from After+1 on.
	Frames []json.RawMessage `json:"frames"`
	Head   int64             `json:"head" doc:"the seq of the last event there is"`
	More   bool              `json:"more" doc:"ask again at once, after the last frame"`
	Reset  bool              `json:"reset,omitempty" doc:"the cursor was ahead of the log"`
}
