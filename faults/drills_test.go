package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	neturl "net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	enums "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/internal/redistest"
	"github.com/holdfast-run/holdfast/internal/temporaltest"
	"github.com/holdfast-run/holdfast/session"
)

// house is two nodes on services of their own, which a drill may stop.
type house struct {
	a, b     *world
	postgres *pgtest.Server
	redis    *redistest.Server
	temporal *temporaltest.Server
	links    map[string]*link // of node a, by the service
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{links: map[string]*link{}}
	var direct []string // what node b has in its configuration, behind what node a has
	h.a = newWorld(t, settings{drain: 300 * time.Millisecond, services: func(s *settings) {
		h.postgres, h.redis, h.temporal = pgtest.Start(t), redistest.Start(t), temporaltest.Start(t)
		s.store, s.redis, s.temporal = h.postgres.New(t), h.redis.URL(), h.temporal.Address()
		over := func(name, url string) string {
			to := url
			if u, err := neturl.Parse(url); err == nil && u.Host != "" {
				to = u.Host
			}
			l := newLink(t, to)
			h.links[name] = l
			direct = append(direct, l.addr(), to)
			return strings.Replace(url, to, l.addr(), 1)
		}
		s.store, s.redis, s.temporal = over("PostgreSQL", s.store), over("Redis", s.redis), over("Temporal", s.temporal)
	}})
	linked := h.a.config
	config, err := os.ReadFile(linked)
	if err != nil {
		t.Fatal(err)
	}
	h.a.config = filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(h.a.config, []byte(strings.NewReplacer(direct...).Replace(string(config))), 0o600); err != nil {
		t.Fatal(err)
	}
	h.b = h.a.join()
	h.a.config = linked
	return h
}

