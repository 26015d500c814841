package postgres_test

import (
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/internal/pgtest"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/storetest"
)

// BenchmarkStore measures on a server whose commits go to the disk.
func BenchmarkStore(b *testing.B) {
	server := sync.OnceValue(func() *pgtest.Server { return pgtest.Start(b, pgtest.Durable...) })
	storetest.Benchmark(b, func(b *testing.B, opts store.Options) store.Store {
		url := server().New(b)
		if err := run(url, `CHECKPOINT`); err != nil { // making the database is no part of what is measured
			b.Fatal(err)
		}
		return open(b, url, postgres.Options{Options: opts})
	})
}
