package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// The routes of the AI SDK: what an unmodified useChat asks, with /api/chat as its
// only setting. A chat is a session, and everything it shows is told from the
// session's log by package aisdk; docs/aisdk.md is for its users.

func (s *Server) routeChat() {
	handle(s, route{
		id: "listChats", method: http.MethodGet, path: "/api/chat", summary: "For the AI SDK: list chats, which are sessions, the last changed first",
	}, s.listSessions)
	handle(s, route{
		id: "getChat", method: http.MethodGet, path: "/api/chat/{id}", summary: "For the AI SDK: a chat's messages, as useChat wants them to begin with",
	}, s.getChat)
	handle(s, route{
		id: "getChatMessages", method: http.MethodGet, path: "/api/chat/{id}/messages", summary: "For the AI SDK: the same as /api/chat/{id}",
	}, s.getChat)
	handle(s, route{
		id: "deleteChat", method: http.MethodDelete, path: "/api/chat/{id}", status: http.StatusNoContent,
		summary: "For the AI SDK: delete a chat and all that is in it",
	}, s.deleteSession)
	for pattern, serve := range map[string]func(http.ResponseWriter, *http.Request) error{
		"POST /api/chat":            s.postChat,
		"GET /api/chat/{id}/stream": s.resumeChat,
		"POST /api/chat/{id}/stop":  s.stopChat,
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := serve(w, r); err != nil {
				s.refuseChat(w, r, err)
			}
		})
	}
}

// refuseChat tells a problem in one sentence, since that is what a page shows
// of it, unless the request accepts JSON.
func (s *Server) refuseChat(w http.ResponseWriter, r *http.Request, err error) {
	p := s.problem(r.Context(), err)
	if strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "json") {
		s.refuse(w, r, p)
		return
	}
	dontRead(w, r)
	header := w.Header()
	for name, values := range p.GetHeaders() {
		header[name] = values
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, p.Detail) // an error here is the client's absence
}

type getChat struct {
	InSession
	Limit   int    `query:"limit" minimum:"1" maximum:"500" doc:"how many messages at most; default: 500"`
	Profile string `header:"X-Aisdk-Profile" doc:"what the client takes: safe (default), v5 or v7"`
}

