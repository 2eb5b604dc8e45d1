package imagefolder_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/imagefolder"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/vision/imageio"
)

// dot is a picture of one gray pixel.
func dot(gray int) string { return fmt.Sprintf("P2 1 1 255 %d", gray) }

// tree makes a folder of names and contents, in turns.
func tree(tb testing.TB, namesAndContents ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	for i := 0; i < len(namesAndContents); i += 2 {
		path := filepath.Join(dir, namesAndContents[i])
		if strings.HasSuffix(namesAndContents[i], "/") {
			testhelp.Must(tb, os.MkdirAll(path, 0o755))
			continue
		}
		testhelp.Must(tb, os.MkdirAll(filepath.Dir(path), 0o755))
		testhelp.Must(tb, os.WriteFile(path, []byte(namesAndContents[i+1]), 0o644))
	}
	return dir
}

var pets = []string{
	"dog/2.pgm", dot(2), "dog/1.PGM", dot(1), "cat/b/3.pgm", dot(3), "cat/b-c/4.pgm", dot(4), "cat/a.pgm", dot(5), "dog/note.txt", "", "top.pgm", dot(9), "cat/5.gif", "",
}

func grays(tb testing.TB, n int, at func(int) (imagefolder.Sample, error)) (all []string) {
	for i := range n {
		s, err := at(i)
		testhelp.Must(tb, err)
		all = append(all, fmt.Sprint(s.Class, ":", gotorch.ToSlice[int](imageio.FromImage(s.Image, imageio.RGB))[0]))
	}
	return all
}

func TestClassesAndOrderAreTorchvisions(t *testing.T) {
	dir := tree(t, pets...)
	set, err := imagefolder.Open(dir)
	testhelp.Must(t, err)
	if !slices.Equal(set.Classes(), []string{"cat", "dog"}) {
		t.Errorf("got classes %v", set.Classes())
	}
	// As torchvision.datasets.ImageFolder orders these files: cat, cat/b, cat/b-c.
	if got := grays(t, set.Len(), set.At); !slices.Equal(got, []string{"0:5", "0:3", "0:4", "1:1", "1:2"}) {
		t.Errorf("got %v", got)
	}
	if set.Class(4) != 1 || set.Path(4) != filepath.Join(dir, "dog/2.pgm") {
		t.Errorf("got %d, %s", set.Class(4), set.Path(4))
	}
	if _, err := set.At(5); !errors.Is(err, gotorch.IndexError) {
		t.Error(err)
	}
	if _, err := set.At(-1); !errors.Is(err, gotorch.IndexError) {
		t.Error(err)
	}
}

func TestOptionsSayWhatIsAPictureAndAClass(t *testing.T) {
	dir := tree(t, append(pets, "owl/", "")...)
	_, err := imagefolder.Open(dir)
	filestest.WantBroken(t, err, dir, "no picture of the classes owl")
	set, err := imagefolder.Open(dir, imagefolder.Options{AllowEmpty: true, Extensions: []string{".gif", ".txt"}})
	testhelp.Must(t, err)
	if set.Len() != 2 || len(set.Classes()) != 3 {
		t.Errorf("got %d pictures of %v", set.Len(), set.Classes())
	}
	set, err = imagefolder.Open(dir, imagefolder.Options{Classes: []string{"dog", "cat"}})
	testhelp.Must(t, err)
	if got := grays(t, set.Len(), set.At); !slices.Equal(got, []string{"0:1", "0:2", "1:5", "1:3", "1:4"}) {
		t.Errorf("got %v", got)
	}
	_, err = imagefolder.Open(dir, imagefolder.Options{Classes: []string{"dog", "dog"}})
	filestest.WantBroken(t, err, dir, "twice")
	_, err = imagefolder.Open(filepath.Join(dir, "owl"))
	filestest.WantBroken(t, err, filepath.Join(dir, "owl"), "no folders")
	filestest.NoFiles(t, func(path string) error { _, err := imagefolder.Open(path); return err })
}

