package faults

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

func pay(id, note string) fakellm.Call {
	return fakellm.Call{ID: id, Name: "pay", Args: fmt.Sprintf(`{"note":%q}`, note)}
}

// asked scripts one call that needs approval, and gives the run that waits and its approval.
func (w *world) asked(sessionID string) (session.Run, session.Approval) {
	w.t.Helper()
	w.llm.Script(fakellm.Reply(fakellm.Text("Shall I?"), pay("c", sessionID)).On(fakellm.Match{LastUser: "ask " + sessionID}))
	run := w.waits(w.submit(sessionID, "ask "+sessionID), session.WaitApproval)
	pending := w.pending(sessionID)
	if len(pending) != 1 {
		w.t.Fatalf("%d approvals are pending", len(pending))
	}
	return run, pending[0]
}

func TestAP01TwentyApprovalsOfOneRequestActOnce(t *testing.T) {
	w := newWorld(t, settings{})
	run, a := w.asked("ses")
	var wg sync.WaitGroup
	for i := range 20 {
		decision := "approve"
		if i%4 == 3 {
			decision = "deny"
		}
		wg.Go(func() {
			got, err := w.try(w.ctx, "POST", "/v1/approvals/"+a.ID, map[string]string{"decision": decision})
			if err != nil || got.status >= 500 {
				t.Errorf("HTTP %d, %v: %s", got.status, err, got.raw)
			}
		})
	}
	wg.Wait()
	w.ends(run)
	decided := w.events("ses", "approval.decided")
	if len(decided) != 1 {
		t.Fatalf("it was decided %d times", len(decided))
	}
	won := decided[0].Data.(session.ApprovalDecided).Decision
	acted := 0
	if won == session.Approve {
		acted = 1
	}
	if n := len(w.ledger()); n != acted {
		t.Errorf("%s won, and the tool acted %d times", won, n)
	}
	// The same again is fine, for ever; another is told who won.
	if got := w.decide(a.ID, string(won)); got.status != http.StatusOK {
		t.Errorf("the same decision again answers %d: %s", got.status, got.raw)
	}
	other := map[session.Decision]string{session.Approve: "deny", session.Deny: "approve"}[won]
	got := w.decide(a.ID, other)
	if got.status != http.StatusConflict || got.problem(t).Code != "approval_decided" || got.problem(t).Approval == nil || got.problem(t).Approval.By == "" {
		t.Errorf("another decision is answered %d: %s", got.status, got.raw)
	}
	w.continues("ses")
}

func TestAP03AnApprovalAfterTheCancelDoesNothing(t *testing.T) {
	w := newWorld(t, settings{})
	run, a := w.asked("ses")
	if got := w.cancel(run.ID); got.status/100 != 2 {
		t.Fatalf("a waiting run cannot be cancelled: %d %s", got.status, got.raw)
	}
	if got := w.run(run.ID); got.Status != session.Cancelled {
		t.Errorf("a waiting run is %s right after its cancel", got.Status)
	}
	got := w.decide(a.ID, "approve")
	if got.status != http.StatusConflict || got.problem(t).Code != "approval_gone" {
		t.Errorf("the late approval is answered %d: %s", got.status, got.raw)
	}
	if got := w.cancel(run.ID); got.status/100 != 2 {
		t.Errorf("the second cancel is answered %d: %s", got.status, got.raw)
	}
	if n := len(w.ledger()); n != 0 {
		t.Errorf("the tool acted %d times", n)
	}
	w.continues("ses")
	requests := w.llm.Requests()
	told := false
	for _, m := range requests[len(requests)-1].Messages {
		for _, r := range m.Results {
			told = told || r.Text != ""
		}
	}
	if !told {
		t.Error("the provider is told no result of the cancelled call")
	}

	// Both at once.
	for i := range 60 {
		id := fmt.Sprintf("ses_%d", i)
		run, a := w.asked(id)
		var wg sync.WaitGroup
		wg.Go(func() { pause(t, time.Duration(i%4)*time.Millisecond); w.cancel(run.ID) })
		wg.Go(func() { pause(t, time.Duration(i/4%4)*time.Millisecond); w.decide(a.ID, "approve") })
		wg.Wait()
		w.ends(run)
		if n := len(w.pending(id)); n != 0 {
			t.Errorf("%s: %d approvals are pending", id, n)
		}
		acted := 0
		for _, line := range w.ledger() {
			if strings.HasSuffix(line, " "+id) {
				acted++
			}
		}
		if approved := len(w.events(id, "approval.decided")); acted > approved {
			t.Errorf("%s: the tool acted %d times after %d approvals", id, acted, approved)
		}
	}
}

