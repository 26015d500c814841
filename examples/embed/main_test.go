package main

import (
	"os"
	"strings"
	"testing"
)

func TestTheExampleAnswersAndAnswersTheSameMessageOnce(t *testing.T) {
	dir := t.TempDir()
	var first, second strings.Builder
	for _, out := range []*strings.Builder{&first, &second} {
		if err := run(t.Context(), out, dir, "msg_1", "What is the weather in Oslo?"); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(first.String(), "- Oslo: 21 °C, says a Go function\n") {
		t.Errorf("it answered %q", first.String())
	}
	if second.String() != first.String() {
		t.Errorf("the second time it answered %q", second.String())
	}
}

func TestTheExampleIsShort(t *testing.T) {
	raw, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(raw), "\n"); n >= 60 {
		t.Errorf("it has %d lines", n)
	}
}