func TestALinkThatLeadsBackIsNotFollowedForEver(t *testing.T) {
	dir := tree(t, pets...)
	testhelp.Must(t, os.Symlink(dir, filepath.Join(dir, "cat/loop")))
	testhelp.Must(t, os.Symlink(filepath.Join(dir, "dog"), filepath.Join(dir, "hound")))
	testhelp.Must(t, os.Symlink(filepath.Join(dir, "none"), filepath.Join(dir, "broken")))
	set, err := imagefolder.Open(dir)
	testhelp.Must(t, err)
	if !slices.Equal(set.Classes(), []string{"cat", "dog", "hound"}) {
		t.Errorf("got %v", set.Classes())
	}
}

func TestABrokenPictureIsAnErrorOfItsOwn(t *testing.T) {
	dir := tree(t, "a/1.png", "no picture", "a/2.pgm", dot(7), "a/3.pgm", dot(8))
	set, err := imagefolder.Open(dir)
	testhelp.Must(t, err)
	_, err = set.At(0)
	filestest.WantBroken(t, err, filepath.Join(dir, "a/1.png"), "no picture in a known format")
	if s, err := set.At(1); err != nil || s.Class != 0 || s.Path != filepath.Join(dir, "a/2.pgm") {
		t.Errorf("got %v, %v", s, err)
	}
	testhelp.Must(t, os.Remove(filepath.Join(dir, "a/3.pgm")))
	_, err = set.At(2)
	filestest.WantBroken(t, err, filepath.Join(dir, "a/3.pgm"), "")
	if !errors.Is(err, os.ErrNotExist) || !errors.Is(err, gotorch.OSError) {
		t.Errorf("got %v", err)
	}
}

var archived = filestest.Tar("pets/", "", "pets/dog/", "", "pets/dog/2.pgm", dot(2), "pets/cat/b/3.pgm", dot(3), "pets/dog/1.pgm", dot(1), "pets/README.txt", "x", "4.pgm", dot(4))

func TestAnArchiveIsReadWithoutUnpackingIt(t *testing.T) {
	path := filestest.Write(t, "a.tar", archived)
	filestest.NothingStays(t, func() {
		set, err := imagefolder.OpenTar(path)
		testhelp.Must(t, err)
		defer set.Close()
		if got := grays(t, set.Len(), set.At); !slices.Equal(got, []string{"1:2", "0:3", "1:1"}) || !slices.Equal(set.Classes(), []string{"b", "dog"}) {
			t.Errorf("got %v of %v", got, set.Classes())
		}
		if _, err := set.At(3); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
		testhelp.Must(t, set.Close())
		_, err = set.At(0)
		filestest.WantBroken(t, err, path, "closed")
	})
	set, err := imagefolder.OpenTar(path, imagefolder.Options{Root: "pets"})
	testhelp.Must(t, err)
	defer set.Close()
	if got := grays(t, set.Len(), set.At); !slices.Equal(got, []string{"1:2", "0:3", "1:1"}) || !slices.Equal(set.Classes(), []string{"cat", "dog"}) {
		t.Errorf("got %v of %v", got, set.Classes())
	}
	one, err := imagefolder.OpenTar(path, imagefolder.Options{Classes: []string{"dog"}})
	testhelp.Must(t, err)
	defer one.Close()
	if one.Len() != 2 || one.Path(1) != "pets/dog/1.pgm" {
		t.Errorf("got %d pictures", one.Len())
	}
}

