package session_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

func TestEveryPayloadTypeIsKnownByItsName(t *testing.T) {
	var names []string
	for _, p := range payloads {
		names = append(names, p.Type())
	}
	slices.Sort(names)
	if diff := cmp.Diff(session.KnownTypes(), names); diff != "" {
		t.Errorf("the payload types that are registered and those that are tested differ (-registered +tested):\n%s", diff)
	}
}

func TestAnEventReadBackIsWrittenTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := arbitrary{rt: rt, text: rapid.String()}.event()
		first, err := e.AppendJSON(nil)
		if err != nil {
			rt.Fatal(err)
		}
		if bytes.ContainsAny(first, "\n\r") {
			rt.Fatalf("an event is more than one line: %q", first)
		}
		var read session.Event
		if err := json.Unmarshal(first, &read); err != nil {
			rt.Fatalf("%v: %s", err, first)
		}
		again, err := read.AppendJSON([]byte("x"))
		if err != nil {
			rt.Fatal(err)
		}
		if string(again) != "x"+string(first) {
			rt.Fatalf("written as\n%s\nand after reading as\n%s", first, again[1:])
		}
		if reflect.TypeOf(read.Data) != reflect.TypeOf(e.Data) {
			rt.Fatalf("a %T was read as a %T", e.Data, read.Data)
		}
	})
}

// The fast path says what encoding/json would say.
func TestAnEventIsWrittenAsEncodingJSONWould(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		e := arbitrary{rt: rt, text: rapid.String()}.event()
		fast, err := e.AppendJSON(nil)
		if err != nil {
			rt.Fatal(err)
		}
		slow, err := json.Marshal(struct {
			Session string       `json:"session"`
			Seq     int64        `json:"seq"`
			Type    string       `json:"type"`
			At      time.Time    `json:"at"`
			Run     string       `json:"run,omitempty"`
			Step    int          `json:"step,omitempty"`
			Attempt int          `json:"attempt,omitempty"`
			Data    session.Data `json:"data"`
		}{e.Session, e.Seq, e.Type(), e.At, e.Run, e.Step, e.Attempt, e.Data})
		if err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(decoded(rt, slow), decoded(rt, fast)); diff != "" {
			rt.Fatalf("-encoding/json +AppendJSON:\n%s", diff)
		}
	})
}

func decoded(t tester, raw []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

func TestATypeThatThisVersionDoesNotKnowIsCarriedByteForByte(t *testing.T) {
	line := `{"session":"ses_1","seq":7,"type":"moon.rose","at":"2026-03-01T12:00:00.5Z","run":"r1","step":2,"attempt":3,` +
		`"data":{"a":1,"a":2,"big":2512292042121000001,"x":1e2,"y":1.10,"s":"\u0000<\ud83d\ude00","n":null}}`
	var e session.Event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatal(err)
	}
	got, err := e.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != line {
		t.Errorf("read\n%s\nwrote\n%s", line, got)
	}
	s := session.New("ses_1")
	s.Apply(e)
	if s.Seq != 7 || s.FactSeq != 7 || !s.UpdatedAt.Equal(e.At) {
		t.Errorf("after an unknown event the state is at %d, its last fact at %d", s.Seq, s.FactSeq)
	}
}

func TestRawValuesInsideAnEventKeepTheirBytes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value := aJSON(rt, 3)
		e := session.Event{Seq: 1, Data: session.ToolCompleted{Message: "m", Call: "c", Result: value}}
		raw, err := e.AppendJSON(nil)
		if err != nil {
			rt.Fatal(err)
		}
		var read session.Event
		if err := json.Unmarshal(raw, &read); err != nil {
			rt.Fatal(err)
		}
		if got := read.Data.(session.ToolCompleted).Result; string(got) != string(value) {
			rt.Fatalf("%s came back as %s", value, got)
		}
	})
}

