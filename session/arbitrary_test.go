package session_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/session"
)

// payloads has one of each payload type.
var payloads = []session.Data{
	session.Created{},
	session.Updated{},
	session.Forked{},
	session.MessageCreated{},
	session.MessageCompleted{},
	session.MessageInterrupted{},
	session.InboxQueued{},
	session.InboxEdited{},
	session.InboxRemoved{},
	session.InboxDelivered{},
	session.RunQueued{},
	session.RunStarted{},
	session.RunWaiting{},
	session.RunResumed{},
	session.RunCancelRequested{},
	session.RunReconciled{},
	session.RunCompleted{},
	session.RunFailed{},
	session.RunCancelled{},
	session.StepStarted{},
	session.AttemptFailed{},
	session.TextDelta{},
	session.ReasoningDelta{},
	session.ToolInputDelta{},
	session.ModelCompleted{},
	session.ContextCompacted{},
	session.StepCompleted{},
	session.ToolCalled{},
	session.ToolStarted{},
	session.ToolDeferred{},
	session.ToolProgress{},
	session.ToolCompleted{},
	session.ToolFailed{},
	session.ToolDenied{},
	session.ToolCancelled{},
	session.ToolUnknown{},
	session.ToolResolved{},
	session.ApprovalRequested{},
	session.ApprovalDecided{},
	session.ApprovalExpired{},
	session.ApprovalVoided{},
}

// arbitrary fills values of any type by chance.
type arbitrary struct {
	rt *rapid.T
	// text gives the strings.
	text *rapid.Generator[string]
}

// event is any event at all: any payload, with any ids, steps and seqs.
func (a arbitrary) event() session.Event {
	kind := rapid.IntRange(0, len(payloads)).Draw(a.rt, "type")
	e := session.Event{
		Session: a.text.Draw(a.rt, "session"), Seq: rapid.Int64Range(0, 1<<53-1).Draw(a.rt, "seq"), At: a.time(),
		Run: a.text.Draw(a.rt, "run"), Step: rapid.IntRange(0, 3).Draw(a.rt, "step"), Attempt: rapid.IntRange(0, 3).Draw(a.rt, "attempt"),
	}
	if kind == len(payloads) {
		e.Data = session.Unknown{Name: "later." + a.text.Draw(a.rt, "name"), Raw: aJSON(a.rt, 3)}
		return e
	}
	data := reflect.New(reflect.TypeOf(payloads[kind])).Elem()
	a.fill(data, 0)
	e.Data = data.Interface().(session.Data)
	return e
}

func (a arbitrary) time() time.Time {
	return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(a.rt, "ms")).UTC()
}

func (a arbitrary) fill(v reflect.Value, depth int) {
	switch v.Interface().(type) {
	case json.RawMessage:
		v.SetBytes(aJSON(a.rt, 2))
		return
	case time.Time:
		v.Set(reflect.ValueOf(a.time()))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(a.word(v))
	case reflect.Int, reflect.Int64:
		v.SetInt(rapid.Int64Range(0, 3).Draw(a.rt, "int"))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(a.rt, "bool"))
	case reflect.Float64:
		v.SetFloat(rapid.Float64Range(0, 1).Draw(a.rt, "float"))
	case reflect.Pointer:
		if depth < 6 && rapid.Bool().Draw(a.rt, "set") {
			v.Set(reflect.New(v.Type().Elem()))
			a.fill(v.Elem(), depth+1)
		}
	case reflect.Slice:
		for range rapid.IntRange(0, 2).Draw(a.rt, "len") {
			e := reflect.New(v.Type().Elem()).Elem()
			a.fill(e, depth+1)
			v.Set(reflect.Append(v, e))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				a.fill(v.Field(i), depth+1)
			}
		}
	default:
		panic("arbitrary: no rule for " + v.Type().String())
	}
}

// words are what the named string types know, so that events often fit.
var words = map[reflect.Type][]string{
	reflect.TypeFor[session.Role]():           {"user", "assistant"},
	reflect.TypeFor[session.MessageStatus]():  {"", "streaming", "completed", "interrupted"},
	reflect.TypeFor[session.PartType]():       {"text", "reasoning", "tool", "file", "step"},
	reflect.TypeFor[session.PartState]():      {"", "streaming", "failed"},
	reflect.TypeFor[session.CallStatus]():     {"writing", "called", "started", "completed", "unknown"},
	reflect.TypeFor[session.Effects]():        {"read_only", "idempotent", "unsafe"},
	reflect.TypeFor[session.OnBusy]():         {"enqueue", "interrupt", "rollback", "steer"},
	reflect.TypeFor[session.Decision]():       {"approve", "deny"},
	reflect.TypeFor[session.WaitingReason]():  {"approval", "tool_outcome", "retry", "worker"},
	reflect.TypeFor[session.ReconcileCause](): {"lease_expired", "restart", "drain", "cancel_timeout"},
}

func (a arbitrary) word(v reflect.Value) string {
	if known := words[v.Type()]; known != nil && rapid.IntRange(0, 9).Draw(a.rt, "odd") > 0 {
		return rapid.SampledFrom(known).Draw(a.rt, v.Type().Name())
	}
	return a.text.Draw(a.rt, "text")
}

// aJSON is any JSON value, compact, as bytes that a decoder would not give back:
// numbers out of range, repeated keys, every kind of escape.
func aJSON(rt *rapid.T, depth int) json.RawMessage {
	scalars := []string{
		"null", "true", "false", "0", "-0", "1e2", "1.10", "1E400", "9007199254740993", "2512292042121000001",
		`""`, `"a"`, `"\u0000"`, `"\\u0000"`, `"\ud83d\ude00"`, `"😀"`, `"<&>\u003c"`, "\"\u2028\"", `"\/\b\f\n\r\t\""`,
	}
	kind := rapid.IntRange(0, 4).Draw(rt, "json")
	if depth == 0 || kind < 3 {
		return json.RawMessage(rapid.SampledFrom(scalars).Draw(rt, "scalar"))
	}
	n := rapid.IntRange(0, 3).Draw(rt, "len")
	var items []string
	for range n {
		item := string(aJSON(rt, depth-1))
		if kind == 4 {
			item = rapid.SampledFrom([]string{`"a"`, `"b"`, `"__proto__"`, `""`}).Draw(rt, "key") + ":" + item
		}
		items = append(items, item)
	}
	if kind == 4 {
		return json.RawMessage("{" + strings.Join(items, ",") + "}")
	}
	return json.RawMessage("[" + strings.Join(items, ",") + "]")
}
