// Command run measures servers under test, one fresh process per point, and
// prints tables. It is run from the repository's root.
//
//	go run ./bench/run -quick
//	go run ./bench/run -suts go-pipe,holdfast -scenarios steady -n 10,50,100 -reps 3
//
// Servers are described in suts.json. Each point starts the provider and the
// server, runs the load client once, and stops them again; the load client's
// report is appended to -out.
//
// The server and everything it needs share one set of cores (-sut-cpus), the
// provider and the load client another (-bench-cpus), so that "one core" means
// one core for the whole solution and the harness does not eat into it.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/tables"
)

const (
	providerAddr = "127.0.0.1:18080"
	sutPort      = "18100"
	sutAddr      = "127.0.0.1:" + sutPort
)

// sut describes one server under test. In its command {port}, {provider}, {data}
// and {n} are replaced.
type sut struct {
	About     string   `json:"about"`
	API       string   `json:"api"` // how the load client speaks to it: native, ui, or provider (there is no server)
	Cmd       []string `json:"cmd"`
	Config    string   `json:"config"` // a file that is copied to {data}, the same replaced
	Ready     string   `json:"ready"`  // a path that answers 200 once it serves; default: a connection is enough
	Seed      []string `json:"seed"`   // fills {data} for the scenarios start and snapshot
	Scenarios []string `json:"scenarios"`
}

// scenario is the sizes of one scenario, and what the load client is told besides.
type scenario struct {
	sizes, quick []int
	args         []string
}

var idleArgs = []string{"-warm", "2", "-think", "30s", "-tokens", "5", "-rate", "1", "-ramp", "10s"}

// longArgs are for what happens in the middle of an answer, quick or not.
var longArgs = []string{"-tokens", "600"}

var plan = map[string]scenario{
	"start":         {[]int{0, 1000}, []int{0, 200}, nil},
	"snapshot":      {[]int{10_000}, []int{10_000}, nil},
	"steady":        {[]int{10, 50, 100, 200, 500, 1000}, []int{10, 100, 500}, nil},
	"resume":        {[]int{50, 200}, []int{50}, longArgs},
	"catchup":       {[]int{100, 1000, 10_000}, []int{100, 1000, 10_000}, nil},
	"fanout":        {[]int{100, 1000}, []int{1000}, nil},
	"idle-chats":    {[]int{2000}, []int{2000}, idleArgs},
	"idle-watchers": {[]int{10_000}, []int{10_000}, idleArgs},
	"crash":         {[]int{25, 200}, []int{25}, longArgs},
}

const allScenarios = "start,snapshot,catchup,steady,resume,fanout,crash,idle-watchers"

var (
	quick      = flag.Bool("quick", false, "a few minutes: fewer sizes, answers of 250 tokens, one repetition")
	sutNames   = flag.String("suts", "", "comma-separated names from suts.json; all if empty")
	scenarios  = flag.String("scenarios", allScenarios, "comma-separated")
	sizes      = flag.String("n", "", "comma-separated sizes instead of the plan's")
	reps       = flag.Int("reps", 3, "repetitions of each point")
	outPath    = flag.String("out", "", "where reports are appended; default: a new file in bench/results")
	sutCPUs    = flag.String("sut-cpus", "0", "cores of the server and what it needs")
	benchCPUs  = flag.String("bench-cpus", "1", "cores of the provider and the load client")
	niceness   = flag.Int("nice", -20, "priority over other programs of everything measured; below 0 needs root, without it 0 is taken")
	maxP99     = flag.Float64("max-p99", 1000, "steady: a server whose median p99 in ms is above is not asked for more")
	maxForeign = flag.Float64("max-foreign", 0.25, "cores that other programs may use; a run with more is repeated")
	retries    = flag.Int("retries", 1, "how often a disturbed run is repeated before it is kept as it is")
	quietWait  = flag.Duration("quiet-wait", 10*time.Second, "how long to wait for a quiet machine before a run")
	loadArgs   = flag.String("load-args", "", "more arguments for the load client")
)

