package session_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

// world lets random commands, workers and failures loose on one session.
type world struct {
	*history
	audit *audit
	rt    *rapid.T
	ids   int
	skew  time.Duration // time that passed without events
	// shed is the same state as a store keeps it: it drops parts whenever it likes.
	shed *session.State
	// accepted are the submissions that were not refused; removed those that were taken back.
	accepted map[string]*session.Submit
	removed  map[string]bool
	fences   map[string][]int64 // every fence a worker of the run ever had
	asked    []string           // every approval there ever was
	called   map[string]string  // the run of every call there ever was
}

func newWorld(rt *rapid.T) *world {
	return &world{
		history: newHistory(rt), audit: newAudit(), rt: rt, shed: session.New("ses_1"),
		accepted: map[string]*session.Submit{}, removed: map[string]bool{}, fences: map[string][]int64{}, called: map[string]string{},
	}
}

func (w *world) id(prefix string) string {
	w.ids++
	return fmt.Sprintf("%s%d", prefix, w.ids)
}

func (w *world) clock() time.Time { return w.now().Add(w.skew) }

// act appends a decision. A refusal must be one of ours and change nothing; a
// decision must not touch the state it looks at.
func (w *world) act(decide session.Decide) error {
	before := asJSON(w.rt, w.state)
	rows := rowsOf(w.rt, w.state)
	events, err := w.try(func(s *session.State) ([]session.Event, error) {
		events, err := decide(s)
		if after := asJSON(w.rt, s); after != before {
			w.rt.Fatalf("a decision changed the state:\n%s\n%s", before, after)
		}
		return events, err
	})
	if refusal := (*session.Error)(nil); err != nil && !errors.As(err, &refusal) {
		w.rt.Fatalf("an error that is no refusal: %v", err)
	}
	w.names(rows)
	for _, e := range events {
		if err := w.audit.read(e); err != nil {
			w.rt.Fatal(err)
		}
		w.shed.Apply(e)
		switch d := e.Data.(type) {
		case session.InboxRemoved:
			w.removed[d.ID] = true
		case session.RunStarted:
			w.fences[e.Run] = append(w.fences[e.Run], d.Fence)
		case session.RunResumed:
			w.fences[e.Run] = append(w.fences[e.Run], d.Fence)
		case session.ToolCalled:
			w.called[d.Call] = e.Run
		case session.ApprovalRequested:
			w.asked = append(w.asked, d.Approval.ID)
		}
	}
	return err
}

// rows are what read models keep of a state, by name.
type rows struct {
	session                   string
	runs, messages, approvals map[string]string
}

func rowsOf(t tester, s *session.State) rows {
	r := rows{runs: map[string]string{}, messages: map[string]string{}, approvals: map[string]string{}}
	r.session = fmt.Sprint(s.Title, s.Agent, string(s.Metadata), s.Head, len(s.Inbox), len(s.Messages), len(s.Open()))
	if active := s.Active(); active != nil {
		r.session += fmt.Sprint(active.ID, active.Status)
	}
	for _, run := range s.Runs {
		r.runs[run.ID] = asJSON(t, run) + asJSON(t, s.WorkOf(run))
	}
	for _, m := range s.Messages {
		if m.Status != session.MessageStreaming {
			r.messages[m.ID] = asJSON(t, m)
		}
	}
	for _, a := range s.Approvals {
		r.approvals[a.ID] = asJSON(t, a)
	}
	return r
}

