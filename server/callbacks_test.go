package server_test

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/server"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool/callback"
)

var callbackKey = callback.Key(strings.Repeat("k", callback.MinKey))

// started lets a run of ses_1 begin a call, and gives its lease and the path of its callback.
func (w *world) started() (store.Lease, string) {
	w.t.Helper()
	w.say("ses_1", "msg_1", "do it")
	lease := w.claim()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	event := func(d session.Data) session.Event { return session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: d} }
	w.append("ses_1",
		event(session.StepStarted{Message: run.Message}),
		event(session.ToolCalled{Message: run.Message, Call: "call_1", Name: "refund", Arguments: json.RawMessage(`{}`), Effects: session.Unsafe}),
		event(session.ToolStarted{Message: run.Message, Call: "call_1", Try: 1, Key: "key"}))
	return lease, "/v1/callbacks/" + callbackKey.Token(callback.Call{Session: "ses_1", Run: lease.Run, ID: "call_1"})
}

// more are events of the call that was started.
func (w *world) more(lease store.Lease, make func(message string) session.Data) {
	w.t.Helper()
	run, err := w.store.Run(w.t.Context(), lease.Run)
	if err != nil {
		w.t.Fatal(err)
	}
	w.append("ses_1", session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: make(run.Message)})
}

func (w *world) call() session.ToolCall {
	w.t.Helper()
	var found *session.ToolCall
	if err := w.store.View(w.t.Context(), "ses_1", func(s *session.State) {
		for _, run := range s.Open() {
			for _, c := range s.Calls(run) {
				if c.ID == "call_1" {
					copied := *c
					found = &copied
				}
			}
		}
	}); err != nil {
		w.t.Fatal(err)
	}
	if found != nil {
		return *found
	}
	w.t.Fatal("there is no call")
	return session.ToolCall{}
}

func TestACallbackEndsACallWhateverStateItWaitsIn(t *testing.T) {
	for name, before := range map[string]func(*world, store.Lease){
		"before the 202 is recorded": func(*world, store.Lease) {},
		"deferred": func(w *world, l store.Lease) {
			w.more(l, func(m string) session.Data { return session.ToolDeferred{Message: m, Call: "call_1"} })
		},
		"unknown": func(w *world, l store.Lease) {
			w.more(l, func(m string) session.Data { return session.ToolUnknown{Message: m, Call: "call_1"} })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, worldOptions{elsewhere: true}) // no worker is here
			lease, path := w.started()
			before(w, lease)
			var done api.CallDone
			w.do("POST", path, `{"result": {"big":9007199254740993}}`).into(200, &done)
			if c := w.call(); c.Status != session.CallCompleted || string(c.Result) != `{"big":9007199254740993}` || done.Call != "call_1" {
				t.Errorf("the call is %s with %s", c.Status, c.Result)
			}
			seq := done.Seq
			w.do("POST", path, `{"result":{"big":9007199254740993}}`).into(200, &done) // the service did not get the answer
			if events := w.events("ses_1"); events[len(events)-1].Seq != seq {
				t.Errorf("the same end again wrote %s", events[len(events)-1].Type())
			}
			w.do("POST", path, `{"result": 7}`).problem(409, "call_not_open")
			w.do("POST", path, `{"error": {"message": "no"}}`).problem(409, "call_not_open")
			w.end(lease, session.RunCompleted{})
			w.do("POST", path, `{"result": {"big":9007199254740993}}`).problem(409, "run_terminal")
			w.do("DELETE", "/v1/sessions/ses_1", nil).is(204)
			w.do("POST", path, `{"result": 7}`).problem(404, api.NotFound)
		})
	}
}

