package server

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
)

// uiPolicy lets the page run its own files and talk to its own server, and
// nothing else: what a model says can load no script and no picture from
// elsewhere, and so can tell nobody anything.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; " +
	"img-src 'self' data: blob:; connect-src 'self'; manifest-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ui serves the files of a built page. Paths that name no file are the page's
// own (/s/ses_1), and answered with index.html.
type ui struct {
	files map[string]*uiFile // by path, without the first slash
}

// uiFile is one file, in memory.
type uiFile struct {
	body      []byte
	mediaType string
	etag      string
	immutable bool // its name changes with its content
	zip       func() []byte
}

// newUI reads a built page. It has an index.html, and files in assets/ whose
// names hold a hash of their content.
func newUI(built fs.FS) (*ui, error) {
	u := &ui{files: map[string]*uiFile{}}
	err := fs.WalkDir(built, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := fs.ReadFile(built, name)
		if err != nil {
			return err
		}
		u.files[name] = newUIFile(name, body)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("server: read the page: %w", err)
	}
	if u.files["index.html"] == nil {
		return nil, errors.New("server: the page has no index.html")
	}
	return u, nil
}

// uiTypes are the types of a page's files: what the machine's own table says differs.
var uiTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".woff2": "font/woff2", ".png": "image/png", ".md": "text/plain; charset=utf-8",
	".json": "application/json", ".webmanifest": "application/manifest+json",
}

func newUIFile(name string, body []byte) *uiFile {
	sum := sha256.Sum256(body)
	f := &uiFile{
		body:      body,
		mediaType: cmp.Or(uiTypes[path.Ext(name)], mime.TypeByExtension(path.Ext(name)), "application/octet-stream"),
		etag:      hex.EncodeToString(sum[:16]),
		immutable: strings.HasPrefix(name, "assets/"),
	}
	f.zip = sync.OnceValue(f.compress) // when it is first asked for: a server starts at once
	return f
}

// compress is the body with gzip, or nil when that saves nothing.
func (f *uiFile) compress() []byte {
	if strings.HasPrefix(f.mediaType, "font/") || f.mediaType == "image/png" {
		return nil // compressed already
	}
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(f.body)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil || out.Len() >= len(f.body) {
		return nil
	}
	return out.Bytes()
}

// isUIPath says whether a path without a route may be one of the page's.
func isUIPath(p string) bool { return p != "/v1" && !strings.HasPrefix(p, "/v1/") }

// serveUI answers with the page, or one of its files.
func (s *Server) serveUI(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		s.refuse(w, r, newProblem(api.MethodNotAllowed, "%s is not a method of this route: it has GET, HEAD", trim(r.Method)))
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	file := s.ui.files[name]
	if file == nil && path.Ext(name) == "" {
		file = s.ui.files["index.html"]
	}
	if file == nil {
		s.refuse(w, r, newProblem(api.NotFound, "there is no such file"))
		return
	}
	file.serve(w, r)
}

func (f *uiFile) serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", uiPolicy)
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Content-Type", f.mediaType)
	header.Set("Cache-Control", "no-cache")
	if f.immutable {
		header.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body, etag := f.body, f.etag
	if zipped := f.zip(); zipped != nil {
		header.Add("Vary", "Accept-Encoding")
		if acceptsGzip(r.Header.Get("Accept-Encoding")) {
			header.Set("Content-Encoding", "gzip")
			body, etag = zipped, etag+"-gzip"
		}
	}
	header.Set("ETag", `"`+etag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
}

// acceptsGzip reads an Accept-Encoding header, where q=0 means not.
func acceptsGzip(accepted string) bool {
	for _, coding := range strings.Split(accepted, ",") {
		name, params, _ := strings.Cut(coding, ";")
		if name = strings.TrimSpace(name); !strings.EqualFold(name, "gzip") && name != "*" {
			continue
		}
		q, isQ := strings.CutPrefix(strings.TrimSpace(params), "q=")
		weight, err := strconv.ParseFloat(q, 64)
		return !isQ || err == nil && weight > 0
	}
	return false
}