// names checks that the state names each row that differs from before.
func (w *world) names(before rows) {
	changes, now := w.state.TakeChanges(), rowsOf(w.rt, w.state)
	differ := func(kind string, before, now map[string]string, named []string) {
		for id, row := range now {
			if before[id] != row && !slices.Contains(named, id) {
				w.rt.Fatalf("the %s %s changed and is not named:\n%s\n%s", kind, id, before[id], row)
			}
		}
	}
	if before.session != now.session && !changes.Session {
		w.rt.Fatalf("the session changed and is not named:\n%s\n%s", before.session, now.session)
	}
	differ("run", before.runs, now.runs, changes.Runs)
	differ("message", before.messages, now.messages, changes.Messages)
	differ("approval", before.approvals, now.approvals, changes.Approvals)
	for id := range before.approvals {
		if now.approvals[id] == "" && !strings.Contains(before.approvals[id], `"status":"pending"`) {
			continue // it was decided before, and its run ended
		}
		if now.approvals[id] == "" && !slices.Contains(changes.Approvals, id) {
			w.rt.Fatalf("the approval %s left while it was pending and is not named", id)
		}
	}
	for i, a := range changes.Decided {
		if a.ID != changes.Approvals[i] {
			w.rt.Fatalf("the changed approvals are %v and not %v", changes.Decided, changes.Approvals)
		}
		if row, ok := now.approvals[a.ID]; ok && row != asJSON(w.rt, a) {
			w.rt.Fatalf("the approval %s is told as\n%s\nand is\n%s", a.ID, asJSON(w.rt, a), row)
		} else if !ok && a.Status == session.StatusPending {
			w.rt.Fatalf("the approval %s left and is told as pending", a.ID)
		}
	}
}

func does(f func()) func(*rapid.T) { return func(*rapid.T) { f() } }

func pick[T any](rt *rapid.T, label string, of ...T) T { return rapid.SampledFrom(of).Draw(rt, label) }

// often is true p times of ten.
func often(rt *rapid.T, p int, label string) bool { return rapid.IntRange(1, 10).Draw(rt, label) <= p }

func (w *world) anyRun() string {
	ids := []string{"r_nobody"}
	for _, r := range w.state.Runs {
		ids = append(ids, r.ID)
		if !r.Status.Terminal() { // the lively ones more often
			ids = append(ids, r.ID, r.ID, r.ID)
		}
	}
	return pick(w.rt, "run", ids...)
}

func (w *world) anyMessage() string {
	ids := []string{"m_nobody"}
	for _, m := range w.state.Messages {
		ids = append(ids, m.ID)
	}
	for _, item := range w.state.Inbox {
		ids = append(ids, item.Message.ID)
	}
	return pick(w.rt, "message", ids...)
}

func (w *world) submits() {
	c := submission(w.id("m"), onBusy(pick(w.rt, "onBusy", "", session.Enqueue, session.Reject,
		session.Interrupt, session.Rollback, session.Steer, session.Steer)))
	c.Background = often(w.rt, 1, "background")
	c.At = w.clock()
	switch rapid.IntRange(0, 9).Draw(w.rt, "parent") {
	case 0:
		c.Parent = new(string)
	case 1:
		parent := w.anyMessage()
		c.Parent = &parent
	}
	err := w.act(c.Decide)
	if err != nil {
		return
	}
	w.accepted[c.ID] = c
}

