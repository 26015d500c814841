package simtest

import (
	"bytes"
	"encoding/json"

	"github.com/holdfast-run/holdfast/session"
)

// callLife is what a log says of one tool call.
type callLife struct {
	called    session.Event
	arguments json.RawMessage // as the tool gets them; nil if they are kept beside the log
	starts    []session.Event
	results   []session.Event
	didNot    int // how often a person said that it had not happened
	unknown   int
}

// calls are the lives of all tool calls of a log.
func (h *history) calls() (lives map[string]*callLife, order []string) {
	lives = map[string]*callLife{}
	approvals := map[string]string{} // call by approval
	for _, e := range h.list {
		life := func(call string) *callLife {
			if lives[call] == nil {
				lives[call] = &callLife{}
				order = append(order, call)
			}
			return lives[call]
		}
		switch d := e.Data.(type) {
		case session.ToolCalled:
			l := life(d.Call)
			l.called, l.arguments = e, d.Arguments
		case session.ApprovalRequested:
			approvals[d.Approval.ID] = d.Approval.Call
		case session.ApprovalDecided:
			if d.Arguments != nil {
				life(approvals[d.ID]).arguments = d.Arguments
			}
		case session.ToolStarted:
			life(d.Call).starts = append(life(d.Call).starts, e)
		case session.ToolCompleted:
			life(d.Call).results = append(life(d.Call).results, e)
		case session.ToolFailed:
			life(d.Call).results = append(life(d.Call).results, e)
		case session.ToolDenied:
			life(d.Call).results = append(life(d.Call).results, e)
		case session.ToolCancelled:
			life(d.Call).results = append(life(d.Call).results, e)
		case session.ToolUnknown:
			life(d.Call).unknown++
		case session.ToolResolved:
			if d.Outcome == session.DidNot {
				life(d.Call).didNot++
			}
		}
	}
	return lives, order
}

// checkCalls checks the life of each call: called once, started with one key,
// and ended with exactly one result.
func (w *world) checkCalls(h *history) {
	lives, order := h.calls()
	for _, call := range order {
		l := lives[call]
		called, ok := l.called.Data.(session.ToolCalled)
		if !ok {
			w.find("%s of %s was never called", call, h.session)
			continue
		}
		for i, e := range l.starts {
			d := e.Data.(session.ToolStarted)
			if d.Try != i+1 || d.Key == "" || d.Key != l.starts[0].Data.(session.ToolStarted).Key {
				w.find("%s of %s is started with try %d and key %q, as its start number %d (%d)", call, h.session, d.Try, d.Key, i+1, e.Seq)
			}
			if len(l.results) > 0 && l.results[0].Seq < e.Seq {
				w.find("%s of %s is started at %d after it had a result", call, h.session, e.Seq)
			}
		}
		if called.Effects == session.Unsafe && len(l.starts) > 1+l.didNot {
			w.find("%s of %s is unsafe and was started %d times; people said %d times that it had not happened", call, h.session, len(l.starts), l.didNot)
		}
		if n := len(l.results); n > 1 || n == 0 && !h.deleted {
			w.find("%s of %s has %d results", call, h.session, n)
		}
	}
}

// checkApprovals checks that each approval is decided at most once, before its
// run ends, and that no call was started without the approval it needs.
func (w *world) checkApprovals(h *history) {
	type question struct {
		asked   session.Approval
		ended   int
		allowed int64 // the seq of the approval; 0: there is none
	}
	questions := map[string]*question{}
	byCall := map[string]*question{}
	ends := map[string]int64{}
	for _, e := range h.list {
		over := func(id string) *question {
			q := questions[id]
			if q == nil {
				w.find("the approval %s ends and was never asked for (%d of %s)", id, e.Seq, h.session)
				return &question{}
			}
			q.ended++
			if q.ended > 1 {
				w.find("the approval %s ends twice, with %s (%d of %s)", id, e.Type(), e.Seq, h.session)
			}
			return q
		}
		switch d := e.Data.(type) {
		case session.ApprovalRequested:
			a := d.Approval
			if questions[a.ID] != nil || byCall[a.Call] != nil || a.ArgumentsHash != session.HashArguments(a.Arguments) {
				w.find("the approval %s of %s is asked for wrongly (%d of %s)", a.ID, a.Call, e.Seq, h.session)
			}
			questions[a.ID] = &question{asked: a}
			byCall[a.Call] = questions[a.ID]
		case session.ApprovalDecided:
			if q := over(d.ID); d.Decision == session.Approve {
				q.allowed = e.Seq
			}
			if d.By == "" {
				w.find("nobody decided the approval %s (%d of %s)", d.ID, e.Seq, h.session)
			}
		case session.ApprovalExpired:
			over(d.ID)
		case session.ApprovalVoided:
			over(d.ID)
		case session.ToolDenied:
			if q := byCall[d.Call]; q == nil || q.allowed != 0 || q.ended != 1 {
				w.find("%s is denied, and its approval is %+v (%d of %s)", d.Call, q, e.Seq, h.session)
			}
		case session.ToolStarted:
			if q := byCall[d.Call]; q != nil && q.allowed == 0 {
				w.find("%s is started and nobody approved it (%d of %s)", d.Call, e.Seq, h.session)
			}
		}
		if terminal(e.Data) {
			ends[e.Run] = e.Seq
		}
	}
	for id, q := range questions {
		if q.ended == 0 && ends[q.asked.Run] > 0 {
			w.find("the approval %s is open in %s, and its run %s has ended", id, h.session, q.asked.Run)
		}
	}
}

