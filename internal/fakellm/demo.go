package fakellm

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

var wish = regexp.MustCompile(`\b(n|rate|size|think)=([0-9][0-9a-zµ.]*)`)

// Demo is the default responder. A user text with "n=1000" in it gets that many
// Stamped deltas, as "rate=50 size=21 think=2s" beside it say; one that begins
// with "check: " gets what a check of clients wants; any other gets a
// short answer that repeats the text, or the tool results if they came last.
func Demo(r Request) Turn {
	asked := r.LastUser()
	if what, ok := strings.CutPrefix(asked, "check: "); ok {
		return check(what, r)
	}
	var s stampedStep
	var think time.Duration
	for _, m := range wish.FindAllStringSubmatch(asked, -1) {
		switch m[1] {
		case "n":
			s.Tokens, _ = strconv.Atoi(m[2])
		case "rate":
			s.Rate, _ = strconv.ParseFloat(m[2], 64)
		case "size":
			s.Size, _ = strconv.Atoi(m[2])
		case "think":
			think, _ = time.ParseDuration(m[2])
		}
	}
	if s.Tokens > 0 {
		return Reply(Headers(), Pause(think), s)
	}
	if n := len(r.Messages); n > 0 && len(r.Messages[n-1].Results) > 0 {
		var given []string
		for _, result := range r.Messages[n-1].Results {
			given = append(given, fmt.Sprintf("%q", shorten(result.Text)))
		}
		return Reply(Text(words("The tool gave " + strings.Join(given, " and ") + ".")...))
	}
	if asked == "" {
		return Reply(Text(words("There is no question yet.")...))
	}
	return Reply(Text(words(fmt.Sprintf("You said %q.", shorten(asked)))...))
}

// stamp makes one token: digits, a colon, padding x and the closing space, so it
// needs no escaping.
func stamp(i int, unixNano int64, size int) string {
	b := strconv.AppendInt(make([]byte, 0, 32), int64(i), 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, unixNano, 10)
	for len(b) < size-1 {
		b = append(b, 'x')
	}
	return string(append(b, ' '))
}

// shorten keeps the first 200 characters.
func shorten(text string) string {
	n := 0
	for i := range text {
		if n++; n > 200 {
			return text[:i] + "…"
		}
	}
	return text
}

// words cuts text after each space, as models stream it.
func words(text string) []string { return strings.SplitAfter(text, " ") }
