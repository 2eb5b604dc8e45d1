// Package tokens trains language models on files of tokens that are larger than memory: the numbers of a text's
// tokens, one after the other, as uint16 or uint32, as nanoGPT, llm.c and their like prepare them.
//
//	set, err := tokens.Open("train.bin", 1024)
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//
//	// An epoch of 10,000 windows that begin anywhere:
//	loader := data.NewLoader(set.Random(10000), data.LoaderOptions{BatchSize: 12})
//	for batch, err := range loader.All() {
//		// batch.Input is int64 of shape (12, 1024), and batch.Target the same, one token on
//	}
//
// The file is mapped: nothing of it is read before it is needed, and what was read is the system's to forget. A Set
// itself is the windows one after the other, each token a target once; with Stride 1 it is all windows that there are.
package tokens

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Options say what is in a file of tokens.
type Options struct {
	DType      gotorch.DType  // of a token, little-endian: Uint8, Uint16, Uint32, Int32 or Int64; default: gotorch.Uint16
	Header     int            // bytes before the first token; llm.c's files have 1024
	Stride     gotorch.Scalar // tokens from the beginning of one window to that of the next; default: the length of a window
	Vocabulary int            // how many tokens there are: a greater one is an error. 0: any is taken, up to the largest int64
}

// Set is a file of tokens, cut into windows. It is a data.Dataset[data.Pair], and makes batches itself. All methods may
// be called from several goroutines.
type Set struct {
	path       string
	dtype      gotorch.DType
	window     int
	stride     int
	vocabulary int64
	header     int64
	n          int64 // tokens

	mutex  sync.RWMutex
	file   *os.File // nil: closed
	mapped []byte   // all of the file
	unmap  runtime.Cleanup
}

