package fakellm

import (
	"encoding/json"
	"net/http"
	"time"
)

// Wire names one of the three protocols.
type Wire string

// The wires.
const (
	Chat      Wire = "openai-chat"      // POST /v1/chat/completions
	Responses Wire = "openai-responses" // POST /v1/responses
	Messages  Wire = "anthropic"        // POST /v1/messages
)

// A Request is one request for model output, as it arrived and what became of
// it. It is a copy: later changes do not show in it.
type Request struct {
	Number int         `json:"number"` // 1 for the first request of the server
	At     time.Time   `json:"at"`     // when its head had arrived
	Wire   Wire        `json:"wire"`
	Path   string      `json:"path"`
	Header http.Header `json:"header"`
	Body   []byte      `json:"body"` // as received; base64 in JSON

	// The body, neutral of the wire.
	Model    string    `json:"model"`
	Stream   bool      `json:"stream"`
	System   string    `json:"system,omitempty"` // system and developer texts, joined by a blank line
	Messages []Message `json:"messages"`
	Tools    []Tool    `json:"tools,omitempty"`

	// Rule is the strict-mode rule that the request broke, Refusal the message
	// that said so. Empty when it was accepted.
	Rule    string `json:"rule,omitempty"`
	Refusal string `json:"refusal,omitempty"`

	Status     int       `json:"status"`               // HTTP status sent; 0 until then
	ClosedAt   time.Time `json:"closed_at,omitzero"`   // when the exchange was over; zero while it is open
	ClientLeft bool      `json:"client_left"`          // the client went before the turn was over
	BytesSent  int64     `json:"bytes_sent"`           // body bytes handed to the socket; set when it is over
	PlayError  string    `json:"play_error,omitempty"` // a mistake in the script, such as a Status after text

	includeUsage     bool // chat: stream_options
	encryptReasoning bool // responses: include
}

// Closed reports whether the exchange is over, whoever ended it.
func (r Request) Closed() bool { return !r.ClosedAt.IsZero() }

// LastUser returns the text of the last user message that has any, or "".
func (r Request) LastUser() string {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if m := r.Messages[i]; m.Role == "user" && m.Text != "" {
			return m.Text
		}
	}
	return ""
}

// Results returns all tool results of the history, oldest first.
func (r Request) Results() []Result {
	var all []Result
	for _, m := range r.Messages {
		all = append(all, m.Results...)
	}
	return all
}

// A Message is one entry of the history. Chat's tool messages and the items of
// the responses wire each become a message of their own; Anthropic's user
// message with results and text stays one.
type Message struct {
	Role      string   `json:"role"` // user, assistant or tool
	Text      string   `json:"text,omitempty"`
	Reasoning string   `json:"reasoning,omitempty"`
	Calls     []Call   `json:"calls,omitempty"`
	Results   []Result `json:"results,omitempty"`
	Media     []string `json:"media,omitempty"` // the types of parts that are not text, such as image_url
}

// A Result is what the program says a tool call gave.
type Result struct {
	ID    string `json:"id"` // of the call
	Text  string `json:"text"`
	Error bool   `json:"error,omitempty"` // only Anthropic's wire can say so
}

// A Tool is a tool definition.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}