// outcome is the part of a report that run itself looks at.
type outcome struct {
	Readers   int64 `json:"readers"`
	Completed int64 `json:"completed"`
	Received  int64 `json:"tokens_received"`
	Latency   struct {
		P50 float64 `json:"p50_ms"`
		P99 float64 `json:"p99_ms"`
	} `json:"latency"`
	FirstToken struct {
		P50 float64 `json:"p50_ms"`
	} `json:"first_token"`
	CatchUp struct {
		P50 float64 `json:"p50_ms"`
	} `json:"catch_up"`
	Requests struct {
		P50 float64 `json:"p50_ms"`
	} `json:"requests"`
	Procs map[string]struct {
		CPU     float64 `json:"cpu_s"`
		RSSPeak float64 `json:"rss_peak_mb"`
	} `json:"procs"`
	Wall    float64        `json:"wall_s"`
	Foreign float64        `json:"foreign_cores"`
	Errors  map[string]int `json:"errors"`
}

func main() {
	log.SetFlags(log.Ltime)
	flag.Parse()
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	suts, err := readSUTs()
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(suts))
	if *sutNames != "" {
		names = strings.Split(*sutNames, ",")
	}
	for _, name := range names {
		if _, ok := suts[name]; !ok {
			return fmt.Errorf("suts.json has no %q", name)
		}
	}
	if *quick {
		setDefault("reps", "1")
		setDefault("load-args", "-tokens 250")
		setDefault("quiet-wait", "0s")
		setDefault("retries", "0")
	}
	if *outPath == "" {
		*outPath = filepath.Join("bench", "results", time.Now().Format("2006-01-02T15-04-05")+".jsonl")
	}
	if err := os.MkdirAll(filepath.Dir(*outPath), 0o755); err != nil {
		return err
	}
	if err := build(); err != nil {
		return err
	}
	prioritize()
	for _, name := range strings.Split(*scenarios, ",") {
		if _, ok := plan[name]; !ok {
			return fmt.Errorf("there is no scenario %q", name)
		}
		able := slices.DeleteFunc(slices.Clone(names), func(sut string) bool {
			return !slices.Contains(suts[sut].Scenarios, name)
		})
		if err := measure(able, suts, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	fmt.Println()
	return tables.Print(os.Stdout, *outPath)
}

// setDefault sets a flag that was not given.
func setDefault(name, value string) {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == name })
	if !given {
		if err := flag.Set(name, value); err != nil {
			panic(err) // the values are constants
		}
	}
}

func readSUTs() (map[string]sut, error) {
	raw, err := os.ReadFile(filepath.Join("bench", "suts.json"))
	if err != nil {
		return nil, fmt.Errorf("run from the repository's root: %w", err)
	}
	var suts map[string]sut
	return suts, json.Unmarshal(raw, &suts)
}

