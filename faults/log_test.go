package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// frame is a frame as a client gets it.
type frame struct {
	id    string // of the SSE event
	raw   string
	Type  string `json:"type"`
	Seq   int64  `json:"seq"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
	event session.Event
}

// log reads the whole log of a session as JSON pages of at most limit frames, from after.
func (w *world) log(sessionID string, after int64, limit int) []frame {
	w.t.Helper()
	var frames []frame
	for {
		var page struct {
			Frames []json.RawMessage
			Head   int64
			More   bool
		}
		w.ask("GET", fmt.Sprintf("/v1/sessions/%s/events?after=%d&limit=%d", sessionID, after, limit), nil).into(w.t, &page)
		for _, raw := range page.Frames {
			f := parseFrame(w.t.Fatalf, "", string(raw))
			frames = append(frames, f)
			after = f.to()
		}
		if !page.More {
			return frames
		}
	}
}

func (f frame) from() int64 {
	if f.Type == "folded" {
		return f.From
	}
	return f.Seq
}

func (f frame) to() int64 {
	if f.Type == "folded" {
		return f.To
	}
	return f.Seq
}

func parseFrame(fail func(string, ...any), id, raw string) frame {
	f := frame{id: id, raw: raw}
	if err := json.Unmarshal([]byte(raw), &f); err != nil {
		fail("frame %q: %v", raw, err)
		return f
	}
	if f.Type != "folded" && f.Type != "reset" {
		if err := json.Unmarshal([]byte(raw), &f.event); err != nil {
			fail("event %q: %v", raw, err)
		}
	}
	return f
}

// events are the events of a session's log, of one type if one is given.
func (w *world) events(sessionID string, types ...string) []session.Event {
	w.t.Helper()
	var events []session.Event
	for _, f := range w.log(sessionID, 0, 1000) {
		if f.Type == "folded" {
			continue
		}
		if len(types) == 0 {
			events = append(events, f.event)
		}
		for _, name := range types {
			if f.Type == name {
				events = append(events, f.event)
			}
		}
	}
	return events
}

// stream is an open event stream.
type stream struct {
	res    *http.Response
	lines  *bufio.Reader
	cancel context.CancelFunc
}

// follow opens an event stream after a cursor.
func (w *world) follow(sessionID string, after int64) *stream {
	w.t.Helper()
	s, err := w.tryFollow(w.ctx, sessionID, fmt.Sprint("after=", after), "")
	if err != nil {
		w.t.Fatal(err)
	}
	if s.res.StatusCode != http.StatusOK {
		w.t.Fatalf("the stream answers HTTP %d", s.res.StatusCode)
	}
	w.t.Cleanup(s.close)
	return s
}

// tryFollow opens an event stream with a query and a Last-Event-ID ("" for none).
func (w *world) tryFollow(ctx context.Context, sessionID, query, lastEventID string) (*stream, error) {
	return w.followAt(ctx, w.srv.url, sessionID, query, lastEventID)
}

// followAt is tryFollow of a server that may be started anew meanwhile, at the same address.
func (w *world) followAt(ctx context.Context, server, sessionID, query, lastEventID string) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, "GET", server+"/v1/sessions/"+sessionID+"/events?"+query, nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if lastEventID != "" {
		req.Header["Last-Event-ID"] = []string{lastEventID}
	}
	res, err := w.http.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{res: res, lines: bufio.NewReaderSize(res.Body, 1<<16), cancel: cancel}, nil
}

func (s *stream) close() {
	s.cancel()
	s.res.Body.Close()
}

// nextFrame reads up to the next frame; comments are skipped. An error means that the stream has ended.
func (s *stream) nextFrame() (frame, error) {
	id, data := "", []string{}
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return frame{}, err
		}
		line = strings.TrimRight(line, "\r\n")
		switch {
		case line == "" && len(data) > 0:
			var fault error
			f := parseFrame(func(format string, args ...any) { fault = fmt.Errorf(format, args...) }, id, strings.Join(data, "\n"))
			return f, fault
		case strings.HasPrefix(line, "data:"):
			data = append(data, strings.TrimPrefix(strings.TrimPrefix(line, "data:"), " "))
		case strings.HasPrefix(line, "id:"):
			id = strings.TrimPrefix(strings.TrimPrefix(line, "id:"), " ")
		}
	}
}

// read reads frames until one is as wanted, that one included.
func (s *stream) read(wanted func(frame) bool) ([]frame, error) {
	var frames []frame
	for {
		f, err := s.nextFrame()
		if err != nil {
			return frames, err
		}
		frames = append(frames, f)
		if wanted(f) {
			return frames, nil
		}
	}
}

// joins fails unless the frames cover after+1.. without a hole or a double.
func joins(fail func(string, ...any), frames []frame, after int64) {
	for _, f := range frames {
		if f.Type == "reset" {
			continue
		}
		if f.from() > after+1 || f.to() <= after {
			fail("after %d comes %d..%d (%s)", after, f.from(), f.to(), f.Type)
		}
		after = f.to()
	}
}
