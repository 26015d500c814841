package app_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// numbers is a count from 1 to n.
func numbers(n int) []string {
	var all []string
	for i := 1; i <= n; i++ {
		all = append(all, fmt.Sprintf("%d ", i))
	}
	return all
}

func TestThePipedAnswerIsTheAnswerAndNothingElse(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Reasoning("Hm."), fakellm.Text("I will ", "write it down."), fakellm.Call{Name: "notes_write", Args: `{"name":"a.md","text":"x"}`}),
		fakellm.Reply(fakellm.Text("Done: <b>&amp;</b>\t\x1b[1mbold\x1b[0m\n\n")),
	)
	got := w.run("chat", "write", "it down")
	got.want(t, 0, "I will write it down.\n\nDone: <b>&amp;</b>\t\x1b[1mbold\x1b[0m\n\n")
	if want := "  → notes_write {\"name\":\"a.md\",\"text\":\"x\"}\n  ✓ notes_write: Wrote the note a.md (1 bytes).\n"; got.err != want {
		t.Errorf("noted %q\nwant  %q", got.err, want)
	}
	if asked := w.llm.Requests()[0].Messages; asked[len(asked)-1].Text != "write it down" {
		t.Errorf("the model was asked %+v", asked)
	}
}

func TestTheExitCodeSaysHowTheRunEnded(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("Yes.")).To("complete"),
		fakellm.Reply(fakellm.Status{Code: 400}).To("fail"),
		fakellm.Reply(fakellm.Text("I was about "), fakellm.OpenGate("speaking"), fakellm.Stall()).To("cancel"),
	)
	w.run("chat", "complete").want(t, 0, "Yes.\n")

	failed := w.run("chat", "fail")
	failed.wantErr(t, 1, "failed: ", "(invalid_request)")
	failed.want(t, 1, "")

	cancelled := w.start(t.Context(), "", "chat", "cancel")
	if err := w.llm.WaitGate(within(t), "speaking"); err != nil {
		t.Fatal(err)
	}
	var list struct{ Items []session.Run }
	w.get("/v1/runs?status=running", &list)
	w.run("cancel", list.Items[0].ID, "--reason", "enough").want(t, 0, list.Items[0].ID+" is cancelled.\n")
	got := cancelled.wait()
	got.want(t, 3, "I was about \n")
	got.wantErr(t, 3, "cancelled by local: enough")

	w.run("chat", "").wantErr(t, 2, "the message is empty")
	w.run("chat", "--session", "not an id", "x").wantErr(t, 2, "is no session id")
	w.run("chat").wantErr(t, 2, "nothing to say")
	w.run("chat", "--agent", "nobody", "x").wantErr(t, 1, `there is no agent "nobody" (invalid)`)
	w.run("chat", "--session", "ses_unknown").wantErr(t, 1, "there is no session ses_unknown")
}

func TestEachLineOfAPipeIsAMessageUntilOneFails(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("first")).To("one"),
		fakellm.Reply(fakellm.Text("second")).To("two"),
		fakellm.Reply(fakellm.Status{Code: 400}).To("three"),
	)
	got := w.start(t.Context(), "one\n\ntwo\r\nthree\nfour\n", "chat").wait()
	got.want(t, 1, "first\nsecond\n")
	if n := len(w.llm.Requests()); n != 3 {
		t.Errorf("the model was asked %d times", n)
	}
	if last := w.llm.Requests()[2].Messages; len(last) != 5 {
		t.Errorf("the lines are not one conversation: %+v", last)
	}
}

