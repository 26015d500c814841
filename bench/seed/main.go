// Command seed fills Holdfast's data directory before a server opens it.
//
//	seed -data DIR -scenario snapshot -n 10000   one session of n messages
//	seed -data DIR -scenario start -n 1000       n sessions of ten messages
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

const words = 20 // of an answer, a delta each

func main() {
	dir := flag.String("data", "", "the data directory, made if need be")
	n := flag.Int("n", 10_000, "messages of the session, or sessions")
	scenario := flag.String("scenario", "snapshot", "snapshot or start")
	flag.Parse()
	if err := fill(context.Background(), *dir, *scenario, *n); err != nil {
		log.Fatal(err)
	}
}

func fill(ctx context.Context, dir, scenario string, n int) error {
	st, err := sqlite.Open(ctx, dir, sqlite.Options{})
	if err != nil {
		return err
	}
	defer st.Close()
	if scenario == "snapshot" {
		return talk(ctx, st, "ses_seed", n/2)
	}
	var g errgroup.Group
	g.SetLimit(32)
	for i := range n {
		g.Go(func() error { return talk(ctx, st, fmt.Sprintf("ses_seed_%d", i), 5) })
	}
	return g.Wait()
}

// talk writes a conversation of so many turns, as a server and its worker would.
func talk(ctx context.Context, st *sqlite.Store, id string, turns int) error {
	for turn := range turns {
		if err := say(ctx, st, id, turn); err != nil {
			return fmt.Errorf("turn %d of session %s: %w", turn, id, err)
		}
	}
	return nil
}

// say writes a question and its streamed answer.
func say(ctx context.Context, st *sqlite.Store, id string, turn int) error {
	name := func(kind string) string { return fmt.Sprintf("%s_%s_%d", kind, id, turn) }
	ask := &session.Submit{
		ID: name("msg"), Parts: []session.Part{{Type: session.PartText, Text: fmt.Sprintf("Question %d, and what else is there to say?", turn)}},
		DefaultAgent: "bench", Tenant: "local", Owner: "local", Run: name("run"), Output: name("answer"), At: time.Now(),
	}
	if _, err := st.Append(ctx, id, ask.Decide); err != nil {
		return err
	}
	claim := session.Claim{Run: ask.Run, Worker: "seed", At: time.Now()}
	if _, err := st.Append(ctx, id, claim.Decide); err != nil {
		return err
	}
	_, err := st.Append(ctx, id, session.Carry(ask.Run, claim.Fence, answer))
	return err
}

// answer is all that a run writes after it has been claimed.
func answer(s *session.State, run *session.Run) ([]session.Event, error) {
	data := []session.Data{session.StepStarted{Message: run.Message}}
	var text strings.Builder
	for i := range words {
		word := fmt.Sprintf("word%d ", i)
		text.WriteString(word)
		data = append(data, session.TextDelta{Message: run.Message, Text: word})
	}
	data = append(data, session.ModelCompleted{
		Message: run.Message, Parts: []session.Part{{Type: session.PartText, Text: text.String()}},
		Finish: "stop", Usage: session.Usage{InputTokens: 10, OutputTokens: words},
	}, session.StepCompleted{})
	var events []session.Event
	for _, d := range data {
		events = append(events, session.Event{Run: run.ID, Step: 1, Attempt: 1, Data: d})
	}
	return append(events, s.End(run, session.RunCompleted{Usage: session.Usage{InputTokens: 10, OutputTokens: words}})...), nil
}
