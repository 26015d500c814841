package postgres

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

func TestRingsComeBackFromPayloadsThatPostgreSQLTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.StringMatching(`[A-Za-z0-9_-]{1,128}`)
		var rings []doorbell.Ring
		for range rapid.IntRange(1, 120).Draw(t, "rings") {
			r := doorbell.Ring{Session: id.Draw(t, "session"), Facts: rapid.Bool().Draw(t, "facts")}
			for range rapid.IntRange(0, 4).Draw(t, "runs") {
				r.Work = append(r.Work, store.RunWork{
					Run: id.Draw(t, "run"), Cancel: rapid.Bool().Draw(t, "cancel"), Work: session.Work{Due: rapid.Bool().Draw(t, "due")},
				})
			}
			rings = append(rings, r)
		}
		var got []doorbell.Ring
		for _, payload := range payloads("me", rings) {
			if len(payload) >= 8000 {
				t.Fatalf("a payload has %d bytes", len(payload))
			}
			from, some := parse(payload)
			if from != "me" {
				t.Fatalf("it comes from %q", from)
			}
			got = append(got, some...)
		}
		if diff := cmp.Diff(rings, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestRingsOfOneSessionAreJoined(t *testing.T) {
	o := newOutbox()
	o.put(doorbell.Ring{Session: "a", Facts: true, Work: []store.RunWork{{Run: "1", Work: session.Work{Due: true}}}})
	o.put(doorbell.Ring{Session: "b"})
	o.put(doorbell.Ring{Session: "a", Work: []store.RunWork{{Run: "1", Cancel: true}, {Run: "2"}}})
	want := []doorbell.Ring{
		{Session: "a", Facts: true, Work: []store.RunWork{{Run: "1", Cancel: true}, {Run: "2"}}},
		{Session: "b"},
	}
	if diff := cmp.Diff(want, o.take()); diff != "" {
		t.Error(diff)
	}
	for i := range 3 * mostRings {
		o.put(doorbell.Ring{Session: fmt.Sprint(i)})
	}
	rings := o.take()
	if n := len(rings); n != mostRings+1 || rings[n-1].Session != "" {
		t.Errorf("%d rings were kept, the last %+v", n, rings[n-1])
	}
	if left := o.take(); len(left) > 0 {
		t.Errorf("%d rings were left", len(left))
	}
}
