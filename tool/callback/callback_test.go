package callback_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast/tool/callback"
)

var call = callback.Call{Session: "ses_1", Run: "run_1", ID: "call_1-a"}

func key(t *testing.T, digit string) callback.Key {
	t.Helper()
	k, err := callback.ParseKey(strings.Repeat(digit, 64) + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestATokenNamesItsCall(t *testing.T) {
	k := key(t, "a")
	token := k.Token(call)
	if got, ok := k.Read(token); !ok || got != call {
		t.Errorf("%s names %+v, %v", token, got, ok)
	}
	if token != k.Token(call) {
		t.Error("the token of a call changes")
	}
	if strings.Trim(token, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.") != "" {
		t.Errorf("%s does not fit into a path", token)
	}
}

func TestATokenThatWasChangedNamesNothing(t *testing.T) {
	k := key(t, "a")
	token := k.Token(call)
	other := k.Token(callback.Call{Session: "ses_1", Run: "run_1", ID: "call_2"})
	signature := token[strings.LastIndexByte(token, '.'):]
	for _, bad := range []string{
		"", ".", "...", token[1:], token[:len(token)-1], token + "A", token + "=", strings.ToUpper(token),
		"ses_2" + token[5:], other[:strings.LastIndexByte(other, '.')] + signature,
		"ses_1.run_1.call_1-a.", "ses_1.run_1.call_1-a", "x." + token, key(t, "b").Token(call), callback.Key(nil).Token(call),
	} {
		if got, ok := k.Read(bad); ok {
			t.Errorf("%q names %+v", bad, got)
		}
	}
	for i := range token { // no single byte may differ
		changed := []byte(token)
		changed[i] ^= 1
		if _, ok := k.Read(string(changed)); ok {
			t.Errorf("a token is taken with another byte %d", i)
		}
	}
	var none callback.Key
	if _, ok := none.Read(none.Token(call)); ok {
		t.Error("no key takes its own tokens")
	}
}

func TestAKeyThatIsNoneIsRefusedWithoutShowingIt(t *testing.T) {
	for _, bad := range []string{"", "secret-words", strings.Repeat("ab", 31)} {
		_, err := callback.ParseKey(bad)
		if err == nil {
			t.Errorf("%q is taken", bad)
		} else if bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error shows the key: %v", err)
		}
	}
}
