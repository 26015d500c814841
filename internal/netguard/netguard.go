// Package netguard keeps requests that others have a say in on the public
// internet: a tool must not become a way to the machines that only this one can reach.
package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"code.dny.dev/ssrf"
)

// Guard dials only addresses of the public internet, and the hosts it was told
// to trust. It looks at the address that is really dialled, after name
// resolution, so neither a redirect nor a name that changes its address between
// a check and its use gets around it. It is safe for concurrent use.
type Guard struct {
	public  net.Dialer // refuses every address that is not public
	trusted net.Dialer
	allow   []allowed
}

type allowed struct {
	host string // lower case, without brackets and final dot
	port string // empty: any
}

// ErrBlocked is wrapped by the refusal of an address.
var ErrBlocked = errors.New("not an address of the public internet")

// New trusts the hosts in allow, each a name or address with or without a port.
func New(allow []string) (*Guard, error) {
	rules := ssrf.New(
		ssrf.WithAnyPort(), // see Dial
		// Azure's metadata service sits on an address that is otherwise public.
		ssrf.WithDeniedV4Prefixes(netip.MustParsePrefix("168.63.129.16/32")),
	)
	g := &Guard{
		public:  net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1, Control: rules.Safe},
		trusted: net.Dialer{Timeout: 10 * time.Second, KeepAlive: -1},
	}
	for _, entry := range allow {
		a, err := parseAllowed(entry)
		if err != nil {
			return nil, err
		}
		g.allow = append(g.allow, a)
	}
	return g, nil
}

func parseAllowed(entry string) (allowed, error) {
	a := allowed{host: strings.Trim(entry, "[]")}
	if _, err := netip.ParseAddr(a.host); err != nil && strings.Contains(entry, ":") {
		if a.host, a.port, err = net.SplitHostPort(entry); err != nil {
			return allowed{}, fmt.Errorf("allowed host %q: %w", entry, err)
		}
		if n, err := strconv.ParseUint(a.port, 10, 16); err != nil || n == 0 {
			return allowed{}, fmt.Errorf("allowed host %q: the port must be a number from 1 to 65535", entry)
		}
	}
	a.host = plainHost(a.host)
	if a.host == "" || strings.ContainsAny(a.host, "/@*? ") {
		return allowed{}, fmt.Errorf("allowed host %q: write a host name or address, with or without a port", entry)
	}
	return a, nil
}

func plainHost(host string) string { return strings.TrimSuffix(strings.ToLower(host), ".") }

func (g *Guard) trusts(host, port string) bool {
	return slices.ContainsFunc(g.allow, func(a allowed) bool {
		return a.host == plainHost(host) && (a.port == "" || a.port == port)
	})
}

// Dial is for [net/http.Transport]: address has the host as the URL names it. A
// refusal wraps [ErrBlocked].
func (g *Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if g.trusts(host, port) {
		return g.trusted.DialContext(ctx, network, address)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1024 && n != 80 && n != 443 {
		return nil, fmt.Errorf("port %s: %w: only 80, 443 and ports from 1024 are reached", port, ErrBlocked)
	}
	conn, err := g.public.DialContext(ctx, network, address)
	if errors.Is(err, ssrf.ErrProhibitedIP) || errors.Is(err, ssrf.ErrProhibitedNetwork) || errors.Is(err, ssrf.ErrInvalidHostPort) {
		// The model is not told what a private name resolves to.
		return nil, fmt.Errorf("%s: %w", host, ErrBlocked)
	}
	return conn, err
}
