package engine

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	// maxPictures bounds the pictures of tools that a model sees in one call: the
	// newest. maxPicture bounds one, in bytes: no provider takes larger ones.
	maxPictures = 16
	maxPicture  = 3_750_000
)

// pictureTypes are those that every provider takes.
var pictureTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// see is what the model is shown for a call, compacted before if it has grown
// too large, with what it takes to say later what it was. told is the number
// of events that deliver what a person says to the run before this call.
func (k *carry) see(ctx context.Context, n agent.CallModel) (seen agent.Seen, facts session.StepContext, told int, err error) {
	for {
		var at outlook
		var measured session.Measure
		refused := false
		err := k.look(ctx, func(s *session.State, run *session.Run) error {
			at = outlookOf(s, run.Message, n.Step, s.Compaction)
			steers := s.DeliverSteers(run)
			told = len(steers)
			at.add(steers)
			measured = s.Measures[run.Agent]
			last := len(run.Steps) - 1
			refused = last >= 0 && run.Steps[last].Step == n.Step && run.Steps[last].Error != nil &&
				run.Steps[last].Error.Code == string(model.CodeContextTooLong)
			return nil
		})
		if err != nil {
			return seen, facts, 0, err
		}
		view, err := at.view(ctx, k.Store, k.lease.Session, false)
		if err != nil {
			return seen, facts, 0, err
		}
		budget := k.agent.Budget(at.window(), measured)
		view.Room = budget.Room
		// Once a call: what one compaction cannot do, another cannot either.
		draft := k.agent.Draft(view)
		if c := at.compaction; c == nil || c.Run != k.lease.Run || c.Step != n.Step || c.Attempt != n.Attempt {
			done, err := k.compact(ctx, n, at, view, draft, budget, refused)
			if err != nil {
				return seen, facts, 0, err
			}
			if done {
				continue
			}
		}
		seen = draft.See()
		facts = session.StepContext{
			Tokens: budget.Tokens(seen.Counted), Counted: seen.Counted, Window: budget.Window, Room: budget.Room, Agent: k.agent.Digest(),
		}
		if at.compaction != nil {
			facts.Compaction = at.compaction.Seq
		}
		return seen, facts, told, nil
	}
}

// outlook is what of a session a model call is shown, by its places in the log.
type outlook struct {
	path       []string // the branch
	needed     int      // where on it what is shown begins
	message    string
	step       int
	compaction *session.Compaction // in force, or nil
	added      []session.Message   // what follows the path once it is delivered
}

// add goes on with what a person says to the run before the call, and with the
// message that answers it.
func (at *outlook) add(steers []session.Event) {
	for _, e := range steers {
		if d, ok := e.Data.(session.MessageCreated); ok {
			at.added, at.message = append(at.added, d.Message), d.Message.ID
		}
	}
}

func outlookOf(s *session.State, message string, step int, inForce func(path []string) *session.Compaction) outlook {
	at := outlook{path: s.Path(message), message: message, step: step}
	at.compaction = inForce(at.path)
	if at.compaction != nil && at.compaction.UpTo != nil {
		at.needed = slices.Index(at.path, at.compaction.UpTo.Message)
		// What a person said before the first step that is shown is shown too.
		for _, role := range []session.Role{session.RoleAssistant, session.RoleUser} {
			for at.needed > 0 && s.Message(at.path[at.needed]).Role == role {
				at.needed--
			}
		}
	}
	return at
}

func (at outlook) window() int {
	if at.compaction == nil {
		return 0
	}
	return at.compaction.Window
}

// view reads it; with all, what is not shown any more as well.
func (at outlook) view(ctx context.Context, s store.Store, id string, all bool) (agent.View, error) {
	v := agent.View{Message: at.message, Step: at.step}
	path := at.path
	if !all {
		path = path[at.needed:]
	}
	var err error
	if v.Branch, err = s.Messages(ctx, id, path); err != nil {
		return v, err
	}
	if last := len(v.Branch) - 1; len(at.added) > 0 && last >= 0 {
		// A try of this step that failed has no part in the message before.
		v.Branch[last].Parts = slices.DeleteFunc(slices.Clone(v.Branch[last].Parts), func(p session.Part) bool { return p.Step >= at.step })
		for _, m := range at.added {
			m.Parts = slices.Clone(m.Parts)
			v.Branch = append(v.Branch, m)
		}
	}
	u := unpacker{store: s, session: id, pictures: maxPictures}
	for i := range slices.Backward(v.Branch) { // the newest pictures first
		if err := u.unpack(ctx, &v.Branch[i]); err != nil {
			return v, err
		}
	}
	if at.compaction != nil {
		v.Compaction, err = ReadCompaction(ctx, s, id, at.compaction.Seq)
	}
	return v, err
}

// ReadCompaction reads the compaction at seq of a session.
func ReadCompaction(ctx context.Context, s store.Store, id string, seq int64) (*session.ContextCompacted, error) {
	frames, err := s.Read(ctx, id, seq-1, 1)
	if err != nil {
		return nil, err
	}
	if len(frames) > 0 {
		e, _, err := frames[0].Event()
		if err != nil {
			return nil, err
		}
		if d, ok := e.Data.(session.ContextCompacted); ok {
			return &d, nil
		}
	}
	return nil, fmt.Errorf("event %d of session %s is no compaction", seq, id)
}

// unpacker puts large values back into messages.
type unpacker struct {
	store    store.Store
	session  string
	pictures int // of tools that are still to be shown
}

// unpack puts the large values that the model must see whole back into a message.
func (u *unpacker) unpack(ctx context.Context, m *session.Message) error {
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Blob != nil && (p.Type == session.PartText || p.Type == session.PartReasoning) {
			raw, err := readBlob(ctx, u.store, u.session, p.Blob)
			if err != nil {
				return err
			}
			p.Text = string(raw)
		}
		if f := p.File; f != nil && f.Blob != nil && f.URL == "" {
			raw, err := readBlob(ctx, u.store, u.session, f.Blob)
			if err != nil {
				return err
			}
			p.File = withContent(*f, raw)
		}
		if t := p.Tool; t != nil && t.ArgumentsBlob != nil && t.Arguments == nil {
			raw, err := readBlob(ctx, u.store, u.session, t.ArgumentsBlob)
			if err != nil {
				return err
			}
			t.Arguments = raw
		}
	}
	return u.unpackPictures(ctx, m)
}

func withContent(f session.File, raw []byte) *session.File {
	f.URL = "data:" + f.MediaType + ";base64," + base64.StdEncoding.EncodeToString(raw)
	return &f
}

// unpackPictures puts the pictures that tools gave back into a message, as many
// as are left; others the model knows by the text of their result.
func (u *unpacker) unpackPictures(ctx context.Context, m *session.Message) error {
	for i := range slices.Backward(m.Parts) {
		t := m.Parts[i].Tool
		if t == nil || len(t.Files) == 0 {
			continue
		}
		t.Files = slices.Clone(t.Files)
		for j := range t.Files {
			f := &t.Files[j]
			if u.pictures == 0 || f.Blob == nil || f.Blob.Size > maxPicture || !slices.Contains(pictureTypes, f.MediaType) {
				continue
			}
			raw, err := readBlob(ctx, u.store, u.session, f.Blob)
			if errors.Is(err, store.ErrNotFound) { // no run should die for a picture
				continue
			}
			if err != nil {
				return err
			}
			u.pictures--
			*f = *withContent(*f, raw)
		}
	}
	return nil
}

func readBlob(ctx context.Context, s store.Store, id string, b *session.Blob) ([]byte, error) {
	_, r, err := s.Blob(ctx, id, b.Hash)
	if err != nil {
		return nil, fmt.Errorf("blob %s: %w", b.Hash, err)
	}
	defer r.Close()
	return io.ReadAll(r)
}

// Recalled is what a model call was shown, as the log has it.
type Recalled struct {
	agent.Seen
	// Compaction is the one that was in force, and At its place in the log, or nil.
	Compaction *session.ContextCompacted
	At         *session.Compaction
	// Inexact says why it may have been otherwise. Empty: it was exactly so.
	Inexact string
}

// Recall gives again what an attempt of a step of a run was shown. What came
// later has no part in it, but for the agent, whose instructions and tools are
// those of today.
func Recall(ctx context.Context, s store.Store, agents *agent.Book, run session.Run, step session.Step) (Recalled, error) {
	var at outlook
	var facts session.StepContext
	if step.Context != nil {
		facts = *step.Context
	}
	err := s.View(ctx, run.Session, func(state *session.State) {
		at = outlookOf(state, step.Message, step.Step, func([]string) *session.Compaction {
			i := slices.IndexFunc(state.Compactions, func(c session.Compaction) bool { return c.Seq == facts.Compaction })
			if i < 0 {
				return nil
			}
			c := state.Compactions[i]
			return &c
		})
	})
	if err != nil {
		return Recalled{}, err
	}
	view, err := at.view(ctx, s, run.Session, false)
	if err != nil {
		return Recalled{}, err
	}
	view.Room = facts.Room
	a, known := agents.Find(run.Agent)
	recalled := Recalled{Seen: a.See(view), Compaction: view.Compaction, At: at.compaction}
	switch {
	case step.Context == nil:
		recalled.Inexact = "the step was made before contexts were recorded"
	case !known:
		recalled.Inexact = "the agent is not configured any more: its instructions and tools are not known"
	case facts.Agent != a.Digest():
		recalled.Inexact = "the agent's model, instructions or tools have changed since"
	}
	return recalled, nil
}
