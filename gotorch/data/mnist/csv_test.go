package mnist

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// FuzzReadCSV looks for a file that is neither refused nor as many pictures as it has lines.
func FuzzReadCSV(f *testing.F) {
	f.Add([]byte("0,255,9\n1,2,3"))
	f.Add([]byte("0,255,10\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := readCSV(bytes.NewReader(text), 1, 2)
		if err != nil {
			return
		}
		if d.Len() == 0 || len(d.pixels) != 2*d.Len() || d.Image(d.Len()-1) == nil {
			t.Fatalf("%d labels and %d pixels", d.Len(), len(d.pixels))
		}
	})
}

func TestCSVLinesAreChecked(t *testing.T) {
	if d, err := readCSV(strings.NewReader("0,255,9\n1,2,3"), 1, 2); err != nil || d.Len() != 2 || d.Label(0) != 9 || d.pixels[1] != 255 {
		t.Errorf("got %v, %v", d, err)
	}
	for reason, text := range map[string]string{
		"it is empty":                        "",
		"line 1 is not 2 pixels and a digit": "1,2",
		"line 2 is not 2 pixels and a digit": "1,2,3\n1,2,3,4",
		"line 1 is not 2 pixels":             "1,2,10",
		`line 1: "256" is no number`:         "256,2,3",
		`line 1: "-1" is no number`:          "-1,2,3",
		`line 1: "" is no number`:            ",2,3",
		`line 1: "1000000000" is no number`:  "10000000000000000000000,2,3",
	} {
		var wrong *FormatError
		if _, err := readCSV(strings.NewReader(text), 1, 2); !errors.As(err, &wrong) || !strings.Contains(wrong.Reason, reason) {
			t.Errorf("%q: got %v, want %q", text, err, reason)
		}
	}
}
