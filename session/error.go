package session

import "fmt"

// Error is a refusal of a command. It changes nothing.
type Error struct {
	Code ErrorCode
	// Message tells a person what is wrong and what to do.
	Message string
	// Field is the input at fault, if one is.
	Field string
	// Run is the run the refusal is about: the active run for run_active, the run that ended for run_terminal.
	Run *Run
	// Approval is the decided approval for approval_decided.
	Approval *Approval
}

// ErrorCode is a stable name for a kind of refusal.
type ErrorCode string

// The codes.
const (
	NotFound          ErrorCode = "not_found"          // no such session, run, message, approval, or not yours
	Conflict          ErrorCode = "message_conflict"   // the message id was used with another body
	RunActive         ErrorCode = "run_active"         // onBusy is reject and a run is active
	RunTerminal       ErrorCode = "run_terminal"       // the run has ended
	RunNotTerminal    ErrorCode = "run_not_terminal"   // the run has not ended
	ApprovalDone      ErrorCode = "approval_decided"   // somebody else decided first
	ApprovalGone      ErrorCode = "approval_gone"      // it expired or its run ended
	OutcomeKnown      ErrorCode = "tool_outcome_known" // the call's outcome is not in question
	CallNotOpen       ErrorCode = "call_not_open"      // the call has another result already, or was not started
	NotInInbox        ErrorCode = "inbox_delivered"    // the message is no longer in the inbox
	InboxFull         ErrorCode = "inbox_full"         // too many messages wait
	Invalid           ErrorCode = "invalid"            // a field is wrong: see Field
	Fenced            ErrorCode = "fenced"             // another worker carries the run, or it has ended
	CancelIsRequested ErrorCode = "cancel_requested"   // the run is to be cancelled: start nothing
	NotDue            ErrorCode = "not_due"            // the run cannot be claimed now
)

// Error gives the message and the code.
func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// Is makes errors.Is(err, &Error{Code: c}) ask for the code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

func refuse(code ErrorCode, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

func notFound(kind, id string) *Error { return refuse(NotFound, "there is no %s %q", kind, id) }
