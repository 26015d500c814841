package protocol_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
)

var update = flag.Bool("update", false, "write cases/*.json anew from the scripts")

var begin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// script makes a conversation by the same decisions that the server makes.
type script struct {
	t       *testing.T
	state   *session.State
	clock   time.Time
	frames  []session.Frame
	marks   []int64
	markAll bool
}

func newScript(t *testing.T) *script {
	return &script{t: t, state: session.New("ses_1"), clock: begin}
}

// mark keeps the state at this moment in the case.
func (s *script) mark() { s.marks = append(s.marks, s.state.Seq) }

// pass lets time pass.
func (s *script) pass(d time.Duration) { s.clock = s.clock.Add(d) }

func (s *script) do(decide session.Decide) []session.Event {
	s.t.Helper()
	events, err := decide(s.state)
	if err != nil {
		s.t.Fatal(err)
	}
	s.pass(137 * time.Millisecond)
	for i := range events {
		e := &events[i]
		e.Session, e.Seq, e.At = "ses_1", s.state.Seq+1, s.clock
		raw, err := e.AppendJSON(nil)
		if err != nil {
			s.t.Fatal(err)
		}
		s.line(string(raw))
	}
	return events
}

// line appends an event by its wire form.
func (s *script) line(raw string) {
	s.t.Helper()
	f := session.Frame{From: s.state.Seq + 1, To: s.state.Seq + 1, JSON: []byte(raw)}
	e, ok, err := f.Event()
	if err != nil || !ok || e.Seq != f.From {
		s.t.Fatalf("%s is not the event %d: %v", raw, f.From, err)
	}
	s.frames = append(s.frames, f)
	s.state.Apply(e)
	if s.markAll {
		s.mark()
	}
}

func (s *script) run(id string) *session.Run {
	s.t.Helper()
	run := s.state.Run(id)
	if run == nil {
		s.t.Fatalf("there is no run %s", id)
	}
	return run
}

// submit says something: message "msg_"+id, run "run_"+id, answered in "ans_"+id.
func (s *script) submit(id, said string, change ...func(*session.Submit)) {
	s.t.Helper()
	c := &session.Submit{
		ID: "msg_" + id, Parts: text(said), Run: "run_" + id, Output: "ans_" + id, DefaultAgent: "demo",
		Tenant: "local", Owner: "local", At: s.clock, Grace: 5 * time.Second,
	}
	for _, f := range change {
		f(c)
	}
	s.do(c.Decide)
}

func onBusy(mode session.OnBusy) func(*session.Submit) {
	return func(c *session.Submit) { c.OnBusy = mode }
}

func after(parent string) func(*session.Submit) {
	return func(c *session.Submit) { c.Parent = &parent }
}

func text(s string) []session.Part { return []session.Part{{Type: session.PartText, Text: s}} }

func (s *script) claim(run, worker string) {
	s.t.Helper()
	s.do((&session.Claim{Run: run, Worker: worker, At: s.clock}).Decide)
}

// carry writes as the run's worker. A step.started among the data moves to the
// next step, or with a because to the next attempt.
func (s *script) carry(run string, data ...session.Data) {
	s.t.Helper()
	r := s.run(run)
	step, attempt := max(r.CurrentStep, r.FromStep-1), r.Attempt
	s.do(session.Carry(run, r.Fence, func(*session.State, *session.Run) ([]session.Event, error) {
		var events []session.Event
		for _, d := range data {
			if started, ok := d.(session.StepStarted); ok && started.Because != "" {
				attempt++
			} else if ok {
				step, attempt = step+1, 1
			}
			events = append(events, session.Event{Step: step, Attempt: attempt, Data: d})
		}
		return events, nil
	}))
}

// step begins a model call, or tries it again.
func (s *script) step(run, because string) {
	s.t.Helper()
	s.carry(run, session.StepStarted{Message: s.run(run).Message, Because: because})
}

// stream streams text in pieces.
func (s *script) stream(run string, part int, pieces ...string) {
	s.t.Helper()
	for _, p := range pieces {
		s.carry(run, session.TextDelta{Message: s.run(run).Message, Part: part, Text: p})
	}
}

// says ends the model call with an answer.
func (s *script) says(run, finish string, parts ...session.Part) {
	s.t.Helper()
	s.carry(run, session.ModelCompleted{
		Message: s.run(run).Message, Parts: parts, Finish: finish, Usage: session.Usage{InputTokens: 12, OutputTokens: 34},
	})
}

// answer has a claimed run say it all in one step, and complete.
func (s *script) answer(run, said string) {
	s.t.Helper()
	s.step(run, "")
	s.stream(run, 0, said)
	s.says(run, "stop", text(said)...)
	s.carry(run, session.StepCompleted{})
	s.end(run, session.RunCompleted{Usage: s.run(run).Usage})
}

func (s *script) end(run string, terminal session.Data) {
	s.t.Helper()
	s.do(session.Carry(run, s.run(run).Fence, func(st *session.State, r *session.Run) ([]session.Event, error) {
		return st.End(r, terminal), nil
	}))
}

// call is one call of an answer.
type call struct {
	name, args string
	effects    session.Effects
	approve    bool
}