// checkTools compares what the tools did with what the logs say.
func (w *world) checkTools() {
	type place struct {
		*callLife
		*history
	}
	places := map[string]place{}
	for _, h := range w.histories() {
		lives, order := h.calls()
		for _, call := range order {
			places[call] = place{lives[call], h}
		}
	}
	type count struct{ acted, tries map[int]int }
	counts := map[string]count{}
	keys := map[string]string{} // call by key
	for _, d := range w.hands.deeds() {
		id := d.call.ID
		p, ok := places[id]
		if !ok {
			w.find("the tool %s was called for %s, which no log has", d.call.Name, id)
			continue
		}
		if counts[id].acted == nil {
			counts[id] = count{map[int]int{}, map[int]int{}}
		}
		counts[id].tries[d.call.Attempt]++
		if d.acted > 0 {
			counts[id].acted[d.call.Attempt]++
		}
		if n := counts[id].tries[d.call.Attempt]; n > 1 {
			w.find("try %d of %s reached its tool %d times", d.call.Attempt, id, n)
		}
		if first, ok := keys[d.call.IdempotencyKey]; ok && first != id {
			w.find("%s and %s have the same key %s", id, first, d.call.IdempotencyKey)
		}
		keys[d.call.IdempotencyKey] = id
		if len(p.starts) < d.call.Attempt {
			w.find("try %d of %s reached its tool, and %s has no such start", d.call.Attempt, id, p.session)
			continue
		}
		start := p.starts[d.call.Attempt-1]
		if at := p.when(start); at > d.at {
			w.find("try %d of %s reached its tool at %s, before that was recorded at %s", d.call.Attempt, id, d.at, at)
		}
		if key := start.Data.(session.ToolStarted).Key; key != d.call.IdempotencyKey {
			w.find("try %d of %s reached its tool with the key %s, the log says %s", d.call.Attempt, id, d.call.IdempotencyKey, key)
		}
		if p.arguments != nil && !bytes.Equal(p.arguments, d.call.Arguments) {
			w.find("try %d of %s reached its tool with %s, the log says %s", d.call.Attempt, id, d.call.Arguments, p.arguments)
		}
		if called, ok := p.called.Data.(session.ToolCalled); ok && guarded[d.call.Name] && called.Approval == "" {
			w.find("%s was made without an approval, and %s needs one", id, d.call.Name)
		}
		w.checkResult(p.callLife, d)
	}
	for id, p := range places {
		acted := 0
		for _, n := range counts[id].acted {
			acted += n
		}
		if called, ok := p.called.Data.(session.ToolCalled); ok && called.Effects == session.Unsafe && acted > 1+p.didNot {
			w.find("%s is unsafe and happened %d times; people said %d times that it had not", id, acted, p.didNot)
		}
	}
}

// checkResult checks that a result in the log is one that the tool gave.
func (w *world) checkResult(l *callLife, d deed) {
	if len(l.results) != 1 || len(l.starts) != d.call.Attempt {
		return // another try gave it
	}
	completed, ok := l.results[0].Data.(session.ToolCompleted)
	switch {
	case !ok || completed.By != "" && completed.By == l.resolver():
	case d.failed || !d.ended:
		w.find("%s is completed with %s, and its tool failed", d.call.ID, brief(string(completed.Result)))
	case completed.Blob == nil && !bytes.Equal(completed.Result, orNull(d.result)):
		w.find("%s is completed with %s, and its tool gave %s", d.call.ID, brief(string(completed.Result)), brief(string(d.result)))
	}
}

func orNull(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage("null")
	}
	return raw
}

// resolver is who said what a call had done, if somebody did.
func (l *callLife) resolver() string {
	if l.unknown > 0 {
		return "local"
	}
	return ""
}
