package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"net/url"
	"path/filepath"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

const databaseFile = "holdfast.db"

// dsn names the database in a mode of SQLite's: rwc (read, write, create) or ro.
//
// WAL lets readers and the writer go on beside each other. synchronous=FULL makes
// a commit durable before it is answered, power cuts included.
func (s *Store) dsn(mode string) string {
	q := url.Values{"mode": {mode}, "_txlock": {"immediate"}}
	pragmas := []string{fmt.Sprintf("busy_timeout(%d)", s.opts.BusyTimeout.Milliseconds()), "synchronous(FULL)"}
	if mode == "rwc" {
		// busy_timeout must come first: the others may have to wait.
		pragmas = append(pragmas, "journal_mode(WAL)", "journal_size_limit(67108864)")
	} else {
		pragmas = append(pragmas, "query_only(1)")
	}
	q["_pragma"] = pragmas
	u := url.URL{Scheme: "file", Opaque: (&url.URL{Path: filepath.Join(s.dir, databaseFile)}).EscapedPath(), RawQuery: q.Encode()}
	return u.String()
}

func connect(dsn string, most int) (*sql.DB, error) {
	connector, err := sqlite.NewConnector(dsn)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	return db, nil
}

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the tables up to what this program knows. Tables of a newer
// program are refused.
func migrate(ctx context.Context, db *sql.DB) error {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		panic(err) // it is embedded
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	if _, err := provider.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return checkTables(ctx, db)
}

const selectVersion = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied`

// checkTables refuses tables of another version than this program's.
func checkTables(ctx context.Context, db querier) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		panic(err) // the pattern is right
	}
	known, err := goose.NumericComponent(names[len(names)-1])
	if err != nil {
		panic(err) // the names begin with numbers
	}
	var has int64
	if err := db.QueryRowContext(ctx, selectVersion).Scan(&has); err != nil {
		return fmt.Errorf("read the version of the tables: %w", err)
	}
	if has != known {
		return fmt.Errorf("the tables have version %d and this program knows version %d: use the program that wrote them", has, known)
	}
	return nil
}
