// Package store is where it is kept: a log per session, a lease per run, and
// the read models that follow from the log.
//
// There is one way to write: [Store.Append]. A store runs the command's rule on
// the session's state while it holds that session's order, gives the events
// their seqs, and writes events, read models and due work in one transaction.
// It answers when that is durable. Everything else reads, except leases and
// blobs, which are not part of any log.
package store

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/holdfast-run/holdfast/session"
)

// Store keeps sessions. Implementations are safe for concurrent use. Every
// method gives ErrClosed after Close, ErrUnavailable (wrapped, with the cause)
// when the backend cannot be reached or written, and the context's cause when
// ctx ends first; what an Append that was cut short has done is then unknown, and asking again is how
// to find out: commands are idempotent.
type Store interface {
	// Append runs decide on the session's state and makes its events the next of
	// the log. The state is the fold of the whole log; messages that can no
	// longer change have shed their parts. decide must not keep or change the
	// state, must not block, and may run more than once. An error of decide is
	// returned as it is and changes nothing. A session that does not exist has
	// the state of [session.New].
	//
	// Appends to one session are ordered; Commit tells of the committed events
	// in that order, before Append returns.
	Append(ctx context.Context, id string, decide session.Decide) (Appended, error)

	// View shows the committed state of a session to look, without a copy: look
	// must not keep or change it, and must not block. Messages that can no longer
	// change have shed their parts. ErrNotFound if the session does not exist.
	View(ctx context.Context, id string, look func(*session.State)) error

	// Read gives the frames of a log after seq after, oldest first: at most limit
	// frames (0 means 1000), and fewer when they are large. They join without
	// a hole from after+1; an empty answer means that the log ends at or before
	// after. A frame whose range contains after+1 begins there. ErrNotFound if the session does not exist.
	Read(ctx context.Context, id string, after int64, limit int) ([]session.Frame, error)

	// Head is the seq of the session's last committed event. ErrNotFound if the session does not exist.
	Head(ctx context.Context, id string) (int64, error)

	// Messages gives messages of a session with their parts, in the order asked
	// for; those that still stream have the parts of the last commit. Ids that are no messages of the session are left out.
	Messages(ctx context.Context, id string, messages []string) ([]session.Message, error)

	// Delete removes a session: its log, read models and leases. ErrNotFound if the session does not exist.
	Delete(ctx context.Context, id string) error

	Index
	Leases
	Blobs

	// Fold drops the deltas of runs that ended before the given time, a bounded
	// number of sessions a call, and says how many events it dropped: 0 when
	// nothing is left to drop. The ranges stay readable as folded frames. No
	// Commit tells of it.
	Fold(ctx context.Context, before time.Time) (dropped int64, err error)

	// Check reads everything of one session and says what contradicts itself:
	// holes in the seqs, read models that differ from the fold. No findings means sound.
	Check(ctx context.Context, id string) (findings []string, err error)

	// Ready is nil when the store can be written.
	Ready(ctx context.Context) error

	// Close ends everything. Appends under way are finished first.
	Close() error
}

// Exclusive is implemented by stores that one process owns alone: whatever
// another worker held when the store was opened, that worker is gone.
type Exclusive interface {
	Exclusive() bool
}

// Clock is implemented by stores whose clock is not this machine's: what all
// processes that share one agree on.
type Clock interface {
	Now() time.Time
}

// Appended says what an Append did.
type Appended struct {
	// First and Last are the seqs of the new events. With no events First is Last+1.
	First, Last int64
	Events      []session.Event
}

// Index is the read models over all sessions. Lists are newest first; pages
// follow Cursor, which is opaque. A cursor that no list gave is refused with a
// [session.Error] that has the code Invalid.
type Index interface {
	Sessions(ctx context.Context, q SessionQuery) (Page[SessionRow], error)
	Runs(ctx context.Context, q RunQuery) (Page[session.Run], error)
	Approvals(ctx context.Context, q ApprovalQuery) (Page[session.Approval], error)
	// Session, Run and Approval find one by id, or give ErrNotFound.
	Session(ctx context.Context, id string) (SessionRow, error)
	Run(ctx context.Context, id string) (session.Run, error)
	Approval(ctx context.Context, id string) (session.Approval, error)
}

