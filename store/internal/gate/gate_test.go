package gate

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestAHolderOfAGateIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		must(t, g.Look(t.Context()))
		must(t, g.Look(t.Context()))
		if g.TryHold() {
			t.Fatal("it could be held while others looked")
		}
		held := false
		go func() {
			must(t, g.Hold(t.Context()))
			held = true
		}()
		synctest.Wait()
		g.LookDone()
		synctest.Wait()
		if held {
			t.Fatal("it was held while another looked")
		}
		g.LookDone()
		synctest.Wait()
		if !held {
			t.Fatal("it was not held when the last looker was done")
		}
		looked := false
		go func() {
			must(t, g.Look(t.Context()))
			looked = true
		}()
		synctest.Wait()
		if looked {
			t.Fatal("somebody looked while it was held")
		}
		g.Release()
		synctest.Wait()
		if !looked {
			t.Fatal("nobody could look when it was released")
		}
	})
}

func TestNobodyStarvesAtAGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		must(t, g.Look(t.Context()))
		held, looked := false, false
		go func() {
			must(t, g.Hold(t.Context()))
			held = true
		}()
		synctest.Wait()
		go func() {
			must(t, g.Look(t.Context()))
			looked = true
		}()
		synctest.Wait()
		if looked {
			t.Fatal("a looker overtook a holder that waited")
		}
		g.LookDone()
		synctest.Wait()
		if !held || looked {
			t.Fatalf("held %v, looked %v", held, looked)
		}
		// One who only tries does not overtake those who wait to look.
		g.mu.Lock()
		g.held = false
		g.mu.Unlock()
		if g.TryHold() {
			t.Fatal("a try overtook a looker that waited")
		}
		g.Release()
		synctest.Wait()
		if !looked {
			t.Fatal("the looker still waits")
		}
	})
}

func TestWaitingAtAGateEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Gate
		must(t, g.Look(t.Context()))
		cause := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		var err error
		go func() { err = g.Hold(ctx) }()
		synctest.Wait()
		looked := false
		go func() {
			must(t, g.Look(t.Context()))
			looked = true
		}()
		synctest.Wait()
		cancel(cause)
		synctest.Wait()
		if !errors.Is(err, cause) {
			t.Errorf("the holder got %v", err)
		}
		if !looked {
			t.Error("the looker waits for a holder that has gone")
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
