package web_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/web"
)

var (
	linked = regexp.MustCompile(`(?:src|href)="/([^"]+)"`)
	inline = regexp.MustCompile(`(?is)<script[^>]*>\s*[^<\s]|<style|\son\w+=|\sstyle=`)
)

func TestThePageLoadsWhatIsThereAndNothingElse(t *testing.T) {
	page := read(t, "index.html")
	found := linked.FindAllStringSubmatch(page, -1)
	if len(found) < 3 {
		t.Fatalf("index.html loads %d files: the page has not been built", len(found))
	}
	for _, match := range found {
		if read(t, match[1]) == "" {
			t.Errorf("%s is empty", match[1])
		}
	}
	if strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Error("index.html loads something from elsewhere")
	}
}

// The server's policy refuses what is inline.
func TestThePageHasNothingInline(t *testing.T) {
	if at := inline.FindString(read(t, "index.html")); at != "" {
		t.Errorf("index.html has %q", at)
	}
}

func TestTheBuiltPageIsSmall(t *testing.T) {
	var first int64
	err := fs.WalkDir(web.Files(), "assets", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(entry.Name(), "index-") {
			first += info.Size()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if first == 0 || first > 450_000 {
		t.Errorf("what every page loads first has %d bytes, before compression; at most 450,000", first)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	body, err := fs.ReadFile(web.Files(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
