// Command longsession writes a session of as many messages as it is told into a
// data folder, for the browser tests: to have a model say them all takes long.
//
//	$ longsession DIR SESSION MESSAGES
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/sqlite"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "longsession:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	if len(args) != 3 {
		return fmt.Errorf("give DIR SESSION MESSAGES, not %q", args)
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return fmt.Errorf("how many messages: %w", err)
	}
	st, err := sqlite.Open(ctx, args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for _, events := range batches(n) {
		_, err := st.Append(ctx, args[1], func(*session.State) ([]session.Event, error) { return events, nil })
		if err != nil {
			return err
		}
	}
	return nil
}

// batches are the events of a session, a thousand at a time.
func batches(messages int) [][]session.Event {
	events := []session.Event{{Data: session.Created{
		Tenant: holdfast.Local.Tenant, Owner: holdfast.Local.Owner, Title: "A very long conversation",
	}}}
	for i := range messages {
		m := session.Message{ID: fmt.Sprintf("msg_%d", i), Role: session.RoleUser, Status: session.MessageWhole}
		text := fmt.Sprintf("Question %d", i)
		if i > 0 {
			m.Parent = fmt.Sprintf("msg_%d", i-1)
		}
		if i%2 == 1 {
			m.Role = session.RoleAssistant
			text = fmt.Sprintf("Answer **%d**.\n\n- it has a list\n- and `code`\n\nAnd, at times, more than one line of text, so that not all turns are of one height.%s", i, filler(i%7))
		}
		m.Parts = []session.Part{{Type: session.PartText, Text: text}}
		events = append(events, session.Event{Data: session.MessageCreated{Message: m}})
	}
	var batches [][]session.Event
	for len(events) > 0 {
		size := min(len(events), 1000)
		batches = append(batches, events[:size])
		events = events[size:]
	}
	return batches
}

func filler(lines int) string {
	text := ""
	for range lines {
		text += "\n\nThe quick brown fox jumps over the lazy dog, and the lazy dog takes no notice of it whatsoever."
	}
	return text
}
