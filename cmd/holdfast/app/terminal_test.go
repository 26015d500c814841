//go:build linux || darwin

package app_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// person sits at a terminal in which holdfast runs as a process of its own.
type person struct {
	t     *testing.T
	cmd   *exec.Cmd
	hands *os.File

	mu   sync.Mutex
	eyes vt10x.Terminal // guarded by mu
	more chan struct{}  // guarded by mu; closed when there is more to see
	gone chan struct{}  // closed when the process's side is closed
}

// sit runs holdfast in a terminal.
func (w *world) sit(args ...string) *person {
	w.t.Helper()
	cmd := command(append(args, "--server", w.url())...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	hands, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 80})
	if err != nil {
		w.t.Fatal(err)
	}
	p := &person{t: w.t, cmd: cmd, hands: hands, eyes: vt10x.New(vt10x.WithSize(80, 40)), more: make(chan struct{}), gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		buf := make([]byte, 4096)
		for {
			n, err := hands.Read(buf)
			p.mu.Lock()
			_, _ = p.eyes.Write(buf[:n])
			close(p.more)
			p.more = make(chan struct{})
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	w.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = hands.Close()
		<-p.gone
	})
	return p
}

// sees is what stands on the terminal.
func (p *person) sees() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seesLocked()
}

func (p *person) seesLocked() string {
	var rows []string
	for row := range strings.SplitSeq(p.eyes.String(), "\n") {
		rows = append(rows, strings.TrimRight(row, " "))
	}
	return strings.TrimRight(strings.Join(rows, "\n"), "\n")
}

// unwrapped is what stands on a terminal without its line breaks.
func unwrapped(seen string) string { return strings.ReplaceAll(seen, "\n", "") }

// await waits until a text stands on the terminal.
func (p *person) await(text string) {
	p.t.Helper()
	p.awaitThat(text, func(seen string) bool { return strings.Contains(seen, text) })
}

// awaitPrompt waits until the person is asked to say something.
func (p *person) awaitPrompt() {
	p.t.Helper()
	p.awaitThat("the prompt", func(seen string) bool { return strings.HasSuffix(seen, "\n›") })
}

func (p *person) awaitThat(what string, there func(seen string) bool) {
	p.t.Helper()
	late := time.After(patience)
	for {
		p.mu.Lock()
		seen, more := p.seesLocked(), p.more
		p.mu.Unlock()
		if there(seen) {
			return
		}
		select {
		case <-more:
		case <-late:
			p.t.Fatalf("%q did not come; on the terminal is\n%s", what, seen)
		}
	}
}

func (p *person) types(keys string) {
	p.t.Helper()
	if _, err := p.hands.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// ends waits for the process and gives its exit code.
func (p *person) ends() int {
	p.t.Helper()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.gone // all that it printed was seen
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.ExitCode()
}

const (
	enter = "\r"
	ctrlC = "\x03"
	ctrlD = "\x04"
	back  = "\x7f"
)

func TestAPersonTalksAndDecidesAtATerminal(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Reasoning("Hm."), fakellm.Text("May I?"), fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("I may not.")),
		fakellm.Reply(fakellm.Text("You are welcome.")),
	)
	p := w.sit("chat")
	p.await("A new session, ses_")
	p.awaitPrompt()
	p.types("delete a.md" + enter)
	p.await("Allow it? [y]es, [n]o, [e]dit the arguments, [l]ater:")
	p.types("perhaps" + enter)
	p.await("[l]ater: perhaps\n  Allow it?")
	p.types("n" + enter)
	p.await("Why not? The model reads it (Enter: no reason):")
	p.types("keep it" + enter)
	p.await("I may not.")
	p.awaitPrompt()
	p.types("thank you" + enter)
	p.await("You are welcome.")
	p.awaitPrompt()
	p.types(ctrlD)
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	seen := p.sees()
	for _, text := range []string{
		"› delete a.md\nHm.\nMay I?\n  → notes_delete {\"name\":\"a.md\"}\n  notes_delete wants to run (it cannot be repeated safely):\n    {\"name\":\"a.md\"}\n",
		"\n  ✗ notes_delete was not allowed by local: keep it\nI may not.\n",
		"› thank you\nYou are welcome.\n",
		"Come back with: holdfast chat --server " + w.url()[:20],
	} {
		if !strings.Contains(seen, text) {
			t.Errorf("the terminal does not show %q:\n%s", text, seen)
		}
	}
}

