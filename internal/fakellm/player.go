package fakellm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// How a turn may end other than by running out of steps.
var (
	errTurnOver = errors.New("the turn is over")
	errCut      = errors.New("the script cuts the connection")
	errReset    = errors.New("the script resets the connection")
	errLeft     = errors.New("the client left")
	errClosing  = errors.New("the server closes")
	errScript   = errors.New("bad script")
)

// A player plays one turn to one client.
type player struct {
	ctx     context.Context // ends when the client leaves or the server closes
	server  *Server
	request Request
	encoder encoder
	out     *emitter
	answer  answer

	begun    bool
	finished bool
}

// run plays the turn that choose gives and says how it ended: nil when it was
// played to its end. A panic in a test's own function is a bad script.
func (p *player) run(choose func() Turn) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: panic: %v\n%s", errScript, v, debug.Stack())
		}
	}()
	err = p.play(choose().Steps)
	if err == nil && !p.finished {
		err = p.finish(Finish{})
	}
	if errors.Is(err, errTurnOver) {
		err = nil
	}
	if err != nil && p.ctx.Err() != nil {
		err = context.Cause(p.ctx)
	}
	return err
}

func (p *player) play(steps []Step) error {
	for i, step := range steps {
		if step == nil {
			return fmt.Errorf("%w: step %d is nil", errScript, i)
		}
		if err := step.play(p); err != nil {
			return err
		}
	}
	return nil
}

// headers sends the head of the response, once.
func (p *player) headers() error {
	if p.out.headSent() {
		return nil
	}
	header := p.out.w.Header()
	if p.request.Stream {
		header.Set("Content-Type", "text/event-stream; charset=utf-8")
		header.Set("Cache-Control", "no-cache")
	} else {
		header.Set("Content-Type", "application/json")
	}
	p.out.head(http.StatusOK)
	if p.request.Stream {
		return p.out.flush()
	}
	return nil
}

// emit puts frames on the wire; nothing if there are none.
func (p *player) emit(frames []byte) error {
	if len(frames) == 0 {
		return nil
	}
	if err := p.headers(); err != nil {
		return err
	}
	if err := p.out.write(frames); err != nil {
		return err
	}
	if p.request.Stream {
		return p.out.flush()
	}
	return nil
}

// begin sends the frame that begins the answer, once.
func (p *player) begin() error {
	if p.begun || !p.request.Stream {
		return nil
	}
	p.begun = true
	return p.emit(p.encoder.begin())
}

// say adds pieces to the open block of that kind, or to a new one.
func (p *player) say(kind blockKind, pieces []escaped) error {
	if err := p.begin(); err != nil {
		return err
	}
	b := p.answer.last()
	if b == nil || b.kind != kind || b.closed || kind == hiddenBlock {
		if err := p.closeBlocks(); err != nil {
			return err
		}
		b = &block{kind: kind}
		p.answer.add(b)
		if kind == hiddenBlock {
			b.body.WriteString(string(pieces[0]))
		}
		if err := p.stream(p.encoder.open(b)); err != nil {
			return err
		}
		if kind == hiddenBlock {
			return p.closeBlocks()
		}
	}
	for _, piece := range pieces {
		b.body.WriteString(string(piece))
		b.deltas++
		if err := p.stream(p.encoder.delta(b, piece)); err != nil {
			return err
		}
	}
	return nil
}

// openCall begins a tool call and sends its first fragment.
func (p *player) openCall(b *block, f Fragment) error {
	if err := p.begin(); err != nil {
		return err
	}
	if last := p.answer.last(); last != nil && !(b.scripted && last.scripted) {
		if err := p.closeBlocks(); err != nil {
			return err
		}
	}
	p.answer.add(b)
	if b.scripted {
		b.index = p.answer.firstCall() + f.Index
	}
	b.body.WriteString(string(escape(f.Args)))
	return p.stream(p.encoder.fragment(b, f, true))
}

func (p *player) fragment(b *block, f Fragment) error {
	b.body.WriteString(string(escape(f.Args)))
	b.deltas++
	return p.stream(p.encoder.fragment(b, f, false))
}

func (p *player) closeBlocks() error {
	var frames []byte
	for _, b := range p.answer.blocks {
		if b.closed {
			continue
		}
		b.closed = true
		if b.kind == reasoningBlock {
			b.signature = sign(unescape(b.text()))
		}
		frames = append(frames, p.encoder.close(b)...)
	}
	return p.stream(frames)
}

// stream is emit for frames that only a streamed response has.
func (p *player) stream(frames []byte) error {
	if err := context.Cause(p.ctx); err != nil {
		return err
	}
	if !p.request.Stream {
		return nil
	}
	return p.emit(frames)
}

