package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

var concurrencyPromises = []promise{
	{"many writers of one session lose nothing and keep their order", manyWritersOfOneSession},
	{"many writers of many sessions lose nothing", manyWritersOfManySessions},
	{"a reader that follows sees every event once while others write", aReaderFollows},
	{"View never shows what cannot be read", viewShowsOnlyWhatCanBeRead},
	{"one of many decisions on an approval wins", oneDecisionWins},
	{"a message sent by many at once is accepted once", oneSubmissionWins},
	{"a run that many try to end ends once", aRunEndsOnce},
	{"a decision sees what every earlier append wrote", decisionsSeeEarlierAppends},
	{"an append whose context ends is written whole or not at all", cutShortAppendsAreWhole},
}

// titles are the titles that updates of a log set, in order.
func (w *world) titles(id string) []string {
	w.t.Helper()
	var titles []string
	for _, f := range w.readAll(id) {
		e, _, err := f.Event()
		if err != nil {
			w.t.Fatal(err)
		}
		if u, ok := e.Data.(session.Updated); ok && u.Title != nil {
			titles = append(titles, *u.Title)
		}
	}
	return titles
}

func manyWritersOfOneSession(t *testing.T, w *world) {
	const writers, appends = 16, 25
	var group sync.WaitGroup
	for n := range writers {
		group.Go(func() {
			last := int64(0)
			for i := range appends {
				a, err := w.Append(w.ctx, "ses_1", fact(note(fmt.Sprintf("%d-%d-a", n, i)), note(fmt.Sprintf("%d-%d-b", n, i))))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				if told := w.told.head("ses_1"); told < a.Last {
					t.Errorf("append to %d returned when OnCommit was told of %d", a.Last, told)
				}
				if a.Last != a.First+1 || a.First <= last {
					t.Errorf("appended %d..%d after %d", a.First, a.Last, last)
				}
				last = a.Last
			}
		})
	}
	group.Wait()
	titles := w.titles("ses_1")
	if len(titles) != 2*writers*appends {
		t.Fatalf("%d of %d events", len(titles), 2*writers*appends)
	}
	next := map[int]int{}
	for i := 0; i < len(titles); i += 2 {
		var n, k int
		if _, err := fmt.Sscanf(titles[i], "%d-%d-a", &n, &k); err != nil || titles[i+1] != fmt.Sprintf("%d-%d-b", n, k) {
			t.Fatalf("%s is followed by %s", titles[i], titles[i+1])
		}
		if k != next[n] {
			t.Errorf("the append %d of writer %d comes where %d should", k, n, next[n])
		}
		next[n] = k + 1
	}
	w.sound("ses_1")
}

