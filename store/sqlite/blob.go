package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/holdfast-run/holdfast/session"
)

const (
	insertBlob  = `INSERT INTO blobs (session, hash, size, media_type) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`
	selectBlob  = `SELECT hash, size, media_type FROM blobs WHERE session = ? AND hash = ?`
	selectTrash = `SELECT hash, EXISTS (SELECT 1 FROM blobs WHERE blobs.hash = blob_trash.hash) FROM blob_trash`
	deleteTrash = `DELETE FROM blob_trash WHERE hash = ?`
)

// blobs are the files beside the database. A file is complete when it has its
// name, and removed when no row names it.
type blobs struct {
	dir string
	// keep is held for reading from the moment a file has its name until a row
	// names it, and for writing while files that no row names are removed.
	keep sync.RWMutex
}

func (f *blobs) temp() string { return filepath.Join(f.dir, "temp") }

// prepare makes the folders, without what puts that a crash cut short have left.
func (f *blobs) prepare() error {
	if err := os.RemoveAll(f.temp()); err != nil {
		return err
	}
	return os.MkdirAll(f.temp(), 0o700)
}

func (f *blobs) path(hash string) string { return filepath.Join(f.dir, hash[:2], hash[2:]) }

// PutBlob keeps a value for a session. The session need not exist yet.
func (s *Store) PutBlob(ctx context.Context, id, mediaType string, content io.Reader) (session.Blob, error) {
	if err := s.enterToWrite(ctx); err != nil {
		return session.Blob{}, err
	}
	source := &source{Reader: content}
	temp, blob, err := s.blobs.receive(source)
	if source.err != nil {
		return session.Blob{}, fmt.Errorf("read the content of a blob: %w", source.err)
	}
	if err != nil {
		return session.Blob{}, s.unavailable(ctx, "put a blob", err)
	}
	defer os.Remove(temp) // it is gone if all went well
	blob.MediaType = mediaType
	s.blobs.keep.RLock()
	defer s.blobs.keep.RUnlock()
	if err := s.blobs.name(temp, blob.Hash); err != nil {
		return session.Blob{}, s.unavailable(ctx, "put a blob", err)
	}
	err = s.writer.submit(ctx, nil, func(b *batch) error {
		_, err := b.exec(insertBlob, id, blob.Hash, blob.Size, mediaType)
		return err
	})
	if err != nil {
		return session.Blob{}, err
	}
	return s.blob(ctx, id, blob.Hash) // an earlier put has chosen the media type
}

// source tells an error of the content from one of the disk.
type source struct {
	io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.Reader.Read(b)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// receive writes content to a synced temporary file.
func (f *blobs) receive(content io.Reader) (path string, blob session.Blob, err error) {
	file, err := os.CreateTemp(f.temp(), "put-*")
	if err != nil {
		return "", blob, err
	}
	defer func() {
		err = errors.Join(err, file.Close())
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	hash := sha256.New()
	if blob.Size, err = io.Copy(io.MultiWriter(file, hash), content); err != nil {
		return "", blob, err
	}
	if err := file.Sync(); err != nil {
		return "", blob, err
	}
	blob.Hash = hex.EncodeToString(hash.Sum(nil))
	return file.Name(), blob, nil
}

// name gives a temporary file its name, for good.
func (f *blobs) name(temp, hash string) error {
	path := f.path(hash)
	folder := filepath.Dir(path)
	if err := os.Mkdir(folder, 0o700); err == nil {
		err = syncDir(f.dir)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		return err
	}
	return syncDir(folder)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Blob gives a value that was put for this session.
func (s *Store) Blob(ctx context.Context, id, hash string) (session.Blob, io.ReadCloser, error) {
	if err := s.enter(ctx); err != nil {
		return session.Blob{}, nil, err
	}
	blob, err := s.blob(ctx, id, hash)
	if err != nil {
		return session.Blob{}, nil, err
	}
	file, err := os.Open(s.blobs.path(blob.Hash))
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: the file of a blob is missing: %w", ErrDamaged, err)
	}
	if err != nil {
		return session.Blob{}, nil, s.unavailable(ctx, "read blob "+hash, err)
	}
	return blob, file, nil
}

func (s *Store) blob(ctx context.Context, id, hash string) (blob session.Blob, err error) {
	if !hashPattern.MatchString(hash) {
		return blob, notFound("blob", hash)
	}
	err = s.readers.QueryRowContext(ctx, selectBlob, id, hash).Scan(&blob.Hash, &blob.Size, &blob.MediaType)
	return blob, s.found(ctx, "blob", hash, err)
}

// orphanBlobs are those of sessions that never came to be, or were deleted
// while a worker put one more.
var orphanBlobs = []string{
	`INSERT OR IGNORE INTO blob_trash (hash) SELECT hash FROM blobs WHERE session NOT IN (SELECT id FROM sessions)`,
	`DELETE FROM blobs WHERE session NOT IN (SELECT id FROM sessions)`,
}

// dropOrphans lets go of blobs without a session. Nobody else may be putting any.
func (f *blobs) dropOrphans(ctx context.Context, s *Store) error {
	var some bool
	err := s.readers.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM blobs WHERE session NOT IN (SELECT id FROM sessions))`).Scan(&some)
	if err != nil || !some { // then a store that cannot be written opens all the same
		return err
	}
	return s.writer.submit(ctx, nil, func(b *batch) error {
		for _, query := range orphanBlobs {
			if _, err := b.exec(query); err != nil {
				return err
			}
		}
		return nil
	})
}

// emptyTrash removes the files that deleted sessions have left.
func (f *blobs) emptyTrash(ctx context.Context, s *Store) error {
	f.keep.Lock()
	defer f.keep.Unlock()
	type trash struct {
		hash  string
		named bool // again, by a later put
	}
	found, err := collect(ctx, s.readers, func(rows *sql.Rows) (t trash, err error) {
		err = rows.Scan(&t.hash, &t.named)
		return t, err
	}, selectTrash)
	if err != nil || len(found) == 0 {
		return err
	}
	for _, t := range found {
		if t.named {
			continue
		}
		if err := os.Remove(f.path(t.hash)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.writer.submit(ctx, nil, func(b *batch) error {
		for _, t := range found {
			if _, err := b.exec(deleteTrash, t.hash); err != nil {
				return err
			}
		}
		return nil
	})
}
