package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// hosts are the values of Host that are served. A page of another site that
// points its own name at this address (DNS rebinding) still sends its own name.
type hosts struct {
	any  bool
	more map[string]bool // lower case; with or without a port
}

func newHosts(allowed []string) (hosts, error) {
	h := hosts{more: map[string]bool{}}
	for _, name := range allowed {
		switch {
		case name == "*":
			h.any = true
		case name == "" || strings.ContainsAny(name, "/ \t"):
			return hosts{}, fmt.Errorf("server: allowed host %q is not a host", name)
		default:
			h.more[strings.ToLower(name)] = true
		}
	}
	return h, nil
}

func (h hosts) allow(host string) bool {
	name := hostname(host)
	if name == "" {
		return false
	}
	return h.any || isLoopback(name) || h.more[strings.ToLower(host)] || h.more[strings.ToLower(name)]
}

// hostname is host without port and brackets, or empty if it is not a host.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1]
	}
	return host
}

func isLoopback(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(name)
	return err == nil && addr.IsLoopback()
}

// origins are the sites whose pages may use the API.
type origins struct {
	more map[string]bool // scheme://host[:port], lower case
}

func newOrigins(allowed []string) (origins, error) {
	o := origins{more: map[string]bool{}}
	for _, origin := range allowed {
		u, err := url.Parse(origin)
		if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
			return origins{}, fmt.Errorf("server: allowed origin %q is not a scheme and a host, such as https://app.example.com", origin)
		}
		o.more[strings.ToLower(u.Scheme+"://"+u.Host)] = true
	}
	return o, nil
}

// allow says whether the request comes from no page, from a page of this
// server, or from one of a site that is allowed.
func (o origins) allow(r *http.Request) bool {
	values := r.Header.Values("Origin")
	if len(values) == 0 {
		// Browsers say where every request comes from that changes something.
		switch r.Header.Get("Sec-Fetch-Site") {
		case "", "same-origin", "none":
			return true
		}
		return r.Method == http.MethodGet || r.Method == http.MethodHead
	}
	return len(values) == 1 && (sameOrigin(values[0], r.Host) || o.more[strings.ToLower(values[0])])
}

// sameOrigin compares hosts and ports. Not schemes: behind a proxy that ends
// TLS the page is https and this request is not.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return false
	}
	return strings.EqualFold(withPort(u.Host, u.Scheme), withPort(host, u.Scheme))
}

func withPort(host, scheme string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(hostname(host), port)
}

// share adds the CORS headers for a site that is allowed, and says whether the
// request is such a site's preflight or call.
func (o origins) share(header http.Header, r *http.Request) bool {
	if len(o.more) == 0 {
		return false
	}
	header.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	if !o.more[strings.ToLower(origin)] {
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Allow-Credentials", "true")
	header.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After, ETag, X-Workflow-Run-Id, X-Workflow-Stream-Tail-Index")
	header.Set("Cross-Origin-Resource-Policy", "cross-origin")
	if r.Method == http.MethodOptions {
		header.Set("Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE")
		header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, User-Agent, X-Aisdk-Profile")
		header.Set("Access-Control-Max-Age", "600")
	}
	return true
}

// CheckListen refuses to listen where other machines can reach a server that
// has no authentication. addr is host:port; insecure says that the operator
// knows. An empty host is every address and so not loopback.
func CheckListen(addr string, insecure bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen address %q: %w", addr, err)
	}
	if insecure || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("refusing to listen on %s: there is no authentication yet, and whoever reaches this address may do everything; listen on 127.0.0.1 or say that you accept this", addr)
}
