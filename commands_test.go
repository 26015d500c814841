package holdfast_test

import (
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/model/modeltest"
	"github.com/holdfast-run/holdfast/session"
)

func TestARepeatedMessageIsAnsweredAsItIs(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	rt := carried(t, modeltest.NewScript(
		modeltest.Reply(modeltest.Do(func() { close(begun) }), modeltest.Wait(goOn), modeltest.Text("one")),
		modeltest.Reply(modeltest.Text("two")),
	))
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", says("msg_1", "first")); err != nil {
		t.Fatal(err)
	}
	<-begun
	if _, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", says("msg_2", "second")); err != nil {
		t.Fatal(err)
	}
	edited := []session.Part{{Type: session.PartText, Text: "second, edited"}}
	if _, err := rt.EditInbox(t.Context(), holdfast.Local, "ses_1", "msg_2", edited); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if _, err := rt.Do(t.Context(), holdfast.Local, "ses_1", says("msg_2", "second"), nil); err != nil {
		t.Fatal(err)
	}
	again, err := rt.Submit(t.Context(), holdfast.Local, "ses_1", says("msg_2", "second"))
	if err != nil || !again.Repeated {
		t.Fatalf("%+v, %v", again, err)
	}
	if got := again.Message.Text(); got != "second, edited" {
		t.Errorf("the message that was edited before its turn is answered as %q", got)
	}
}
