package session

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// Approval is a question that a run waits on: may this call be made with
// exactly these arguments? It is decided at most once.
type Approval struct {
	ID        string          `json:"id"`
	Session   string          `json:"session"`
	Run       string          `json:"run"`
	Message   string          `json:"message"`
	Call      string          `json:"call"`
	Name      string          `json:"name"` // the tool
	Effects   Effects         `json:"effects"`
	Arguments json.RawMessage `json:"arguments"`
	// ArgumentsHash binds the decision: SHA-256 of Arguments, lower-case hex.
	ArgumentsHash string         `json:"argumentsHash"`
	Status        ApprovalStatus `json:"status"`
	RequestedAt   time.Time      `json:"requestedAt"`
	ExpiresAt     *time.Time     `json:"expiresAt,omitempty"`
	DecidedAt     *time.Time     `json:"decidedAt,omitempty"`
	By            string         `json:"by,omitempty"`
	Note          string         `json:"note,omitempty"`
	// Edited are the arguments the person put in place of the model's.
	Edited json.RawMessage `json:"edited,omitempty"`
}

// HashArguments is the fingerprint that an approval binds.
func HashArguments(arguments json.RawMessage) string {
	sum := sha256.Sum256(arguments)
	return hex.EncodeToString(sum[:])
}