func TestTextThatIsNotValidUTF8CannotBreakAnEvent(t *testing.T) {
	for _, d := range []session.Data{
		session.TextDelta{Message: "m", Text: "a\xff\xfeb"},
		session.ReasoningDelta{Message: "m", Text: "\xed\xa0\xbd"},
		session.MessageInterrupted{Message: "m\xc3", Reason: "failed"},
	} {
		raw, err := session.Event{Session: "s\xff", Seq: 1, Run: "r\x80", Data: d}.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if string(raw) != session.CleanText(string(raw)) {
			t.Errorf("%q is not valid UTF-8", raw)
		}
	}
}

func TestAnInstantHasOneSpelling(t *testing.T) {
	for ms, want := range map[int]string{0: "2026-03-01T12:00:00Z", 120: "2026-03-01T12:00:00.12Z", 7: "2026-03-01T12:00:00.007Z"} {
		at := epoch.Add(time.Duration(ms) * time.Millisecond).In(time.FixedZone("CET", 3600))
		raw, err := session.Event{Seq: 1, At: at, Data: session.StepCompleted{}}.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		var read struct{ At string }
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatal(err)
		}
		if read.At != want || asJSON(t, at.UTC()) != `"`+want+`"` {
			t.Errorf("%d ms are %s in an event and %s in a state, not %s", ms, read.At, asJSON(t, at.UTC()), want)
		}
	}
}

func TestAnEventOfAKnownTypeThatDoesNotFitItIsRefused(t *testing.T) {
	for _, line := range []string{
		`{"session":"s","seq":1,"type":"text.delta","at":"2026-03-01T12:00:00Z","data":{"text":7}}`,
		`{"session":"s","seq":"1","type":"text.delta","at":"2026-03-01T12:00:00Z","data":{}}`,
		`{"session":"s","seq":1,"type":"text.delta","at":"yesterday","data":{}}`,
		`[]`, `{`,
	} {
		var e session.Event
		if err := json.Unmarshal([]byte(line), &e); err == nil {
			t.Errorf("%s was read as %+v", line, e)
		}
	}
	var e session.Event
	if err := json.Unmarshal([]byte(`{"session":"s","seq":1,"type":"step.completed","at":"2026-03-01T12:00:00Z"}`), &e); err != nil {
		t.Errorf("an event without data was refused: %v", err)
	}
}

func TestAFrameIsAnEventOrAFoldedRange(t *testing.T) {
	raw, err := session.Event{Session: "ses_1", Seq: 3, At: epoch, Data: session.TextDelta{Message: "m", Text: "folded"}}.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	e, ok, err := session.Frame{From: 3, To: 3, JSON: raw}.Event()
	if err != nil || !ok || e.Seq != 3 || e.Data != (session.TextDelta{Message: "m", Text: "folded"}) {
		t.Errorf("the event's frame holds %+v, %v, %v", e, ok, err)
	}
	folded := session.FoldedFrame("ses_1", 4, 9, "msg_1")
	if want := `{"type":"folded","session":"ses_1","from":4,"to":9,"into":"msg_1"}`; string(folded.JSON) != want {
		t.Errorf("a folded range is %s, not %s", folded.JSON, want)
	}
	for _, f := range []session.Frame{folded, session.FoldedFrame("ses_1", 4, 4, "")} {
		if _, ok, err := f.Event(); ok || err != nil {
			t.Errorf("the folded range %d..%d holds an event: %v, %v", f.From, f.To, ok, err)
		}
	}
	for _, f := range []session.Frame{{From: 1, To: 2, JSON: []byte("{")}, {From: 1, To: 1, JSON: []byte("{")}} {
		if _, _, err := f.Event(); err == nil {
			t.Errorf("the broken frame %s was read", f.JSON)
		}
	}
}

func TestOnlyDeltasMayBeFoldedAway(t *testing.T) {
	var deltas []string
	for _, p := range append(payloads, session.Unknown{Name: "moon.rose"}) {
		if session.IsDelta(p) {
			deltas = append(deltas, p.Type())
		}
	}
	if want := []string{"text.delta", "reasoning.delta", "tool.input.delta", "tool.progress"}; !slices.Equal(deltas, want) {
		t.Errorf("the deltas are %v, not %v", deltas, want)
	}
}
