package app_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite" // the driver, to damage a database

	"github.com/holdfast-run/holdfast/cmd/holdfast/app"
	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

var update = flag.Bool("update", false, "rewrite testdata from what is printed now")

// golden compares what was printed with a file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("printed otherwise (-want +got); go test -update rewrites it:\n%s", diff)
	}
}

// here runs a command that needs no server.
func here(t *testing.T, args ...string) ended {
	t.Helper()
	return start(t.Context(), t, strings.NewReader(""), args...).wait()
}

// The help is the manual: a change of it is a change of what people are told.
func TestTheHelpSaysWhatThereIs(t *testing.T) {
	var all strings.Builder
	for _, args := range []string{
		"", "serve", "chat", "sessions", "sessions list", "sessions show", "sessions delete", "runs list", "runs show", "runs context",
		"tail", "cancel", "retry", "approve", "deny", "resolve", "doctor", "version",
	} {
		got := here(t, append(strings.Fields(args), "--help")...)
		if got.code != 0 || got.err != "" {
			t.Errorf("%s --help: %d, %s", args, got.code, got.err)
		}
		all.WriteString("$ holdfast " + strings.TrimSpace(args+" --help") + "\n" + got.out + "\n")
	}
	golden(t, "help.txt", all.String())
	if got := here(t); got.code != 0 || !strings.Contains(got.out, "Usage: holdfast <command>") {
		t.Errorf("without arguments: %d, %s", got.code, got.out)
	}
}

func TestACommandLineThatMakesNoSenseIsTwo(t *testing.T) {
	for _, tc := range []struct{ args, want string }{
		{"nonsense", "unexpected argument nonsense"},
		{"chat --nonsense x", "unknown flag --nonsense\nTry: holdfast chat --help"},
		{"chat --on-busy never x", "--on-busy must be one of"},
		{"cancel", `expected "<run>"`},
		{"runs list --status nonsense", "--status must be one of"},
		{"resolve run_1 call_1 perhaps", "must be one of"},
		{"resolve run_1", "say which call"},
		{"approve --note x", "say which approval"},
		{"deny --note x", "say which approval"},
		{"tail ses_1 --after=-1", "--after is a seq"},
		{"sessions --server ftp://x", "is not like http://127.0.0.1:8787"},
		{"serve --listen 0.0.0.0:0", "--insecure-listen"},
		{"serve --listen nonsense", "nonsense"},
		{"sessions delete ses_1", "say --yes"},
	} {
		here(t, strings.Fields(tc.args)...).wantErr(t, 2, tc.want)
	}
}

func TestTheVersionIsPrinted(t *testing.T) {
	got := here(t, "version")
	if !regexp.MustCompile(`^holdfast test \(go1\.\S+ \w+/\w+\)\n$`).MatchString(got.out) {
		t.Errorf("printed %q", got.out)
	}
	out := newStream()
	if code := app.Run(t.Context(), app.App{Stdout: out, Stderr: out}, []string{"version"}); code != 0 || !strings.HasPrefix(out.String(), "holdfast devel") {
		t.Errorf("of the build: %d, %q", code, out)
	}
}

func TestAServerThatIsNotThereIsSaidSo(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	for _, args := range []string{"sessions", "runs", "approve", "resolve", "cancel run_1", "retry run_1", "tail ses_1", "runs show run_1", "sessions show ses_1"} {
		here(t, append(strings.Fields(args), "--server", "http://"+l.Addr().String())...).
			wantErr(t, 1, "nothing listens there\nStart the server with \"holdfast serve\"")
	}
}

