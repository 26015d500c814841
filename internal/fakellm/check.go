package fakellm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// checkPace is the pause between the words of an answer to a check.
const checkPace = 20 * time.Millisecond

// check answers what a check of clients asks for: "short", "long", "tool",
// "approval" or "error". Of the tools that it is offered it calls those it knows.
func check(what string, r Request) Turn {
	results := []Result(nil)
	if n := len(r.Messages); n > 0 {
		results = r.Messages[n-1].Results
	}
	switch {
	case len(results) > 0:
		return Reply(Paced(checkPace, append(words(fmt.Sprintf("The tool gave %q. ", shorten(results[0].Text))), numbered(60)...)...))
	case strings.HasPrefix(what, "long"):
		return Reply(Reasoning(words("This is a long answer, so there is some thinking first.")...), Paced(checkPace, numbered(90)...))
	case strings.HasPrefix(what, "tool"):
		return Reply(Reasoning(words("A tool is wanted.")...), call(r, Call{Name: "long_task", Args: `{"seconds":1}`}, Call{Name: "look", Args: `{"ms":600}`}))
	case strings.HasPrefix(what, "approval"):
		return Reply(Text(words("A person has to agree. ")...),
			call(r, Call{Name: "mail_sample", Args: `{"to":"ada@example.com","text":"hi"}`}, Call{Name: "pay", Args: `{"ms":300}`}))
	case strings.HasPrefix(what, "error"):
		return Reply(Text(words("This answer breaks off here.")...), InBandError("invalid_request_error", "the provider was asked to fail, and did"))
	}
	return Reply(Text(words("A few words, and no more.")...))
}

// call is the first call of a tool that is offered, or else says that there is none.
func call(r Request, calls ...Call) Step {
	for _, c := range calls {
		if slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Name == c.Name }) {
			return c
		}
	}
	return Text("There is no tool for this here.")
}

// numbered are n words.
func numbered(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprintf("word%d ", i+1))
	}
	return all
}