func TestLeavingDoesNotCancelAndTheSessionIsComeBackTo(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(fakellm.Reply(fakellm.Text("The long "), fakellm.OpenGate("speaking"), fakellm.WaitGate("go on"), fakellm.Text("answer.")))
	ctx, leave := context.WithCancel(t.Context())
	chat := w.start(ctx, "", "chat", "begin")
	if err := w.llm.WaitGate(within(t), "speaking"); err != nil {
		t.Fatal(err)
	}
	run := w.theRun()
	leave()
	got := chat.wait()
	got.want(t, 130, "")
	got.wantErr(t, 130, "Left. The run goes on without you.",
		"come back: holdfast chat --server "+w.url()+" --session "+run.Session+"\n",
		"cancel it: holdfast cancel --server "+w.url()+" "+run.ID+"\n")
	if now := w.theRun(); now.Status != session.Running || now.CancelRequestedAt != nil {
		t.Fatalf("the run is %s", now.Status)
	}

	back := w.start(t.Context(), "", "chat", "--session", run.Session)
	w.llm.OpenGate("go on")
	back.wait().want(t, 0, "The long answer.\n")
	w.run("chat", "--session", run.Session).want(t, 0, "The long answer.\n")
}

func TestAChatOutlivesARestartOfTheServer(t *testing.T) {
	w := newWorld(t)
	first := w.serve()
	count := numbers(50)
	w.llm.Script(
		fakellm.Reply(fakellm.Text(count[:20]...), fakellm.OpenGate("half"), fakellm.Stall()),
		fakellm.Reply(fakellm.Text(count...)),
	)
	chat := w.start(t.Context(), "", "chat", "count")
	if err := w.llm.WaitGate(within(t), "half"); err != nil {
		t.Fatal(err)
	}
	if code := first.stop(); code != 0 {
		t.Errorf("the server ended with %d:\n%s", code, first.err)
	}
	first.err.await(t, "Stopping: 1 run to finish or to hand over")
	chat.err.await(t, "lost the server")
	w.serve() // on the same port and data
	got := chat.wait()
	got.want(t, 0, strings.Join(count, "")+"\n")
	got.wantErr(t, 0, "its worker is shutting down", "attempt 2 (its worker was lost)")
	if n := strings.Count(got.err, "lost the server"); n != 1 {
		t.Errorf("that the server was lost is said %d times:\n%s", n, got.err)
	}
}

func TestAChatOutlivesTheServersSuddenDeath(t *testing.T) {
	w := newWorld(t)
	first := w.process()
	count := numbers(500)
	w.llm.Script(
		fakellm.Reply(fakellm.Text(count[:200]...), fakellm.OpenGate("half"), fakellm.Stall()),
		fakellm.Reply(fakellm.Text(count...)),
	)
	chat := w.start(t.Context(), "", "chat", "count to 500 slowly")
	if err := w.llm.WaitGate(within(t), "half"); err != nil {
		t.Fatal(err)
	}
	first.kill()
	chat.err.await(t, "no answer from")
	w.process()
	chat.wait().want(t, 0, strings.Join(count, "")+"\n")
	if run := w.theRun(); run.Status != session.Completed {
		t.Errorf("the run is %s", run.Status)
	}
}

func TestAMessageIsSentAgainUntilItIsAcknowledgedAndIsOneMessage(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Once.")) })
	// Between them stands a proxy that passes the message on and loses the answer, twice.
	target, _ := url.Parse(w.url())
	pass := httputil.NewSingleHostReverseProxy(target)
	pass.FlushInterval = -1
	var posts atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && posts.Add(1) <= 2 {
			r.Host = target.Host
			pass.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(rw, r)
	}))
	defer proxy.Close()

	got := start(t.Context(), t, strings.NewReader(""), "chat", "once", "--server", proxy.URL).wait()
	got.want(t, 0, "Once.\n")
	got.wantErr(t, 0, "sending it again until it is acknowledged", "the server took it")
	if n := posts.Load(); n != 3 {
		t.Errorf("it was sent %d times", n)
	}
	if n := len(w.llm.Requests()); n != 1 {
		t.Errorf("the model was asked %d times", n)
	}
	w.theRun() // there is one
}

