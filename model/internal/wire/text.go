package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast/model"
)

// History gives the arguments of an earlier call the form in which they are sent
// back: byte for byte as the model wrote them, so that no number loses a digit,
// but with U+FFFD for half a surrogate pair and for bytes that are not UTF-8,
// which strict servers refuse. Empty arguments become an empty object; others
// that are no object are an error, because no server takes them.
func History(call model.Part) (json.RawMessage, error) {
	arguments := bytes.TrimSpace(call.Arguments)
	if len(arguments) == 0 {
		return json.RawMessage("{}"), nil
	}
	if arguments[0] != '{' || !json.Valid(arguments) {
		return nil, fmt.Errorf("the arguments of tool call %q are not a JSON object", call.Call)
	}
	return mendSurrogates(bytes.ToValidUTF8(call.Arguments, []byte("\uFFFD"))), nil
}

// mendSurrogates overwrites the digits of each \u escape that is half a pair.
func mendSurrogates(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\u`)) {
		return text
	}
	mended := text
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		first, ok := escape(text[i:])
		switch {
		case !ok:
			i++ // Over what is escaped, perhaps a backslash.
			continue
		case first < 0xD800 || first > 0xDFFF:
			i += 5
			continue
		case first < 0xDC00:
			if second, ok := escape(text[i+6:]); ok && second >= 0xDC00 && second <= 0xDFFF {
				i += 11
				continue
			}
		}
		if &mended[0] == &text[0] {
			mended = bytes.Clone(text)
		}
		copy(mended[i+2:], "fffd")
		i += 5
	}
	return mended
}

// escape reads the \uXXXX at the start of text.
func escape(text []byte) (unit uint16, ok bool) {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0, false
	}
	n, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	return uint16(n), err == nil
}

// A Signature says in [model.Part] which place issued it, because a provider
// refuses reasoning with a signature of another one's, and a session may change
// its model. Its form is "kind@host data".

// Sign gives data of this kind, issued by host, as a part's signature.
func Sign(kind, host, data string) string { return kind + "@" + host + " " + data }

// Signed gives back the data if the signature is of this kind and host.
func Signed(signature, kind, host string) (data string, ok bool) {
	return strings.CutPrefix(signature, kind+"@"+host+" ")
}

// FileAsText stands for a file that a provider's API has no place for: its text
// if it is text, else a note that there is one.
func FileAsText(part model.Part) string {
	kind, _, _ := strings.Cut(part.MediaType, ";")
	switch {
	case len(part.Data) > 0 && (strings.HasPrefix(kind, "text/") || kind == "application/json" || strings.HasSuffix(kind, "+json")):
		return strings.ToValidUTF8(string(part.Data), "\uFFFD")
	case part.URL != "":
		return fmt.Sprintf("[a file of type %s at %s]", part.MediaType, part.URL)
	}
	return fmt.Sprintf("[a file of type %s, %d bytes, which you cannot see]", part.MediaType, len(part.Data))
}
