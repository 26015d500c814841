package api

import "github.com/holdfast-run/holdfast/server/aisdk"

// Chat is a session as the AI SDK sees it.
type Chat struct {
	ID string `json:"id"`
	// Messages are the last of the active branch, oldest first, without an answer
	// that is being written: its stream tells it whole.
	Messages []aisdk.Message `json:"messages" doc:"UIMessage objects, oldest first, without an answer that is being written"`
	// ActiveStreamID is the run that writes an answer.
	ActiveStreamID string `json:"activeStreamId,omitempty" doc:"the run that writes an answer; absent: none does"`
	HasMore        bool   `json:"hasMore" doc:"there are messages before these"`
}

// ChatStopped says whether a stop ended something. It is never refused.
type ChatStopped struct {
	Success bool `json:"success" doc:"always true"`
	Stopped bool `json:"stopped" doc:"a run was cancelled"`
}
