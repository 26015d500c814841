package client

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// told is what a stream says, one string a block.
func told(t *testing.T, stream io.Reader) ([]string, error) {
	t.Helper()
	var got []string
	for b, err := range blocks(stream) {
		if err != nil {
			return got, err
		}
		text := string(b.data)
		if b.retry > 0 {
			text += " retry=" + b.retry.String()
		}
		if b.comment != "" {
			text += " comment=" + b.comment
		}
		got = append(got, text)
	}
	return got, nil
}

func TestAStreamIsReadAsTheStandardHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		stream string
		want   []string
	}{
		"one block a frame":                {"id: 1\ndata: {\"seq\":1}\n\nid: 2\ndata: {\"seq\":2}\n\n", []string{`{"seq":1}`, `{"seq":2}`}},
		"CR ends lines":                    {"data: a\r\rdata: b\r\r", []string{"a", "b"}},
		"CRLF ends lines":                  {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"a", "b"}},
		"a byte order mark is no field":    {"\uFEFFdata: a\n\n", []string{"a"}},
		"one space is dropped, not two":    {"data:  a\ndata:b\n\n", []string{" a\nb"}},
		"empty data is a line":             {"data\ndata:\n\n", []string{"\n"}},
		"comments and retries are told":    {"retry: 2317\n\n: hb\n\n", []string{" retry=2.317s", " comment=hb"}},
		"a retry that is no number is not": {"retry: soon\n\n", []string{""}},
		"goodbye comes in one block":       {"retry: 3000\n: goodbye\n\n", []string{" retry=3s comment=goodbye"}},
		"unknown fields are passed over":   {"event: x\nfoo: bar\ndata: a\n\n", []string{"a"}},
		"blank lines are no blocks":        {"\n\n\ndata: a\n\n\n\n", []string{"a"}},
		"what is not ended is no block":    {"data: a\n\ndata: b\n", []string{"a"}},
		"what is not ended is no line":     {"data: a\n\ndata: b", []string{"a"}},
		"an empty stream says nothing":     {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			for how, stream := range map[string]io.Reader{
				"at once": strings.NewReader(tc.stream), "byte by byte": iotest.OneByteReader(strings.NewReader(tc.stream)),
			} {
				got, err := told(t, stream)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestABrokenStreamEndsWithItsError(t *testing.T) {
	cause := errors.New("the cable")
	got, err := told(t, io.MultiReader(strings.NewReader("data: a\n\ndata: b"), iotest.ErrReader(cause)))
	if !errors.Is(err, cause) || len(got) != 1 || got[0] != "a" {
		t.Errorf("got %q and %v", got, err)
	}
}

func TestALongLineIsReadAndAnEndlessOneIsNot(t *testing.T) {
	long := strings.Repeat("x", 8<<20)
	got, err := told(t, strings.NewReader("data: "+long+"\n\n"))
	if err != nil || len(got) != 1 || got[0] != long {
		t.Errorf("8 MiB: %d blocks, %v", len(got), err)
	}
	if _, err := told(t, strings.NewReader("data: "+strings.Repeat("x", maxLine)+"\n\n")); err == nil {
		t.Error("a line over the limit was accepted")
	}
	lines := strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 20)
	if _, err := told(t, strings.NewReader(lines+"\n")); err == nil {
		t.Error("a block over the limit was accepted")
	}
}

func TestABlockIsGivenBeforeTheNextOneComes(t *testing.T) {
	r, w := io.Pipe()
	defer w.Close()
	given := make(chan string)
	go func() {
		for b, err := range blocks(r) {
			if err == nil {
				given <- string(b.data)
			}
		}
	}()
	for _, end := range []string{"\n", "\r", "\r\n"} {
		if _, err := io.WriteString(w, "data: now"+end+end); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-given:
			if got != "now" {
				t.Errorf("with %q: %q", end, got)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("with %q nothing was given", end)
		}
	}
}