func TestListsAndTimelines(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.run("sessions").wantErr(t, 0, "There are no sessions yet.")
	w.llm.Script(
		fakellm.Reply(fakellm.Text("Let me see."), fakellm.Call{Name: "notes_list", Args: `{}`}),
		fakellm.Reply(fakellm.Status{Code: 503}),
		fakellm.Reply(fakellm.Text("There are none.")),
		fakellm.Reply(fakellm.Status{Code: 400}),
	)
	w.run("chat", "--session", "ses_a", "which notes are there?").want(t, 0, "Let me see.\n\nThere are none.\n")
	w.run("chat", "--session", "ses_b", "fail").wantErr(t, 1)

	for _, tc := range []struct{ name, args string }{
		{"sessions", "sessions"},
		{"sessions with a text", "sessions --search NOTES"},
		{"session", "sessions show ses_a"},
		{"runs", "runs"},
		{"failed runs", "runs --status failed,cancelled"},
		{"runs of a session", "runs --session ses_a --limit 1"},
	} {
		got := w.run(strings.Fields(tc.args)...)
		if got.code != 0 {
			t.Errorf("%s: %d, %s", tc.args, got.code, got.err)
		}
		golden(t, strings.ReplaceAll(tc.name, " ", "-")+".txt", neutral(got.out))
	}
	var list struct{ Items []session.Run }
	w.get("/v1/runs?session=ses_a", &list)
	golden(t, "run.txt", neutral(w.run("runs", "show", list.Items[0].ID).out))

	golden(t, "run-context.txt", neutral(w.run("runs", "context", list.Items[0].ID, "2").out))
	w.run("runs", "context", list.Items[0].ID, "9").wantErr(t, 1, "step 9 of run_")
	w.run("runs", "context", list.Items[0].ID, "0").wantErr(t, 2, "count from 1")

	for args, want := range map[string]int{
		"runs context " + list.Items[0].ID + " 1 --attempt 1 --json": 1,
		"sessions --json": 2, "runs --json": 2, "sessions show ses_a --json": 1, "runs show " + list.Items[0].ID + " --json": 1,
	} {
		dec := json.NewDecoder(strings.NewReader(w.run(strings.Fields(args)...).out))
		n := 0
		for ; dec.More(); n++ {
			var one map[string]any
			if err := dec.Decode(&one); err != nil {
				t.Fatalf("%s: %v", args, err)
			}
		}
		if n != want {
			t.Errorf("%s prints %d objects, want %d", args, n, want)
		}
	}
	w.run("runs", "show", "run_nope").wantErr(t, 1, "run_nope: it does not exist, or it is not yours (not_found)")
	w.run("runs", "--limit", "1").wantErr(t, 0, "There are more: use --limit.")
	w.run("sessions", "delete", "--yes", "ses_b").want(t, 0, "ses_b is deleted.\n")
	w.run("sessions", "delete", "--yes", "ses_b").wantErr(t, 1, "ses_b: it does not exist")
}

var changing = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(run|msg|wrk|call|apr)_[0-9a-z]{26}`), "${1}_…"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d(\.\d)?`), "hh:mm:ss"},
	{regexp.MustCompile(`\b\d\.\d(s\b)`), "n.n$1"},
	{regexp.MustCompile(`\d+ tokens`), "n tokens"},
	{regexp.MustCompile(`out, \d+ out|in and \d+ out`), "in and n out"},
	{regexp.MustCompile(`http://127\.0\.0\.1:\d+`), "URL"},
	{regexp.MustCompile(`, \d+ events`), ", n events"},
}

// neutral takes out what is different every time.
func neutral(text string) string {
	for _, c := range changing {
		text = c.pattern.ReplaceAllString(text, c.with)
	}
	return text
}

