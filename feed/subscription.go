package feed

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-run/holdfast/store"
)

// subscription is one thing that a socket follows. Its goroutine waits for
// news without holding any, and writes them when it has the socket's turn.
type subscription struct {
	key    string // the session, or "" for the list
	cancel context.CancelFunc
	done   chan struct{} // closed when it writes nothing more
}

func (s *socket) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.subs) >= SubscriptionsMost
}

// drop ends a subscription, if there is one: nothing of it is written afterwards.
func (s *socket) drop(key string) {
	s.mu.Lock()
	sub := s.subs[key]
	s.mu.Unlock()
	if sub != nil {
		sub.cancel()
		<-sub.done
	}
}

// begin runs a subscription until follow returns, and tells the client if that was a failure.
func (s *socket) begin(key string, follow func(context.Context) error) {
	ctx, cancel := context.WithCancel(s.ctx)
	sub := &subscription{key: key, cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	s.subs[key] = sub
	s.mu.Unlock()
	s.work.Go(func() {
		defer close(sub.done)
		defer cancel()
		if err := follow(ctx); ctx.Err() == nil {
			s.ended(ctx, key, err)
		}
		s.mu.Lock()
		delete(s.subs, key)
		s.mu.Unlock()
	})
}

// ended says why a subscription has ended. Who is closing says goodbye himself.
func (s *socket) ended(ctx context.Context, key string, err error) {
	switch {
	case errors.Is(err, ErrClosing), errors.Is(err, errSlow), errors.Is(err, errWrite):
		return
	case key != "" && errors.Is(err, store.ErrNotFound):
		err = s.say(ctx, control{Type: "deleted", Session: key})
	default:
		err = s.refuse(ctx, request{Session: key, Sessions: key == ""}, err)
	}
	if err != nil && ctx.Err() == nil {
		s.hub.opts.Log.Debug("could not end a subscription", slog.String("session", key), slog.Any("error", err))
	}
}

// refuse answers a subscription that cannot be, or cannot go on.
func (s *socket) refuse(ctx context.Context, req request, err error) error {
	refusal := control{Type: "error", ID: req.ID, Session: req.Session}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, store.ErrNotFound):
		refusal.Code, refusal.Detail = "not_found", "there is no such session"
	case errors.Is(err, ErrBehind):
		refusal.Code, refusal.Detail = "unavailable", "too many sessions changed: list them again"
	case errors.Is(err, ErrClosing):
		refusal.Code, refusal.Detail = "unavailable", "the server is shutting down"
	case errors.Is(err, store.ErrUnavailable), errors.Is(err, store.ErrClosed):
		refusal.Code, refusal.Detail = "unavailable", "the store cannot be reached"
		s.hub.opts.Log.Warn("subscription broke off", slog.String("session", req.Session), slog.Any("error", err))
	default:
		refusal.Code, refusal.Detail = "internal", "a fault of ours, which is logged"
		s.hub.opts.Log.Error("subscription broke off", slog.String("session", req.Session), slog.Any("error", err))
	}
	return s.say(ctx, refusal)
}

// subscribe follows the log of a session.
func (s *socket) subscribe(req request) error {
	if err := s.opts.Allow(s.ctx, req.Session); err != nil {
		return s.refuse(s.ctx, req, err)
	}
	var ahead *AheadError
	reader, err := s.hub.Follow(s.ctx, req.Session, req.After)
	if errors.As(err, &ahead) {
		reader, err = s.hub.Follow(s.ctx, req.Session, 0)
	}
	if err != nil {
		return s.refuse(s.ctx, req, err)
	}
	cursor, head := reader.Cursor(), reader.head()
	err = s.say(s.ctx, control{Type: "subscribed", ID: req.ID, Session: req.Session, After: &cursor, Head: &head})
	if err != nil {
		reader.Close()
		return err
	}
	s.begin(req.Session, func(ctx context.Context) error { return s.follow(ctx, reader, ahead) })
	return nil
}

// follow writes what a reader has until it ends, from the start again if the
// cursor was ahead, or if the log is replaced. It closes the reader.
func (s *socket) follow(ctx context.Context, r *Reader, ahead *AheadError) error {
	defer func() { r.Close() }()
	for {
		if ahead != nil {
			if err := s.say(ctx, control{Type: "reset", Session: ahead.Session, Head: &ahead.Head}); err != nil {
				return err
			}
			ahead = nil
		}
		err := s.next(ctx, r)
		if errors.As(err, &ahead) {
			whole, err := s.hub.Follow(ctx, ahead.Session, 0)
			if err != nil {
				return err
			}
			r.Close()
			r = whole
		} else if err != nil {
			return err
		}
	}
}

// next waits for something after the reader's cursor and writes it.
func (s *socket) next(ctx context.Context, r *Reader) error {
	if err := r.await(ctx); err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	frames, err := r.take(ctx, messageBytes)
	if err != nil || len(frames) == 0 {
		return err
	}
	return s.events(r.topic.id, frames)
}

// subscribeList follows the list of sessions.
func (s *socket) subscribeList(req request) error {
	list, err := s.hub.FollowSessions(s.ctx, s.opts.Tenant, s.opts.Owner)
	if err != nil {
		return s.refuse(s.ctx, req, err)
	}
	if err := s.say(s.ctx, control{Type: "subscribed", ID: req.ID, Sessions: true}); err != nil {
		list.Close()
		return err
	}
	s.begin("", func(ctx context.Context) error { return s.followList(ctx, list) })
	return nil
}

// followList writes the changes of a list. It closes the list.
func (s *socket) followList(ctx context.Context, list *Sessions) error {
	defer list.Close()
	for {
		changes, err := list.Next(ctx)
		if err != nil {
			return err
		}
		message := struct {
			Type    string             `json:"type"`
			Upsert  []store.SessionRow `json:"upsert"`
			Removed []string           `json:"removed"`
		}{"sessions", []store.SessionRow{}, []string{}}
		for _, c := range changes {
			if c.Row != nil {
				message.Upsert = append(message.Upsert, *c.Row)
			} else {
				message.Removed = append(message.Removed, c.Deleted)
			}
		}
		if err := s.take(ctx); err != nil {
			return err
		}
		err = s.write(line(message))
		s.give()
		if err != nil {
			return err
		}
	}
}
