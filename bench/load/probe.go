package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const ticksPerSecond = 100 // USER_HZ on Linux

// usage is what one process and its descendants used during a run.
type usage struct {
	CPU      float64 `json:"cpu_s"`
	RSSStart float64 `json:"rss_start_mb"`
	RSSPeak  float64 `json:"rss_peak_mb"`
}

// probe reads processes and the machine from /proc.
type probe struct {
	pids map[string]int

	mu    sync.Mutex
	start map[string]sample
	peak  map[string]int64
	busy0 float64
	stl0  float64
	began time.Time
	stop  chan struct{}
}

type sample struct {
	cpu float64
	rss int64
}

func newProbe(pids map[string]int) *probe {
	pids = maps.Clone(pids)
	pids["load"] = os.Getpid()
	return &probe{pids: pids}
}

// begin opens the measured window.
func (p *probe) begin() {
	p.mu.Lock()
	p.start, p.peak = p.samples(), map[string]int64{}
	p.busy0, p.stl0 = machine()
	p.began, p.stop = time.Now(), make(chan struct{})
	p.mu.Unlock()
	go func() {
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(250 * time.Millisecond):
				p.notePeak(p.rss())
			}
		}
	}()
}

// again opens the window anew, so that preparations are not counted.
func (p *probe) again() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.start, p.peak = p.samples(), map[string]int64{}
	p.busy0, p.stl0 = machine()
	p.began = time.Now()
}

func (p *probe) notePeak(rss map[string]int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, v := range rss {
		p.peak[name] = max(p.peak[name], v)
	}
}

// end closes the window and fills the report.
func (p *probe) end(r *report) {
	close(p.stop)
	now := p.samples()
	busy, stolen := machine()
	r.Wall = time.Since(p.began).Seconds()
	r.Procs = map[string]usage{}
	p.mu.Lock()
	defer p.mu.Unlock()
	var ours float64
	for name, s := range now {
		cpu := max(0, s.cpu-p.start[name].cpu) // a server killed on purpose starts from 0 again
		ours += cpu
		r.Procs[name] = usage{CPU: cpu, RSSStart: mb(p.start[name].rss), RSSPeak: mb(max(p.peak[name], s.rss))}
	}
	r.ForeignCores = max(0, busy-p.busy0-ours) / r.Wall
	r.StolenCores = (stolen - p.stl0) / r.Wall
}

func (p *probe) samples() map[string]sample {
	all := readTree()
	out := map[string]sample{}
	for name, pid := range p.pids {
		out[name] = all.sum(pid)
	}
	return out
}

func (p *probe) rss() map[string]int64 {
	out := map[string]int64{}
	for name, s := range p.samples() {
		out[name] = s.rss
	}
	return out
}

func mb(b int64) float64 { return float64(b) / (1 << 20) }

// tree is every process of the machine, with its children.
type tree struct {
	procs    map[int]sample
	children map[int][]int
}

func (t tree) sum(pid int) sample {
	s := t.procs[pid]
	for _, c := range t.children[pid] {
		cs := t.sum(c)
		s.cpu, s.rss = s.cpu+cs.cpu, s.rss+cs.rss
	}
	return s
}

func readTree() tree {
	t := tree{map[int]sample{}, map[int][]int{}}
	dir, err := os.Open("/proc")
	if err != nil {
		return t
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		// The fields after the command's closing parenthesis: state, ppid, ...
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		num := func(i int) int64 { v, _ := strconv.ParseInt(f[i], 10, 64); return v }
		t.procs[pid] = sample{
			cpu: float64(num(11)+num(12)) / ticksPerSecond,
			rss: num(21) * int64(os.Getpagesize()),
		}
		ppid := int(num(1))
		t.children[ppid] = append(t.children[ppid], pid)
	}
	return t
}

// machine returns the CPU seconds that all cores were busy, and that the
// hypervisor took away, since boot.
func machine() (busy, stolen float64) {
	stat, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(stat), "\n")
	for i, f := range strings.Fields(line)[1:] {
		v, _ := strconv.ParseFloat(f, 64)
		switch i {
		case 0, 1, 2, 5, 6: // user nice system irq softirq
			busy += v / ticksPerSecond
		case 7:
			stolen = v / ticksPerSecond
		}
	}
	return busy, stolen
}
