package chat

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// teller tells a person what happens in a session, event by event.
//
// The answer's text goes two ways. On a terminal it is shown as it streams, and
// what an attempt had said is taken back when the next one replaces it.
// Elsewhere a reader cannot take back: a step's text is written when the model
// has completed it, exactly as it is kept, and nothing else is written there.
type teller struct {
	mirror mirror
	notes  *screen // where everything is told; on a terminal the answer too
	answer *answer // where the answer goes instead, if that is no terminal
	target string  // the run whose answer is wanted
	mine   map[string]bool
	now    func() time.Time
	step   step
}

// step is the model's turn that is being told.
type step struct {
	run     string
	number  int
	attempt int
	parts   []segment
}

// segment is a piece of text that the model streamed.
type segment struct {
	kind session.PartType
	part int
	text strings.Builder
}

// live says whether the answer is shown as it streams.
func (t *teller) live() bool { return t.answer == nil }

func (t *teller) note(look style, format string, args ...any) {
	t.notes.Line(look, "  "+fmt.Sprintf(format, args...))
}

// width is how much of a value is shown.
func (t *teller) width() int {
	if t.notes.live {
		return max(t.notes.width-4, 20)
	}
	return 200
}

// tell takes an event that the mirror has folded.
func (t *teller) tell(e session.Event) {
	if e.Run != "" && !t.mirror.foreground(e.Run) {
		return
	}
	if !t.live() && e.Run != "" && e.Run != t.target {
		return // somebody reads one answer only
	}
	switch d := e.Data.(type) {
	case session.MessageCreated:
		if b := d.Message.Background; b != nil && t.live() {
			t.fromBackground(&d.Message)
		} else if d.Message.Role == session.RoleUser && t.live() && !t.mine[d.Message.ID] && t.mirror.foreground(d.Message.Run) {
			t.said(&d.Message)
		}
	case session.StepStarted:
		t.began(e, d)
	case session.TextDelta:
		t.stream(e, session.PartText, d.Part, d.Text)
	case session.ReasoningDelta:
		t.stream(e, session.PartReasoning, d.Part, d.Text)
	case session.ModelCompleted:
		t.whole(d.Parts)
	case session.MessageInterrupted:
		t.whole(t.unfinished(d))
	case session.AttemptFailed:
		t.attemptFailed(e, d)
	default:
		t.tellTool(e)
		t.tellRun(e)
	}
}

// unfinished is what was said without being finished when the run ended: by an
// attempt that failed, or by one that was broken off.
func (t *teller) unfinished(d session.MessageInterrupted) []session.Part {
	var parts []session.Part
	if m := t.mirror.Message(d.Message); m != nil {
		for _, p := range m.Parts {
			if p.State == session.PartFailed {
				p.State = ""
				parts = append(parts, p)
			}
		}
	}
	for _, p := range d.Parts {
		same := func(q session.Part) bool { return q.Step == p.Step && q.Part == p.Part && q.Type == p.Type }
		if !slices.ContainsFunc(parts, same) { // attempt.failed kept it
			parts = append(parts, p)
		}
	}
	return parts
}

// fromBackground shows how a background run ended.
func (t *teller) fromBackground(m *session.Message) {
	t.notes.FreshLine()
	t.notes.Unmark()
	about := oneLine(cmp.Or(m.Background.Title, m.Background.Run), 80)
	if cause := m.Background.Error; cause != nil {
		t.note(red, "from the background (%s): failed: %s (%s)", about, oneLine(cause.Message, 1000), cause.Code)
		return
	}
	t.note(dim, "from the background (%s):", about)
	for _, text := range strings.Split(strings.TrimRight(spoken(m), "\n"), "\n") {
		t.notes.Line(plain, text)
	}
}

// said shows a person's message.
func (t *teller) said(m *session.Message) {
	t.notes.FreshLine()
	t.notes.Unmark()
	for i, text := range strings.Split(strings.TrimRight(spoken(m), "\n"), "\n") {
		t.notes.Line(bold, []string{"› ", "  "}[min(i, 1)]+text)
	}
}

// spoken is a person's message as text.
func spoken(m *session.Message) string {
	var lines []string
	for _, p := range m.Parts {
		switch {
		case p.Type == session.PartText && p.Blob != nil:
			lines = append(lines, fmt.Sprintf("%s… (%d bytes in all)", oneLine(p.Text, 200), p.Blob.Size))
		case p.Type == session.PartText:
			lines = append(lines, p.Text)
		case p.File != nil:
			lines = append(lines, fmt.Sprintf("[file %s, %s]", cmp.Or(p.File.Name, "without a name"), p.File.MediaType))
		default:
			lines = append(lines, fmt.Sprintf("[%s]", p.Type))
		}
	}
	return strings.Join(lines, "\n")
}

