package storetest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var contentPromises = []promise{
	{"any text comes back as it was", anyTextComesBack},
	{"raw JSON comes back byte for byte", rawJSONComesBack},
	{"an approval still matches the hash of its arguments", anApprovalMatchesItsHash},
	{"an event of an unknown type is carried byte for byte", unknownEventsAreCarried},
	{"ids that differ in case or by a wildcard are different", idsAreExact},
	{"times keep their milliseconds", timesKeepTheirMilliseconds},
}

// texts are valid UTF-8, as everything is when it enters.
func texts() map[string]string {
	return map[string]string{
		"NUL":                "a\x00b\x00",
		"control characters": "\x01\x08\t\n\r\x1b[31m\x7f\u0085",
		"HTML":               `<script>alert("&amp;")</script>`,
		"quotes":             `'; DROP TABLE events; -- " \ \\ \u0000 %_?`,
		"line separators":    "a\u2028b\u2029c\ufeff",
		"mended surrogates":  session.CleanText("a\xed\xa0\x80b"),
		"beyond the plane":   "👩‍👩‍👧‍👦 𝒳 \U0010ffff",
		"right to left":      "שלום \u202eدنيا",
		"combining":          "e\u0301 é n\u0303",
		"nothing":            "",
		"only spaces":        "  \n ",
		"300 KB":             strings.Repeat("0123456789abcdef ", 18<<10),
		"300 KB of runes":    strings.Repeat("ü☃", 60<<10),
	}
}

func anyTextComesBack(t *testing.T, w *world) {
	i := 0
	for what, text := range texts() {
		i++
		id := fmt.Sprintf("ses_%d", i)
		message := fmt.Sprintf("m%d", i)
		w.submit(id, message, func(c *session.Submit) {
			c.Title = text
			c.Parts = []session.Part{
				{Type: session.PartText, Text: text},
				{Type: session.PartFile, File: &session.File{Name: text, MediaType: "text/plain", URL: text}},
				{Type: session.PartData, Data: session.JSONString(text)},
			}
		})
		lease := w.claim("wrk_1")
		w.stream(lease, text, text)
		w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
			return []session.Event{
				at(run, session.ReasoningDelta{Message: run.Message, Part: 1, Text: text}),
				at(run, session.ToolInputDelta{Message: run.Message, Part: 2, Call: "c", Name: "look", Text: text}),
			}
		})
		if got := w.viewed(id).Message("out_" + message).Text(); got != text+text {
			t.Errorf("%s: what streams is %d bytes %.40q, not %d", what, len(got), got, 2*len(text))
		}
		w.carry(lease, failAttempt)
		w.carry(lease, func(s *session.State, run *session.Run) []session.Event {
			return s.End(run, session.RunFailed{Error: session.Failure{Code: "model", Message: text}})
		})
		w.do(id, fact(session.Updated{Title: &text, Metadata: session.JSONString(text)}))
		w.reopen()
		w.sound(id)
		row, err := w.Session(w.ctx, id)
		if err != nil || row.Title != text {
			t.Errorf("%s: the title is %d bytes %.40q, %v", what, len(row.Title), row.Title, err)
		}
		run, err := w.Run(w.ctx, "run_"+message)
		if err != nil || run.Error == nil || run.Error.Message != text {
			t.Errorf("%s: the run's error is %.80v, %v", what, run.Error, err)
		}
		got, err := w.Messages(w.ctx, id, []string{message})
		if err != nil || len(got) != 1 || got[0].Text() != text || got[0].Parts[1].File.Name != text {
			t.Errorf("%s: the message is %.200v, %v", what, got, err)
		}
	}
}

// rawValues is JSON that a careless copy would change.
func rawValues() map[string]string {
	return map[string]string{
		"numbers":    `{"big":12345678901234567890123,"exp":1e400,"zero":-0,"frac":0.10,"E":1E+2}`,
		"key order":  `{"z":1,"a":2,"m":{"y":[],"b":{}}}`,
		"twice":      `{"a":1,"a":2}`,
		"escapes":    `{"s":"\u0000\u003c\/\ud83d\ude00\u00e9é\u2028` + "\u2028" + `"}`,
		"HTML":       `{"s":"<b>&</b>"}`,
		"null":       `null`,
		"a number":   `0.1000`,
		"deep":       strings.Repeat("[", 150) + strings.Repeat("]", 150),
		"empty key":  `{"":{"":[null,true,false]}}`,
		"long":       `{"s":"` + strings.Repeat("x", 300<<10) + `"}`,
		"odd string": `"\"\\"`,
	}
}

