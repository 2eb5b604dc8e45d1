package lines_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/lines"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestLinesAreReadInAnyOrder(t *testing.T) {
	var text strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&text, "%d%s\n", i, strings.Repeat(" é", i%7*30))
	}
	path := filestest.Write(t, "a.txt", []byte(text.String()))
	f, err := lines.Open(path)
	testhelp.Must(t, err)
	defer f.Close()
	if f.Len() != 2000 {
		t.Fatalf("got %d lines", f.Len())
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for k := range 2000 {
				i := (k*997 + g) % 2000
				if line, err := f.At(i); err != nil || line != fmt.Sprint(i)+strings.Repeat(" é", i%7*30) {
					t.Errorf("line %d is %q, %v", i, line, err)
				}
			}
		})
	}
	all.Wait()
	for _, i := range []int{-1, 2000} {
		if _, err := f.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Errorf("got %v", err)
		}
	}
}

func TestALineEndsWithItsNewline(t *testing.T) {
	for text, want := range map[string][]string{
		"": nil, "a": {"a"}, "a\n": {"a"}, "\n": {""}, "a\r\nb\rc\r\n\r\n": {"a", "b\rc", ""}, "a\n\nb": {"a", "", "b"}, "\r": {""},
	} {
		path := filestest.Write(t, "a", []byte(text))
		f, err := lines.Open(path)
		testhelp.Must(t, err)
		var got []string
		for i := range f.Len() {
			line, err := f.At(i)
			testhelp.Must(t, err)
			got = append(got, line)
		}
		testhelp.Must(t, f.Close())
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
		for _, name := range []string{path, filestest.Write(t, "packed", filestest.Gzip([]byte(text)))} {
			if got, errs := drain(lines.NewStream([]string{name})); !slices.Equal(got, want) || len(errs) > 0 {
				t.Errorf("%q: got %q, %v, want %q", text, got, errs, want)
			}
		}
	}
}

// drain reads a stream to its end.
func drain(s *lines.Stream) (got []string, errs []error) {
	for line, err := range s.All() {
		if err != nil {
			errs = append(errs, err)
		} else {
			got = append(got, line)
		}
	}
	return got, errs
}

func TestABrokenLineIsAnErrorAndTheNextFollows(t *testing.T) {
	path := filestest.Write(t, "a", []byte("one\n\xff\n12345\n123456\n123456\r\nend"))
	f, err := lines.Open(path, lines.Options{MaxLine: 5})
	testhelp.Must(t, err)
	defer f.Close()
	for i, want := range map[int]string{1: "line 2: ValueError: the line is not UTF-8", 3: "line 4: ValueError: the line has more than 5 bytes", 4: "line 5"} {
		_, err := f.At(i)
		filestest.WantBroken(t, err, path, want)
	}
	got, errs := drain(lines.NewStream([]string{path}, lines.Options{MaxLine: 5}))
	if !slices.Equal(got, []string{"one", "12345", "end"}) || len(errs) != 3 {
		t.Errorf("got %q, %v", got, errs)
	}
	if got, _ := drain(lines.NewStream([]string{path}, lines.Options{AnyBytes: true})); len(got) != 6 || got[1] != "\xff" {
		t.Errorf("got %q", got)
	}
}

func TestABrokenFileIsFollowedByTheNext(t *testing.T) {
	good := filestest.Write(t, "good", []byte("a\nb"))
	long := filestest.Gzip([]byte(strings.Repeat("some text that is packed\n", 50)))
	for what, content := range map[string][]byte{"no header": long[:5], "cut": long[:len(long)-9], "changed": append(long[:len(long)-5:len(long)-5], 1, 2, 3, 4, 5)} {
		broken := filestest.Write(t, "broken", content)
		got, errs := drain(lines.NewStream([]string{broken, filepath.Join(t.TempDir(), "none"), good}))
		if len(errs) != 2 || !errors.Is(errs[1], os.ErrNotExist) || !slices.Equal(got[len(got)-2:], []string{"a", "b"}) {
			t.Errorf("%s: got %d lines, %v", what, len(got), errs)
		}
		filestest.WantBroken(t, errs[0], broken, "")
	}
}

func TestAPackedFileIsForTheStream(t *testing.T) {
	path := filestest.Write(t, "a.gz", filestest.Gzip([]byte("a")))
	_, err := lines.Open(path)
	filestest.WantBroken(t, err, path, "use NewStream")
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	filestest.NoFiles(t, func(path string) error { _, err := lines.Open(path); return err }, "a file of the kernel's")
	filestest.NoFiles(t, func(path string) error {
		_, errs := drain(lines.NewStream([]string{path}))
		return errors.Join(errs...)
	}, "a file of the kernel's")
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = lines.Open("a", lines.Options{MaxLine: 0}) })
	filestest.WantKind(t, gotorch.TypeError, func() { lines.NewStream(nil, lines.Options{MaxLine: "a"}) })
}

