package server

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/feed"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

// chatStream is an answer to be told: a view, and the place in the log to begin at.
type chatStream struct {
	session string
	view    aisdk.View
	after   int64
}

// streamOf is the stream of a run's message as it is at state. The message is the
// run's last one of those that there were at until.
func streamOf(state *session.State, run *session.Run, until int64) chatStream {
	out := chatStream{session: state.ID, after: state.Seq, view: aisdk.View{Run: run.ID, Message: run.Message, Until: until}}
	var first *session.Message
	for i := len(state.Messages) - 1; i >= 0; i-- {
		m := state.Messages[i]
		if m.Run == run.ID && m.Role == session.RoleAssistant {
			if first = m; m.Seq <= until {
				break
			}
		}
		if m.ID == run.Input { // its answers are behind it
			break
		}
	}
	if first != nil {
		out.view.Message, out.after = first.ID, first.Seq-1
	}
	return out
}

// streamNow is the stream of a run's message that begins now.
//
// When another process carries the run, nobody here knows whether it still does.
// So the view is one event longer than the log: what the attempt under way
// has said is told as soon as it goes on, and never if the next one replaces it.
func (s *Server) streamNow(state *session.State, run *session.Run) chatStream {
	out := streamOf(state, run, state.Seq)
	if run.Status == session.Running && !s.rt.Carries(run.ID) {
		out.view.Until++
	}
	return out
}

// resumeChat answers with an answer that is being written, from its beginning, or
// with 204 when there is none. The id in the path is a chat's or a stream's.
func (s *Server) resumeChat(w http.ResponseWriter, r *http.Request) error {
	p, err := s.principal(r)
	if err != nil {
		return err
	}
	index, from, err := startIndex(r)
	if err != nil {
		return err
	}
	profile := aisdk.ProfileOf(r.Header.Get(aisdk.ProfileHeader))
	stream, found, err := s.streamOfChat(r, p, index, profile)
	stream.view.Unsure = true
	if err == nil && !found && index {
		stream, found, err = s.streamOfName(r, p)
	}
	switch {
	case err != nil:
		return err
	case !found && index && from == 0: // a page is loaded, and its transport cannot take "nothing"
		sayNothing(w)
		return nil
	case !found && index:
		return missing()
	case !found:
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", eventStream)
		return nil
	}
	stream.view.Profile, stream.view.Index = profile, index
	if from < 0 {
		if from, err = s.fromEnd(w, r, p, stream, -from); err != nil {
			return err
		}
	}
	stream.view.Skip = from
	if err := s.streams.enter(); err != nil {
		return err
	}
	return s.serveChat(w, r, p, stream)
}

// sayNothing answers with a stream that is over and says nothing.
func sayNothing(w http.ResponseWriter) {
	header := w.Header()
	header.Set("Content-Type", eventStream)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	_, _ = io.WriteString(w, aisdk.Nothing) // an error here is the client's absence
}

// startIndex is the place that a WorkflowChatTransport resumes at. Below 0 counts from the end.
func startIndex(r *http.Request) (given bool, n int, err error) {
	values, given := r.URL.Query()["startIndex"]
	if !given {
		return false, 0, nil
	}
	n, err = strconv.Atoi(values[0])
	if err != nil || len(values) > 1 || n > feed.MaxCursor || n < -feed.MaxCursor {
		return true, 0, fieldProblem(api.InvalidCursor, "startIndex", "expected one number")
	}
	return true, n, nil
}

// streamOfChat finds what a chat has to resume. A stream with an index is
// resumed even when it is over.
func (s *Server) streamOfChat(r *http.Request, p holdfast.Principal, index bool, profile aisdk.Profile) (out chatStream, found bool, err error) {
	id := r.PathValue("id")
	if !session.ValidID(id) {
		return out, false, nil
	}
	err = s.rt.Look(r.Context(), p, id, func(state *session.State) error {
		run := state.Active()
		over := run == nil
		if over {
			head := state.Message(state.Head)
			for head != nil && head.Background != nil { // what a background run has told since
				head = state.Message(head.Parent)
			}
			if head != nil && head.Role == session.RoleAssistant {
				run = state.Run(head.Run)
			}
		} else {
			over = profile != aisdk.V5 && aisdk.WaitsForPerson(run, pendingOf(state, run))
		}
		if run == nil {
			return nil
		}
		out = s.streamNow(state, run)
		found = !over || index || run.Status != session.Cancelled && s.debts.owes(out.view.Message)
		return nil
	})
	if isMissing(err) {
		return out, false, nil
	}
	return out, found, err
}