// repeats sends an accepted message again: the same run answers, and nothing changes.
func (w *world) repeats() {
	if len(w.accepted) == 0 {
		w.rt.Skip("nothing to repeat")
	}
	ids := []string{}
	for id := range w.accepted {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	again := *w.accepted[pick(w.rt, "id", ids...)]
	again.Run, again.Output = w.id("r"), w.id("o")
	seq := w.state.Seq
	if often(w.rt, 3, "other body") {
		again.Parts = text("something else")
		if err := w.act(again.Decide); !errors.Is(err, &session.Error{Code: session.Conflict}) {
			w.rt.Fatalf("another body under a known id gave %v", err)
		}
		return
	}
	if err := w.act(again.Decide); err != nil {
		w.rt.Fatal(err)
	}
	if w.state.Seq != seq || !again.Repeated || again.Accepted != w.state.Submissions[again.ID].Run {
		w.rt.Fatalf("a repeated message gave the run %q (repeated %v) and %d events", again.Accepted, again.Repeated, w.state.Seq-seq)
	}
}

func (w *world) cancels() {
	id := w.anyRun()
	was := w.state.Run(id)
	var status session.Status
	family := false
	if was != nil {
		status, family = was.Status, len(w.state.Children(was)) > 0
	}
	err := w.act(session.Cancel{Run: id, By: "ann", At: w.clock(), Grace: 5 * time.Second}.Decide)
	switch {
	case was == nil:
		return
	case status == session.Running && was.CancelRequestedAt == nil:
		w.rt.Fatal("a cancel of a running run was not recorded")
	case family && !w.state.WorkOf(was).Due && !w.state.WorkOf(was).Held:
		w.rt.Fatalf("a run with children is %s and nobody will end it", was.Status)
	case !family && !status.Terminal() && status != session.Running && was.Status != session.Cancelled:
		w.rt.Fatalf("a run that nobody carries is %s after its cancel: %v", was.Status, err)
	}
}

func (w *world) overdue() {
	_ = w.act(session.CancelOverdue{Run: w.anyRun(), At: w.clock()}.Decide)
}

func (w *world) decides() {
	c := session.DecideApproval{
		ID: pick(w.rt, "approval", append([]string{"a_nobody"}, w.asked...)...), By: pick(w.rt, "by", "ann", "bob"),
		Decision: pick(w.rt, "decision", session.Approve, session.Approve, session.Deny),
	}
	if c.Decision == session.Approve && often(w.rt, 3, "edits") {
		c.Arguments = json.RawMessage(`{"edited":true}`)
	}
	_ = w.act(c.Decide)
}

func (w *world) resolves() {
	c := session.ResolveTool{
		Run: w.anyRun(), Call: "c_nobody", By: "ann",
		Outcome: pick(w.rt, "outcome", session.Happened, session.DidNot, session.OutcomeFail),
	}
	if run := w.state.Run(c.Run); run != nil {
		for _, call := range w.state.Calls(run) {
			if call.Status == session.CallUnknown || often(w.rt, 1, "this call") {
				c.Call = call.ID
			}
		}
	}
	_ = w.act(c.Decide)
}

// answers has others end a call that they work on, or think so.
func (w *world) answers() {
	c := session.CompleteCall{Run: w.anyRun(), Call: "c_nobody", Completed: session.ToolCompleted{Result: json.RawMessage(`"done"`)}}
	if often(w.rt, 3, "fails") {
		c.Error = &session.Failure{Code: "child_failed", Message: "no"}
	}
	if often(w.rt, 5, "counts") {
		c.Usage = &session.Usage{InputTokens: 3, OutputTokens: 2}
	}
	var call *session.ToolCall
	if run := w.state.Run(c.Run); run != nil {
		for _, known := range w.state.Calls(run) {
			if known.Status == session.CallDeferred || call == nil || often(w.rt, 1, "this call") {
				call = known
			}
		}
	}
	if call != nil {
		c.Call = call.ID
	}
	if w.act(c.Decide) != nil {
		return
	}
	if seq := w.state.Seq; w.act(c.Decide) == nil && w.state.Seq != seq {
		w.rt.Fatal("the same end of a call changed something twice")
	}
}

func (w *world) editsInbox() {
	_ = w.act(session.EditInbox{ID: w.anyMessage(), Parts: text("edited"), By: "ann"}.Decide)
}

func (w *world) removesFromInbox() {
	_ = w.act(session.RemoveInbox{ID: w.anyMessage(), By: "ann", At: w.clock()}.Decide)
}

func (w *world) updates() {
	u := session.Update{}
	switch rapid.IntRange(0, 2).Draw(w.rt, "what") {
	case 0:
		title := pick(w.rt, "title", "a", "b")
		u.Title = &title
	case 1:
		u.Metadata = json.RawMessage(pick(w.rt, "metadata", `{"a":1}`, `null`))
	case 2:
		head := w.anyMessage()
		u.Head = &head
	}
	_ = w.act(u.Decide)
}

func (w *world) retries() {
	_ = w.act(w.retry(w.anyRun(), w.id("r"), w.id("o")))
}

// retry goes on from where a run ended, if there is one.
func (w *world) retry(run, id, output string) session.Decide {
	c := session.Retry{Run: run, ID: id, Output: output}
	if old := w.state.Run(run); old != nil {
		if wrote := w.state.Message(old.Message); wrote != nil {
			c.Done = session.FinishedOf(old, wrote)
		}
	}
	return c.Decide
}

func (w *world) claims() {
	c := &session.Claim{Run: w.anyRun(), Worker: w.id("w"), At: w.clock()}
	if w.act(c.Decide) == nil && w.state.Run(c.Run).Fence != c.Fence {
		w.rt.Fatalf("a claim gave fence %d, and the run has %d", c.Fence, w.state.Run(c.Run).Fence)
	}
}

func (w *world) reconciles() {
	id := w.anyRun()
	fence := int64(0)
	if run := w.state.Run(id); run != nil {
		fence = run.Fence - int64(rapid.IntRange(0, 1).Draw(w.rt, "stale"))
	}
	_ = w.act(session.Reconcile{
		Run: id, Fence: fence, At: w.clock(), MaxCrashes: 3,
		Cause:   pick(w.rt, "cause", session.CauseLeaseExpired, session.CauseRestart, session.CauseDrain),
		Backoff: func(n int) time.Duration { return time.Duration(n-1) * time.Second },
	}.Decide)
}

func (w *world) passes() {
	w.skew += pick(w.rt, "time", time.Second, 10*time.Second)
}

func (w *world) sheds() { w.shed.Shed() }

// stale has a worker that lost its run write on.
func (w *world) stale() {
	run := w.state.Run(w.anyRun())
	if run == nil || len(w.fences[run.ID]) == 0 {
		w.rt.Skip("nobody carried it")
	}
	fence := pick(w.rt, "fence", w.fences[run.ID]...)
	if run.Status == session.Running && run.Fence == fence {
		w.rt.Skip("not stale")
	}
	seq := w.state.Seq
	err := w.act(session.Carry(run.ID, fence, func(s *session.State, r *session.Run) ([]session.Event, error) {
		return s.End(r, session.RunCompleted{}), nil
	}))
	if !errors.Is(err, &session.Error{Code: session.Fenced}) || w.state.Seq != seq {
		w.rt.Fatalf("a worker that lost its run wrote %d events: %v", w.state.Seq-seq, err)
	}
}

func TestAnyInterleavingOfCommandsKeepsThePromises(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"submit":    does(w.submits),
			"repeat":    does(w.repeats),
			"cancel":    does(w.cancels),
			"overdue":   does(w.overdue),
			"decide":    does(w.decides),
			"resolve":   does(w.resolves),
			"answer":    does(w.answers),
			"edit":      does(w.editsInbox),
			"remove":    does(w.removesFromInbox),
			"update":    does(w.updates),
			"retry":     does(w.retries),
			"claim":     does(w.claims),
			"claim2":    does(w.claims),
			"work":      does(w.works),
			"work2":     does(w.works),
			"work3":     does(w.works),
			"work4":     does(w.works),
			"stale":     does(w.stale),
			"reconcile": does(w.reconciles),
			"time":      does(w.passes),
			"shed":      does(w.sheds),
			"":          does(w.holds),
		})
		w.folds()
		w.shedDecides()
		w.settles()
		w.forgetsDeltas()
	})
}

