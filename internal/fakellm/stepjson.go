package fakellm

import (
	"encoding/json"
	"fmt"
	"time"
)

// Steps is a list of steps. In JSON each step is an object with one key, its
// name, as in [{"text":["Hel","lo"]},{"pause":"300ms"},{"cut":true}]:
//
//	text, escaped_text, reasoning     ["piece", ...]
//	hidden_reasoning, raw             "text"
//	paced                             {"every":"1s","pieces":["tick ", ...]}
//	tokens                            {"n":1000,"rate":50,"size":21}: Stamped
//	call                              {"id":"call_1","name":"add","args":"{\"a\":1}","every":1}
//	fragments                         [{"index":0,"no_index":false,"id":"A","name":"a","args":"{"}, ...]
//	finish                            {"reason":"length","usage":{"input":1,"output":2},"no_end":false}
//	status                            {"code":429,"retry_after":"2","header":{"X-A":["b"]},"body":"{}"}
//	error                             {"type":"overloaded_error","message":"Overloaded"}: InBandError
//	pause, ping_every                 "300ms"
//	wait_gate, open_gate              "name"
//	headers, begin, ping, byte_by_byte, half_frame, stall, black_hole,
//	cut, reset, clean_eof, eof_inside_frame    true
type Steps []Step

// stepDecoders read the steps with content. Steps that need no words carry
// their name themselves.
var stepDecoders = map[string]func(json.RawMessage) (Step, error){
	"text":             decodeAs[textStep],
	"escaped_text":     decodeAs[escapedTextStep],
	"paced":            decodeAs[pacedStep],
	"reasoning":        decodeAs[reasoningStep],
	"hidden_reasoning": decodeAs[hiddenReasoningStep],
	"call":             decodeAs[Call],
	"fragments":        decodeAs[fragmentsStep],
	"finish":           decodeAs[Finish],
	"tokens":           decodeAs[stampedStep],
	"pause":            decodeAs[pauseStep],
	"ping_every":       decodeAs[pingEveryStep],
	"wait_gate":        decodeAs[waitGateStep],
	"open_gate":        decodeAs[openGateStep],
	"status":           decodeAs[Status],
	"error":            decodeAs[inBandErrorStep],
	"raw":              decodeAs[rawStep],
}

func stepName(step Step) (string, bool) {
	switch s := step.(type) {
	case textStep:
		return "text", true
	case escapedTextStep:
		return "escaped_text", true
	case pacedStep:
		return "paced", true
	case reasoningStep:
		return "reasoning", true
	case hiddenReasoningStep:
		return "hidden_reasoning", true
	case Call:
		return "call", true
	case fragmentsStep:
		return "fragments", true
	case Finish:
		return "finish", true
	case stampedStep:
		return "tokens", true
	case pauseStep:
		return "pause", true
	case pingEveryStep:
		return "ping_every", true
	case waitGateStep:
		return "wait_gate", true
	case openGateStep:
		return "open_gate", true
	case Status:
		return "status", true
	case inBandErrorStep:
		return "error", true
	case rawStep:
		return "raw", true
	case bareStep:
		return string(s), true
	}
	return "", false // Wait and Do live in one process.
}

var bareSteps = map[bareStep]bool{
	headersStep: true, beginStep: true, pingStep: true, byteByByteStep: true, halfFrameStep: true, stallStep: true,
	blackHoleStep: true, cutStep: true, resetStep: true, cleanEOFStep: true, eofInsideStep: true,
}

func decodeAs[S Step](data json.RawMessage) (Step, error) {
	var step S
	if err := json.Unmarshal(data, &step); err != nil {
		return nil, err
	}
	return step, nil
}

// MarshalJSON fails on steps that cannot leave the process: Wait and Do.
func (s Steps) MarshalJSON() ([]byte, error) {
	list := make([]map[string]any, len(s))
	for i, step := range s {
		name, ok := stepName(step)
		if !ok {
			return nil, fmt.Errorf("step %d: a %T has no JSON form", i, step)
		}
		list[i] = map[string]any{name: step}
		if _, bare := step.(bareStep); bare {
			list[i][name] = true
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Steps) UnmarshalJSON(data []byte) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	steps := make(Steps, 0, len(list))
	for i, entry := range list {
		if len(entry) != 1 {
			return fmt.Errorf("step %d: want one key, its name, and not %d", i, len(entry))
		}
		for name, content := range entry {
			step, err := decodeStep(name, content)
			if err != nil {
				return fmt.Errorf("step %d: %s: %w", i, name, err)
			}
			steps = append(steps, step)
		}
	}
	*s = steps
	return nil
}

func decodeStep(name string, content json.RawMessage) (Step, error) {
	if bareSteps[bareStep(name)] {
		return bareStep(name), nil
	}
	decode, ok := stepDecoders[name]
	if !ok {
		return nil, fmt.Errorf("no such step")
	}
	return decode(content)
}

// MarshalText implements encoding.TextMarshaler: "300ms".
func (s pauseStep) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *pauseStep) UnmarshalText(text []byte) error { return parseDuration(text, (*time.Duration)(s)) }

// MarshalText implements encoding.TextMarshaler: "1s".
func (s pingEveryStep) MarshalText() ([]byte, error) { return []byte(time.Duration(s).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *pingEveryStep) UnmarshalText(text []byte) error {
	return parseDuration(text, (*time.Duration)(s))
}

func parseDuration(text []byte, d *time.Duration) error {
	parsed, err := time.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = parsed
	return nil
}
