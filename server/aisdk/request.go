package aisdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Regenerate is the trigger of a request that wants another answer.
const Regenerate = "regenerate-message"

// Request is what useChat asks for. Of the messages that a client sends along,
// which may be all it has, only what no log can know is taken: the last one, and
// what a person answered to the questions of tool calls.
type Request struct {
	// Chat is the id, or empty: WorkflowChatTransport sends none.
	Chat string
	// First is the id of the first message, the only name that a chat without an id has.
	First     string
	Trigger   string
	MessageID string // of an edited message, or of the answer that goes on
	Agent     string // who is asked, if the page says so in its transport's body
	Last      Said
	// Decisions are the answers to approvals in any of the messages, oldest first.
	Decisions []Decided
}

// Said is the last message.
type Said struct {
	ID    string
	Role  session.Role
	Parts []json.RawMessage
}

// Decided is what a person answered.
type Decided struct {
	Message  string // that the question is in
	Approval string
	Approved bool
	Reason   string
}

// maxDecisions bounds what one request decides.
const maxDecisions = 100

// said is a message as it arrives.
type said struct {
	ID    string            `json:"id"`
	Role  session.Role      `json:"role"`
	Parts []json.RawMessage `json:"parts"`
}

// SyntaxError says what is wrong with the JSON of a request.
type SyntaxError struct{ Err error }

// Error says what is wrong.
func (e *SyntaxError) Error() string { return e.Err.Error() }

// Unwrap is the cause.
func (e *SyntaxError) Unwrap() error { return e.Err }

// ReadRequest reads the body of a request. It keeps one message at a time: a
// client sends its whole history. An error of r is given as it is, any other is a *[SyntaxError].
func ReadRequest(r io.Reader) (Request, error) {
	in := &failing{r: r}
	dec := json.NewDecoder(in)
	var q Request
	err := q.read(dec)
	if err == nil {
		if _, end := dec.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is something behind the JSON object")
		}
	}
	if in.err != nil {
		return Request{}, in.err
	}
	if err != nil {
		return Request{}, &SyntaxError{err}
	}
	return q, nil
}

// failing remembers why its reader failed.
type failing struct {
	r   io.Reader
	err error
}

func (f *failing) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		f.err = err
	}
	return n, err
}

func (q *Request) read(dec *json.Decoder) error {
	open, err := dec.Token()
	if err != nil {
		return fmt.Errorf("no JSON: %w", err)
	}
	if open != json.Delim('{') {
		return errors.New("no JSON object")
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return fmt.Errorf("no JSON: %w", err)
		}
		switch key {
		case "id":
			err = dec.Decode(&q.Chat)
		case "trigger":
			err = dec.Decode(&q.Trigger)
		case "messageId":
			err = dec.Decode(&q.MessageID)
		case "agent":
			err = dec.Decode(&q.Agent)
		case "message":
			err = q.message(dec)
		case "messages":
			err = q.messages(dec)
		default:
			var ignored json.RawMessage // the page's own additions
			err = dec.Decode(&ignored)
		}
		if err != nil {
			return fmt.Errorf("%v: %w", key, err)
		}
	}
	_, err = dec.Token()
	return err
}

func (q *Request) messages(dec *json.Decoder) error {
	open, err := dec.Token()
	if err != nil {
		return err
	}
	if open == nil {
		return nil
	}
	if open != json.Delim('[') {
		return errors.New("no list")
	}
	for dec.More() {
		if err := q.message(dec); err != nil {
			return err
		}
	}
	_, err = dec.Token()
	return err
}

func (q *Request) message(dec *json.Decoder) error {
	var m said
	if err := dec.Decode(&m); err != nil {
		return err
	}
	if q.First == "" {
		q.First = m.ID
	}
	q.Last = Said(m)
	if m.Role == session.RoleAssistant {
		for _, raw := range m.Parts {
			q.decision(m.ID, raw)
		}
	}
	return nil
}

// decision takes the answer to an approval out of a part, if there is one.
func (q *Request) decision(message string, raw json.RawMessage) {
	var part struct {
		Approval *struct {
			ID       string `json:"id"`
			Approved *bool  `json:"approved"`
			Reason   string `json:"reason"`
		} `json:"approval"`
	}
	if json.Unmarshal(raw, &part) != nil || part.Approval == nil || part.Approval.Approved == nil || !session.ValidID(part.Approval.ID) {
		return
	}
	a := part.Approval
	if len(q.Decisions) == maxDecisions {
		q.Decisions = q.Decisions[1:]
	}
	q.Decisions = append(q.Decisions, Decided{Message: message, Approval: a.ID, Approved: *a.Approved, Reason: session.CleanText(a.Reason)})
}

// Goes says that the request lets an answer go on that waited for a person.
func (q *Request) Goes() bool {
	return q.Last.Role == session.RoleAssistant && q.Trigger != Regenerate
}

// SessionParts are the parts of the last message in a session's words. The error names
// the part that cannot be one.
func (s Said) SessionParts() ([]session.Part, error) {
	var parts []session.Part
	for i, raw := range s.Parts {
		clean, err := session.CleanJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("parts.%d: %w", i, err)
		}
		var p struct {
			Type, Text, MediaType, Filename, URL string
			Data                                 json.RawMessage
		}
		if err := json.Unmarshal(clean, &p); err != nil {
			return nil, fmt.Errorf("parts.%d: %w", i, err)
		}
		switch {
		case p.Type == "text" && p.Text == "":
		case p.Type == "text":
			parts = append(parts, session.Part{Type: session.PartText, Text: p.Text})
		case p.Type == "file" && (p.URL == "" || p.MediaType == ""):
			return nil, fmt.Errorf("parts.%d: a file needs a url and a mediaType", i)
		case p.Type == "file":
			parts = append(parts, session.Part{Type: session.PartFile, File: &session.File{Name: p.Filename, MediaType: p.MediaType, URL: p.URL}})
		case strings.HasPrefix(p.Type, "data-") && p.Data != nil:
			parts = append(parts, session.Part{Type: session.PartData, Data: clean})
		default:
			return nil, fmt.Errorf("parts.%d: a person sends parts of type text, file and data-…, not %q", i, session.TrimText(p.Type, 40))
		}
	}
	if len(parts) == 0 {
		return nil, errors.New("parts: there is nothing in the message")
	}
	return parts, nil
}
