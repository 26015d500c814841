package sqlite

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
)

func TestAPreparedPoolAnswersManyAtOnceAndKeepsNoMoreThanItMay(t *testing.T) {
	db, err := connect("file:"+filepath.Join(t.TempDir(), "test.db"), 4)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p := newPrepared(db)
	defer p.close()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 2 * mostPrepared {
				var got int
				if err := p.QueryRowContext(t.Context(), fmt.Sprintf("SELECT %d + ?", n), i).Scan(&got); err != nil || got != n+i {
					t.Errorf("%d + %d gave %d, %v", n, i, got, err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(p.stmts); n == 0 || n > mostPrepared+8 {
		t.Errorf("%d statements are kept", n)
	}
	if _, err := p.QueryContext(t.Context(), "SELECT nothing FROM nowhere"); err == nil {
		t.Error("a query that cannot be prepared gave no error")
	}
}