// Under load, each part of the whole stack is killed, frozen, or emptied in turn:
// every run ends once, every tool acts once, and no reader on either node sees a gap.
func TestDrillsOfTheWholeStackUnderLoad(t *testing.T) {
	onTemporal(t)
	drills := map[string]func(t *testing.T, h *house){
		"a node is killed and started": func(t *testing.T, h *house) {
			h.a.srv.kill()
			pause(t, time.Second)
			h.a.again()
		},
		"a node is frozen beyond its lease": func(t *testing.T, h *house) {
			h.a.srv.signal(syscall.SIGSTOP)
			pause(t, 3*lease)
			h.a.srv.signal(syscall.SIGCONT)
		},
		"both nodes are deployed anew, one after the other": func(t *testing.T, h *house) {
			for _, w := range []*world{h.a, h.b} {
				w.srv.stop(t)
				w.again()
			}
		},
		"PostgreSQL crashes and comes back": func(t *testing.T, h *house) {
			h.postgres.Stop(t)
			pause(t, time.Second)
			h.postgres.Start(t)
		},
		"PostgreSQL is frozen": func(t *testing.T, h *house) {
			h.postgres.Freeze(t)
			pause(t, 2*time.Second)
			h.postgres.Thaw(t)
		},
		"Redis is killed and started": func(t *testing.T, h *house) {
			h.redis.Kill()
			pause(t, time.Second)
			h.redis.Start(t)
		},
		"Redis is frozen": func(t *testing.T, h *house) {
			h.redis.Freeze(t)
			pause(t, 2*time.Second)
			h.redis.Thaw(t)
		},
		"Redis is flushed again and again": func(t *testing.T, h *house) {
			options, err := redis.ParseURL(h.redis.URL())
			if err != nil {
				t.Fatal(err)
			}
			c := redis.NewClient(options)
			defer func() { _ = c.Close() }()
			for range 30 {
				if err := c.FlushAll(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				pause(t, 30*time.Millisecond)
			}
		},
		"Temporal is killed and started": func(t *testing.T, h *house) {
			h.temporal.Kill()
			pause(t, time.Second)
			h.temporal.Start(t)
		},
		"Temporal is frozen": func(t *testing.T, h *house) {
			h.temporal.Freeze(t)
			pause(t, 2*time.Second)
			h.temporal.Thaw(t)
		},
	}
	for _, service := range []string{"PostgreSQL", "Redis", "Temporal"} {
		drills["the link of a node to "+service+" is cut"] = func(t *testing.T, h *house) {
			if h.links[service].cut() == 0 {
				t.Errorf("the node is not connected to %s over its link", service)
			}
			pause(t, 2*lease)
			h.links[service].mend()
		}
		drills["the link of a node to "+service+" stalls"] = func(t *testing.T, h *house) {
			h.links[service].stall()
			pause(t, 2*lease)
			h.links[service].mend()
		}
	}
	for name, drill := range drills {
		t.Run(name, func(t *testing.T) { drillUnderLoad(t, drill) })
	}
}

func drillUnderLoad(t *testing.T, drill func(t *testing.T, h *house)) {
	h := newHouse(t)
	h.a.llm.SetDefault(func(r fakellm.Request) fakellm.Turn {
		if len(r.Results()) == 0 {
			return fakellm.Reply(append(deltas(40, 20*time.Millisecond), fakellm.Call{Name: "put", Args: `{"ms":200,"note":"` + r.LastUser() + `"}`})...)
		}
		return fakellm.Reply(deltas(40, 20*time.Millisecond)...)
	})
	const runs = 8
	var all []session.Run
	var waits []func()
	for i := range runs {
		w, other := h.a, h.b
		if i%2 == 1 {
			w, other = h.b, h.a
		}
		run := w.submit(fmt.Sprintf("ses_%d", i), fmt.Sprintf("note %d", i))
		all = append(all, run)
		if i < 4 { // some are watched on both sides, by readers that come back
			waits = append(waits, w.stays(run.Session), other.stays(run.Session))
		}
	}
	h.a.arrives(runs / 2)
	drill(t, h)
	for _, run := range all {
		if got := h.b.ends(run); got.Status != session.Completed {
			t.Errorf("run %s is %s: %+v", run.ID, got.Status, got.Error)
		}
	}
	for _, wait := range waits {
		wait()
	}
	keys := map[string]bool{}
	for _, line := range h.a.ledger() {
		keys[strings.Join(strings.Fields(line)[:2], " ")] = true
	}
	if len(keys) != runs {
		t.Errorf("%d effects under keys of their own, not %d", len(keys), runs)
	}
}

// stays reads a session until its run has ended, and comes back with its cursor
// whenever the stream breaks. The function waits for that and checks that the pieces join.
func (w *world) stays(id string) (wait func()) {
	done, server := make(chan struct{}), w.srv.url
	var seen []frame
	go func() {
		defer close(done)
		ended := func(f frame) bool { seen = append(seen, f); return f.Type == "run.completed" || f.Type == "run.failed" }
		for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
			after := int64(0)
			if n := len(seen); n > 0 {
				after = seen[n-1].to()
			}
			s, err := w.followAt(w.ctx, server, id, fmt.Sprint("after=", after), "")
			if err == nil {
				_, err = s.read(ended)
				s.close()
			}
			if n := len(seen); n > 0 && (seen[n-1].Type == "run.completed" || seen[n-1].Type == "run.failed") {
				return
			}
			if err != nil {
				pause(w.t, 50*time.Millisecond)
			}
		}
	}()
	return func() {
		w.t.Helper()
		<-done
		joins(w.t.Errorf, seen, 0)
		if n := len(seen); n == 0 || seen[n-1].Type != "run.completed" {
			w.t.Errorf("a reader of %s saw %d frames and no end", id, n)
		}
	}
}