// build makes the harness's programs. The real binary is made by make.
func build() error {
	cmd := exec.Command("go", "build", "-o", "bin/bench/", "./bench/provider", "./bench/load", "./bench/floor", "./bench/seed", "./bench/stack")
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// measure takes all points of one scenario, smallest first. Servers take turns
// within a repetition, so that a slow hour of the machine hits all alike.
func measure(names []string, suts map[string]sut, scenario string) error {
	ns, err := sizesOf(scenario)
	if err != nil {
		return err
	}
	for _, n := range ns {
		outcomes := map[string][]outcome{}
		for rep := range *reps {
			for _, name := range names {
				o, err := point(name, suts[name], scenario, n, rep)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				outcomes[name] = append(outcomes[name], o)
			}
		}
		if scenario == "steady" {
			names = slices.DeleteFunc(names, func(name string) bool { return limitReached(name, n, outcomes[name]) })
		}
	}
	return nil
}

func sizesOf(scenario string) ([]int, error) {
	if *sizes == "" && *quick {
		return plan[scenario].quick, nil
	}
	if *sizes == "" {
		return plan[scenario].sizes, nil
	}
	var ns []int
	for _, f := range strings.Split(*sizes, ",") {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		ns = append(ns, n)
	}
	return ns, nil
}

// limitReached says that more load on this server would tell nothing new.
func limitReached(name string, n int, all []outcome) bool {
	var p99s []float64
	incomplete := 0
	for _, o := range all {
		p99s = append(p99s, o.Latency.P99)
		if o.Completed < o.Readers {
			incomplete++
		}
	}
	slices.Sort(p99s)
	median := p99s[len(p99s)/2]
	if median <= *maxP99 && incomplete <= len(all)/2 {
		return false
	}
	log.Printf("%s: limit reached at n=%d (p99 %.0f ms, %d of %d runs incomplete)", name, n, median, incomplete, len(all))
	return true
}

// point runs one repetition, again if other programs disturbed it.
func point(name string, s sut, scenario string, n, rep int) (outcome, error) {
	for try := 0; ; try++ {
		waitQuiet()
		raw, err := once(name, s, scenario, n)
		if err != nil {
			return outcome{}, err
		}
		var o outcome
		if err := json.Unmarshal(raw, &o); err != nil {
			return o, fmt.Errorf("load's report: %w", err)
		}
		disturbed := o.Foreign > *maxForeign
		log.Print(o.line(name, scenario, n, rep))
		if disturbed && try < *retries {
			continue
		}
		return o, record(raw, rep, disturbed)
	}
}

// line is an outcome for who waits for the tables.
func (o outcome) line(name, scenario string, n, rep int) string {
	s := fmt.Sprintf("%-9s %-13s n=%-5d rep %d:", name, scenario, n, rep)
	if o.Readers > 0 {
		s += fmt.Sprintf(" %d/%d whole", o.Completed, o.Readers)
	}
	for _, f := range []struct {
		what  string
		value float64
	}{
		{"token p50", o.Latency.P50},
		{"p99", o.Latency.P99},
		{"first", o.FirstToken.P50},
		{"catch-up", o.CatchUp.P50},
		{"request", o.Requests.P50},
	} {
		if f.value > 0 {
			s += fmt.Sprintf(" %s %.1f ms", f.what, f.value)
		}
	}
	if sut := o.Procs["sut"]; o.Received > 0 {
		s += fmt.Sprintf(", %.0f ms CPU/1k", sut.CPU/float64(o.Received)*1e6)
	}
	s += fmt.Sprintf(", %.0f MB, foreign %.2f cores", o.Procs["sut"].RSSPeak, o.Foreign)
	if len(o.Errors) > 0 {
		s += fmt.Sprintf(" %v", o.Errors)
	}
	return s
}

func record(raw []byte, rep int, disturbed bool) error {
	var r map[string]any
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	r["rep"], r["disturbed"], r["at"] = rep, disturbed, time.Now().UTC().Format(time.RFC3339)
	r["sut_cpus"], r["bench_cpus"] = *sutCPUs, *benchCPUs
	f, err := os.OpenFile(*outPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(f).Encode(r), f.Close())
}

// once starts everything, runs the load client and stops everything.
func once(name string, s sut, scenario string, n int) ([]byte, error) {
	dir, err := os.MkdirTemp("", "bench-"+name+"-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	stage := stage{dir: dir, sut: s, n: n}
	defer stage.clear()
	if err := stage.prepare(scenario); err != nil {
		return nil, err
	}
	if scenario == "start" {
		return stage.timeStarts(name)
	}
	provider, err := stage.start("provider", *benchCPUs, "", providerAddr, "bin/bench/provider", "-addr", providerAddr)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-sut", name, "-api", s.API, "-scenario", scenario, "-n", strconv.Itoa(n),
		"-provider", "http://" + providerAddr, "-pid", provider.pid("provider"),
	}
	if s.Cmd == nil {
		args = append(args, "-url", "http://"+providerAddr)
	} else {
		p, err := stage.startSUT()
		if err != nil {
			return nil, err
		}
		if scenario == "crash" {
			stage.supervise(p)
		}
		args = append(args, "-url", "http://"+sutAddr, "-pid", p.pid("sut"))
	}
	args = append(args, plan[scenario].args...)
	if plan[scenario].args == nil {
		args = append(args, strings.Fields(*loadArgs)...)
	}
	load := onCores(*benchCPUs, append([]string{"bin/bench/load"}, args...)...)
	load.Stderr = os.Stderr
	out, err := load.Output()
	return out, err
}

func init() {
	// An interrupted run still clears its stage: children die with their parent.
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-stop
		_, _ = io.WriteString(os.Stderr, "interrupted\n")
		os.Exit(130)
	}()
}