func rawJSONComesBack(t *testing.T, w *world) {
	i := 0
	for what, raw := range rawValues() {
		i++
		id := fmt.Sprintf("ses_%d", i)
		w.submit(id, fmt.Sprintf("m%d", i), func(c *session.Submit) {
			c.Parts = []session.Part{{Type: session.PartData, Data: json.RawMessage(raw)}}
		})
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease, wanted{id: "c1", name: "look", arguments: raw, effects: session.ReadOnly})
		w.carry(lease, func(_ *session.State, run *session.Run) []session.Event {
			return []session.Event{at(run, session.ToolCompleted{Message: run.Message, Call: "c1", Result: json.RawMessage(raw)})}
		})
		w.do(id, fact(session.Updated{Metadata: json.RawMessage(raw)}))
		w.reopen()
		w.sound(id)
		if got := string(w.viewed(id).Metadata); got != raw {
			t.Errorf("%s: the metadata is %.100s", what, got)
		}
		for _, frame := range w.readAll(id) {
			e, _, err := frame.Event()
			if err != nil {
				t.Fatal(err)
			}
			var got json.RawMessage
			switch d := e.Data.(type) {
			case session.ToolCompleted:
				got = d.Result
			case session.ToolCalled:
				got = d.Arguments
			default:
				continue
			}
			if string(got) != raw {
				t.Errorf("%s: the log says %.100s", what, got)
			}
		}
		messages, err := w.Messages(w.ctx, id, []string{fmt.Sprintf("m%d", i), fmt.Sprintf("out_m%d", i)})
		if err != nil || len(messages) != 2 {
			t.Fatalf("%s: got %d messages, %v", what, len(messages), err)
		}
		if got := string(messages[0].Parts[0].Data); got != raw {
			t.Errorf("%s: the data part is %.100s", what, got)
		}
		call := messages[1].Call("c1")
		if string(call.Arguments) != raw || string(call.Result) != raw {
			t.Errorf("%s: the call has %.100s and %.100s", what, call.Arguments, call.Result)
		}
	}
}

func anApprovalMatchesItsHash(t *testing.T, w *world) {
	i := 0
	for what, raw := range rawValues() {
		i++
		id := fmt.Sprintf("apr_%d", i)
		w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("m%d", i))
		lease := w.claim("wrk_1")
		w.stream(lease)
		w.ask(lease, wanted{id: "c1", name: "delete", arguments: raw, approval: id})
		w.wait(lease, session.WaitApproval, nil)
		w.reopen()
		check := func(where string, a *session.Approval) {
			t.Helper()
			if a == nil || string(a.Arguments) != raw || session.HashArguments(a.Arguments) != a.ArgumentsHash {
				t.Errorf("%s: %s has the approval %.200v", what, where, a)
			}
		}
		check("the state", w.viewed(lease.Session).Approval(id))
		a, err := w.Approval(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		check("the index", &a)
		list := w.approvals(store.ApprovalQuery{Tenant: tenant, Owner: owner, Session: lease.Session})
		if len(list) != 1 {
			t.Fatalf("%s: %d approvals", what, len(list))
		}
		check("the list", &list[0])
	}
}

func unknownEventsAreCarried(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	i := 0
	for what, raw := range rawValues() {
		i++
		name := fmt.Sprintf("future.thing%d", i)
		a := w.do("ses_1", emit(session.Event{Run: "run_m1", Step: 7, Attempt: 8, Data: session.Unknown{Name: name, Raw: json.RawMessage(raw)}}))
		w.reopen()
		frames := w.readFrom("ses_1", a.First-1, 0)
		want := fmt.Sprintf(`{"session":"ses_1","seq":%d,"type":%q,"at":"2026-03-01T12:00:00Z","run":"run_m1","step":7,"attempt":8,"data":%s}`, a.First, name, raw)
		if len(frames) != 1 || string(frames[0].JSON) != want {
			t.Fatalf("%s: the log says\n%.300s, not\n%.300s", what, frames[0].JSON, want)
		}
		e, ok, err := frames[0].Event()
		if err != nil || !ok {
			t.Fatalf("%s: %v", what, err)
		}
		if u, ok := e.Data.(session.Unknown); !ok || u.Name != name || string(u.Raw) != raw {
			t.Errorf("%s: the event is %.300v", what, e.Data)
		}
	}
	w.sound("ses_1")
}

func idsAreExact(t *testing.T, w *world) {
	long := strings.Repeat("x", session.MaxIDLength-1)
	ids := []string{"ses_a", "SES_A", "ses-a", "sesXa", "ses_", "s", "1", "-", "_", long + "a", long + "b"}
	for i, id := range ids {
		for range i + 1 {
			w.do(id, fact(note(id)))
		}
	}
	for i, id := range ids {
		if head, err := w.Head(w.ctx, id); err != nil || head != int64(i+1) {
			t.Errorf("%s has the head %d, %v, not %d", id, head, err, i+1)
		}
	}
	if err := w.Delete(w.ctx, "ses_a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids[1:] {
		if _, err := w.Head(w.ctx, id); err != nil {
			t.Errorf("%s went with another session: %v", id, err)
		}
	}
}

func timesKeepTheirMilliseconds(t *testing.T, w *world) {
	w.clock.advance(123*time.Millisecond + 456*time.Microsecond)
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	want := newClock().Now().Add(123 * time.Millisecond)
	run, err := w.Run(w.ctx, "run_m1")
	if err != nil || !run.QueuedAt.Equal(want) || !run.StartedAt.Equal(want) {
		t.Errorf("the run was queued at %s, not %s, %v", run.QueuedAt, want, err)
	}
	row, err := w.Session(w.ctx, "ses_1")
	if err != nil || !row.CreatedAt.Equal(want) || !row.UpdatedAt.Equal(want) {
		t.Errorf("the session was made at %s, not %s, %v", row.CreatedAt, want, err)
	}
	if d := lease.Until.Sub(w.clock.Now().Add(ttl)); d > 0 || d <= -time.Millisecond {
		t.Errorf("the lease is off by %s", d)
	}
	w.sound("ses_1")
}
