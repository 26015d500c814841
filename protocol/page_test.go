package protocol_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast/session"
	"github.com/holdfast-run/holdfast/store"
)

func page(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// section is the text from a heading to the next of its level or above.
func section(t *testing.T, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(page(t), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("there is no %q", heading)
	}
	level := strings.IndexByte(heading, ' ')
	if end := regexp.MustCompile(fmt.Sprintf(`(?m)^#{1,%d} `, level)).FindStringIndex(rest); end != nil {
		rest = rest[:end[0]]
	}
	return rest
}

// fields are the names of a type in JSON, with a "?" where the value may be absent.
func fields(typ reflect.Type) []string {
	names := []string{}
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case !f.IsExported() || name == "-":
			continue
		case strings.HasPrefix(rest, "omit"):
			name += "?"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestThePageListsTheFieldsOfEveryEvent(t *testing.T) {
	rows := map[string][]string{}
	aside := regexp.MustCompile(`\([^)]*\)`)
	for line := range strings.Lines(section(t, "## 7. Events")) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		listed := []string{}
		for _, m := range regexp.MustCompile("`(\\w+)`(\\??)").FindAllStringSubmatch(aside.ReplaceAllString(cells[2], ""), -1) {
			listed = append(listed, m[1]+m[2])
		}
		slices.Sort(listed)
		for _, m := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(cells[1], -1) {
			rows[m[1]] = listed
		}
	}
	for _, name := range eventTypes {
		var e session.Event
		if err := json.Unmarshal(fmt.Appendf(nil, `{"seq":1,"at":"2026-01-02T03:04:05Z","type":%q,"data":{}}`, name), &e); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fields(reflect.TypeOf(e.Data)), rows[name]); diff != "" {
			t.Errorf("%s (-type +page):\n%s", name, diff)
		}
		delete(rows, name)
	}
	for name := range rows {
		t.Errorf("the page has the event %s, and there is none", name)
	}
}

func TestThePageNamesTheFieldsOfEveryObject(t *testing.T) {
	for heading, types := range map[string][]reflect.Type{
		"### Session":   {reflect.TypeFor[store.SessionRow]()},
		"### Message":   {reflect.TypeFor[session.Message](), reflect.TypeFor[session.Part](), reflect.TypeFor[session.File](), reflect.TypeFor[session.Blob]()},
		"### Tool call": {reflect.TypeFor[session.ToolCall](), reflect.TypeFor[session.Progress]()},
		"### Run": {
			reflect.TypeFor[session.Run](), reflect.TypeFor[session.Step](), reflect.TypeFor[session.Usage](),
			reflect.TypeFor[session.Failure](),
		},
		"### Approval":  {reflect.TypeFor[session.Approval]()},
		"### InboxItem": {reflect.TypeFor[session.InboxItem]()},
	} {
		text := section(t, heading)
		for _, typ := range types {
			for _, field := range fields(typ) {
				name, optional := strings.CutSuffix(field, "?")
				listed := regexp.MustCompile("`"+name+"`(\\??)").FindAllStringSubmatch(text, -1)
				union := typ == reflect.TypeFor[session.Part]() // its fields go by its type
				if !slices.ContainsFunc(listed, func(m []string) bool { return union || (m[1] == "?") == optional }) {
					t.Errorf("%s: the field %s of %v is not there as such", heading, field, typ)
				}
			}
		}
	}
}

func TestEveryLinkWithinThePageLeadsToAHeading(t *testing.T) {
	text := page(t)
	anchors := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		anchor := strings.ReplaceAll(strings.ToLower(m[1]), " ", "-")
		anchors[regexp.MustCompile("[^a-z0-9_-]").ReplaceAllString(anchor, "")] = true
	}
	for _, m := range regexp.MustCompile(`\]\(#([^)]+)\)`).FindAllStringSubmatch(text, -1) {
		if !anchors[m[1]] {
			t.Errorf("#%s leads nowhere", m[1])
		}
	}
}
