package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatIsPackedUnpacksToTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "line")
		line[0] = '{'
		body := bytes.Repeat(line, rapid.IntRange(1, 200).Draw(t, "times"))
		scratch := make([]byte, rapid.IntRange(0, 4096).Draw(t, "scratch"))
		got, err := unpack(pack(scratch, body))
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes became %d, error %v", len(body), len(got), err)
		}
	})
}

func TestEventsOfOneSessionPackToAFifth(t *testing.T) {
	var body []byte
	for seq := range 100 {
		body = fmt.Appendf(body, `{"session":"ses_01JDZ8","seq":%d,"type":"text.delta","at":"2026-01-02T03:04:05.%03dZ","run":"run_01JDZ9","step":1,"attempt":1,"data":{"message":"msg_01JDZA","part":0,"text":" word%d"}}`+"\n", seq, seq, seq*7919)
	}
	if packed := pack(nil, body); len(packed) > len(body)/5 {
		t.Errorf("%d bytes became %d", len(body), len(packed))
	}
}

func TestAPackedRowThatIsDamagedIsSaidToBe(t *testing.T) {
	packed := pack(nil, bytes.Repeat([]byte(`{"seq":1}`), 500))
	for _, damaged := range [][]byte{packed[:len(packed)/2], {packedMark}, {packedMark, 255, 255, 255, 255, 255, 255}} {
		if _, err := unpack(damaged); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of a packed row: %v", len(damaged), err)
		}
	}
}
