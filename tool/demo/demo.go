// Package demo has tools to show a runtime with: they need no network and no
// key, touch nothing, and what they say is plainly labelled as made up.
package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Names lists the demonstration tools.
func Names() []string { return []string{"weather_sample", "long_task", "mail_sample", "flaky"} }

// ByName makes one of [Names]; ok is false for any other name.
func ByName(name string) (t tool.Tool, ok bool) {
	switch name {
	case "weather_sample":
		return Weather(), true
	case "long_task":
		return LongTask(), true
	case "mail_sample":
		return Mail(), true
	case "flaky":
		return Flaky(), true
	}
	return nil, false
}

type weatherInput struct {
	City string `json:"city"`
}

// Weather is the tool weather_sample: made-up weather, always the same for a city.
func Weather() tool.Tool {
	return tool.New("weather_sample", "Gives sample weather for a city. The data is made up for demonstrations; it is no forecast.",
		func(_ context.Context, in weatherInput, _ tool.Call) (string, error) {
			city := session.TrimText(in.City, 80)
			sum := fnv.New32a()
			_, _ = sum.Write([]byte(in.City)) // never fails
			n := sum.Sum32()
			skies := []string{"sunny", "partly cloudy", "cloudy", "light rain", "windy with sunny spells"}
			return fmt.Sprintf("%s: %d °C, %s, wind %d km/h (sample data)", city, 8+n%20, skies[n/20%5], 5+n/100%25), nil
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(5*time.Second))
}

// maxSeconds bounds a long task.
const maxSeconds = 300

// reportEvery is how often a long task tells how far it is.
const reportEvery = 250 * time.Millisecond

type longTaskInput struct {
	Seconds int `json:"seconds"`
}

// LongTask is the tool long_task: it takes as many seconds as it is told, up to
// 300, and reports progress all the while. A call that is made again begins anew.
func LongTask() tool.Tool {
	return tool.New("long_task", "Takes the given number of seconds and reports its progress. It does nothing else; it is for demonstrations.",
		func(ctx context.Context, in longTaskInput, call tool.Call) (string, error) {
			start := time.Now()
			whole := time.Duration(in.Seconds) * time.Second
			ticker := time.NewTicker(reportEvery)
			defer ticker.Stop()
			for {
				spent := min(time.Since(start), whole)
				call.Progress(session.Progress{
					Message:  fmt.Sprintf("second %d of %d", int(spent/time.Second), in.Seconds),
					Fraction: float64(spent) / float64(whole),
				})
				if spent == whole {
					return fmt.Sprintf("All %d seconds of the sample task are done.", in.Seconds), nil
				}
				select {
				case <-ticker.C:
				case <-ctx.Done():
					return "", context.Cause(ctx)
				}
			}
		},
		tool.WithParameters(json.RawMessage(fmt.Sprintf(
			`{"type":"object","properties":{"seconds":{"type":"integer","minimum":1,"maximum":%d}},"required":["seconds"],"additionalProperties":false}`, maxSeconds))),
		tool.WithEffects(session.ReadOnly), tool.WithTimeout((maxSeconds+30)*time.Second))
}

type mailInput struct {
	To   string `json:"to"`
	Text string `json:"text"`
}

// mailTime is how long a letter takes to be pretended.
const mailTime = 300 * time.Millisecond

// Mail is the tool mail_sample: it pretends to send a letter, which a person
// must approve. Nothing is sent.
func Mail() tool.Tool {
	return tool.New("mail_sample", "Pretends to send a letter; nothing is sent. A person is asked first. It is for demonstrations.",
		func(ctx context.Context, in mailInput, _ tool.Call) (string, error) {
			timer := time.NewTimer(mailTime)
			defer timer.Stop()
			select {
			case <-timer.C:
				return fmt.Sprintf("The sample letter to %s would be sent now.", session.TrimText(in.To, 200)), nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		}, tool.WithEffects(session.Unsafe), tool.WithApproval(tool.Always), tool.WithTimeout(5*time.Second))
}

type flakyInput struct {
	Task string `json:"task"`
}

// maxRemembered bounds what flaky remembers, in tasks.
const maxRemembered = 1000

// Flaky is the tool flaky: a task fails the first time a run asks for it and
// works from then on, in a new call as in another try of the same call.
func Flaky() tool.Tool {
	type task struct{ run, task string }
	var mu sync.Mutex
	failed := map[task]bool{} // guarded by mu
	return tool.New("flaky", "Pretends to do a task. It fails the first time and works when it is called again; it is for demonstrations.",
		func(_ context.Context, in flakyInput, call tool.Call) (string, error) {
			t := task{call.Run, session.TrimText(in.Task, 200)}
			mu.Lock()
			defer mu.Unlock()
			if call.Attempt <= 1 && !failed[t] {
				if len(failed) >= maxRemembered {
					clear(failed)
				}
				failed[t] = true
				return "", tool.Errorf("temporary", "The sample task %q failed, as it always does the first time. Call the tool again with the same task.", t.task)
			}
			return fmt.Sprintf("The sample task %q worked this time.", t.task), nil
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(5*time.Second))
}