// holds checks what is true at every moment.
func (w *world) holds() {
	s := w.state
	var foreground []string
	for _, r := range s.Runs {
		waits := slices.ContainsFunc(s.Inbox, func(it *session.InboxItem) bool { return it.Mode != session.Steer && it.Run == r.ID })
		if !r.Status.Terminal() && !r.Background && !waits {
			foreground = append(foreground, r.ID)
		}
		if waits && r.Status != session.Queued {
			w.rt.Fatalf("the run %s is %s while its message waits", r.ID, r.Status)
		}
		if r.Status != session.Running && (r.Worker != "" || s.WorkOf(r).Held) {
			w.rt.Fatalf("the run %s is %s and carried by %q", r.ID, r.Status, r.Worker)
		}
		if !r.Status.Terminal() && r.CancelRequestedAt != nil && r.Status != session.Running && !s.WorkOf(r).Due {
			w.rt.Fatalf("the run %s is to be cancelled and nobody carries it or will, but it is %s", r.ID, r.Status)
		}
	}
	active := s.Active()
	switch {
	case len(foreground) > 1:
		w.rt.Fatalf("the runs %v are all in the foreground", foreground)
	case len(foreground) == 1 && (active == nil || active.ID != foreground[0]), len(foreground) == 0 && active != nil:
		w.rt.Fatalf("%v is in the foreground and %+v active", foreground, active)
	case active == nil && len(s.Inbox) > 0:
		w.rt.Fatalf("%d messages wait and nothing is active", len(s.Inbox))
	case active == nil && len(s.Results) > 0:
		w.rt.Fatalf("%d results wait and nothing is active", len(s.Results))
	}
	for _, item := range s.Inbox {
		if item.Mode == session.Steer && item.Run != active.ID {
			w.rt.Fatalf("the steer %s waits for %s and not for the active run %s", item.Message.ID, item.Run, active.ID)
		}
	}
	for _, m := range s.Messages {
		if m.Parent != "" && s.Message(m.Parent) == nil {
			w.rt.Fatalf("the parent %s of %s does not exist", m.Parent, m.ID)
		}
	}
	if path := s.Path(s.Head); s.Head != "" && (len(path) == 0 || s.Message(path[0]).Parent != "") {
		w.rt.Fatalf("the branch of the head %s is %v", s.Head, path)
	}
	for _, a := range s.Approvals {
		if s.Run(a.Run).Status.Terminal() {
			w.rt.Fatalf("the approval %s outlived its run %s", a.ID, a.Run)
		}
	}
	for id := range w.accepted {
		if s.InboxItem(id) == nil && !w.removed[id] && s.Message(id) == nil {
			w.rt.Fatalf("the message %s was accepted and is lost", id)
		}
		if run := s.Run(s.Submissions[id].Run); run == nil {
			w.rt.Fatalf("the run %q that answers %s does not exist", s.Submissions[id].Run, id)
		}
	}
}

