package mnist_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/idx"
	"gotorch.dev/gotorch/data/mnist"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// sample is where set-up puts the digits.
const sample = "../../../.venv/share/digits/mnist_5k.csv.gz"

// write makes the files of a set with n pictures of 2x3 pixels.
func write(t *testing.T, dir, part string, n int, packed bool) {
	t.Helper()
	images := []byte{0, 0, 8, 3}
	labels := []byte{0, 0, 8, 1}
	for _, size := range []int{n, 2, 3} {
		images = binary.BigEndian.AppendUint32(images, uint32(size))
	}
	labels = binary.BigEndian.AppendUint32(labels, uint32(n))
	for i := range n {
		images = append(images, byte(i), 0, 0, 0, 0, 255)
		labels = append(labels, byte(i%10))
	}
	for name, content := range map[string][]byte{"-images-idx3-ubyte": images, "-labels-idx1-ubyte": labels} {
		path := filepath.Join(dir, part+name)
		if packed {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, err := w.Write(content)
			testhelp.Must(t, err)
			testhelp.Must(t, w.Close())
			content, path = b.Bytes(), path+".gz"
		}
		testhelp.Must(t, os.WriteFile(path, content, 0o644))
	}
}

func TestOpenReadsTheFourFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "train", 12, true)
	write(t, dir, "t10k", 3, false)
	train, test, err := mnist.Open(dir)
	testhelp.Must(t, err)
	if train.Len() != 12 || test.Len() != 3 || train.Label(11) != 1 {
		t.Errorf("got %d and %d digits", train.Len(), test.Len())
	}
	batch, err := test.Batch([]int{2, 0}, nil)
	testhelp.Must(t, err)
	if shape := fmt.Sprint(batch.Input.Shape()); shape != "[2 1 2 3]" {
		t.Errorf("got shape %s", shape)
	}
	// As torchvision's ToTensor and Normalize((0.1307,), (0.3081,)) give them: divisions and a subtraction, which every processor
	// rounds alike.
	want := []float32{-0.3987565, -0.42421296, -0.42421296, -0.42421296, -0.42421296, 2.8214867}
	if got := gotorch.ToSlice[float32](batch.Input)[:6]; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := gotorch.ToSlice[int](batch.Target); !slices.Equal(got, []int{2, 0}) {
		t.Errorf("got labels %v", got)
	}
}

func TestMissingAndMismatchedFilesAreErrors(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := mnist.Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	write(t, dir, "train", 12, false)
	write(t, dir, "t10k", 3, false)
	images := filepath.Join(dir, "t10k-images-idx3-ubyte")
	testhelp.Must(t, os.Rename(filepath.Join(dir, "train-images-idx3-ubyte"), images))
	write(t, dir, "train", 12, false)
	var wrong *mnist.FormatError
	if _, _, err := mnist.Open(dir); !errors.As(err, &wrong) || !strings.Contains(wrong.Reason, "12 images and 3 labels") {
		t.Errorf("got %v", err)
	}
	testhelp.Must(t, os.WriteFile(images, []byte{0, 0, 8}, 0o644))
	var broken *idx.FormatError
	if _, _, err := mnist.Open(dir); !errors.As(err, &broken) || broken.Path != images {
		t.Errorf("got %v", err)
	}
}

func TestNewChecksWhatFitsTogether(t *testing.T) {
	images := &idx.Array{Type: idx.Uint8, Shape: []int{2, 1, 1}, Data: []byte{1, 2}}
	labels := &idx.Array{Type: idx.Uint8, Shape: []int{2}, Data: []byte{0, 1}}
	if _, err := mnist.New(images, labels); err != nil {
		t.Error(err)
	}
	for reason, arrays := range map[string][2]*idx.Array{
		"images must be uint8":                             {labels, labels},
		"labels must be uint8":                             {images, images},
		"no pixels in images of shape [2 0 28]":            {{Type: idx.Uint8, Shape: []int{2, 0, 28}}, labels},
		"labels must be uint8 in 1 dimension, not float32": {images, {Type: idx.Float32, Shape: []int{2}}},
	} {
		var wrong *mnist.FormatError
		if _, err := mnist.New(arrays[0], arrays[1]); !errors.As(err, &wrong) || !strings.Contains(wrong.Reason, reason) {
			t.Errorf("got %v, want %q", err, reason)
		}
	}
}

