package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

func TestChunksOfARowComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			session string
			lines.Chunk
		}
		var row []byte
		var wrote []entry
		for range rapid.IntRange(1, 5).Draw(t, "chunks") {
			n := rapid.IntRange(1, 4).Draw(t, "lines")
			first := rapid.Int64Range(1, 1<<40).Draw(t, "first")
			e := entry{rapid.String().Draw(t, "session"), lines.Chunk{
				First: first, Last: first + int64(n) - 1,
				Body: []byte(strings.TrimSuffix(strings.Repeat("{}\n", n), "\n")),
			}}
			wrote = append(wrote, e)
			row = appendChunk(row, e.session, e.Chunk)
		}
		cut := rapid.IntRange(0, len(row)-1).Draw(t, "cut")
		for rest := row[:cut]; len(rest) > 0; { // cut short it is refused, and never read beyond
			_, _, next, err := parseChunk(rest)
			if err != nil {
				break
			}
			rest = next
		}
		for _, want := range wrote {
			id, c, rest, err := parseChunk(row)
			if err != nil || id != want.session || c.First != want.First || c.Last != want.Last || !bytes.Equal(c.Body, want.Body) {
				t.Fatalf("%q %+v, %v came back and %+v was written", id, c, err, want)
			}
			row = rest
		}
		if len(row) > 0 {
			t.Fatalf("%d bytes are left", len(row))
		}
	})
}

func TestADamagedTailIsNotOpened(t *testing.T) {
	s := openQuiet(t, Options{})
	if _, err := s.Append(t.Context(), "ses_1", create("o")); err != nil {
		t.Fatal(err)
	}
	err := s.writer.submit(t.Context(), nil, func(b *batch) error {
		_, err := b.exec(`UPDATE tail SET body = substr(body, 1, length(body) - 1)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), s.dir, Options{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("opening it gave %v", err)
	}
}

// TestEventsSettleWithoutAnyoneNoticing keeps a small tail and opens the store again and again.
func TestEventsSettleWithoutAnyoneNoticing(t *testing.T) {
	s := openQuiet(t, Options{TailBytes: 2 << 10})
	want := map[string]int64{}
	for round := range 5 {
		if round > 0 {
			if err := s.Delete(t.Context(), "ses_1"); err != nil {
				t.Fatal(err)
			}
			delete(want, "ses_1")
		}
		for i := range 100 {
			id := fmt.Sprintf("ses_%d", i*i%7)
			if id == "ses_1" && i > 50 {
				continue // so that it settles and others stay
			}
			a, err := s.Append(t.Context(), id, func(s *session.State) ([]session.Event, error) {
				if !s.Exists() {
					return create("o")(s)
				}
				return entitle(fmt.Sprintf("title %d %d", round, i))(s)
			})
			if err != nil {
				t.Fatal(err)
			}
			want[id] = a.Last
		}
		if n := count(t, s, `SELECT count(*) FROM log`); n == 0 {
			t.Error("nothing has settled")
		}
		s = reopen(t, s, Options{TailBytes: 2 << 10})
		for id, head := range want {
			if got, err := s.Head(t.Context(), id); err != nil || got != head {
				t.Errorf("session %s ends at seq %d, not %d, %v", id, got, head, err)
			}
			if findings, err := s.Check(t.Context(), id); err != nil || len(findings) > 0 {
				t.Errorf("session %s: %q, %v", id, findings, err)
			}
		}
	}
	if err := s.Delete(t.Context(), "ses_1"); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, Options{TailBytes: 2 << 10})
	if _, err := s.Head(t.Context(), "ses_1"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the deleted session gave %v", err)
	}
}
