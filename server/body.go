package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

// defaultBodyTimeout is how long a client may take to send a body.
const defaultBodyTimeout = 30 * time.Second

// body is the middleware that finds the principal and reads the body, before
// huma sees the request: bounded, in time, JSON, clean, and without a member
// that is misspelt or there twice.
func (s *Server) body(rt route) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		c := &call{humaContext: hc, ctx: r.Context()}
		if !rt.public {
			p, err := s.principal(r)
			if err != nil {
				s.refuse(w, r, err)
				return
			}
			c.ctx = context.WithValue(c.ctx, principalKey{}, p)
		} else if rt.admit != nil {
			if err := rt.admit(r); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		if want := hc.Operation().RequestBody; want != nil {
			schema := want.Content["application/json"].Schema
			var err error
			if c.body, err = s.readBody(w, r, rt.body, want.Required, schema); err != nil {
				s.refuse(w, r, err)
				return
			}
		}
		w.Header().Set("Cache-Control", "no-store")
		next(c)
	}
}

// bounded gives the body of a request, for one reading within the limit and in time.
// Call done when it is read.
func (s *Server) bounded(w http.ResponseWriter, r *http.Request, limit int64) (body io.Reader, done func(), err error) {
	if r.ContentLength > limit {
		return nil, nil, tooLarge(limit)
	}
	rc := http.NewResponseController(w)
	// Errors are those of writers that have no connection, as in tests.
	_ = rc.SetReadDeadline(time.Now().Add(s.bodyTimeout))
	return http.MaxBytesReader(w, r.Body, limit), func() { _ = rc.SetReadDeadline(time.Time{}) }, nil
}

// readBody gives the body as clean, compact JSON, or nothing if it is absent and may be.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, limit int64, required bool, schema *huma.Schema) ([]byte, error) {
	body, done, err := s.bounded(w, r, limit)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(body)
	if err != nil {
		return nil, s.unreadable(err, limit)
	}
	done()
	if len(raw) == 0 {
		if required {
			return nil, newProblem(api.Malformed, "the request needs a JSON body")
		}
		return nil, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newProblem(api.UnsupportedMediaType, "the body must be application/json, not %q", trim(r.Header.Get("Content-Type")))
	}
	clean, err := session.CleanJSON(raw)
	if err != nil {
		return nil, newProblem(api.Malformed, "the body is %s", err)
	}
	check := strict{schemas: s.api.OpenAPI().Components.Schemas}
	if err := check.check(schema, clean); err != nil {
		return nil, err
	}
	return clean, nil
}

func tooLarge(limit int64) *api.Problem {
	return newProblem(api.TooLarge, "the body may have %d bytes at most", limit)
}

func (s *Server) unreadable(err error, limit int64) error {
	var over *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &over):
		return tooLarge(limit)
	case errors.As(err, &slow) && slow.Timeout():
		return newProblem(api.RequestTimeout, "the body did not come in %v", s.bodyTimeout)
	}
	return newProblem(api.Malformed, "the body could not be read to its end")
}

// strict refuses members of our own objects that are misspelt, in their case
// too, or repeated: JSON decoders take those differently, and what one of them
// validates another would use. Values that are passed on are not looked into.
type strict struct {
	schemas huma.Registry
	dec     *json.Decoder
	errors  []api.FieldError
}

func (c *strict) check(schema *huma.Schema, clean []byte) error {
	c.dec = json.NewDecoder(bytes.NewReader(clean))
	c.dec.UseNumber()
	if err := c.value(schema, ""); err != nil {
		return newProblem(api.Malformed, "the body is not valid JSON: %v", err)
	}
	if len(c.errors) == 0 {
		return nil
	}
	p := newProblem(api.Invalid, "%s: %s", c.errors[0].Field, c.errors[0].Message)
	p.Errors = c.errors
	return p
}

// value reads one value. A nil schema is any value.
func (c *strict) value(schema *huma.Schema, path string) error {
	for schema != nil && schema.Ref != "" {
		schema = c.schemas.SchemaFromRef(schema.Ref)
	}
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('{'):
		return c.object(schema, path)
	case json.Delim('['):
		var items *huma.Schema
		if schema != nil {
			items = schema.Items
		}
		for i := 0; c.dec.More(); i++ {
			if err := c.value(items, join(path, strconv.Itoa(i))); err != nil {
				return err
			}
		}
		_, err = c.dec.Token()
	}
	return err
}

func (c *strict) object(schema *huma.Schema, path string) error {
	ours := schema != nil && schema.Properties != nil
	seen := map[string]bool{}
	for c.dec.More() {
		token, err := c.dec.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		var member *huma.Schema
		if ours {
			field := join(path, name)
			if member = schema.Properties[name]; member == nil {
				c.fault(field, "there is no such field"+c.didYouMean(schema, name))
			}
			if seen[name] {
				c.fault(field, "the field is there twice")
			}
			seen[name] = true
		}
		if err := c.value(member, join(path, name)); err != nil {
			return err
		}
	}
	_, err := c.dec.Token()
	return err
}

func (c *strict) didYouMean(schema *huma.Schema, name string) string {
	for known := range schema.Properties {
		if strings.EqualFold(known, name) {
			return fmt.Sprintf("; there is %q", known)
		}
	}
	return ""
}

// fault notes an error; the first few are enough.
func (c *strict) fault(field, message string) {
	if len(c.errors) < 20 {
		c.errors = append(c.errors, api.FieldError{Field: trim(field), Message: message})
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