func (p *player) finish(f Finish) error {
	p.finished = true
	if f.Reason == "" {
		f.Reason = Stop
		if p.answer.calls() > 0 {
			f.Reason = ToolCalls
		}
	}
	if f.Usage == nil {
		f.Usage = p.answer.estimate(len(p.request.Body))
	}
	if err := p.begin(); err != nil {
		return err
	}
	if err := p.closeBlocks(); err != nil {
		return err
	}
	if !p.request.Stream {
		return p.emit(p.encoder.whole(&p.answer, f.Reason, *f.Usage))
	}
	if err := p.emit(p.encoder.finish(&p.answer, f.Reason, *f.Usage)); err != nil || f.NoEnd {
		return err
	}
	return p.emit(p.encoder.end(&p.answer, f.Reason, *f.Usage))
}

func (p *player) pause(d time.Duration) error {
	if d <= 0 {
		return context.Cause(p.ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// wait returns when gate lets through; a nil gate never does.
func (p *player) wait(gate <-chan struct{}) error {
	select {
	case <-gate:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p *player) comment(text string) error {
	if !p.request.Stream {
		return nil
	}
	return p.emit([]byte(": " + text + "\n\n"))
}

func (p *player) ping() error {
	if !p.request.Stream {
		return nil
	}
	if frame := p.encoder.ping(); frame != nil {
		return p.emit(frame)
	}
	return p.comment("ping")
}

// halfFrame sends the beginning of a delta: `data: {"choi` on the chat wire.
func (p *player) halfFrame() error {
	const kept = len(`data: {"choi`)
	if !p.request.Stream {
		whole := p.encoder.whole(&p.answer, Stop, *p.answer.estimate(0))
		return p.emit(whole[:len(whole)/2])
	}
	if err := p.begin(); err != nil {
		return err
	}
	b := p.answer.last()
	var frames []byte
	if b == nil || b.kind != textBlock || b.closed {
		if err := p.closeBlocks(); err != nil {
			return err
		}
		b = &block{kind: textBlock}
		p.answer.add(b)
		frames = p.encoder.open(b)
	}
	frames = append(frames, p.encoder.delta(b, "never whole")...)
	at := bytes.LastIndex(frames, []byte("data: {"))
	return p.emit(frames[:at+kept])
}

// cleanEOF ends the response with no finish. A response that is not streamed
// is then the first half of one.
func (p *player) cleanEOF() error {
	if err := p.headers(); err != nil {
		return err
	}
	if !p.request.Stream && p.out.sent == 0 {
		if err := p.halfFrame(); err != nil {
			return err
		}
	}
	return errTurnOver
}

func (p *player) newCallID() string {
	prefix := "call_"
	if p.request.Wire == Messages {
		prefix = "toolu_"
	}
	return fmt.Sprintf("%s%s%d_%d", prefix, p.server.id, p.request.Number, p.answer.calls())
}

// An emitter writes to one client and counts.
type emitter struct {
	w       http.ResponseWriter
	flusher *http.ResponseController
	piece   int // bytes handed over at a time; 0: each frame whole
	status  int
	sent    int64
	onHead  func(status int)
}

func (e *emitter) headSent() bool { return e.status != 0 }

func (e *emitter) head(status int) {
	e.status = status
	e.w.WriteHeader(status)
	e.onHead(status)
}

func (e *emitter) flush() error {
	if err := e.flusher.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errLeft, err)
	}
	return nil
}

// The marks around the number of a filler: private-use characters, which JSON
// leaves as they are.
const (
	fillerOpen  = "\uE0F0fill:"
	fillerClose = "\uE0F1"
)

var fillerBlock = bytes.Repeat([]byte("x"), 64<<10)

// write sends b with its fillers spelled out.
func (e *emitter) write(b []byte) error {
	for {
		before, rest, found := bytes.Cut(b, []byte(fillerOpen))
		if err := e.writeBytes(before); err != nil || !found {
			return err
		}
		number, after, closed := bytes.Cut(rest, []byte(fillerClose))
		n, err := strconv.Atoi(string(number))
		if !closed || err != nil {
			return fmt.Errorf("%w: broken filler %.20q", errScript, rest)
		}
		for n > 0 {
			part := fillerBlock[:min(n, len(fillerBlock))]
			if err := e.writeBytes(part); err != nil {
				return err
			}
			n -= len(part)
		}
		b = after
	}
}

func (e *emitter) writeBytes(b []byte) error {
	for len(b) > 0 {
		n := len(b)
		if e.piece > 0 {
			n = min(n, e.piece)
		}
		written, err := e.w.Write(b[:n])
		e.sent += int64(written)
		if err != nil {
			return fmt.Errorf("%w: %w", errLeft, err)
		}
		if e.piece > 0 {
			if err := e.flush(); err != nil {
				return err
			}
		}
		b = b[n:]
	}
	return nil
}

// abort ends the connection without the end of the response. It does not
// return.
func (e *emitter) abort(reset bool) {
	if reset {
		if conn, _, err := e.flusher.Hijack(); err == nil {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0) // with a deaf socket the end is no reset, and the test says so
			}
			conn.Close()
		}
	}
	panic(http.ErrAbortHandler)
}