func TestArgumentsAreEditedWhereTheyStand(t *testing.T) {
	w := newWorld(t)
	w.serve()
	if err := os.WriteFile(filepath.Join(w.dir, "data", "notes", "b.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.llm.Script(
		fakellm.Reply(fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("Deleted.")),
	)
	p := w.sit("chat", "delete a.md")
	p.await("Allow it?")
	p.types("e" + enter)
	p.await(`Arguments (empty: back): {"name":"a.md"}`)
	p.types(back + enter)
	p.await(`Not a JSON object. Arguments: {"name":"a.md"`)
	p.types(strings.Repeat(back, 5) + `b.md"}` + enter)
	p.await(`approved by local with the arguments {"name":"b.md"}`)
	p.await("Deleted.")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAQuestionThatSomebodyElseAnswersGoesAway(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("It was not there.")),
	)
	p := w.sit("chat", "delete a.md")
	p.await("Allow it?")
	var list struct{ Items []session.Approval }
	w.get("/v1/approvals?status=pending", &list)
	w.run("approve", list.Items[0].ID)
	p.await("that is decided")
	p.await("It was not there.")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWhatIsTypedAheadAllowsNothing(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("Wait"), fakellm.OpenGate("speaking"), fakellm.WaitGate("go on"), fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}),
		fakellm.Reply(fakellm.Text("It was refused.")),
	)
	p := w.sit("chat", "delete a.md")
	p.await("Wait")
	p.types("y\n")
	p.await("Waity") // the terminal echoes what nobody reads yet
	w.llm.OpenGate("go on")
	p.await("Allow it?")
	p.types("n no" + enter)
	p.await("was not allowed by local: no")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// isOpen says that the only run has not ended, and that its approval waits.
func (w *world) isOpen() {
	w.t.Helper()
	var list struct{ Items []session.Approval }
	w.get("/v1/approvals?status=pending", &list)
	if run := w.theRun(); run.Status.Terminal() || run.CancelRequestedAt != nil || len(list.Items) != 1 {
		w.t.Errorf("the run is %s, and %d approvals are pending", run.Status, len(list.Items))
	}
}

func TestLaterLeavesTheDecisionOpen(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(fakellm.Reply(fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}))
	p := w.sit("chat", "delete a.md")
	p.await("Allow it?")
	p.types("later" + enter)
	if code := p.ends(); code != 4 {
		t.Errorf("exit code %d", code)
	}
	if seen := p.sees(); !strings.Contains(seen, "decide:") || !strings.Contains(seen, "come back:") {
		t.Errorf("the terminal shows\n%s", seen)
	}
	w.isOpen()
}

func TestCtrlCLeavesARunThatGoesOn(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(fakellm.Reply(fakellm.Text("Speaking "), fakellm.WaitGate("go on"), fakellm.Text("on.")))
	p := w.sit("chat", "speak")
	p.await("Speaking")
	p.types(ctrlC)
	if code := p.ends(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	run := w.theRun()
	if seen := p.sees(); !strings.Contains(seen, "Left. The run goes on without you.") || !strings.Contains(unwrapped(seen), run.ID) {
		t.Errorf("the terminal shows\n%s", seen)
	}
	if run.Status != session.Running {
		t.Errorf("the run is %s", run.Status)
	}
	p = w.sit("chat", "--session", run.Session)
	p.await("› speak\nSpeaking")
	w.llm.OpenGate("go on")
	p.await("Speaking on.\n")
	p.awaitPrompt() // and the person may go on
	p.types(ctrlC)
	if code := p.ends(); code != 0 {
		t.Errorf("at the prompt: exit code %d", code)
	}
}

func TestCtrlCAtAQuestionLeavesItOpen(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(fakellm.Reply(fakellm.Call{Name: "notes_delete", Args: `{"name":"a.md"}`}))
	p := w.sit("chat", "delete a.md")
	p.await("Allow it?")
	p.types(ctrlC)
	if code := p.ends(); code != 130 {
		t.Errorf("exit code %d", code)
	}
	w.isOpen()
}

func TestWhatAnAttemptSaidVanishesWithIt(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text(strings.Repeat("A wrong answer that is longer than a row of the terminal. ", 5)), fakellm.OpenGate("half"), fakellm.WaitGate("cut"), fakellm.Cut()),
		fakellm.Reply(fakellm.Text("The right answer.")),
	)
	p := w.sit("chat", "answer")
	p.await("A wrong answer")
	w.llm.OpenGate("cut")
	p.await("The right answer.")
	p.await("done after")
	p.ends()
	seen := p.sees()
	if strings.Contains(seen, "wrong") {
		t.Errorf("what was replaced still stands there:\n%s", seen)
	}
	if !strings.Contains(seen, "attempt 1 failed") || !strings.Contains(seen, "attempt 2 (trying again) replaces what attempt 1 said\nThe right answer.\n") {
		t.Errorf("that it was replaced is not said:\n%s", seen)
	}
}

