package mcp

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/tool"
)

func TestTextIsTheValueAndOtherContentIsFiles(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	s, _ := run(t, Config{Command: []string{"x"}}, opts)
	res, err := do(t, s, "show", `{}`)
	if err != nil {
		t.Fatal(err)
	}
	var told string
	if err := json.Unmarshal(res.Value, &told); err != nil {
		t.Fatal(err)
	}
	want := "before\n[image: image/png, 9 bytes]\nafter\n[resource file:///a/b.bin: application/octet-stream, 2 bytes]\n[resource file:///c.txt]\ninside\n[resource file:///d: d]"
	if told != want {
		t.Errorf("the model reads\n%s", told)
	}
	if len(res.Files) != 2 || string(res.Files[0].Content) != "a picture" || res.Files[0].MediaType != "image/png" || res.Files[1].Name != "b.bin" {
		t.Errorf("the files are %+v", res.Files)
	}
}

func TestAToolThatFailsSaysWhy(t *testing.T) {
	opts := quick()
	opts.link = sdkServer(testServer(t.TempDir() + "/ledger"))
	s, _ := run(t, Config{Command: []string{"x"}}, opts)
	if _, err := do(t, s, "fail", `{"note":"file"}`); code(err) != tool.CodeFailed || err.Error() != "no such file" {
		t.Errorf("it is told as %v", err)
	}
}

func TestAToolThatAsksAPersonIsToldThatNobodyIsThere(t *testing.T) {
	for version, said := range map[string]string{"": "2026-07-28", olderProtocol: olderProtocol} {
		opts := quick()
		ledger := t.TempDir() + "/ledger"
		opts.link = sdkServer(testServer(ledger))
		if version != "" {
			opts.link = sdkServer(testServer(ledger, version))
		}
		s, l := run(t, Config{Command: []string{"x"}}, opts)
		l.has(t, 1, "is ready", "protocol="+said)
		if _, err := do(t, s, "ask", `{}`); code(err) != tool.CodeFailed {
			t.Errorf("over %s it gives %v", said, err)
		}
	}
}

func TestOddResultsAreWellFormed(t *testing.T) {
	for result, want := range map[string]string{
		// The text of a structured result keeps what a number of JavaScript would lose.
		`"result":{"content":[{"type":"text","text":"{\"b\":9007199254740993,\"a\":1}"}],"structuredContent":{"a":1,"b":9007199254740993}}`: `{"b":9007199254740993,"a":1}`,
		`"result":{"content":[]}`: `""`,
		`"result":{"content":[{"type":"text","text":"a` + "\xff\\ud800" + `b"}]}`:                                                  `"a` + "\uFFFD\uFFFD" + `b"`,
		`"result":{"content":[{"type":"text","text":"note"}],"structuredContent":{"a":1}}`:                                         `{"structuredContent":{"a":1},"text":"note"}`,
		`"result":{"content":[],"structuredContent":[1,2]}`:                                                                        `[1,2]`,
		`"result":{"content":[{"type":"text","text":""}],"isError":true}`:                                                          `tool_failed: The tool failed and did not say why.`,
		`"error":{"code":-32602,"message":"no"}`:                                                                                   `tool_failed: The MCP server s refused the call: no (-32602)`,
		`"result":{"resultType":"input_required","inputRequests":{"a":{"method":"elicitation/create","params":{}}},"content":[]}`:  `input_needed: The tool asks for more than its arguments, which cannot be given here. Do without it.`,
		`"result":{"content":[{"type":"image","mimeType":"image/png","data":"` + strings.Repeat("AAAA", maxFileBytes/3+1) + `"}]}`: `"[image: image/png, 16777218 bytes, not kept: the result has too many or too large files]"`,
	} {
		opts := quick()
		opts.link = inMemory(raw(`[{"name":"a","inputSchema":{"type":"object"}}]`, func(reply func(string), _ json.RawMessage) { reply(result) }))
		s, _ := run(t, Config{Command: []string{"x"}}, opts)
		res, err := do(t, s, "a", `{}`)
		got := string(res.Value)
		if err != nil {
			got = code(err) + ": " + err.Error()
		}
		if got != want {
			t.Errorf("%.100s is told as %.300s", result, got)
		}
	}
}

func TestAResultThatDoesNotFitItsSchemaIsRefused(t *testing.T) {
	tools := `[{"name":"a","inputSchema":{"type":"object"},"outputSchema":{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}}]`
	for result, ok := range map[string]bool{
		`"result":{"content":[],"structuredContent":{"n":1}}`:       true,
		`"result":{"content":[],"structuredContent":{"n":"1"}}`:     false,
		`"result":{"content":[{"type":"text","text":"{\"n\":1}"}]}`: false,
	} {
		opts := quick()
		opts.link = inMemory(raw(tools, func(reply func(string), _ json.RawMessage) { reply(result) }))
		s, _ := run(t, Config{Command: []string{"x"}}, opts)
		if _, err := do(t, s, "a", `{}`); (err == nil) != ok || !ok && code(err) != tool.CodeInvalidResult {
			t.Errorf("%s: %v", result, err)
		}
	}
}

func TestABigResultIsTakenAndAnEndlessOneIsNot(t *testing.T) {
	c, _ := child(t, "plain")
	s, l := run(t, c, quick())
	res, err := do(t, s, "letters", `{"n":12000000}`)
	if err != nil || len(res.Value) != 12000002 {
		t.Errorf("12 MB are %d bytes, %v", len(res.Value), err)
	}
	if _, err := do(t, s, "letters", `{"n":40000000}`); code(err) != tool.CodeInvalidResult || !strings.Contains(err.Error(), "longer than 32 MiB") {
		t.Errorf("40 MB are told as %v", err)
	}
	l.has(t, 1, "is away", "longer than 32 MiB")
	if _, err := do(t, s, "look", `{}`); err != nil {
		t.Errorf("the next call: %v", err)
	}
}
