package npy

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/regular"
)

// Rows is an array that stays in its file, as a data set of its rows: what its first index leads to. It is a
// data.Dataset[gotorch.Tensor], and makes batches itself. All methods may be called from several goroutines.
type Rows struct {
	path   string
	header header
	row    int64 // bytes

	mutex sync.RWMutex
	file  *os.File // nil: closed
}

// Open opens the array of a file, of which nothing but the header is read before it is asked for. It returns a
// *data.FileError if it is no valid .npy file, if the array has no dimensions, or if its rows do not lie together, as in
// Fortran's order.
func Open(path string) (*Rows, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	h, err := headerOf(f, size)
	switch {
	case err != nil:
	case len(h.shape) == 0:
		err = invalid("its array has no dimensions, and so no rows")
	case h.fortran && len(h.shape) > 1:
		err = invalid("its array is in Fortran's order, in which rows do not lie together: Load it, or save it with np.ascontiguousarray")
	}
	if err != nil {
		f.Close()
		return nil, wrap(path, "", err)
	}
	row := int64(h.dtype.Size())
	for _, n := range h.shape[1:] {
		row *= n
	}
	return &Rows{path: path, header: h, row: row, file: f}, nil
}

// Len returns the number of rows.
func (r *Rows) Len() int { return int(r.header.shape[0]) }

// Shape returns the shape of the array.
func (r *Rows) Shape() []int64 { return append([]int64{}, r.header.shape...) }

// DType returns the dtype of the array.
func (r *Rows) DType() gotorch.DType { return r.header.dtype }

// At reads the i-th row: a tensor of the array's dtype, with one dimension less.
func (r *Rows) At(i int) (gotorch.Tensor, error) {
	elements := make([]byte, r.row)
	if err := r.read(elements, i); err != nil {
		return gotorch.Tensor{}, err
	}
	return gotorch.Try(func() gotorch.Tensor { return gotorch.FromRaw(elements, r.header.dtype, r.header.shape[1:]...) })
}

// Batch reads the rows at indices into one tensor.
func (r *Rows) Batch(indices []int, _ *rand.Rand) (gotorch.Tensor, error) {
	elements := make([]byte, int64(len(indices))*r.row)
	for k, i := range indices {
		if err := r.read(elements[int64(k)*r.row:][:r.row], i); err != nil {
			return gotorch.Tensor{}, err
		}
	}
	shape := append([]int64{int64(len(indices))}, r.header.shape[1:]...)
	return gotorch.Try(func() gotorch.Tensor { return gotorch.FromRaw(elements, r.header.dtype, shape...) })
}

func (r *Rows) read(to []byte, i int) error {
	if i < 0 || i >= r.Len() {
		return files.OutOfRange("npy.Rows", "row", i, r.Len())
	}
	r.mutex.RLock()
	defer r.mutex.RUnlock()
	if r.file == nil {
		return files.Closed(r.path)
	}
	where := fmt.Sprintf("row %d", i)
	if len(to) > 0 {
		if _, err := r.file.ReadAt(to, r.header.length+int64(i)*r.row); err != nil {
			return wrap(r.path, where, early(err, "the file ends within it: it became shorter since it was opened"))
		}
	}
	r.header.native(to)
	return wrap(r.path, where, r.header.check(to))
}

// Close closes the file. At returns an error then.
func (r *Rows) Close() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.file == nil {
		return nil
	}
	err := r.file.Close()
	r.file = nil
	return err
}

// Pairs is a data set of the rows of two arrays: one has the inputs, the other the targets. It returns a *data.FileError
// if they differ in number.
func Pairs(inputs, targets *Rows) (data.Batcher[data.Pair], error) {
	if inputs.Len() != targets.Len() {
		return nil, files.Errorf(targets.path, "", "there are %d rows, and %d in %s", targets.Len(), inputs.Len(), inputs.path)
	}
	return &pairs{inputs, targets}, nil
}

type pairs struct{ inputs, targets *Rows }

func (p *pairs) Len() int { return p.inputs.Len() }

func (p *pairs) At(i int) (data.Pair, error) {
	return both(p, func(r *Rows) (gotorch.Tensor, error) { return r.At(i) })
}

func (p *pairs) Batch(indices []int, rng *rand.Rand) (data.Pair, error) {
	return both(p, func(r *Rows) (gotorch.Tensor, error) { return r.Batch(indices, rng) })
}

func both(p *pairs, read func(*Rows) (gotorch.Tensor, error)) (data.Pair, error) {
	input, err := read(p.inputs)
	if err != nil {
		return data.Pair{}, err
	}
	target, err := read(p.targets)
	if err != nil {
		input.Close()
		return data.Pair{}, err
	}
	return data.Pair{Input: input, Target: target}, nil
}
