package api

import "github.com/holdfast-run/holdfast"

// CompactionList is the compactions of a branch, the newest first.
type CompactionList struct {
	Items []holdfast.Compaction `json:"items"`
}