func TestLeavingBeforeTheAcknowledgementSaysSo(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Hello.")) })
	w.run("chat", "--session", "ses_a", "one").want(t, 0, "Hello.\n")
	// Between them stands a proxy that lets no message through.
	target, _ := url.Parse(w.url())
	pass := httputil.NewSingleHostReverseProxy(target)
	proxy := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(rw, r)
	}))
	defer proxy.Close()
	ctx, leave := context.WithCancel(t.Context())
	chat := start(ctx, t, strings.NewReader(""), "chat", "--session", "ses_a", "two", "--server", proxy.URL)
	chat.err.await(t, "sending it again until it is acknowledged")
	leave()
	chat.wait().wantErr(t, 130, "Left before the server said that it has the message.", "--session ses_a")
	s.stop()
}

func TestAServerThatIsBeingStartedIsWaitedForAndOneThatIsNotThereIsNot(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	s.stop()
	got := w.run("chat", "hello")
	got.wantErr(t, 1, "no answer from "+w.url()+": nothing listens there", `Start the server with "holdfast serve"`)

	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Hello.")) })
	chat := w.start(t.Context(), "", "chat", "hello")
	w.serve()
	chat.wait().want(t, 0, "Hello.\n")
}

func TestAQueuedMessagesAnswerIsItsOwn(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("The first."), fakellm.OpenGate("speaking"), fakellm.WaitGate("go on")).To("one"),
		fakellm.Reply(fakellm.Text("The second.")).To("two"),
	)
	first := w.start(t.Context(), "", "chat", "--session", "ses_q", "one")
	if err := w.llm.WaitGate(within(t), "speaking"); err != nil {
		t.Fatal(err)
	}
	w.run("chat", "--session", "ses_q", "--on-busy", "reject", "no").wantErr(t, 1, "(run_active)")
	second := w.start(t.Context(), "", "chat", "--session", "ses_q", "two")
	w.llm.OpenGate("go on")
	first.wait().want(t, 0, "The first.\n")
	second.wait().want(t, 0, "The second.\n")
}

func TestASteerThatComesTooLateIsAnsweredAllTheSame(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("The first."), fakellm.OpenGate("speaking"), fakellm.WaitGate("go on")).To("one"),
		fakellm.Reply(fakellm.Text("The second.")).To("two"),
	)
	first := w.start(t.Context(), "", "chat", "--session", "ses_s", "one")
	if err := w.llm.WaitGate(within(t), "speaking"); err != nil {
		t.Fatal(err)
	}
	log := w.start(t.Context(), "", "tail", "-f", "ses_s")
	steer := w.start(t.Context(), "", "chat", "--session", "ses_s", "--on-busy", "steer", "two")
	log.out.await(t, `"mode":"steer"`)
	w.llm.OpenGate("go on")
	first.wait().want(t, 0, "The first.\n")
	steer.wait().want(t, 0, "The first.\n\nThe second.\n")
}

