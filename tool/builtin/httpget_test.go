package builtin

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// site is a server on loopback that http_get was told to trust.
type site struct {
	*httptest.Server
	get tool.Tool
}

func openSite(t *testing.T, config HTTPConfig, handler http.HandlerFunc) site {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	config.Allow = append(config.Allow, strings.TrimPrefix(server.URL, "http://"))
	get, err := HTTPGet(config)
	if err != nil {
		t.Fatal(err)
	}
	return site{server, get}
}

func urlArgs(url string) string {
	args, _ := json.Marshal(map[string]string{"url": url})
	return string(args)
}

func (s site) fetch(t *testing.T, path string) (httpOutput, error) {
	t.Helper()
	value, err := use(t.Context(), s.get, urlArgs(s.URL+path))
	var out httpOutput
	if err == nil {
		if err := json.Unmarshal([]byte(value), &out); err != nil {
			t.Fatalf("http_get gave %s", value)
		}
	}
	return out, err
}

func TestAPageIsFetchedAsText(t *testing.T) {
	s := openSite(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/data", http.StatusFound)
		case "/data":
			if r.Referer() != "" || r.Header.Get("Cookie") != "" {
				t.Errorf("the request carries %v", r.Header)
			}
			http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"})
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"big":9007199254740993,"broken":"`+"\xff"+`"}`)
		case "/latin":
			w.Header().Set("Content-Type", "text/plain; charset=iso-8859-1")
			fmt.Fprint(w, "caf\xe9")
		case "/html":
			fmt.Fprint(w, "<title>Hi</title><p>Hello, <a href=/data>data</a>")
		case "/none":
			w.WriteHeader(http.StatusNoContent)
		default:
			http.Error(w, "no such page", http.StatusNotFound)
		}
	})
	for path, want := range map[string]httpOutput{
		"/data":    {URL: s.URL + "/data", Status: 200, ContentType: "application/json", Text: `{"big":9007199254740993,"broken":"` + "\ufffd" + `"}`},
		"/moved":   {URL: s.URL + "/data", Status: 200, ContentType: "application/json", Text: `{"big":9007199254740993,"broken":"` + "\ufffd" + `"}`},
		"/latin":   {URL: s.URL + "/latin", Status: 200, ContentType: "text/plain; charset=iso-8859-1", Text: "café"},
		"/html":    {URL: s.URL + "/html", Status: 200, ContentType: "text/html; charset=utf-8", Title: "Hi", Text: "Hello, [data](" + s.URL + "/data)"},
		"/none":    {URL: s.URL + "/none", Status: 204, ContentType: "text/plain; charset=utf-8"},
		"/missing": {URL: s.URL + "/missing", Status: 404, ContentType: "text/plain; charset=utf-8", Text: "no such page\n"},
	} {
		if got, err := s.fetch(t, path); err != nil || got != want {
			t.Errorf("%s gave %+v, %v; want %+v", path, got, err, want)
		}
	}
}

func TestAnAddressThatIsNotPublicIsRefused(t *testing.T) {
	reached := false
	hidden := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer hidden.Close()
	port := hidden.URL[strings.LastIndex(hidden.URL, ":")+1:]
	get, err := HTTPGet(HTTPConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		hidden.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port, "http://127.1.2.3:" + port,
		"http://0.0.0.0:" + port, "http://10.0.0.1/", "http://192.168.1.1/", "http://172.16.0.1/", "http://100.64.0.1/",
		"http://169.254.169.254/latest/meta-data/", "http://168.63.129.16/", "https://127.0.0.1:" + port, "http://example.com:22/", "http://127.0.0.1:25/",
	} {
		_, err := use(t.Context(), get, urlArgs(url))
		if codeOf(err) != "blocked_address" {
			t.Errorf("%s: %v", url, err)
		}
	}
	if reached {
		t.Error("a request got through")
	}
}

func TestARedirectIsCheckedLikeAnAddress(t *testing.T) {
	reached := false
	hidden := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer hidden.Close()
	s := openSite(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	for to, code := range map[string]string{
		hidden.URL:                  "blocked_address",
		"//169.254.169.254/":        "blocked_address",
		"file:///etc/passwd":        "invalid_url",
		"gopher://example.com/":     "invalid_url",
		"http://me:pw@example.com/": "invalid_url",
	} {
		if _, err := s.fetch(t, "/?to="+to); codeOf(err) != code {
			t.Errorf("redirected to %s: %v", to, err)
		}
	}
	if reached {
		t.Error("a redirect got through")
	}
}

func TestARedirectLoopEnds(t *testing.T) {
	count := 0
	s := openSite(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		count++
		http.Redirect(w, r, "/again", http.StatusFound)
	})
	if _, err := s.fetch(t, "/"); codeOf(err) != "too_many_redirects" || count != maxRedirects+1 {
		t.Errorf("after %d requests: %v", count, err)
	}
}

func TestAURLThatIsNoWebAddressIsRefused(t *testing.T) {
	get, err := HTTPGet(HTTPConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{
		"", "example.com", "ftp://example.com/", "file:///etc/passwd", "javascript:alert(1)", "http://", "http:///path", "http://:80/", "https://me@example.com/",
		"http://exa mple.com/", "http://example.com/\u0000", "http://example.com:port/", "http://[::1/", "https://example.com/" + strings.Repeat("a", maxURL),
	} {
		if _, err := use(t.Context(), get, urlArgs(url)); codeOf(err) != "invalid_url" {
			t.Errorf("%.60s: %v", url, err)
		}
	}
}

func TestALongPageIsCutAndSaysSo(t *testing.T) {
	s := openSite(t, HTTPConfig{MaxBytes: 1000}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		switch r.URL.Path {
		case "/exact":
			fmt.Fprint(w, strings.Repeat("a", 1000))
		case "/long":
			fmt.Fprint(w, strings.Repeat("a", 999)+"é and more")
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(bytes.Repeat([]byte("b"), 10<<20))
			_ = z.Close()
			_, _ = w.Write(packed.Bytes())
		case "/links": // each link is far longer as text than as HTML
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<base>"+strings.Repeat("<a href=a>x</a>", 60))
		}
	})
	for path, cut := range map[string]bool{"/exact": false, "/long": true, "/bomb": true, "/links": true} {
		got, err := s.fetch(t, path)
		if err != nil || got.Truncated != cut || len(got.Text) > 1000 || len(got.Text) < 900 {
			t.Errorf("%s gave %d bytes, truncated %v, %v", path, len(got.Text), got.Truncated, err)
		}
		if strings.Contains(got.Text, "\ufffd") && path != "/long" {
			t.Errorf("%s is broken at its end: %q", path, got.Text[900:])
		}
	}
}

func TestWhatIsNotTextIsNotRead(t *testing.T) {
	s := openSite(t, HTTPConfig{}, func(w http.ResponseWriter, r *http.Request) {
		if declared := r.URL.Query().Get("type"); declared != "" {
			w.Header().Set("Content-Type", declared)
		} else {
			w.Header()["Content-Type"] = nil // and none is sniffed by the server
		}
		fmt.Fprint(w, "\x89PNG\x0d\x0a\x1a\x0a\x00")
	})
	for _, declared := range []string{"image/png", "application/octet-stream", "nonsense;;", ""} {
		if _, err := s.fetch(t, "/?type="+strings.ReplaceAll(declared, ";", "%3B")); codeOf(err) != "not_text" {
			t.Errorf("declared as %q: %v", declared, err)
		}
	}
}

func TestAPageThatNeverEndsIsLeftInTime(t *testing.T) {
	left := make(chan struct{})
	s := openSite(t, HTTPConfig{Timeout: 50 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		close(left)
	})
	if _, err := s.fetch(t, "/"); codeOf(err) != tool.CodeTimeout {
		t.Errorf("fetch: %v", err)
	}
	<-left
}

func TestACancelledFetchClosesItsConnection(t *testing.T) {
	left := make(chan struct{})
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	s := openSite(t, HTTPConfig{}, func(_ http.ResponseWriter, r *http.Request) {
		cancel(stopped)
		<-r.Context().Done()
		close(left)
	})
	if _, err := use(ctx, s.get, urlArgs(s.URL)); !errors.Is(err, stopped) {
		t.Errorf("fetch: %v", err)
	}
	<-left
}

func TestAServerThatIsNotThereIsToldApart(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	address := strings.TrimPrefix(server.URL, "http://")
	server.Close()
	get, err := HTTPGet(HTTPConfig{Allow: []string{address}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := use(t.Context(), get, urlArgs("http://"+address)); codeOf(err) != "unreachable" {
		t.Errorf("fetch: %v", err)
	}
}

func TestFetchingIsReadOnly(t *testing.T) {
	get, err := HTTPGet(HTTPConfig{})
	if err != nil || get.Spec().Effects != session.ReadOnly {
		t.Errorf("the spec is %+v, %v", get.Spec(), err)
	}
}
