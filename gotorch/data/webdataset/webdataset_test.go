package webdataset_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/npy"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// show is a sample as text.
func show(s *webdataset.Sample, err error) string {
	if err != nil {
		return "broken"
	}
	text := s.Key
	for _, f := range s.Fields {
		text += fmt.Sprintf(" %s=%s", f.Name, f.Data)
	}
	return text
}

func drain(s *webdataset.Stream) (all []string) {
	for sample, err := range s.All() {
		all = append(all, show(sample, err))
	}
	return all
}

func TestSamplesAreFilesThatAreNamedAlike(t *testing.T) {
	archive := filestest.Tar("dir/", "", "dir/a.txt", "1", "dir/a.CLS", "2", "__meta__/x.y", "no", "dir/b.seg.png", "3", "README", "no", ".hidden", "no", "x.y/c.txt", "4", "dir/a.txt", "5")
	want := []string{"dir/a txt=1 cls=2", "dir/b seg.png=3", "x.y/c txt=4", "dir/a txt=5"}
	for _, b := range [][]byte{archive, filestest.Gzip(archive)} {
		path := filestest.Write(t, "a.tar", b)
		filestest.NothingStays(t, func() {
			s := webdataset.New([]string{path, path})
			if got := drain(s); !slices.Equal(got, append(slices.Clone(want), want...)) || s.Epoch() != 1 {
				t.Errorf("got %q", got)
			}
			for sample, err := range s.All() {
				testhelp.Must(t, err)
				if sample.Shard != path {
					t.Errorf("got %q", sample.Shard)
				}
				break
			}
		})
	}
}

// GNU's tar --sparse gives a file with holes another type. Python's tarfile reads it as any other.
func TestAFileThatIsStoredWithoutItsZerosIsOne(t *testing.T) {
	path := filestest.Write(t, "a.tar", filestest.SparseTar("a.txt", "1"))
	if got := drain(webdataset.New([]string{path})); !slices.Equal(got, []string{"a txt=1"}) {
		t.Errorf("got %q", got)
	}
}

func TestFieldsAreDecoded(t *testing.T) {
	var array bytes.Buffer
	testhelp.Must(t, npy.Write(&array, gotorch.FromSlice([]int32{1, 2})))
	path := filestest.Write(t, "a.tar", filestest.Tar("k.ppm", "P3 1 1 255 1 2 3", "k.cls", " 7\n", "k.json", `{"a": [1]}`, "k.npy", array.String(), "k.txt", "é", "k.bad", "\xff"))
	for s, err := range webdataset.New([]string{path}).All() {
		testhelp.Must(t, err)
		if picture, err := s.Image("png", "ppm"); err != nil || picture.Bounds().Dx() != 1 {
			t.Error(err)
		}
		if n, err := s.Int("cls"); n != 7 || err != nil {
			t.Errorf("got %d, %v", n, err)
		}
		var value map[string][]int
		if err := s.JSON("json", &value); err != nil || value["a"][0] != 1 {
			t.Errorf("got %v, %v", value, err)
		}
		if a, err := s.Tensor("npy"); err != nil || !a.Equal(gotorch.FromSlice([]int32{1, 2})) {
			t.Errorf("got %v, %v", a, err)
		}
		if text, err := s.Text("text", "txt"); text != "é" || err != nil {
			t.Errorf("got %q, %v", text, err)
		}
		if b, err := s.Bytes("bad"); string(b) != "\xff" || err != nil {
			t.Errorf("got %q, %v", b, err)
		}
		for text, fn := range map[string]func() error{
			"k: KeyError: the sample has none of": func() error { _, err := s.Bytes("a", "b"); return err },
			"k.bad: ValueError: the text is not":  func() error { _, err := s.Text("bad"); return err },
			`k.txt: ValueError: "é" is no int`:    func() error { _, err := s.Int("txt"); return err },
			"k.txt: invalid character":            func() error { return s.JSON("txt", new(int)) },
			"k.txt: ValueError: it is no picture": func() error { _, err := s.Image("txt"); return err },
			"k.txt: ValueError: it ends within":   func() error { _, err := s.Tensor("txt"); return err },
		} {
			filestest.WantBroken(t, fn(), path, text)
		}
		for _, fn := range []func() error{
			func() error { _, err := s.Int("none"); return err }, func() error { _, err := s.Text("none"); return err },
			func() error { return s.JSON("none", nil) }, func() error { _, err := s.Image("none"); return err },
			func() error { _, err := s.Tensor("none"); return err },
		} {
			if err := fn(); !errors.Is(err, gotorch.KeyError) {
				t.Errorf("got %v", err)
			}
		}
	}
}

