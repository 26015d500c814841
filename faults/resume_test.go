package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-run/holdfast/internal/fakellm"
	"github.com/holdfast-run/holdfast/session"
)

// deltas are n paced pieces of an answer, which become about n events.
func deltas(n int, every time.Duration) []fakellm.Step {
	var pieces []string
	for i := range n {
		pieces = append(pieces, fmt.Sprintf("%d ", i))
	}
	return []fakellm.Step{fakellm.Paced(every, pieces...)}
}

func TestRG01NoReaderMissesAnEventBetweenReplayAndLive(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(fakellm.Reply(deltas(2000, 2*time.Millisecond)...))
	run := w.submit("ses", "go")
	first := w.follow("ses", 0)
	if _, err := first.read(func(f frame) bool { return f.Type == "text.delta" }); err != nil {
		t.Fatal(err)
	}
	ends := func(f frame) bool { return f.Type == "run.completed" }
	var mu sync.Mutex
	var readers sync.WaitGroup
	got := map[string][]frame{}
	keep := func(name string, frames []frame, err error) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		mu.Lock()
		got[name] = frames
		mu.Unlock()
	}
	after := map[string]int64{}
	for i := range 50 {
		cursor := int64(0)
		if i%2 == 1 {
			cursor = w.snapshot("ses").Seq * int64(i) / 50
		}
		name := fmt.Sprintf("reader %d after %d", i, cursor)
		after[name] = cursor
		readers.Go(func() {
			switch i % 3 {
			case 0:
				s, err := w.tryFollow(w.ctx, "ses", fmt.Sprint("after=", cursor), "")
				if err != nil {
					keep(name, nil, err)
					return
				}
				defer s.close()
				frames, err := s.read(ends)
				keep(name, frames, err)
			case 1:
				frames, err := w.socket("ses", cursor, ends)
				keep(name, frames, err)
			case 2:
				frames, err := w.polls("ses", cursor, ends)
				keep(name, frames, err)
			}
		})
		pause(t, time.Duration(rand.IntN(60))*time.Millisecond)
	}
	readers.Wait()
	w.ends(run)
	whole := w.log("ses", 0, 1000)
	for name, frames := range got {
		want := whole[after[name]:]
		if len(frames) != len(want) {
			t.Errorf("%s saw %d frames, not %d", name, len(frames), len(want))
			continue
		}
		for k := range frames {
			if frames[k].raw != want[k].raw {
				t.Errorf("%s saw %s, not %s", name, frames[k].raw, want[k].raw)
				break
			}
		}
	}
}

// socket follows a session over the WebSocket until a frame is as wanted.
func (w *world) socket(sessionID string, after int64, wanted func(frame) bool) ([]frame, error) {
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, strings.Replace(w.srv.url, "http", "ws", 1)+"/v1/connect", nil)
	if err != nil {
		return nil, err
	}
	defer c.CloseNow()
	c.SetReadLimit(16 << 20)
	ask, err := json.Marshal(map[string]any{"type": "subscribe", "id": "1", "session": sessionID, "after": after})
	if err != nil {
		return nil, err
	}
	if err := c.Write(ctx, websocket.MessageText, ask); err != nil {
		return nil, err
	}
	var frames []frame
	for {
		_, raw, err := c.Read(ctx)
		if err != nil {
			return frames, err
		}
		var m struct {
			Type   string
			Code   string
			Events []json.RawMessage
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			return frames, err
		}
		if m.Type == "error" {
			return frames, fmt.Errorf("the socket says %s", raw)
		}
		var fault error
		for _, e := range m.Events {
			f := parseFrame(func(format string, args ...any) { fault = fmt.Errorf(format, args...) }, "", string(e))
			frames = append(frames, f)
			if fault != nil || wanted(f) {
				return frames, fault
			}
		}
	}
}

// quietSocket opens a WebSocket and fails if it ends before d is over.
func (w *world) quietSocket(d time.Duration, url string) error {
	ctx, cancel := context.WithTimeout(w.ctx, d)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url+"/v1/connect", nil)
	if err != nil {
		return err
	}
	defer c.CloseNow()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
}

// polls follows a session by long polls until a frame is as wanted.
func (w *world) polls(sessionID string, after int64, wanted func(frame) bool) ([]frame, error) {
	var frames []frame
	for {
		a, err := w.try(w.ctx, "GET", fmt.Sprintf("/v1/sessions/%s/events?after=%d&wait=5s", sessionID, after), nil)
		if err != nil {
			return frames, err
		}
		var page struct{ Frames []json.RawMessage }
		if err := json.Unmarshal(a.raw, &page); err != nil || a.status != http.StatusOK {
			return frames, fmt.Errorf("HTTP %d: %s", a.status, a.raw)
		}
		var fault error
		for _, raw := range page.Frames {
			f := parseFrame(func(format string, args ...any) { fault = fmt.Errorf(format, args...) }, "", string(raw))
			frames, after = append(frames, f), f.to()
			if fault != nil || wanted(f) {
				return frames, fault
			}
		}
	}
}

func TestRG03ACursorInsideWhatWasFoldedAwayIsToldSo(t *testing.T) {
	w := newWorld(t, settings{retention: time.Second})
	w.llm.Script(fakellm.Reply(deltas(60, 5*time.Millisecond)...))
	w.ends(w.submit("ses", "go"))
	before := w.events("ses")
	head := before[len(before)-1].Seq
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	var frames []frame
	for folded := false; !folded; {
		frames = w.log("ses", 0, 1000)
		for _, f := range frames {
			folded = folded || f.Type == "folded"
		}
		if ctx.Err() != nil {
			t.Fatal("nothing is folded")
		}
		if !folded {
			pause(t, 100*time.Millisecond)
		}
	}
	for k := int64(0); k <= head; k++ {
		part := w.log("ses", k, 1000)
		joins(t.Errorf, part, k)
		if len(part) > 0 && part[len(part)-1].to() != head || len(part) == 0 && k < head {
			t.Errorf("after %d the log ends early", k)
		}
	}
	for _, f := range frames {
		if f.Type != "folded" && session.IsDelta(f.event.Data) {
			t.Errorf("the delta %d is still there", f.Seq)
		}
	}
	if got := w.text("ses"); !strings.HasPrefix(got, "0 1 2") || !strings.HasSuffix(got, "59 ") {
		t.Errorf("the message is %q", got)
	}
	// The end of a long log is found at once.
	last := w.log("ses", head-3, 1000)
	if len(last) != 3 {
		t.Errorf("three events before the end there are %d", len(last))
	}
}

func TestRG03ACursorAheadOfTheLogIsReset(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "go"))
	s, err := w.tryFollow(w.ctx, "ses", "after=100000", "")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	frames, err := s.read(func(f frame) bool { return f.Type == "run.completed" })
	if err != nil || frames[0].Type != "reset" || frames[0].id != "" {
		t.Fatalf("%v: %+v", err, frames)
	}
	joins(t.Errorf, frames[1:], 0)
}

func TestRG05ABadCursorIsRefusedBeforeTheFirstByte(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "go"))
	head := w.snapshot("ses").Seq
	for _, bad := range []string{
		"-1", "abc", "1e3", "1.0", " 5", "5 ", "+5", "05", "9007199254740993", "18446744073709551616", "NaN", "null", "5%00",
		"otherSession:5", strings.Repeat("9", 5000), "0x5", "٣",
	} {
		for _, how := range []string{"header", "query"} {
			if how == "header" && strings.ContainsAny(bad, " ٣") {
				continue // HTTP trims or refuses it
			}
			query, header := "", bad
			if how == "query" {
				query, header = "after="+strings.NewReplacer(" ", "%20", "+", "%2B", "٣", "%D9%A3").Replace(bad), ""
			}
			s, err := w.tryFollow(w.ctx, "ses", query, header)
			if err != nil {
				t.Errorf("%s %q: %v", how, bad, err)
				continue
			}
			body, _ := io.ReadAll(s.res.Body)
			s.close()
			if s.res.StatusCode != http.StatusBadRequest || !bytes.Contains(body, []byte("invalid_cursor")) {
				t.Errorf("%s %.40q answers HTTP %d: %.200s", how, bad, s.res.StatusCode, body)
			}
		}
	}
	// The header wins over the query.
	s, err := w.tryFollow(w.ctx, "ses", "after=2", "5")
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	f, err := s.nextFrame()
	if err != nil || f.Seq != 6 || head < 6 {
		t.Errorf("header 5 and query 2 begin at %d (%v)", f.Seq, err)
	}
}

