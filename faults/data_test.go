package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// calls scripts one call of a tool and an answer after it, and runs it.
func (w *world) calls(sessionID, name, args string) session.Run {
	w.t.Helper()
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: name, Args: args}).On(fakellm.Match{LastUser: "call " + sessionID}),
		fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: "call " + sessionID}))
	return w.ends(w.submit(sessionID, "call "+sessionID))
}

// lastResult is the text of the last tool result that the provider was told.
func (w *world) lastResult() string {
	w.t.Helper()
	requests := w.llm.Requests()
	for i := len(requests) - 1; i >= 0; i-- {
		messages := requests[i].Messages
		for k := len(messages) - 1; k >= 0; k-- {
			if n := len(messages[k].Results); n > 0 {
				return messages[k].Results[n-1].Text
			}
		}
	}
	w.t.Fatal("the provider was told no result")
	return ""
}

// completed is the one completed call of a session.
func (w *world) completed(sessionID string) session.ToolCompleted {
	w.t.Helper()
	done := w.events(sessionID, "tool.completed")
	if len(done) != 1 {
		w.t.Fatalf("%s: %d calls completed: %+v", sessionID, len(done), w.events(sessionID, "tool.failed"))
	}
	return done[0].Data.(session.ToolCompleted)
}

func TestTD01AMegabyteResultIsBoundedInTheStream(t *testing.T) {
	w := newWorld(t, settings{})
	run := w.calls("ses", "output", `{"letters":10485760}`)
	if run.Status != session.Completed || w.text("ses") != "done" {
		t.Errorf("the run is %s with %q", run.Status, w.text("ses"))
	}
	for _, f := range w.log("ses", 0, 1000) {
		if len(f.raw) > 128<<10 {
			t.Errorf("seq %d has %d bytes", f.Seq, len(f.raw))
		}
	}
	done := w.completed("ses")
	if done.Blob == nil || done.Blob.Size < 10<<20 {
		t.Fatalf("the whole result is kept as %+v", done.Blob)
	}
	blob := w.ask("GET", "/v1/sessions/ses/blobs/"+done.Blob.Hash, nil)
	if blob.status != http.StatusOK || int64(len(blob.raw)) != done.Blob.Size {
		t.Errorf("the blob is answered %d with %d bytes", blob.status, len(blob.raw))
	}
	if told := w.lastResult(); len(told) > 64<<10 || !strings.Contains(told, "bytes") {
		t.Errorf("the provider is told %d bytes", len(told))
	}
	for range 3 {
		s := w.follow("ses", 0)
		if _, err := s.read(func(f frame) bool { return f.Type == "run.completed" }); err != nil {
			t.Error(err)
		}
		s.close()
	}
}

func TestTD03BigIntegersKeepTheirDigits(t *testing.T) {
	onWires(t, settings{}, func(t *testing.T, w *world) {
		args := `{"id":2512292042121000001,"x":1e2,"y":1.10,"b":true,"big":9007199254740993}`
		w.calls("ses", "echo", args)
		called := w.events("ses", "tool.called")[0].Data.(session.ToolCalled)
		if string(called.Arguments) != args {
			t.Errorf("the call has %s", called.Arguments)
		}
		if got := w.completed("ses").Result; string(got) != args {
			t.Errorf("the tool got %s", got)
		}
		if told := w.lastResult(); told != args {
			t.Errorf("the provider is told %s", told)
		}
		requests := w.llm.Requests()
		if body := string(requests[len(requests)-1].Body); !strings.Contains(body, "2512292042121000001") || !strings.Contains(body, "9007199254740993") {
			t.Errorf("the history says %s", body)
		}
	})
}

func TestTD04OddResultsSettleAsTheyAre(t *testing.T) {
	w := newWorld(t, settings{})
	for i, result := range []string{
		`null`, `""`, `0`, `false`, `[]`, `{}`, `"null"`, `{"__proto__":{"x":1},"constructor":1}`, `{"type":"finish"}`, `{"a":1,"a":2}`,
	} {
		id := fmt.Sprintf("ses_%d", i)
		quoted, _ := json.Marshal(result)
		run := w.calls(id, "look", `{"result":`+string(quoted)+`}`)
		if run.Status != session.Completed {
			t.Errorf("%s: the run is %s: %+v", result, run.Status, run.Error)
			continue
		}
		if got := w.completed(id).Result; string(got) != result {
			t.Errorf("%s is kept as %s", result, got)
		}
		w.continues(id)
	}
	deep, _ := json.Marshal(strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000))
	run := w.calls("ses_deep", "look", `{"result":`+string(deep)+`}`)
	if failed := w.events("ses_deep", "tool.failed"); run.Status != session.Completed || len(failed) != 1 {
		t.Errorf("a result nested 10,000 deep: the run is %s, %+v", run.Status, failed)
	}
	w.continues("ses_deep")
}

