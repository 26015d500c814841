package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/html/charset"

	"github.com/holdfast-run/holdfast/internal/netguard"
	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// HTTPConfig bounds http_get.
type HTTPConfig struct {
	// Allow names hosts that may be reached although they are not on the public
	// internet, such as "wiki.local", "10.0.0.7:8080" or "[::1]:80". Without a port,
	// every port of the host. Whoever controls the name chooses the address.
	Allow []string
	// MaxBytes bounds what is read of a body after decompression, and the text
	// made of it. Default: 1 MiB.
	MaxBytes int64
	// Timeout bounds a request with its redirects. Default: 30 seconds.
	Timeout time.Duration
}

const (
	maxURL       = 8 << 10
	maxRedirects = 5
)

type httpInput struct {
	URL string `json:"url" jsonschema:"http or https address of the page"`
}

type httpOutput struct {
	URL         string `json:"url"` // after redirects
	Status      int    `json:"status"`
	ContentType string `json:"contentType"`
	Title       string `json:"title,omitempty"`
	Text        string `json:"text"`
	// Truncated says that the page goes on behind what was read.
	Truncated bool `json:"truncated,omitempty"`
}

// HTTPGet is the tool http_get: it fetches a page of the public internet and
// gives its text. Loopback, private, link-local, metadata and other special
// addresses are refused however they are spelled, named or redirected to; see
// [HTTPConfig.Allow] for exceptions. It uses no proxy, keeps no cookies and no
// connections.
func HTTPGet(config HTTPConfig) (tool.Tool, error) {
	config.MaxBytes = cmp.Or(config.MaxBytes, 1<<20)
	config.Timeout = cmp.Or(config.Timeout, 30*time.Second)
	guard, err := netguard.New(config.Allow)
	if err != nil {
		return nil, err
	}
	g := &getter{config, &http.Client{
		CheckRedirect: checkRedirect,
		Transport: &http.Transport{
			DialContext:            guard.Dial,
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
	}}
	return tool.New("http_get", "Fetches a web page or text document with GET and gives its text; HTML becomes plain text with its links.",
		g.get, tool.WithEffects(session.ReadOnly), tool.WithTimeout(config.Timeout+5*time.Second)), nil
}

type getter struct {
	config HTTPConfig
	client *http.Client
}

func (g *getter) get(ctx context.Context, in httpInput, _ tool.Call) (httpOutput, error) {
	target, err := parseURL(in.URL)
	if err != nil {
		return httpOutput{}, err
	}
	late := tool.Errorf(tool.CodeTimeout, "The page did not answer in full within %s.", g.config.Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, g.config.Timeout, late)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return httpOutput{}, tool.Errorf("invalid_url", "The URL cannot be used: %s.", err.Error())
	}
	req.Header.Set("User-Agent", "holdfast-http-get/1")
	req.Header.Set("Accept", "text/html, text/*;q=0.9, application/json;q=0.9, application/xml;q=0.8")
	resp, err := g.client.Do(req)
	if err != nil {
		return httpOutput{}, explain(ctx, err)
	}
	defer resp.Body.Close()
	out, err := g.read(resp)
	if err != nil {
		return httpOutput{}, explain(ctx, err)
	}
	return out, nil
}

// parseURL accepts http and https addresses without credentials.
func parseURL(text string) (*url.URL, error) {
	if len(text) > maxURL {
		return nil, tool.Errorf("invalid_url", "The URL is longer than %d bytes.", maxURL)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, tool.Errorf("invalid_url", "The URL cannot be read. Write it as https://example.com/page.")
	}
	if err := checkURL(u); err != nil {
		return nil, err
	}
	return u, nil
}

func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return tool.Errorf("invalid_url", "Only http and https addresses can be fetched, not %q.", session.TrimText(session.CleanText(u.Scheme), 40))
	case u.Hostname() == "":
		return tool.Errorf("invalid_url", "The URL names no host.")
	case u.User != nil:
		return tool.Errorf("invalid_url", "A URL with a user name or password in it is not fetched.")
	}
	return nil
}

