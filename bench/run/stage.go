package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
)

// stage is the processes of one run, and the folder they live in.
type stage struct {
	dir string
	sut sut
	n   int

	mu      sync.Mutex
	procs   []*proc // guarded by mu
	cleared bool    // guarded by mu
}

// proc is a program that can be started again.
type proc struct {
	command func() *exec.Cmd
	running *exec.Cmd
	exited  chan struct{}
}

// pid is the value of the load client's -pid for this process.
func (p *proc) pid(name string) string { return fmt.Sprintf("%s=%d", name, p.running.Process.Pid) }

func (p *proc) start() error {
	p.running, p.exited = p.command(), make(chan struct{})
	if err := p.running.Start(); err != nil {
		return err
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait() // how it ends is no news: it is killed
		close(exited)
	}(p.running, p.exited)
	return nil
}

// fill puts this run's values into a description.
func (st *stage) fill(s string) string {
	return strings.NewReplacer("{port}", sutPort, "{data}", st.dir, "{n}", strconv.Itoa(st.n),
		"{provider}", "http://"+providerAddr+"/v1").Replace(s)
}

func (st *stage) fillAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, st.fill(s))
	}
	return out
}

// prepare writes the server's configuration and fills its data directory.
func (st *stage) prepare(scenario string) error {
	if st.sut.Config != "" {
		raw, err := os.ReadFile(st.sut.Config)
		if err != nil {
			return err
		}
		path := filepath.Join(st.dir, filepath.Base(st.sut.Config))
		if err := os.WriteFile(path, []byte(st.fill(string(raw))), 0o600); err != nil {
			return err
		}
	}
	if len(st.sut.Seed) == 0 || st.n == 0 || scenario != "start" && scenario != "snapshot" {
		return nil
	}
	args := append(st.fillAll(st.sut.Seed[1:]), "-scenario", scenario)
	if out, err := exec.Command(st.sut.Seed[0], args...).CombinedOutput(); err != nil {
		return fmt.Errorf("seed: %w: %s", err, out)
	}
	return nil
}

// startSUT runs the server under test and waits until it serves.
func (st *stage) startSUT() (*proc, error) {
	return st.start("sut", *sutCPUs, st.sut.Ready, sutAddr, st.fillAll(st.sut.Cmd)...)
}

// start runs a program on the given cores and waits until it serves on addr.
func (st *stage) start(what, cpus, ready, addr string, cmd ...string) (*proc, error) {
	if serves(addr, "") {
		return nil, fmt.Errorf("%s: something already listens on %s", what, addr)
	}
	logPath := filepath.Join(st.dir, what+".log")
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	p := &proc{command: func() *exec.Cmd {
		c := onCores(cpus, cmd...)
		c.Env = append(os.Environ(), "PORT="+sutPort, "PROVIDER_URL=http://"+providerAddr+"/v1", "DATA_DIR="+st.dir, "BENCH_KEY=none")
		c.Stdout, c.Stderr = out, out
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		return c
	}}
	if err := p.start(); err != nil {
		return nil, err
	}
	st.mu.Lock()
	st.procs = append(st.procs, p)
	st.mu.Unlock()
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		if serves(addr, ready) {
			return p, nil
		}
		select {
		case <-p.exited:
			until = time.Time{}
		case <-time.After(time.Millisecond):
		}
	}
	said, _ := os.ReadFile(logPath)
	return nil, fmt.Errorf("%s does not serve on %s; it said:\n%s", what, addr, said)
}

// serves says whether a server accepts connections, and answers 200 on a path if one is given.
func serves(addr, path string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	if path == "" {
		return true
	}
	_ = c.SetDeadline(time.Now().Add(time.Second)) // fails only on a closed connection
	fmt.Fprintf(c, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, addr)
	head := make([]byte, 12)
	n, _ := c.Read(head)
	return strings.HasSuffix(string(head[:n]), strconv.Itoa(http.StatusOK))
}

// supervise starts a process again whenever it dies, as a service manager would.
func (st *stage) supervise(p *proc) {
	go func() {
		for {
			<-p.exited
			st.mu.Lock()
			if st.cleared || p.start() != nil {
				st.mu.Unlock()
				return
			}
			st.mu.Unlock()
		}
	}()
}

// clear ends every process of the run, and the children in its group.
func (st *stage) clear() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.cleared = true
	for _, p := range slices.Backward(st.procs) {
		p.end(syscall.SIGTERM)
	}
	st.procs = nil
}

// end stops a process: with a signal, and after some seconds by force.
func (p *proc) end(sig syscall.Signal) {
	group := -p.running.Process.Pid
	_ = syscall.Kill(group, sig) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
	}
	_ = syscall.Kill(group, syscall.SIGKILL)
	<-p.exited
}

// starts is how often a start is timed.
const starts = 7

// timeStarts times the server from exec until it is ready, killed each time, and reports as the load client does.
func (st *stage) timeStarts(name string) ([]byte, error) {
	var all hist.Hist
	for i := range starts {
		began := time.Now()
		p, err := st.startSUT()
		if err != nil {
			return nil, err
		}
		if i > 0 { // the first also reads the binary from the disk
			all.Add(time.Since(began))
		}
		p.end(syscall.SIGKILL)
	}
	return json.Marshal(map[string]any{"sut": name, "scenario": "start", "n": st.n, "requests": all.Summary()})
}

// onCores is a command bound to some cores. nice and taskset replace themselves
// by the program, so the process id is the program's.
func onCores(cpus string, cmd ...string) *exec.Cmd {
	return exec.Command("nice", append([]string{"-n", strconv.Itoa(*niceness), "taskset", "-c", cpus}, cmd...)...)
}

// prioritize puts everything that this process will start before other programs.
// Linux schedules sessions against each other first (autogroups), so nice alone
// would do nothing against programs of another session.
func prioritize() {
	if *niceness < 0 && os.Geteuid() != 0 {
		log.Print("no priority over other programs: that needs root")
		*niceness = 0
		return
	}
	_, _ = syscall.Setsid() // fails harmlessly where a shell made this process a group leader
	err := os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(*niceness)), 0)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		log.Printf("no priority over other sessions: %v", err)
	}
}

// waitQuiet waits until other programs leave the machine alone for two seconds.
func waitQuiet() {
	for until := time.Now().Add(*quietWait); time.Now().Before(until); {
		before := busy()
		<-time.After(2 * time.Second)
		if (busy()-before)/2 < *maxForeign {
			return
		}
	}
}

// busy is the CPU seconds that all cores together worked since boot.
func busy() float64 {
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	var sum float64
	for i, f := range strings.Fields(line)[1:] {
		if v, _ := strconv.ParseFloat(f, 64); slices.Contains([]int{0, 1, 2, 5, 6}, i) {
			sum += v / 100
		}
	}
	return sum
}