func TestArchivesThatLieAreErrors(t *testing.T) {
	for text, b := range map[string][]byte{
		"the archive ends after": archived[:len(archived)-1024-512-100],
		"use NewStream":          filestest.Gzip(archived),
		"the archive is damaged": append(slices.Clone(archived[:512]), []byte(strings.Repeat("x", 1024))...),
		"no folders":             filestest.Tar("1.pgm", dot(1)),
		"no folders ":            filestest.Tar(),
		"has 0 bytes":            {},
	} {
		if text == "the archive ends after" { // of the last picture, which is cut
			b = filestest.Tar("a/1.pgm", dot(1), "a/2.pgm", strings.Repeat("x", 2000))
			b = b[:512+512+512+700]
		}
		path := filestest.Write(t, "a.tar", b)
		_, err := imagefolder.OpenTar(path)
		filestest.WantBroken(t, err, path, strings.TrimSpace(text))
	}
	path := filestest.Write(t, "a.tar", filestest.Tar("a/1.pgm", "no picture", "a/2.pgm", dot(2)))
	set, err := imagefolder.OpenTar(path)
	testhelp.Must(t, err)
	defer set.Close()
	_, err = set.At(0)
	filestest.WantBroken(t, err, path, "a/1.pgm: ValueError: it is no picture")
	if _, err := set.At(1); err != nil {
		t.Error(err)
	}
	filestest.NoFiles(t, func(path string) error { _, err := imagefolder.OpenTar(path); return err })
}

// A hole in a file costs nothing on the disk, and is not to cost memory.
// GNU's tar --sparse gives a file with holes another type.
func TestAPictureThatIsStoredWithoutItsZerosIsOne(t *testing.T) {
	path := filestest.Write(t, "a.tar", filestest.SparseTar("cat/a.pgm", dot(7)))
	_, err := imagefolder.OpenTar(path)
	filestest.WantBroken(t, err, path, "it is stored as a sparse file, which cannot be read by place: use NewStream")
	stream, err := imagefolder.NewStream(path, imagefolder.Options{})
	testhelp.Must(t, err)
	n := 0
	for s, err := range stream.All() {
		testhelp.Must(t, err)
		if got := gotorch.ToSlice[int](imageio.FromImage(s.Image, imageio.RGB))[0]; got != 7 {
			t.Errorf("got %d", got)
		}
		n++
	}
	if n != 1 {
		t.Errorf("got %d pictures", n)
	}
}

func TestAPictureThatIsTooLongIsNotRead(t *testing.T) {
	const hole = 1 << 30
	archive := filestest.Tar("a/1.pgm", dot(1), "a/2.pgm", dot(2))
	var head bytes.Buffer
	testhelp.Must(t, tar.NewWriter(&head).WriteHeader(&tar.Header{Name: "a/0.pgm", Size: hole}))
	path := filestest.Write(t, "a.tar", head.Bytes())
	testhelp.Must(t, os.Truncate(path, int64(head.Len())+hole))
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	testhelp.Must(t, err)
	_, err = f.Write(archive)
	testhelp.Must(t, errors.Join(err, f.Close()))
	set, err := imagefolder.OpenTar(path)
	testhelp.Must(t, err)
	defer set.Close()
	if n := filestest.Allocated(func() { _, err = set.At(0) }); n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	filestest.WantBroken(t, err, path, "a/0.pgm: ValueError: it has 1073741824 bytes, more than the 268435456 that MaxBytes allows")
	if got := grays(t, 2, func(i int) (imagefolder.Sample, error) { return set.At(i + 1) }); !slices.Equal(got, []string{"0:1", "0:2"}) {
		t.Errorf("got %v", got)
	}
}

// drain reads a stream to its end.
func drain(s *imagefolder.Stream) (all []string) {
	for sample, err := range s.All() {
		if err != nil {
			all = append(all, "broken")
			continue
		}
		all = append(all, fmt.Sprint(sample.Class, ":", gotorch.ToSlice[int](imageio.FromImage(sample.Image, imageio.RGB))[0]))
	}
	return all
}