func TestRG06OnlyDurableEventsMoveTheCursor(t *testing.T) {
	w := newWorld(t, settings{heartbeat: time.Second})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("a"), fakellm.Wait(gate), fakellm.Text("b")))
	run := w.submit("ses", "go")
	s := w.follow("ses", 0)
	id, beats := "", 0
	for beats < 3 {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "id:"):
			id = strings.TrimSpace(strings.TrimPrefix(line, "id:"))
		case strings.HasPrefix(line, ":"):
			beats++
		}
	}
	s.close()
	close(gate)
	w.ends(run)
	again, err := w.tryFollow(w.ctx, "ses", "", id)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	frames, err := again.read(func(f frame) bool { return f.Type == "run.completed" })
	if err != nil {
		t.Fatal(err)
	}
	var cursor int64
	if _, err := fmt.Sscan(id, &cursor); err != nil {
		t.Fatal(err)
	}
	joins(t.Errorf, frames, cursor)
}

func TestRG10ARejoinSeesEveryTypeOfEvent(t *testing.T) {
	w := newWorld(t, settings{})
	w.llm.Script(
		fakellm.Reply(fakellm.Reasoning("hm ", "hm"), fakellm.Text("look"), fakellm.Call{ID: "c", Name: "look", Args: `{}`}, fakellm.Call{ID: "d", Name: "echo", Args: `{"a":1}`}),
		fakellm.Reply(fakellm.Text("done")),
	)
	w.ends(w.submit("ses", "go"))
	whole := w.log("ses", 0, 1000)
	for k := range whole {
		s, err := w.tryFollow(w.ctx, "ses", fmt.Sprint("after=", k), "")
		if err != nil {
			t.Fatal(err)
		}
		frames, err := s.read(func(f frame) bool { return f.Type == "run.completed" })
		s.close()
		if err != nil || len(frames) != len(whole)-k {
			t.Fatalf("after %d there are %d frames, not %d (%v)", k, len(frames), len(whole)-k, err)
		}
		for i := range frames {
			if frames[i].raw != whole[k+i].raw {
				t.Errorf("after %d: %s is not %s", k, frames[i].raw, whole[k+i].raw)
			}
		}
	}
}

func TestDU01TextIsNotDoubledByARejoin(t *testing.T) {
	w := newWorld(t, settings{})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Text("Hello"), fakellm.Text(" wor"), fakellm.Wait(gate), fakellm.Text("ld")))
	run := w.submit("ses", "go")
	state := session.New("ses")
	s := w.follow("ses", 0)
	text := ""
	if _, err := s.read(func(f frame) bool {
		state.Apply(f.event)
		if d, ok := f.event.Data.(session.TextDelta); ok {
			text += d.Text
		}
		return text == "Hello wor"
	}); err != nil {
		t.Fatal(err)
	}
	s.close()
	// A fresh page: a snapshot, then what comes after it.
	snap := w.snapshot("ses")
	if got := snap.Messages[1].Text(); got != "Hello wor" {
		t.Errorf("the snapshot in the middle says %q", got)
	}
	close(gate)
	rest := w.follow("ses", snap.Seq)
	frames, err := rest.read(func(f frame) bool { return f.Type == "run.completed" })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range frames {
		state.Apply(f.event)
	}
	w.ends(run)
	if got := state.Message(snap.Messages[1].ID).Text(); got != "Hello world" {
		t.Errorf("the page that rejoined says %q", got)
	}
	if got := w.snapshot("ses").Messages[1]; got.Text() != "Hello world" || len(got.Parts) != 2 {
		t.Errorf("the fresh page says %q in %d parts", got.Text(), len(got.Parts))
	}
}

func TestDU04ATrueRepeatIsNoDuplicate(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.submit("ses", "ok"))
	w.ends(w.submit("ses", "ok"))
	said := 0
	for _, m := range w.snapshot("ses").Messages {
		if m.Role == session.RoleUser && m.Text() == "ok" {
			said++
		}
	}
	if said != 2 {
		t.Errorf("the person said ok %d times", said)
	}
}

