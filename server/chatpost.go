package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// maxChat bounds the body of a message, in bytes: a client sends all that it has, with the
// files in it. Only the last message is kept.
const maxChat = 32 << 20

// postChat takes what a page says, or decides, and answers with what comes of it.
func (s *Server) postChat(w http.ResponseWriter, r *http.Request) error {
	p, err := s.principal(r)
	if err != nil {
		return err
	}
	q, err := s.readChat(w, r)
	if err != nil {
		return err
	}
	// Before anything is done, so that what is refused was not done.
	if err := s.streams.enter(); err != nil {
		return err
	}
	stream, err := s.answerTo(r.Context(), p, q)
	if err != nil {
		s.streams.leave()
		return err
	}
	stream.view.Profile, stream.view.Index = aisdk.ProfileOf(r.Header.Get(aisdk.ProfileHeader)), true
	return s.serveChat(w, r, p, stream)
}

// readChat reads a request, whatever it says its media type is:
// WorkflowChatTransport says none.
func (s *Server) readChat(w http.ResponseWriter, r *http.Request) (aisdk.Request, error) {
	body, done, err := s.bounded(w, r, maxChat)
	if err != nil {
		return aisdk.Request{}, err
	}
	q, err := aisdk.ReadRequest(body)
	var broken *aisdk.SyntaxError
	switch {
	case errors.As(err, &broken):
		return q, newProblem(api.Malformed, "the body is no chat request: %v", broken)
	case err != nil:
		return q, s.unreadable(err, maxChat)
	}
	done()
	if q.Chat == "" && q.First != "" {
		q.Chat = "chat_" + q.First
	}
	switch {
	case !session.ValidID(q.Chat):
		return q, fieldProblem(api.InvalidID, "id", wrongID)
	case q.Last.Role == "":
		return q, fieldProblem(api.Invalid, "messages", "there is no message")
	}
	return q, nil
}

// answerTo does what a request asks for and gives the stream that answers it.
func (s *Server) answerTo(ctx context.Context, p holdfast.Principal, q aisdk.Request) (chatStream, error) {
	switch {
	case q.Goes():
		return s.goOn(ctx, p, q)
	case q.Last.Role != session.RoleUser:
		return chatStream{}, fieldProblem(api.Invalid, "messages", "the last message must be the user's")
	case q.Trigger == aisdk.Regenerate:
		return s.regenerate(ctx, p, q)
	}
	return s.say(ctx, p, q)
}

// said is what the log knows of a message that a client sends.
type said struct {
	exists bool
	known  bool             // its id was accepted
	newest *session.Message // its newest edit, or the message itself; without parts
	edits  int              // how often it was edited
	answer *session.Run     // the newest run on it
	active *session.Run     // of the chat
	asked  int              // questions that the active run waits with
}

// lookUp finds a message of a chat. A chat that does not exist knows none.
func (s *Server) lookUp(ctx context.Context, p holdfast.Principal, chat, id string) (out said, err error) {
	err = s.rt.Look(ctx, p, chat, func(state *session.State) error {
		out.exists = true
		_, out.known = state.Submissions[id]
		for _, m := range state.Messages {
			if m.Role == session.RoleUser && aisdk.UIMessageID(m.ID) == id {
				found := *m
				out.newest = &found
				out.edits++
			}
		}
		out.edits = max(0, out.edits-1)
		if out.newest != nil {
			for i := len(state.Runs) - 1; i >= 0 && out.answer == nil; i-- {
				if run := state.Runs[i]; run.Input == out.newest.ID && !run.Background {
					found := *run
					out.answer = &found
				}
			}
		}
		if active := state.Active(); active != nil {
			found := *active
			out.active, out.asked = &found, pendingOf(state, active)
		}
		return nil
	})
	if isMissing(err) {
		err = nil
	}
	return out, err
}

