package agent

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/model"
	"github.com/holdfast-run/holdfast/session"
)

// The reasons to compact.
const (
	BecauseWindow  = "window"  // the context had grown near the window
	BecauseRefused = "refused" // the provider had refused it as too long
)

// A context is compacted when it has grown over compactAt of its room, in
// hundredths, and comes out at compactTo or less if it can. What lies between is
// how much is said before the provider's cache is spoilt again.
const (
	compactAt = 85
	compactTo = 50
	// A compaction that saves less is not worth it while the context fits.
	leastSaved = 5
)

// maxSummary bounds a summary, in bytes.
const maxSummary = 16 << 10

const askSummary = `[This is an instruction of the program, not of the person.] The messages above will soon not be shown to you any more. ` +
	`Write the summary that will stand in their place, for yourself. Keep what it takes to go on: what was asked and decided, facts, names, numbers, ids, ` +
	`paths and what tools gave, what was done and how it came out, what is still open. If a summary of earlier messages is above, keep what still matters of it. ` +
	`At most 600 words of plain text. Call no tools, and do not answer the person.`

// Compaction is how a context becomes smaller.
type Compaction struct {
	// Request asks the model for the summary. Nil: none is needed, older results are only shortened.
	Request *model.Request
	// Budget is what holds from here on.
	Budget Budget

	event session.ContextCompacted
	c     *composition
	shape shape
	last  *session.ContextCompacted // the one in force until now
}

// Compact says whether the context has to become smaller before the next model
// call, and how: older results are shortened, and if that does not do, the oldest
// turns are summarised. refused says that the provider refused it as too long.
func (d *Draft) Compact(b Budget, refused bool) (Compaction, bool) {
	c, now, v := d.c, d.shape, d.view
	counted := c.count(now)
	event := session.ContextCompacted{Because: BecauseWindow}
	if v.Compaction != nil {
		event.Window = v.Compaction.Window
	}
	target := b.Room * compactTo / 100
	if refused {
		event.Because = BecauseRefused
		sent := min(counted, b.Room)
		event.Window = max(MinWindow, min(b.Window, b.Tokens(sent)+b.Reserve)*3/4)
		scale := b.Scale
		b = d.agent.Budget(event.Window, session.Measure{})
		b.Scale = scale
		b.Room = int(float64(b.Window-b.Reserve) / scale)
		target = min(b.Room, sent) * compactTo / 100
	} else if counted <= b.Room*compactAt/100 {
		return Compaction{}, false
	}
	event.Before = b.Tokens(counted)
	next := c.plan(now, target)
	if saved := counted - c.count(next); !refused && (next == now || counted <= b.Room && saved < b.Room*leastSaved/100) {
		return Compaction{}, false
	}
	k := Compaction{Budget: b, event: event, c: c, shape: next, last: v.Compaction}
	k.event.Shortened = c.mark(next.short)
	if last := v.Compaction; last != nil {
		k.event.UpTo, k.event.Summary, k.event.Told = last.UpTo, last.Summary, last.Told
	}
	if next.from > now.from {
		k.event.UpTo = c.mark(next.from)
		k.Request = c.summaryRequest(now, next.from, v.Compaction, b)
	}
	return k, true
}

// summaryRequest asks for a summary of the pieces before end. It begins as the
// requests before it did, so that what a provider has cached of them counts.
func (c *composition) summaryRequest(now shape, end int, last *session.ContextCompacted, b Budget) *model.Request {
	part := *c
	part.pieces = c.pieces[:end]
	if last.Lost() { // what was left out without a summary is told now
		now, part.partly = shape{from: c.after(last.Told), short: now.short}, false
	}
	ask := model.Message{Role: model.User, Parts: []model.Part{{Kind: model.TextPart, Text: askSummary}}}
	req := part.seen(part.fit(now, b.Room-countMessage(ask))).Request
	req.Messages = append(req.Messages, ask)
	req.MaxTokens = b.Reserve
	return &req
}

// Summarised is the compaction with what the model wrote.
func (k Compaction) Summarised(summary string, usage session.Usage) session.ContextCompacted {
	k.event.Summary, k.event.Told, k.event.Usage = summary, nil, usage
	return k.done()
}

// Unsummarised is the compaction without a summary, with the reason: what it would have told is left out.
func (k Compaction) Unsummarised(why session.Failure, usage session.Usage) session.ContextCompacted {
	k.event.Error, k.event.Usage = &why, usage
	if k.event.Summary != "" && k.event.Told == nil {
		k.event.Told = k.last.UpTo
	}
	return k.done()
}

// Shortened is the compaction where no summary is needed.
func (k Compaction) Shortened() session.ContextCompacted { return k.done() }

func (k Compaction) done() session.ContextCompacted {
	after := *k.c // the draft stays what it was
	after.summary, after.partly = k.event.Summary, k.event.Told != nil
	k.event.After = k.Budget.Tokens(after.count(k.shape))
	return k.event
}

// CheckSummary is what is wrong with a model's summary, or nil.
func CheckSummary(text string, called bool, finish model.FinishReason) *session.Failure {
	fail := func(code, format string, args ...any) *session.Failure {
		return &session.Failure{Code: code, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case called:
		return fail("summary_called_tools", "asked for a summary, the model called tools")
	case finish == model.Length || len(text) > maxSummary:
		return fail("summary_too_long", "the summary was too long")
	case finish == model.ContentFilter:
		return fail("summary_refused", "the provider withheld the summary")
	case strings.TrimSpace(text) == "":
		return fail("summary_empty", "the model wrote no summary")
	}
	return nil
}