// A hundred runs, and workers that are killed at random: each run ends once, each
// effect happens once, and no workflow's history grows long.
func TestAHundredRunsOnTemporalWhileWorkersAreKilled(t *testing.T) {
	onTemporal(t)
	s := settings{store: pgtest.New(t)}
	w := newWorld(t, s)
	s.usualParts(t)
	w.llm.SetDefault(func(r fakellm.Request) fakellm.Turn {
		if len(r.Results()) == 0 {
			return fakellm.Reply(append(deltas(10, 10*time.Millisecond), fakellm.Call{Name: "put", Args: `{"ms":50,"note":"n"}`})...)
		}
		return fakellm.Reply(deltas(10, 10*time.Millisecond)...)
	})
	const runs, workers, kills = 100, 3, 15
	worker := func() *process {
		return launch(t, w.dir+"/..", w.config, []string{"LEDGER=" + filepath.Join(w.dir, "ledger")}, "worker")
	}
	var crew []*process
	for range workers {
		crew = append(crew, worker())
	}
	all := make([]session.Run, runs)
	var people sync.WaitGroup
	people.Go(func() {
		for i := range all {
			all[i] = w.submit(fmt.Sprintf("ses_%d", i), "go")
			pause(t, 50*time.Millisecond)
		}
	})
	for range kills {
		pause(t, time.Duration(100+rand.IntN(500))*time.Millisecond)
		i := rand.IntN(workers)
		crew[i].kill()
		crew[i] = worker()
	}
	people.Wait()
	for _, run := range all {
		if got := w.ends(run); got.Status != session.Completed {
			t.Errorf("run %s is %s: %+v", run.ID, got.Status, got.Error)
		}
	}
	keys := map[string]bool{}
	for _, line := range w.ledger() {
		keys[strings.Join(strings.Fields(line)[:2], " ")] = true
	}
	if len(keys) != runs {
		t.Errorf("%d effects under keys of their own, not %d", len(keys), runs)
	}
	c := temporaltest.Dial(t, temporaltest.Address(t))
	for _, run := range all {
		if events, size := historyOf(t, c, s.database()+"/"+run.ID); events > 200 || size > 200_000 {
			t.Errorf("the history of %s has %d events and %d bytes", run.ID, events, size)
		}
	}
}

func historyOf(t *testing.T, c client.Client, id string) (events, size int) {
	t.Helper()
	all := c.GetWorkflowHistory(t.Context(), id, "", false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for all.HasNext() {
		e, err := all.Next()
		if err != nil {
			t.Fatal(err)
		}
		events, size = events+1, size+proto.Size(e)
	}
	return events, size
}

// Sixteen writers on one session over two nodes, and readers on both: one dense
// log in one order, and no reader skips what commits late.
func TestSixteenWritersOverTwoNodesMakeOneLog(t *testing.T) {
	a, b := newNodes(t, settings{})
	a.llm.SetDefault(func(fakellm.Request) fakellm.Turn { return fakellm.Reply(fakellm.Text("first")) })
	a.ends(a.submit("ses", "begin"))
	const writers = 16
	events := 500
	if testing.Short() {
		events = 50
	}
	last := "the last title"
	var readers sync.WaitGroup
	seen := make([][]frame, 4)
	for i := range seen {
		w := []*world{a, b}[i%2]
		s := w.follow("ses", 0)
		readers.Go(func() {
			_, err := s.read(func(f frame) bool {
				seen[i] = append(seen[i], f)
				return f.Type == "session.updated" && strings.Contains(f.raw, last)
			})
			if err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
		})
	}
	var writing sync.WaitGroup
	for i := range writers {
		w := []*world{a, b}[i%2]
		writing.Go(func() {
			for n := range events {
				got, err := w.try(w.ctx, "PATCH", "/v1/sessions/ses", map[string]string{"title": fmt.Sprintf("%d of %d", n, i)})
				if err != nil || got.status/100 != 2 {
					t.Errorf("writer %d: HTTP %d, %v: %s", i, got.status, err, got.raw)
					return
				}
			}
		})
	}
	writing.Wait()
	if got, err := a.try(context.Background(), "PATCH", "/v1/sessions/ses", map[string]string{"title": last}); err != nil || got.status/100 != 2 {
		t.Fatalf("%v: %s", err, got.raw)
	}
	readers.Wait()
	for i := range seen {
		joins(t.Errorf, seen[i], 0)
		if len(seen[i]) < writers*events {
			t.Errorf("reader %d saw %d events", i, len(seen[i]))
		}
	}
}
