package data_test

import (
	"errors"
	"io"
	"io/fs"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
)

func TestAFileErrorIsOfTheKindOfWhatIsBehindIt(t *testing.T) {
	for _, c := range []struct {
		err  error
		want gotorch.ErrorKind
	}{
		{io.ErrUnexpectedEOF, gotorch.ValueError},
		{&gotorch.Error{Kind: gotorch.KeyError, Msg: "no"}, gotorch.KeyError},
		{&fs.PathError{Op: "open", Path: "a", Err: fs.ErrNotExist}, gotorch.OSError},
	} {
		var err error = &data.FileError{Path: "a", Where: "line 3", Err: c.err}
		for _, kind := range []gotorch.ErrorKind{gotorch.ValueError, gotorch.KeyError, gotorch.OSError} {
			if errors.Is(err, kind) != (kind == c.want) {
				t.Errorf("%v: is a %s: %v", err, kind, errors.Is(err, kind))
			}
		}
		if !errors.Is(err, c.err) {
			t.Errorf("%v is not %v", err, c.err)
		}
	}
	if got := (&data.FileError{Path: "a", Where: "line 3", Err: io.ErrUnexpectedEOF}).Error(); got != "a: line 3: unexpected EOF" {
		t.Error(got)
	}
	if got := (&data.FileError{Path: "a", Err: io.ErrUnexpectedEOF}).Error(); got != "a: unexpected EOF" {
		t.Error(got)
	}
}
