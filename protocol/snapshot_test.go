package protocol_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// idle is an engine that carries nothing.
type idle struct{}

func (idle) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (idle) Notify(store.Commit)           {}
func (idle) Carrying() int                 { return 0 }
func (idle) Carries(string) bool           { return false }

// What the runtime answers is what the cases say, so that a client that replays
// the cases has seen the server's own snapshots.
func TestTheRuntimesSnapshotsAreTheStatesOfTheCases(t *testing.T) {
	for name, c := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			var clock time.Time
			var log store.Store
			rt, err := holdfast.Open(t.Context(), holdfast.Options{
				Store: func(_ context.Context, opts store.Options) (store.Store, error) {
					log = memory.New(opts)
					return log, nil
				},
				Engine:    func(*engine.Carrier) engine.Engine { return idle{} },
				Agents:    []agent.Agent{{Name: "demo", Model: "demo"}},
				Models:    func(string) (model.Model, error) { return nil, fmt.Errorf("no model is called here") },
				Retention: -1,
				Now:       func() time.Time { return clock },
				Log:       slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := rt.Close(); err != nil {
					t.Error(err)
				}
			}()
			compared := 0
			for _, f := range c.parsed(t) {
				e, ok, err := f.Event()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					return // a store folds by itself; what it then gives is the same
				}
				clock = e.At
				_, err = log.Append(t.Context(), c.Session, func(*session.State) ([]session.Event, error) {
					return []session.Event{e}, nil
				})
				if err != nil {
					t.Fatal(err)
				}
				want, ok := c.States[fmt.Sprint(e.Seq)]
				if !ok {
					continue
				}
				compared++
				snap, err := rt.Snapshot(t.Context(), holdfast.Local, c.Session, 200)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(compact(t, want), string(encode(t, snap))); diff != "" {
					t.Fatalf("the snapshot at %d (-case +runtime):\n%s", e.Seq, diff)
				}
			}
			if compared != len(c.States) {
				t.Errorf("%d of %d states were compared", compared, len(c.States))
			}
		})
	}
}
