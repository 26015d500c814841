package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
)

// tree is a session's messages as a test remembers them: ids in the order in
// which they came, and the parent of each.
type tree struct {
	ids    []string
	parent map[string]string
	aside  map[string]bool // of background runs
}

func (tr *tree) add(id, parent string) {
	tr.ids, tr.parent[id] = append(tr.ids, id), parent
}

// path is the branch that ends in id, oldest first.
func (tr *tree) path(id string) []string {
	var path []string
	for ; id != ""; id = tr.parent[id] {
		path = append(path, id)
	}
	slices.Reverse(path)
	return path
}

// children are the messages that follow id, oldest first: those of background runs, or the others.
func (tr *tree) children(id string, aside bool) []string {
	var all []string
	for _, c := range tr.ids {
		if tr.parent[c] == id && tr.aside[c] == aside {
			all = append(all, c)
		}
	}
	return all
}

func ids(messages []session.Message) []string {
	all := []string{}
	for _, m := range messages {
		all = append(all, m.ID)
	}
	return all
}

func TestPagesAndWindowsOfAnyTreeJoinWithoutAHole(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		runtime, err := holdfast.Open(t.Context(), holdfast.Options{
			Store:  func(_ context.Context, o store.Options) (store.Store, error) { return memory.New(o), nil },
			Engine: local.New(local.Options{}),
			Agents: []agent.Agent{{Name: "a", Model: "script"}},
			Models: func(string) (model.Model, error) { return nil, nil },
			Log:    slog.New(slog.DiscardHandler),
		})
		if err != nil {
			rt.Fatal(err)
		}
		defer runtime.Close()
		tr := &tree{parent: map[string]string{}, aside: map[string]bool{}}
		head := ""
		for i := range rapid.IntRange(1, 30).Draw(rt, "messages") {
			m := says(fmt.Sprintf("msg_%d", i), "x")
			parent := head
			if rapid.IntRange(0, 2).Draw(rt, "edit") == 0 {
				parent = rapid.SampledFrom(append([]string{""}, tr.ids...)).Draw(rt, "parent")
				m.Parent = &parent
			}
			m.Background = rapid.IntRange(0, 4).Draw(rt, "background") == 0
			got, err := runtime.Submit(t.Context(), holdfast.Local, "ses", m)
			if err != nil {
				rt.Fatal(err)
			}
			// Nobody carries it, and nothing waits.
			if _, err := runtime.Cancel(t.Context(), holdfast.Local, got.Run.ID, ""); err != nil {
				rt.Fatal(err)
			}
			tr.add(m.ID, parent)
			tr.aside[m.ID] = m.Background
			if !m.Background {
				head = m.ID
			}
			if rapid.IntRange(0, 5).Draw(rt, "turn") == 0 {
				to := rapid.SampledFrom(tr.ids).Draw(rt, "to")
				if _, err := runtime.UpdateSession(t.Context(), holdfast.Local, "ses", session.Update{Head: &to}); err != nil {
					rt.Fatal(err)
				}
				for head = to; len(tr.children(head, tr.aside[to])) > 0; {
					below := tr.children(head, tr.aside[to])
					head = below[len(below)-1]
				}
			}
		}
		window := rapid.IntRange(1, 8).Draw(rt, "window")
		snap, err := runtime.Snapshot(t.Context(), holdfast.Local, "ses", window)
		if err != nil {
			rt.Fatal(err)
		}
		whole := tr.path(head)
		shown := whole[max(0, len(whole)-window):]
		if snap.Head != head || !slices.Equal(ids(snap.Messages), shown) || snap.HasMore != (len(shown) < len(whole)) {
			rt.Fatalf("the window of %d is %v (more: %v) with the head %s, not the end of %v", window, ids(snap.Messages), snap.HasMore, snap.Head, whole)
		}
		if below := tr.children(head, false); head != "" && !slices.Equal(snap.Below[session.RoleUser], below) {
			rt.Fatalf("below %s are %v, not %v", head, snap.Below, below)
		}
		from := rapid.SampledFrom(append([]string{""}, tr.ids...)).Draw(rt, "from")
		want := whole
		if from != "" {
			want = tr.path(tr.parent[from])
		}
		var paged []session.Message
		for before, more := from, true; more; {
			page, err := runtime.Messages(t.Context(), holdfast.Local, "ses", before, window)
			if err != nil {
				rt.Fatal(err)
			}
			paged, more = append(page.Messages, paged...), page.HasMore
			if more && len(page.Messages) == 0 {
				rt.Fatal("an empty page says that there are more")
			}
			if more {
				before = page.Messages[0].ID
			}
		}
		if !slices.Equal(ids(paged), append([]string{}, want...)) {
			rt.Fatalf("the pages before %q are %v, not %v", from, ids(paged), want)
		}
		for _, m := range slices.Concat(paged, snap.Messages) {
			siblings := tr.children(tr.parent[m.ID], false)
			if len(siblings) < 2 || tr.aside[m.ID] {
				siblings = nil
			}
			if m.Text() != "x" || !slices.Equal(m.Siblings, siblings) {
				rt.Fatalf("the message %s says %q and has the siblings %v, not %v", m.ID, m.Text(), m.Siblings, siblings)
			}
		}
	})
}
