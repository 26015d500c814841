// Package callback names deferred tool calls to the services that work on them,
// so that only who was told a call's token can end it.
package callback

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
)

// Call names a tool call.
type Call struct{ Session, Run, ID string }

// MinKey is the least length of a [Key], in bytes.
const MinKey = 32

// Key signs tokens. Every process that gives or takes them has the same. One of
// no bytes signs nothing and takes nothing.
type Key []byte

// ParseKey reads a key of at least [MinKey] bytes, written as hexadecimal digits. Its errors do not show it.
func ParseKey(text string) (Key, error) {
	key, err := hex.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return nil, errors.New("a callback key is written as hexadecimal digits: openssl rand -hex 32 makes one")
	}
	if len(key) < MinKey {
		return nil, fmt.Errorf("a callback key has %d bytes at least, not %d: openssl rand -hex 32 makes one", MinKey, len(key))
	}
	return key, nil
}

// Token is what whoever may end the call has to show. It is the same each time,
// and fits into the path of a URL.
func (k Key) Token(c Call) string {
	name := c.Session + "." + c.Run + "." + c.ID
	return name + "." + base64.RawURLEncoding.EncodeToString(k.sign(name))
}

// Read gives the call that a token of this key names. It takes as long for a token that is nearly right.
func (k Key) Read(token string) (c Call, ok bool) {
	end := strings.LastIndexByte(token, '.')
	if end < 0 || len(k) == 0 {
		return Call{}, false
	}
	name, signature := token[:end], token[end+1:]
	given, err := base64.RawURLEncoding.Strict().DecodeString(signature)
	ids := strings.Split(name, ".")
	if err != nil || len(ids) != 3 || !hmac.Equal(given, k.sign(name)) {
		return Call{}, false
	}
	return Call{Session: ids[0], Run: ids[1], ID: ids[2]}, true
}

func (k Key) sign(name string) []byte {
	h := hmac.New(sha256.New, k)
	h.Write([]byte("holdfast callback 1\n" + name)) // the key may sign other things one day
	return h.Sum(nil)
}