func TestAPackedArchiveIsAStream(t *testing.T) {
	for _, b := range [][]byte{archived, filestest.Gzip(archived)} {
		path := filestest.Write(t, "a", b)
		filestest.NothingStays(t, func() {
			s, err := imagefolder.NewStream(path, imagefolder.Options{})
			testhelp.Must(t, err)
			if got := drain(s); !slices.Equal(got, []string{"1:2", "0:3", "1:1"}) || !slices.Equal(s.Classes(), []string{"b", "dog"}) {
				t.Errorf("got %v of %v", got, s.Classes())
			}
			for range s.All() {
				break
			}
		})
	}
}

func TestAStreamShufflesAndGoesOnWhereAnotherWas(t *testing.T) {
	var parts []string
	for i := range 30 {
		content := dot(i)
		if i == 11 {
			content = "broken"
		}
		parts = append(parts, fmt.Sprintf("%d/%d.pgm", i%3, i), content)
	}
	path := filestest.Write(t, "a.tar.gz", filestest.Gzip(filestest.Tar(parts...)))
	open := func(seed int) *imagefolder.Stream {
		s, err := imagefolder.NewStream(path, imagefolder.Options{Classes: []string{"0", "1", "2"}}, imagefolder.StreamOptions{Shuffle: 8, Seed: seed})
		testhelp.Must(t, err)
		return s
	}
	s := open(1)
	first, second := drain(s), drain(s)
	again := open(1)
	if !slices.Equal(drain(again), first) || !slices.Equal(drain(again), second) || slices.Equal(first, second) {
		t.Errorf("got %v and %v", first, second)
	}
	sorted := slices.Sorted(slices.Values(first))
	if !slices.Equal(sorted, slices.Sorted(slices.Values(second))) || len(slices.Compact(sorted)) != 30 {
		t.Errorf("got %v", sorted)
	}
	for _, stop := range []int{1, 7, 29, 30} {
		a, b, n := open(1), open(2), 0
		for range a.All() {
			if n++; n == stop {
				break
			}
		}
		testhelp.Must(t, b.LoadStateDict(a.StateDict()))
		if got := drain(b); !slices.Equal(got, first[stop:]) {
			t.Errorf("stopped after %d: got %v, want %v", stop, got, first[stop:])
		}
		if got := drain(b); !slices.Equal(got, second) {
			t.Errorf("stopped after %d: the next epoch is %v, want %v", stop, got, second)
		}
	}
	other, err := imagefolder.NewStream(path, imagefolder.Options{})
	testhelp.Must(t, err)
	for _, state := range []gotorch.Dict{nil, s.StateDict()} {
		if err := other.LoadStateDict(state); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

func TestABrokenStreamEnds(t *testing.T) {
	whole := filestest.Gzip(filestest.Tar("a/1.pgm", dot(1), "a/2.pgm", strings.Repeat("0123456789", 100000)))
	path := filestest.Write(t, "a", whole[:len(whole)-200])
	if _, err := imagefolder.NewStream(path, imagefolder.Options{}); err == nil {
		t.Error("a cut archive was read through")
	}
	s, err := imagefolder.NewStream(path, imagefolder.Options{Classes: []string{"a"}})
	testhelp.Must(t, err)
	if got := drain(s); !slices.Equal(got, []string{"0:1", "broken"}) {
		t.Errorf("got %v", got)
	}
	large, err := imagefolder.NewStream(filestest.Write(t, "b", whole), imagefolder.Options{Image: imageio.DecodeOptions{MaxBytes: 100}})
	testhelp.Must(t, err)
	if got := drain(large); !slices.Equal(got, []string{"0:1", "broken"}) {
		t.Errorf("got %v", got)
	}
	filestest.NoFiles(t, func(path string) error {
		s, err := imagefolder.NewStream(path, imagefolder.Options{Classes: []string{"a"}})
		testhelp.Must(t, err)
		for _, err := range s.All() {
			return err
		}
		return nil
	}, "a file of the kernel's")
	filestest.WantKind(t, gotorch.ValueError, func() {
		_, _ = imagefolder.NewStream(path, imagefolder.Options{}, imagefolder.StreamOptions{Shuffle: -1})
	})
}

// FuzzTar looks for an archive whose pictures differ by the way in which they are read.
func FuzzTar(f *testing.F) {
	f.Add(archived)
	f.Add(archived[:len(archived)-1500])
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filestest.Write(t, "a.tar", b)
		set, err := imagefolder.OpenTar(path, imagefolder.Options{Image: imageio.DecodeOptions{MaxPixels: 1 << 12}})
		if err != nil {
			var broken *data.FileError
			if !errors.As(err, &broken) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		defer set.Close()
		s, err := imagefolder.NewStream(path, imagefolder.Options{Image: imageio.DecodeOptions{MaxPixels: 1 << 12}})
		testhelp.Must(t, err)
		i := 0
		for sample, err := range s.All() {
			other, err2 := set.At(i)
			if (err == nil) != (err2 == nil) || sample.Path != other.Path {
				t.Fatalf("picture %d is %v, %v and %v, %v", i, sample.Path, err, other.Path, err2)
			}
			i++
		}
		if i != set.Len() {
			t.Fatalf("the stream has %d pictures of %d", i, set.Len())
		}
	})
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "pets")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for name, content := range map[string]string{"cat/1.ppm": "P3 1 1 255 200 100 0", "dog/1.ppm": "P3 1 1 255 0 0 50"} {
		_ = os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755)
		_ = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
	}
	set, err := imagefolder.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(set.Classes())
	pairs := data.Transform(set, func(s imagefolder.Sample, _ *rand.Rand) (data.Pair, error) {
		return data.Pair{Input: imageio.FromImage(s.Image, imageio.RGB), Target: gotorch.FromScalar(int64(s.Class))}, nil
	})
	for batch, err := range data.NewLoader(pairs, data.LoaderOptions{BatchSize: 2}).All() {
		fmt.Println(batch.Input.Flatten(), batch.Target, err)
	}
	// Output:
	// [cat dog]
	// tensor([200, 100,   0,   0,   0,  50], dtype=torch.uint8) tensor([0, 1]) <nil>
}

