package memory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

type blob struct {
	meta    session.Blob
	content []byte
}

// PutBlob keeps a value for a session. The session need not exist yet.
func (s *Store) PutBlob(ctx context.Context, id, mediaType string, content io.Reader) (session.Blob, error) {
	// Read before the lock is taken: content comes at its own pace.
	raw, err := io.ReadAll(content)
	if err != nil {
		return session.Blob{}, fmt.Errorf("read the content of a blob: %w", err)
	}
	unlock, err := s.enter(ctx, "PutBlob")
	if err != nil {
		return session.Blob{}, err
	}
	defer unlock()
	sum := sha256.Sum256(raw)
	meta := session.Blob{Hash: hex.EncodeToString(sum[:]), Size: int64(len(raw)), MediaType: mediaType}
	blobs := s.blobs[id]
	if blobs == nil {
		blobs = map[string]blob{}
		s.blobs[id] = blobs
	}
	if known, ok := blobs[meta.Hash]; ok {
		return known.meta, nil
	}
	blobs[meta.Hash] = blob{meta: meta, content: raw}
	return meta, nil
}

// Blob gives a value that was put for this session.
func (s *Store) Blob(ctx context.Context, id, hash string) (session.Blob, io.ReadCloser, error) {
	unlock, err := s.enter(ctx, "Blob")
	if err != nil {
		return session.Blob{}, nil, err
	}
	defer unlock()
	b, ok := s.blobs[id][hash]
	if !ok {
		return session.Blob{}, nil, fmt.Errorf("blob %s of session %s: %w", hash, id, store.ErrNotFound)
	}
	return b.meta, io.NopCloser(bytes.NewReader(b.content)), nil
}
