package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/server/api"
)

// How large a request body may be, in bytes.
const (
	maxBody    = 1 << 20
	maxMessage = 8 << 20 // a message may carry files as data: URLs
)

// newAPI is huma on the standard mux, without its docs page (it loads scripts
// from elsewhere), its schema links, and its own document route.
func (s *Server) newAPI() huma.API {
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI:    "3.1.0",
			Info:       &huma.Info{Title: "Holdfast", Version: s.opts.Version, Description: "A durable runtime for AI agents. protocol/PROTOCOL.md says what each route means and what a client does with the answers."},
			Components: &huma.Components{Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName)},
		},
		Formats: map[string]huma.Format{
			"application/json": {Marshal: encodeJSON, Unmarshal: decodeJSON},
			"json":             {Marshal: encodeJSON}, // of application/problem+json
		},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
		Transformers:                 []huma.Transformer{s.problemOfHuma},
	}
	return humago.New(s.mux, config)
}

// schemaName is the type's name. What a person may send is less than what a
// message can hold, and the AI SDK has its own, so types of one name have several.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[api.Part]().PkgPath() && (name == "Part" || name == "File") {
		return "Input" + name
	}
	if t.PkgPath() == reflect.TypeFor[aisdk.Message]().PkgPath() {
		return "UI" + name
	}
	return name
}

func encodeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// decodeJSON keeps numbers as they are written: what is passed on must not
// pass through a float. Raw values keep their bytes.
func decodeJSON(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return dec.Decode(v)
}

// route is what a route is besides its handler.
type route struct {
	id, method, path string
	summary          string
	// status is the usual answer, also another with the same body. Default: 200 and none.
	status, also int
	// body bounds the request. Default: maxBody.
	body int64
	// public routes ask nobody who they are.
	public bool
	// admit refuses a request of a public route before its body is read. Default: nobody.
	admit func(*http.Request) error
}

// reply is an answer with a JSON body.
type reply[T any] struct {
	Status int
	Body   T
}

func ok[T any](body T) *reply[T] { return &reply[T]{Status: http.StatusOK, Body: body} }

// handle serves a route: the body is read and checked, the request validated,
// the principal found, and the error of do told as a problem.
func handle[I, O any](s *Server, rt route, do func(context.Context, holdfast.Principal, *I) (*O, error)) {
	if rt.status == 0 {
		rt.status = http.StatusOK
	}
	if rt.body == 0 {
		rt.body = maxBody
	}
	op := huma.Operation{
		OperationID: rt.id, Method: rt.method, Path: rt.path, Summary: rt.summary, DefaultStatus: rt.status,
		// Bodies are bounded and timed where they are read: see door.
		MaxBodyBytes: -1, BodyReadTimeout: -1,
		Responses:   map[string]*huma.Response{"default": s.problemResponse()},
		Middlewares: huma.Middlewares{s.body(rt)},
	}
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		p, _ := ctx.Value(principalKey{}).(holdfast.Principal)
		out, err := do(ctx, p, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
	if rt.also != 0 {
		same := *op.Responses[strconv.Itoa(rt.status)]
		same.Description = http.StatusText(rt.also)
		op.Responses[strconv.Itoa(rt.also)] = &same
	}
}

func (s *Server) problemResponse() *huma.Response {
	return &huma.Response{
		Description: "a problem",
		Content: map[string]*huma.MediaType{api.ProblemType: {
			Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem"),
		}},
	}
}

// principalKey is the context key of who asks.
type principalKey struct{}

// principal says who asks, or refuses.
func (s *Server) principal(r *http.Request) (holdfast.Principal, error) {
	p, err := s.opts.Principal(r)
	var refused *api.Problem
	if err != nil && !errors.As(err, &refused) {
		s.opts.Log.Debug("nobody known", slog.String("request", requestOf(r.Context())), slog.Any("error", err))
		err = newProblem(api.Unauthenticated, "say who you are")
	}
	return p, err
}

// humaContext gives call's embedded field another name than the method Context.
type humaContext huma.Context

// call is the huma context of a request whose body has been read.
type call struct {
	humaContext
	ctx     context.Context
	body    []byte
	problem *api.Problem // huma's own refusal, if it made one
}

func (c *call) Unwrap() huma.Context            { return c.humaContext }
func (c *call) Context() context.Context        { return c.ctx }
func (c *call) BodyReader() io.Reader           { return bytes.NewReader(c.body) }
func (c *call) SetReadDeadline(time.Time) error { return nil }

// Header says that the body is what it was checked to be, however that was spelt.
func (c *call) Header(name string) string {
	if name == "Content-Type" && c.body != nil {
		return "application/json"
	}
	return c.humaContext.Header(name)
}

// SetStatus corrects the status of huma's refusals to that of the table.
func (c *call) SetStatus(status int) {
	if c.problem != nil {
		status = c.problem.Status
	}
	c.humaContext.SetStatus(status)
}

// problemOfHuma turns what huma refuses into a problem of the table.
func (s *Server) problemOfHuma(ctx huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	var p *api.Problem
	switch model.Status {
	case http.StatusUnprocessableEntity:
		p = invalidFields(model.Errors)
	case http.StatusBadRequest:
		p = newProblem(api.Malformed, "%s", model.Detail)
	default:
		s.opts.Log.Warn("request failed", slog.String("request", requestOf(ctx.Context())), slog.Any("error", errors.Join(detailsOf(model)...)))
		p = internalProblem()
	}
	if c, ok := ctx.(*call); ok {
		c.problem = p
	}
	return p, nil
}

func detailsOf(model *huma.ErrorModel) []error {
	errs := []error{model}
	for _, e := range model.Errors {
		errs = append(errs, e)
	}
	return errs
}

// invalidFields is the problem of fields that break their schemas.
func invalidFields(faults []*huma.ErrorDetail) *api.Problem {
	code, errs := api.Invalid, []api.FieldError{}
	for _, e := range faults {
		if e.Message == wrongID {
			code = api.InvalidID
		}
		// A location is "path.id", "query.limit", "header.X" or "body.parts[0].text".
		_, field, _ := strings.Cut(e.Location, ".")
		errs = append(errs, api.FieldError{Field: fieldPath(field), Message: e.Message})
	}
	p := newProblem(code, "the request is not valid")
	if p.Errors = errs; len(errs) > 0 {
		p.Detail = strings.TrimPrefix(errs[0].Field+": "+errs[0].Message, ": ")
	}
	return p
}

// wrongID is what huma says of a text that breaks the rule for ids: it is the
// patternDescription of the fields that hold one.
const wrongID = "expected string to be an id: 1 to 128 letters, digits, _ or -"
