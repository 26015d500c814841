package faults

import (
	"fmt"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/session"
)

var httpTools = []string{"ask", "book", "buy"}

// followsItsEffects checks what became of calls whose worker was killed over
// them, and ends the one that nobody may repeat by its callback.
func (w *world) followsItsEffects(o *office, runs map[string]session.Run) {
	w.t.Helper()
	o.next() // what may be sent again is
	o.next()
	for _, name := range []string{"ask", "book"} {
		letters := o.from(name)
		if len(letters) != 2 || letters[0].key != letters[1].key || letters[0].said.Callback.URL != letters[1].said.Callback.URL || letters[1].said.Attempt != 2 {
			w.t.Fatalf("%s came as %+v", name, letters)
		}
		w.waits(runs[name], session.WaitCallback)
		if status := tell(letters[0], `{"result":"`+name+` done"}`); status != http.StatusOK {
			w.t.Errorf("%s: the callback is answered %d", name, status)
		}
	}
	w.waits(runs["buy"], session.WaitToolOutcome)
	if status := tell(o.from("buy")[0], `{"result":"bought"}`); status != http.StatusOK {
		w.t.Errorf("the callback of an unknown call is answered %d", status)
	}
	for _, name := range httpTools {
		if run := w.ends(runs[name]); run.Status != session.Completed {
			w.t.Errorf("%s: the run is %s: %+v", name, run.Status, run.Error)
		}
		w.completed(name)
	}
	if n := len(o.from("buy")); n != 1 {
		w.t.Errorf("the unsafe call was sent %d times", n)
	}
}

// The process is killed before the service has answered.
func TestAKilledProcessSendsACallAgainIfItsEffectsAllowIt(t *testing.T) {
	o, tools := newOffice(t)
	o.answers(func(_ http.ResponseWriter, r *http.Request, _ letter) { <-r.Context().Done() })
	w := newWorld(t, settings{http: tools})
	runs := map[string]session.Run{}
	for _, name := range httpTools {
		runs[name] = w.begins(name, name)
		o.next()
	}
	w.srv.kill()
	o.answers(func(w http.ResponseWriter, _ *http.Request, _ letter) { w.WriteHeader(http.StatusAccepted) })
	w.http.CloseIdleConnections()
	w.again()
	w.followsItsEffects(o, runs)
}

// The process is killed when the service has said 202, and that is not yet recorded.
func TestA202ThatWasNotRecordedIsFollowedByTheEffects(t *testing.T) {
	o, tools := newOffice(t)
	var arrived sync.WaitGroup
	arrived.Add(len(httpTools))
	answered := make(chan struct{})
	w := newWorld(t, settings{http: tools})
	o.answers(func(rw http.ResponseWriter, _ *http.Request, _ letter) {
		arrived.Done()
		<-answered // the server stands still by then
		rw.WriteHeader(http.StatusAccepted)
	})
	runs := map[string]session.Run{}
	for _, name := range httpTools {
		runs[name] = w.begins(name, name)
		o.next()
	}
	arrived.Wait()
	w.srv.signal(syscall.SIGSTOP)
	o.answers(func(w http.ResponseWriter, _ *http.Request, _ letter) { w.WriteHeader(http.StatusAccepted) })
	close(answered)
	w.srv.kill()
	w.http.CloseIdleConnections()
	w.again()
	w.followsItsEffects(o, runs)
}

// A call that waits outlives the process, holds no slot, and is sent once.
func TestACallThatWaitsForItsServiceHoldsNothingAndOutlivesTheProcess(t *testing.T) {
	o, tools := newOffice(t)
	w := newWorld(t, settings{http: tools, slots: 1})
	run := w.waits(w.begins("ses", "buy"), session.WaitCallback)
	l := o.next()
	if left := time.Until(l.said.Callback.Until); run.WaitingUntil == nil || !run.WaitingUntil.Equal(l.said.Callback.Until) || left > 2*time.Hour || left < time.Hour {
		t.Errorf("the run waits until %v, and the service was told %v", run.WaitingUntil, l.said.Callback.Until)
	}
	if other := w.calls("other", "echo", `{}`); other.Status != session.Completed { // the one slot is free
		t.Errorf("another run is %s", other.Status)
	}
	w.crash()
	w.crash()
	w.waits(run, session.WaitCallback)
	if status := tell(l, `{"result":{"seat":9007199254740993}}`); status != http.StatusOK {
		t.Fatalf("the callback is answered %d", status)
	}
	if status := tell(l, `{"result":"another"}`); status != http.StatusConflict {
		t.Errorf("another result is answered %d", status)
	}
	w.ends(run)
	if got := w.completed("ses"); string(got.Result) != `{"seat":9007199254740993}` {
		t.Errorf("the result is %s", got.Result)
	}
	if n, tries := len(o.from("ses")), len(w.events("ses", "tool.started")); n != 1 || tries != 1 {
		t.Errorf("the call was sent %d times and started %d times", n, tries)
	}
	if status := tell(l, `{"result":{"seat":9007199254740993}}`); status != http.StatusConflict {
		t.Errorf("a callback after the end is answered %d", status)
	}
}

