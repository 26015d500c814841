package aisdk

import "github.com/holdfast-run/holdfast/session"

// inherited tells the steps that a message begins with, as if they were just
// made: a retry goes on behind them.
func (p *Projector) inherited(parts []session.Part) error {
	for len(parts) > 0 {
		step, n := parts[0].Step, 1
		for n < len(parts) && parts[n].Step == step {
			n++
		}
		for _, d := range made(p.view.Message, parts[:n]) {
			if err := p.event(session.Event{Run: p.view.Run, Step: step, Data: d}); err != nil {
				return err
			}
		}
		parts = parts[n:]
	}
	return nil
}

// made are the events that make the parts of one step.
func made(message string, parts []session.Part) []session.Data {
	var said []session.Part
	var calls []session.Data
	finish := "stop"
	for _, part := range parts {
		if part.Type == session.PartStep {
			continue
		}
		said = append(said, part)
		c := part.Tool
		if c == nil {
			continue
		}
		finish = "tool_calls"
		// What a person said of it was said to another run.
		calls = append(calls, session.ToolCalled{
			Message: message, Call: c.ID, Name: c.Name, Arguments: c.Arguments, RawArguments: c.RawArguments,
			ArgumentsBlob: c.ArgumentsBlob, Effects: c.Effects,
		}, settled(message, c))
	}
	events := append([]session.Data{
		session.StepStarted{Message: message},
		session.ModelCompleted{Message: message, Parts: said, Finish: finish},
	}, calls...)
	return append(events, session.StepCompleted{})
}

// settled is the event that gave a call its result.
func settled(message string, c *session.ToolCall) session.Data {
	switch c.Status {
	case session.CallCompleted:
		return session.ToolCompleted{Message: message, Call: c.ID, Result: c.Result, Blob: c.Blob, Files: c.Files, Cut: c.Cut, By: c.By}
	case session.CallFailed:
		var cause session.Failure
		if c.Error != nil {
			cause = *c.Error
		}
		return session.ToolFailed{Message: message, Call: c.ID, Error: cause, By: c.By}
	case session.CallDenied:
		return session.ToolDenied{Message: message, Call: c.ID, By: c.By, Note: c.Note}
	}
	return session.ToolCancelled{Message: message, Call: c.ID, Reason: c.Note}
}
