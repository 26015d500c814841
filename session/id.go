package session

import (
	"regexp"
	"strings"

	"github.com/oklog/ulid/v2"
)

// The prefixes of ids, one a kind of thing.
const (
	SessionPrefix  = "ses_"
	MessagePrefix  = "msg_"
	RunPrefix      = "run_"
	CallPrefix     = "call_"
	ApprovalPrefix = "apr_"
	WorkerPrefix   = "wrk_"
)

// MaxIDLength bounds an id, in bytes.
const MaxIDLength = 128

var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// ValidID says whether a client may choose this id: letters, digits, "_" and
// "-", at most [MaxIDLength].
func ValidID(id string) bool { return idPattern.MatchString(id) }

// NewID is a fresh id with the given prefix, a ULID: later ids sort behind
// earlier ones of the same process, but nothing orders by them.
func NewID(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }
