package temporal_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine"
	"github.com/holdfast-run/holdfast/engine/temporal"
	"github.com/holdfast-run/holdfast/internal/temporaltest"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/memory"
	"github.com/holdfast-run/holdfast/tool"
)

// world is a store, a cluster, and one worker.
type world struct {
	*testing.T
	client  client.Client
	queue   string
	store   *memory.Store
	script  *modeltest.Script
	engine  atomic.Pointer[temporal.Engine] // nil: commits are told to nobody
	changed chan struct{}
	runs    int
}

func newWorld(t *testing.T, address string) *world {
	w := &world{T: t, client: temporaltest.Dial(t, address), queue: "q-" + t.Name(), script: modeltest.NewScript(), changed: make(chan struct{}, 1)}
	w.store = memory.New(store.Options{OnCommit: func(c store.Commit) {
		if e := w.engine.Load(); e != nil {
			e.Notify(c)
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}})
	return w
}

// work starts the worker. The function stops it and waits for it.
func (w *world) work(change ...func(*temporal.Options)) (stop func()) {
	w.Helper()
	pay := tool.New("pay", "", func(context.Context, struct{}, tool.Call) (string, error) { return "paid", nil },
		tool.WithApproval(tool.Always))
	tools, err := tool.NewSet(pay)
	if err != nil {
		w.Fatal(err)
	}
	book, err := agent.NewBook(agent.Agent{Name: "a", Model: "script", Tools: tools})
	if err != nil {
		w.Fatal(err)
	}
	options := temporal.Options{
		WorkerOptions: engine.WorkerOptions{Lease: 2 * time.Second, Poll: 50 * time.Millisecond, Drain: 100 * time.Millisecond},
		Client:        w.client, TaskQueue: w.queue, Heartbeat: 2 * time.Second, Heal: 200 * time.Millisecond,
	}
	for _, c := range change {
		c(&options)
	}
	e := temporal.Make(&engine.Carrier{
		Store: w.store, Agents: book, Log: slog.New(slog.DiscardHandler),
		Models: func(string) (model.Model, error) { return w.script, nil },
	}, options)
	w.engine.Store(e)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx) }()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				w.Errorf("the engine ended with %v", err)
			}
		}
	}
	w.Cleanup(stop)
	return stop
}

// submit begins a run in a session of its own.
func (w *world) submit() (id, run string) {
	w.Helper()
	w.runs++
	id, run = session.NewID(session.SessionPrefix), session.NewID(session.RunPrefix)
	w.do(id, (&session.Submit{
		ID: session.NewID(session.MessagePrefix), Run: run, Output: session.NewID(session.MessagePrefix), Tenant: "t", Owner: "o", DefaultAgent: "a",
		Parts: []session.Part{{Type: session.PartText, Text: "a secret that is nobody's business"}},
	}).Decide)
	return id, run
}

func (w *world) do(id string, decide session.Decide) {
	w.Helper()
	if _, err := w.store.Append(context.Background(), id, decide); err != nil {
		w.Fatal(err)
	}
}

// until waits for a run to be as is says.
func (w *world) until(run string, is func(session.Run) bool) session.Run {
	w.Helper()
	limit := time.After(time.Minute)
	for {
		got, err := w.store.Run(context.Background(), run)
		if err != nil {
			w.Fatal(err)
		}
		if is(got) {
			return got
		}
		select {
		case <-w.changed:
		case <-limit:
			w.Fatalf("the run is %s (%s) for too long", got.Status, got.WaitingReason)
		}
	}
}

func (w *world) untilStatus(run string, status session.Status) session.Run {
	w.Helper()
	return w.until(run, func(r session.Run) bool { return r.Status == status })
}

// untilIdle waits for the run's workflow to wait to be told.
func (w *world) untilIdle(run string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	events := w.client.GetWorkflowHistory(ctx, w.queue+"/"+run, "", true, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		if err != nil {
			w.Fatal(err)
		}
		if e.EventType == enums.EVENT_TYPE_TIMER_STARTED {
			return
		}
	}
	w.Fatal("the workflow has ended")
}

