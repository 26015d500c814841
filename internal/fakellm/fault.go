package fakellm

import (
	"fmt"
	"net/http"
	"time"
)

// Pause waits, with nothing on the wire. A pause at the start of a turn also
// holds back the response's head: say Headers first if that is not meant.
func Pause(d time.Duration) Step { return pauseStep(d) }

type pauseStep time.Duration

func (s pauseStep) play(p *player) error { return p.pause(time.Duration(s)) }

// Wait holds the stream until gate is closed or gives a value.
func Wait(gate <-chan struct{}) Step { return waitStep(gate) }

type waitStep <-chan struct{}

func (s waitStep) play(p *player) error { return p.wait(s) }

// WaitGate holds the stream until the named gate is open (Server.OpenGate, the
// OpenGate step of another turn, or POST /_gates/{name}).
func WaitGate(name string) Step { return waitGateStep(name) }

type waitGateStep string

func (s waitGateStep) play(p *player) error { return p.wait(p.server.gate(string(s))) }

// OpenGate opens the named gate: what was said before is on the socket.
// Server.WaitGate and GET /_gates/{name} wait for it.
func OpenGate(name string) Step { return openGateStep(name) }

type openGateStep string

func (s openGateStep) play(p *player) error {
	p.server.OpenGate(string(s))
	return nil
}

// Do calls f when the stream gets there: what was said before is on the socket.
func Do(f func()) Step { return doStep(f) }

type doStep func()

func (s doStep) play(*player) error {
	s()
	return nil
}

// Status answers with an HTTP error in place of a stream. It must be the first
// step that writes, and it ends the turn.
type Status struct {
	Code int `json:"code"`
	// RetryAfter is that header's value. Default: no header.
	RetryAfter string      `json:"retry_after,omitempty"`
	Header     http.Header `json:"header,omitempty"`
	// Body is sent as it is. Default: the provider's error shape for Code.
	Body string `json:"body,omitempty"`
}

func (s Status) play(p *player) error {
	if p.out.headSent() {
		return fmt.Errorf("%w: Status %d after the response began", errScript, s.Code)
	}
	header := p.out.w.Header()
	for name, values := range s.Header {
		header[http.CanonicalHeaderKey(name)] = values
	}
	if s.RetryAfter != "" {
		header.Set("Retry-After", s.RetryAfter)
	}
	body := []byte(s.Body)
	if s.Body == "" {
		body = p.encoder.errorBody(errorOfStatus(s.Code, p.request.Wire))
	}
	if header.Get("Content-Type") == "" {
		header.Set("Content-Type", "application/json")
	}
	p.out.head(s.Code)
	if err := p.out.write(body); err != nil {
		return err
	}
	return errTurnOver
}

// InBandError reports an error inside the stream of a 200 response, as
// providers do under load, and ends it. The type is a word of either provider,
// such as overloaded_error, and is said in the words of the wire; any other word
// is sent as it is. A response that is not streamed gets a matching status.
func InBandError(kind, message string) Step { return inBandErrorStep{kind, message} }

type inBandErrorStep struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

func (s inBandErrorStep) play(p *player) error {
	failure := inWordsOf(p.request.Wire, s.Type, s.Message)
	if !p.request.Stream {
		return Status{Code: failure.status, Body: string(p.encoder.errorBody(failure))}.play(p)
	}
	if err := p.emit(p.encoder.fail(failure)); err != nil {
		return err
	}
	return errTurnOver
}

// RawFrame puts bytes on the wire as they are: mind the closing blank line.
func RawFrame(frame string) Step { return rawStep(frame) }

type rawStep string

func (s rawStep) play(p *player) error {
	p.finished = true // What follows raw bytes is the script's own affair.
	return p.emit([]byte(s))
}

// PingEvery sends nothing but SSE comments, one every d, until the client
// leaves. On a response that is not streamed it is silence.
func PingEvery(d time.Duration) Step { return pingEveryStep(d) }

type pingEveryStep time.Duration

func (s pingEveryStep) play(p *player) error {
	for {
		if err := p.comment("ping"); err != nil {
			return err
		}
		if err := p.pause(time.Duration(s)); err != nil {
			return err
		}
	}
}

// The steps that need no words. Their value is their name in JSON.
type bareStep string

const (
	headersStep    bareStep = "headers"
	beginStep      bareStep = "begin"
	pingStep       bareStep = "ping"
	byteByByteStep bareStep = "byte_by_byte"
	halfFrameStep  bareStep = "half_frame"
	stallStep      bareStep = "stall"
	blackHoleStep  bareStep = "black_hole"
	cutStep        bareStep = "cut"
	resetStep      bareStep = "reset"
	cleanEOFStep   bareStep = "clean_eof"
	eofInsideStep  bareStep = "eof_inside_frame"
)

// Headers sends the response's head now, with no frame.
func Headers() Step { return headersStep }

// Begin sends the head and the frame that begins an answer, before any content.
func Begin() Step { return beginStep }

// Ping sends one sign of life: Anthropic's ping event, a comment elsewhere.
func Ping() Step { return pingStep }

// ByteByByte hands every later byte to the network by itself.
func ByteByByte() Step { return byteByByteStep }

// HalfFrame sends the first bytes of a text delta's frame and no more of it.
func HalfFrame() Step { return halfFrameStep }

// Stall sends the head if it has not been sent, then is silent until the client
// leaves.
func Stall() Step { return stallStep }

// BlackHole never answers, not even with a head, until the client leaves.
func BlackHole() Step { return blackHoleStep }

// Cut closes the connection in the middle of the response: no closing chunk.
func Cut() Step { return cutStep }

// Reset is Cut with a TCP reset in place of an orderly close. Bytes that the
// client's kernel has not received yet may be lost with it.
func Reset() Step { return resetStep }

// CleanEOF ends the response as HTTP wants it, with no finish reason.
func CleanEOF() Step { return cleanEOFStep }

// EOFInsideFrame is HalfFrame, then CleanEOF.
func EOFInsideFrame() Step { return eofInsideStep }

func (s bareStep) play(p *player) error {
	switch s {
	case headersStep:
		return p.headers()
	case beginStep:
		return p.begin()
	case pingStep:
		return p.ping()
	case byteByByteStep:
		p.out.piece = 1
		return nil
	case halfFrameStep:
		return p.halfFrame()
	case stallStep:
		if err := p.headers(); err != nil {
			return err
		}
		return p.wait(nil)
	case blackHoleStep:
		return p.wait(nil)
	case cutStep:
		return errCut
	case resetStep:
		return errReset
	case cleanEOFStep:
		return p.cleanEOF()
	case eofInsideStep:
		if err := p.halfFrame(); err != nil {
			return err
		}
		return p.cleanEOF()
	}
	return fmt.Errorf("%w: no step %q", errScript, string(s))
}