func (t *teller) began(e session.Event, d session.StepStarted) {
	same := t.step.run == e.Run && t.step.number == e.Step
	spoke := same && len(t.step.parts) > 0
	why := map[string]string{"retry": "trying again", "crash": "its worker was lost"}[d.Because]
	if e.Attempt > 1 {
		switch {
		case t.live() && spoke && !t.notes.TakeBack():
			t.notes.Line(yellow, strings.Repeat("─", min(t.width(), 40)))
			t.note(yellow, "attempt %d (%s) replaces what attempt %d said above", e.Attempt, why, t.step.attempt)
		case spoke:
			t.note(dim, "attempt %d (%s) replaces what attempt %d said", e.Attempt, why, t.step.attempt)
		default:
			t.note(dim, "attempt %d (%s) begins this step anew", e.Attempt, why)
		}
	}
	t.begin(e.Run, e.Step, e.Attempt)
}

// begin makes what follows the text of an attempt.
func (t *teller) begin(run string, number, attempt int) {
	t.step = step{run: run, number: number, attempt: attempt}
	if t.live() {
		t.notes.Mark()
	}
}

// stream shows text as it comes.
func (t *teller) stream(e session.Event, kind session.PartType, part int, text string) {
	if !t.live() {
		return
	}
	if e.Run != t.step.run || e.Step != t.step.number || e.Attempt != t.step.attempt {
		t.begin(e.Run, e.Step, e.Attempt)
	}
	parts := t.step.parts
	if n := len(parts); n == 0 || parts[n-1].kind != kind || parts[n-1].part != part {
		t.notes.FreshLine()
		t.step.parts = append(parts, segment{kind: kind, part: part})
	}
	t.step.parts[len(t.step.parts)-1].text.WriteString(text)
	t.notes.Text(lookOf(kind), text)
}

func lookOf(kind session.PartType) style {
	if kind == session.PartReasoning {
		return dim
	}
	return plain
}

// whole makes the step's text what these parts say it is: the model's answer, or
// what was said of it before the run ended. If all deltas came, that is what
// stands there already.
func (t *teller) whole(parts []session.Part) {
	if t.answer != nil {
		t.answer.add(parts)
		return
	}
	var whole []session.Part
	for _, p := range parts {
		if (p.Type == session.PartText || p.Type == session.PartReasoning) && p.Text != "" {
			whole = append(whole, p)
		}
	}
	if !t.step.shows(whole) {
		if len(t.step.parts) > 0 && !t.notes.TakeBack() {
			t.note(dim, "the whole answer:")
		}
		for _, p := range whole {
			t.notes.FreshLine()
			t.notes.Text(lookOf(p.Type), p.Text)
			t.cut(p)
		}
	}
	t.notes.FreshLine()
	t.notes.Unmark()
	t.step.parts = nil
}

// cut says that a text goes on where it is kept.
func (t *teller) cut(p session.Part) {
	if p.Blob != nil {
		t.note(dim, "… %d bytes in all: GET /v1/sessions/%s/blobs/%s", p.Blob.Size, t.mirror.ID, p.Blob.Hash)
	}
}

// shows says whether these texts were streamed, each from its beginning to its end.
func (s *step) shows(whole []session.Part) bool {
	if len(whole) != len(s.parts) {
		return false
	}
	for i, p := range whole {
		streamed := s.parts[i].text.String()
		if s.parts[i].kind != p.Type || streamed != p.Text && (p.Blob == nil || !strings.HasPrefix(streamed, p.Text)) {
			return false
		}
	}
	return true
}

func (t *teller) attemptFailed(e session.Event, d session.AttemptFailed) {
	if d.Error.Code == "worker_lost" || d.Error.Code == "worker_left" {
		return // that was told, and another attempt follows
	}
	next := ""
	if d.RetryAt != nil {
		next = fmt.Sprintf("; attempt %d in %s", e.Attempt+1, Short(max(0, d.RetryAt.Sub(t.now()))))
	}
	t.note(yellow, "attempt %d failed: %s (%s)%s", e.Attempt, oneLine(d.Error.Message, 300), d.Error.Code, next)
}