// closed waits for the run's workflow to end and says how.
func (w *world) closed(run string) enums.WorkflowExecutionStatus {
	w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	id := w.queue + "/" + run
	_ = w.client.GetWorkflow(ctx, id, "").Get(ctx, nil)
	d, err := w.client.DescribeWorkflow(ctx, id, "")
	if err != nil {
		w.Fatal(err)
	}
	return d.Status
}

// history is the longest history of the run's workflows, in events and bytes, and all of them as text.
func (w *world) history(run string) (events, bytes int, text string) {
	w.Helper()
	list, err := w.client.ListWorkflow(context.Background(), &workflowservice.ListWorkflowExecutionsRequest{
		Query: "WorkflowId = '" + w.queue + "/" + run + "'",
	})
	if err != nil {
		w.Fatal(err)
	}
	for _, x := range list.Executions {
		n, size := 0, 0
		all := w.client.GetWorkflowHistory(context.Background(), x.Execution.WorkflowId, x.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
		for all.HasNext() {
			e, err := all.Next()
			if err != nil {
				w.Fatal(err)
			}
			n, size, text = n+1, size+proto.Size(e), text+e.String()
		}
		events, bytes = max(events, n), max(bytes, size)
	}
	return events, bytes, text
}

func TestACancelInTemporalIsACancelOfTheRun(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	begun := make(chan struct{})
	w.script.Add(modeltest.Reply(modeltest.Text("so far"), modeltest.Do(func() { close(begun) }), modeltest.Stall()))
	w.work()
	_, run := w.submit()
	<-begun
	if err := w.client.CancelWorkflow(t.Context(), w.queue+"/"+run, ""); err != nil {
		t.Fatal(err)
	}
	if got := w.untilStatus(run, session.Cancelled); got.CancelBy != "temporal" {
		t.Errorf("it is said to be cancelled by %q", got.CancelBy)
	}
	if status := w.closed(run); status != enums.WORKFLOW_EXECUTION_STATUS_CANCELED {
		t.Errorf("its workflow is %s", status)
	}
}

func TestACancelInTemporalOfARunThatWaitsEndsItToo(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Call("c", "pay", "{}")))
	w.work()
	_, run := w.submit()
	w.untilStatus(run, session.Waiting)
	if err := w.client.CancelWorkflow(t.Context(), w.queue+"/"+run, ""); err != nil {
		t.Fatal(err)
	}
	w.untilStatus(run, session.Cancelled)
	if status := w.closed(run); status != enums.WORKFLOW_EXECUTION_STATUS_CANCELED {
		t.Errorf("its workflow is %s", status)
	}
}

func TestTheWorkflowOfARunThatIsCancelledWhileItWaitsEnds(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Call("c", "pay", "{}")))
	w.work()
	id, run := w.submit()
	w.untilStatus(run, session.Waiting)
	w.untilIdle(run)
	w.do(id, session.Cancel{Run: run, By: "o", At: time.Now(), Grace: time.Second}.Decide)
	w.untilStatus(run, session.Cancelled)
	if status := w.closed(run); status != enums.WORKFLOW_EXECUTION_STATUS_COMPLETED {
		t.Errorf("its workflow is %s", status)
	}
}

// Whatever somebody does to a workflow, its run ends by the log.
func TestATerminatedWorkflowIsBegunAnew(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Call("c", "pay", "{}")), modeltest.Reply(modeltest.Text("It is paid.")))
	w.work()
	id, run := w.submit()
	w.untilStatus(run, session.Waiting)
	if err := w.client.TerminateWorkflow(t.Context(), w.queue+"/"+run, "", "to see"); err != nil {
		t.Fatal(err)
	}
	w.approveAll(id)
	w.untilStatus(run, session.Completed)
}

func (w *world) approveAll(id string) {
	w.Helper()
	page, err := w.store.Approvals(context.Background(), store.ApprovalQuery{Tenant: "t", Owner: "o", Session: id, Status: session.StatusPending})
	if err != nil || len(page.Items) == 0 {
		w.Fatalf("%v, %v", page, err)
	}
	for _, a := range page.Items {
		w.do(id, (&session.DecideApproval{ID: a.ID, Decision: session.Approve, By: "o", At: time.Now()}).Decide)
	}
}

