package postgres

import (
	"context"
	"fmt"
	"time"
)

const (
	upsertWriter = `
INSERT INTO writers (id, batch, at) VALUES ($1, $2, now())
ON CONFLICT (id) DO UPDATE SET batch = excluded.batch, at = excluded.at`

	// It waits for a transaction of this writer that is still under way.
	selectWriter = `
INSERT INTO writers (id, batch, at) VALUES ($1, 0, now())
ON CONFLICT (id) DO UPDATE SET at = excluded.at
RETURNING batch`
)

// resolve finds out whether the last transaction took effect, whose connection
// was lost during its commit. The transaction has set the number in the
// writer's row, and nobody else does: whether the number is there is whether it
// was committed, whatever was written since by others, and on whichever server
// is in charge now. Until it is known nothing else is written.
func (w *writer) resolve(cause error) (committed bool, err error) {
	began := time.Now()
	zombie := w.pid
	for pause := firstWait; ; pause = min(2*pause, lastWait) {
		w.drop()
		if committed, err = w.look(zombie); err == nil {
			return committed, nil
		}
		if !passing(err) || !w.store.outage.failed(began) || !w.patient(pause) {
			return false, fmt.Errorf("%w: %w: %w", ErrUnknown, err, cause)
		}
	}
}

func (w *writer) look(zombie uint32) (committed bool, err error) {
	ctx, cancel := context.WithTimeout(background, w.store.opts.StatementTimeout)
	defer cancel()
	if err := w.connect(ctx); err != nil {
		return false, err
	}
	// Whoever still works for the lost connection is to stop. A process of
	// another life of the server may have its number by now: it must be one of ours.
	_, err = w.conn.Exec(ctx, `
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = $1 AND usename = current_user AND datname = current_database() AND state LIKE 'idle in transaction%'`, int64(zombie))
	if err != nil {
		return false, err
	}
	var batch int64
	if err := w.conn.QueryRow(ctx, selectWriter, w.id).Scan(&batch); err != nil {
		return false, err
	}
	return batch == w.batch, nil
}
