package postgres

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// connectTimeout is how long one try to reach the server may take.
const connectTimeout = 3 * time.Second

// configure says how to connect. What the URL sets itself stays.
func configure(url string, opts Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(opts.Connections)
	c := config.ConnConfig
	if c.ConnectTimeout == 0 || c.ConnectTimeout > connectTimeout {
		c.ConnectTimeout = connectTimeout
	}
	if c.ValidateConnect == nil && !opts.ReadOnly { // after a failover the old one may still be there, as a standby
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "holdfast"
	}
	c.AfterConnect = settings(c, map[string]time.Duration{
		"statement_timeout":                   opts.StatementTimeout,
		"lock_timeout":                        opts.LockTimeout,
		"idle_in_transaction_session_timeout": opts.StatementTimeout,
	}, opts.ReadOnly)
	return config, nil
}

// settings makes the settings of a connection, after it stands: a pooler takes
// none before. What the URL sets itself stays.
func settings(c *pgx.ConnConfig, timeouts map[string]time.Duration, readOnly bool) pgconn.AfterConnectFunc {
	// What was acknowledged must survive a crash of the machine, whatever the server's default is.
	query := `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`
	for name, timeout := range timeouts {
		if _, set := c.RuntimeParams[name]; !set {
			query += fmt.Sprintf(`; SET %s = %d`, name, timeout.Milliseconds())
		}
	}
	if readOnly {
		query += `; SET default_transaction_read_only = on`
	}
	return func(ctx context.Context, conn *pgconn.PgConn) error { return conn.Exec(ctx, query).Close() }
}

// querier is a connection, a pool or a transaction.
type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, query string, args ...any) pgx.Row
}

//go:embed migrations/*.sql
var embedded embed.FS

// migrations are this program's.
var migrations = func() fs.FS {
	files, err := fs.Sub(embedded, "migrations")
	if err != nil {
		panic(err) // it is embedded
	}
	return files
}()

// migrationLock is the advisory lock that whoever changes the tables holds.
const migrationLock = 0x686f6c6466617374 // "holdfast"

// migrate brings the tables up to what this program knows. Tables of a newer
// program are fine if that says so.
func migrate(ctx context.Context, config *pgx.ConnConfig, files fs.FS, readOnly bool) error {
	known, err := lastMigration(files)
	if err != nil {
		return err
	}
	config = config.Copy()
	config.AfterConnect = settings(config, map[string]time.Duration{
		"statement_timeout": 0, "idle_in_transaction_session_timeout": 0, // an index on a large table takes its time
		"lock_timeout": migrationWait,
	}, readOnly)
	db := stdlib.OpenDB(*config)
	defer db.Close()
	if has, err := version(ctx, db); err != nil {
		return err
	} else if has >= known {
		return compatible(ctx, db, known)
	} else if readOnly {
		return fmt.Errorf("the tables have version %d, and this program reads %d: start it once to make them", has, known)
	}
	lock, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // which lets the lock go
	if _, err := lock.ExecContext(ctx, `SET lock_timeout = 0`); err != nil {
		return err
	}
	if _, err := lock.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, int64(migrationLock)); err != nil {
		return fmt.Errorf("wait for another process that changes the tables: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithDisableGlobalRegistry(true), goose.WithAllowOutofOrder(true))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	for try := 1; ; try++ {
		_, err := provider.Up(ctx)
		if err == nil {
			return compatible(ctx, db, known)
		}
		if !passing(err) || try == mostMigrations || !rest(ctx, lastWait) {
			return fmt.Errorf("migrate: %w", err)
		}
	}
}

const (
	// migrationWait is how long a migration waits for a table, and everybody who
	// comes after waits with it.
	migrationWait = time.Second
	// mostMigrations is how often it is tried: a process at work may have the
	// tables in another order.
	mostMigrations = 60
)

func lastMigration(files fs.FS) (int64, error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("there are no migrations: %w", err)
	}
	return goose.NumericComponent(names[len(names)-1])
}

// version is that of the tables, 0 if there are none.
func version(ctx context.Context, db *sql.DB) (has int64, err error) {
	err = db.QueryRowContext(ctx, `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`).Scan(&has)
	var missing *pgconn.PgError
	if errors.As(err, &missing) && missing.Code == "42P01" {
		return 0, nil
	}
	return has, err
}

// compatible says whether a program that knows so many migrations may use the tables.
func compatible(ctx context.Context, db *sql.DB, known int64) error {
	var oldest int64
	if err := db.QueryRowContext(ctx, `SELECT oldest FROM compatibility`).Scan(&oldest); err != nil {
		return fmt.Errorf("read the version of the tables: %w", err)
	}
	if known < oldest {
		return fmt.Errorf("%w: they want a program that knows version %d, and this one knows %d", ErrVersion, oldest, known)
	}
	return nil
}

// storable says whether PostgreSQL can keep a text as one of its own. None that
// it cannot keep names anything.
func storable(texts ...string) bool {
	for _, s := range texts {
		if strings.ToValidUTF8(s, "") != s || strings.Contains(s, "\x00") {
			return false
		}
	}
	return true
}
