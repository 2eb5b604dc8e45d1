// Package filestest is what the tests of readers of data sets share.
package filestest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

// Write writes a file of the test's own, and returns its path.
func Write(tb testing.TB, name string, content []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	testhelp.Must(tb, os.WriteFile(path, content, 0o644))
	return path
}

// Gzip packs bytes.
func Gzip(b []byte) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(b)
	_ = w.Close()
	return packed.Bytes()
}

// Tar makes an archive of names and contents, in turns.
func Tar(namesAndContents ...string) []byte {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i := 0; i < len(namesAndContents); i += 2 {
		name, content := namesAndContents[i], namesAndContents[i+1]
		head := &tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644}
		if strings.HasSuffix(name, "/") {
			head.Typeflag = tar.TypeDir
		}
		_ = w.WriteHeader(head)
		_, _ = w.Write([]byte(content))
	}
	_ = w.Close()
	return archive.Bytes()
}

// SparseTar makes an archive of a file that is stored as tar --sparse stores it, though it has no holes.
func SparseTar(name, content string) []byte {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	_ = w.WriteHeader(&tar.Header{Name: name, Size: int64(len(content)), Mode: 0o644, Format: tar.FormatGNU})
	_, _ = w.Write([]byte(content))
	_ = w.Close()
	head := archive.Bytes()[:512]
	head[156] = tar.TypeGNUSparse
	copy(head[386:], fmt.Sprintf("%011o\x00%011o\x00", 0, len(content))) // where what is there begins, and its length
	copy(head[483:], fmt.Sprintf("%011o\x00", len(content)))             // with the holes
	copy(head[148:], "        ")
	sum := 0
	for _, b := range head {
		sum += int(b)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", sum))
	return archive.Bytes()
}

// WantBroken fails unless err is a *data.FileError of that path with a text in it.
func WantBroken(tb testing.TB, err error, path, text string) {
	tb.Helper()
	var broken *data.FileError
	if !errors.As(err, &broken) || broken.Path != path || !strings.Contains(err.Error(), text) {
		tb.Errorf("got %v, want a FileError of %s with %q", err, path, text)
	}
}

// WantKind fails unless fn panics with an error of that kind.
func WantKind(tb testing.TB, kind gotorch.ErrorKind, fn func()) {
	tb.Helper()
	if err := gotorch.Try0(fn); !errors.Is(err, kind) {
		tb.Errorf("got %v, want a %s", err, kind)
	}
}

// NoFiles fails if opening what is no file is not an error. What is in taken may be opened.
func NoFiles(t *testing.T, open func(path string) error, taken ...string) {
	t.Helper()
	for what, path := range testhelp.NoFiles(t) {
		if open(path) == nil && !slices.Contains(taken, what) {
			t.Errorf("%s was opened", what)
		}
	}
	if err := open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v for a file that is not there", err)
	}
}

// NothingStays fails if fn leaves files open or tensors alive that the collector does not find.
func NothingStays(t *testing.T, fn func()) {
	t.Helper()
	fn() // what is made once
	for range 5 {
		runtime.GC()
		time.Sleep(2 * time.Millisecond) // for finalisers
	}
	files, tensors := testhelp.Descriptors(t), gotorch.MemoryStats().LiveHandles
	for range 3 {
		fn()
	}
	for range 500 {
		runtime.GC()
		if testhelp.Descriptors(t) <= files && gotorch.MemoryStats().LiveHandles <= tensors {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Errorf("%d files are open and %d tensors alive, and before it were %d and %d",
		testhelp.Descriptors(t), gotorch.MemoryStats().LiveHandles, files, tensors)
}

// Allocated returns how many bytes fn allocates in Go.
func Allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