// say submits a message. An edited one becomes its sibling.
func (s *Server) say(ctx context.Context, p holdfast.Principal, q aisdk.Request) (chatStream, error) {
	m := holdfast.Submission{ID: q.Last.ID, Agent: q.Agent}
	if m.ID == "" {
		m.ID = session.NewID(session.MessagePrefix)
	}
	if !session.ValidID(m.ID) {
		return chatStream{}, fieldProblem(api.InvalidID, "messages.id", wrongID)
	}
	var err error
	if m.Parts, err = s.partsSaid(ctx, p, q); err != nil {
		return chatStream{}, err
	}
	known, err := s.lookUp(ctx, p, q.Chat, m.ID)
	if err != nil {
		return chatStream{}, err
	}
	if q.MessageID == m.ID && known.newest != nil {
		return s.edit(ctx, p, q, m, known)
	}
	if !known.known && known.active != nil && aisdk.WaitsForPerson(known.active, known.asked) {
		// Going on with something else is an answer to the question: no.
		if err := s.stop(ctx, p, q.Chat, known.active.ID, 0); err != nil {
			return chatStream{}, err
		}
	}
	return s.submit(ctx, p, q.Chat, m)
}

// edit submits another version of a message, in its place. What is being
// answered is of no use to the page any more.
func (s *Server) edit(ctx context.Context, p holdfast.Principal, q aisdk.Request, m holdfast.Submission, known said) (chatStream, error) {
	parent := known.newest.Parent
	m.Parent, m.OnBusy = &parent, session.Interrupt
	if known.edits > 0 && known.answer != nil && !known.answer.Status.Terminal() {
		// It may be the same edit, sent again.
		m.ID = known.newest.ID
		stream, err := s.submit(ctx, p, q.Chat, m)
		if !errors.Is(err, &session.Error{Code: session.Conflict}) {
			return stream, err
		}
	}
	m.ID = aisdk.EditedID(q.Last.ID, known.edits+1)
	if !session.ValidID(m.ID) {
		return chatStream{}, fieldProblem(api.InvalidID, "messageId", "this id is too long for a message that is edited")
	}
	return s.submit(ctx, p, q.Chat, m)
}

// submit gives the stream of the run that answers, from its beginning.
func (s *Server) submit(ctx context.Context, p holdfast.Principal, chat string, m holdfast.Submission) (chatStream, error) {
	done, err := s.rt.Submit(ctx, p, chat, m)
	if err != nil {
		return chatStream{}, err
	}
	if !done.Repeated {
		return chatStream{session: chat, after: done.Seq, view: aisdk.View{Run: done.Run.ID, Message: done.Run.Message}}, nil
	}
	return s.streamOfRun(ctx, p, chat, done.Run.ID)
}

// streamOfRun is what a run says, told from the beginning as it is now.
func (s *Server) streamOfRun(ctx context.Context, p holdfast.Principal, chat, run string) (out chatStream, err error) {
	err = s.rt.Look(ctx, p, chat, func(state *session.State) error {
		known := state.Run(run)
		if known == nil {
			return store.ErrNotFound
		}
		out = s.streamNow(state, known)
		return nil
	})
	return out, err
}

// regenerate asks for another answer to a message, beside the one there is. One that is being
// written is the other answer: the page did not have it to its end.
func (s *Server) regenerate(ctx context.Context, p holdfast.Principal, q aisdk.Request) (chatStream, error) {
	known, err := s.lookUp(ctx, p, q.Chat, q.Last.ID)
	if err != nil {
		return chatStream{}, err
	}
	switch run := known.answer; {
	case known.newest == nil: // what it answers never came here
		return s.say(ctx, p, q)
	case run == nil: // a steer has no run of its own
		m := holdfast.Submission{ID: q.Last.ID, Agent: q.Agent}
		if m.Parts, err = s.partsSaid(ctx, p, q); err != nil {
			return chatStream{}, err
		}
		return s.edit(ctx, p, q, m, known)
	case run.Status.Terminal():
	case aisdk.WaitsForPerson(run, known.asked):
		if err := s.stop(ctx, p, q.Chat, run.ID, 0); err != nil {
			return chatStream{}, err
		}
	default:
		return s.streamOfRun(ctx, p, q.Chat, run.ID)
	}
	done, err := s.rt.Retry(ctx, p, known.answer.ID, holdfast.Retrying{})
	if err != nil {
		return chatStream{}, err
	}
	return s.streamOfRun(ctx, p, q.Chat, done.Is.ID)
}

