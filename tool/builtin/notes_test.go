package builtin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

type folder struct {
	dir   string
	notes *Notes
}

func openFolder(t *testing.T) folder {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "deep", "notes")
	notes, err := OpenNotes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return folder{dir, notes}
}

func (f folder) put(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func nameArgs(name string) string {
	args, _ := json.Marshal(map[string]string{"name": name})
	return string(args)
}

func writeArgs(name, text string) string {
	args, _ := json.Marshal(map[string]string{"name": name, "text": text})
	return string(args)
}

func TestANoteIsWrittenReadListedAndDeleted(t *testing.T) {
	f := openFolder(t)
	text := "Socks\n\u0000 < 3 pairs & a hat 🎩"
	if got := useText(t, f.notes.Write(), writeArgs("packing list.md", text)); got != fmt.Sprintf("Wrote the note packing list.md (%d bytes).", len(text)) {
		t.Errorf("write says %s", got)
	}
	if got := useText(t, f.notes.Read(), nameArgs("packing list.md")); got != text {
		t.Errorf("read gives %q", got)
	}
	useText(t, f.notes.Write(), writeArgs("packing list.md", "new"))
	useText(t, f.notes.Write(), writeArgs("a.md", ""))
	var list noteList
	value, err := use(t.Context(), f.notes.List(), ``)
	if err != nil || json.Unmarshal([]byte(value), &list) != nil {
		t.Fatalf("list gives %s, %v", value, err)
	}
	if len(list.Notes) != 2 || list.Notes[0].Name != "a.md" || list.Notes[1].Name != "packing list.md" || list.Notes[1].Bytes != 3 || list.Notes[1].Modified.IsZero() {
		t.Errorf("list gives %s", value)
	}
	useText(t, f.notes.Delete(), nameArgs("packing list.md"))
	for _, again := range []error{
		second(use(t.Context(), f.notes.Read(), nameArgs("packing list.md"))),
		second(use(t.Context(), f.notes.Delete(), nameArgs("packing list.md"))),
	} {
		if codeOf(again) != "not_found" {
			t.Errorf("after the deletion: %v", again)
		}
	}
}

func second(_ string, err error) error { return err }

func TestAnEmptyFolderListsAsAnEmptyList(t *testing.T) {
	if got, err := use(t.Context(), openFolder(t).notes.List(), ``); err != nil || got != `{"notes":[]}` {
		t.Errorf("list gives %s, %v", got, err)
	}
}

func TestANameThatIsNoPlainNameIsRefused(t *testing.T) {
	f := openFolder(t)
	for _, name := range []string{
		"", ".", "..", "../secret", "a/../../secret", "/etc/passwd", `..\secret`, `C:\x`, "C:x", "a/b", ".hidden", "nul\x00byte",
		"line\nbreak", "tab\t", "right\u202eleft", "zero\u200bwidth", " space", "space ", "dot.", strings.Repeat("a", 129), "\ufffd",
	} {
		for _, tl := range []error{
			second(use(t.Context(), f.notes.Read(), nameArgs(name))),
			second(use(t.Context(), f.notes.Delete(), nameArgs(name))),
			second(use(t.Context(), f.notes.Write(), writeArgs(name, "x"))),
		} {
			if codeOf(tl) != "invalid_name" {
				t.Errorf("the name %q: %v", name, tl)
			}
		}
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestALinkInTheFolderLeadsNowhere(t *testing.T) {
	f := openFolder(t)
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.put(t, "real", "a note")
	for name, target := range map[string]string{"out": outside, "in": "real"} {
		if err := os.Symlink(target, filepath.Join(f.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(f.dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out", "in", "folder"} {
		if err := second(use(t.Context(), f.notes.Read(), nameArgs(name))); codeOf(err) != "not_found" {
			t.Errorf("read %s: %v", name, err)
		}
		if err := second(use(t.Context(), f.notes.Delete(), nameArgs(name))); codeOf(err) != "not_found" {
			t.Errorf("delete %s: %v", name, err)
		}
		if err := second(use(t.Context(), f.notes.Write(), writeArgs(name, "overwritten"))); codeOf(err) != "invalid_name" {
			t.Errorf("write %s: %v", name, err)
		}
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "secret" {
		t.Errorf("the file outside has %q, %v", text, err)
	}
	if got, err := use(t.Context(), f.notes.List(), ``); err != nil || strings.Count(got, `"name"`) != 1 {
		t.Errorf("list gives %s, %v", got, err)
	}
}

func TestANoteHasABound(t *testing.T) {
	f := openFolder(t)
	useText(t, f.notes.Write(), writeArgs("full", strings.Repeat("x", maxNote)))
	if err := second(use(t.Context(), f.notes.Write(), writeArgs("over", strings.Repeat("x", maxNote+1)))); codeOf(err) != "too_long" {
		t.Errorf("write: %v", err)
	}
	f.put(t, "grown", strings.Repeat("x", maxNote+1))
	if err := second(use(t.Context(), f.notes.Read(), nameArgs("grown"))); codeOf(err) != "too_long" {
		t.Errorf("read: %v", err)
	}
	f.put(t, "binary", "\xff\xfe\x00A")
	if got := useText(t, f.notes.Read(), nameArgs("binary")); got != "\ufffd\x00A" {
		t.Errorf("a binary file reads as %q", got)
	}
}

func TestTheFolderHasABoundThatParallelWritesKeep(t *testing.T) {
	f := openFolder(t)
	for i := range maxNotes - 3 {
		f.put(t, fmt.Sprintf("old-%04d", i), "")
	}
	write := f.notes.Write()
	var wg sync.WaitGroup
	codes := make(chan string, 10)
	for i := range 10 {
		wg.Go(func() { codes <- codeOf(second(use(t.Context(), write, writeArgs(fmt.Sprintf("new-%d", i), "x")))) })
	}
	wg.Wait()
	close(codes)
	count := map[string]int{}
	for code := range codes {
		count[code]++
	}
	if count[""] != 3 || count["too_many"] != 7 {
		t.Errorf("the writes ended as %v", count)
	}
	useText(t, write, writeArgs("old-0000", "an old one can still be replaced"))
}

func TestWritingTheSameCallAgainLeavesNothingBehind(t *testing.T) {
	f := openFolder(t)
	for range 2 {
		useText(t, f.notes.Write(), writeArgs("a.md", "once"))
	}
	entries, err := os.ReadDir(f.dir)
	if err != nil || len(entries) != 1 || useText(t, f.notes.Read(), nameArgs("a.md")) != "once" {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

func TestAnErrorOfTheFileSystemDoesNotTellThePath(t *testing.T) {
	f := openFolder(t)
	if err := os.RemoveAll(f.dir); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		second(use(t.Context(), f.notes.List(), ``)),
		second(use(t.Context(), f.notes.Read(), nameArgs("a"))),
		second(use(t.Context(), f.notes.Write(), writeArgs("a", "x"))),
	} {
		if err == nil || strings.Contains(err.Error(), f.dir) {
			t.Errorf("without its folder: %v", err)
		}
	}
}
