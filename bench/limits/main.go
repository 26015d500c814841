// Command limits measures what this machine can do at all: how fast its disk
// makes bytes durable, how many group commits SQLite manages, and how many
// events Go's net/http can flush over loopback.
//
//	limits [-dir .] [fsync] [sqlite] [sse]
package main

import (
	"bufio"
	"database/sql"
	"flag"
	"fmt"
	"io"
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

	_ "modernc.org/sqlite"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
)

var dir = flag.String("dir", ".", "where to write; must be on the disk in question")

func main() {
	follow := flag.String("follow", "", "internal: read event streams from this URL")
	readers := flag.Int("readers", 1, "internal: how many")
	flag.Parse()
	if *follow != "" {
		followAll(*follow, *readers)
		return
	}
	which := flag.Args()
	if len(which) == 0 {
		which = []string{"fsync", "sqlite", "sse"}
	}
	for _, name := range which {
		if err := map[string]func() error{"fsync": fsync, "sqlite": sqlite, "sse": sse}[name](); err != nil {
			log.Fatal(err)
		}
	}
}

// fsync appends blocks to a file and makes each durable on its own.
func fsync() error {
	for _, c := range []struct {
		what        string
		preallocate bool
		block       int
	}{
		{"append 4 KiB + fdatasync", false, 4 << 10},
		{"append 64 KiB + fdatasync", false, 64 << 10},
		{"overwrite 4 KiB + fdatasync", true, 4 << 10},
	} {
		if err := fsyncRun(c.what, c.preallocate, c.block); err != nil {
			return err
		}
	}
	return nil
}

func fsyncRun(what string, preallocate bool, block int) error {
	const n = 1000
	f, err := os.CreateTemp(*dir, "fsync-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if preallocate {
		if _, err := f.Write(make([]byte, n*block)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
	}
	var h hist.Hist
	buf := make([]byte, block)
	began := time.Now()
	for i := range n {
		t := time.Now()
		if _, err := f.WriteAt(buf, int64(i*block)); err != nil {
			return err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return err
		}
		h.Add(time.Since(t))
	}
	s := h.Summary()
	fmt.Printf("%-28s p50 %.2f ms  p95 %.2f ms  p99 %.2f ms  max %.1f ms  %.0f/s\n",
		what, s.P50, s.P95, s.P99, s.Max, n/time.Since(began).Seconds())
	return nil
}

// sqlite commits batches of small rows, as a log of tokens would.
func sqlite() error {
	for _, c := range []struct {
		sync   string
		batch  int
		packed bool // the batch is one row with one body
	}{
		{"FULL", 1, false},
		{"FULL", 10, false},
		{"FULL", 100, false},
		{"FULL", 1000, false},
		{"NORMAL", 100, false},
		{"FULL", 10, true},
		{"FULL", 100, true},
	} {
		if err := sqliteRun(c.sync, c.batch, c.packed); err != nil {
			return err
		}
	}
	return nil
}

func sqliteRun(syncMode string, batch int, packed bool) error {
	const rowSize = 200
	inserts, form := batch, "rows"
	if packed {
		inserts, form = 1, "packed"
	}
	tmp, err := os.MkdirTemp(*dir, "sqlite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(tmp, "log.db")+
		"?_pragma=journal_mode(wal)&_pragma=synchronous("+syncMode+")")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`create table event (run integer, seq integer, body blob, primary key (run, seq)) without rowid`); err != nil {
		return err
	}
	insert, err := db.Prepare(`insert into event values (?, ?, ?)`)
	if err != nil {
		return err
	}
	var (
		h     hist.Hist
		body  = make([]byte, rowSize*batch/inserts)
		began = time.Now()
		cpu   = cpuSeconds()
		rows  int
	)
	for time.Since(began) < 5*time.Second {
		t := time.Now()
		tx, err := db.Begin()
		if err != nil {
			return err
		}
		st := tx.Stmt(insert)
		for range inserts {
			if _, err := st.Exec(rows%100, rows, body); err != nil {
				return err
			}
			rows += batch / inserts
		}
		if err := tx.Commit(); err != nil {
			return err
		}
		h.Add(time.Since(t))
	}
	took := time.Since(began).Seconds()
	s := h.Summary()
	fmt.Printf("sqlite wal %-6s batch %-4d %-6s %6.0f commits/s  %7.0f rows/s  commit p50 %.2f p99 %.2f max %.1f ms  %.1f µs CPU/row\n",
		syncMode, batch, form, float64(s.Count)/took, float64(rows)/took, s.P50, s.P99, s.Max, (cpuSeconds()-cpu)/float64(rows)*1e6)
	return nil
}

func cpuSeconds() float64 {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano()).Seconds()
}

// sse writes events of about 90 bytes, each with a flush of its own, to readers
// in another process.
func sse() error {
	for _, c := range []struct {
		readers int
		flush   int // events per flush
	}{{1, 1}, {100, 1}, {1000, 1}, {100, 10}} {
		if err := sseRun(c.readers, c.flush); err != nil {
			return err
		}
	}
	return nil
}

func sseRun(readers, perFlush int) error {
	const length = 5 * time.Second
	var events int64
	var mu sync.Mutex
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	start := make(chan struct{})
	var ready sync.WaitGroup
	ready.Add(readers)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		rc := http.NewResponseController(w)
		rc.Flush()
		ready.Done()
		<-start
		var sent int64
		var frame []byte
		for until := time.Now().Add(length); time.Now().Before(until); {
			for range perFlush {
				frame = append(frame[:0], `data: {"type":"text-delta","id":"0","delta":"17:1764500000123456789 `...)
				frame = strconv.AppendInt(frame, sent, 10)
				frame = append(frame, "\"}\n\n"...)
				if _, err := w.Write(frame); err != nil {
					return
				}
				sent++
			}
			if err := rc.Flush(); err != nil {
				return
			}
		}
		mu.Lock()
		events += sent
		mu.Unlock()
	})}
	go server.Serve(ln)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	client := exec.Command(self, "-follow", "http://"+ln.Addr().String(), "-readers", strconv.Itoa(readers))
	var heard strings.Builder
	client.Stdout, client.Stderr = &heard, os.Stderr
	if err := client.Start(); err != nil {
		return err
	}
	ready.Wait()
	cpu, began := cpuSeconds(), time.Now()
	close(start)
	if err := client.Wait(); err != nil {
		return err
	}
	cpu = cpuSeconds() - cpu
	took := time.Since(began).Seconds() // longer than length if handlers had to wait for their turn
	mu.Lock()
	defer mu.Unlock()
	fmt.Printf("sse %4d readers, flush per %-3d %8.0f events/s  server %.2f µs CPU/event (%.2f cores)  readers saw %s\n",
		readers, perFlush, float64(events)/took, cpu/float64(events)*1e6, cpu/took, strings.TrimSpace(heard.String()))
	return server.Close()
}

// followAll is the reading process: it counts events and prints the count.
func followAll(url string, readers int) {
	counts := make([]int, readers)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			res, err := http.Get(url)
			if err != nil {
				log.Print(err)
				return
			}
			defer res.Body.Close()
			body := bufio.NewReaderSize(res.Body, 64<<10)
			for {
				line, err := body.ReadSlice('\n')
				if err == io.EOF {
					return
				}
				if err != nil {
					log.Print(err)
					return
				}
				if len(line) > 1 {
					counts[i]++
				}
			}
		})
	}
	wg.Wait()
	slices.Sort(counts)
	total := 0
	for _, c := range counts {
		total += c
	}
	fmt.Println(total)
}