func TestARunGoesOnWhenTheTemporalServerIsKilledAndStarted(t *testing.T) {
	server := temporaltest.Start(t)
	w := newWorld(t, server.Address())
	w.script.Add(modeltest.Reply(modeltest.Call("c", "pay", "{}")), modeltest.Reply(modeltest.Text("It is paid.")))
	w.work()
	id, run := w.submit()
	w.untilStatus(run, session.Waiting)
	server.Kill()
	w.approveAll(id) // nobody hears the signal
	server.Start(t)
	w.untilStatus(run, session.Completed)
}

func TestAWorkerWaitsForATemporalServerThatIsNotThereYet(t *testing.T) {
	server := temporaltest.Start(t)
	w := newWorld(t, server.Address())
	server.Kill()
	w.script.Add(modeltest.Reply(modeltest.Text("found")))
	w.work()
	_, run := w.submit()
	server.Start(t)
	w.untilStatus(run, session.Completed)
}

func TestTemporalKnowsIdsAndNothingThatWasSaid(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Text("a word of the answer"), modeltest.Call("c", "pay", "{}")), modeltest.Reply(modeltest.Text("more of it")))
	w.work()
	id, run := w.submit()
	w.untilStatus(run, session.Waiting)
	w.approveAll(id)
	w.untilStatus(run, session.Completed)
	w.closed(run)
	events, _, text := w.history(run)
	if events == 0 || !strings.Contains(text, "wake") {
		t.Fatalf("there is no history: %s", text)
	}
	for _, said := range []string{"secret", "answer", "more of it", "paid"} {
		if strings.Contains(text, said) {
			t.Errorf("Temporal knows of %q", said)
		}
	}
	found, err := w.client.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Query: "HoldfastSession = '" + id + "' AND HoldfastRun = '" + run + "'"})
	if err != nil || found.Count != 1 {
		t.Errorf("it is found by its session and run %d times, %v", found.GetCount(), err)
	}
}

func TestHistoriesStaySmallHoweverOftenARunWaits(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	const waits = 40
	for range waits {
		w.script.Add(modeltest.Reply(modeltest.Call("c", "pay", "{}")))
	}
	w.script.Add(modeltest.Reply(modeltest.Text("All is paid.")))
	w.work()
	id, run := w.submit()
	for i := range waits {
		w.until(run, func(r session.Run) bool { return r.Status == session.Waiting && r.CurrentStep == i+1 })
		w.approveAll(id)
	}
	w.untilStatus(run, session.Completed)
	w.closed(run)
	if events, bytes, _ := w.history(run); events > 200 || bytes > 200_000 {
		t.Errorf("a history has %d events and %d bytes", events, bytes)
	}
}

func TestAnEngineWithoutSlotsLeavesTheCarryingToOthers(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Text("carried")))
	w.work() // its worker, which hears of no commit once there is another engine
	w.work(func(o *temporal.Options) { o.Slots = -1; o.Name = "no worker" })
	_, run := w.submit()
	if got := w.untilStatus(run, session.Completed); got.Worker == "no worker" {
		t.Error("it was carried where nothing is to be carried")
	}
}

func TestAVersionedWorkerCarriesOnceItsVersionIsCurrent(t *testing.T) {
	w := newWorld(t, temporaltest.Address(t))
	w.script.Add(modeltest.Reply(modeltest.Text("by the new version")))
	w.work(func(o *temporal.Options) { o.Deployment, o.Build = "holdfast-test", "b1" })
	_, run := w.submit()
	deployment := w.client.WorkerDeploymentClient().GetHandle("holdfast-test")
	limit := time.Now().Add(time.Minute)
	for { // it is known once the worker has polled
		_, err := deployment.SetCurrentVersion(t.Context(), client.WorkerDeploymentSetCurrentVersionOptions{BuildID: "b1"})
		if err == nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal(err)
		}
	}
	w.untilStatus(run, session.Completed)
}