func TestTailPrintsTheLogAndFollowsIt(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Hello.")) })
	w.run("chat", "--session", "ses_a", "one").want(t, 0, "Hello.\n")
	whole := w.run("tail", "ses_a")
	lines := strings.Split(strings.TrimSpace(whole.out), "\n")
	for i, l := range lines {
		var e session.Event
		if err := json.Unmarshal([]byte(l), &e); err != nil || e.Seq != int64(i+1) {
			t.Fatalf("line %d is %s: %v", i+1, l, err)
		}
	}
	w.run("tail", "ses_a", "--after", "3").want(t, 0, strings.Join(lines[3:], "\n")+"\n")
	w.run("tail", "ses_a", "--after", "999").wantErr(t, 2, "before --after")
	w.run("tail", "ses_nope").wantErr(t, 1, "ses_nope: it does not exist")
	w.run("tail", "ses_nope", "-f").wantErr(t, 1, "ses_nope: it does not exist")

	ctx, leave := context.WithCancel(t.Context())
	follow := w.start(ctx, "", "tail", "-f", "ses_a", "--after", "3")
	follow.out.await(t, lines[len(lines)-1])
	s.stop()
	w.serve()
	w.run("chat", "--session", "ses_a", "two").want(t, 0, "Hello.\n")
	second := w.run("tail", "ses_a", "--after", "3")
	follow.out.await(t, second.out)
	leave()
	follow.wait().want(t, 0, second.out)

	gone := w.start(t.Context(), "", "tail", "-f", "ses_a")
	gone.out.await(t, lines[0])
	w.run("sessions", "delete", "--yes", "ses_a").want(t, 0, "ses_a is deleted.\n")
	gone.wait().wantErr(t, 1, "the session was deleted")
}

func TestARunIsCancelledAndRunAgain(t *testing.T) {
	w := newWorld(t)
	w.serve()
	w.llm.Script(
		fakellm.Reply(fakellm.OpenGate("asked"), fakellm.Stall()),
		fakellm.Reply(fakellm.Text("This time.")),
	)
	chat := w.start(t.Context(), "", "chat", "--session", "ses_a", "begin")
	if err := w.llm.WaitGate(within(t), "asked"); err != nil {
		t.Fatal(err)
	}
	run := w.theRun()
	w.run("retry", run.ID).wantErr(t, 1, "(run_not_terminal)")
	cancelled := w.run("cancel", run.ID)
	cancelled.want(t, 0, run.ID+" is cancelled.\n")
	cancelled.wantErr(t, 0, "The cancel is recorded; the run ends by ")
	chat.wait().want(t, 3, "")
	w.run("cancel", run.ID).want(t, 0, run.ID+" is cancelled.\n")
	again := w.run("retry", run.ID)
	if !strings.HasPrefix(again.out, "run_") || again.code != 0 {
		t.Fatalf("retry: %+v", again)
	}
	w.run("chat", "--session", "ses_a").want(t, 0, "This time.\n")
	id := strings.TrimSpace(again.out)
	w.run("cancel", id).wantErr(t, 1, id+" has completed already")
	w.run("cancel", "run_nope").wantErr(t, 1, "run_nope: it does not exist")
}

