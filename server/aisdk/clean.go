package aisdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// clean makes a JSON value safe for the client, which refuses a whole answer,
// and every later replay of it, when an object in it has the key __proto__, or
// constructor with prototype inside. A web page that a tool reads can do that.
// Such keys are put in brackets; all else stays byte for byte. Absent is null.
func clean(raw json.RawMessage) json.RawMessage {
	switch {
	case len(raw) == 0:
		return json.RawMessage("null")
	case !bytes.Contains(raw, []byte("__proto__")) && !bytes.Contains(raw, []byte("prototype")) && !bytes.Contains(raw, []byte(`\u`)):
		return raw
	}
	c := cleaner{dec: json.NewDecoder(bytes.NewReader(raw))}
	c.dec.UseNumber()
	if err := c.value(""); err != nil {
		return marshal(string(raw)) // no JSON after all: a text does no harm
	}
	return c.out
}

type cleaner struct {
	dec *json.Decoder
	out []byte
}

// value copies one value, which is the member key of its object.
func (c *cleaner) value(key string) error {
	token, err := c.dec.Token()
	if err != nil {
		return err
	}
	open, composite := token.(json.Delim)
	if !composite {
		c.out = append(c.out, marshal(token)...)
		return nil
	}
	c.out = append(c.out, byte(open))
	for first := true; c.dec.More(); first = false {
		if !first {
			c.out = append(c.out, ',')
		}
		member := ""
		if open == '{' {
			name, err := c.dec.Token()
			if err != nil {
				return err
			}
			member, _ = name.(string)
			shown := member
			if member == "__proto__" || member == "prototype" && key == "constructor" {
				shown = "[" + member + "]"
			}
			c.out = append(append(c.out, marshal(shown)...), ':')
		}
		if err := c.value(member); err != nil {
			return err
		}
	}
	end, err := c.dec.Token()
	if err != nil {
		return errors.Join(err, io.ErrUnexpectedEOF)
	}
	c.out = append(c.out, byte(end.(json.Delim)))
	return nil
}
