package aisdk

import (
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/session"
)

// Profile is which chunks a client takes.
type Profile string

// The profiles. The requests of releases cannot be told apart, so a page names
// another than the default with the header [ProfileHeader].
const (
	// Safe is what every release from 5.0.92 on takes, and approvals, which are known from 6.0 on.
	Safe Profile = "safe"
	// V5 has no approvals in it: a call that waits for one is a call that takes long,
	// of which a transient data-approval tells, and the stream stays open meanwhile.
	V5 Profile = "v5"
	// V7 is what 7.0.100 and later take: decisions are told in a replay, and the
	// text of an attempt that failed is taken back in an open stream.
	V7 Profile = "v7"
)

// ProfileHeader is the request header that names a profile.
const ProfileHeader = "X-Aisdk-Profile"

// ProfileOf reads a profile. What is not known is Safe.
func ProfileOf(name string) Profile {
	switch p := Profile(strings.ToLower(name)); p {
	case V5, V7:
		return p
	}
	return Safe
}

// View says what a stream tells. With the log it decides every chunk.
type View struct {
	// Run and Message are whose answer is told.
	Run, Message string
	// Until is how far the log went when the stream began: up to there it is told
	// as what it has become, without waits that are over and attempts that were
	// replaced. 0: as it happens. One more than the log's end: what an attempt under
	// way has said is told when it goes on, as its worker may be lost.
	Until int64
	// Approval makes the stream go on behind one that the client has seen: with what
	// came when this approval was decided. Empty: the whole message is told.
	Approval string
	Profile  Profile

	// Skip leaves out that many chunks, which the client has. A stream with an
	// Index can be asked for again in that way: every chunk of it has its place.
	// Without, what is told of the past is told in fewer chunks.
	Index bool
	Skip  int
	// Unsure says that the client's chunks may be of a stream that began before
	// Until: it asked by the name of the chat.
	Unsure bool
}

// ID names the stream: its run, and how it is told if that is not from the
// run's first event on. [ParseID] reads it. It ends up in the path of a URL.
func (v View) ID() string {
	if v.Until == 0 && v.Approval == "" {
		return v.Run
	}
	id := v.Run + "." + strconv.FormatInt(v.Until, 10)
	if v.Approval != "" {
		id += "." + v.Approval
	}
	return id
}

// ParseID reads the name of a stream: its View with Run, Until and Approval set.
func ParseID(id string) (View, bool) {
	run, rest, more := strings.Cut(id, ".")
	v := View{Run: run, Index: true}
	if !session.ValidID(run) {
		return v, false
	}
	if !more {
		return v, true
	}
	until, approval, more := strings.Cut(rest, ".")
	n, err := strconv.ParseInt(until, 10, 64)
	if err != nil || n < 0 || more && !session.ValidID(approval) {
		return v, false
	}
	v.Until, v.Approval = n, approval
	return v, true
}

// RunOf is the run of a stream's name, for names that a client gives back.
func RunOf(id string) string {
	run, _, _ := strings.Cut(id, ".")
	return run
}

// WaitsForPerson says that a run goes on only when somebody decides one of its
// approvals: to a client its answer is over for now.
func WaitsForPerson(run *session.Run, pending int) bool {
	return run.Status == session.Waiting && pending > 0 &&
		(run.WaitingReason == session.WaitApproval || run.WaitingReason == session.WaitToolOutcome)
}

// editMark is between the id of a message and the number of its edit: the SDK
// keeps an edited message's id, and a session never uses an id twice.
const editMark = "--edit-"

// UIMessageID is the id that the client knows a message by.
func UIMessageID(id string) string {
	if i := strings.LastIndex(id, editMark); i > 0 {
		if _, err := strconv.Atoi(id[i+len(editMark):]); err == nil {
			return id[:i]
		}
	}
	return id
}

// EditedID is the id of the n-th edit of a message, n from 1.
func EditedID(id string, n int) string { return UIMessageID(id) + editMark + strconv.Itoa(n) }