func TestAStreamGoesOnWhereAnotherWas(t *testing.T) {
	plain := filestest.Write(t, "a", []byte("0\n1\n\xff\n3\n"))
	packed := filestest.Write(t, "b.gz", filestest.Gzip([]byte("4\n5\n6")))
	paths := []string{plain, packed, plain}
	var want []string
	for line, err := range lines.NewStream(paths).All() {
		want = append(want, fmt.Sprint(line, err))
	}
	for stop := range len(want) + 1 {
		first, got := lines.NewStream(paths), []string{}
		if stop > 0 {
			for line, err := range first.All() {
				if got = append(got, fmt.Sprint(line, err)); len(got) == stop {
					break
				}
			}
		}
		second := lines.NewStream(paths)
		testhelp.Must(t, second.LoadStateDict(first.StateDict()))
		for line, err := range second.All() {
			got = append(got, fmt.Sprint(line, err))
		}
		if !slices.Equal(got, want) {
			t.Errorf("stopped after %d: got %q", stop, got)
		}
	}
	s := lines.NewStream(paths)
	for _, state := range []gotorch.Dict{nil, {{Key: "kind", Value: "csvdata.Stream"}}, lines.NewStream(nil).StateDict()} {
		if err := s.LoadStateDict(state); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

func TestTheIndexIsSmall(t *testing.T) {
	path := filestest.Write(t, "a", bytes.Repeat([]byte{'\n'}, 1<<20))
	var f *lines.File
	n := filestest.Allocated(func() { f, _ = lines.Open(path) })
	defer f.Close()
	if f.Len() != 1<<20 || n > 1<<20 {
		t.Errorf("%d bytes were allocated for %d lines", n, f.Len())
	}
}

func TestAClosedFileIsAnErrorAndNothingStaysOpen(t *testing.T) {
	path := filestest.Write(t, "a", []byte("a\nb"))
	filestest.NothingStays(t, func() {
		f, err := lines.Open(path)
		testhelp.Must(t, err)
		testhelp.Must(t, f.Close())
		testhelp.Must(t, f.Close())
		_, err = f.At(0)
		filestest.WantBroken(t, err, path, "closed")
		for range lines.NewStream([]string{path}).All() {
			break
		}
	})
}

func TestAFileThatBecameShorterIsAnError(t *testing.T) {
	path := filestest.Write(t, "a", []byte("a\nb\nc"))
	f, err := lines.Open(path)
	testhelp.Must(t, err)
	defer f.Close()
	testhelp.Must(t, os.Truncate(path, 2))
	_, err = f.At(2)
	filestest.WantBroken(t, err, path, "line 2: ValueError: the file ends before it")
}

// FuzzLines looks for a text whose lines differ by the way in which they are read.
func FuzzLines(f *testing.F) {
	f.Add([]byte("a\r\nb\n\n\xffc"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filestest.Write(t, "a", text)
		var got []string
		for line, err := range lines.NewStream([]string{path}, lines.Options{MaxLine: 8}).All() {
			got = append(got, fmt.Sprint(line, err != nil))
		}
		file, err := lines.Open(path, lines.Options{MaxLine: 8})
		if err != nil {
			return // it looks packed
		}
		defer file.Close()
		if file.Len() != len(got) {
			t.Fatalf("%d lines, and %d in the stream", file.Len(), len(got))
		}
		for i := range got {
			line, err := file.At(i)
			if fmt.Sprint(line, err != nil) != got[i] {
				t.Fatalf("line %d is %q, %v, and in the stream %q", i, line, err, got[i])
			}
		}
	})
}

func ExampleOpen() {
	path := filepath.Join(os.TempDir(), "gotorch-example-lines.txt")
	if err := os.WriteFile(path, []byte("the first\nthe second\nthe third\n"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)
	text, err := lines.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer text.Close()
	line, err := text.At(2)
	fmt.Println(text.Len(), line, err)
	// Output: 3 the third <nil>
}

func ExampleNewStream() {
	path := filepath.Join(os.TempDir(), "gotorch-example-stream.txt")
	if err := os.WriteFile(path, []byte("the first\nthe second\nthe third\n"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)
	stream := lines.NewStream([]string{path})
	for line, err := range stream.All() {
		fmt.Println(line, err)
		break // the state is behind this line
	}
	again := lines.NewStream([]string{path})
	if err := again.LoadStateDict(stream.StateDict()); err != nil {
		fmt.Println(err)
		return
	}
	for line, err := range again.All() {
		fmt.Println(line, err)
	}
	// Output:
	// the first <nil>
	// the second <nil>
	// the third <nil>
}
