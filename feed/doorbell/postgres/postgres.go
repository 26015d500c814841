// Package postgres rings through LISTEN and NOTIFY. A notification has ids and
// flags, no content, and is sent after the commit and not with it: commits that
// notify wait for each other. Rings that gather meanwhile go together.
//
//	Ring ─▶ gathered by session ─▶ pg_notify ══▶ LISTEN of every other process ─▶ heard
//	                                  └────────▶ to itself every few seconds: is anybody there?
//
// A connection that has died without a word, or a pooler that does not pass
// notifications on, is found by what a process sends to itself: without it the
// connection is made again.
package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	"github.com/holdfast-run/holdfast/store"
)

// Options of [New]. The zero value works.
type Options struct {
	// Probe is how often a process rings itself. Twice that without hearing it, and the connection is made again. Default: 2 seconds.
	Probe time.Duration
	// Log is told when the bell is out of order. Default: slog.Default().
	Log *slog.Logger
}

// Bell is a [doorbell.Bell] through a PostgreSQL database.
type Bell struct {
	opts   Options
	config *pgx.ConnConfig
	self   string // tells rings of this process from others'
	out    outbox
}

var _ doorbell.Bell = (*Bell)(nil)

// channel is where rings go. The channel of one process alone has its name behind it.
const channel = "holdfast"

// New makes a bell for the database that url names.
func New(url string, opts Options) (*Bell, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("ring through PostgreSQL: %w", err)
	}
	if _, set := config.RuntimeParams["application_name"]; !set {
		config.RuntimeParams["application_name"] = "holdfast doorbell"
	}
	config.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		// A ring need not survive a crash: it waits for no disk.
		return conn.Exec(ctx, `SET synchronous_commit = off`).Close()
	}
	config.ConnectTimeout = connectTimeout
	opts.Probe = cmp.Or(opts.Probe, 2*time.Second)
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // it never fails
	return &Bell{opts: opts, config: config, self: hex.EncodeToString(id[:]), out: newOutbox()}, nil
}

const (
	connectTimeout = 3 * time.Second
	// The wait before a lost connection is made again, doubling.
	firstWait = 50 * time.Millisecond
	lastWait  = time.Second
)

// Ring tells the others of a commit.
func (b *Bell) Ring(c store.Commit) { b.out.put(doorbell.Of(c)) }

// Run listens and rings until ctx ends.
func (b *Bell) Run(ctx context.Context, heard func(doorbell.Ring)) error {
	var g errgroup.Group
	g.Go(func() error {
		b.keep(ctx, "listen", func(ctx context.Context, db *pgx.Conn) error { return b.listen(ctx, db, heard) })
		return nil
	})
	g.Go(func() error { b.keep(ctx, "ring", b.ring); return nil })
	return g.Wait()
}

// keep does something on a connection, and on another one when that is lost, until ctx ends.
func (b *Bell) keep(ctx context.Context, doing string, do func(context.Context, *pgx.Conn) error) {
	failing := false
	for wait := firstWait; ctx.Err() == nil; wait = min(2*wait, lastWait) {
		began := time.Now()
		err := b.once(ctx, do)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > 10*lastWait {
			failing, wait = false, firstWait
		}
		if !failing {
			failing = true
			b.opts.Log.Warn("the doorbell is out of order: other processes hear of commits at their next poll",
				slog.String("doing", doing), slog.Any("error", err))
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

func (b *Bell) once(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	db, err := pgx.ConnectConfig(ctx, b.config)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = db.Close(closing)
	}()
	return do(ctx, db)
}

// ErrDeaf says that a process does not hear what it rings itself.
var ErrDeaf = errors.New("a notification to itself did not arrive: the connection is dead, or goes through a pooler that shares connections")

// listen hears rings until the connection is lost.
func (b *Bell) listen(ctx context.Context, db *pgx.Conn, heard func(doorbell.Ring)) error {
	for _, name := range []string{channel, channel + "_" + b.self} {
		if _, err := db.Exec(ctx, `LISTEN `+pgx.Identifier{name}.Sanitize()); err != nil {
			return err
		}
	}
	heard(doorbell.Ring{}) // whatever came before was missed
	alive := time.Now()
	for {
		waiting, cancel := context.WithDeadline(ctx, alive.Add(2*b.opts.Probe+connectTimeout))
		n, err := db.WaitForNotification(waiting)
		late := waiting.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case late:
			return ErrDeaf
		case err != nil:
			return err
		case n.Channel != channel:
			alive = time.Now()
		default:
			b.hear(n.Payload, heard)
		}
	}
}

func (b *Bell) hear(payload string, heard func(doorbell.Ring)) {
	from, rings := parse(payload)
	if from == b.self {
		return
	}
	for _, r := range rings {
		heard(r)
	}
}

// ring sends what gathers, and now and then something to itself.
func (b *Bell) ring(ctx context.Context, db *pgx.Conn) error {
	probe := time.NewTicker(b.opts.Probe)
	defer probe.Stop()
	for {
		var batch pgx.Batch
		select {
		case <-b.out.some:
			for _, payload := range payloads(b.self, b.out.take()) {
				batch.Queue(`SELECT pg_notify($1, $2)`, channel, payload)
			}
		case <-probe.C:
			batch.Queue(`SELECT pg_notify($1, $2)`, channel+"_"+b.self, "")
		case <-ctx.Done():
			return ctx.Err()
		}
		sending, cancel := context.WithTimeout(ctx, connectTimeout)
		err := db.SendBatch(sending, &batch).Close()
		cancel()
		if err != nil {
			b.out.put(doorbell.Ring{}) // whatever it was is lost
			return err
		}
	}
}
