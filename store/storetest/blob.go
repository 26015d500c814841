package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

var blobPromises = []promise{
	{"a blob comes back byte for byte, named by its hash", aBlobComesBack},
	{"an unknown blob is not found", func(t *testing.T, w *world) {
		w.create("ses_1")
		for _, hash := range []string{strings.Repeat("0", 64), "", "../../etc/passwd", "%"} {
			_, _, err := w.Blob(w.ctx, "ses_1", hash)
			is(t, err, store.ErrNotFound)
		}
	}},
	{"putting it again is fine", puttingAgainIsFine},
	{"a blob is not seen from another session until it is put there", aBlobIsNotSeenFromAnotherSession},
	{"an empty blob is a blob", func(t *testing.T, w *world) {
		w.create("ses_1")
		w.getBlob("ses_1", w.putBlob("ses_1", nil), nil)
	}},
	{"a large stream is kept", aLargeStreamIsKept},
	{"a stream that breaks leaves nothing", aBrokenStreamLeavesNothing},
	{"deleting a session takes its blobs and nobody else's", deletingTakesItsBlobs},
	{"blobs survive reopening", func(t *testing.T, w *world) {
		w.create("ses_1")
		small, large := []byte("small"), noise(1<<20)
		a, b := w.putBlob("ses_1", small), w.putBlob("ses_1", large)
		if !w.reopen() {
			t.Skip("this backend keeps nothing")
		}
		w.getBlob("ses_1", a, small)
		w.getBlob("ses_1", b, large)
	}},
}

// noise is content that does not compress, the same every time.
func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // it never fails
	return b
}

func (w *world) putBlob(id string, content []byte) session.Blob {
	w.t.Helper()
	b, err := w.PutBlob(w.ctx, id, "text/plain", iotest.HalfReader(bytes.NewReader(content)))
	if err != nil {
		w.t.Fatalf("put a blob: %v", err)
	}
	sum := sha256.Sum256(content)
	if want := (session.Blob{Hash: hex.EncodeToString(sum[:]), Size: int64(len(content)), MediaType: "text/plain"}); b != want {
		w.t.Fatalf("put %+v, not %+v", b, want)
	}
	return b
}

func (w *world) getBlob(id string, want session.Blob, content []byte) {
	w.t.Helper()
	b, r, err := w.Blob(w.ctx, id, want.Hash)
	if err != nil {
		w.t.Fatalf("get a blob: %v", err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		w.t.Errorf("read a blob: %v", err)
	}
	if b != want || !bytes.Equal(got, content) {
		w.t.Errorf("got %+v with %d bytes, not %+v with %d", b, len(got), want, len(content))
	}
}

func aBlobComesBack(t *testing.T, w *world) {
	w.create("ses_1")
	for _, content := range [][]byte{[]byte("hello"), {0, 1, 2, 0xff, 0xfe}, []byte("\x00"), noise(70 << 10)} {
		w.getBlob("ses_1", w.putBlob("ses_1", content), content)
	}
}

func puttingAgainIsFine(t *testing.T, w *world) {
	w.create("ses_1")
	content := noise(100 << 10)
	first := w.putBlob("ses_1", content)
	again := w.putBlob("ses_1", content)
	if first != again {
		t.Errorf("put %+v, then %+v", first, again)
	}
	w.getBlob("ses_1", first, content)
}

func aBlobIsNotSeenFromAnotherSession(t *testing.T, w *world) {
	w.create("ses_1")
	w.create("ses_2")
	content := []byte("for the eyes of one session")
	b := w.putBlob("ses_1", content)
	_, _, err := w.Blob(w.ctx, "ses_2", b.Hash)
	is(t, err, store.ErrNotFound)
	w.putBlob("ses_2", content)
	w.getBlob("ses_2", b, content)
	w.getBlob("ses_1", b, content)
}

func aLargeStreamIsKept(t *testing.T, w *world) {
	w.create("ses_1")
	content := noise(12<<20 + 345)
	b := w.putBlob("ses_1", content)
	w.getBlob("ses_1", b, content)
	// Appends go on while somebody reads it slowly.
	_, r, err := w.Blob(w.ctx, "ses_1", b.Hash)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, r, 1<<20); err != nil {
		t.Error(err)
	}
	w.do("ses_1", fact(note("meanwhile")))
	rest, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(rest, content[1<<20:]) {
		t.Errorf("the rest has %d bytes, %v", len(rest), err)
	}
}

func aBrokenStreamLeavesNothing(t *testing.T, w *world) {
	w.create("ses_1")
	content := noise(2 << 20)
	broken := io.MultiReader(bytes.NewReader(content[:1<<20]), iotest.ErrReader(errRefused))
	_, err := w.PutBlob(w.ctx, "ses_1", "text/plain", broken)
	is(t, err, errRefused)
	half := sha256.Sum256(content[:1<<20])
	_, _, err = w.Blob(w.ctx, "ses_1", hex.EncodeToString(half[:]))
	is(t, err, store.ErrNotFound)
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	_, err = w.PutBlob(ctx, "ses_1", "text/plain", bytes.NewReader(content))
	is(t, err, context.Canceled)
	w.getBlob("ses_1", w.putBlob("ses_1", content), content)
}

func deletingTakesItsBlobs(t *testing.T, w *world) {
	w.create("ses_1")
	w.create("ses_2")
	shared, own := noise(80<<10), []byte("own")
	a, b := w.putBlob("ses_1", shared), w.putBlob("ses_1", own)
	w.putBlob("ses_2", shared)
	if err := w.Delete(w.ctx, "ses_1"); err != nil {
		t.Fatal(err)
	}
	for _, hash := range []string{a.Hash, b.Hash} {
		_, _, err := w.Blob(w.ctx, "ses_1", hash)
		is(t, err, store.ErrNotFound)
	}
	w.create("ses_1")
	_, _, err := w.Blob(w.ctx, "ses_1", b.Hash)
	is(t, err, store.ErrNotFound)
	w.getBlob("ses_2", a, shared)
}
