package sqlite

import (
	"context"
	"database/sql"
	"sync"
)

// prepared is a pool that prepares each query once for each of its connections:
// parsing a query takes longer than running most of ours.
type prepared struct {
	db *sql.DB

	mu    sync.RWMutex
	stmts map[string]*sql.Stmt // guarded by mu
}

// mostPrepared bounds the statements kept. The queries are constants, but for
// the filters of two lists, which have a few shapes.
const mostPrepared = 100

func newPrepared(db *sql.DB) *prepared { return &prepared{db: db, stmts: map[string]*sql.Stmt{}} }

// stmt gives a query's statement, or nil if the query must be run as it is: it cannot be prepared, or one too many.
func (p *prepared) stmt(ctx context.Context, query string) *sql.Stmt {
	p.mu.RLock()
	stmt, full := p.stmts[query], len(p.stmts) >= mostPrepared
	p.mu.RUnlock()
	if stmt != nil || full {
		return stmt
	}
	stmt, err := p.db.PrepareContext(ctx, query)
	if err != nil {
		return nil // running the query says why
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.stmts[query]; other != nil {
		_ = stmt.Close()
		return other
	}
	p.stmts[query] = stmt
	return stmt
}

// QueryContext implements querier.
func (p *prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if stmt := p.stmt(ctx, query); stmt != nil {
		return stmt.QueryContext(ctx, args...)
	}
	return p.db.QueryContext(ctx, query, args...)
}

// QueryRowContext implements querier.
func (p *prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	if stmt := p.stmt(ctx, query); stmt != nil {
		return stmt.QueryRowContext(ctx, args...)
	}
	return p.db.QueryRowContext(ctx, query, args...)
}

// close lets go of the statements. Nothing is asked any more.
func (p *prepared) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for query, stmt := range p.stmts {
		_ = stmt.Close()
		delete(p.stmts, query)
	}
}
