package openai

import (
	"bytes"
	"unicode/utf8"
)

// contentOf reads an event that adds text to the answer and says nothing else,
// as nearly all do, in a quarter of the time that decoding takes. It is false
// for everything else, and for everything unusual: that is decoded.
func contentOf(data []byte) (text []byte, ok bool) {
	s := scan{data: data}
	chose := false
	ok = s.object(func(key []byte) bool {
		switch string(key) {
		case "choices":
			again := chose
			chose = true
			return !again && s.skip('[') && s.choice(&text) && s.skip(']')
		case "error", "usage":
			return s.null()
		case "object":
			kind, ok := s.text()
			return ok && string(kind) != "error"
		}
		return s.scalar()
	})
	s.space()
	return text, ok && chose && s.at == len(data)
}

// choice reads the one choice that we ask for.
func (s *scan) choice(text *[]byte) bool {
	given := false
	return s.object(func(key []byte) bool {
		switch string(key) {
		case "index":
			return s.skip('0')
		case "delta":
			again := given
			given = true
			return !again && s.delta(text)
		}
		return s.null() // "finish_reason", "logprobs"
	})
}

func (s *scan) delta(text *[]byte) bool {
	given := false
	return s.object(func(key []byte) (ok bool) {
		switch string(key) {
		case "role":
			_, ok = s.text()
			return ok
		case "content":
			if given {
				return false
			}
			given = true
			*text, ok = s.text()
			return ok && utf8.Valid(*text)
		}
		return s.null()
	})
}

// scan reads JSON from left to right. Each method is false when something else
// comes than it reads, and then the whole is given up.
type scan struct {
	data []byte
	at   int
}

func (s *scan) space() {
	for s.at < len(s.data) {
		switch s.data[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// skip reads one character, and white space before it.
func (s *scan) skip(c byte) bool {
	s.space()
	if s.at == len(s.data) || s.data[s.at] != c {
		return false
	}
	s.at++
	return true
}

// object reads an object; value reads the value of each key. Keys that decoding
// would take for another, as it does not look at their case, are not read.
func (s *scan) object(value func(key []byte) bool) bool {
	if !s.skip('{') {
		return false
	}
	if s.skip('}') {
		return true
	}
	for {
		key, ok := s.text()
		if !ok {
			return false
		}
		for _, c := range key {
			if (c < 'a' || c > 'z') && c != '_' {
				return false
			}
		}
		if !s.skip(':') || !value(key) {
			return false
		}
		if s.skip('}') {
			return true
		}
		if !s.skip(',') {
			return false
		}
	}
}

// text reads a string without escapes.
func (s *scan) text() ([]byte, bool) {
	if !s.skip('"') {
		return nil, false
	}
	start := s.at
	for ; s.at < len(s.data); s.at++ {
		switch c := s.data[s.at]; {
		case c == '"':
			s.at++
			return s.data[start : s.at-1], true
		case c < ' ' || c == '\\':
			return nil, false
		}
	}
	return nil, false
}

func (s *scan) null() bool {
	s.space()
	if !bytes.HasPrefix(s.data[s.at:], []byte("null")) {
		return false
	}
	s.at += len("null")
	return true
}

// scalar reads a string, null, or a whole number.
func (s *scan) scalar() bool {
	s.space()
	if s.at == len(s.data) {
		return false
	}
	switch c := s.data[s.at]; {
	case c == '"':
		_, ok := s.text()
		return ok
	case c == 'n':
		return s.null()
	case c >= '1' && c <= '9':
		for s.at < len(s.data) && s.data[s.at] >= '0' && s.data[s.at] <= '9' {
			s.at++
		}
		return true
	}
	return false
}