// folds checks that for every k the state at k, kept as JSON, goes on to the same state.
func (w *world) folds() {
	want := asJSON(w.rt, w.state)
	if got := asJSON(w.rt, session.Fold("ses_1", w.events)); got != want {
		w.rt.Fatalf("the fold of the log is not the state:\n%s\n%s", want, got)
	}
	at := session.New("ses_1")
	for k := 0; ; k++ {
		kept, err := session.Load([]byte(asJSON(w.rt, at)))
		if err != nil {
			w.rt.Fatal(err)
		}
		for _, e := range w.events[k:] {
			kept.Apply(e)
		}
		if got := asJSON(w.rt, kept); got != want {
			w.rt.Fatalf("the state kept at %d goes on differently:\n%s\n%s", k, want, got)
		}
		if k == len(w.events) {
			return
		}
		at.Apply(w.events[k])
	}
}

// shedDecides checks that a state that shed parts decides as the whole one.
func (w *world) shedDecides() {
	whole := w.state.Clone()
	whole.Shed()
	w.shed.Shed()
	if want, got := asJSON(w.rt, whole), asJSON(w.rt, w.shed); want != got {
		w.rt.Fatalf("a state that shed parts on the way differs:\n%s\n%s", want, got)
	}
	for name, decide := range w.probes() {
		want, wantErr := decide(w.state)
		got, gotErr := decide(w.shed)
		if asJSON(w.rt, want) != asJSON(w.rt, got) || fmt.Sprint(wantErr) != fmt.Sprint(gotErr) {
			w.rt.Fatalf("%s: the state that shed parts decides\n%s %v\nand not\n%s %v", name, asJSON(w.rt, got), gotErr, asJSON(w.rt, want), wantErr)
		}
	}
}

