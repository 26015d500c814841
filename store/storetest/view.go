package storetest

import (
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var viewPromises = []promise{
	{"a session that does not exist is not found", func(t *testing.T, w *world) {
		err := w.View(w.ctx, "ses_1", func(*session.State) { t.Error("looked at nothing") })
		is(t, err, store.ErrNotFound)
	}},
	{"it shows what the last append left", func(t *testing.T, w *world) {
		for range 10 {
			a := w.do("ses_1", fact(note("a")))
			if got := w.viewed("ses_1").Seq; got != a.Last {
				t.Errorf("the state is at %d, the append ended at %d", got, a.Last)
			}
		}
	}},
	{"messages that can no longer change have shed their parts", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		lease := w.claim("wrk_1")
		w.stream(lease, "so ", "far")
		s := w.viewed("ses_1")
		if s.Message("m1").Parts != nil {
			t.Errorf("the person's message still has the parts %v", s.Message("m1").Parts)
		}
		if text := s.Message("out_m1").Text(); text != "so far" {
			t.Errorf("the streaming message says %q", text)
		}
		w.finish(lease, "so far so good")
		if parts := w.viewed("ses_1").Message("out_m1").Parts; parts != nil {
			t.Errorf("the finished message still has the parts %v", parts)
		}
	}},
	{"nothing that was refused shows", func(t *testing.T, w *world) {
		w.submit("ses_1", "m1")
		before := w.viewed("ses_1")
		_, err := w.Append(w.ctx, "ses_1", func(*session.State) ([]session.Event, error) {
			return []session.Event{{Data: note("never")}}, errRefused
		})
		is(t, err, errRefused)
		same(t, "the state after a refusal", w.viewed("ses_1"), before)
	}},
}
