package jpeg

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

func TestDevCases(t *testing.T) {
	path := os.Getenv("JPEG_CASES")
	if path == "" {
		t.Skip()
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	next := func() []byte {
		n := binary.LittleEndian.Uint32(b)
		x := b[4 : 4+n]
		b = b[4+n:]
		return x
	}
	bad, n, errs := 0, 0, 0
	for i := 0; len(b) > 0; i++ {
		name, file, want := next(), next(), next()
		n++
		d, err := Open(file)
		var got []byte
		if err == nil {
			px := d.Width * d.Height
			if d.Channels == 3 {
				got = make([]byte, 3*px)
				p := make([]byte, 3*px)
				err = d.Planes(p[:px], p[px:2*px], p[2*px:])
				for i := range px {
					got[3*i], got[3*i+1], got[3*i+2] = p[i], p[px+i], p[2*px+i]
				}
			} else {
				got = make([]byte, d.Channels*px)
				err = d.Pixels(got)
			}
			d.Close()
		}
		if err != nil {
			errs++
			if len(want) > 0 {
				bad++
				if bad < 20 {
					t.Errorf("%d %s: %v", i, name, err)
				}
			}
			continue
		}
		if len(want) == 0 {
			continue
		}
		if !bytes.Equal(got, want) {
			bad++
			if bad < 20 {
				at := 0
				cnt := 0
				for k := range want {
					if k < len(got) && got[k] != want[k] {
						if cnt == 0 {
							at = k
						}
						cnt++
					}
				}
				t.Errorf("%d %s: %d differ of %d/%d, first at %d (%d, want %d)", i, name, cnt, len(got), len(want), at, got[at], want[at])
			}
		}
	}
	t.Logf("%d cases, %d bad, %d errors", n, bad, errs)
}
