package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// What a fork may copy: so many messages, and so many bytes of their parts.
const (
	maxForkMessages = 5_000
	maxForkBytes    = 32 << 20
)

// Forking says what a fork is.
type Forking struct {
	// ID of the new session may be chosen by the client; the same again gives the same fork. Empty: a fresh id.
	ID string
	// Message is the last one that is copied.
	Message string
}

// Fork begins a new session with a copy of the branch of a session up to a
// message, blobs included: nothing of the copy is lost when the session is deleted.
// Runs, the inbox and other branches are not copied. Errors: store.ErrNotFound,
// *session.Error (not_found, run_active while a message of the branch is being
// written, message_conflict when the id is taken, invalid).
func (r *Runtime) Fork(ctx context.Context, p Principal, id string, f Forking) (Done[Session], error) {
	switch {
	case f.ID == "":
		f.ID = session.NewID(session.SessionPrefix)
	case !session.ValidID(f.ID):
		return Done[Session]{}, invalid("id", "a session id has 1 to 128 letters, digits, \"_\" or \"-\"")
	}
	c := session.Fork{From: session.Origin{Session: id, Message: f.Message}, Tenant: p.Tenant, Owner: p.Owner}
	var taken error
	err := r.store.View(ctx, f.ID, func(s *session.State) { taken = c.Taken(s) })
	if err = cmp.Or(taken, err); err != nil && !errors.Is(err, store.ErrNotFound) {
		return Done[Session]{}, err
	}
	if err != nil { // the first time: later what it was made from may be gone
		if c, err = r.copied(ctx, p, c); err != nil {
			return Done[Session]{}, err
		}
		if err := r.copyBlobs(ctx, id, f.ID, c.Messages); err != nil {
			return Done[Session]{}, err
		}
	}
	done, err := r.store.Append(ctx, f.ID, c.Decide)
	if err != nil {
		return Done[Session]{}, err
	}
	return answer(done, func() (Session, error) { return r.Session(ctx, p, f.ID) })
}

// copied reads what a fork copies.
func (r *Runtime) copied(ctx context.Context, p Principal, c session.Fork) (session.Fork, error) {
	var path []string
	err := r.view(ctx, p, c.From.Session, func(s *session.State) error {
		if s.Message(c.From.Message) == nil {
			return &session.Error{Code: session.NotFound, Field: "message", Message: fmt.Sprintf("there is no message %q", c.From.Message)}
		}
		path = s.Path(c.From.Message)
		if len(path) > maxForkMessages {
			return invalid("message", fmt.Sprintf("%d messages lead there; a fork copies at most %d", len(path), maxForkMessages))
		}
		for _, mid := range path {
			if m := s.Message(mid); m.Status == session.MessageStreaming {
				refused := &session.Error{
					Code: session.RunActive, Field: "message",
					Message: fmt.Sprintf("the message %s is still being written: fork when its run has ended", mid),
				}
				if run := s.Run(m.Run); run != nil {
					now := cloneRun(run)
					refused.Run = &now
				}
				return refused
			}
		}
		c.Agent, c.Title = s.Agent, session.TrimText(s.Title, 480)+" (fork)"
		return nil
	})
	if err != nil {
		return c, err
	}
	if c.Messages, err = r.store.Messages(ctx, c.From.Session, path); err != nil {
		return c, err
	}
	size := 0
	for i := range c.Messages {
		size += len(session.MarshalParts(c.Messages[i].Parts))
	}
	if size > maxForkBytes {
		return c, invalid("message", fmt.Sprintf("the messages that lead there have %d bytes; a fork copies at most %d", size, maxForkBytes))
	}
	return c, nil
}

// copyBlobs copies the large values of messages from one session to another.
func (r *Runtime) copyBlobs(ctx context.Context, from, to string, messages []session.Message) error {
	for i := range messages {
		for b := range messages[i].Blobs() {
			_, content, err := r.store.Blob(ctx, from, b.Hash)
			if errors.Is(err, store.ErrNotFound) { // lost already: the copy is no worse
				continue
			}
			if err != nil {
				return err
			}
			_, err = r.store.PutBlob(ctx, to, b.MediaType, content)
			_ = content.Close()
			if err != nil {
				return err
			}
		}
	}
	return nil
}