func TestAP04AWaitingApprovalSurvivesACrash(t *testing.T) {
	w := newWorld(t, settings{})
	run, a := w.asked("ses")
	w.crash()
	if got := w.run(run.ID); got.Status != session.Waiting {
		t.Errorf("after the crash the run is %s", got.Status)
	}
	if got := w.decide(a.ID, "approve"); got.status != http.StatusOK {
		t.Fatalf("the approval answers %d: %s", got.status, got.raw)
	}
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
	if n := len(w.ledger()); n != 1 {
		t.Errorf("the tool acted %d times", n)
	}
}

func TestAP05NoReaperTouchesARunThatWaitsForAPerson(t *testing.T) {
	w := newWorld(t, settings{})
	run, a := w.asked("ses")
	pause(t, 3*lease) // the subject: several leases and many sweeps go by
	w.crash()
	pause(t, 2*lease)
	got := w.run(run.ID)
	if got.Status != session.Waiting || got.WaitingReason != session.WaitApproval || got.Worker != "" || got.Attempt != 1 || got.Crashes != 0 {
		t.Errorf("the waiting run is %+v", got)
	}
	if n := len(w.events("ses", "run.reconciled")); n != 0 {
		t.Errorf("it was reconciled %d times", n)
	}
	w.decide(a.ID, "approve")
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s", got.Status)
	}
}

func TestAP07SeveralApprovalsGoEachToTheirCall(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "1", Name: "charge", Args: `{"note":"n1"}`}, pay("2", "n2"), pay("3", "n3")),
		fakellm.Reply(fakellm.Text("done")),
	)
	run := w.waits(w.submit("ses", "go"), session.WaitApproval)
	byNote := map[string]string{}
	for _, a := range w.pending("ses") {
		byNote[string(a.Arguments)] = a.ID
	}
	w.decide(byNote[`{"note":"n3"}`], "approve")
	w.until(run, "to wait again", func(r session.Run) bool {
		return r.Status == session.Waiting && len(w.ledger()) == 2
	})
	w.crash()
	w.decide(byNote[`{"note":"n2"}`], "deny")
	if got := w.ends(run); got.Status != session.Completed {
		t.Fatalf("the run is %s: %+v", got.Status, got.Error)
	}
	count := map[string]int{}
	for _, line := range w.ledger() {
		count[line[strings.LastIndexByte(line, ' ')+1:]]++
	}
	if count["n1"] != 1 || count["n2"] != 0 || count["n3"] != 1 {
		t.Errorf("the ledger counts %v", count)
	}
	requests := w.llm.Requests()
	if len(requests) != 2 {
		t.Fatalf("the provider was asked %d times", len(requests))
	}
	var texts []string
	for _, m := range requests[1].Messages {
		for _, r := range m.Results {
			texts = append(texts, r.Text)
		}
	}
	if len(texts) != 3 || texts[0] != "charge done" || !strings.Contains(texts[1], "not allowed") || texts[2] != "pay done" {
		t.Errorf("the results told are %q", texts)
	}
}

func TestAP08ACrashBetweenEffectAndResultAsksAPerson(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "c", Name: "pay", Args: `{"die":"after"}`}),
		fakellm.Reply(fakellm.Text("settled")),
	)
	run := w.waits(w.submit("ses", "go"), session.WaitApproval)
	// The tool may kill the server before it has answered.
	_, _ = w.try(w.ctx, "POST", "/v1/approvals/"+w.pending("ses")[0].ID, map[string]string{"decision": "approve"})
	w.srv.ended(t)
	w.again()
	w.waits(run, session.WaitToolOutcome)
	if n := len(w.ledger()); n != 1 {
		t.Fatalf("the tool acted %d times", n)
	}
	call := w.snapshot("ses").Messages[1].Parts
	id := call[len(call)-1].Tool.ID
	a := w.ask("POST", "/v1/runs/"+run.ID+"/tools/"+id, map[string]any{"outcome": "happened", "result": map[string]string{"receipt": "r1"}, "note": "seen in the books"})
	if a.status/100 != 2 {
		t.Fatalf("the word on it is answered %d: %s", a.status, a.raw)
	}
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s", got.Status)
	}
	if n := len(w.ledger()); n != 1 {
		t.Errorf("the tool acted %d times", n)
	}
	again := w.ask("POST", "/v1/runs/"+run.ID+"/tools/"+id, map[string]any{"outcome": "did_not"})
	if again.status != http.StatusConflict && again.status != http.StatusNotFound {
		t.Errorf("a second word is answered %d: %s", again.status, again.raw)
	}
	w.continues("ses")
}