func TestTheSampleHas500OfEachDigit(t *testing.T) {
	digits, err := mnist.OpenSample(sample)
	testhelp.Must(t, err)
	counts := map[int]int{}
	for i := range digits.Len() {
		counts[digits.Label(i)]++
	}
	for digit := range 10 {
		if counts[digit] != 500 {
			t.Errorf("there are %d of %d", counts[digit], digit)
		}
	}
	train, test := digits.Split(5)
	if train.Len() != 4000 || test.Len() != 1000 {
		t.Errorf("got %d and %d digits", train.Len(), test.Len())
	}
	batch, err := digits.Batch(slices.Collect(func(yield func(int) bool) {
		for i := 0; i < 5000 && yield(i); i++ {
		}
	}), nil)
	testhelp.Must(t, err)
	// The sample is nearly as bright as all of MNIST.
	mean, std := gotorch.Item[float64](batch.Input.Mean()), gotorch.Item[float64](batch.Input.Std())
	if mean < -0.02 || mean > 0.02 || std < 0.98 || std > 1.02 {
		t.Errorf("mean %v, deviation %v", mean, std)
	}
}

func TestAnotherFileIsNotTheSample(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mnist_5k.csv.gz")
	testhelp.Must(t, os.WriteFile(path, make([]byte, 10<<20), 0o644))
	var wrong *mnist.FormatError
	if _, err := mnist.OpenSample(path); !errors.As(err, &wrong) || !strings.Contains(wrong.Reason, "SHA-256") {
		t.Errorf("got %v", err)
	}
	filestest.NoFiles(t, func(path string) error { _, err := mnist.OpenSample(path); return err })
}

func TestShiftMovesWholePicturesByUpToN(t *testing.T) {
	image := make([]byte, 25)
	image[12] = 255 // the middle of 5x5
	array := &idx.Array{Type: idx.Uint8, Shape: []int{1, 5, 5}, Data: image}
	digits, err := mnist.New(array, &idx.Array{Type: idx.Uint8, Shape: []int{1}, Data: []byte{7}})
	testhelp.Must(t, err)
	places := map[int]bool{}
	rng := rand.New(rand.NewPCG(1, 2))
	shifted := digits.Shift(2)
	for range 400 {
		batch, err := shifted.Batch([]int{0}, rng)
		testhelp.Must(t, err)
		places[gotorch.Item[int](batch.Input.ArgMax())] = true
		batch.Close()
	}
	if len(places) != 25 {
		t.Errorf("the dot came to %d places of 25", len(places))
	}
	sample, err := shifted.At(0)
	testhelp.Must(t, err)
	if gotorch.Item[int](sample.Input.ArgMax()) != 12 || fmt.Sprint(sample.Input.Shape()) != "[1 5 5]" {
		t.Error("At moves the picture")
	}
	if _, err := digits.At(1); err == nil {
		t.Error("there is no picture 1")
	}
}

func TestPicturesShareMemory(t *testing.T) {
	digits, err := mnist.OpenSample(sample)
	testhelp.Must(t, err)
	picture := digits.Image(3)
	if picture.Bounds().Dx() != 28 || picture.Bounds().Dy() != 28 || &picture.Pix[0] != &digits.Image(3).Pix[0] {
		t.Error("the picture is a copy")
	}
}

func ExampleDigits() {
	digits, err := mnist.OpenSample("../../../.venv/share/digits/mnist_5k.csv.gz")
	if err != nil {
		fmt.Println(err)
		return
	}
	train, test := digits.Split(5)
	loader := data.NewLoader(train.Shift(2), data.LoaderOptions{BatchSize: 64, Shuffle: true, Workers: 1})
	for batch, err := range loader.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(batch.Input.Shape(), batch.Target.Shape(), test.Len())
		break
	}
	// Output: [64 1 28 28] [64] 1000
}