func TestEN01NULIsCarriedAndIdsWithItAreRefused(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("a\x00b"), fakellm.Call{ID: "c", Name: "look", Args: `{"result":"\"a\\u0000b\""}`}),
		fakellm.Reply(fakellm.Text("done")))
	run := w.ends(w.submit("ses", "x\x00y and \\u0000"))
	if run.Status != session.Completed {
		t.Fatalf("the run is %s: %+v", run.Status, run.Error)
	}
	if got := w.snapshot("ses").Messages[0].Text(); got != "x\x00y and \\u0000" {
		t.Errorf("the person's text is %q", got)
	}
	if got := w.text("ses"); got != "a\x00bdone" {
		t.Errorf("the answer is %q", got)
	}
	if got := w.completed("ses").Result; string(got) != `"a\u0000b"` {
		t.Errorf("the result is %s", got)
	}
	if told := w.lastResult(); told != "a\x00b" {
		t.Errorf("the provider is told %q", told)
	}
	title := w.ask("PATCH", "/v1/sessions/ses", `{"title":"a\u0000b"}`)
	if title.status >= 500 {
		t.Errorf("a title with NUL is answered %d: %s", title.status, title.raw)
	}
	for _, bad := range []answer{
		w.ask("POST", "/v1/sessions/ses/messages", `{"id":"m\u0000","parts":[{"type":"text","text":"x"}]}`),
		w.ask("POST", "/v1/sessions/s%00s/messages", say("m", "x")),
	} {
		if bad.status/100 != 4 {
			t.Errorf("an id with NUL is answered %d: %s", bad.status, bad.raw)
		}
	}
	w.continues("ses")
}

func TestEN02NoLoneSurrogateGetsInOrOut(t *testing.T) {
	onWires(t, settings{toolOutput: 1000}, func(t *testing.T, w *world) {
		w.llm.Script(
			fakellm.Reply(fakellm.EscapedText(`half \ud83d`, `\ude00 end`), fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "echo", Args: `{"q":"\ud99c x"}`})).On(fakellm.Match{LastUser: "go"}),
			fakellm.Reply(fakellm.Call{ID: "d", Name: "output", Args: `{"letters":999,"then":"😀 and more"}`}).On(fakellm.Match{LastUser: "go"}),
			fakellm.Reply(fakellm.Text("done")).On(fakellm.Match{LastUser: "go"}))
		w.seen["ses"] = true
		a := w.ask("POST", "/v1/sessions/ses/messages", `{"id":"m1","parts":[{"type":"text","text":"go \udc00"}]}`)
		var out submitted
		a.into(t, &out)
		run := w.ends(out.Run)
		if run.Status != session.Completed {
			t.Fatalf("the run is %s: %+v", run.Status, run.Error)
		}
		for _, f := range w.log("ses", 0, 1000) {
			if lone(f.raw) {
				t.Errorf("seq %d has half a character: %s", f.Seq, f.raw)
			}
		}
		for _, r := range w.llm.Requests() {
			if lone(string(r.Body)) {
				t.Errorf("request %d has half a character", r.Number)
			}
		}
		w.continues("ses")
	})
}

// lone says whether JSON text has broken UTF-8 or half a surrogate pair.
func lone(raw string) bool {
	if !utf8.ValidString(raw) {
		return true
	}
	low := strings.ToLower(raw)
	for i := 0; i+5 < len(low); i++ {
		if low[i] != '\\' {
			continue
		}
		if low[i+1] == 'u' && low[i+2] == 'd' && low[i+3] >= '8' {
			if low[i+3] >= 'c' || i+11 >= len(low) || low[i+6:i+9] != `\ud` || low[i+9] < 'c' {
				return true
			}
			i += 11
			continue
		}
		i++
	}
	return false
}

func TestEN04BytesThatAreNoTextAreMended(t *testing.T) {
	w := newWorld(t, settings{})
	for id, args := range map[string]string{"ses_result": `{"bytes":true}`, "ses_error": `{"bytes":true,"fail":true}`} {
		run := w.calls(id, "output", args)
		if run.Status != session.Completed {
			t.Errorf("%s: the run is %s", id, run.Status)
		}
		frames, err := w.socket(id, 0, func(f frame) bool { return f.Type == "run.completed" })
		if err != nil {
			t.Errorf("%s: the socket: %v", id, err)
		}
		pages := w.log(id, 0, 1000)
		for i := range frames {
			if frames[i].raw != pages[i].raw || lone(frames[i].raw) {
				t.Errorf("%s: seq %d is %q on the socket and %q in the log", id, i+1, frames[i].raw, pages[i].raw)
			}
		}
		if told := w.lastResult(); !strings.Contains(told, "\uFFFD\x00A\uFFFD(") {
			t.Errorf("%s: the provider is told %q", id, told)
		}
		w.continues(id)
	}
}

func TestSM04LongAnswersAreKeptToTheLastLetter(t *testing.T) {
	w := newWorld(t, settings{attempts: 1})
	for _, n := range []int{999, 1000, 1001, 5001, 50_001} {
		var pieces []string
		for range n - 1 {
			pieces = append(pieces, "x")
		}
		want := strings.Repeat("x", n-1) + "é!"
		for how, last := range map[string]fakellm.Step{"finish": fakellm.Text("é!"), "cancel": fakellm.Stall(), "error": fakellm.InBandError("invalid_request_error", "no")} {
			id := fmt.Sprintf("ses_%d_%s", n, how)
			steps := []fakellm.Step{fakellm.Text(pieces...)}
			if how != "finish" {
				steps = append(steps, fakellm.Text("é!"))
			}
			w.llm.Script(fakellm.Reply(append(steps, last)...).On(fakellm.Match{LastUser: id + "."}))
			run := w.submit(id, id+".")
			if how == "cancel" {
				s := w.follow(id, 0)
				text := 0
				if _, err := s.read(func(f frame) bool {
					if d, ok := f.event.Data.(session.TextDelta); ok {
						text += len(d.Text)
					}
					return text == len(want)
				}); err != nil {
					t.Fatal(err)
				}
				s.close()
				w.cancel(run.ID)
			}
			w.ends(run)
			if got := w.text(id); got != want {
				t.Errorf("%s: %d bytes are kept of %d", id, len(got), len(want))
			}
		}
	}
}
