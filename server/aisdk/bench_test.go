package aisdk_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/session"
)

// BenchmarkDelta says what one token costs one page, and what it costs when it
// is of another run of the session.
func BenchmarkDelta(b *testing.B) {
	frame := func(seq int64, run string, d session.Data) session.Frame {
		raw, err := session.Event{Session: "ses_01m8q90r4qv3kp723e13xthgkq", Seq: seq, Run: run, Step: 1, Attempt: 1, Data: d}.AppendJSON(nil)
		if err != nil {
			b.Fatal(err)
		}
		return session.Frame{From: seq, To: seq, JSON: raw}
	}
	const run, message = "run_01m8q90r4r0ejjme42s08psq4k", "msg_01m8q90r4r0ejjme42s0mne0qk"
	for name, f := range map[string]session.Frame{
		"own":   frame(3, run, session.TextDelta{Message: message, Text: "a token of text "}),
		"other": frame(3, strings.ToUpper(run), session.TextDelta{Message: message, Text: "a token of text "}),
	} {
		b.Run(name, func(b *testing.B) {
			p := aisdk.NewProjector(aisdk.View{Run: run, Message: message, Index: true}, aisdk.Blobs{})
			for _, f := range []session.Frame{
				frame(1, run, session.MessageCreated{Message: session.Message{ID: message, Role: session.RoleAssistant}}),
				frame(2, run, session.StepStarted{Message: message}),
			} {
				if _, err := p.Apply(f); err != nil {
					b.Fatal(err)
				}
			}
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				chunks, err := p.Apply(f)
				if err != nil {
					b.Fatal(err)
				}
				out = out[:0]
				for _, c := range chunks {
					out = c.AppendEvent(out)
				}
			}
		})
	}
}
