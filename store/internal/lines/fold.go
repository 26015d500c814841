package lines

import (
	"fmt"

	"github.com/holdfast-run/holdfast/session"
)

// Fold drops the deltas of some runs of one session.
type Fold struct {
	Session string
	Runs    map[string]bool
}

// Rows gives the chunks that take the place of old ones, which follow each
// other, and how many deltas that drops.
func (f Fold) Rows(old []Chunk) (rows []Chunk, dropped int64, err error) {
	var frames []session.Frame
	into := "" // of the last frame, if it is a folded range
	for _, c := range old {
		err := c.Each(func(frame session.Frame) error {
			message, folds, err := f.folds(frame)
			if err != nil {
				return err
			}
			switch last := len(frames) - 1; {
			case !folds:
				frames, into = append(frames, frame), ""
				if frame.From != frame.To {
					into, err = foldedInto(frame)
				}
				return err
			case last >= 0 && into == message && message != "":
				frames[last] = session.FoldedFrame(f.Session, frames[last].From, frame.To, message)
			default:
				frames, into = append(frames, session.FoldedFrame(f.Session, frame.From, frame.To, message)), message
			}
			dropped++
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
	}
	chunks := make([]Chunk, len(frames))
	for i, f := range frames {
		chunks[i] = Chunk{First: f.From, Last: f.To, Body: f.JSON}
	}
	return Pack(chunks), dropped, nil
}

// folds says whether a frame is a delta to drop, and which message keeps its content.
func (f Fold) folds(frame session.Frame) (message string, folds bool, err error) {
	e, ok, err := frame.Event()
	if err != nil {
		return "", false, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !ok || !f.Runs[e.Run] {
		return "", false, nil
	}
	switch d := e.Data.(type) {
	case session.TextDelta:
		return d.Message, true, nil
	case session.ReasoningDelta:
		return d.Message, true, nil
	case session.ToolInputDelta:
		return d.Message, true, nil
	case session.ToolProgress:
		return d.Message, true, nil
	}
	return "", session.IsDelta(e.Data), nil
}
