package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-run/holdfast/session"
)

const (
	insertBlob = `
INSERT INTO blobs (id, session, hash, size, media_type) VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING`
	insertPart = `INSERT INTO blob_parts (blob, n, body) VALUES ($1, $2, $3)`
	selectBlob = `SELECT id, hash, size, media_type FROM blobs WHERE session = $1 AND hash = $2`
	selectPart = `SELECT body FROM blob_parts WHERE blob = $1 AND n = $2`

	// Blobs of sessions that never came to be, or were deleted while a worker put one more.
	deleteOrphans = `
DELETE FROM blobs WHERE put_at < now() - interval '1 day' AND NOT EXISTS (SELECT 1 FROM heads WHERE heads.session = blobs.session)`
)

// partBytes is how much of a blob is in one row.
const partBytes = 1 << 20

// PutBlob keeps a value for a session. The session need not exist yet. The
// content is received whole before the database hears of it, however slowly it comes.
func (s *Store) PutBlob(ctx context.Context, id, mediaType string, content io.Reader) (session.Blob, error) {
	if err := s.enterWith(ctx, id); err != nil {
		return session.Blob{}, err
	}
	file, blob, err := receive(content)
	if err != nil {
		return session.Blob{}, err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	_, err = read(ctx, s, func(querier) (struct{}, error) {
		return struct{}{}, pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			name := newID()
			tag, err := tx.Exec(ctx, insertBlob, name, id, blob.Hash, blob.Size, []byte(mediaType))
			if err != nil || tag.RowsAffected() == 0 {
				return err
			}
			return putParts(ctx, tx, name, file)
		})
	})
	if err != nil {
		return session.Blob{}, s.unavailable(ctx, "put a blob", err)
	}
	kept, err := s.blob(ctx, id, blob.Hash) // an earlier put has chosen the media type
	return kept.Blob, err
}

// receive writes content to a temporary file.
func receive(content io.Reader) (file *os.File, blob session.Blob, err error) {
	if file, err = os.CreateTemp("", "holdfast-blob-*"); err != nil {
		return nil, blob, err
	}
	hash := sha256.New()
	if blob.Size, err = io.Copy(io.MultiWriter(file, hash), content); err != nil {
		file.Close()
		os.Remove(file.Name())
		return nil, blob, fmt.Errorf("read the content of a blob: %w", err)
	}
	blob.Hash = hex.EncodeToString(hash.Sum(nil))
	return file, blob, nil
}

func putParts(ctx context.Context, tx pgx.Tx, name [16]byte, file *os.File) error {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	part := make([]byte, partBytes)
	for n := 0; ; n++ {
		size, err := io.ReadFull(file, part)
		if size > 0 {
			if _, err := tx.Exec(ctx, insertPart, name, n, part[:size]); err != nil {
				return err
			}
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// keptBlob is a blob and its name in the database.
type keptBlob struct {
	session.Blob
	name [16]byte
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Blob gives a value that was put for this session.
func (s *Store) Blob(ctx context.Context, id, hash string) (session.Blob, io.ReadCloser, error) {
	if err := s.enter(ctx); err != nil {
		return session.Blob{}, nil, err
	}
	kept, err := s.blob(ctx, id, hash)
	if err != nil {
		return session.Blob{}, nil, err
	}
	return kept.Blob, &blobReader{ctx: ctx, store: s, blob: kept}, nil
}

func (s *Store) blob(ctx context.Context, id, hash string) (keptBlob, error) {
	if !hashPattern.MatchString(hash) || !storable(id) {
		return keptBlob{}, notFound("blob", hash)
	}
	return find(ctx, s, "blob", hash, func(q querier) (b keptBlob, err error) {
		var mediaType []byte
		err = q.QueryRow(ctx, selectBlob, id, hash).Scan(&b.name, &b.Hash, &b.Size, &mediaType)
		b.MediaType = string(mediaType)
		return b, err
	})
}

// blobReader reads a blob, a part at a time.
type blobReader struct {
	ctx   context.Context
	store *Store
	blob  keptBlob
	n     int
	part  []byte
	given int64
}

// Read implements io.Reader.
func (r *blobReader) Read(p []byte) (int, error) {
	if r.given == r.blob.Size {
		return 0, io.EOF
	}
	if len(r.part) == 0 {
		var err error
		if r.part, err = find(r.ctx, r.store, "blob", r.blob.Hash, func(q querier) (part []byte, err error) {
			err = q.QueryRow(r.ctx, selectPart, r.blob.name, r.n).Scan(&part)
			return part, err
		}); err != nil {
			return 0, err // also when its session was deleted meanwhile
		}
		r.n++
	}
	n := copy(p, r.part)
	r.part, r.given = r.part[n:], r.given+int64(n)
	return n, nil
}

// Close implements io.Closer.
func (r *blobReader) Close() error { return nil }

// dropOrphans lets go of blobs without a session, now and then.
func (s *Store) dropOrphans(ctx context.Context) error {
	now := time.Now().UnixMilli()
	if last := s.swept.Load(); now-last < time.Hour.Milliseconds() {
		return nil
	}
	if _, err := s.pool.Exec(ctx, deleteOrphans); err != nil {
		return err
	}
	s.swept.Store(now)
	return nil
}
