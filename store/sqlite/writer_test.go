package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
	"github.com/holdfast-run/holdfast/store/internal/lines"
)

func openQuiet(t *testing.T, opts Options) *Store {
	t.Helper()
	opts.Log = slog.New(slog.DiscardHandler)
	s, err := Open(context.Background(), t.TempDir(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func create(owner string) session.Decide { return session.Create{Tenant: "t", Owner: owner}.Decide }

func entitle(title string) session.Decide { return session.Update{Title: &title}.Decide }

// hold keeps the writer busy until release is called.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	entered, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.writer.submit(context.Background(), nil, func(*batch) error {
			close(entered)
			<-end
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-entered
	return func() {
		close(end)
		wg.Wait()
	}
}

// queued waits until n requests wait for the writer.
func queued(s *Store, n int) {
	for {
		s.writer.mu.Lock()
		waiting := len(s.writer.queue)
		s.writer.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

func count(t *testing.T, s *Store, query string) (n int) {
	t.Helper()
	if err := s.readers.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestAppendsThatWaitShareOneCommit(t *testing.T) {
	s := openQuiet(t, Options{})
	release := hold(t, s)
	var wg sync.WaitGroup
	ids := []string{"ses_1", "ses_2", "ses_3", "ses_4"}
	for _, id := range ids {
		wg.Go(func() {
			if _, err := s.Append(t.Context(), id, create("o")); err != nil {
				t.Error(err)
			}
		})
	}
	queued(s, len(ids))
	release()
	wg.Wait()
	if n := count(t, s, `SELECT count(*) FROM tail`); n != 1 {
		t.Errorf("four appends made %d commits", n)
	}
	for _, id := range ids {
		if head, err := s.Head(t.Context(), id); err != nil || head != 1 {
			t.Errorf("session %s ends at seq %d, %v", id, head, err)
		}
	}
}

// breaks is an event that cannot be written.
type breaks struct{ in string }

func (breaks) Type() string { return "test.breaks" }

func (b breaks) MarshalJSON() ([]byte, error) { panic(b.in) }

func TestWhatIsWrongWithOneRequestIsNobodyElsesError(t *testing.T) {
	s := openQuiet(t, Options{})
	take := func(run string) session.Decide {
		return func(*session.State) ([]session.Event, error) {
			return []session.Event{{Run: run, Data: session.RunQueued{Agent: "a", Input: "m", Message: "n"}}}, nil
		}
	}
	if _, err := s.Append(t.Context(), "ses_first", take("run_taken")); err != nil {
		t.Fatal(err)
	}
	refusal := errors.New("refused")
	wrong := map[string]struct {
		decide session.Decide
		is     func(error) bool
	}{
		"refused":  {func(*session.State) ([]session.Event, error) { return nil, refusal }, func(err error) bool { return err == refusal }},
		"panics":   {func(*session.State) ([]session.Event, error) { panic("a bug") }, func(err error) bool { return strings.Contains(err.Error(), "a bug") }},
		"breaks":   {func(*session.State) ([]session.Event, error) { return []session.Event{{Data: breaks{"in JSON"}}}, nil }, func(err error) bool { return strings.Contains(err.Error(), "in JSON") }},
		"conflict": {take("run_taken"), func(err error) bool { return errors.Is(err, &session.Error{Code: session.Conflict}) }},
	}
	release := hold(t, s)
	var wg sync.WaitGroup
	for name, w := range wrong {
		wg.Go(func() {
			_, err := s.Append(t.Context(), "ses_"+name, w.decide)
			if err == nil || !w.is(err) || errors.Is(err, store.ErrUnavailable) {
				t.Errorf("%s: the caller got %v", name, err)
			}
		})
	}
	good := []string{"ses_good1", "ses_good2", "ses_good3"}
	for _, id := range good {
		wg.Go(func() {
			if _, err := s.Append(t.Context(), id, create("o")); err != nil {
				t.Errorf("the caller beside them got %v", err)
			}
		})
	}
	queued(s, len(wrong)+len(good))
	release()
	wg.Wait()
	for name := range wrong {
		if _, err := s.Head(t.Context(), "ses_"+name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s has left a session, %v", name, err)
		}
	}
	for _, id := range append(good, "ses_first") {
		if findings, err := s.Check(t.Context(), id); err != nil || len(findings) > 0 {
			t.Errorf("session %s: %q, %v", id, findings, err)
		}
	}
}

func TestARequestWhoseContextEndsInTheQueueDoesNotHappen(t *testing.T) {
	s := openQuiet(t, Options{})
	release := hold(t, s)
	cause := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	result := make(chan error)
	go func() {
		_, err := s.Append(ctx, "ses_1", func(*session.State) ([]session.Event, error) {
			t.Error("decide ran")
			return nil, nil
		})
		result <- err
	}()
	queued(s, 1)
	cancel(cause)
	if err := <-result; !errors.Is(err, cause) {
		t.Errorf("the caller got %v", err)
	}
	release()
	if _, err := s.Append(t.Context(), "ses_2", create("o")); err != nil {
		t.Errorf("the next got %v", err)
	}
}

func TestARequestWhoseContextEndsInTheCommitAnswersAtOnceAndIsKept(t *testing.T) {
	told, goOn := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() {
		close(told)
		<-goOn
	})
	s := openQuiet(t, Options{Options: store.Options{OnCommit: func(store.Commit) { first() }}})
	cause := errors.New("the client went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-told
		cancel(cause)
	}()
	if _, err := s.Append(ctx, "ses_1", create("o")); !errors.Is(err, cause) {
		t.Errorf("the caller got %v", err)
	}
	close(goOn)
	if _, err := s.Append(t.Context(), "ses_1", entitle("kept")); err != nil {
		t.Fatal(err)
	}
	if frames, err := s.Read(t.Context(), "ses_1", 0, 0); err != nil || len(frames) != 2 {
		t.Errorf("the log has %d events, %v", len(frames), err)
	}
}

func TestALookKeepsOnlyItsOwnSessionFromBeingWritten(t *testing.T) {
	s := openQuiet(t, Options{})
	for _, id := range []string{"ses_1", "ses_2"} {
		if _, err := s.Append(t.Context(), id, create("o")); err != nil {
			t.Fatal(err)
		}
	}
	late := make(chan error)
	err := s.View(t.Context(), "ses_1", func(state *session.State) {
		release := hold(t, s)
		go func() {
			_, err := s.Append(t.Context(), "ses_1", entitle("late"))
			late <- err
		}()
		queued(s, 1)
		other := make(chan error)
		go func() {
			_, err := s.Append(t.Context(), "ses_2", entitle("beside"))
			other <- err
		}()
		queued(s, 2)
		release()
		if err := <-other; err != nil {
			t.Errorf("the other session: %v", err)
		}
		if state.Title != "" {
			t.Errorf("the state changed under the look: %q", state.Title)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-late; err != nil {
		t.Errorf("the session that was looked at: %v", err)
	}
}

func TestEventsThatAreTooLargeForOneRowAreSplit(t *testing.T) {
	s := openQuiet(t, Options{TailBytes: 1})
	big := strings.Repeat("x", 300<<10)
	add := func(n int) session.Decide {
		return func(*session.State) ([]session.Event, error) {
			events := make([]session.Event, n)
			for i := range events {
				events[i] = session.Event{Data: session.TextDelta{Message: "m", Text: big}}
			}
			return events, nil
		}
	}
	if _, err := s.Append(t.Context(), "ses_1", create("o")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := s.Append(t.Context(), "ses_1", add(10)); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, s, `SELECT max(length(body)) FROM (SELECT body FROM log UNION ALL SELECT body FROM tail)`); n > lines.MostBytes+1024 {
		t.Errorf("a row has %d bytes", n)
	}
	frames, err := s.Read(t.Context(), "ses_1", 0, 1000)
	if err != nil || len(frames) < 4 || len(frames) > 6 {
		t.Errorf("a read of large events gave %d of them, %v", len(frames), err)
	}
	if findings, err := s.Check(t.Context(), "ses_1"); err != nil || len(findings) > 0 {
		t.Errorf("%q, %v", findings, err)
	}
}