// calls ends the model call with calls: of a name, "call_<name>" and "apr_<name>".
func (s *script) calls(run string, calls ...call) {
	s.t.Helper()
	m := s.run(run).Message
	answer := session.ModelCompleted{Message: m, Finish: "tool_calls", Usage: session.Usage{InputTokens: 12, OutputTokens: 34}}
	var called []session.Data
	for _, c := range calls {
		answer.Parts = append(answer.Parts, session.Part{Type: session.PartTool, Tool: &session.ToolCall{ID: "call_" + c.name, Name: c.name}})
		d := session.ToolCalled{Message: m, Call: "call_" + c.name, Name: c.name, Arguments: json.RawMessage(c.args), Effects: c.effects}
		if c.approve {
			d.Approval = "apr_" + c.name
			called = append(called, session.ApprovalRequested{Approval: session.Approval{
				ID: d.Approval, Session: "ses_1", Run: run, Message: m, Call: d.Call, Name: c.name, Effects: c.effects,
				Arguments: d.Arguments, ArgumentsHash: session.HashArguments(d.Arguments),
			}})
		}
		called = append(called, d)
	}
	s.carry(run, append([]session.Data{answer}, called...)...)
}

func (s *script) tool(run, name string, d func(message, call string) session.Data) {
	s.t.Helper()
	s.carry(run, d(s.run(run).Message, "call_"+name))
}

func (s *script) starts(run, name string) {
	s.t.Helper()
	c := s.state.Message(s.run(run).Message).Call("call_" + name)
	s.tool(run, name, func(m, id string) session.Data {
		return session.ToolStarted{Message: m, Call: id, Try: c.Try + 1, Key: run + "." + id}
	})
}

func (s *script) gives(run, name, result string) {
	s.t.Helper()
	s.tool(run, name, func(m, id string) session.Data {
		return session.ToolCompleted{Message: m, Call: id, Result: json.RawMessage(result)}
	})
}

func (s *script) reconcile(run string, cause session.ReconcileCause, evidence string) {
	s.t.Helper()
	s.do(session.Reconcile{
		Run: run, Fence: s.run(run).Fence, Cause: cause, Evidence: evidence, At: s.clock, MaxCrashes: 3,
		Backoff: func(n int) time.Duration { return time.Duration(n) * time.Second },
	}.Decide)
}

// retain folds the deltas away, as retention does once their runs have ended.
func (s *script) retain() {
	s.t.Helper()
	var kept []session.Frame
	for _, f := range s.frames {
		e, ok, err := f.Event()
		if err != nil {
			s.t.Fatal(err)
		}
		if !ok || !session.IsDelta(e.Data) {
			kept = append(kept, f)
			continue
		}
		from := f.From
		if n := len(kept); n > 0 && bytes.HasPrefix(kept[n-1].JSON, []byte(`{"type":"folded"`)) {
			from = kept[n-1].From
			kept = kept[:n-1]
		}
		kept = append(kept, session.FoldedFrame("ses_1", from, f.To, s.run(e.Run).Message))
	}
	s.frames = kept
}

// conversation is what the script has come to.
func (s *script) conversation(name, about string) conversation {
	s.t.Helper()
	c := conversation{Name: name, About: about, Session: "ses_1", States: map[string]json.RawMessage{}}
	st := session.New("ses_1")
	s.mark()
	for _, f := range s.frames {
		c.Frames = append(c.Frames, f.JSON)
		fold(s.t, st, f)
		if slices.Contains(s.marks, st.Seq) {
			c.States[fmt.Sprint(st.Seq)] = encode(s.t, view(st, nil))
		}
	}
	return c
}

// file lays a case out: a line for each frame and for each state.
func (c conversation) file(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n\"name\": %s,\n\"about\": %s,\n\"session\": %s,\n\"frames\": [\n", encode(t, c.Name), encode(t, c.About), encode(t, c.Session))
	b.Write(bytes.Join(raws(c.Frames), []byte(",\n")))
	b.WriteString("\n],\n\"states\": {\n")
	for i, seq := range c.seqs(t) {
		if i > 0 {
			b.WriteString(",\n")
		}
		fmt.Fprintf(&b, "\"%d\": %s", seq, c.States[fmt.Sprint(seq)])
	}
	b.WriteString("\n}\n}\n")
	return b.Bytes()
}

func raws(frames []json.RawMessage) [][]byte {
	var out [][]byte
	for _, f := range frames {
		out = append(out, f)
	}
	return out
}

// The scripts and the files say the same. A file without a script is as good a
// case: it was written by hand.
func TestTheCasesAreWhatTheDomainDecides(t *testing.T) {
	for name, sc := range scripts {
		t.Run(name, func(t *testing.T) {
			s := newScript(t)
			sc.play(s)
			want := s.conversation(name, sc.about).file(t)
			file := filepath.Join("cases", name+".json")
			if *update {
				if err := os.WriteFile(file, want, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v (go test ./protocol -update writes it)", err)
			}
			if diff := cmp.Diff(string(got), string(want)); diff != "" {
				t.Errorf("the case is not what the domain decides (-file +script); go test ./protocol -update if it should be:\n%s", diff)
			}
		})
	}
}
