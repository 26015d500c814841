package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// delta is a frame of the usual size.
func delta(id string, seq int64) session.Frame {
	json := fmt.Appendf(nil, `{"session":%q,"seq":%d,"type":"text.delta","at":"2026-01-02T03:04:05.678Z","run":"run_01kb3v8w9x2m4n6p8q0r2s4t6v","step":1,"attempt":1,"data":{"message":"msg_01kb3v8w9x2m4n6p8q0r2s4t6w","part":0,"text":" token"}}`, id, seq)
	return session.Frame{From: seq, To: seq, JSON: json}
}

// benchWorld has sessions of one event each, and no rereads.
func benchWorld(b *testing.B, sessions int) *world {
	w := newWorld(b, feed.Options{Heal: time.Hour})
	for i := range sessions {
		w.write(fmt.Sprint("s", i), 1)
	}
	return w
}

// BenchmarkPublish is one commit of one event until the last reader of its
// session has it in hand, without a network.
func BenchmarkPublish(b *testing.B) {
	for _, readers := range []int{0, 1, 10, 100, 1000} {
		b.Run(fmt.Sprint("readers=", readers), func(b *testing.B) {
			w := benchWorld(b, 1)
			ctx, cancel := context.WithCancel(b.Context())
			var reading, seen sync.WaitGroup
			for range readers {
				r, err := w.hub.Follow(ctx, "s0", 1)
				if err != nil {
					b.Fatal(err)
				}
				reading.Go(func() {
					defer r.Close()
					for {
						frames, err := r.Next(ctx)
						if err != nil {
							return
						}
						for range frames {
							seen.Done()
						}
					}
				})
			}
			seq := int64(1)
			for b.Loop() {
				seq++
				seen.Add(readers)
				w.hub.Publish(store.Commit{Session: "s0", Frames: []session.Frame{delta("s0", seq)}})
				seen.Wait()
			}
			if readers > 0 {
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*readers), "ns/reader")
			}
			cancel()
			reading.Wait()
		})
	}
}

// BenchmarkIdle is the memory of readers that wait, their goroutine's stack of
// 2 KiB or more apart.
func BenchmarkIdle(b *testing.B) {
	const readers = 10_000
	for _, sessions := range []int{1, readers} {
		b.Run(fmt.Sprint("sessions=", sessions), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				w := benchWorld(b, sessions)
				b.StartTimer()
				ctx, cancel := context.WithCancel(b.Context())
				var waiting sync.WaitGroup
				before := heap()
				for i := range readers {
					r, err := w.hub.Follow(ctx, fmt.Sprint("s", i%sessions), 1)
					if err != nil {
						b.Fatal(err)
					}
					waiting.Go(func() {
						defer r.Close()
						_, _ = r.Next(ctx) // ends with ctx
					})
				}
				runtime.Gosched()
				b.ReportMetric(float64(heap()-before)/readers, "heap-B/reader")
				cancel()
				waiting.Wait()
			}
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkSSE is an event from its commit to a client's socket, when so many
// are committed together: time, and CPU of server and client together.
func BenchmarkSSE(b *testing.B) {
	for _, together := range []int{1, 10, 100} {
		b.Run(fmt.Sprint("together=", together), func(b *testing.B) {
			w := newWorld(b, feed.Options{Heal: time.Hour})
			w.write("s", 1)
			server := w.serve(feed.SocketOptions{})
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Write([]byte("GET /sse?after=1 HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
				b.Fatal(err)
			}
			buf := make([]byte, 64<<10)
			for begun := false; !begun; { // it follows before it sends anything
				n, err := conn.Read(buf)
				if err != nil {
					b.Fatal(err)
				}
				begun = bytes.Contains(buf[:n], []byte("retry"))
			}
			seq := int64(1)
			frames := make([]session.Frame, together)
			began := cpu()
			for b.Loop() {
				for i := range frames {
					seq++
					frames[i] = delta("s", seq)
				}
				w.hub.Publish(store.Commit{Session: "s", Frames: append([]session.Frame(nil), frames...)})
				for braces := 2 * together; braces > 0; { // each event has two that close
					n, err := conn.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					braces -= bytes.Count(buf[:n], []byte("}"))
				}
			}
			events := float64(b.N * together)
			b.ReportMetric(float64((cpu()-began).Nanoseconds())/events, "cpu-ns/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/events, "ns/event")
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkCatchUp is a reader that is 10,000 events behind, from memory and
// from a store that costs nothing.
func BenchmarkCatchUp(b *testing.B) {
	const events = 10_000
	for _, from := range []string{"tail", "store"} {
		b.Run(from, func(b *testing.B) {
			w := newWorld(b, feed.Options{Heal: time.Hour, TailBytes: 8 << 20, TailFrames: 2 * events})
			w.large("s", events, 200)
			if from == "tail" {
				w.src.head = func(string, int64, error) (int64, error) { return 0, nil }
				w.follow("s", 0)
				frames := make([]session.Frame, events)
				for i := range frames {
					frames[i] = delta("s", int64(i+1))
				}
				w.hub.Publish(store.Commit{Session: "s", Frames: frames})
			}
			for b.Loop() {
				r, err := w.hub.Follow(b.Context(), "s", 0)
				if err != nil {
					b.Fatal(err)
				}
				for r.Cursor() < events {
					if _, err := r.Next(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				r.Close()
			}
		})
	}
}