func TestFoldersWithLinksToEachOtherAreAnErrorSoon(t *testing.T) {
	dir := t.TempDir()
	const n = 14 // in 14! ways
	for i := range n {
		testhelp.Must(t, os.MkdirAll(filepath.Join(dir, "class", fmt.Sprint(i)), 0o755))
	}
	for i := range n {
		for k := range n {
			testhelp.Must(t, os.Symlink(filepath.Join(dir, "class", fmt.Sprint(k)), filepath.Join(dir, "class", fmt.Sprint(i), fmt.Sprint(k))))
		}
	}
	_, err := imagefolder.Open(dir)
	var broken *data.FileError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), "in more than 100 ways") {
		t.Errorf("got %v", err)
	}
}

func TestAFolderMayBeBehindAHundredLinks(t *testing.T) {
	dir, behind := t.TempDir(), t.TempDir()
	testhelp.Must(t, os.Mkdir(filepath.Join(dir, "class"), 0o755))
	testhelp.Must(t, os.WriteFile(filepath.Join(behind, "a.png"), nil, 0o644)) // nothing is decoded yet
	link := func(i int) {
		testhelp.Must(t, os.Symlink(behind, filepath.Join(dir, "class", fmt.Sprint(i))))
	}
	for i := range 100 {
		link(i)
	}
	set, err := imagefolder.Open(dir)
	testhelp.Must(t, err)
	if set.Len() != 100 {
		t.Errorf("got %d pictures", set.Len())
	}
	link(100)
	if _, err := imagefolder.Open(dir); err == nil || !strings.Contains(err.Error(), "in more than 100 ways") {
		t.Errorf("got %v", err)
	}
}
