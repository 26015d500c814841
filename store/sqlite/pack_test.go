package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

func TestWhatIsPackedUnpacksToTheSame(t *testing.T) {
	var p packer
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(t, "line")
		line[0] = max(line[0], 1)
		body := bytes.Repeat(line, rapid.IntRange(1, 200).Draw(t, "times"))
		got, err := unpack(p.pack(body))
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes became %d, error %v", len(body), len(got), err)
		}
	})
}

func TestDeltasOfOneSessionPackToAFifth(t *testing.T) {
	var body []byte
	for seq := range 100 {
		body = fmt.Appendf(body, `{"session":"ses_01JDZ8","seq":%d,"type":"text.delta","at":"2026-01-02T03:04:05.%03dZ","run":"run_01JDZ9","step":1,"attempt":1,"data":{"message":"msg_01JDZA","part":0,"text":" word%d"}}`+"\n", seq, seq, seq*7919)
	}
	if packed := new(packer).pack(body); len(packed) > len(body)/5 {
		t.Errorf("%d bytes became %d", len(body), len(packed))
	}
}

func TestAPackedRowThatIsDamagedIsSaidToBe(t *testing.T) {
	packed := new(packer).pack(bytes.Repeat([]byte(`{"seq":1}`), 500))
	for _, damaged := range [][]byte{packed[:len(packed)/2], {packedMark}, {packedMark, 255, 255, 255, 255, 255, 255}} {
		if _, err := unpack(damaged); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of a packed row: %v", len(damaged), err)
		}
	}
}
