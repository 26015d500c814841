package wire

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"time"
)

// MaxEvent is how many bytes may come in before an event is complete. The SDKs'
// decoders bound a line by as much, but not the lines of one event.
const MaxEvent = 32 << 20

var errEventTooLarge = errors.New("event too large")

func tooLarge(err error) bool {
	return errors.Is(err, errEventTooLarge) || errors.Is(err, bufio.ErrTooLong)
}

// Body is the body of a streamed answer, to be put in place of the response's
// own before a decoder reads it.
type Body struct {
	io.ReadCloser
	left int
}

// Meter puts a Body into res.
func Meter(res *http.Response) *Body {
	b := &Body{ReadCloser: res.Body, left: MaxEvent}
	res.Body = b
	return b
}

// NextEvent says that an event is complete and the next one may be as large.
func (b *Body) NextEvent() { b.left = MaxEvent }

// Read fails when the event that is being read is over the bound.
func (b *Body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errEventTooLarge
	}
	n, err := b.ReadCloser.Read(p)
	b.left -= n
	return n, err
}

// Drain reads what follows the last event, normally only the end of the body, so
// that the connection can serve the next call. It gives up soon: the answer is
// whole, and a connection is cheap.
func (b *Body) Drain() {
	const most, patience = 4 << 10, 50 * time.Millisecond
	stop := time.AfterFunc(patience, func() { b.Close() })
	defer stop.Stop()
	_, _ = io.Copy(io.Discard, io.LimitReader(b.ReadCloser, most))
}