func (t *teller) tellTool(e session.Event) {
	switch d := e.Data.(type) {
	case session.ToolCalled:
		t.note(dim, "→ %s", t.called(d.Name, t.mirror.Call(d.Message, d.Call)))
	case session.ToolStarted:
		if d.Try > 1 {
			t.note(yellow, "→ %s is started again, under the same idempotency key", t.name(d.Message, d.Call))
		}
	case session.ToolCompleted:
		t.note(dim, "✓ %s", t.result(t.mirror.Call(d.Message, d.Call)))
	case session.ToolFailed:
		t.note(red, "✗ %s failed: %s", t.name(d.Message, d.Call), oneLine(d.Error.Message, t.width()))
	case session.ToolDenied:
		t.note(yellow, "✗ %s was not allowed%s%s", t.name(d.Message, d.Call), by(d.By), quoted(d.Note))
	case session.ToolCancelled:
		t.note(dim, "✗ %s was cancelled", t.name(d.Message, d.Call))
	case session.ToolUnknown:
		t.note(yellow, "? nobody knows whether %s happened: its worker was lost", t.name(d.Message, d.Call))
	case session.ToolResolved:
		word := map[session.Outcome]string{
			session.Happened: "it happened", session.DidNot: "it did not happen, and is started again",
			session.OutcomeFail: "it failed",
		}[d.Outcome]
		t.note(dim, "%s%s: %s%s", t.name(d.Message, d.Call), by(d.By), word, quoted(d.Note))
	case session.ApprovalDecided:
		if d.Decision == session.Approve {
			edited := ""
			if d.Arguments != nil {
				edited = " with the arguments " + oneLine(string(d.Arguments), t.width())
			}
			t.note(green, "approved%s%s%s", by(d.By), edited, quoted(d.Note))
		}
	case session.ApprovalExpired:
		t.note(yellow, "nobody decided in time")
	}
}

func (t *teller) tellRun(e session.Event) {
	switch d := e.Data.(type) {
	case session.RunQueued:
		if d.FromStep > 1 {
			t.note(dim, "a retry goes on with step %d", d.FromStep)
		}
	case session.RunReconciled:
		cause := map[session.ReconcileCause]string{
			session.CauseLeaseExpired: "its worker was not heard of any more", session.CauseRestart: "the server was started again",
			session.CauseDrain: "its worker is shutting down", session.CauseCancelTimeout: "its worker did not end it in time",
		}[d.Cause]
		after := map[string]string{"continue": "it goes on", "hand_over": "another carries it on", "fail": "it failed", "cancel": "it was ended"}[d.Decision]
		t.note(yellow, "%s: %s", cmp.Or(cause, string(d.Cause)), cmp.Or(after, d.Decision))
	case session.RunCancelRequested:
		t.note(yellow, "a cancel was asked for%s%s", by(d.By), quoted(d.Reason))
	case session.RunFailed:
		t.note(red, "failed: %s (%s)", oneLine(d.Error.Message, 1000), d.Error.Code)
	case session.RunCancelled:
		t.note(yellow, "cancelled%s%s", by(d.By), quoted(d.Reason))
	case session.RunCompleted:
		run := t.mirror.Run(e.Run)
		if t.live() && run != nil && run.StartedAt != nil && run.FinishedAt != nil {
			t.note(dim, "done after %s", Short(run.FinishedAt.Sub(*run.StartedAt)))
		}
	}
}

// called shows a call and what it was asked.
func (t *teller) called(name string, c *session.ToolCall) string {
	args := ""
	if c != nil {
		args = string(c.Arguments)
		switch {
		case c.ArgumentsBlob != nil:
			args = fmt.Sprintf("(%d bytes of arguments)", c.ArgumentsBlob.Size)
		case args == "":
			args = c.RawArguments
		case args == "{}":
			args = ""
		}
	}
	return oneLine(name+" "+args, t.width())
}

// result shows what a call gave.
func (t *teller) result(c *session.ToolCall) string {
	if c == nil {
		return "done"
	}
	took := ""
	if c.StartedAt != nil && c.EndedAt != nil {
		if d := c.EndedAt.Sub(*c.StartedAt); d >= 100*time.Millisecond {
			took = " in " + Short(d)
		}
	}
	gave := plainJSON(c.Result)
	if gave == "" || gave == "null" {
		return oneLine(c.Name+took, t.width())
	}
	return oneLine(c.Name+took+": "+gave, t.width())
}

// name is the name of a call's tool.
func (t *teller) name(message, call string) string {
	if c := t.mirror.Call(message, call); c != nil {
		return oneLine(c.Name, 64)
	}
	return "a tool call"
}

// plainJSON is a JSON value, or the text if it is one.
func plainJSON(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return " by " + oneLine(who, 60)
}

func quoted(note string) string {
	if note == "" {
		return ""
	}
	return ": " + oneLine(note, 300)
}

// Short is a duration as people say it.
func Short(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
