// Package idx reads the IDX files that MNIST and its relatives (Fashion-MNIST, KMNIST, EMNIST) come
// in: arrays of numbers of any shape behind a header of a few bytes. Files packed by gzip are
// unpacked on the fly.
//
//	images, err := idx.ReadFile("train-images-idx3-ubyte.gz")
//	if err != nil {
//		return err
//	}
//	fmt.Println(images.Type, images.Shape) // uint8 [60000 28 28]
//	x := images.Tensor()                   // a tensor of that dtype and shape
//
// A file is not trusted: a header that promises more than the file holds costs no memory, nor does a
// packed file of which nearly nothing is data, and every fault is a [FormatError].
package idx

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/counting"
	"gotorch.dev/gotorch/internal/regular"
)

// Type is the type of an array's elements, with the numbers that the format gives them.
type Type byte

// The types of the format.
const (
	Uint8   Type = 0x08
	Int8    Type = 0x09
	Int16   Type = 0x0b
	Int32   Type = 0x0c
	Float32 Type = 0x0d
	Float64 Type = 0x0e
)

var types = map[Type]struct {
	dtype gotorch.DType
	size  int
}{
	Uint8:   {gotorch.Uint8, 1},
	Int8:    {gotorch.Int8, 1},
	Int16:   {gotorch.Int16, 2},
	Int32:   {gotorch.Int32, 4},
	Float32: {gotorch.Float32, 4},
	Float64: {gotorch.Float64, 8},
}

// String returns the name of the type, "uint8".
func (t Type) String() string {
	if known, ok := types[t]; ok {
		return known.dtype.Name()
	}
	return fmt.Sprintf("type 0x%02x", byte(t))
}

// MaxBytes is the size of the largest array that is read: a gigabyte, twice the largest of MNIST's
// relatives. A packed file may not unpack to more than 256 bytes for each of its own, beyond the
// first 16 MB: a small one could otherwise take as much.
const (
	MaxBytes = 1 << 30
	maxRatio = 256
)

// Array is the content of a file.
type Array struct {
	Type  Type
	Shape []int
	Data  []byte // the elements row by row, in the byte order of this machine
}

// FormatError says why something is not a valid IDX file.
type FormatError struct {
	Path   string // "" where it was not read from a file
	Reason string
	Err    error // what reading failed with, if that is the reason
}

func (e *FormatError) Error() string {
	path := e.Path
	if path == "" {
		path = "input"
	}
	return path + " is not a valid IDX file: " + e.Reason
}

func (e *FormatError) Unwrap() error { return e.Err }

// ReadFile reads a file, which may be packed by gzip. It returns a *FormatError if it is no valid IDX
// file, and an *fs.PathError if it cannot be read.
func ReadFile(path string) (*Array, error) {
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := Read(f)
	var format *FormatError
	if errors.As(err, &format) {
		format.Path = path
	}
	return a, err
}

// Read reads an array from r to the end, unpacking it if it is packed by gzip. It returns a
// *FormatError if r does not hold a valid IDX file.
func Read(r io.Reader) (*Array, error) {
	packed := &counting.Reader{R: r}
	buffered := bufio.NewReader(packed)
	r = buffered
	if head, _ := buffered.Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, broken("its gzip header is damaged", err)
		}
		r = &bounded{r: unpacked, packed: packed}
	}

	var magic [4]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, broken("it ends within the first 4 bytes", err)
	}
	known, ok := types[Type(magic[2])]
	if magic[0] != 0 || magic[1] != 0 || !ok {
		return nil, broken(fmt.Sprintf("it begins with % x, not with 00 00 and a type", magic), nil)
	}
	a := &Array{Type: Type(magic[2]), Shape: make([]int, magic[3])}
	size := int64(known.size)
	extent := size // as size, with a dimension of zero as one of one: a tensor's strides do not fit else
	for i := range a.Shape {
		var dim [4]byte
		if _, err := io.ReadFull(r, dim[:]); err != nil {
			return nil, broken("it ends within its header", err)
		}
		n := int64(binary.BigEndian.Uint32(dim[:]))
		a.Shape[i] = int(n)
		if extent > math.MaxInt64/max(n, 1) {
			return nil, broken(fmt.Sprintf("its dimensions are too large: %v", a.Shape[:i+1]), nil)
		}
		extent *= max(n, 1)
		// Both factors are below 2^32, so that the product cannot overflow.
		if size *= n; size > MaxBytes {
			return nil, broken(fmt.Sprintf("its header promises more than %d bytes, in dimensions %v", MaxBytes, a.Shape[:i+1]), nil)
		}
	}

	// The buffer grows with what arrives, not with what the header promises.
	var data bytes.Buffer
	got, err := io.CopyN(&data, r, size)
	if errors.Is(err, errRatio) {
		return nil, broken(fmt.Sprintf("it unpacks to more than %d times its size", maxRatio), nil)
	}
	if err != nil {
		return nil, broken(fmt.Sprintf("its header promises %d bytes of data, and %d came", size, got), err)
	}
	// Also makes gzip check its checksum.
	switch n, err := io.CopyN(io.Discard, r, 1); {
	case n > 0:
		return nil, broken(fmt.Sprintf("data follows after the %d bytes that its header promises", size), nil)
	case err != io.EOF:
		return nil, broken("its end is damaged", err)
	}
	a.Data = data.Bytes()
	swap(a.Data, known.size)
	return a, nil
}

// bounded unpacks as much as the packed bytes so far allow.
type bounded struct {
	r      io.Reader
	packed *counting.Reader // what is read of the packed file
	n      int64
}

var errRatio = errors.New("the file unpacks to far more than it is long")

func (b *bounded) Read(to []byte) (int, error) {
	n, err := b.r.Read(to)
	if b.n += int64(n); b.n > 16<<20+maxRatio*b.packed.N {
		return 0, errRatio
	}
	return n, err
}

// broken returns a FormatError; where the file cannot be read, why not.
func broken(reason string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &FormatError{Reason: reason, Err: err}
}

// swap turns the big-endian elements of a file into those of this machine.
func swap(data []byte, size int) {
	if size == 1 || binary.NativeEndian.Uint16([]byte{0, 1}) == 1 {
		return
	}
	for element := range slices.Chunk(data, size) {
		slices.Reverse(element)
	}
}

// Tensor returns a copy of the array as a CPU tensor of the same type and shape.
func (a *Array) Tensor() gotorch.Tensor {
	shape := make([]int64, len(a.Shape))
	for i, n := range a.Shape {
		shape[i] = int64(n)
	}
	return gotorch.FromRaw(a.Data, types[a.Type].dtype, shape...)
}
