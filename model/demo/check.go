package demo

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/model"
)

// check plays what a check of clients asks for: a few words, a long answer, a
// tool, an approval, or an error, always alike.
func (s *stage) check(what string) error {
	switch {
	case strings.HasPrefix(what, "long"):
		if err := s.think("This is a long answer, so there is some thinking first, as some models do it."); err != nil {
			return err
		}
		return s.say(numbered("word", 80))
	case strings.HasPrefix(what, "tool"):
		return s.checkTool()
	case strings.HasPrefix(what, "approval"):
		return s.mail()
	case strings.HasPrefix(what, "error"):
		if err := s.say("This answer breaks off here."); err != nil {
			return err
		}
		return &model.Error{Code: model.CodeInvalidRequest, Message: "the demo model was asked to fail, and did"}
	}
	return s.say("A few words, and no more.")
}

func (s *stage) checkTool() error {
	if !s.scene.has("long_task") {
		return s.missing("long_task")
	}
	if r, done := s.scene.last("long_task"); done {
		return s.say("It said: " + oneLine(r.text) + " " + numbered("word", 20))
	}
	if err := s.think("A tool is wanted, so I call the one that takes a while."); err != nil {
		return err
	}
	return s.call("long_task", arguments("seconds", 1))
}

func numbered(word string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d ", word, i+1)
	}
	return strings.TrimSpace(b.String())
}