func TestDoctorFindsNothingInASoundFolderAndEveryDamage(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	w.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("Hello.")) })
	w.run("chat", "--session", "ses_a", "one").want(t, 0, "Hello.\n")
	w.run("chat", "--session", "ses_b", "one").want(t, 0, "Hello.\n")
	data := filepath.Join(w.dir, "data")
	doctor := func(sessions ...string) ended {
		return here(t, append([]string{"doctor", "--data", data}, sessions...)...)
	}
	sound := regexp.MustCompile(`^2 sessions checked in \d+\.\ds: 0 findings\.\n$`)
	if got := doctor(); got.code != 0 || !sound.MatchString(got.out) {
		t.Errorf("beside a server that runs: %+v", got)
	}
	s.stop()
	if got := doctor(); got.code != 0 || !sound.MatchString(got.out) {
		t.Errorf("after it: %+v", got)
	}

	damage(t, data, `UPDATE messages SET body = CAST(replace(CAST(body AS TEXT), 'Hello', 'Jello') AS BLOB) WHERE session = 'ses_a'`)
	if got := doctor(); got.code != 1 || !regexp.MustCompile(`ses_a: the stored message \S+ differs from the fold of the log\n2 sessions checked in \d+\.\ds: 1 finding\.\n$`).MatchString(got.out) {
		t.Errorf("with a changed message: %+v", got)
	}
	if got := doctor("ses_b"); got.code != 0 {
		t.Errorf("the other session: %+v", got)
	}
	damage(t, data, `INSERT INTO messages (session, id, body) VALUES ('ses_ghost', 'm', CAST('{}' AS BLOB))`)
	if got := doctor(); got.code != 1 || !strings.Contains(got.out, "ses_ghost: something is stored of it, but it has no log") {
		t.Errorf("with a message of no session: %+v", got)
	}
	doctor("ses_nope").wantErr(t, 1)
	here(t, "doctor", "--data", filepath.Join(w.dir, "other")).wantErr(t, 1, "there is no Holdfast data in "+filepath.Join(w.dir, "other"))
	if err := os.WriteFile(filepath.Join(w.dir, "holdfast.db"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	here(t, "doctor", "--data", w.dir).wantErr(t, 1, "is damaged")
}

func damage(t *testing.T, data, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(data, "holdfast.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	res, err := db.Exec(statement)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := res.RowsAffected(); n == 0 {
		t.Fatalf("nothing was damaged by %s", statement)
	}
}

func TestServeSaysWhatIsInItsWay(t *testing.T) {
	w := newWorld(t)
	w.serve()
	other := filepath.Join(w.dir, "other")
	here(t, "serve", "--listen", w.addr, "--data", other).
		wantErr(t, 1, w.addr+" is in use", "choose another address with --listen")
	here(t, "serve", "--listen", "127.0.0.1:0", "--data", filepath.Join(w.dir, "data")).
		wantErr(t, 1, filepath.Join(w.dir, "data")+" is in use by process ", "(--data)")
	here(t, "serve", "--listen", "127.0.0.1:0", "--config", filepath.Join(w.dir, "none.yaml"), "--data", other).
		wantErr(t, 1, "read the configuration: ", "none.yaml")
	file := filepath.Join(w.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	here(t, "serve", "--listen", "127.0.0.1:0", "--data", file).wantErr(t, 1, "make the data folder: ", "choose another with --data")
	if err := os.WriteFile(filepath.Join(w.dir, "holdfast.db"), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	here(t, "serve", "--listen", "127.0.0.1:0", "--data", w.dir).wantErr(t, 1, "is damaged", "holdfast doctor --data "+w.dir)
}

func TestServeTellsWhatToDoNext(t *testing.T) {
	w := newWorld(t)
	s := w.serve()
	golden(t, "welcome.txt", strings.ReplaceAll(neutral(strings.ReplaceAll(s.out.String(), w.dir, "DIR")), w.addr, "ADDRESS"))
	if code := s.stop(); code != 0 {
		t.Errorf("it ended with %d", code)
	}
	if !strings.HasSuffix(s.err.String(), "Stopped.\n") {
		t.Errorf("it said at last %q", s.err)
	}
}

func TestASecondInterruptEndsTheServerAtOnce(t *testing.T) {
	w := newWorld(t)
	raw, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.config, bytes.ReplaceAll(raw, []byte("drain: 200ms"), []byte("drain: 1h")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.llm.Script(fakellm.Reply(fakellm.OpenGate("asked"), fakellm.Stall()))
	cmd := command(w.serveArgs()...)
	s := &serving{t: t, out: newStream(), err: newStream()}
	cmd.Stdout, cmd.Stderr = s.out, s.err
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	w.found(s)
	chat := w.start(t.Context(), "", "chat", "begin")
	if err := w.llm.WaitGate(within(t), "asked"); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	s.err.await(t, "Stopping: 1 run to finish or to hand over. Interrupt again to end at once")
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("it ended with %d", code)
	}

	w.llm.Script(fakellm.Reply(fakellm.Text("All the same.")))
	w.serve()
	chat.wait().want(t, 0, "All the same.\n")
}