func TestATerminalOutlivesTheServer(t *testing.T) {
	w := newWorld(t)
	first := w.process()
	count := numbers(60)
	w.llm.Script(
		fakellm.Reply(fakellm.Text(count[:30]...), fakellm.Stall()),
		fakellm.Reply(fakellm.Text(count...)),
	)
	p := w.sit("chat", "count")
	p.await("29 30")
	first.kill()
	p.await("lost the server (no answer from")
	w.process()
	p.await("59 60")
	p.await("done after")
	p.ends()
	seen := p.sees()
	if !strings.Contains(seen, "connected again, nothing was missed") || strings.Contains(seen, "connecting again") {
		t.Errorf("the terminal shows\n%s", seen)
	}
	if said := strings.TrimSpace(strings.Join(count, "")); strings.Count(unwrapped(seen), said) != 1 || strings.Count(seen, "29 30") != 1 {
		t.Errorf("the count does not stand there once:\n%s", seen)
	}
}

func TestAServerThatWasGivenOlderDataIsToldTheMessageAgain(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.Text("One.")).To("one"),
		fakellm.Reply(fakellm.Text(numbers(100)...), fakellm.Stall()).To("two"),
		fakellm.Reply(fakellm.Text("Two.")).To("two"),
	)
	w.run("chat", "--session", "ses_a", "one").want(t, 0, "One.\n")
	s.stop()
	data, backup := filepath.Join(w.dir, "data"), filepath.Join(w.dir, "backup")
	if err := os.CopyFS(backup, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	s = w.serve()
	p := w.sit("chat", "--session", "ses_a", "two")
	p.await(" 99") // its cursor is beyond the backup's end
	s.stop()
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, data); err != nil {
		t.Fatal(err)
	}
	w.serve()
	p.await("the server's log is not the one that was followed")
	p.await("› one\nOne.\n")
	p.await("\nTwo.\n")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAPersonSaysWhatACallDid(t *testing.T) {
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
	p := w.sit("chat", "pay")
	p.await("pay the money is gone") // its progress, in the status line
	first.kill()
	w.process()
	p.await("It [h]appened, it [d]id not (run it), it [f]ailed, [l]ater:")
	p.types("h" + enter)
	p.await("With which result?")
	p.types("receipt 7" + enter)
	p.await("pay by local: it happened")
	p.await("It is paid.")
	if code := p.ends(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if raw, _ := os.ReadFile(ledger); !bytes.Equal(raw, []byte("paid\n")) {
		t.Errorf("the ledger says %q", raw)
	}
	last := w.llm.Requests()[1].Messages
	if told := last[len(last)-1].Results[0].Text; !strings.Contains(told, "receipt 7") {
		t.Errorf("the model was told %q", told)
	}
}

func TestSeveralPastedLinesAreOneMessage(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Read.")) })
	p := w.sit("chat")
	p.awaitPrompt()
	p.types("\x1b[200~one\rtwo\r\x1b[201~three" + enter)
	p.await("Read.")
	asked := w.llm.Requests()[0].Messages
	if got := asked[len(asked)-1].Text; got != "one\ntwo\nthree" {
		t.Errorf("the model was asked %q", got)
	}
}