func TestWhatIsBrokenIsPassedByIfTheLoopGoesOn(t *testing.T) {
	good := filestest.Write(t, "good.tar", filestest.Tar("z.a", "1"))
	for what, c := range map[string]struct {
		archive []byte
		want    []string
		text    string
	}{
		"twice":   {filestest.Tar("a.x", "1", "b.x", "1", "b.X", "2", "c.x", "3"), []string{"a x=1", "broken", "c x=3", "z a=1"}, `b: ValueError: it has two files "x"`},
		"large":   {filestest.Tar("a.x", "1", "b.x", strings.Repeat("1", 60), "b.y", strings.Repeat("1", 60), "c.x", "3"), []string{"a x=1", "broken", "c x=3", "z a=1"}, "MaxSample allows 100"},
		"fits":    {filestest.Tar("a.x", strings.Repeat("1", 40), "a.y", strings.Repeat("2", 60), "b.x", strings.Repeat("3", 100)), []string{"a x=" + strings.Repeat("1", 40) + " y=" + strings.Repeat("2", 60), "b x=" + strings.Repeat("3", 100), "z a=1"}, ""},
		"over":    {filestest.Tar("a.x", strings.Repeat("1", 40), "a.y", strings.Repeat("1", 61), "b.x", "3"), []string{"broken", "b x=3", "z a=1"}, "the sample has 101 bytes or more, and MaxSample allows 100"},
		"cut":     {filestest.Tar("a.x", "1", "b.x", strings.Repeat("1", 90))[:512+512+512+50], []string{"a x=1", "broken", "z a=1"}, "the archive is damaged: unexpected EOF"},
		"changed": {append(filestest.Tar("a.x", "1")[:1024], bytes.Repeat([]byte("x"), 512)...), []string{"broken", "z a=1"}, "after a.x: the archive is damaged"},
		"gzip":    {filestest.Gzip(filestest.Tar("a.x", "1"))[:8], []string{"broken", "z a=1"}, "gzip header"},
		"empty":   {nil, []string{"broken", "z a=1"}, "the archive has 0 bytes"},
		"none":    {filestest.Tar(), []string{"z a=1"}, ""},
	} {
		path := filestest.Write(t, "a.tar", c.archive)
		s := webdataset.New([]string{path, good}, webdataset.Options{MaxSample: 100})
		if got := drain(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", what, got, c.want)
		}
		for _, err := range s.All() {
			if err != nil {
				filestest.WantBroken(t, err, path, c.text)
			}
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	for _, err := range webdataset.New([]string{missing}).All() {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
	filestest.NoFiles(t, func(path string) error {
		for _, err := range webdataset.New([]string{path}).All() {
			return err
		}
		return nil
	}, "a file of the kernel's")
}

// A header that promises much costs what comes.
func TestASizeThatLiesCostsNoMemory(t *testing.T) {
	archive := filestest.Tar("a.x", strings.Repeat("x", 200<<20))[:1024]
	path := filestest.Write(t, "a.tar", archive)
	n := filestest.Allocated(func() {
		if got := drain(webdataset.New([]string{path})); !slices.Equal(got, []string{"broken"}) {
			t.Errorf("got %q", got)
		}
	})
	if n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// The time for a sample grows with its files, and not with their square.
func TestASampleMayHaveVeryManyFiles(t *testing.T) {
	const n = 40_000 // where each is compared with all before it, this takes long
	parts := make([]string, 0, 2*n)
	for i := range n {
		parts = append(parts, fmt.Sprintf("a.%d", i), "")
	}
	path := filestest.Write(t, "a.tar", filestest.Tar(append(parts, "b.7", "", "b.7", "")...))
	var got []int
	for s, err := range webdataset.New([]string{path}).All() {
		if err != nil {
			filestest.WantBroken(t, err, path, `b: ValueError: it has two files "7"`)
			continue
		}
		got = append(got, len(s.Fields))
	}
	if !slices.Equal(got, []int{n}) {
		t.Errorf("got samples of %v files", got)
	}
}

// many makes archives of some samples, one of them broken.
func many(tb testing.TB) []string {
	var paths []string
	for shard := range 4 {
		var parts []string
		for i := range 10 {
			name := fmt.Sprintf("%d%d", shard, i)
			parts = append(parts, name+".n", name)
			if name == "23" {
				parts = append(parts, name+".n", name)
			}
		}
		paths = append(paths, filestest.Write(tb, "a.tar", filestest.Tar(parts...)))
	}
	return paths
}

func TestAStreamGoesOnWhereAnotherWas(t *testing.T) {
	paths := many(t)
	for _, opt := range []webdataset.Options{{}, {Shuffle: 7, Seed: 3}, {ShuffleShards: true, Seed: 3}, {Shuffle: 100, ShuffleShards: true, Seed: 3}} {
		whole := webdataset.New(paths, opt)
		first, second := drain(whole), drain(whole)
		if same := slices.Equal(first, second); same == (opt.Seed != nil) || len(first) != 40 {
			t.Errorf("%v: got %q and %q", opt, first, second)
		}
		if got := slices.Compact(slices.Sorted(slices.Values(first))); len(got) != 40 {
			t.Errorf("%v: got %q", opt, got)
		}
		for _, stop := range []int{0, 1, 13, 22, 23, 39, 40} {
			a, n := webdataset.New(paths, opt), 0
			if stop > 0 {
				for range a.All() {
					if n++; n == stop {
						break
					}
				}
			}
			other := opt
			if opt.Seed != nil {
				other.Seed = 4
			}
			b := webdataset.New(paths, other)
			testhelp.Must(t, b.LoadStateDict(a.StateDict()))
			if got := drain(b); !slices.Equal(got, first[stop:]) {
				t.Errorf("%v, stopped after %d: got %q", opt, stop, got)
			}
			if got := drain(b); !slices.Equal(got, second) {
				t.Errorf("%v, stopped after %d: the next epoch is %q", opt, stop, got)
			}
		}
	}
	s := webdataset.New(paths, webdataset.Options{Shuffle: 5})
	for _, state := range []gotorch.Dict{
		nil, webdataset.New(paths).StateDict(), webdataset.New(paths[1:], webdataset.Options{Shuffle: 5}).StateDict(),
		webdataset.New(paths, webdataset.Options{Shuffle: 5, ShuffleShards: true}).StateDict(),
		append(gotorch.Dict{{Key: "taken", Value: int64(-1)}}, s.StateDict()...),
	} {
		if err := s.LoadStateDict(state); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

func TestShardsAreParted(t *testing.T) {
	paths := many(t)
	whole := webdataset.New(paths)
	for range whole.All() { // where the whole is is not where its parts are
		break
	}
	var all []string
	for i := range 3 {
		part := whole.Shard(i, 3)
		if want := []int{2, 1, 1}[i]; len(part.Shards()) != want {
			t.Errorf("part %d has %d archives", i, len(part.Shards()))
		}
		all = append(all, drain(part)...)
	}
	if got, want := slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(drain(webdataset.New(paths)))); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, c := range [][2]int{{0, 0}, {-1, 2}, {2, 2}} {
		filestest.WantKind(t, gotorch.ValueError, func() { whole.Shard(c[0], c[1]) })
	}
	for _, opt := range []webdataset.Options{{Shuffle: -1}, {MaxSample: 0}} {
		filestest.WantKind(t, gotorch.ValueError, func() { webdataset.New(paths, opt) })
	}
}

func TestBracesThatDoNotMatchAreErrors(t *testing.T) {
	for _, pattern := range []string{"{", "}", "a{b", "a}b{", "{a,b", "{{a}", "{0..99999999}", "{0..999}{0..999}{0..999}", strings.Repeat("{a,b}", 40), strings.Repeat("{", 40) + "a,b" + strings.Repeat("}", 40), "{-9223372036854775808..9223372036854775807}"} {
		if got, err := webdataset.Expand(pattern); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%.20s: got %d paths, %v", pattern, len(got), err)
		}
	}
	if got, err := webdataset.Expand("a-{08..10}.tar", "b"); err != nil || !slices.Equal(got, []string{"a-08.tar", "a-09.tar", "a-10.tar", "b"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

// FuzzStream looks for an archive that is not read to an end.
func FuzzStream(f *testing.F) {
	archive := filestest.Tar("a.x", "1", "a.y", "22", "b.x", strings.Repeat("3", 600))
	f.Add(archive)
	f.Add(archive[:700])
	f.Add(filestest.Gzip(archive))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filestest.Write(t, "a.tar", b)
		for _, err := range webdataset.New([]string{path}, webdataset.Options{MaxSample: 1 << 16, Shuffle: 2, Seed: 1}).All() {
			var broken *data.FileError
			if err != nil && !errors.As(err, &broken) {
				t.Fatalf("got %T: %v", err, err)
			}
		}
	})
}

// FuzzExpand looks for a pattern that is neither refused nor expanded.
func FuzzExpand(f *testing.F) {
	f.Add("a{b,{c,d}}e{1..3}")
	f.Fuzz(func(t *testing.T, pattern string) {
		paths, err := webdataset.Expand(pattern)
		if err == nil && len(paths) == 0 {
			t.Fatal("there are no paths")
		}
	})
}

func ExampleNew() {
	path := filepath.Join(os.TempDir(), "gotorch-example-shard.tar")
	if err := os.WriteFile(path, filestest.Tar("1.txt", "a cat", "1.cls", "0", "2.txt", "a dog", "2.cls", "1"), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)
	for sample, err := range webdataset.New([]string{path}).All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		text, err := sample.Text("txt")
		class, err2 := sample.Int("cls")
		fmt.Println(sample.Key, text, class, errors.Join(err, err2))
	}
	// Output:
	// 1 a cat 0 <nil>
	// 2 a dog 1 <nil>
}
