package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast/bench/internal/hist"
)

// rounds is how often the scenarios of this file ask, one reader after the other.
const rounds = 50

// catchUp: a chat that is over; readers come who are n events behind (or tokens,
// where there are no events), and are timed until they have everything.
func catchUp(c config, t *tally, r *report) {
	after, end, err := c.to.fill(c.chat(0), c.n)
	if err != nil {
		t.fail(fmt.Errorf("fill: %w", err))
		return
	}
	c.probe.again()
	for range rounds {
		t.readers.Add(1)
		sent := time.Now()
		s, err := c.to.follow(c.chat(0), after, sent.Add(c.grace))
		if err != nil {
			t.fail(err)
			continue
		}
		for err == nil && (end == 0 || s.cursor < end) {
			_, err = s.step()
			if end > 0 && errors.Is(err, io.EOF) { // the end of one run of several
				err = nil
			}
		}
		if err == nil { // the cursor's line comes before its event
			_, err = s.step()
		}
		if err == nil || errors.Is(err, io.EOF) {
			t.catchUp.Add(time.Since(sent))
			t.completed.Add(1)
		} else {
			t.fail(err)
		}
		s.close()
	}
	r.Note = fmt.Sprintf("%d behind", c.n)
}

// seeded is the session that the command seed makes.
const seeded = "ses_seed"

// snapshot: the state of a session of n messages is asked for, over and over on one connection.
func snapshot(c config, t *tally, r *report) {
	var all hist.Hist
	for i := range 4 * rounds {
		t.readers.Add(1)
		began := time.Now()
		err := get(c.base + "/v1/sessions/" + seeded)
		took := time.Since(began)
		switch {
		case err != nil:
			t.fail(err)
			continue
		case i == 0:
			r.First = float64(took.Microseconds()) / 1000
		default:
			all.Add(took)
		}
		t.completed.Add(1)
	}
	r.Requests = all.Summary()
}

var errEmpty = errors.New("the answer has no body")

// get asks for a page and reads it whole.
func get(url string) error {
	res, err := http.Get(url)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	n, err := io.Copy(io.Discard, res.Body)
	switch {
	case err != nil:
		return err
	case res.StatusCode != http.StatusOK:
		return fmt.Errorf("GET answered %s", res.Status)
	case n == 0:
		return errEmpty
	}
	return nil
}
