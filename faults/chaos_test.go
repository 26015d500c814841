package faults

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// mob is many people who do to a few sessions whatever comes to their mind,
// while the server dies again and again.
type mob struct{ *world }

func TestWhateverPeopleDoWhileTheServerDiesKeepsThePromises(t *testing.T) {
	w := newWorld(t, settings{idle: 20 * time.Second, retention: time.Second})
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn {
		dice := rand.IntN(8)
		if r.LastUser() == "just talk" {
			dice = 3
		}
		switch dice {
		case 0:
			return fakellm.Reply(fakellm.Text("may I? "), pay("", "p"), fakellm.Call{Name: "look", Args: `{"ms":50}`})
		case 1:
			return fakellm.Reply(fakellm.Call{Name: "charge", Args: `{"note":"c","ms":60}`}, fakellm.Call{Name: "put", Args: `{"ms":30}`})
		case 2:
			return fakellm.Reply(fakellm.Reasoning("hm"), fakellm.Call{Name: "look", Args: `{}`})
		case 3:
			return fakellm.Reply(fakellm.Text("half an ans"), fakellm.Cut())
		}
		return fakellm.Reply(deltas(40, 5*time.Millisecond)...)
	})
	m := &mob{w}
	const sessions, people = 24, 12
	ids := make([]string, sessions)
	for i := range ids {
		ids[i] = fmt.Sprintf("ses_%d", i)
		w.seen[ids[i]] = true
	}
	rounds := 12
	if testing.Short() {
		rounds = 2
	}
	for range rounds {
		stop := make(chan struct{})
		var busy sync.WaitGroup
		for p := range people {
			busy.Go(func() {
				r := rand.New(rand.NewPCG(rand.Uint64(), uint64(p)))
				for {
					select {
					case <-stop:
						return
					default:
						m.act(r, ids[r.IntN(sessions)])
					}
				}
			})
		}
		pause(t, time.Duration(300+rand.IntN(1200))*time.Millisecond)
		w.srv.kill()
		close(stop)
		busy.Wait()
		w.http.CloseIdleConnections()
		w.again()
	}
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("over")) })
	for _, id := range ids {
		if m.gone(id) {
			continue
		}
		m.settle(id)
	}
	for _, r := range w.llm.Refused() {
		t.Errorf("the provider refuses a history: %s", r.Refusal)
	}
	w.doctor()
}

// gone says that the session is deleted, or never came to be.
func (m *mob) gone(id string) bool {
	if a := m.get("/v1/sessions/" + id); a.status == http.StatusNotFound {
		delete(m.seen, id)
		return true
	}
	return false
}

// settle says what people still have to say, until nothing is open.
func (m *mob) settle(id string) {
	m.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		snap := m.snapshot(id)
		open := 0
		for _, r := range snap.Runs {
			if r.Status.Terminal() {
				continue
			}
			open++
			if r.WaitingReason == session.WaitToolOutcome {
				run := m.run(r.ID)
				for _, msg := range snap.Messages {
					for _, p := range msg.Parts {
						if p.Tool != nil && msg.Run == run.ID && p.Tool.Status == session.CallUnknown {
							m.ask("POST", "/v1/runs/"+r.ID+"/tools/"+p.Tool.ID, map[string]string{"outcome": "failed"})
						}
					}
				}
				if r.Background { // its message is on no active branch
					m.cancel(r.ID)
				}
			}
		}
		for _, a := range snap.Approvals {
			m.decide(a.ID, "deny")
		}
		if open == 0 && len(snap.Inbox) == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.t.Errorf("%s does not come to rest: %d runs are open, %d messages wait: %+v", id, open, len(snap.Inbox), snap.Runs)
			return
		}
		pause(m.t, 50*time.Millisecond)
	}
}

// mortal says that people delete this session.
func mortal(id string) bool { return strings.HasSuffix(id, "0") || strings.HasSuffix(id, "5") }

// act is one thing that a person does. The server may be away.
func (m *mob) act(r *rand.Rand, id string) {
	do := func(method, path string, body any) answer {
		a, err := m.try(m.ctx, method, path, body)
		if err != nil {
			pause(m.t, 5*time.Millisecond)
			return answer{}
		}
		if a.status >= 500 && a.status != http.StatusServiceUnavailable {
			m.t.Errorf("%s %s: HTTP %d: %s", method, path, a.status, a.raw)
		}
		return a
	}
	var snap snapshot
	if a := do("GET", "/v1/sessions/"+id, nil); a.status == http.StatusOK {
		if json.Unmarshal(a.raw, &snap) != nil {
			return
		}
	}
	anyRun := func() string {
		if len(snap.Runs) == 0 {
			return "run_none"
		}
		return snap.Runs[r.IntN(len(snap.Runs))].ID
	}
	anyMessage := func() string {
		if len(snap.Messages) == 0 {
			return "msg_none"
		}
		return snap.Messages[r.IntN(len(snap.Messages))].ID
	}
	switch r.IntN(16) {
	default:
		s := say(fmt.Sprintf("msg_%d", m.next.Add(1)), "hello")
		if mortal(id) { // the ledger must not know what no log remembers
			s.Parts[0].Text = "just talk"
		}
		s.OnBusy = []string{"", "enqueue", "reject", "interrupt", "rollback", "steer", "steer"}[r.IntN(7)]
		s.Background = r.IntN(8) == 0
		if r.IntN(4) == 0 {
			parent := anyMessage()
			if r.IntN(4) == 0 {
				parent = ""
			}
			s.Parent = &parent
		}
		if len(snap.Inbox) > 20 {
			return
		}
		a := do("POST", "/v1/sessions/"+id+"/messages", s)
		if r.IntN(3) == 0 {
			b := do("POST", "/v1/sessions/"+id+"/messages", s)
			var one, two submitted
			if a.status/100 == 2 && b.status/100 == 2 && json.Unmarshal(a.raw, &one) == nil && json.Unmarshal(b.raw, &two) == nil &&
				one.Run.ID != two.Run.ID && s.OnBusy != "steer" && one.Seq <= two.Seq {
				m.t.Errorf("%s: a repeated message is answered by %s and by %s", id, one.Run.ID, two.Run.ID)
			}
		}
	case 6, 7:
		do("POST", "/v1/runs/"+anyRun()+"/cancel", map[string]string{})
	case 8:
		do("POST", "/v1/runs/"+anyRun()+"/retry", map[string]string{})
	case 9, 10, 11:
		for _, a := range snap.Approvals {
			do("POST", "/v1/approvals/"+a.ID, map[string]string{"decision": []string{"approve", "deny"}[r.IntN(2)]})
		}
	case 12:
		do("PATCH", "/v1/sessions/"+id, map[string]string{"head": anyMessage()})
	case 13:
		for _, item := range snap.Inbox {
			if r.IntN(2) == 0 {
				do("DELETE", "/v1/sessions/"+id+"/inbox/"+item.Message.ID, nil)
			} else {
				do("PATCH", "/v1/sessions/"+id+"/inbox/"+item.Message.ID, map[string]any{"parts": []part{{"text", item.Message.Text()}}})
			}
		}
	case 14:
		for _, msg := range snap.Messages {
			for _, p := range msg.Parts {
				if p.Tool != nil && p.Tool.Status == session.CallUnknown {
					do("POST", "/v1/runs/"+msg.Run+"/tools/"+p.Tool.ID, map[string]string{"outcome": []string{"happened", "did_not", "failed"}[r.IntN(3)]})
				}
			}
		}
	case 15:
		if mortal(id) && r.IntN(3) == 0 {
			do("DELETE", "/v1/sessions/"+id, nil)
		}
	}
}
