package faults

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// printed is the first block of a language on a page.
func printed(t *testing.T, page, language string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(raw), "```"+language+"\n")
	text, _, found := strings.Cut(text, "```")
	if !found {
		t.Fatalf("%s has no %s", page, language)
	}
	return text
}

// The service and the configuration of docs/http-tools.md, as they are printed
// there but for the model, the port, and how long the work takes.
func TestTheServiceOfThePageOnHTTPToolsWorksAsPrinted(t *testing.T) {
	w := newWorld(t, settings{keep: []string{"TRIPS_SECRET=whsec_" + httpSecret, "HOLDFAST_CALLBACK_KEY=" + callbackKey}})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)
	_ = listener.Close()
	_, tools, _ := strings.Cut(printed(t, "http-tools.md", "yaml"), "http:\n")
	tools, agents, _ := strings.Cut(tools, "agents:\n")
	w.reconfigure(func(text string) string {
		text = strings.Replace(text, "agents:\n", "agents:\n"+strings.Replace(agents, "openai/gpt-5-mini", "fake/fake-model", 1), 1)
		return text + "http:\n" + strings.Replace(tools, ":4000", ":"+port, 1)
	})
	script := filepath.Join(w.dir, "trips.mjs")
	if err := os.WriteFile(script, []byte(printed(t, "http-tools.md", "js")), 0o600); err != nil {
		t.Fatal(err)
	}
	service := exec.Command("node", script)
	service.Env = append(os.Environ(), "TRIPS_SECRET=whsec_"+httpSecret, "PORT="+port, "WORK_MS=500")
	service.Stderr = os.Stderr
	service.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := service.Start(); err != nil {
		t.Fatalf("the example needs node: %v", err)
	}
	t.Cleanup(func() { _ = service.Process.Kill(); _ = service.Wait() })
	w.llm.Script(fakellm.Reply(fakellm.Call{ID: "c", Name: "book_trip", Args: `{"to":"Lisbon"}`}), fakellm.Reply(fakellm.Text("Seat 12A.")))
	run := w.waits(w.submit("ses", "Book a trip to Lisbon"), session.WaitApproval)
	w.decide(w.pending("ses")[0].ID, "approve")
	w.until(run, "to wait for the service", func(r session.Run) bool {
		return r.Status.Terminal() || r.WaitingReason == session.WaitCallback
	})
	w.crash()
	if run = w.ends(run); run.Status != session.Completed {
		t.Fatalf("the run is %s: %+v", run.Status, run.Error)
	}
	if got := w.completed("ses"); string(got.Result) != `{"to":"Lisbon","seat":"12A"}` {
		t.Errorf("the result is %s", got.Result)
	}
}
