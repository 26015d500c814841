package app

import (
	"context"
	"fmt"
)

type workerCommand struct {
	process
}

// Help is the long help.
func (workerCommand) Help() string {
	return `It prints "Holdfast carries runs" once it does. The log goes to the error output.

An interrupt or SIGTERM stops it in order: runs that are under way are finished, or handed over to another worker, within the drain time (engine.drain, 10s).`
}

// Run carries runs until ctx ends, then drains.
func (c *workerCommand) Run(ctx context.Context, a *App) error {
	spareProcessor()
	made, err := c.build(a)
	if err != nil {
		return err
	}
	rt, closeRuntime, err := c.open(ctx, made, true, "")
	if err != nil {
		return err
	}
	defer closeRuntime()
	fmt.Fprintln(a.Stdout, "Holdfast carries runs")
	ended := make(chan struct{})
	telling, stop := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(ended)
		select {
		case <-ctx.Done():
			tellDraining(telling, a, rt)
		case <-telling.Done():
		}
	}()
	err = rt.Run(ctx)
	stop()
	<-ended
	if err == nil {
		fmt.Fprintln(a.Stderr, "Stopped.")
	}
	return err
}