func pendingOf(state *session.State, run *session.Run) int {
	n := 0
	for _, a := range state.Approvals {
		if a.Run == run.ID && a.Status == session.StatusPending {
			n++
		}
	}
	return n
}

// streamOfName finds the stream that a WorkflowChatTransport got a part of.
func (s *Server) streamOfName(r *http.Request, p holdfast.Principal) (out chatStream, found bool, err error) {
	named, ok := aisdk.ParseID(r.PathValue("id"))
	if !ok {
		return out, false, nil
	}
	run, err := s.rt.FindRun(r.Context(), p, named.Run)
	if isMissing(err) {
		return out, false, nil
	}
	if err != nil {
		return out, false, err
	}
	err = s.rt.Look(r.Context(), p, run.Session, func(state *session.State) error {
		if known := state.Run(run.ID); known != nil {
			out, found = streamOf(state, known, named.Until), true
			out.view.Approval = named.Approval
		}
		return nil
	})
	return out, found, err
}

// fromEnd is the place of the n-th chunk from the end of what there is, moved
// back to where a step begins: a client cannot begin within a part.
func (s *Server) fromEnd(w http.ResponseWriter, r *http.Request, p holdfast.Principal, stream chatStream, n int) (int, error) {
	projector := aisdk.NewProjector(stream.view, s.blobsOf(r.Context(), p, stream.session))
	steps := []int{0}
	for after := stream.after; ; {
		page, err := s.rt.Feed().Page(r.Context(), stream.session, after, feed.PageMost, 0)
		if err != nil {
			return 0, err
		}
		for _, f := range page.Frames {
			before := projector.Count()
			chunks, err := projector.Apply(f)
			if err != nil {
				return 0, err
			}
			for i, c := range chunks {
				if c.BeginsStep() {
					steps = append(steps, before+i)
				}
			}
			after = f.To
		}
		if !page.More || len(page.Frames) == 0 {
			break
		}
	}
	at := 0
	for _, step := range steps {
		if step <= projector.Count()-n {
			at = step
		}
	}
	// The client takes this for the place of the last chunk, and n from there for
	// its own place: so it is told what makes that right.
	w.Header().Set("X-Workflow-Stream-Tail-Index", strconv.Itoa(at+n-1))
	return at, nil
}

// serveChat answers with a stream. It is counted in already, and counted out
// here. An error means that nothing has been sent.
//
// The connection stays with net/http: one that was taken over says that it will
// be closed, and then Node takes a cut for the end.
func (s *Server) serveChat(w http.ResponseWriter, r *http.Request, p holdfast.Principal, stream chatStream) (err error) {
	defer s.streams.leave()
	header := w.Header()
	header.Set("X-Vercel-Ai-Ui-Message-Stream", "v1")
	header.Set("X-Workflow-Run-Id", stream.view.ID())
	projector := aisdk.NewProjector(stream.view, s.blobsOf(r.Context(), p, stream.session))
	began := time.Now()
	defer func() { // also when the connection is broken off
		message := stream.view.Message
		switch {
		case err != nil: // nothing was sent
		case projector.End() != aisdk.Finished:
			s.debts.owe(message, byCut)
		case !stream.view.Index:
			s.debts.paid(message, began)
		}
	}()
	return s.rt.Feed().ServeTold(w, r, stream.session, stream.after, func(b []byte, f session.Frame) ([]byte, error) {
		chunks, err := projector.Apply(f)
		if err != nil {
			return b, err
		}
		for _, c := range chunks {
			b = c.AppendEvent(b)
		}
		switch projector.End() {
		case aisdk.Finished:
			return append(b, aisdk.DoneEvent...), io.EOF
		case aisdk.Superseded:
			return b, feed.ErrCut
		}
		return b, nil
	})
}

func isMissing(err error) bool { return errors.Is(err, store.ErrNotFound) }