func TestACallbackCanSayThatTheCallFailed(t *testing.T) {
	w := newWorld(t, worldOptions{})
	_, path := w.started()
	for range 2 {
		w.do("POST", path, `{"error": {"code": "no_seat", "message": "The train is full."}}`).is(200)
	}
	if c := w.call(); c.Status != session.CallFailed || *c.Error != (session.Failure{Code: "no_seat", Message: "The train is full."}) {
		t.Errorf("the call is %s with %+v", c.Status, c.Error)
	}
	w.do("POST", path, `{"error": {"message": "The train is full."}}`).problem(409, "call_not_open")
}

func TestACallbackThatIsGivenUpIsRefused(t *testing.T) {
	w := newWorld(t, worldOptions{})
	lease, path := w.started()
	w.more(lease, func(m string) session.Data {
		return session.ToolFailed{Message: m, Call: "call_1", Error: session.Failure{Code: "timeout", Message: "late"}}
	})
	w.do("POST", path, `{"result": "now"}`).problem(409, "call_not_open")
}

// A bad token and one of a call that never was are the same to whoever asks, and no body of theirs is read.
func TestABadTokenFindsNothing(t *testing.T) {
	w := newWorld(t, worldOptions{})
	lease, path := w.started()
	other := callback.Key(strings.Repeat("o", callback.MinKey))
	for _, bad := range []string{
		path + "A", path[:len(path)-1], "/v1/callbacks/x", "/v1/callbacks/..%2f", "/v1/callbacks/ses_1." + lease.Run + ".call_1.", "/v1/callbacks/%00",
		"/v1/callbacks/" + other.Token(callback.Call{Session: "ses_1", Run: lease.Run, ID: "call_1"}),
		"/v1/callbacks/" + callbackKey.Token(callback.Call{Session: "ses_1", Run: lease.Run, ID: "call_2"}),
		"/v1/callbacks/" + callbackKey.Token(callback.Call{Session: "ses_1", Run: "run_9", ID: "call_1"}),
		"/v1/callbacks/" + callbackKey.Token(callback.Call{Session: "ses_9", Run: lease.Run, ID: "call_1"}),
	} {
		w.do("POST", bad, `{"result": 1}`).problem(404, api.NotFound)
	}
	w.do("POST", "/v1/callbacks/x", `{`+strings.Repeat(" ", 9<<20)).problem(404, api.NotFound)
	if c := w.call(); c.Status != session.CallStarted {
		t.Errorf("the call is %s", c.Status)
	}
	w.do("GET", "/v1/sessions/ses_9", nil).problem(404, api.NotFound)
}

func TestABodyOfACallbackIsChecked(t *testing.T) {
	w := newWorld(t, worldOptions{})
	_, path := w.started()
	for body, code := range map[string]api.Code{
		``: api.Malformed, `{`: api.Malformed, `{}`: api.Invalid, `{"result":1,"error":{"message":"x"}}`: api.Invalid, `{"results":1}`: api.Invalid,
		`{"error":{"code":"x"}}`: api.Invalid, `{"error":{"message":""}}`: api.Invalid, `{"error":{"code":"a b","message":"x"}}`: api.Invalid,
		`{"error":{"message":"` + strings.Repeat("ü", 5000) + `"}}`: api.Invalid, `{"result":` + strings.Repeat("[", 600) + strings.Repeat("]", 600) + `}`: api.Malformed,
	} {
		var p api.Problem
		a := w.do("POST", path, body)
		if a.into(a.status, &p); a.status < 400 || p.Code != code {
			t.Errorf("%.60s: %d %s, not %s", body, a.status, p.Code, code)
		}
	}
	w.do("POST", path, `{"result":"`+strings.Repeat("a", 8<<20)+`"}`).problem(413, api.TooLarge)
	w.do("POST", path, `{"result":null}`).is(200)
}

