package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/holdfast-run/holdfast/session"
)

const referenceBytes = 128

// request is what a client asks on a socket.
type request struct {
	Type     string
	ID       string // the client's own reference
	Session  string
	Sessions bool
	After    int64
}

// parseRequest reads a request and holds it to the protocol. With an error
// comes its code, and what may be told of the request.
func parseRequest(raw []byte) (request, string, error) {
	req, seen, err := decodeRequest(raw)
	switch {
	case len(req.ID) > referenceBytes:
		req.ID, err = "", errors.Join(err, fmt.Errorf("id is at most %d bytes", referenceBytes))
	case err != nil:
	case req.Type != "subscribe" && req.Type != "unsubscribe":
		err = errors.New("type is subscribe or unsubscribe")
	case req.Sessions == seen["session"]:
		err = errors.New("either session or sessions is wanted")
	case seen["after"] && (req.Sessions || req.Type != "subscribe"):
		err = errors.New("after goes with subscribe and session only")
	}
	if seen["session"] && !session.ValidID(req.Session) {
		req.Session = ""
		if err == nil {
			return req, "invalid_id", errors.New("this is no id of a session")
		}
	}
	if errors.Is(err, ErrCursor) {
		return req, "invalid_cursor", err
	}
	return req, "malformed", err
}

// decodeRequest reads one JSON object whose fields are all known, exactly as
// they are written, and there once. It says which are.
func decodeRequest(raw []byte) (req request, seen map[string]bool, err error) {
	seen = map[string]bool{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return req, seen, errors.New("a message is one JSON object")
	}
	var cursor error
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return req, seen, fmt.Errorf("not JSON: %w", err)
		}
		name, _ := key.(string)
		if seen[name] {
			return req, seen, fmt.Errorf("field %q is there twice", name)
		}
		seen[name] = true
		var after json.RawMessage
		into, known := map[string]any{
			"type": &req.Type, "id": &req.ID, "session": &req.Session, "sessions": &req.Sessions, "after": &after,
		}[name]
		if !known {
			return req, seen, fmt.Errorf("unknown field %q", name)
		}
		if err := decoder.Decode(into); err != nil {
			return req, seen, fmt.Errorf("field %q: %w", name, err)
		}
		if name == "after" {
			req.After, cursor = ParseCursor(string(after))
		}
	}
	if _, err := decoder.Token(); err != nil {
		return req, seen, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return req, seen, errors.New("a message is one JSON object")
	}
	return req, seen, cursor
}