func manyWritersOfManySessions(t *testing.T, w *world) {
	const sessions, writers, appends = 20, 3, 8
	var group sync.WaitGroup
	for n := range sessions * writers {
		id := fmt.Sprintf("ses_%d", n%sessions)
		group.Go(func() {
			for i := range appends {
				if _, err := w.Append(w.ctx, id, fact(note(fmt.Sprintf("%d-%d", n, i)))); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	for n := range sessions {
		id := fmt.Sprintf("ses_%d", n)
		count := map[string]int{}
		for _, title := range w.titles(id) {
			count[title]++
		}
		for k := range writers {
			for i := range appends {
				if title := fmt.Sprintf("%d-%d", n+k*sessions, i); count[title] != 1 {
					t.Errorf("%s has %s %d times", id, title, count[title])
				}
			}
		}
		w.sound(id)
	}
}

func aReaderFollows(t *testing.T, w *world) {
	const writers, appends = 4, 60
	w.create("ses_1")
	var writing, reading sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range appends {
				if _, err := w.Append(w.ctx, "ses_1", fact(note("a"), note("b"))); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	var done atomic.Bool
	for limit := range 3 {
		reading.Go(func() {
			after := int64(0)
			for finished := false; ; {
				frames, err := w.Read(w.ctx, "ses_1", after, 1+limit*40)
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				for _, f := range frames {
					if f.From != after+1 || f.To != f.From {
						t.Errorf("frame %d..%d follows %d", f.From, f.To, after)
						return
					}
					after = f.To
				}
				if len(frames) > 0 {
					continue
				}
				if finished {
					break
				}
				finished = done.Load() // once more: what was written before is to be seen
			}
			if want := int64(1 + 2*writers*appends); after != want {
				t.Errorf("the reader ended at %d, not %d", after, want)
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
}

func viewShowsOnlyWhatCanBeRead(t *testing.T, w *world) {
	w.create("ses_1")
	var writing, reading sync.WaitGroup
	var done atomic.Bool
	for range 3 {
		writing.Go(func() {
			for range 60 {
				if _, err := w.Append(w.ctx, "ses_1", fact(note("a"), note("b"))); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	for range 2 {
		reading.Go(func() {
			for last := int64(0); !done.Load(); {
				var seen int64
				if err := w.View(w.ctx, "ses_1", func(s *session.State) { seen = s.Seq }); err != nil {
					t.Errorf("view: %v", err)
					return
				}
				if seen < last {
					t.Errorf("the view went back from %d to %d", last, seen)
				}
				last = seen
				frames, err := w.Read(w.ctx, "ses_1", seen-1, 1)
				if err != nil || len(frames) != 1 || frames[0].From != seen {
					t.Errorf("the view is at %d, but reading gives %v, %v", seen, frames, err)
					return
				}
			}
		})
	}
	writing.Wait()
	done.Store(true)
	reading.Wait()
	w.sound("ses_1")
}

func oneDecisionWins(t *testing.T, w *world) {
	w.submit("ses_1", "m1")
	lease := w.claim("wrk_1")
	w.stream(lease)
	w.ask(lease, wanted{id: "c1", name: "delete", arguments: "{}", approval: "apr_1"})
	w.wait(lease, session.WaitApproval, nil)
	var wrote, agreed, lost atomic.Int32
	var group sync.WaitGroup
	for n := range 20 {
		decision := session.Approve
		if n%2 == 0 {
			decision = session.Deny
		}
		group.Go(func() {
			a, err := w.Append(w.ctx, "ses_1", session.DecideApproval{ID: "apr_1", Decision: decision, By: owner}.Decide)
			switch {
			case err == nil && len(a.Events) > 0:
				wrote.Add(1)
			case err == nil:
				agreed.Add(1)
			default:
				refused(t, err, session.ApprovalDone)
				lost.Add(1)
			}
		})
	}
	group.Wait()
	if wrote.Load() != 1 || agreed.Load() != 9 || lost.Load() != 10 {
		t.Errorf("%d decided, %d agreed, %d lost; not 1, 9 and 10", wrote.Load(), agreed.Load(), lost.Load())
	}
	w.sound("ses_1")
}

func oneSubmissionWins(t *testing.T, w *world) {
	var wrote atomic.Int32
	runs := make([]string, 20)
	var group sync.WaitGroup
	for n := range runs {
		group.Go(func() {
			c := w.newSubmit("m1", func(c *session.Submit) {
				c.Run, c.Output = fmt.Sprintf("run_%d", n), fmt.Sprintf("out_%d", n)
			})
			a, err := w.Append(w.ctx, "ses_1", c.Decide)
			if err != nil {
				t.Errorf("submit: %v", err)
			}
			if len(a.Events) > 0 {
				wrote.Add(1)
			}
			runs[n] = c.Accepted
		})
	}
	group.Wait()
	for _, run := range runs {
		if run != runs[0] {
			t.Errorf("one message has the runs %s and %s", runs[0], run)
		}
	}
	if wrote.Load() != 1 {
		t.Errorf("it was written %d times", wrote.Load())
	}
	w.sound("ses_1")
}

func aRunEndsOnce(t *testing.T, w *world) {
	for i := range 10 {
		id := fmt.Sprintf("ses_%d", i)
		w.submit(id, fmt.Sprintf("m%d", i))
		lease := w.claim("wrk_1")
		w.stream(lease, "x")
		var group sync.WaitGroup
		try := func(decide session.Decide) {
			group.Go(func() {
				var refusal *session.Error
				if _, err := w.Append(w.ctx, id, decide); err != nil && !errors.As(err, &refusal) {
					t.Errorf("append: %v", err)
				}
			})
		}
		end := func(terminal session.Data) session.Decide {
			return session.Carry(lease.Run, lease.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
				return s.End(run, terminal), nil
			})
		}
		now := w.clock.Now()
		try(end(session.RunCompleted{}))
		try(end(session.RunFailed{Error: session.Failure{Code: "x"}}))
		try(session.Cancel{Run: lease.Run, By: owner, At: now}.Decide)
		try(session.CancelOverdue{Run: lease.Run, At: now}.Decide)
		try(session.Reconcile{Run: lease.Run, Fence: lease.Fence, Cause: session.CauseLeaseExpired, At: now, MaxCrashes: 1}.Decide)
		group.Wait()
		ends := 0
		for _, f := range w.readAll(id) {
			e, _, err := f.Event()
			if err != nil {
				t.Fatal(err)
			}
			switch e.Data.(type) {
			case session.RunCompleted, session.RunFailed, session.RunCancelled:
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("the run ended %d times", ends)
		}
		w.sound(id)
	}
}

// Each writer counts what the state says and writes the next number. A state
// that is behind would give a number twice.
func decisionsSeeEarlierAppends(t *testing.T, w *world) {
	const writers, appends = 8, 30
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range appends {
				_, err := w.Append(w.ctx, "ses_1", func(s *session.State) ([]session.Event, error) {
					return []session.Event{{Data: note(s.Title + "|")}}, nil
				})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	group.Wait()
	for i, title := range w.titles("ses_1") {
		if len(title) != i+1 {
			t.Fatalf("event %d counts %d", i+1, len(title))
		}
	}
	w.sound("ses_1")
}

func cutShortAppendsAreWhole(t *testing.T, w *world) {
	w.create("ses_1")
	const writers, appends = 6, 30
	var mu sync.Mutex // guards acknowledged
	acknowledged := map[string]bool{}
	var group sync.WaitGroup
	for n := range writers {
		group.Go(func() {
			for i := range appends {
				name := fmt.Sprintf("%d-%d", n, i)
				ctx, cancel := context.WithTimeout(w.ctx, time.Duration(i*20)*time.Microsecond)
				_, err := w.Append(ctx, "ses_1", fact(note(name+"-a"), note(name+"-b")))
				cancel()
				if err == nil {
					mu.Lock()
					acknowledged[name] = true
					mu.Unlock()
				} else if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("append: %v", err)
				}
			}
		})
	}
	group.Wait()
	// An append that was cut short may still be on its way: one behind it is not.
	w.do("ses_1", fact(note("end")))
	titles := w.titles("ses_1")
	found := map[string]int{}
	for i, title := range titles[:len(titles)-1] {
		name, isFirst := strings.CutSuffix(title, "-a")
		if !isFirst {
			continue
		}
		found[name]++
		if titles[i+1] != name+"-b" {
			t.Errorf("%s is followed by %s", title, titles[i+1])
		}
	}
	for name := range acknowledged {
		if found[name] != 1 {
			t.Errorf("the acknowledged append %s is there %d times", name, found[name])
		}
	}
	for name, n := range found {
		if n > 1 {
			t.Errorf("the append %s is there %d times", name, n)
		}
	}
	w.sound("ses_1")
}
