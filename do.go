package holdfast

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// RunError says that a run did not complete.
type RunError struct{ Run session.Run }

// Error says how it ended.
func (e *RunError) Error() string {
	if f := e.Run.Error; e.Run.Status == session.Failed && f != nil {
		return fmt.Sprintf("run %s failed: %s (%s)", e.Run.ID, f.Message, f.Code)
	}
	return fmt.Sprintf("run %s was %s", e.Run.ID, e.Run.Status)
}

// Do submits a message and waits until the run that answers it has ended. It
// gives the answer: the last message that the run wrote. watch is told of each
// event of the run, in order; nil: nobody is. [Runtime.Run] must be running
// here or in another process of the store.
//
// When ctx ends first, the run goes on; Do with the same message waits for it
// again. Waiting for people counts as waiting. Errors: those of
// [Runtime.Submit], and a *[RunError] with what the answer says so far.
func (r *Runtime) Do(ctx context.Context, p Principal, id string, m Submission, watch func(session.Event)) (session.Message, error) {
	sub, err := r.Submit(ctx, p, id, m)
	if err != nil {
		return session.Message{}, err
	}
	target, after := sub.Run.ID, sub.Seq
	if sub.Repeated { // its run may have begun, and ended, long ago
		ended := false
		if target, after, ended, err = r.answering(ctx, p, id, m.ID); err != nil {
			return session.Message{}, err
		}
		if ended {
			return r.answerOf(ctx, p, target)
		}
	}
	reader, err := r.feed.Follow(ctx, id, after)
	if err != nil {
		return session.Message{}, err
	}
	defer reader.Close()
	for {
		frames, err := reader.Next(ctx)
		if err != nil {
			return session.Message{}, err
		}
		for _, f := range frames {
			e, ok, err := f.Event()
			if err != nil {
				return session.Message{}, err
			}
			if !ok || e.Run != target {
				continue
			}
			if watch != nil {
				watch(e)
			}
			switch e.Data.(type) {
			case session.RunCompleted, session.RunFailed, session.RunCancelled:
			default:
				continue
			}
			// A steer whose run ended first is answered by a run of its own.
			answers, _, _, err := r.answering(ctx, p, id, m.ID)
			if err != nil {
				return session.Message{}, err
			}
			if answers == target {
				return r.answerOf(ctx, p, target)
			}
			target = answers
		}
	}
}

// answering is the run that answers a message, and a seq before the run's end. ended
// says that there is none: the message was taken back, and its run ended with it.
func (r *Runtime) answering(ctx context.Context, p Principal, id, message string) (run string, after int64, ended bool, err error) {
	err = r.view(ctx, p, id, func(s *session.State) error {
		run, after = s.Submissions[message].Run, s.Seq
		if m := s.Message(message); m != nil {
			after = m.Seq // no run ends before the message that it answers is delivered
		} else if known := s.Run(run); known != nil {
			ended = known.Status.Terminal()
		}
		return nil
	})
	return run, after, ended, err
}

// answerOf is what a run that has ended said last.
func (r *Runtime) answerOf(ctx context.Context, p Principal, runID string) (session.Message, error) {
	run, err := r.FindRun(ctx, p, runID)
	if err != nil {
		return session.Message{}, err
	}
	messages, err := r.store.Messages(ctx, run.Session, []string{run.Message})
	if err != nil {
		return session.Message{}, err
	}
	if run.Status != session.Completed {
		err = &RunError{Run: run}
	} else if len(messages) == 0 {
		err = fmt.Errorf("message %s: %w", run.Message, store.ErrNotFound)
	}
	if len(messages) == 0 {
		return session.Message{}, err
	}
	return messages[0], err
}
