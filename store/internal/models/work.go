package models

import (
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// Work is what a run that has not ended asks of the engine, and who holds it.
type Work struct {
	store.RunWork
	Worker string
	Fence  int64
}

// WorkOf is what a run asks of the engine now.
func WorkOf(s *session.State, run *session.Run) Work {
	asks := s.WorkOf(run)
	w := Work{RunWork: store.RunWork{Run: run.ID, Work: asks, Cancel: asks.Held && run.CancelRequestedAt != nil}, Fence: run.Fence}
	if asks.Held {
		w.Worker = run.Worker
	}
	return w
}

// OpenWork is the work of all runs that have not ended, by run.
func OpenWork(s *session.State) map[string]Work {
	open := map[string]Work{}
	for _, run := range s.Open() {
		open[run.ID] = WorkOf(s, run)
	}
	return open
}

// Rework brings what is known of the work of a session's runs up to its state.
// It gives write the row of each run whose row changed, and of each that touched
// names: was and is are its work, of which is asks nothing once the run has
// ended. news is what changed of what the runs ask for.
func Rework(s *session.State, known map[string]Work, changed, touched []string, write func(was, is Work)) (news []store.RunWork) {
	ids := slices.Concat(changed, touched)
	for id := range known {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		run, was := s.Run(id), known[id]
		is := Work{RunWork: store.RunWork{Run: id}}
		if run == nil || run.Status.Terminal() {
			delete(known, id)
		} else {
			is = WorkOf(s, run)
			known[id] = is
		}
		if is.Work != was.Work || is.Cancel != was.Cancel {
			news = append(news, is.RunWork)
		}
		if is != was || slices.Contains(touched, id) {
			write(was, is)
		}
	}
	return news
}

// WorkColumns is a run's work as columns: times in milliseconds, nil for what there is not.
type WorkColumns struct {
	Due, CancelBy *int64
	Worker        *string
	Keeps         bool // its place among those that are due
}

// Columns are the row of work that was another before; false: it has none.
func (w Work) Columns(was Work, now time.Time) (columns WorkColumns, ok bool) {
	asks := w.Work
	if !asks.Due && !asks.Held && asks.CancelBy.IsZero() {
		return WorkColumns{}, false
	}
	at := func(t time.Time) *int64 {
		ms := t.UnixMilli()
		return &ms
	}
	if asks.Due {
		columns.Due = at(now)
		if !asks.At.IsZero() {
			columns.Due = at(asks.At)
		}
		columns.Keeps = was.Work.Due && asks.At.Equal(was.Work.At)
	}
	if asks.Held {
		columns.Worker = &w.Worker
	}
	if !asks.CancelBy.IsZero() {
		columns.CancelBy = at(asks.CancelBy)
	}
	return columns, true
}