func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return tool.Errorf("too_many_redirects", "The page redirects more than %d times.", maxRedirects)
	}
	req.Header.Del("Referer") // it would tell one site the address of a page on another
	return checkURL(req.URL)
}

// explain makes an error of the request one that helps the model. The end of
// the caller's context passes through.
func explain(ctx context.Context, err error) error {
	var told *tool.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &told):
		return told
	case errors.Is(err, netguard.ErrBlocked):
		var request *url.Error
		if errors.As(err, &request) {
			err = request.Err
		}
		return tool.Errorf("blocked_address", "This address is not fetched: %s. Only pages of the public internet are.", err.Error())
	}
	var noHost *net.DNSError
	if errors.As(err, &noHost) {
		return tool.Errorf("unreachable", "The host %s was not found.", session.TrimText(session.CleanText(noHost.Name), 300))
	}
	return tool.Errorf("unreachable", "The page could not be fetched: %s.", session.TrimText(session.CleanText(err.Error()), 500))
}

// read takes the text out of an answer.
func (g *getter) read(resp *http.Response) (httpOutput, error) {
	out := httpOutput{URL: resp.Request.URL.String(), Status: resp.StatusCode}
	counted := &io.LimitedReader{R: resp.Body, N: g.config.MaxBytes}
	declared := resp.Header.Get("Content-Type")
	mediaType, _, err := mime.ParseMediaType(declared)
	if declared != "" && (err != nil || !isText(mediaType)) {
		return httpOutput{}, tool.Errorf("not_text", "The page is %s, which is not text; it was not read (status %d).", session.TrimText(session.CleanText(declared), 100), resp.StatusCode)
	}
	content, err := io.ReadAll(counted)
	if err != nil {
		return httpOutput{}, fmt.Errorf("reading the page: %w", err)
	}
	if counted.N == 0 {
		var more [1]byte
		n, _ := io.ReadFull(resp.Body, more[:])
		out.Truncated = n > 0
	}
	if declared == "" {
		declared = http.DetectContentType(content)
		if mediaType, _, _ = mime.ParseMediaType(declared); !isText(mediaType) {
			return httpOutput{}, tool.Errorf("not_text", "The page is not text; it looks like %s.", declared)
		}
	}
	out.ContentType = declared
	text, err := decodeText(content, declared, mediaType)
	if err != nil {
		return httpOutput{}, err
	}
	if strings.Contains(mediaType, "html") {
		page := readHTML(text, resp.Request.URL, int(g.config.MaxBytes))
		out.Title, text, out.Truncated = page.title, page.text, out.Truncated || page.cut
	}
	if bounded := session.TrimText(text, int(g.config.MaxBytes)); len(bounded) < len(text) {
		text, out.Truncated = bounded, true
	}
	out.Text = text
	return out, nil
}

func isText(mediaType string) bool {
	if strings.HasPrefix(mediaType, "text/") || strings.HasSuffix(mediaType, "+json") || strings.HasSuffix(mediaType, "+xml") {
		return true
	}
	switch mediaType {
	case "application/json", "application/x-ndjson", "application/xml", "application/javascript", "application/yaml", "application/toml", "application/x-yaml":
		return true
	}
	return false
}

// decodeText makes UTF-8 of a document in whatever encoding it says it has.
func decodeText(content []byte, declared, mediaType string) (string, error) {
	if strings.Contains(mediaType, "json") {
		return session.CleanText(string(content)), nil // JSON is UTF-8
	}
	encoding, _, _ := charset.DetermineEncoding(content, declared)
	text, err := encoding.NewDecoder().Bytes(content)
	if err != nil {
		return "", fmt.Errorf("decoding the page: %w", err)
	}
	return session.CleanText(string(text)), nil
}