// TD-01: a large result is kept whole beside the log.
func TestALargeResultOfACallbackIsKeptWholeAndOnce(t *testing.T) {
	w := newWorld(t, worldOptions{sqlite: true})
	_, path := w.started()
	one, other := strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20)+"b"
	w.do("POST", path, `{"result":"`+one+`"}`).is(200)
	w.do("POST", path, `{"result":"`+one+`"}`).is(200)
	w.do("POST", path, `{"result":"`+other+`"}`).problem(409, "call_not_open")
	c := w.call()
	if c.Blob == nil || len(c.Result) > 64<<10 {
		t.Fatalf("the call has a result of %d bytes and the blob %v", len(c.Result), c.Blob)
	}
	if whole := w.do("GET", "/v1/sessions/ses_1/blobs/"+c.Blob.Hash, nil).is(200).body; string(whole) != `"`+one+`"` {
		t.Errorf("the blob has %d bytes", len(whole))
	}
}

func TestManyCallbacksAtOnceAreOneEnd(t *testing.T) {
	w := newWorld(t, worldOptions{sqlite: true})
	lease, path := w.started()
	w.more(lease, func(m string) session.Data { return session.ToolDeferred{Message: m, Call: "call_1"} })
	var senders sync.WaitGroup
	taken := make(chan string, 20)
	for i := range 20 {
		senders.Go(func() {
			result := string(rune('a' + i%4))
			if a := w.do("POST", path, `{"result":"`+result+`"}`); a.status == 200 {
				taken <- result
			} else if a.status != 409 {
				t.Errorf("it answered %d %s", a.status, a.body)
			}
		})
	}
	senders.Wait()
	close(taken)
	var won string
	if json.Unmarshal(w.call().Result, &won) != nil {
		t.Fatal(w.call())
	}
	for result := range taken {
		if result != won {
			t.Errorf("%s was taken, and the result is %s", result, won)
		}
	}
}

// It comes from a machine, which may run in something that calls itself a page.
func TestACallbackIsTakenFromAnyOriginButNotAtAnyHost(t *testing.T) {
	w := newWorld(t, worldOptions{server: server.Options{AllowedHosts: []string{"agents.example.com"}}})
	_, path := w.started()
	w.do("POST", path, `{"result":1}`, "Host", "evil.example.com").problem(403, api.ForbiddenHost)
	w.do("POST", path, `{"result":1}`, "Host", "agents.example.com", "Origin", "https://worker.example.com", "Sec-Fetch-Site", "cross-site").is(200)
	w.do("POST", "/v1/runs/run_1/cancel", nil, "Origin", "https://worker.example.com").problem(403, api.ForbiddenOrigin)
	for _, around := range []string{"/v1/callbacks/../runs/run_1/cancel", "/v1/callbacks/%2e%2e/runs/run_1/cancel", "/v1/callbacks/..%2fruns%2frun_1%2fcancel"} {
		if a := w.sendRaw("POST " + around + " HTTP/1.1\r\nHost: localhost\r\nOrigin: https://worker.example.com\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); a.status != 403 && a.status != 404 {
			t.Errorf("%s is answered %d", around, a.status)
		}
	}
	if logged := w.log.String(); strings.Contains(logged, strings.TrimPrefix(path, "/v1/callbacks/")) {
		t.Error("the log has a token")
	}
}

// Neither a blob nor an event that could not be written is an end: the service sends it again.
func TestACallbackThatTheStoreCannotTakeIsAskedForAgain(t *testing.T) {
	for _, method := range []string{"Append", "PutBlob", "View"} {
		var broken atomic.Bool
		w := newWorld(t, worldOptions{faults: memory.Options{BeforeCall: func(m string) error {
			if m == method && broken.Load() {
				return store.ErrUnavailable
			}
			return nil
		}}})
		_, path := w.started()
		body := `{"result":"` + strings.Repeat("a", 100<<10) + `"}`
		broken.Store(true)
		w.do("POST", path, body).problem(503, api.Unavailable)
		broken.Store(false)
		w.do("POST", path, body).is(200)
		if c := w.call(); c.Status != session.CallCompleted {
			t.Errorf("%s: the call is %s", method, c.Status)
		}
	}
}
