package server_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

func TestWhatTheModelSawIsToldToTheOwnerOfTheRun(t *testing.T) {
	w := newWorld(t, worldOptions{})
	first := w.say("ses_1", "msg_1", "What is the capital of France?")
	lease := w.claim()
	w.writes(lease, "Paris.")
	w.completes(lease, "Paris.")
	second := w.say("ses_1", "msg_2", "And of Italy?")
	lease = w.claim()
	w.append("ses_1", session.Event{Run: lease.Run, Step: 1, Attempt: 1, Data: session.ContextCompacted{
		UpTo: &session.Mark{Message: first.Run.Message}, Summary: "They spoke of capitals.", Because: "window", Before: 9000, After: 300,
		Usage: session.Usage{InputTokens: 8000, OutputTokens: 6},
	}})
	var compactions api.CompactionList
	w.do("GET", "/v1/sessions/ses_1/compactions", nil).into(200, &compactions)
	if len(compactions.Items) != 1 || compactions.Items[0].Summary != "They spoke of capitals." || compactions.Items[0].Run != second.Run.ID || compactions.Items[0].UpTo.Message != first.Run.Message {
		t.Fatalf("compactions are %+v", compactions)
	}
	w.append("ses_1", session.Event{Run: lease.Run, Step: 1, Attempt: 1, Data: session.StepStarted{
		Message: second.Run.Message,
		Context: &session.StepContext{Tokens: 400, Counted: 200, Window: 8192, Room: 6000, Compaction: compactions.Items[0].Seq, Agent: "0123"},
	}})

	var seen holdfast.Context
	path := "/v1/runs/" + second.Run.ID + "/steps/1/context"
	w.do("GET", path, nil).into(200, &seen)
	if seen.Exact || seen.Reason == "" || seen.Tokens != 400 || seen.Window != 8192 || seen.Compaction == nil || len(seen.Tools) != 3 {
		t.Errorf("it is told as %+v", seen)
	}
	if len(seen.Messages) != 2 || seen.Messages[0].Message != "" || seen.Messages[1].Message != "msg_2" || seen.Messages[1].Parts[0].Text != "And of Italy?" {
		t.Errorf("the model saw %+v", seen.Messages)
	}
	// Of the first run nothing was kept, and what came later has no part in it.
	seen = holdfast.Context{}
	w.do("GET", "/v1/runs/"+first.Run.ID+"/steps/1/context", nil).into(200, &seen)
	if seen.Exact || len(seen.Messages) != 1 || seen.Messages[0].Message != "msg_1" || seen.Compaction != nil {
		t.Errorf("the first run's model saw %+v", seen)
	}
	w.do("GET", path+"?attempt=1", nil).is(200)
	w.do("GET", path+"?attempt=2", nil).problem(404, api.NotFound)
	w.do("GET", "/v1/runs/"+second.Run.ID+"/steps/2/context", nil).problem(404, api.NotFound)
	w.do("GET", "/v1/runs/"+second.Run.ID+"/steps/0/context", nil).problem(422, api.Invalid)
	w.do("GET", "/v1/runs/run_none/steps/1/context", nil).problem(404, api.NotFound)
	w.do("GET", "/v1/sessions/ses_none/compactions", nil).problem(404, api.NotFound)
}
