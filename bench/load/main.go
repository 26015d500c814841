// Command load drives a server over its API, checks that every token arrives
// exactly once, and reports how late.
//
//	load -api native -scenario steady -n 100 -url http://127.0.0.1:18100 -pid sut=4711
//	load -scenario resume   -n 100 ...
//	load -scenario catchup  -n 10000 ...   (events that a reader is behind)
//	load -scenario fanout   -n 1000 ...
//	load -scenario idle-chats | idle-watchers -n 1000 ...
//	load -scenario snapshot -n 10000 ...   (messages of the session that seed made)
//	load -scenario crash    -n 50 ...      (kills the process group of -pid sut)
//
// It prints one JSON object.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
	"github.com/holdfast-run/holdfast/bench/internal/workload"
)

// report is the outcome of one run.
type report struct {
	SUT      string `json:"sut"`
	Scenario string `json:"scenario"`
	N        int    `json:"n"`
	Prompt   string `json:"prompt"`

	Readers   int64          `json:"readers"`
	Completed int64          `json:"completed"` // whole text, each token once, end mark seen
	Expected  int64          `json:"tokens_expected"`
	Received  int64          `json:"tokens_received"`
	Lost      int64          `json:"tokens_lost"`
	Duplicate int64          `json:"tokens_duplicate"`
	Errors    map[string]int `json:"errors,omitempty"`

	Latency    hist.Summary `json:"latency"`
	FirstToken hist.Summary `json:"first_token"`
	CatchUp    hist.Summary `json:"catch_up"`

	First    float64      `json:"first_ms,omitempty"` // snapshot: the first request, of a session not in memory
	Requests hist.Summary `json:"requests"`

	Crash            *crashReport     `json:"crash,omitempty"`
	IdleBytesPerConn map[string]int64 `json:"idle_bytes_per_conn,omitempty"`

	Wall         float64          `json:"wall_s"`
	Procs        map[string]usage `json:"procs"`
	ForeignCores float64          `json:"foreign_cores"` // other processes' use of the machine
	StolenCores  float64          `json:"stolen_cores"`
	Provider     json.RawMessage  `json:"provider,omitempty"`
	Note         string           `json:"note,omitempty"`
}

var scenarios = map[string]func(config, *tally, *report){
	"steady":        steady,
	"resume":        resume,
	"fanout":        fanout,
	"idle-chats":    idleChats,
	"idle-watchers": idleWatchers,
	"catchup":       catchUp,
	"snapshot":      snapshot,
	"crash":         crash,
}

// pidFlag collects name=pid pairs.
type pidFlag map[string]int

func (p pidFlag) String() string { return "" }
func (p pidFlag) Set(s string) error {
	name, value, _ := strings.Cut(s, "=")
	pid, err := strconv.Atoi(value)
	p[name] = pid
	return err
}

func main() {
	pids := pidFlag{}
	var (
		base     = flag.String("url", "http://127.0.0.1:18100", "base URL of the server under test")
		apiName  = flag.String("api", "native", "how to speak to it: native, ui (AI SDK) or provider (the URL is the provider itself)")
		provider = flag.String("provider", "http://127.0.0.1:18080", "the provider, for its own account of lateness")
		name     = flag.String("sut", "", "name of the server under test, for the report")
		scenario = flag.String("scenario", "steady", "steady, resume, catchup, fanout, idle-chats, idle-watchers, snapshot or crash")
		c        config
		warm     = flag.Int("warm", 10, "chats of 100 tokens before the measured window")
		tokens   = flag.Int("tokens", 1000, "tokens per response")
		rate     = flag.Float64("rate", 50, "tokens per second and stream")
		size     = flag.Int("size", 0, "bytes per token at least")
		think    = flag.Duration("think", 0, "silence before the first token")
	)
	flag.Var(pids, "pid", "name=pid of a process to account for; repeatable")
	flag.IntVar(&c.n, "n", 10, "chats, watchers or connections")
	flag.DurationVar(&c.ramp, "ramp", 2*time.Second, "time over which the readers start")
	flag.DurationVar(&c.grace, "grace", 20*time.Second, "how long past its length a response may take")
	flag.IntVar(&c.drop, "drop", 250, "resume: tokens after which a client drops")
	flag.DurationVar(&c.gap, "gap", time.Second, "resume: how long a client stays away")
	flag.Parse()

	run, ok := scenarios[*scenario]
	to, err := apiOf(*apiName, *base)
	if !ok || err != nil {
		fmt.Fprintln(os.Stderr, "load: unknown scenario, unknown API or bad URL")
		os.Exit(2)
	}
	c.to, c.base = to, *base
	c.want = workload.Response{Tokens: *tokens, Rate: *rate, Size: *size, Think: *think}
	c.prefix = fmt.Sprintf("ses_%x", time.Now().UnixNano())
	c.probe = newProbe(pids)

	warmUp(c, *warm)
	if res, err := http.Post(*provider+"/stats/reset", "", nil); err == nil {
		res.Body.Close()
	}

	r := &report{SUT: *name, Scenario: *scenario, N: c.n, Prompt: c.want.Prompt()}
	var t tally
	c.probe.begin()
	run(c, &t, r)
	c.probe.end(r)
	t.fill(r)
	if res, err := http.Get(*provider + "/stats"); err == nil {
		_ = json.NewDecoder(res.Body).Decode(&r.Provider) // without it the report lacks one figure
		res.Body.Close()
	}
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	if err := out.Encode(r); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// warmUp lets compilers and pools of the server settle; nothing of it is counted.
func warmUp(c config, chats int) {
	if chats == 0 {
		return
	}
	c.n, c.ramp, c.prefix = chats, 0, c.prefix+"w"
	c.want = workload.Response{Tokens: 100, Rate: 50}
	steady(c, new(tally), nil)
}
