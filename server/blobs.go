package server

import (
	"bytes"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"time"

	"github.com/holdfast-run/holdfast/server/api"
	"github.com/holdfast-run/holdfast/session"
)

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (s *Server) routeBlobs() {
	s.mux.HandleFunc("GET /v1/sessions/{id}/blobs/{hash}", func(w http.ResponseWriter, r *http.Request) {
		if err := s.blob(w, r); err != nil {
			s.refuse(w, r, err)
		}
	})
}

// blob answers with a large value. Its media type is whatever a model, a tool or
// a person said, so it is only ever a download.
func (s *Server) blob(w http.ResponseWriter, r *http.Request) error {
	p, err := s.principal(r)
	if err != nil {
		return err
	}
	id, hash := r.PathValue("id"), r.PathValue("hash")
	if !session.ValidID(id) {
		return fieldProblem(api.InvalidID, "id", wrongID)
	}
	if !hashPattern.MatchString(hash) {
		return fieldProblem(api.InvalidID, "hash", "expected 64 lower-case hex digits")
	}
	meta, content, err := s.rt.Blob(r.Context(), p, id, hash)
	if err != nil {
		return err
	}
	defer content.Close()
	seekable, ok := content.(io.ReadSeeker)
	if !ok {
		whole, err := io.ReadAll(content)
		if err != nil {
			return fmt.Errorf("read blob %s of session %s: %w", hash, id, err)
		}
		seekable = bytes.NewReader(whole)
	}
	mediaType := meta.MediaType
	if _, _, err := mime.ParseMediaType(mediaType); err != nil {
		mediaType = "application/octet-stream"
	}
	header := w.Header()
	header.Set("Content-Type", mediaType)
	header.Set("Content-Disposition", "attachment")
	header.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	header.Set("Cache-Control", "private, immutable, max-age=31536000")
	header.Set("ETag", `"`+hash+`"`)
	// Content under a hash never changes: conditions on change are met or senseless.
	r.Header.Del("If-Match")
	r.Header.Del("If-Unmodified-Since")
	http.ServeContent(&ranged{ResponseWriter: w}, r, "", time.Time{}, seekable)
	return nil
}

// ranged puts a problem in the place of ServeContent's own words for a range
// that is not in the blob.
type ranged struct {
	http.ResponseWriter
	refused bool
}

func (w *ranged) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	header := w.Header()
	header.Del("ETag")
	header.Del("Content-Disposition")
	header.Del("Content-Length")
	writeProblem(w.ResponseWriter, newProblem(api.RangeNotSatisfiable, "the blob does not have this range"))
}

func (w *ranged) Write(b []byte) (int, error) {
	if w.refused {
		return len(b), nil
	}
	return w.ResponseWriter.Write(b)
}