// probes are one of each command that could be given now.
func (w *world) probes() map[string]session.Decide {
	at := w.clock()
	probes := map[string]session.Decide{}
	for _, mode := range []session.OnBusy{session.Enqueue, session.Reject, session.Interrupt, session.Rollback, session.Steer} {
		probes["submit "+string(mode)] = func(s *session.State) ([]session.Event, error) {
			return submission("m_probe", onBusy(mode)).Decide(s)
		}
	}
	for _, r := range w.state.Runs {
		probes["cancel "+r.ID] = session.Cancel{Run: r.ID, At: at}.Decide
		probes["overdue "+r.ID] = session.CancelOverdue{Run: r.ID, At: at.Add(time.Hour)}.Decide
		probes["retry "+r.ID] = w.retry(r.ID, "r_probe", "o_probe")
		probes["reconcile "+r.ID] = session.Reconcile{Run: r.ID, Fence: r.Fence, Cause: session.CauseRestart, MaxCrashes: 3}.Decide
		probes["claim "+r.ID] = func(s *session.State) ([]session.Event, error) {
			return (&session.Claim{Run: r.ID, Worker: "w", At: at}).Decide(s)
		}
		probes["end "+r.ID] = session.Carry(r.ID, r.Fence, func(s *session.State, run *session.Run) ([]session.Event, error) {
			return append(s.DeliverSteers(run), s.End(run, session.RunFailed{})...), nil
		})
	}
	for call, run := range w.called {
		probes["resolve "+call] = session.ResolveTool{Run: run, Call: call, Outcome: session.DidNot}.Decide
	}
	for _, m := range w.state.Messages {
		probes["head "+m.ID] = session.Update{Head: &m.ID}.Decide
		probes["remove "+m.ID] = session.RemoveInbox{ID: m.ID, At: at}.Decide
	}
	for _, id := range w.asked {
		probes["approve "+id] = session.DecideApproval{ID: id, Decision: session.Approve}.Decide
	}
	return probes
}

// settles lets everything come to its end: nobody waits for ever, and each
// accepted message was answered by exactly one run or taken back.
func (w *world) settles() {
	for range 10_000 {
		open := w.state.Open()
		if len(open) == 0 {
			break
		}
		w.skew += time.Hour
		for _, r := range open {
			w.finishes(r)
		}
	}
	s := w.state
	if open := s.Open(); len(open) > 0 || len(s.Inbox) > 0 || len(s.Approvals) > 0 || s.Active() != nil {
		w.rt.Fatalf("%d runs, %d messages and %d approvals do not come to an end", len(open), len(s.Inbox), len(s.Approvals))
	}
	w.holds()
	answers := map[string]string{}
	for id, c := range w.accepted {
		m := s.Message(id)
		if w.removed[id] {
			if m != nil {
				w.rt.Fatalf("the message %s was taken back and delivered", id)
			}
			continue
		}
		run := s.Run(m.Run)
		if run == nil || m.Run != s.Submissions[id].Run {
			w.rt.Fatalf("the message %s is answered by %q and by %q", id, m.Run, s.Submissions[id].Run)
		}
		if c.OnBusy == session.Steer && run.Input != id {
			continue // told to a run that had begun
		}
		if run.Input != id {
			w.rt.Fatalf("the run %s answers %s and not %s", run.ID, run.Input, id)
		}
		if other := answers[run.ID]; other != "" {
			w.rt.Fatalf("the run %s answers %s and %s", run.ID, other, id)
		}
		answers[run.ID] = id
	}
	for _, r := range s.Runs {
		told := s.Message(session.ResultID(r.Message)) != nil
		if told != (r.Background && r.Status != session.Cancelled) {
			w.rt.Fatalf("the run %s (background: %v) is %s, and its result was told: %v", r.ID, r.Background, r.Status, told)
		}
	}
	for _, m := range s.Messages {
		if m.Status == session.MessageStreaming {
			w.rt.Fatalf("the message %s streams and all runs have ended", m.ID)
		}
		for _, p := range m.Parts {
			if p.State == session.PartStreaming || p.Tool != nil && !p.Tool.Status.Settled() || p.Tool != nil && p.Tool.Progress != nil {
				w.rt.Fatalf("the message %s has ended with an open part: %s", m.ID, asJSON(w.rt, p))
			}
			if p.State == session.PartFailed && m.Status == session.MessageWhole {
				w.rt.Fatalf("the message %s is whole with a failed part: %s", m.ID, asJSON(w.rt, p))
			}
		}
	}
}

// forgetsDeltas checks that facts alone say what ended runs did.
func (w *world) forgetsDeltas() {
	facts := slices.DeleteFunc(slices.Clone(w.events), func(e session.Event) bool { return session.IsDelta(e.Data) })
	want := session.Fold("ses_1", w.events)
	got := session.Fold("ses_1", facts)
	got.Seq = want.Seq
	if a, b := asJSON(w.rt, want), asJSON(w.rt, got); a != b {
		w.rt.Fatalf("without deltas the log says something else:\n%s\n%s", a, b)
	}
}
