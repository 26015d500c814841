package builtin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/tool"
)

// The bounds of a notes folder.
const (
	maxNotes    = 1000
	maxNote     = 256 << 10 // bytes of one note
	maxNoteName = 128       // bytes
)

// Notes is a folder of small texts for an agent. Nothing outside of it is
// reached, whatever a name says and whatever links the folder holds.
type Notes struct {
	dir string
	// writing lets one write count the notes before another adds one.
	writing sync.Mutex
}

// OpenNotes takes dir as a notes folder and creates it if it is missing.
func OpenNotes(dir string) (*Notes, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("notes folder: %w", err)
	}
	return &Notes{dir: dir}, nil
}

type noteName struct {
	Name string `json:"name" jsonschema:"name of the note, such as packing-list.md"`
}

type noteText struct {
	Name string `json:"name" jsonschema:"name of the note, such as packing-list.md"`
	Text string `json:"text" jsonschema:"the whole text; it replaces what the note had"`
}

type noteInfo struct {
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
}

type noteList struct {
	Notes []noteInfo `json:"notes"`
}

// List is the tool notes_list.
func (n *Notes) List() tool.Tool {
	return tool.New("notes_list", "Lists the notes, by name.",
		func(context.Context, struct{}, tool.Call) (noteList, error) {
			root, err := n.open()
			if err != nil {
				return noteList{}, err
			}
			defer root.Close()
			notes, err := list(root)
			return noteList{notes}, err
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(10*time.Second))
}

// Read is the tool notes_read.
func (n *Notes) Read() tool.Tool {
	return tool.New("notes_read", "Reads one note.",
		func(_ context.Context, in noteName, _ tool.Call) (string, error) {
			var text string
			err := n.in(in.Name, func(root *os.Root) error {
				if err := exists(root, in.Name); err != nil {
					return err
				}
				f, err := root.Open(in.Name)
				if err != nil {
					return err
				}
				defer f.Close()
				content, err := io.ReadAll(io.LimitReader(f, maxNote+1))
				if err == nil && len(content) > maxNote {
					err = tooLong()
				}
				text = session.CleanText(string(content))
				return err
			})
			return text, err
		}, tool.WithEffects(session.ReadOnly), tool.WithTimeout(10*time.Second))
}

// Write is the tool notes_write. Writing the same again changes nothing.
func (n *Notes) Write() tool.Tool {
	return tool.New("notes_write", "Writes one note: creates it, or replaces its whole text.",
		func(_ context.Context, in noteText, call tool.Call) (string, error) {
			if len(in.Text) > maxNote {
				return "", tooLong()
			}
			err := n.in(in.Name, func(root *os.Root) error { return n.write(root, in, call.IdempotencyKey) })
			return fmt.Sprintf("Wrote the note %s (%d bytes).", in.Name, len(in.Text)), err
		}, tool.WithEffects(session.Idempotent), tool.WithTimeout(10*time.Second))
}

// Delete is the tool notes_delete. A person approves each call.
func (n *Notes) Delete() tool.Tool {
	return tool.New("notes_delete", "Deletes one note for good. A person is asked first.",
		func(_ context.Context, in noteName, _ tool.Call) (string, error) {
			err := n.in(in.Name, func(root *os.Root) error {
				if err := exists(root, in.Name); err != nil {
					return err
				}
				if err := root.Remove(in.Name); err != nil {
					return err
				}
				return syncFolder(root)
			})
			return fmt.Sprintf("Deleted the note %s.", in.Name), err
		}, tool.WithEffects(session.Unsafe), tool.WithApproval(tool.Always), tool.WithTimeout(10*time.Second))
}

// in checks a name and opens the folder for do. An error of the file system is
// told without the folder's path.
func (n *Notes) in(name string, do func(root *os.Root) error) error {
	if err := checkName(name); err != nil {
		return err
	}
	root, err := n.open()
	if err != nil {
		return err
	}
	defer root.Close()
	err = do(root)
	var told *tool.Error
	switch {
	case err == nil || errors.As(err, &told):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return notFound(name)
	}
	return fmt.Errorf("note %q: %w", name, plain(err))
}

func (n *Notes) open() (*os.Root, error) {
	root, err := os.OpenRoot(n.dir)
	if err != nil {
		return nil, fmt.Errorf("notes folder: %w", plain(err))
	}
	return root, nil
}

// plain takes the paths out of an error of the file system.
func plain(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// checkName accepts one visible file name, no path.
func checkName(name string) error {
	why := ""
	switch {
	case name == "":
		why = "is empty"
	case len(name) > maxNoteName:
		why = fmt.Sprintf("is longer than %d bytes", maxNoteName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }):
		why = "has characters that cannot be seen"
	case strings.ContainsAny(name, `/\:`):
		why = "has a slash, backslash or colon in it; notes are not in folders"
	case strings.HasPrefix(name, "."):
		why = "begins with a dot"
	case strings.TrimSpace(name) != name || strings.HasSuffix(name, "."):
		why = "begins or ends with a space or ends with a dot"
	default:
		return nil
	}
	return tool.Errorf("invalid_name", "The name of the note %s.", why)
}

func notFound(name string) error {
	return tool.Errorf("not_found", "There is no note %q. notes_list gives the names.", name)
}

func tooLong() error {
	return tool.Errorf("too_long", "The note is longer than %d bytes.", maxNote)
}

// exists says whether name is a note: a regular file, no link.
func exists(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return notFound(name)
	}
	return nil
}

// list gives the notes by name.
func list(root *os.Root) ([]noteInfo, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("notes folder: %w", plain(err))
	}
	notes := []noteInfo{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || checkName(e.Name()) != nil {
			continue // gone meanwhile, or not ours
		}
		notes = append(notes, noteInfo{e.Name(), info.Size(), info.ModTime().UTC().Truncate(time.Second)})
	}
	slices.SortFunc(notes, func(a, b noteInfo) int { return strings.Compare(a.Name, b.Name) })
	return notes, nil
}

// write puts a whole note in place or leaves what was there.
func (n *Notes) write(root *os.Root, note noteText, key string) error {
	n.writing.Lock()
	defer n.writing.Unlock()
	switch info, err := root.Lstat(note.Name); {
	case errors.Is(err, fs.ErrNotExist):
		notes, err := list(root)
		if err != nil {
			return err
		}
		if len(notes) >= maxNotes {
			return tool.Errorf("too_many", "There are %d notes already, and no more fit. Delete some first.", len(notes))
		}
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return tool.Errorf("invalid_name", "The name %q is taken by something that is no note.", note.Name)
	}
	// A call that is made again after a crash uses the same file again.
	sum := sha256.Sum256([]byte(key + "\x00" + note.Name))
	part := "." + hex.EncodeToString(sum[:8]) + ".part"
	if err := writeFile(root, part, note.Text); err != nil {
		_ = root.Remove(part)
		return err
	}
	if err := root.Rename(part, note.Name); err != nil {
		_ = root.Remove(part)
		return err
	}
	return syncFolder(root)
}

// syncFolder brings a changed name to disk.
func syncFolder(root *os.Root) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// writeFile writes a file and brings it to disk.
func writeFile(root *os.Root, name, text string) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(f, text); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Sync(); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