// getChat gives the messages of a chat. One that nobody has written in has none.
func (s *Server) getChat(ctx context.Context, p holdfast.Principal, in *getChat) (*reply[api.Chat], error) {
	limit := in.Limit
	if limit == 0 {
		limit = 500
	}
	out := api.Chat{ID: in.ID, Messages: []aisdk.Message{}}
	snap, err := s.rt.Snapshot(ctx, p, in.ID, limit)
	if isMissing(err) {
		return ok(out), nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.unpack(ctx, p, in.ID, snap.Messages); err != nil {
		return nil, err
	}
	profile := aisdk.ProfileOf(in.Profile)
	out.HasMore = snap.HasMore
	out.Messages = aisdk.History(aisdk.Past{
		Messages: snap.Messages, Runs: snap.Runs, Pending: snap.Approvals, Profile: profile,
		Blobs: s.blobsOf(ctx, p, in.ID),
	})
	// What the page will ask to resume, and what it has now.
	if run := writing(snap, profile); run != nil {
		out.ActiveStreamID = run.ID
		s.debts.owe(run.Message, byHistory)
	} else if n := len(snap.Messages); n > 0 {
		s.debts.served(snap.Messages[n-1].ID)
	}
	return ok(out), nil
}

// writing is the run that writes an answer which the history leaves out, or nil.
func writing(snap holdfast.Snapshot, profile aisdk.Profile) *session.Run {
	for i := range snap.Runs {
		run := &snap.Runs[i]
		if run.ID != snap.Session.Run {
			continue
		}
		pending := 0
		for _, a := range snap.Approvals {
			if a.Run == run.ID {
				pending++
			}
		}
		if profile != aisdk.V5 && aisdk.WaitsForPerson(run, pending) {
			return nil
		}
		return run
	}
	return nil
}

// unpack puts the large texts and arguments of messages back into them.
func (s *Server) unpack(ctx context.Context, p holdfast.Principal, id string, messages []session.Message) error {
	read := s.blobsOf(ctx, p, id).Read
	for _, m := range messages {
		for i := range m.Parts {
			part := &m.Parts[i]
			if part.Blob != nil && (part.Type == session.PartText || part.Type == session.PartReasoning) {
				raw, err := read(*part.Blob)
				if err != nil {
					return err
				}
				part.Text = string(raw)
			}
			if t := part.Tool; t != nil && t.ArgumentsBlob != nil && t.Arguments == nil {
				raw, err := read(*t.ArgumentsBlob)
				if err != nil {
					return err
				}
				t.Arguments = raw
			}
		}
	}
	return nil
}

// blobsOf are the large values of a chat.
func (s *Server) blobsOf(ctx context.Context, p holdfast.Principal, id string) aisdk.Blobs {
	return aisdk.Blobs{
		Read: func(b session.Blob) ([]byte, error) {
			_, content, err := s.rt.Blob(ctx, p, id, b.Hash)
			if err != nil {
				return nil, fmt.Errorf("read blob %s of session %s: %w", b.Hash, id, err)
			}
			defer content.Close()
			return io.ReadAll(content)
		},
		URL: func(b session.Blob) string { return blobURL(id, b.Hash) },
	}
}

// stopChat cancels the active run of a chat, unless the request means another
// one: a page sends it without waiting, so it may arrive when the next answer has begun.
func (s *Server) stopChat(w http.ResponseWriter, r *http.Request) error {
	p, id, err := s.chatOf(r)
	if err != nil {
		return err
	}
	body, done, err := s.bounded(w, r, maxChat)
	if err != nil {
		return err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return s.unreadable(err, maxChat)
	}
	done()
	var meant struct {
		AssistantMessage *struct{ ID string } `json:"assistantMessage"`
		ActiveStreamID   *string              `json:"activeStreamId"`
	}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &meant); err != nil {
			return newProblem(api.Malformed, "the body is not JSON")
		}
	}
	var run string
	var after int64
	err = s.rt.Look(r.Context(), p, id, func(state *session.State) error {
		after = state.Seq
		active := state.Active()
		switch {
		case active == nil:
		case meant.ActiveStreamID != nil && aisdk.RunOf(*meant.ActiveStreamID) != active.ID:
		case meant.AssistantMessage != nil && meant.AssistantMessage.ID != "" && meant.AssistantMessage.ID != active.Message:
		default:
			run = active.ID
		}
		return nil
	})
	if err != nil && !isMissing(err) {
		return err
	}
	out := api.ChatStopped{Success: true, Stopped: run != ""}
	if run != "" {
		if err := s.stop(r.Context(), p, id, run, after); err != nil {
			return err
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	return encodeJSON(w, out)
}

// stop cancels a run and waits for its end, which comes within the grace
// period, so that what the page does next finds the chat idle.
func (s *Server) stop(ctx context.Context, p holdfast.Principal, id, run string, after int64) error {
	done, err := s.rt.Cancel(ctx, p, run, "stopped by the user")
	switch {
	case errors.Is(err, &session.Error{Code: session.RunTerminal}):
		return nil // it ended first
	case err != nil:
		return err
	case done.Is.Status.Terminal():
		return nil
	}
	reader, err := s.rt.Feed().Follow(ctx, id, after)
	if err != nil {
		return nil // the cancel is recorded, which is what was asked
	}
	defer reader.Close()
	for {
		frames, err := reader.Next(ctx)
		if err != nil {
			return nil // as above
		}
		for _, f := range frames {
			e, ok, err := f.Event()
			if err != nil || !ok || e.Run != run {
				continue
			}
			switch e.Data.(type) {
			case session.RunCompleted, session.RunFailed, session.RunCancelled:
				return nil
			}
		}
	}
}

// chatOf is who asks, and the chat in the path.
func (s *Server) chatOf(r *http.Request) (holdfast.Principal, string, error) {
	p, err := s.principal(r)
	if err != nil {
		return p, "", err
	}
	id := r.PathValue("id")
	if !session.ValidID(id) {
		return p, "", fieldProblem(api.InvalidID, "id", wrongID)
	}
	return p, id, nil
}