func TestAP08WhatMayBeRepeatedIsRepeatedUnderItsKey(t *testing.T) {
	for _, name := range []string{"look", "put"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, settings{})
			w.llm.Script(
				fakellm.Reply(fakellm.Call{ID: "c", Name: name, Args: `{"die":"once"}`}),
				fakellm.Reply(fakellm.Text("settled")),
			)
			run := w.submit("ses", "go")
			w.srv.ended(t)
			w.again()
			if got := w.ends(run); got.Status != session.Completed {
				t.Fatalf("the run is %s: %+v", got.Status, got.Error)
			}
			lines := w.ledger()
			if len(lines) != 2 || lines[0] != lines[1] {
				t.Errorf("the ledger is %q", lines)
			}
		})
	}
}

func TestAP10ADecidedApprovalIsGoneAndEditsReachTheTool(t *testing.T) {
	w := newWorld(t, settings{})
	for i, edited := range []string{`{"note":"edited"}`, `{"result":false}`, `{"result":0}`, `{"result":""}`, `{"result":null}`, `{}`} {
		id := fmt.Sprintf("ses_%d", i)
		run, a := w.asked(id)
		got := w.ask("POST", "/v1/approvals/"+a.ID, `{"decision":"approve","note":"fine","arguments":`+edited+`}`)
		if got.status != http.StatusOK {
			t.Fatalf("the approval answers %d: %s", got.status, got.raw)
		}
		w.ends(run)
		snap := w.snapshot(id)
		if len(snap.Approvals) != 0 {
			t.Errorf("after the reload %d approvals are shown", len(snap.Approvals))
		}
		parts := snap.Messages[1].Parts
		var call *session.ToolCall
		for _, p := range parts {
			if p.Tool != nil {
				call = p.Tool
			}
		}
		if call == nil || call.Status != session.CallCompleted || string(call.Arguments) != edited || call.By == "" || call.Note != "fine" {
			raw, _ := json.Marshal(call)
			t.Errorf("the call is %s", raw)
		}
	}
	bad, a := w.asked("ses_bad")
	if got := w.ask("POST", "/v1/approvals/"+a.ID, `{"decision":"approve","arguments":{"ms":"soon"}}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("arguments that break the schema are answered %d: %s", got.status, got.raw)
	}
	if got := w.run(bad.ID); got.Status != session.Waiting {
		t.Errorf("the run is %s", got.Status)
	}
	w.decide(a.ID, "deny")
	w.ends(bad)
}

func TestAP10AnApprovalOfABigRunIsTaken(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Call{ID: "a", Name: "output", Args: `{"letters":900000}`}),
		fakellm.Reply(pay("b", "big")),
		fakellm.Reply(fakellm.Text("done")),
	)
	run := w.waits(w.submit("ses", "go"), session.WaitApproval)
	if got := w.decide(w.pending("ses")[0].ID, "approve"); got.status != http.StatusOK {
		t.Errorf("the approval answers %d: %s", got.status, got.raw)
	}
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s: %+v", got.Status, got.Error)
	}
}

func TestAP11AnApprovalThatNobodyDecidesExpires(t *testing.T) {
	w := newWorld(t, settings{approval: time.Second})
	run, a := w.asked("ses")
	if got := w.ends(run); got.Status != session.Completed {
		t.Errorf("the run is %s", got.Status)
	}
	if got := w.decide(a.ID, "approve"); got.status != http.StatusConflict || got.problem(t).Code != "approval_gone" {
		t.Errorf("the late approval is answered %d: %s", got.status, got.raw)
	}
	if n := len(w.ledger()); n != 0 {
		t.Errorf("the tool acted %d times", n)
	}
}
