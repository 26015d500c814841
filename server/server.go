package server

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-run/holdfast"
)

// Options shape a server. The zero value serves the local principal on loopback names.
type Options struct {
	// AllowedHosts are values of the Host header that are served beside the
	// loopback names: a host name or address, with a port only that port. "*" is
	// any host, and gives up the protection against DNS rebinding.
	AllowedHosts []string
	// AllowedOrigins are other sites whose pages may use the API, such as
	// "https://app.example.com". Default: none but the server's own.
	AllowedOrigins []string
	// Principal says who asks. An error that is an *api.Problem is the answer, any
	// other is answered with 401. Default: always holdfast.Local.
	Principal func(*http.Request) (holdfast.Principal, error)
	// MaxStreams bounds the open event streams, WebSockets and long polls
	// together. Default: 20,000.
	MaxStreams int
	// RetryAfter is how long clients are told to stay away when the server drains
	// or is full; each is told something between half and one and a half of it.
	// Default: 3 seconds.
	RetryAfter time.Duration
	// ShutdownTimeout is how long Serve waits for requests under way when it
	// ends. Default: 10 seconds.
	ShutdownTimeout time.Duration
	// UI is the built page, with an index.html and hashed files in assets/. It is
	// served to everybody at / and at every path that is no route and no file.
	// Default: there is no page.
	UI fs.FS
	// Version is told in the OpenAPI document. Default: "dev".
	Version string
	// Log is where requests are logged, at debug, and failures, at warn. Never
	// bodies, never credentials. Default: slog.Default().
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	o.MaxStreams = cmp.Or(o.MaxStreams, 20_000)
	o.RetryAfter = cmp.Or(o.RetryAfter, 3*time.Second)
	o.ShutdownTimeout = cmp.Or(o.ShutdownTimeout, 10*time.Second)
	o.Version = cmp.Or(o.Version, "dev")
	if o.Principal == nil {
		o.Principal = func(*http.Request) (holdfast.Principal, error) { return holdfast.Local, nil }
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return o
}

// Server is the HTTP API of one runtime. It is an [http.Handler] and safe for
// concurrent use.
type Server struct {
	rt      *holdfast.Runtime
	opts    Options
	hosts   hosts
	origins origins
	mux     *http.ServeMux
	api     huma.API
	streams streams
	debts   debts
	ui      *ui // nil: no page

	bodyTimeout time.Duration
}

// New makes the server of a runtime. It starts nothing: use it as a handler, or
// call [Server.Serve]. A host or origin in opts that cannot be one is an error.
func New(rt *holdfast.Runtime, opts Options) (*Server, error) {
	if rt == nil {
		return nil, errors.New("server: there is no runtime")
	}
	s := &Server{rt: rt, opts: opts.withDefaults(), mux: http.NewServeMux(), bodyTimeout: defaultBodyTimeout}
	var err error
	if s.hosts, err = newHosts(s.opts.AllowedHosts); err != nil {
		return nil, err
	}
	if s.origins, err = newOrigins(s.opts.AllowedOrigins); err != nil {
		return nil, err
	}
	if s.opts.UI != nil {
		if s.ui, err = newUI(s.opts.UI); err != nil {
			return nil, err
		}
	}
	s.streams.init(s.opts.MaxStreams, s.opts.RetryAfter)
	s.api = s.newAPI()
	s.routeSessions()
	s.routeMessages()
	s.routeRuns()
	s.routeApprovals()
	s.routeCallbacks()
	s.routeAgents()
	s.routeEvents()
	s.routeBlobs()
	s.routeConnect()
	s.routeChat()
	s.routeHealth()
	if err := s.routeOpenAPI(); err != nil {
		return nil, err
	}
	return s, nil
}
