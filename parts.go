package holdfast

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

const (
	maxInline  = 64 << 10 // bytes of a text or data: URL in a message; what is larger becomes a blob
	maxPreview = 4 << 10  // bytes of such a text that stay in the message
)

// checkParts says what is wrong with what a person wants to say.
func checkParts(parts []session.Part) error {
	if len(parts) == 0 {
		return invalid("parts", "a message needs at least one part")
	}
	for i, part := range parts {
		field := fmt.Sprintf("parts[%d]", i)
		switch part.Type {
		case session.PartText:
			if part.Text == "" {
				return invalid(field+".text", "a text part needs text")
			}
		case session.PartFile:
			if part.File == nil || part.File.URL == "" && part.File.Blob == nil {
				return invalid(field+".file", "a file part needs a url or a blob")
			}
		case session.PartData:
			if len(part.Data) == 0 {
				return invalid(field+".data", "a data part needs data")
			}
		default:
			return invalid(field+".type", "a message's parts are of type text, file or data")
		}
	}
	return nil
}

// shelve puts what is too large to be carried in a message beside the log. The
// same parts become the same: a repeated message is recognised.
func (r *Runtime) shelve(ctx context.Context, p Principal, id string, parts []session.Part) ([]session.Part, error) {
	var out []session.Part
	for i, part := range parts {
		field := fmt.Sprintf("parts[%d]", i)
		var err error
		switch {
		case part.Type == session.PartText && part.Blob == nil && len(part.Text) > maxInline:
			part.Blob, err = r.putBlob(ctx, p, id, "text/plain; charset=utf-8", part.Text)
			part.Text = session.TrimText(part.Text, maxPreview)
		case part.Type == session.PartFile && len(part.File.URL) > maxInline:
			file := *part.File
			var content string
			if content, err = dataOf(file.URL); err != nil {
				return nil, invalid(field+".file.url", err.Error())
			}
			file.URL = ""
			file.Blob, err = r.putBlob(ctx, p, id, file.MediaType, content)
			part.File = &file
		}
		if err != nil {
			return nil, err
		}
		out = append(out, part)
	}
	return out, nil
}

// putBlob keeps a value for a session that is p's, or will be.
func (r *Runtime) putBlob(ctx context.Context, p Principal, id, mediaType, content string) (*session.Blob, error) {
	var refused error
	err := r.store.View(ctx, id, func(s *session.State) {
		if s.Tenant != p.Tenant || s.Owner != p.Owner {
			refused = store.ErrNotFound
		}
	})
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if refused != nil {
		return nil, refused
	}
	b, err := r.store.PutBlob(ctx, id, mediaType, strings.NewReader(content))
	if err != nil {
		return nil, err
	}
	return &b, nil
}

// dataOf is the content of a data: URL.
func dataOf(raw string) (string, error) {
	head, content, ok := strings.Cut(raw, ",")
	if len(head) < 5 || !strings.EqualFold(head[:5], "data:") || !ok {
		return "", fmt.Errorf("a URL of over %d bytes must be a data: URL", maxInline)
	}
	if strings.HasSuffix(strings.ToLower(head), ";base64") {
		decoded, err := base64.StdEncoding.DecodeString(content)
		if err != nil {
			return "", fmt.Errorf("the data: URL is not base64: %w", err)
		}
		return string(decoded), nil
	}
	plain, err := url.PathUnescape(content)
	if err != nil {
		return "", fmt.Errorf("the data: URL is not well escaped: %w", err)
	}
	return plain, nil
}