// Open maps a file of tokens, to be read in windows of so many. It panics with a ValueError or TypeError for options that
// do not fit, returns an *fs.PathError if the file cannot be read, and a *data.FileError if it is not a whole number of
// tokens, or has not one window and the token after it.
func Open(path string, window int, opts ...Options) (*Set, error) {
	const op = "tokens.Open"
	opt := args.Option(opts)
	s := &Set{path: path, dtype: opt.DType, window: window, header: int64(opt.Header), vocabulary: int64(opt.Vocabulary)}
	s.stride = int(args.Int(op, "Stride", opt.Stride, int64(window)))
	if s.dtype == 0 {
		s.dtype = gotorch.Uint16
	}
	switch s.dtype {
	case gotorch.Uint8, gotorch.Uint16, gotorch.Uint32, gotorch.Int32, gotorch.Int64:
	default:
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("DType must be Uint8, Uint16, Uint32, Int32 or Int64, not %v", s.dtype)})
	}
	switch {
	case window < 1 || window > 1<<30:
		panic(args.ValueError(op, "a window must have from 1 to %d tokens, but got %d", 1<<30, window))
	case s.stride < 1:
		panic(args.ValueError(op, "Stride must be positive, but got %d", s.stride))
	case opt.Header < 0 || opt.Vocabulary < 0:
		panic(args.ValueError(op, "Header and Vocabulary must not be negative, but got %d and %d", opt.Header, opt.Vocabulary))
	}

	file, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	each := int64(s.dtype.Size())
	tokens := size - s.header
	s.n = tokens / each
	switch {
	case tokens < 0:
		err = files.Errorf(path, "", "the file has %d bytes, and its header should have %d", size, s.header)
	case tokens%each != 0:
		err = files.Errorf(path, "", "%d bytes after the header are no whole number of %s tokens: it is cut short, or of another dtype", tokens, s.dtype.Name())
	case s.n <= int64(window):
		err = files.Errorf(path, "", "%d tokens are no window of %d and a token after it", s.n, window)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	s.mapped, err = syscall.Mmap(int(file.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		file.Close()
		return nil, files.Wrap(path, "", fmt.Errorf("it cannot be mapped: %w", err))
	}
	s.file = file
	s.unmap = runtime.AddCleanup(s, func(mapped []byte) { _ = syscall.Munmap(mapped) }, s.mapped)
	return s, nil
}

// Tokens returns the number of tokens in the file.
func (s *Set) Tokens() int { return int(s.n) }

// Len returns the number of windows.
func (s *Set) Len() int { return int((s.n-1-int64(s.window))/int64(s.stride)) + 1 }

// At returns the i-th window: its tokens as Input, and as Target those that are one on, both int64 of shape (window). It
// returns an IndexError if there is none.
func (s *Set) At(i int) (data.Pair, error) {
	if i < 0 || i >= s.Len() {
		return data.Pair{}, files.OutOfRange("tokens.Set", "window", i, s.Len())
	}
	return s.pairs([]int64{int64(i) * int64(s.stride)}, int64(s.window))
}

// Batch returns the windows at indices, of shape (n, window).
func (s *Set) Batch(indices []int, _ *rand.Rand) (data.Pair, error) {
	starts := make([]int64, len(indices))
	for k, i := range indices {
		if i < 0 || i >= s.Len() {
			return data.Pair{}, files.OutOfRange("tokens.Set", "window", i, s.Len())
		}
		starts[k] = int64(i) * int64(s.stride)
	}
	return s.pairs(starts, int64(len(starts)), int64(s.window))
}

// Random is a data set of n windows that begin anywhere, each time that it is walked through at others: where they
// begin is drawn from the batch's source of randomness, so that it depends on the loader's seed, and not on its workers.
// It needs no order of all windows, of which a large file has billions. It panics with a ValueError if n is negative.
func (s *Set) Random(n int) data.Batcher[data.Pair] {
	if n < 0 {
		panic(args.ValueError("tokens.Set.Random", "the number of windows must not be negative, but got %d", n))
	}
	return &random{s, n}
}

type random struct {
	set *Set
	n   int
}

func (r *random) Len() int { return r.n }

// At gives each index always the same window, as it has no batch to belong to.
func (r *random) At(i int) (data.Pair, error) {
	if i < 0 || i >= r.n {
		return data.Pair{}, files.OutOfRange("tokens.Set.Random", "window", i, r.n)
	}
	return r.set.pairs([]int64{r.start(rand.New(rand.NewPCG(0, uint64(i))))}, int64(r.set.window))
}

func (r *random) Batch(indices []int, rng *rand.Rand) (data.Pair, error) {
	starts := make([]int64, len(indices))
	for k := range starts {
		starts[k] = r.start(rng)
	}
	return r.set.pairs(starts, int64(len(starts)), int64(r.set.window))
}

func (r *random) start(rng *rand.Rand) int64 { return rng.Int64N(r.set.n - int64(r.set.window)) }

// pairs makes tensors of the windows that begin at starts.
func (s *Set) pairs(starts []int64, shape ...int64) (data.Pair, error) {
	w := s.window
	inputs, targets := make([]int64, len(starts)*w), make([]int64, len(starts)*w)
	row := make([]int64, w+1)
	for k, start := range starts {
		if err := s.read(row, start); err != nil {
			return data.Pair{}, err
		}
		copy(inputs[k*w:], row[:w])
		copy(targets[k*w:], row[1:])
	}
	return gotorch.Try(func() data.Pair {
		return data.Pair{Input: gotorch.FromBlob(inputs, shape...), Target: gotorch.FromBlob(targets, shape...)}
	})
}

// read copies the tokens from the given one on.
func (s *Set) read(to []int64, from int64) (err error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.file == nil {
		return files.Closed(s.path)
	}
	// Where the file has been cut since, the memory is gone, and touching it would end the program.
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			fault, ok := r.(interface{ Addr() uintptr })
			begin := uintptr(unsafe.Pointer(unsafe.SliceData(s.mapped)))
			if !ok || fault.Addr() < begin || fault.Addr()-begin >= uintptr(len(s.mapped)) {
				panic(r)
			}
			err = files.Errorf(s.path, fmt.Sprintf("token %d", from), "the file cannot be read there: it was cut short while it was in use, or its disk fails")
		}
	}()
	size := s.dtype.Size()
	b := s.mapped[s.header+from*int64(size):][:len(to)*size]
	switch s.dtype {
	case gotorch.Uint8:
		for i := range to {
			to[i] = int64(b[i])
		}
	case gotorch.Uint16:
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint16(b[2*i:]))
		}
	case gotorch.Uint32:
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint32(b[4*i:]))
		}
	case gotorch.Int32:
		for i := range to {
			to[i] = int64(int32(binary.LittleEndian.Uint32(b[4*i:])))
		}
	default:
		for i := range to {
			to[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
		}
	}
	most := int64(math.MaxInt64)
	if s.vocabulary > 0 {
		most = s.vocabulary - 1
	}
	for i, token := range to {
		if token < 0 || token > most {
			if s.vocabulary > 0 {
				return files.Errorf(s.path, fmt.Sprintf("token %d", from+int64(i)), "%d is no token of a vocabulary of %d: is the file of another dtype than %s?", token, s.vocabulary, s.dtype.Name())
			}
			return files.Errorf(s.path, fmt.Sprintf("token %d", from+int64(i)), "%d is no token, which is not negative: is the file of another dtype than %s?", token, s.dtype.Name())
		}
	}
	return nil
}

// Tensor returns all tokens as a tensor of the file's dtype and shape (n), which is the file itself, mapped by
// libtorch: nothing is read before it is used, and nothing copied. Writing to it does not change the file. The file must
// not be cut while the tensor is in use, which outlives Close. It returns a *data.FileError where the header is no
// whole number of tokens long.
func (s *Set) Tensor() (gotorch.Tensor, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	if s.file == nil {
		return gotorch.Tensor{}, files.Closed(s.path)
	}
	each := int64(s.dtype.Size())
	if s.header%each != 0 {
		return gotorch.Tensor{}, files.Errorf(s.path, "", "a header of %d bytes is no whole number of %s tokens: they cannot be mapped as a tensor", s.header, s.dtype.Name())
	}
	return gotorch.Try(func() gotorch.Tensor {
		// By the descriptor, so that it is the file that was opened, whatever its name leads to now.
		all := gotorch.FromFile(fmt.Sprintf("/proc/self/fd/%d", s.file.Fd()), gotorch.FromFileOptions{
			Shared: new(false), Size: new(s.header/each + s.n), DType: s.dtype,
		})
		if s.header == 0 {
			return all
		}
		defer all.Close()
		return all.Narrow(0, s.header/each, s.n)
	})
}

// Close unmaps and closes the file. At returns an error then. Tensors that were made before stay.
func (s *Set) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.file == nil {
		return nil
	}
	s.unmap.Stop()
	err := syscall.Munmap(s.mapped)
	if closed := s.file.Close(); err == nil {
		err = closed
	}
	s.file, s.mapped = nil, nil
	return err
}
