// Package tables turns the load client's reports into tables, medians throughout.
package tables

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

type summary struct {
	Count float64 `json:"count"`
	P50   float64 `json:"p50_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

// run is a report, as far as the tables need it.
type run struct {
	SUT        string  `json:"sut"`
	Scenario   string  `json:"scenario"`
	N          int     `json:"n"`
	Readers    float64 `json:"readers"`
	Completed  float64 `json:"completed"`
	Received   float64 `json:"tokens_received"`
	Latency    summary `json:"latency"`
	FirstToken summary `json:"first_token"`
	CatchUp    summary `json:"catch_up"`
	Requests   summary `json:"requests"`
	First      float64 `json:"first_ms"`
	Wall       float64 `json:"wall_s"`
	Foreign    float64 `json:"foreign_cores"`
	Procs      map[string]struct {
		CPU      float64 `json:"cpu_s"`
		RSSStart float64 `json:"rss_start_mb"`
		RSSPeak  float64 `json:"rss_peak_mb"`
	} `json:"procs"`
	Provider struct {
		Late summary `json:"late"`
	} `json:"provider"`
	IdleBytesPerConn map[string]float64 `json:"idle_bytes_per_conn"`
	Crash            struct {
		Chats     float64 `json:"chats"`
		Recovered float64 `json:"recovered"`
		Finished  float64 `json:"finished"`
		Seen      float64 `json:"tokens_seen"`
		Kept      float64 `json:"tokens_kept"`
		Again     float64 `json:"restarts"`
		BackAfter summary `json:"back_after"`
		OnAfter   summary `json:"on_after"`
	} `json:"crash"`
}

// solution is the CPU seconds of the server and of all that it needs.
func (r run) solution() (s float64) {
	for name, p := range r.Procs {
		if name != "load" && name != "provider" {
			s += p.CPU
		}
	}
	return s
}

func (r run) cpuPer1k() float64 { return r.solution() / r.Received * 1e6 }

type column struct {
	title  string
	format string
	value  func(run) float64
	best   bool // of all runs the lowest, not the median: what the noise left
}

func col(title, format string, value func(run) float64) column {
	return column{title: title, format: format, value: value}
}

var noise = []column{
	col("provider late p99", "%.1f", func(r run) float64 { return r.Provider.Late.P99 }),
	col("other programs, cores", "%.2f", func(r run) float64 { return r.Foreign }),
}

var whole = col("whole", "%.0f %%", func(r run) float64 { return 100 * r.Completed / r.Readers })

func costs(per string) []column {
	return []column{
		col("CPU ms per 1k "+per, "%.0f", run.cpuPer1k),
		col("server cores", "%.2f", func(r run) float64 { return r.solution() / r.Wall }),
		col("peak MB", "%.0f", func(r run) float64 { return r.Procs["sut"].RSSPeak }),
	}
}

func latency(what string) []column {
	return []column{
		col(what+" p50 ms", "%.1f", func(r run) float64 { return r.Latency.P50 }),
		col("p95", "%.1f", func(r run) float64 { return r.Latency.P95 }),
		col("p99", "%.1f", func(r run) float64 { return r.Latency.P99 }),
		{title: "p99 of the best run", format: "%.1f", value: func(r run) float64 { return r.Latency.P99 }, best: true},
	}
}

var idle = []column{
	whole,
	col("KB per connection", "%.1f", func(r run) float64 { return r.IdleBytesPerConn["sut"] / 1024 }),
	col("MB before", "%.0f", func(r run) float64 { return r.Procs["sut"].RSSStart }),
	col("peak MB", "%.0f", func(r run) float64 { return r.Procs["sut"].RSSPeak }),
	col("server CPU s", "%.1f", func(r run) float64 { return r.solution() }),
}

var tables = []struct {
	scenario string
	title    string
	columns  []column
}{
	{"start", "Start: from exec to ready, with N sessions kept", []column{
		col("p50 ms", "%.0f", func(r run) float64 { return r.Requests.P50 }),
		col("max", "%.0f", func(r run) float64 { return r.Requests.Max }),
	}},
	{"steady", "Steady: N chats at once, 50 tokens/s each", slices.Concat(
		[]column{whole}, latency("token"),
		[]column{
			col("first token p50", "%.1f", func(r run) float64 { return r.FirstToken.P50 }),
			col("p99", "%.0f", func(r run) float64 { return r.FirstToken.P99 }),
			col("tokens/s", "%.0f", func(r run) float64 { return r.Received / r.Wall }),
		}, costs("tokens"), noise)},
	{"resume", "Resume: every one of N clients drops once and comes back", slices.Concat(
		[]column{
			whole,
			col("catch-up p50 ms", "%.1f", func(r run) float64 { return r.CatchUp.P50 }),
			col("p99", "%.1f", func(r run) float64 { return r.CatchUp.P99 }),
			col("max", "%.0f", func(r run) float64 { return r.CatchUp.Max }),
		}, latency("live token"), costs("tokens"), noise)},
	{"catchup", "Catch-up: a reader N events behind (floor: tokens)", []column{
		whole,
		col("p50 ms", "%.1f", func(r run) float64 { return r.CatchUp.P50 }),
		col("p99", "%.1f", func(r run) float64 { return r.CatchUp.P99 }),
		col("max", "%.1f", func(r run) float64 { return r.CatchUp.Max }),
	}},
	{"fanout", "Fan-out: one chat, N watchers", slices.Concat(
		[]column{whole}, latency("token"),
		[]column{col("deliveries/s", "%.0f", func(r run) float64 { return r.Received / r.Wall })},
		costs("deliveries"), noise)},
	{"idle-chats", "Idle chats: N connections, each a chat whose model thinks", slices.Concat(idle, noise)},
	{"idle-watchers", "Idle watchers: N connections to one chat whose model thinks", slices.Concat(idle, noise)},
	{"snapshot", "Snapshot: the state of a session of N messages, window of 50", []column{
		whole,
		col("p50 ms", "%.1f", func(r run) float64 { return r.Requests.P50 }),
		col("p99", "%.1f", func(r run) float64 { return r.Requests.P99 }),
		col("first, not in memory", "%.0f", func(r run) float64 { return r.First }),
		col("peak MB", "%.0f", func(r run) float64 { return r.Procs["sut"].RSSPeak }),
	}},
	{"crash", "Kill: the server is killed in the middle of N chats and started again", slices.Concat([]column{
		col("tokens seen before", "%.0f", func(r run) float64 { return r.Crash.Seen }),
		col("still there", "%.1f %%", func(r run) float64 { return 100 * r.Crash.Kept / r.Crash.Seen }),
		col("chats readable again", "%.0f", func(r run) float64 { return r.Crash.Recovered }),
		col("finished", "%.0f", func(r run) float64 { return r.Crash.Finished }),
		col("answer began anew", "%.0f", func(r run) float64 { return r.Crash.Again }),
		col("readable after p50 ms", "%.0f", func(r run) float64 { return r.Crash.BackAfter.P50 }),
		col("new tokens after p50 ms", "%.0f", func(r run) float64 { return r.Crash.OnAfter.P50 }),
		col("max", "%.0f", func(r run) float64 { return r.Crash.OnAfter.Max }),
	}, noise)},
}

type key struct {
	n   int
	sut string
}

// Print writes a table for every scenario that the files of reports hold, one
// JSON object a line.
func Print(w io.Writer, paths ...string) error {
	byScenario := map[string]map[key][]run{}
	for _, path := range paths {
		if err := read(path, byScenario); err != nil {
			return err
		}
	}
	for _, t := range tables {
		if points := byScenario[t.scenario]; len(points) > 0 {
			fmt.Fprintf(w, "### %s\n\n", t.title)
			table(w, t.columns, points)
			fmt.Fprintln(w)
		}
	}
	return nil
}

func read(path string, into map[string]map[key][]run) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r run
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if into[r.Scenario] == nil {
			into[r.Scenario] = map[key][]run{}
		}
		k := key{r.N, r.SUT}
		into[r.Scenario][k] = append(into[r.Scenario][k], r)
	}
	return lines.Err()
}

// table writes one table, its columns aligned: it is read in terminals, too.
func table(w io.Writer, columns []column, points map[key][]run) {
	rows := [][]string{{"N", "server", "runs"}}
	for _, c := range columns {
		rows[0] = append(rows[0], c.title)
	}
	order := func(a, b key) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.sut, b.sut)) }
	for _, k := range slices.SortedFunc(maps.Keys(points), order) {
		row := []string{fmt.Sprint(k.n), k.sut, fmt.Sprint(len(points[k]))}
		for _, c := range columns {
			row = append(row, fmt.Sprintf(c.format, c.of(points[k])))
		}
		rows = append(rows, row)
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	for i, row := range rows {
		for j, cell := range row {
			fmt.Fprintf(w, "| %-*s ", widths[j], cell)
		}
		fmt.Fprintln(w, "|")
		if i == 0 {
			for _, width := range widths {
				fmt.Fprintf(w, "|%s", strings.Repeat("-", width+2))
			}
			fmt.Fprintln(w, "|")
		}
	}
}

// of is the column's figure for all runs of one point.
func (c column) of(runs []run) float64 {
	var all []float64
	for _, r := range runs {
		all = append(all, c.value(r))
	}
	slices.Sort(all)
	if c.best {
		return all[0]
	}
	return all[len(all)/2]
}