func TestDU05AMessagePostedAgainIsTheSameRun(t *testing.T) {
	w := newWorld(t, settings{})
	gate := make(chan struct{})
	w.llm.Script(fakellm.Reply(fakellm.Wait(gate), fakellm.Text("once")))
	w.seen["ses"] = true
	var mu sync.Mutex
	runs := map[string]int{}
	var posts sync.WaitGroup
	for range 20 {
		posts.Go(func() {
			a, err := w.try(w.ctx, "POST", "/v1/sessions/ses/messages", say("msg_7f1c", "once"))
			if err != nil || a.status != http.StatusAccepted && a.status != http.StatusOK {
				t.Errorf("HTTP %d, %v: %s", a.status, err, a.raw)
				return
			}
			var out submitted
			a.into(t, &out)
			mu.Lock()
			runs[out.Run.ID]++
			mu.Unlock()
		})
	}
	posts.Wait()
	if len(runs) != 1 {
		t.Fatalf("the same message is answered by the runs %v", runs)
	}
	// The answer is cut off, and it is posted again, now and after the end.
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	_, _ = w.try(ctx, "POST", "/v1/sessions/ses/messages", say("msg_7f1c", "once"))
	close(gate)
	run := w.ends(w.send("ses", say("msg_7f1c", "once")).Run)
	if again := w.send("ses", say("msg_7f1c", "once")); again.Run.ID != run.ID || again.Run.Status != session.Completed {
		t.Errorf("after the end it is answered by %s, %s", again.Run.ID, again.Run.Status)
	}
	w.crash()
	if again := w.send("ses", say("msg_7f1c", "once")); again.Run.ID != run.ID {
		t.Errorf("after a crash it is answered by %s", again.Run.ID)
	}
	other := w.post("ses", say("msg_7f1c", "something else"))
	if other.status != http.StatusConflict || other.problem(t).Code != "message_conflict" {
		t.Errorf("another body is answered %d: %s", other.status, other.raw)
	}
	if n := len(w.llm.Requests()); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}

func TestOR01DeltasComeInTheOrderInWhichTheyWereSaid(t *testing.T) {
	w := newWorld(t, settings{})
	var pieces []string
	for i := range 5000 {
		pieces = append(pieces, fmt.Sprint(i%10))
	}
	w.llm.Script(fakellm.Reply(fakellm.Text(pieces...)))
	w.ends(w.submit("ses", "go"))
	text := ""
	for _, e := range w.events("ses", "text.delta") {
		text += e.Data.(session.TextDelta).Text
	}
	if want := strings.Join(pieces, ""); text != want || w.text("ses") != want {
		t.Errorf("the deltas give %d letters, the message %d", len(text), len(w.text("ses")))
	}
}

func TestOR02OrderIsTheLogsNotTheClocksOrTheIds(t *testing.T) {
	w := newWorld(t, settings{})
	w.ends(w.send("ses", say("zzz1", "q1")).Run)
	w.ends(w.send("ses", say("aaa2", "q2")).Run)
	var got []string
	for _, m := range w.snapshot("ses").Messages {
		if m.Role == session.RoleUser {
			got = append(got, m.Text())
		} else {
			got = append(got, "answer")
		}
	}
	if strings.Join(got, " ") != "q1 answer q2 answer" {
		t.Errorf("the order is %v", got)
	}
}

func TestOR04EveryPartIsClosedBeforeTheEnd(t *testing.T) {
	w := newWorld(t, settings{attempts: 1})
	w.llm.Script(
		fakellm.Reply(fakellm.Text("in the middle of"), fakellm.Stall()).On(fakellm.Match{LastUser: "text"}),
		fakellm.Reply(fakellm.Text("x"), fakellm.Fragments(fakellm.Fragment{ID: "c", Name: "charge", Args: `{"pa`}), fakellm.Stall()).On(fakellm.Match{LastUser: "arguments"}),
		fakellm.Reply(fakellm.Text("cut"), fakellm.Cut()).On(fakellm.Match{LastUser: "cut"}),
	)
	for i, c := range []struct{ id, until string }{{"text", "text.delta"}, {"arguments", "tool.input.delta"}, {"cut", "run.failed"}} {
		run := w.submit("ses_"+c.id, c.id)
		s := w.follow("ses_"+c.id, 0)
		if _, err := s.read(func(f frame) bool { return f.Type == c.until }); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			w.cancel(run.ID)
		}
		w.ends(run)
		closed := 0
		for _, e := range w.events("ses_" + c.id) {
			if _, ok := e.Data.(session.MessageInterrupted); ok {
				closed++
			}
		}
		if closed != 1 {
			t.Errorf("%s: the message is closed %d times", c.id, closed)
		}
		w.continues("ses_" + c.id)
	}
}
