package session

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Event is one entry of a session's log. Seq counts from 1 without holes; the
// store assigns Session, Seq and At when it appends. Run, Step and Attempt say
// what the event belongs to and are zero where they do not apply.
type Event struct {
	Session string
	Seq     int64
	At      time.Time // UTC, whole milliseconds
	Run     string
	Step    int // counts from 1 in a run
	Attempt int // counts from 1: tries of this step's model call
	Data    Data
}

// Data is the payload of an event. Each type of event has one payload type.
type Data interface {
	// Type is the event's name on the wire, such as "run.queued".
	Type() string
}

// Type is the name of the event.
func (e Event) Type() string {
	if e.Data == nil {
		return ""
	}
	return e.Data.Type()
}

// Unknown carries an event whose type this version does not know. It is kept
// and passed on as it came.
type Unknown struct {
	Name string
	Raw  json.RawMessage
}

// Type is the name the event came with.
func (u Unknown) Type() string { return u.Name }

// MarshalJSON gives the payload as it came.
func (u Unknown) MarshalJSON() ([]byte, error) {
	if len(u.Raw) == 0 {
		return []byte("{}"), nil
	}
	return u.Raw, nil
}

// timeFormat is RFC 3339 with at most three digits of a second, as time.Time's
// own JSON has it: one instant has one spelling in events and in states.
const timeFormat = "2006-01-02T15:04:05.999Z"

// AppendJSON appends the event's JSON to b: compact, without a line break, the
// members in the order session, seq, type, at, run, step, attempt, data.
func (e Event) AppendJSON(b []byte) ([]byte, error) {
	b = append(b, `{"session":`...)
	b = appendString(b, e.Session)
	b = append(b, `,"seq":`...)
	b = strconv.AppendInt(b, e.Seq, 10)
	b = append(b, `,"type":`...)
	b = appendString(b, e.Type())
	b = append(b, `,"at":"`...)
	b = e.At.UTC().AppendFormat(b, timeFormat)
	b = append(b, '"')
	if e.Run != "" {
		b = append(b, `,"run":`...)
		b = appendString(b, e.Run)
	}
	if e.Step != 0 {
		b = append(b, `,"step":`...)
		b = strconv.AppendInt(b, int64(e.Step), 10)
	}
	if e.Attempt != 0 {
		b = append(b, `,"attempt":`...)
		b = strconv.AppendInt(b, int64(e.Attempt), 10)
	}
	b = append(b, `,"data":`...)
	// Deltas are nearly all of a log, so they are written without reflection.
	switch d := e.Data.(type) {
	case TextDelta:
		b = appendDelta(b, d.Message, d.Part, d.Text)
	case ReasoningDelta:
		b = appendDelta(b, d.Message, d.Part, d.Text)
	default:
		raw, err := marshal(e.Data)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", e.Type(), err)
		}
		b = append(b, raw...)
	}
	return append(b, '}'), nil
}

func appendDelta(b []byte, message string, part int, text string) []byte {
	b = append(b, `{"message":`...)
	b = appendString(b, message)
	b = append(b, `,"part":`...)
	b = strconv.AppendInt(b, int64(part), 10)
	b = append(b, `,"text":`...)
	b = appendString(b, text)
	return append(b, '}')
}

// appendString appends s as a JSON string, escaping what JSON demands. Text that
// got here without [CleanText] cannot break the frame.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	if !utf8.ValidString(s) {
		s = CleanText(s)
	}
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		case '\t':
			b = append(b, '\\', 't')
		case '\r':
			b = append(b, '\\', 'r')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		start = i + 1
	}
	b = append(b, s[start:]...)
	return append(b, '"')
}

// MarshalJSON gives the event's wire form.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil) }

// UnmarshalJSON reads the wire form. A type it does not know becomes [Unknown].
func (e *Event) UnmarshalJSON(raw []byte) error {
	var wire struct {
		Session string          `json:"session"`
		Seq     int64           `json:"seq"`
		Type    string          `json:"type"`
		At      time.Time       `json:"at"`
		Run     string          `json:"run"`
		Step    int             `json:"step"`
		Attempt int             `json:"attempt"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(raw, &wire); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	data, err := decodeData(wire.Type, wire.Data)
	if err != nil {
		return fmt.Errorf("decode event %d: %w", wire.Seq, err)
	}
	*e = Event{
		Session: wire.Session, Seq: wire.Seq, At: wire.At.UTC(), Run: wire.Run,
		Step: wire.Step, Attempt: wire.Attempt, Data: data,
	}
	return nil
}

func decodeData(name string, raw json.RawMessage) (Data, error) {
	decode, known := decoders[name]
	if !known {
		return Unknown{Name: name, Raw: raw}, nil
	}
	data, err := decode(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// decoders knows every payload type by its name.
var decoders = map[string]func(json.RawMessage) (Data, error){}

func register[D Data]() struct{} {
	var zero D
	decoders[zero.Type()] = func(raw json.RawMessage) (Data, error) {
		var d D
		if len(raw) == 0 {
			return d, nil
		}
		err := json.Unmarshal(raw, &d)
		return d, err
	}
	return struct{}{}
}

// IsDelta says whether retention may fold this event away once its run is
// terminal: what it carried is then kept by a fact.
func IsDelta(d Data) bool {
	switch d.(type) {
	case TextDelta, ReasoningDelta, ToolInputDelta, ToolProgress:
		return true
	}
	return false
}

// Frame is a piece of a log in wire form: one event, or a folded range. It
// covers the seqs From..To. Frames of one read join without a hole.
type Frame struct {
	From, To int64
	// JSON is one line without line breaks: an event, or a [Folded].
	JSON []byte
}

// Folded is the wire form of a range of deltas that retention dropped because
// the fact at seq Into, or a later snapshot, says the same.
type Folded struct {
	Type    string `json:"type"` // "folded"
	Session string `json:"session"`
	From    int64  `json:"from"`
	To      int64  `json:"to"`
	Into    string `json:"into,omitempty"` // the message that holds the content
}

// FoldedFrame is the frame of a folded range.
func FoldedFrame(session string, from, to int64, into string) Frame {
	raw, err := marshal(Folded{Type: "folded", Session: session, From: from, To: to, Into: into})
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return Frame{From: from, To: to, JSON: raw}
}

// Event decodes the frame. ok is false for a folded range.
func (f Frame) Event() (e Event, ok bool, err error) {
	var kind struct {
		Type string `json:"type"`
		Seq  int64  `json:"seq"`
	}
	if f.From != f.To || len(f.JSON) > 16 && string(f.JSON[:16]) == `{"type":"folded"` {
		if err := json.Unmarshal(f.JSON, &kind); err != nil {
			return Event{}, false, fmt.Errorf("decode frame %d..%d: %w", f.From, f.To, err)
		}
		return Event{}, false, nil
	}
	if err := json.Unmarshal(f.JSON, &e); err != nil {
		return Event{}, false, err
	}
	return e, true, nil
}
