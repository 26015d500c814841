package aisdk_test

import (
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/holdfast-run/holdfast/server/aisdk"
	"github.com/holdfast-run/holdfast/session"
)

func TestARequestIsReadInBothItsForms(t *testing.T) {
	last := `{"id":"u2","role":"user","parts":[{"type":"text","text":"hi"}],"metadata":{"x":1}}`
	for body, first := range map[string]string{
		`{"id":"c1","trigger":"submit-message","messageId":"u2","messages":[{"id":"u1","role":"user","parts":[]},` + last + `]}`: "u1",
		`{"messageId":"u2","more":[{"id":"x"}],"trigger":"submit-message","message":` + last + `,"id":"c1"}`:                     "u2",
	} {
		q, err := aisdk.ReadRequest(iotest.OneByteReader(strings.NewReader(body)))
		if err != nil || q.Chat != "c1" || q.MessageID != "u2" || q.Trigger != "submit-message" || q.First != first || q.Last.ID != "u2" || q.Goes() {
			t.Errorf("%s is read as %+v, %v", body, q, err)
		}
		if parts, err := q.Last.SessionParts(); err != nil || !reflect.DeepEqual(parts, []session.Part{{Type: session.PartText, Text: "hi"}}) {
			t.Errorf("its parts are %+v, %v", parts, err)
		}
	}
}

func TestDecisionsAreTakenFromAnswersOnly(t *testing.T) {
	const body = `{"messages":[
		{"id":"u1","role":"user","parts":[{"approval":{"id":"apr_0","approved":true}}]},
		{"id":"a1","role":"assistant","parts":[{"approval":{"id":"apr_1","approved":true}},{"approval":{"id":"apr_2"}},{"approval":{"id":"apr 3","approved":true}},{"approval":7},8]},
		{"id":"a2","role":"assistant","parts":[{"approval":{"id":"apr_4","approved":false,"reason":"no \ud800"}}]}]}`
	q, err := aisdk.ReadRequest(strings.NewReader(body))
	want := []aisdk.Decided{{Message: "a1", Approval: "apr_1", Approved: true}, {Message: "a2", Approval: "apr_4", Reason: "no \uFFFD"}}
	if err != nil || !reflect.DeepEqual(q.Decisions, want) || !q.Goes() {
		t.Errorf("decided is %+v, %v", q.Decisions, err)
	}
}

func TestAReaderThatFailsIsNoFaultOfTheJSON(t *testing.T) {
	broken := errors.New("broken")
	var syntax *aisdk.SyntaxError
	if _, err := aisdk.ReadRequest(io.MultiReader(strings.NewReader(`{"messages":[`), iotest.ErrReader(broken))); !errors.Is(err, broken) || errors.As(err, &syntax) {
		t.Errorf("the error is %v", err)
	}
	if _, err := aisdk.ReadRequest(strings.NewReader(`{"messages":[`)); !errors.As(err, &syntax) {
		t.Errorf("the error is %v", err)
	}
}

func TestStreamsAreNamedByHowTheyAreTold(t *testing.T) {
	for _, v := range []aisdk.View{{Run: "run_1"}, {Run: "run_1", Until: 7}, {Run: "run_1", Until: 7, Approval: "apr_1"}, {Run: "run_1", Approval: "apr_1"}} {
		got, ok := aisdk.ParseID(v.ID())
		if v.Index = true; !ok || got != v || aisdk.RunOf(v.ID()) != "run_1" {
			t.Errorf("%s is read as %+v, %v", v.ID(), got, ok)
		}
	}
	for _, id := range []string{"", ".", "run 1", "run_1.", "run_1.x", "run_1.-1", "run_1.7.", "run_1.7.a b", "run_1.7.apr.x"} {
		if v, ok := aisdk.ParseID(id); ok {
			t.Errorf("%q is read as %+v", id, v)
		}
	}
}

func TestAnEditKeepsTheIDThatTheClientKnows(t *testing.T) {
	for id, want := range map[string]string{"u1": "u1", aisdk.EditedID("u1", 3): "u1", aisdk.EditedID(aisdk.EditedID("u1", 1), 2): "u1", "--edit-1": "--edit-1", "u--edit-x": "u--edit-x"} {
		if got := aisdk.UIMessageID(id); got != want {
			t.Errorf("%s is known as %s", id, got)
		}
	}
	if id := aisdk.EditedID(aisdk.EditedID("u1", 1), 2); !session.ValidID(id) || id != aisdk.EditedID("u1", 2) {
		t.Errorf("an edit of an edit is %s", id)
	}
}

func FuzzReadRequest(f *testing.F) {
	for _, seed := range []string{
		`{"id":"c1","messages":[{"id":"u1","role":"user","parts":[{"type":"text","text":"hi"}]}],"trigger":"submit-message"}`,
		`{"message":{"id":"a1","role":"assistant","parts":[{"approval":{"id":"apr_1","approved":true}}]}}`, `{"messages":null}`, `{"messages":[null,7]}`, `[`,
		`{"messages":[{"parts":[{"type":"file","mediaType":"a/b","url":"data:,x"},{"type":"data-x","data":null}],"role":"user"}]}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		q, err := aisdk.ReadRequest(strings.NewReader(body))
		if err != nil {
			return
		}
		for _, d := range q.Decisions {
			if !session.ValidID(d.Approval) {
				t.Errorf("%q decides %q", body, d.Approval)
			}
		}
		parts, err := q.Last.SessionParts()
		if err != nil {
			return
		}
		for _, p := range parts {
			if p.Type == session.PartText && (p.Text == "" || p.Text != session.CleanText(p.Text)) {
				t.Errorf("%q has the text %q", body, p.Text)
			}
		}
	})
}
