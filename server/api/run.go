package api

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast/session"
)

// CancelRun asks for the end of a run.
type CancelRun struct {
	Reason string `json:"reason,omitempty" maxLength:"1000" doc:"at most 1,000 bytes"`
}

// RetryRun goes on from where a run failed or was cancelled, or answers again.
type RetryRun struct {
	ID    string `json:"id,omitempty" pattern:"^[A-Za-z0-9_-]{1,128}$" patternDescription:"an id: 1 to 128 letters, digits, _ or -" doc:"of the new run, chosen by the client so that repeating is safe"`
	Fresh bool   `json:"fresh,omitempty" doc:"begin anew: finished steps are not kept, and tools run again"`
}

// ResolveTool is a person's word on a call whose outcome is unknown.
type ResolveTool struct {
	Outcome session.Outcome `json:"outcome" enum:"happened,did_not,failed"`
	Result  json.RawMessage `json:"result,omitempty" doc:"with happened: the JSON value that the model reads, byte for byte; default null"`
	Note    string          `json:"note,omitempty" maxLength:"4000" doc:"at most 4,000 bytes"`
}

// RunDone is the answer of a command on a run.
type RunDone struct {
	Run session.Run `json:"run"`
	Seq int64       `json:"seq" doc:"the session's seq when it was done"`
}

// RunList is a page of runs, the last queued first, without their steps.
type RunList struct {
	Items []session.Run `json:"items"`
	Next  string        `json:"next,omitempty" doc:"the cursor of the next page; absent at the end"`
}

// DecideApproval decides an approval.
type DecideApproval struct {
	Decision  session.Decision `json:"decision" enum:"approve,deny"`
	Note      string           `json:"note,omitempty" maxLength:"4000" doc:"at most 4,000 bytes; the model reads it when denied"`
	Arguments json.RawMessage  `json:"arguments,omitempty" doc:"with approve: a JSON object that replaces the model's arguments, byte for byte"`
}

// ApprovalDone is the answer of a decision.
type ApprovalDone struct {
	Approval session.Approval `json:"approval"`
	Seq      int64            `json:"seq" doc:"the session's seq when it was done"`
}

// ApprovalList is a page of approvals, the last requested first.
type ApprovalList struct {
	Items []session.Approval `json:"items"`
	Next  string             `json:"next,omitempty" doc:"the cursor of the next page; absent at the end"`
}
