package faults

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/internal/redistest"
	"github.com/holdfast-run/holdfast/internal/temporaltest"
)

// stacks are what worlds can stand on, as FAULTS_ON names it:
//
//	sqlite (the default)  SQLite, and the local engine
//	postgres              PostgreSQL, its notifications, and the local engine
//	redis                 PostgreSQL, Redis, and the local engine
//	temporal              PostgreSQL, Redis, and Temporal
var stacks = []string{"sqlite", "postgres", "redis", "temporal"}

// stack is what this run of the tests stands on.
func stack(t *testing.T) string {
	t.Helper()
	on := os.Getenv("FAULTS_ON")
	if on == "" {
		return stacks[0]
	}
	if !slices.Contains(stacks, on) {
		t.Fatalf("FAULTS_ON is %q, and there are %s", on, strings.Join(stacks, ", "))
	}
	return on
}

// usualStore is the URL of a fresh database; empty: SQLite.
func usualStore(t *testing.T) string {
	t.Helper()
	if stack(t) == "sqlite" {
		return ""
	}
	return pgtest.New(t)
}

// onSQLite skips a test of what only SQLite has, where the worlds keep sessions elsewhere.
func onSQLite(t *testing.T) {
	if stack(t) != "sqlite" {
		t.Skip("it is about a data folder")
	}
}

// onTemporal skips a test of the whole stack, which is run with the whole stack only.
func onTemporal(t *testing.T) {
	if stack(t) != "temporal" {
		t.Skip("it is about the whole stack: FAULTS_ON=temporal")
	}
}

// usualParts fills what a world stands on beside its store.
func (s *settings) usualParts(t *testing.T) {
	t.Helper()
	if s.store == "" {
		s.store = usualStore(t)
	}
	on := stack(t)
	if s.redis == "" && (on == "redis" || on == "temporal") {
		s.redis = redistest.Shared(t)
	}
	if s.temporal == "" && on == "temporal" {
		s.temporal = temporaltest.Address(t)
	}
}

// stackYAML is the part of the configuration that says what the world stands on, and how its engine is tuned.
func (s settings) stackYAML(line func(format string, args ...any)) {
	line("engine:\n  lease: %s\n  poll: 200ms\n  retryFirst: 50ms\n  retryMax: 500ms\n  crashFirst: 100ms", lease)
	if s.slots > 0 {
		line("  slots: %d", s.slots)
	}
	if s.drain > 0 {
		line("  drain: %s", s.drain)
	}
	if s.temporal != "" {
		line("  use: temporal\n  temporal:\n    address: %s\n    heartbeat: %s\n    taskQueue: %s", s.temporal, lease, s.database())
	}
	if s.store != "" {
		line("store:\n  url: %s", s.store)
	}
	if s.redis != "" {
		line("  redis: %s", s.redis)
	}
}

// database is the name of the world's database.
func (s settings) database() string {
	u, err := url.Parse(s.store)
	if err != nil {
		panic(fmt.Sprintf("a store's URL: %v", err))
	}
	return strings.TrimPrefix(u.Path, "/")
}