// SessionRow is a session in a list.
type SessionRow struct {
	ID        string `json:"id"`
	Tenant    string `json:"-"`
	Owner     string `json:"-"`
	Title     string `json:"title"`
	Agent     string `json:"agent,omitempty"`
	Status    string `json:"status"`        // idle, or the status of its active run
	Run       string `json:"run,omitempty"` // the active run
	Approvals int    `json:"approvals"`     // pending
	Inbox     int    `json:"inbox"`
	Seq       int64  `json:"seq"` // of the last fact
	// Parent is the session whose tool call a subagent's session is for.
	Parent    string    `json:"parent,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

// RowOf is the row that a state makes.
func RowOf(s *session.State) SessionRow {
	row := SessionRow{
		ID: s.ID, Tenant: s.Tenant, Owner: s.Owner, Title: s.Title, Agent: s.Agent, Status: "idle",
		Inbox: len(s.Inbox), Seq: s.FactSeq, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	}
	if s.Parent != nil {
		row.Parent = s.Parent.Session
	}
	if run := s.Active(); run != nil {
		row.Status, row.Run = string(run.Status), run.ID
	}
	for _, a := range s.Approvals {
		if a.Status == session.StatusPending {
			row.Approvals++
		}
	}
	return row
}

// SessionQuery chooses sessions of one owner, the last changed first.
type SessionQuery struct {
	Tenant, Owner string
	Search        string // part of a title, case-insensitive
	Cursor        string
	Limit         int // default 50, at most 200
}

// RunQuery chooses runs of one owner, the last queued first.
type RunQuery struct {
	Tenant, Owner string
	Session       string
	Status        []session.Status
	Reason        session.WaitingReason
	Cursor        string
	Limit         int // default 50, at most 200
}

// ApprovalQuery chooses approvals of one owner, the last requested first.
type ApprovalQuery struct {
	Tenant, Owner string
	Session, Run  string
	Status        session.ApprovalStatus
	Cursor        string
	Limit         int // default 50, at most 200
}

// Page is one page of a list.
type Page[T any] struct {
	Items []T
	// Next is the cursor of the next page, empty at the end.
	Next string
}

// Leases is the right to carry runs. Times are the store's own clock.
type Leases interface {
	// Claim gives worker at most limit due runs, the longest due first, each
	// under a lease of ttl and a fence higher than any before. run.started or run.resumed is appended in
	// the same transaction. No due run: an empty answer.
	Claim(ctx context.Context, worker string, ttl time.Duration, limit int) ([]Lease, error)
	// Due gives runs that Claim would give now and would have given age ago, the longest due first, at most limit.
	Due(ctx context.Context, age time.Duration, limit int) ([]Due, error)
	// ClaimRun is Claim for one run. A run that is not due, or not there, is
	// refused with a [session.Error] that has the code NotDue or NotFound.
	ClaimRun(ctx context.Context, due Due, worker string, ttl time.Duration) (Lease, error)
	// Renew extends a lease by ttl from now, also a lease that ended and was not
	// reconciled yet. ErrLeaseLost means someone else holds the run now, or it has
	// ended: stop at once, write nothing more.
	Renew(ctx context.Context, lease Lease, ttl time.Duration) (Lease, error)
	// Expired gives leases that ended without being renewed, at most limit. They stay until Reconcile is appended.
	Expired(ctx context.Context, limit int) ([]Lease, error)
	// Held gives leases of other workers than this one, expired or not: what a
	// process that owns the store alone finds after a crash.
	Held(ctx context.Context, except string, limit int) ([]Lease, error)
	// Overdue gives runs whose cancel passed its deadline, at most limit.
	Overdue(ctx context.Context, limit int) ([]Due, error)
	// NextDue is the earliest time at which Claim, Expired or Overdue will have something that they do not
	// have now. The zero time: nothing is foreseen.
	NextDue(ctx context.Context) (time.Time, error)
}

// Lease is the right to carry one run until a time. It is a value: every write names its Fence.
type Lease struct {
	Session, Run string
	Worker       string
	Fence        int64
	Until        time.Time
}

// Due names a run that wants attention.
type Due struct {
	Session, Run string
}

// Blobs keeps large values by the hash of their content.
type Blobs interface {
	// PutBlob keeps a value for a session, once however often it is put.
	PutBlob(ctx context.Context, id string, mediaType string, content io.Reader) (session.Blob, error)
	// Blob gives a value that was put for this session, or ErrNotFound. The caller closes it.
	Blob(ctx context.Context, id, hash string) (session.Blob, io.ReadCloser, error)
}

// Commit is what a store tells after each transaction, a session at a time.
type Commit struct {
	Session string
	Frames  []session.Frame
	Events  []session.Event
	// Work lists the runs whose claim to attention changed.
	Work []RunWork
	// Row is the session's row if a fact was among the events, and its last row if
	// it was deleted, so that whoever follows its owner's list can be told.
	Row *SessionRow
	// Deleted says that the session is gone.
	Deleted bool
	// Elsewhere says that another process has committed it, some time ago.
	Elsewhere bool
}

// RunWork is what a run asks of the engine now.
type RunWork struct {
	Run    string
	Work   session.Work
	Cancel bool // a cancel is recorded and the run is still held
}

// Options are common to the backends.
type Options struct {
	// OnCommit is told of every transaction, in order within a session, before
	// the Append that made it returns. A store that several processes share tells
	// of what others have committed too, if it comes across that. It must not
	// block. Default: nobody is told.
	OnCommit func(Commit)
	// Now is the store's clock. Default: time.Now, or the clock of what several processes share.
	Now func() time.Time
}

// Errors of every backend.
var (
	ErrNotFound    = errors.New("store: not found")
	ErrLeaseLost   = errors.New("store: lease lost")
	ErrClosed      = errors.New("store: closed")
	ErrUnavailable = errors.New("store: unavailable")
)
