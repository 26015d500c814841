package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

const (
	readFrames = 1000
	readBytes  = 4 << 20
	// foldSessions bounds the sessions that one Fold works on.
	foldSessions = 100
)

// log is everything that is kept for one session.
type log struct {
	id     string
	frames []session.Frame
	// whole is the fold of the log with every part of every message. lean is the
	// same fold as decisions see it, shed after each commit. Neither is made of the other.
	whole, lean *session.State
	// approvals are all approvals: those of terminal runs are in no state.
	approvals map[string]session.Approval
	work      map[string]*work // by run
}

func newLog(id string) *log {
	return &log{
		id: id, whole: session.New(id), lean: session.New(id),
		approvals: map[string]session.Approval{}, work: map[string]*work{},
	}
}

func (l *log) head() int64 { return l.lean.Seq }

// encode gives the wire form of events, which is what a log keeps.
func encode(events []session.Event) ([]session.Frame, error) {
	frames := make([]session.Frame, len(events))
	for i, e := range events {
		raw, err := e.AppendJSON(nil)
		if err != nil {
			return nil, err
		}
		frames[i] = session.Frame{From: e.Seq, To: e.Seq, JSON: raw}
	}
	return frames, nil
}

// decode gives the events of frames, without the folded ranges.
func decode(frames []session.Frame) ([]session.Event, error) {
	events := make([]session.Event, 0, len(frames))
	for _, f := range frames {
		e, ok, err := f.Event()
		if err != nil {
			return nil, err
		}
		if ok {
			events = append(events, e)
		}
	}
	return events, nil
}

// extend adds frames to the log. The states fold what was read back from the
// frames, so they share nothing with the writer and are what a reader would fold.
func (l *log) extend(frames []session.Frame) error {
	forWhole, err := decode(frames)
	if err != nil {
		return err
	}
	forLean, err := decode(frames)
	if err != nil {
		return err
	}
	for i := range frames {
		l.whole.Apply(forWhole[i])
		l.lean.Apply(forLean[i])
	}
	for _, a := range l.whole.TakeChanges().Decided {
		l.approvals[a.ID] = clone(a)
	}
	l.lean.TakeChanges()
	l.lean.Shed()
	l.frames = append(l.frames, frames...)
	return nil
}

// Read gives the frames after seq after.
func (s *Store) Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error) {
	l, unlock, err := s.enterLog(ctx, "Read", id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if limit <= 0 {
		limit = readFrames
	}
	start, _ := slices.BinarySearchFunc(l.frames, after+1, func(f session.Frame, seq int64) int { return cmp.Compare(f.To, seq) })
	var frames []session.Frame
	size := 0
	for _, f := range l.frames[start:] {
		if len(frames) == limit || len(frames) > 0 && size+len(f.JSON) > readBytes {
			break
		}
		if f.From <= after { // after lies inside a folded range
			f = session.FoldedFrame(id, after+1, f.To, into(f))
		}
		frames = append(frames, f)
		size += len(f.JSON)
	}
	return frames, nil
}

// into is the message of a folded frame.
func into(f session.Frame) string {
	var folded session.Folded
	if err := json.Unmarshal(f.JSON, &folded); err != nil {
		panic(err) // this package wrote it
	}
	return folded.Into
}

// Head is the seq of the last event.
func (s *Store) Head(ctx context.Context, id string) (int64, error) {
	l, unlock, err := s.enterLog(ctx, "Head", id)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return l.head(), nil
}

// Messages gives messages with their parts.
func (s *Store) Messages(ctx context.Context, id string, messages []string) ([]session.Message, error) {
	l, unlock, err := s.enterLog(ctx, "Messages", id)
	if err != nil {
		return nil, err
	}
	defer unlock()
	found := []session.Message{}
	for _, m := range messages {
		if m := l.whole.Message(m); m != nil {
			found = append(found, clone(*m))
		}
	}
	return found, nil
}

// Fold replaces the deltas of runs that ended before the given time by folded ranges.
func (s *Store) Fold(ctx context.Context, before time.Time) (int64, error) {
	unlock, err := s.enter(ctx, "Fold")
	if err != nil {
		return 0, err
	}
	defer unlock()
	var dropped int64
	sessions := 0
	for _, id := range slices.Sorted(maps.Keys(s.logs)) {
		n, err := s.logs[id].fold(before)
		if err != nil {
			return dropped, err
		}
		if n == 0 {
			continue
		}
		dropped += n
		if sessions++; sessions == foldSessions {
			break
		}
	}
	return dropped, nil
}

func (l *log) fold(before time.Time) (dropped int64, err error) {
	var kept []session.Frame
	last := "" // the message of the folded range that this call is extending
	for _, f := range l.frames {
		e, ok, err := f.Event()
		if err != nil {
			return 0, err
		}
		run := l.whole.Run(e.Run)
		if !ok || !session.IsDelta(e.Data) || run == nil || run.FinishedAt == nil || !run.FinishedAt.Before(before) {
			kept, last = append(kept, f), ""
			continue
		}
		dropped++
		m := deltaMessage(e.Data)
		if n := len(kept) - 1; last == m && last != "" {
			kept[n] = session.FoldedFrame(l.id, kept[n].From, f.To, m)
			continue
		}
		kept, last = append(kept, session.FoldedFrame(l.id, f.From, f.To, m)), m
	}
	l.frames = kept
	return dropped, nil
}

// deltaMessage is the message that holds what a delta says.
func deltaMessage(d session.Data) string {
	switch d := d.(type) {
	case session.TextDelta:
		return d.Message
	case session.ReasoningDelta:
		return d.Message
	case session.ToolInputDelta:
		return d.Message
	case session.ToolProgress:
		return d.Message
	}
	return ""
}

// clone is a deep copy by way of JSON, so that no caller holds what the store does.
func clone[T any](v T) T {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	var c T
	err := enc.Encode(v)
	if err == nil {
		err = json.Unmarshal(raw.Bytes(), &c)
	}
	if err != nil {
		panic(err) // everything here came from JSON
	}
	return c
}