// goOn takes decisions on approvals, and gives what comes of the ones in the
// message that the page shows. Those that were made before are not made again.
func (s *Server) goOn(ctx context.Context, p holdfast.Principal, q aisdk.Request) (out chatStream, err error) {
	decisions := map[string]holdfast.Deciding{}
	for _, d := range q.Decisions {
		decision := session.Deny
		if d.Approved {
			decision = session.Approve
		}
		decisions[d.Approval] = holdfast.Deciding{Decision: decision, Note: session.TrimText(d.Reason, maxNote)}
	}
	// Before the decision, so that what it leads to is behind it.
	var seq int64
	if err := s.rt.Look(ctx, p, q.Chat, func(state *session.State) error { seq = state.Seq; return nil }); err != nil {
		return out, err
	}
	done, err := s.rt.DecideApprovals(ctx, p, q.Chat, decisions)
	if err != nil {
		return out, err
	}
	a, err := s.decidedOn(ctx, p, q, done.Is)
	if err != nil {
		return out, err
	}
	err = s.rt.Look(ctx, p, q.Chat, func(state *session.State) error {
		run, m := state.Run(a.Run), state.Message(a.Message)
		if run == nil || m == nil {
			return store.ErrNotFound
		}
		if done.Repeated {
			seq = state.Seq
		}
		out = chatStream{session: q.Chat, after: m.Seq - 1, view: aisdk.View{Run: run.ID, Message: m.ID, Until: seq, Approval: a.ID}}
		return nil
	})
	return out, err
}

const maxNote = 4000 // bytes of a decision's reason, as in POST /v1/approvals/{id}

// decidedOn is the approval whose decision the page waits for: one that was made
// now, or else the last in the message that goes on.
func (s *Server) decidedOn(ctx context.Context, p holdfast.Principal, q aisdk.Request, now []string) (session.Approval, error) {
	if len(now) > 0 {
		return s.rt.Approval(ctx, p, now[len(now)-1])
	}
	for i := len(q.Decisions) - 1; i >= 0; i-- {
		d := q.Decisions[i]
		if d.Message != q.Last.ID && d.Message != q.MessageID {
			continue
		}
		a, err := s.rt.Approval(ctx, p, d.Approval)
		if isMissing(err) || err == nil && (a.Session != q.Chat || a.Status == session.StatusPending) {
			continue
		}
		return a, err
	}
	return session.Approval{}, newProblem(api.Code(session.NotInInbox), "There is nothing to go on with: the last message is an answer, and none of its questions was answered.")
}

// partsSaid are the parts of the last message. A file that is kept here already
// comes as the URL that the history gave.
func (s *Server) partsSaid(ctx context.Context, p holdfast.Principal, q aisdk.Request) ([]session.Part, error) {
	parts, err := q.Last.SessionParts()
	if err != nil {
		return nil, newProblem(api.Invalid, "messages: %v", err)
	}
	size := 0
	for i := range parts {
		part := &parts[i]
		size += len(part.Text) + len(part.Data)
		if part.File == nil {
			continue
		}
		size += len(part.File.URL)
		if hash, kept := keptFile(part.File.URL, q.Chat); kept {
			meta, content, err := s.rt.Blob(ctx, p, q.Chat, hash)
			if err != nil {
				return nil, err
			}
			_ = content.Close()
			part.File.URL, part.File.Blob = "", &meta
		} else if !isFileURL(part.File.URL) {
			return nil, newProblem(api.Invalid, "messages: a file's url is an https:, http: or data: URL")
		}
	}
	if size > maxMessage {
		return nil, tooLarge(maxMessage)
	}
	return parts, nil
}

// keptFile is the hash in the URL of a large value of this chat.
func keptFile(url, chat string) (hash string, ok bool) {
	hash, ok = strings.CutPrefix(url, blobURL(chat, ""))
	return hash, ok && hashPattern.MatchString(hash)
}

// blobURL is where a page gets a large value of a session.
func blobURL(session, hash string) string { return "/v1/sessions/" + session + "/blobs/" + hash }
