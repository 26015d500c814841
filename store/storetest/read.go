package storetest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var readPromises = []promise{
	{"a session that does not exist is not found", func(t *testing.T, w *world) {
		_, err := w.Read(w.ctx, "ses_1", 0, 10)
		is(t, err, store.ErrNotFound)
		_, err = w.Head(w.ctx, "ses_1")
		is(t, err, store.ErrNotFound)
	}},
	{"a frame is the event's wire form, byte for byte", framesAreTheWireForm},
	{"seen and resumed make the log, at every cursor and page size", seenAndResumedMakeTheLog},
	{"the end of the log is empty, and so is what lies behind it", theEndIsEmpty},
	{"no limit means at most a thousand frames", noLimitMeansAThousand},
	{"large frames come in several pages without a hole", largeFramesComeInPages},
	{"the log survives reopening, byte for byte", theLogSurvivesReopening},
}

func framesAreTheWireForm(t *testing.T, w *world) {
	w.wholeRun("ses_1", "m1", "Hello", " wörld", "\x00\u2028<&>")
	i := 0
	frames := w.readAll("ses_1")
	for _, c := range w.told.since(0) {
		for _, e := range c.Events {
			raw, err := e.AppendJSON(nil)
			if err != nil {
				t.Fatal(err)
			}
			if f := frames[i]; f.From != e.Seq || f.To != e.Seq || !bytes.Equal(f.JSON, raw) {
				t.Errorf("frame %d..%d is\n%s, not\n%s", f.From, f.To, f.JSON, raw)
			}
			i++
		}
	}
	if i != len(frames) {
		t.Errorf("%d events were told and %d frames read", i, len(frames))
	}
}

func seenAndResumedMakeTheLog(t *testing.T, w *world) {
	w.wholeRun("ses_1", "m1", "a", "b", "c", "d", "e")
	w.wholeRun("ses_1", "m2", "f", "g")
	whole := w.readAll("ses_1")
	for after := range int64(len(whole)) {
		for _, limit := range []int{1, 2, 3, 7, 1000} {
			same(t, fmt.Sprintf("the log and what follows %d in pages of %d", after, limit), w.readFrom("ses_1", after, limit), whole[after:])
		}
	}
}

func theEndIsEmpty(t *testing.T, w *world) {
	last := w.do("ses_1", fact(note("a"), note("b"))).Last
	for _, after := range []int64{last, last + 1, last + 1_000_000} {
		frames, err := w.Read(w.ctx, "ses_1", after, 10)
		if err != nil || len(frames) != 0 {
			t.Errorf("after %d of %d: %v, %v", after, last, frames, err)
		}
	}
}

func noLimitMeansAThousand(t *testing.T, w *world) {
	events := make([]session.Data, 1500)
	for i := range events {
		events[i] = note("a")
	}
	w.do("ses_1", fact(events...))
	frames, err := w.Read(w.ctx, "ses_1", 0, 0)
	if err != nil || len(frames) != 1000 {
		t.Errorf("got %d frames, %v", len(frames), err)
	}
	if all := w.readAll("ses_1"); len(all) != 1500 {
		t.Errorf("%d of 1500 frames", len(all))
	}
	frames, err = w.Read(w.ctx, "ses_1", 0, 1200)
	if err != nil || len(frames) > 1200 || len(frames) == 0 {
		t.Errorf("got %d frames of at most 1200, %v", len(frames), err)
	}
}

func largeFramesComeInPages(t *testing.T, w *world) {
	for i := range 30 {
		w.do("ses_1", fact(note(strings.Repeat(string(rune('a'+i%26)), 300<<10))))
	}
	frames := w.readAll("ses_1")
	if len(frames) != 30 {
		t.Fatalf("%d of 30 frames", len(frames))
	}
	for i, f := range frames {
		if len(f.JSON) < 300<<10 || !strings.Contains(string(f.JSON), strings.Repeat(string(rune('a'+i%26)), 1000)) {
			t.Errorf("frame %d has %d bytes: %.80s", i+1, len(f.JSON), f.JSON)
		}
	}
}

func theLogSurvivesReopening(t *testing.T, w *world) {
	w.wholeRun("ses_1", "m1", "a", "b")
	w.submit("ses_1", "m2")
	lease := w.claim("wrk_1")
	w.stream(lease, "half a ", "sentence")
	before := w.readAll("ses_1")
	if !w.reopen() {
		t.Skip("this backend keeps nothing")
	}
	same(t, "the log", w.readAll("ses_1"), before)
	w.sound("ses_1")
	w.finish(lease, "the whole sentence")
	w.sound("ses_1")
}

var messagePromises = []promise{
	{"messages come whole, in the order asked for, without the unknown", messagesInTheOrderAsked},
	{"a streaming message has the parts of the last commit", aStreamingMessageHasItsParts},
	{"a message keeps its parts when its run ends", aMessageKeepsItsParts},
	{"a message of another session is not given", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		w.submit("ses_2", "m2")
		got, err := w.Messages(w.ctx, "ses_1", []string{"m2", "m1", "out_m1"})
		if err != nil || len(got) != 1 || got[0].ID != "m1" {
			t.Errorf("got %v, %v", got, err)
		}
	}},
	{"changing what was given changes nothing kept", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		got, err := w.Messages(w.ctx, "ses_1", []string{"m1"})
		if err != nil || len(got) != 1 {
			t.Fatalf("got %v, %v", got, err)
		}
		got[0].Parts[0].Text = "changed"
		w.sound("ses_1")
	}},
}

func messagesInTheOrderAsked(t *testing.T, w *world) {
	for i := range 5 {
		w.wholeRun("ses_1", fmt.Sprintf("m%d", i), "a")
	}
	fold := w.fold("ses_1")
	ids := []string{"out_m4", "m0", "nothing", "m3", "out_m1"}
	got, err := w.Messages(w.ctx, "ses_1", ids)
	if err != nil {
		t.Fatal(err)
	}
	want := []*session.Message{fold.Message("out_m4"), fold.Message("m0"), fold.Message("m3"), fold.Message("out_m1")}
	same(t, "the messages", got, want)
	got, err = w.Messages(w.ctx, "ses_1", nil)
	if err != nil || len(got) != 0 {
		t.Errorf("no ids gave %v, %v", got, err)
	}
}

func aStreamingMessageHasItsParts(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	said := ""
	for _, text := range []string{"one ", "two ", "three"} {
		w.carry(lease, func(_ *session.State, run *session.Run) []session.Event { return []session.Event{delta(run, 0, text)} })
		said += text
		got, err := w.Messages(w.ctx, "ses_1", []string{"out_m1"})
		if err != nil || len(got) != 1 || got[0].Text() != said || got[0].Status != session.MessageStreaming {
			t.Errorf("after %q: %+v, %v", said, got, err)
		}
	}
}

func aMessageKeepsItsParts(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease, "ab", "c")
	w.end(lease, session.RunCancelled{By: owner})
	w.wholeRun("ses_1", "m2", "x")
	w.sound("ses_1")
	got, err := w.Messages(w.ctx, "ses_1", []string{"out_m1"})
	if err != nil || len(got) != 1 || got[0].Text() != "abc" || got[0].Status != session.MessageCut {
		t.Errorf("the interrupted message is %+v, %v", got, err)
	}
}
