package files_test

import (
	"slices"
	"testing"

	"gotorch.dev/gotorch/data/cifar"
	"gotorch.dev/gotorch/data/imagefolder"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// An archive that was not written has no bytes; one without members has two blocks of zeros.
func TestAnArchiveOfNoBytesIsAnError(t *testing.T) {
	for _, c := range []struct {
		name    string
		content []byte
		whole   bool
	}{
		{"a.tar", nil, false}, {"a.tar.gz", filestest.Gzip(nil), false},
		{"a.tar", make([]byte, 1024), true}, {"a.tar.gz", filestest.Gzip(make([]byte, 10240)), true},
	} {
		path := filestest.Write(t, c.name, c.content)
		check := func(err error) {
			t.Helper()
			if !c.whole {
				filestest.WantBroken(t, err, path, "the archive has 0 bytes")
			} else if err != nil {
				t.Errorf("%s of %d bytes: got %v", c.name, len(c.content), err)
			}
		}
		first := func(errors []error) error { return slices.Concat(errors, []error{nil})[0] }
		var said []error
		for _, err := range webdataset.New([]string{path}).All() {
			said = append(said, err)
		}
		check(first(said))
		if _, err := imagefolder.TarClasses(path); !c.whole {
			check(err)
		}
		said = nil
		stream, err := imagefolder.NewStream(path, imagefolder.Options{Classes: []string{"a"}})
		testhelp.Must(t, err)
		for _, err := range stream.All() {
			said = append(said, err)
		}
		check(first(said))
		if c.name == "a.tar" {
			_, err := imagefolder.OpenTar(path, imagefolder.Options{Classes: []string{"a"}, AllowEmpty: true})
			check(err)
		}
		if _, _, err := cifar.Open(path); !c.whole {
			check(err)
		}
	}
	// The archives that follow are read.
	empty, n := filestest.Write(t, "a.tar", nil), 0
	whole := filestest.Write(t, "b.tar", filestest.Tar("1.txt", "x"))
	for sample, err := range webdataset.New([]string{empty, whole, empty}).All() {
		if n++; (n == 2) != (err == nil) || n == 2 && sample.Key != "1" {
			t.Errorf("%d: got %v and %v", n, sample, err)
		}
	}
	if n != 3 {
		t.Errorf("got %d samples and errors", n)
	}
}
