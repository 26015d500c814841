package httptool

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// Config is one tool: where its calls go and what is known of them.
type Config struct {
	// URL is where calls are posted.
	URL string `yaml:"url"`
	// Description is for the model.
	Description string `yaml:"description"`
	// Parameters is a JSON Schema of the type object. Default: no arguments.
	Parameters map[string]any `yaml:"parameters"`
	// Effects says whether a call may be sent again. Default: session.Unsafe.
	Effects session.Effects `yaml:"effects"`
	// Approval is when a person must agree to a call. Default: unless_read_only.
	Approval *tool.Policy `yaml:"approval"`
	// Timeout bounds one call with all its tries, until it is answered or deferred. Default: [tool.DefaultTimeout].
	Timeout time.Duration `yaml:"timeout"`
	// TryTimeout bounds one try. Default: the Timeout.
	TryTimeout time.Duration `yaml:"tryTimeout"`
	// Headers are sent with every request.
	Headers map[string]string `yaml:"headers"`
	// HeadersEnv are headers whose values are in variables of this process.
	HeadersEnv map[string]string `yaml:"headersEnv"`
	// SecretEnv names the variable with the secret that requests are signed with,
	// written as whsec_ and base64. Default: they are not signed.
	SecretEnv string `yaml:"secretEnv"`
	// AllowPrivate says that the host of the URL may be one that is not on the public internet.
	AllowPrivate bool `yaml:"allowPrivate"`
	// Async lets the service answer 202 now and the result later, to a callback URL. Nil: it cannot.
	Async *Async `yaml:"async"`
}

// Async is a service that may answer later.
type Async struct {
	// Timeout is how long after the request the result may come. Default: 24 hours.
	Timeout time.Duration `yaml:"timeout"`
}

// defaultAsync is how long a deferred result may take, unless it is said.
const defaultAsync = 24 * time.Hour

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// Check tells wrong what makes no sense, at its path under the tool's entry (""
// for the entry itself). It looks at nothing but the configuration.
func (c Config) Check(name string, wrong func(path, format string, args ...any)) {
	if !namePattern.MatchString(name) {
		wrong("", "the name of a tool has 1 to 64 letters, digits, _ or -, not %q", name)
	}
	c.checkURL(wrong)
	if strings.TrimSpace(c.Description) == "" {
		wrong("", "the tool %s needs a description: the model reads it", name)
	}
	switch c.Effects {
	case "", session.ReadOnly, session.Idempotent, session.Unsafe:
	default:
		wrong("effects", "unknown effects %q: use read_only, idempotent or unsafe", c.Effects)
	}
	if _, err := c.parameters(); err != nil {
		wrong("parameters", "%w", err)
	}
	c.checkTimes(wrong)
	for _, header := range slices.Sorted(maps.Keys(c.Headers)) {
		checkHeader("headers", header, c.Headers[header], wrong)
	}
	for _, header := range slices.Sorted(maps.Keys(c.HeadersEnv)) {
		checkHeader("headersEnv", header, "", wrong)
		if _, twice := c.Headers[header]; twice {
			wrong("headersEnv."+header, "the header %s is in headers as well", header)
		}
		checkVariable("headersEnv."+header, c.HeadersEnv[header], wrong)
	}
	if c.SecretEnv != "" {
		checkVariable("secretEnv", c.SecretEnv, wrong)
	}
}

func (c Config) checkTimes(wrong func(path, format string, args ...any)) {
	if c.Timeout < 0 {
		wrong("timeout", "%v is negative", c.Timeout)
	}
	switch {
	case c.TryTimeout < 0:
		wrong("tryTimeout", "%v is negative", c.TryTimeout)
	case c.Timeout > 0 && c.TryTimeout > c.Timeout:
		wrong("tryTimeout", "a try cannot take longer than the call: %v is more than %v", c.TryTimeout, c.Timeout)
	}
	if c.Async != nil && c.Async.Timeout < 0 {
		wrong("async.timeout", "%v is negative", c.Async.Timeout)
	}
}

func (c Config) checkURL(wrong func(path, format string, args ...any)) {
	if c.URL == "" {
		wrong("", "the tool needs a url")
		return
	}
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		wrong("url", "it is no URL") // the error would show what may be a secret
		return
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		wrong("url", "a url begins with http:// or https:// and a host")
	case u.User != nil:
		wrong("url", "a url has no user and password: use headersEnv")
	case u.Fragment != "":
		wrong("url", "a url has no fragment")
	case !c.AllowPrivate && private(u.Hostname()):
		wrong("url", "%s is not on the public internet: write allowPrivate: true if it is meant", u.Hostname())
	}
}

// private says that a host is surely not on the public internet. Others are seen when they are dialled.
func private(host string) bool {
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (!addr.IsGlobalUnicast() || addr.IsPrivate() || addr.IsLoopback())
}

// ours are headers that this package sets.
var ours = []string{
	"Host", "Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Trailer", "Te", "Upgrade", "Expect",
	"Idempotency-Key", "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature",
}

func checkHeader(path, name, value string, wrong func(path, format string, args ...any)) {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		wrong(path, "%q is no name of a header", name)
	case slices.Contains(ours, http.CanonicalHeaderKey(name)):
		wrong(path+"."+name, "the header %s is set by Holdfast", name)
	case !httpguts.ValidHeaderFieldValue(value):
		wrong(path+"."+name, "the value of the header %s has characters that no header can have", name)
	}
}

func checkVariable(path, name string, wrong func(path, format string, args ...any)) {
	switch {
	case strings.HasPrefix(name, secretPrefix):
		wrong(path, "a secret does not stand here: name the variable that holds it")
	case name == "" || strings.ContainsAny(name, "=$ \x00"):
		wrong(path, "it is the name of a variable, such as TICKETS_SECRET")
	}
}

// parameters is the schema as JSON, if it is one that a tool can have.
func (c Config) parameters() (json.RawMessage, error) {
	if c.Parameters == nil {
		return nil, nil
	}
	raw, err := json.Marshal(c.Parameters)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be written as JSON: %w", err)
	}
	_, err = tool.NewSet(&endpoint{spec: tool.Spec{Name: "probe", Parameters: raw}})
	if err != nil { // without the name that it has here only
		err = errors.New(strings.TrimPrefix(err.Error(), `tool "probe": parameters: `))
	}
	return raw, err
}

// secretPrefix begins a secret, as Standard Webhooks writes them.
const secretPrefix = "whsec_"

// secret is the key of signatures, or nil if there is none.
func (c Config) secret() ([]byte, error) {
	if c.SecretEnv == "" {
		return nil, nil
	}
	text := os.Getenv(c.SecretEnv)
	if text == "" {
		return nil, fmt.Errorf("the variable %s is not set (secretEnv)", c.SecretEnv)
	}
	coded, prefixed := strings.CutPrefix(text, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(coded)
	if !prefixed || err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("the variable %s has no secret such as whsec_ and 24 to 64 bytes in base64 (secretEnv): echo whsec_$(openssl rand -base64 32) makes one", c.SecretEnv)
	}
	return key, nil
}

// headers are what every request carries.
func (c Config) headers() (http.Header, error) {
	all := http.Header{}
	for name, value := range c.Headers {
		all.Set(name, value)
	}
	for name, variable := range c.HeadersEnv {
		value := os.Getenv(variable)
		if value == "" {
			return nil, fmt.Errorf("the variable %s is not set (headersEnv)", variable)
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return nil, fmt.Errorf("the variable %s has characters that no header can have (headersEnv)", variable)
		}
		all.Set(name, value)
	}
	return all, nil
}