// A service may be faster than its own answer.
func TestACallbackBeforeThe202IsTheResult(t *testing.T) {
	o, tools := newOffice(t)
	o.answers(func(w http.ResponseWriter, _ *http.Request, l letter) {
		if status := tell(l, `{"result":"quick"}`); status != http.StatusOK {
			t.Errorf("the callback is answered %d", status)
		}
		w.WriteHeader(http.StatusAccepted)
	})
	w := newWorld(t, settings{http: tools})
	for _, name := range httpTools {
		if run := w.ends(w.begins(name, name)); run.Status != session.Completed {
			t.Errorf("%s: the run is %s", name, run.Status)
		}
		if got := w.completed(name); string(got.Result) != `"quick"` {
			t.Errorf("%s: the result is %s", name, got.Result)
		}
	}
}

// Callbacks come while the server is killed over and over: what it has
// acknowledged is never lost, and what it has not is sent again, as services do.
func TestAnAcknowledgedCallbackIsNeverLost(t *testing.T) {
	const n = 8
	o, tools := newOffice(t)
	w := newWorld(t, settings{http: tools, crashes: 50})
	runs, letters := make([]session.Run, n), make([]letter, n)
	for i := range n {
		id := fmt.Sprintf("ses%d", i)
		runs[i] = w.waits(w.begins(id, "buy"), session.WaitCallback)
		letters[i] = o.next()
	}
	var senders sync.WaitGroup
	acknowledged := make(chan int, n)
	for i, l := range letters {
		senders.Go(func() {
			body := fmt.Sprintf(`{"result":%d}`, i)
			for {
				switch status := tell(l, body); status {
				case http.StatusOK, http.StatusConflict: // 409: one was taken, its answer cut, and the run is over
					acknowledged <- i
					return
				case 0, http.StatusServiceUnavailable:
				default:
					t.Errorf("the callback %d is answered %d", i, status)
					return
				}
			}
		})
	}
	for range 3 {
		select { // the moment after an answer is the one that counts
		case <-acknowledged:
		case <-time.After(patience):
			t.Fatal("no callback is taken")
		}
		w.crash()
	}
	senders.Wait()
	for i, run := range runs {
		if run = w.ends(run); run.Status != session.Completed {
			t.Errorf("the run %d is %s: %+v", i, run.Status, run.Error)
		}
		if got := w.completed(fmt.Sprintf("ses%d", i)); string(got.Result) != fmt.Sprint(i) {
			t.Errorf("the result %d is %s", i, got.Result)
		}
	}
}

// The node that made the call is gone: any other takes its callback.
func TestACallbackIsTakenByAnyNode(t *testing.T) {
	o, tools := newOffice(t)
	a := newWorld(t, settings{http: tools, store: pgtest.New(t)})
	run := a.waits(a.begins("ses", "buy"), session.WaitCallback)
	l := o.next()
	b := a.join()
	path := l.said.Callback.URL[len(a.srv.url):]
	a.srv.kill()
	if got := b.ask("POST", path, `{"result":"from afar"}`); got.status != http.StatusOK {
		t.Fatalf("it is answered %d: %s", got.status, got.raw)
	}
	if run = b.ends(run); run.Status != session.Completed {
		t.Errorf("the run is %s", run.Status)
	}
	a.http.CloseIdleConnections()
	a.again()
}

func TestARunThatWaitsForAServiceIsCancelledAtOnce(t *testing.T) {
	o, tools := newOffice(t)
	w := newWorld(t, settings{http: tools})
	run := w.waits(w.begins("ses", "buy"), session.WaitCallback)
	w.cancel(run.ID)
	if run = w.ends(run); run.Status != session.Cancelled {
		t.Errorf("the run is %s", run.Status)
	}
	if status := tell(o.next(), `{"result":1}`); status != http.StatusConflict {
		t.Errorf("a callback after it is answered %d", status)
	}
}