func TestARunThatNeedsAPersonSaysSoWhereNobodyIs(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("May I?"), fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("I may not.")),
	)
	got := w.run("chat", "delete a")
	got.want(t, 4, "May I?\n")
	run := w.theRun()
	var list struct{ Items []session.Approval }
	w.get("/v1/approvals?status=pending", &list)
	id := list.Items[0].ID
	got.wantErr(t, 4, "notes_delete wants to run (it cannot be repeated safely):", `{"name":"a.md"}`,
		"allow it:  holdfast approve --server "+w.url()+" "+id, "chat --server "+w.url()+" --session "+run.Session)

	listed := w.run("approve")
	if listed.code != 0 || !strings.Contains(listed.out, id) || !strings.Contains(listed.out, `{"name":"a.md"}`) {
		t.Errorf("approve lists\n%s", listed.out)
	}
	w.run("deny", id, "--note", "keep it").want(t, 0, id+" is denied: notes_delete {\"name\":\"a.md\"}\n")
	w.run("deny", id, "--note", "keep it").want(t, 0, id+" is denied: notes_delete {\"name\":\"a.md\"}\n")
	w.run("approve", id).wantErr(t, 1, id+" is denied already, by local")
	w.run("chat", "--session", run.Session).want(t, 0, "May I?\n\nI may not.\n")
	asked, err := w.llm.WaitRequest(within(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	last := asked.Messages
	if told := last[len(last)-1].Results[0].Text; !strings.Contains(told, "keep it") {
		t.Errorf("the model was told %q", told)
	}
	if left := w.run("deny"); left.err != "Nothing waits for a decision.\n" {
		t.Errorf("afterwards deny says %q", left.err)
	}
}

func TestAnApprovalCanChangeTheArguments(t *testing.T) {
	w := newWorld(t)
	w.serve()
	if err := os.WriteFile(filepath.Join(w.dir, "data", "notes", "b.md"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.llm.Script(
		fakellm.Reply(fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("Deleted.")),
	)
	if got := w.run("chat", "delete a"); got.code != 4 {
		t.Fatalf("exit code %d", got.code)
	}
	var list struct{ Items []session.Approval }
	w.get("/v1/approvals?status=pending", &list)
	id := list.Items[0].ID
	w.run("approve", id, "--arguments", "[]").wantErr(t, 2, "must be a JSON object")
	w.run("approve", id, "--arguments", `{"nome":"b.md"}`).wantErr(t, 1, "(invalid)")
	w.run("approve", id, "--arguments", `{"name": "b.md"}`).want(t, 0, id+" is approved: notes_delete {\"name\":\"b.md\"}\n")
	w.run("chat", "--session", list.Items[0].Session).want(t, 0, "Deleted.\n")
	if _, err := os.Stat(filepath.Join(w.dir, "data", "notes", "b.md")); !os.IsNotExist(err) {
		t.Errorf("the note is still there: %v", err)
	}
}

func TestACallWhoseOutcomeNobodyKnowsWaitsForAPersonsWord(t *testing.T) {
	w := newWorld(t)
	ledger := filepath.Join(w.dir, "ledger")
	if err := os.WriteFile(filepath.Join(w.dir, "hang"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := w.process()
	w.llm.Script(
		fakellm.Reply(fakellm.Call{Name: "pay", Args: fmt.Sprintf(`{"ledger":%q}`, ledger)}),
		fakellm.Reply(fakellm.Text("It is paid.")),
	)
	chat := w.start(t.Context(), "", "chat", "pay")
	chat.err.await(t, "→ pay")
	log := w.start(t.Context(), "", "tail", "--follow", w.theRun().Session)
	log.out.await(t, `"the money is gone"`)
	first.kill()
	w.process()
	got := chat.wait()
	got.wantErr(t, 4, "pay had started when its worker was lost. Did it happen?", "resolve")

	run := w.theRun()
	listed := w.run("resolve", "--json")
	if !strings.Contains(listed.out, run.ID) || !strings.Contains(listed.out, `"status":"unknown"`) {
		t.Fatalf("resolve lists %q", listed.out)
	}
	call := listed.out[strings.Index(listed.out, `"call":{"id":"`)+len(`"call":{"id":"`):]
	call = call[:strings.Index(call, `"`)]
	w.run("resolve", run.ID, call).wantErr(t, 2, "say which call, and what it did")
	w.run("resolve", run.ID, call, "failed", "--result", "1").wantErr(t, 2, "--result goes with happened")
	if got := w.run("resolve", run.ID, call, "happened", "--result", `"paid"`); got.code != 0 {
		t.Fatalf("resolve: %s", got.err)
	}
	w.run("chat", "--session", run.Session).want(t, 0, "It is paid.\n")
	w.run("resolve", run.ID, call, "happened").wantErr(t, 1, run.ID)
	if raw, _ := os.ReadFile(ledger); string(raw) != "paid\n" {
		t.Errorf("it was paid: %q", raw)
	}
}
