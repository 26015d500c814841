package server_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/holdfast-run/holdfast/server"
)

// builtPage is a small page as Vite builds it.
func builtPage() fstest.MapFS {
	return fstest.MapFS{
		"index.html":              {Data: []byte("<!doctype html><title>the page</title>")},
		"favicon.svg":             {Data: []byte("<svg xmlns='http://www.w3.org/2000/svg'/>")},
		"assets/index-a1b2.js":    {Data: []byte(strings.Repeat("console.log('hello');\n", 100))},
		"assets/inter-c3d4.woff2": {Data: []byte(strings.Repeat("not really a font ", 100))},
	}
}

func pageWorld(t *testing.T) *world {
	return newWorld(t, worldOptions{server: server.Options{UI: builtPage()}})
}

func get(t *testing.T, w *world, method, path string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	// The transport's own gzip hides what was sent.
	req.Header.Set("Accept-Encoding", "identity")
	for name, values := range header {
		req.Header[name] = values
	}
	res, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, string(body)
}

func TestEveryPathOfThePageIsAnsweredWithThePage(t *testing.T) {
	w := pageWorld(t)
	for _, path := range []string{"/", "/index.html", "/s/ses_1", "/s/ses_1?m=msg_2", "/approvals", "/v1s"} {
		res, body := get(t, w, "GET", path, nil)
		if res.StatusCode != 200 || !strings.Contains(body, "the page") {
			t.Errorf("%s: %d %q, not the page", path, res.StatusCode, body)
		}
		if got := res.Header.Get("Cache-Control"); got != "no-cache" {
			t.Errorf("%s: Cache-Control is %q: a new build would not be seen", path, got)
		}
	}
	if res, body := get(t, w, "HEAD", "/s/ses_1", nil); res.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: %d %q", res.StatusCode, body)
	}
}

func TestThePageTakesNothingFromTheAPI(t *testing.T) {
	w := pageWorld(t)
	for path, want := range map[string]int{"/v1": 404, "/v1/": 404, "/v1/nothing": 404, "/v1/runs/run_1/cancel": 405, "/healthz": 200, "/readyz": 200, "/v1/sessions": 200} {
		res, body := get(t, w, "GET", path, nil)
		if res.StatusCode != want || strings.Contains(body, "the page") {
			t.Errorf("%s: %d %q, want %d from the API", path, res.StatusCode, body, want)
		}
		if got := res.Header.Get("Content-Security-Policy"); got != "default-src 'none'; frame-ancestors 'none'" {
			t.Errorf("%s: the policy is %q", path, got)
		}
	}
}

func TestAMissingFileIsNotThePage(t *testing.T) {
	w := pageWorld(t)
	for _, path := range []string{"/assets/index-gone.js", "/robots.txt", "/assets/../../server.go", "/.env"} {
		if res, body := get(t, w, "GET", path, nil); res.StatusCode != 404 || strings.Contains(body, "the page") {
			t.Errorf("%s: %d %q", path, res.StatusCode, body)
		}
	}
	if res, _ := get(t, w, "POST", "/s/ses_1", nil); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
}

func TestHashedFilesAreKeptForEverAndOthersAreAskedFor(t *testing.T) {
	w := pageWorld(t)
	res, _ := get(t, w, "GET", "/assets/index-a1b2.js", nil)
	if got := res.Header.Get("Cache-Control"); got != "public, max-age=31536000, immutable" {
		t.Errorf("Cache-Control is %q", got)
	}
	if got := res.Header.Get("Content-Type"); got != "text/javascript; charset=utf-8" {
		t.Errorf("Content-Type is %q", got)
	}
	res, _ = get(t, w, "GET", "/", nil)
	etag := res.Header.Get("ETag")
	if res, body := get(t, w, "GET", "/", http.Header{"If-None-Match": {etag}}); res.StatusCode != 304 || body != "" {
		t.Errorf("asked again with %s: %d %q", etag, res.StatusCode, body)
	}
}

func TestFilesAreCompressedForWhoReadsThat(t *testing.T) {
	w := pageWorld(t)
	plain, whole := get(t, w, "GET", "/assets/index-a1b2.js", nil)
	if plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("plain: encoding %q, vary %q", plain.Header.Get("Content-Encoding"), plain.Header.Get("Vary"))
	}
	for accepts, want := range map[string]string{
		"gzip": "gzip", "br, GZIP;q=0.5": "gzip", "*": "gzip", "br": "", "gzip;q=0": "", "gzip;q=0.000": "",
	} {
		res, body := get(t, w, "GET", "/assets/index-a1b2.js", http.Header{"Accept-Encoding": {accepts}})
		if got := res.Header.Get("Content-Encoding"); got != want {
			t.Errorf("%s: encoding %q, want %q", accepts, got, want)
			continue
		}
		if want == "" {
			continue
		}
		if res.Header.Get("ETag") == plain.Header.Get("ETag") {
			t.Errorf("%s: two bodies with one ETag", accepts)
		}
		zip, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(zip); err != nil || string(got) != whole {
			t.Errorf("%s: another body: %v", accepts, err)
		}
	}
	if res, _ := get(t, w, "GET", "/assets/inter-c3d4.woff2", http.Header{"Accept-Encoding": {"gzip"}}); res.Header.Get("Content-Encoding") != "" {
		t.Error("a font was compressed a second time")
	}
}

func TestThePageMayRunNothingButItsOwnFiles(t *testing.T) {
	w := pageWorld(t)
	res, _ := get(t, w, "GET", "/s/ses_1", nil)
	policy := res.Header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(policy, want) {
			t.Errorf("the policy %q lacks %s", policy, want)
		}
	}
	if strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") {
		t.Errorf("the policy %q lets in what is not the page's", policy)
	}
	// A link from another site opens it; another host's name does not.
	if res, _ := get(t, w, "GET", "/s/ses_1", http.Header{"Sec-Fetch-Site": {"cross-site"}}); res.StatusCode != 200 {
		t.Errorf("a link from elsewhere: %d", res.StatusCode)
	}
}

func TestAServerWithoutAPageHasNone(t *testing.T) {
	w := newWorld(t, worldOptions{})
	if res, _ := get(t, w, "GET", "/", nil); res.StatusCode != 404 {
		t.Errorf("/ is %d", res.StatusCode)
	}
	if _, err := server.New(w.rt, server.Options{UI: fstest.MapFS{"other.html": {}}}); err == nil {
		t.Error("a page without an index.html was taken")
	}
}
