package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/feed/doorbell"
	pgbell "github.com/holdfast-run/holdfast/feed/doorbell/postgres"
	redisbell "github.com/holdfast-run/holdfast/feed/doorbell/redis"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/postgres"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

// StoreConfig says where sessions are kept. Zero values mean SQLite in the data folder.
type StoreConfig struct {
	// URL names a PostgreSQL database: postgres://user@host/database. A password
	// may be in the variable PGPASSWORD or the file ~/.pgpass instead, or the
	// whole URL in HOLDFAST_STORE.
	URL string `yaml:"url"`
	// Redis is a URL such as redis://host:6379. What one process commits reaches the
	// others through it, in place of PostgreSQL's own notifications; it is never
	// the truth, and nothing is lost with it. Default: none.
	Redis string `yaml:"redis"`
	// Connections bounds those for reading; three more write, listen and ring. Default: 8.
	Connections int `yaml:"connections"`
}

// check says what is wrong with it.
func (s StoreConfig) check(wrong func(path, format string, args ...any)) {
	if s.URL == "" {
		if s.Redis != "" {
			wrong("store.redis", "Redis is for processes that share a store: name a PostgreSQL database with store.url or --store, or leave it out")
		}
		return
	}
	if s.Redis != "" {
		if _, err := redisbell.New(s.Redis, redisbell.Options{}); err != nil {
			wrong("store.redis", "%w", err)
		}
	}
	if _, err := s.place(); err != nil {
		wrong("store.url", "%w", err)
	}
}

// shared says that several processes may use the store at once.
func (s StoreConfig) shared() bool { return s.URL != "" }

// place names the database without what is secret.
func (s StoreConfig) place() (string, error) {
	if !strings.HasPrefix(s.URL, "postgres://") && !strings.HasPrefix(s.URL, "postgresql://") {
		return "", errors.New("a store is a PostgreSQL database, as postgres://user@host/database")
	}
	c, err := pgx.ParseConfig(s.URL) // its errors have no password in them
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the PostgreSQL database %s at %s:%d", c.Database, c.Host, c.Port), nil
}

// where says where everything is kept.
func (s StoreConfig) where(dir string) string {
	if !s.shared() {
		return dir
	}
	place, err := s.place()
	if err != nil {
		return "a PostgreSQL database"
	}
	return place
}

// parts are the functions that open the store in dir or the database, and the doorbell beside it.
func (s StoreConfig) parts(dir string, log *slog.Logger) (func(context.Context, store.Options) (store.Store, error), doorbell.Bell, error) {
	if !s.shared() {
		return func(ctx context.Context, opts store.Options) (store.Store, error) {
			return sqlite.Open(ctx, dir, sqlite.Options{Options: opts, Log: log})
		}, nil, nil
	}
	bell, err := s.bell(log)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, opts store.Options) (store.Store, error) {
		return postgres.Open(ctx, s.URL, postgres.Options{Options: opts, Connections: s.Connections, Log: log})
	}, bell, nil
}

// bell is how the processes on a database hear of each other's commits.
func (s StoreConfig) bell(log *slog.Logger) (doorbell.Bell, error) {
	if s.Redis != "" {
		c, err := pgx.ParseConfig(s.URL)
		if err != nil {
			return nil, err
		}
		// Several databases may share a Redis.
		return redisbell.New(s.Redis, redisbell.Options{Prefix: "holdfast:" + c.Database, Log: log})
	}
	return pgbell.New(s.URL, pgbell.Options{Log: log})
}

// explain adds what to do about a store that cannot be opened.
func (s StoreConfig) explain(dir string, err error) error {
	var held *sqlite.HeldError
	switch {
	case errors.As(err, &held):
		return fmt.Errorf("%w (--data)", held)
	case errors.Is(err, sqlite.ErrReadOnly):
		return fmt.Errorf("%w\nMake %s writable for this user, or choose another folder with --data", err, dir)
	case errors.Is(err, sqlite.ErrFull):
		return fmt.Errorf("%w\nMake room on the disk of %s", err, dir)
	case errors.Is(err, postgres.ErrUnreachable):
		return fmt.Errorf("%w\nIs it running, and is this its address? Name another with --store", err)
	case errors.Is(err, postgres.ErrRefused):
		return fmt.Errorf("%w\nThe user needs to connect to %s and to create tables in it; a password may be in PGPASSWORD", err, s.where(dir))
	case errors.Is(err, postgres.ErrVersion):
		return fmt.Errorf("%w\nStart a newer holdfast", err)
	case errors.Is(err, sqlite.ErrDamaged):
		return fmt.Errorf("%w\nLook at the damage with \"holdfast doctor --data %s\", and restore a backup", err, dir)
	}
	return err
}

// examined is a store as the doctor looks at it.
type examined interface {
	EverySession(ctx context.Context) ([]string, error)
	Check(ctx context.Context, id string) ([]string, error)
	Close() error
}

// examine opens the store to be read only.
func (s StoreConfig) examine(ctx context.Context, dir string) (examined, error) {
	if !s.shared() {
		return sqlite.Open(ctx, dir, sqlite.Options{ReadOnly: true})
	}
	opened, err := postgres.Open(ctx, s.URL, postgres.Options{ReadOnly: true})
	if err != nil {
		return nil, s.explain(dir, err)
	}
	return opened, nil
}
