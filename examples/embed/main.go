// Command embed is Holdfast inside a Go program, with a tool and an agent of its own.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent"
	"github.com/holdfast-run/holdfast/engine/local"
	"github.com/holdfast-run/holdfast/model/demo"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store/sqlite"
	"github.com/holdfast-run/holdfast/tool"
)

func run(ctx context.Context, out io.Writer, dir, message, text string) error {
	type place struct {
		City string `json:"city"`
	}
	weather := func(_ context.Context, in place, _ tool.Call) (string, error) {
		return in.City + ": 21 °C, says a Go function", nil
	}
	tools, err := tool.NewSet(tool.New("weather_sample", "Gives the weather of a city.", weather, tool.WithEffects(session.ReadOnly)))
	if err != nil {
		return err
	}
	rt, err := holdfast.Open(ctx, holdfast.Options{
		Store: sqlite.At(dir), Engine: local.New(local.Options{}), // real models: see model.NewRegistry
		Agents: []agent.Agent{{Name: "forecaster", Model: "demo", Tools: tools}}, Models: demo.New().Model,
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- rt.Run(ctx) }()
	parts := []session.Part{{Type: session.PartText, Text: text}}
	_, err = rt.Do(ctx, holdfast.Local, "ses_1", holdfast.Submission{ID: message, Parts: parts}, func(e session.Event) {
		switch d := e.Data.(type) {
		case session.TextDelta:
			fmt.Fprint(out, d.Text)
		case session.StepCompleted:
			fmt.Fprintln(out)
		}
	})
	stop()
	return errors.Join(err, <-stopped, rt.Close())
}

func main() {
	if err := run(context.Background(), os.Stdout, "embed-data", "msg_1", "What is the weather in Lisbon?"); err != nil {
		log.Fatal(err)
	}
}
