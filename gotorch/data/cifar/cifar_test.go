package cifar_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/cifar"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

const pixels = 3 * 32 * 32

// picture is one whose pixels are told by a number.
func picture(n int) []byte {
	b := make([]byte, pixels)
	for i := range b {
		b[i] = byte(n + i*7)
	}
	return b
}

// binaryFiles are CIFAR-10's of the binary version, with two pictures in each.
func binaryFiles() map[string]string {
	all := map[string]string{"batches.meta.txt": "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n"}
	for k, name := range []string{"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"} {
		all[name] = string(slices.Concat([]byte{byte(k)}, picture(2*k), []byte{byte(k + 4)}, picture(2*k+1)))
	}
	return all
}

// pickled is a file of the Python version with two pictures, as Python 2 has written it.
func pickled(n int) string {
	text := func(s string) string { return "U" + string(rune(len(s))) + s }
	var b bytes.Buffer
	b.WriteString("\x80\x02}q\x01(" + text("batch_label") + text("a batch") + text("labels") + "](K\x01K\x09e" + text("data"))
	b.WriteString("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + "\x87R(K\x01K\x02M\x00\x0c\x86cnumpy\ndtype\n")
	b.WriteString(text("u1") + "K\x00K\x01\x87R(K\x03" + text("|") + "NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T")
	b.Write(binary.LittleEndian.AppendUint32(nil, 2*pixels))
	b.Write(picture(n))
	b.Write(picture(n + 1))
	b.WriteString("tbu.")
	return b.String()
}

func folder(tb testing.TB, files map[string]string) string {
	tb.Helper()
	dir := tb.TempDir()
	for name, content := range files {
		testhelp.Must(tb, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
	}
	return dir
}

func archive(files map[string]string) []byte {
	parts := []string{"cifar/", ""}
	for name, content := range files {
		parts = append(parts, "cifar/"+name, content)
	}
	return filestest.Tar(parts...)
}

func TestTheBinaryVersionIsRead(t *testing.T) {
	files := binaryFiles()
	for _, path := range []string{folder(t, files), filestest.Write(t, "a.tar", archive(files)), filestest.Write(t, "a.tar.gz", filestest.Gzip(archive(files)))} {
		train, test, err := cifar.Open(path)
		testhelp.Must(t, err)
		if train.Len() != 10 || test.Len() != 2 || train.Classes()[9] != "truck" {
			t.Fatalf("got %d and %d pictures of %v", train.Len(), test.Len(), train.Classes())
		}
		if train.Label(2) != 1 || train.Label(3) != 5 || test.Label(1) != 9 {
			t.Errorf("got labels %d, %d, %d", train.Label(2), train.Label(3), test.Label(1))
		}
		pair, err := train.At(3)
		testhelp.Must(t, err)
		want := gotorch.FromSlice(picture(3), 3, 32, 32)
		// As torchvision's ToTensor: bytes as parts of 255.
		if !pair.Input.Equal(want.To(gotorch.Float32).DivScalar(255)) || gotorch.Item[int](pair.Target) != 5 || pair.Target.Dim() != 0 {
			t.Errorf("got %v", pair)
		}
		batch, err := train.Batch([]int{3, 0}, nil)
		testhelp.Must(t, err)
		if !batch.Input.Select(0, 0).Equal(pair.Input) || !batch.Target.Equal(gotorch.FromSlice([]int64{5, 0})) {
			t.Errorf("got %v", batch.Target)
		}
		pictures, labels := train.Tensors()
		if !pictures.Select(0, 3).Equal(want) || labels.Numel() != 10 {
			t.Error("the tensors have other pictures")
		}
		if c := train.Image(3).NRGBAAt(1, 0); c.R != picture(3)[1] || c.G != picture(3)[1025] || c.B != picture(3)[2049] || c.A != 255 {
			t.Errorf("got %v", c)
		}
		for _, i := range []int{-1, 10} {
			if _, err := train.At(i); !errors.Is(err, gotorch.IndexError) {
				t.Error(err)
			}
		}
	}
}

func TestThePythonVersionIsRead(t *testing.T) {
	files := map[string]string{}
	for i, name := range []string{"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"} {
		files[name] = pickled(2 * i)
	}
	train, test, err := cifar.Open(folder(t, files))
	testhelp.Must(t, err)
	pictures, labels := train.Tensors()
	if train.Len() != 10 || !pictures.Select(0, 3).Equal(gotorch.FromSlice(picture(3), 3, 32, 32)) || gotorch.ToSlice[int](labels)[3] != 9 || test.Classes() != nil {
		t.Errorf("got %d pictures, %v", train.Len(), labels)
	}
	for text, content := range map[string]string{
		"truncated": files["data_batch_1"][:500], "which no array of numbers is made by": "\x80\x02cos\nsystem\nU\x04true\x85R.", "it holds no dict": "\x80\x02]." + strings.Repeat(" ", 10),
		`no array "data"`: "\x80\x02}.", "picture 1 is of class 10": strings.Replace(files["data_batch_1"], "K\x01K\x09e", "K\x01K\x0ae", 1),
		"of 2 pictures": strings.Replace(files["data_batch_1"], "K\x01K\x09e", "K\x01e", 1), "has shape [3 3072]": strings.Replace(files["data_batch_1"], "R(K\x01K\x02M", "R(K\x01K\x03M", 1),
		"not one of bytes": strings.Replace(files["data_batch_1"], "U\x02u1", "U\x02f8", 1),
	} {
		other := map[string]string{}
		for name, b := range files {
			other[name] = b
		}
		other["data_batch_2"] = content
		path := folder(t, other)
		_, _, err := cifar.Open(path)
		filestest.WantBroken(t, err, path, "data_batch_2: ValueError: ")
		filestest.WantBroken(t, err, path, text)
	}
}

func TestCIFAR100HasTwoKindsOfClasses(t *testing.T) {
	record := slices.Concat([]byte{19, 99}, picture(1))
	files := map[string]string{"train.bin": string(record) + string(record), "test.bin": string(record), "fine_label_names.txt": strings.Repeat("a\n", 100), "coarse_label_names.txt": strings.Repeat("b\n", 20)}
	train, _, err := cifar.Open(folder(t, files))
	testhelp.Must(t, err)
	if train.Label(1) != 99 || len(train.Classes()) != 100 {
		t.Errorf("got %d of %d", train.Label(1), len(train.Classes()))
	}
	train, _, err = cifar.Open(folder(t, files), cifar.Options{Coarse: true})
	testhelp.Must(t, err)
	if train.Label(1) != 19 || len(train.Classes()) != 20 {
		t.Errorf("got %d of %d", train.Label(1), len(train.Classes()))
	}
}

func TestFilesThatAreNotCIFARAreRefused(t *testing.T) {
	files := binaryFiles()
	change := func(name, content string) map[string]string {
		other := map[string]string{}
		for n, b := range files {
			other[n] = b
		}
		if other[name] = content; content == "-" {
			delete(other, name)
		}
		return other
	}
	for text, other := range map[string]map[string]string{
		"none of the files":                            {"a": "b"},
		"data_batch_3.bin: FileNotFoundError":          change("data_batch_3.bin", "-"),
		"test_batch.bin: ValueError: it has 5 bytes":   change("test_batch.bin", "short"),
		"data_batch_1.bin: ValueError: it has 0 bytes": change("data_batch_1.bin", ""),
		"picture 0 is of class 10":                     change("data_batch_2.bin", "\x0a"+string(picture(1))),
		"the names of 2 classes":                       change("batches.meta.txt", "a b"),
	} {
		path := folder(t, other)
		_, _, err := cifar.Open(path)
		filestest.WantBroken(t, err, path, text)
		packed := filestest.Write(t, "a.tar.gz", filestest.Gzip(archive(other)))
		_, _, err = cifar.Open(packed)
		filestest.WantBroken(t, err, packed, text)
	}
	whole := filestest.Gzip(archive(files))
	path := filestest.Write(t, "a.tar.gz", whole[:len(whole)/2])
	_, _, err := cifar.Open(path)
	filestest.WantBroken(t, err, path, "")
	twice := filestest.Write(t, "a.tar", filestest.Tar("a/train.bin", "", "b/train.bin", ""))
	_, _, err = cifar.Open(twice)
	filestest.WantBroken(t, err, twice, "two files of that name")
	filestest.NoFiles(t, func(path string) error { _, _, err := cifar.Open(path); return err })
}

func TestAnArchiveThatLiesCostsNoMemory(t *testing.T) {
	path := filestest.Write(t, "a.tar", filestest.Tar("a/train.bin", strings.Repeat("x", 200<<20))[:1024])
	n := filestest.Allocated(func() {
		if _, _, err := cifar.Open(path); err == nil {
			t.Error("it was read")
		}
	})
	if n > 4<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

// FuzzPickle looks for a file of the Python version that is neither refused nor read.
func FuzzPickle(f *testing.F) {
	f.Add([]byte(pickled(0)))
	f.Add([]byte("\x80\x02}."))
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		for _, name := range []string{"train", "test"} {
			testhelp.Must(t, os.WriteFile(filepath.Join(dir, name), b, 0o644))
		}
		_, _, err := cifar.Open(dir)
		var broken *data.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Fatalf("got %T: %v", err, err)
		}
	})
}

func ExampleOpen() {
	dir, err := os.MkdirTemp("", "cifar")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for name, content := range binaryFiles() { // two pictures in each
		_ = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
	}
	trainSet, testSet, err := cifar.Open(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(trainSet.Len(), testSet.Len(), trainSet.Classes()[trainSet.Label(1)])
	for batch, err := range data.NewLoader(trainSet, data.LoaderOptions{BatchSize: 10}).All() {
		fmt.Println(batch.Input.Shape(), batch.Target, err)
	}
	// Output:
	// 10 2 deer
	// [10 3 32 32] tensor([0, 4, 1, 5, 2, 6, 3, 7, 4, 8]) <nil>
}
