package gotorch

import (
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// IndexTerm is one term of an index, what stands between the commas of Python's a[...]:
//
//	a[1]               a.Index(At(1))
//	a[-1]              a.Index(At(-1))
//	a[0:2]             a.Index(Slice(0, 2))
//	a[0:8:2]           a.Index(Slice(0, 8, 2))
//	a[1:], a[1::2]     a.Index(SliceFrom(1)), a.Index(SliceFrom(1, 2))
//	a[:3], a[:3:2]     a.Index(SliceTo(3)), a.Index(SliceTo(3, 2))
//	a[::2]             a.Index(SliceStep(2))
//	a[:, 0]            a.Index(All, At(0))
//	a[..., 0]          a.Index(Ellipsis, At(0))
//	a[None]            a.Index(NewAxis)
//	a[True], a[False]  a.Index(True), a.Index(False)
//	a[[0, 2]]          a.Index(List(0, 2))
//	a[[True, False]]   a.Index(List(true, false))
//	a[b]               a.Index(b), for a Tensor b of integers, or a mask of bool or uint8
//	a[mask]            a.Index(Mask(mask)), which insists on a mask
//
// There are no other implementations than those of this package.
type IndexTerm interface {
	indexTerm()
}

type (
	indexAt    int64
	indexSlice struct {
		start, stop, step int64
		steps             int // how many were given
	}
	indexWord  int64
	indexBool  bool
	indexInts  []int64
	indexBools []bool
	indexMask  struct{ mask Tensor }
)

func (indexAt) indexTerm()    {}
func (indexSlice) indexTerm() {}
func (indexWord) indexTerm()  {}
func (indexBool) indexTerm()  {}
func (indexInts) indexTerm()  {}
func (indexBools) indexTerm() {}
func (indexMask) indexTerm()  {}
func (Tensor) indexTerm()     {}

const (
	// Ellipsis is Python's "...": as many times [All] as the tensor has dimensions to spare.
	Ellipsis indexWord = ctorch.IndexEllipsis
	// NewAxis is Python's None: a new dimension of size 1.
	NewAxis indexWord = ctorch.IndexNewAxis
	// True is Python's True as an index: a new dimension of size 1, in a copy.
	True indexBool = true
	// False is Python's False as an index: a new dimension of size 0.
	False indexBool = false
)

// All is Python's ":": the whole of a dimension. As a function it is torch.all, like [Tensor.All].
var All allTerm = Tensor.All

type allTerm func(self Tensor) Tensor

func (allTerm) indexTerm() {}

// integer is any Go integer that an int64 holds.
type integer interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32
}

// At picks the element i of a dimension, which disappears. A negative i counts from the end.
func At[I integer](i I) IndexTerm { return indexAt(i) }

// Slice is Python's start:stop, or start:stop:step. Negative positions count from the end; positions
// outside of the dimension are moved to its ends. The step must be positive.
func Slice[I integer](start, stop I, step ...I) IndexTerm {
	s := indexSlice{int64(start), int64(stop), 1, len(step)}
	for _, n := range step {
		s.step = int64(n)
	}
	return s
}

// SliceFrom is Python's start:, or start::step.
func SliceFrom[I integer](start I, step ...I) IndexTerm {
	s := indexSlice{int64(start), math.MaxInt64, 1, len(step)}
	for _, n := range step {
		s.step = int64(n)
	}
	return s
}

// SliceTo is Python's :stop, or :stop:step.
func SliceTo[I integer](stop I, step ...I) IndexTerm {
	s := indexSlice{0, int64(stop), 1, len(step)}
	for _, n := range step {
		s.step = int64(n)
	}
	return s
}

// SliceStep is Python's ::step.
func SliceStep[I integer](step I) IndexTerm {
	return indexSlice{0, math.MaxInt64, int64(step), 1}
}

// List picks elements of a dimension by their positions, or by one bool for each: Python's [0, 2] or
// [True, False, True] as an index. The result is a copy.
func List[E int | int32 | int64 | bool](elements ...E) IndexTerm {
	switch e := any(elements).(type) {
	case []bool:
		return indexBools(slices.Clone(e))
	case []int:
		return indexInts(toInt64s(e))
	case []int32:
		return indexInts(toInt64s(e))
	case []int64:
		return indexInts(slices.Clone(e))
	}
	return nil // there is no other type
}

func toInt64s[I integer](from []I) []int64 {
	to := make([]int64, len(from))
	for i, v := range from {
		to[i] = int64(v)
	}
	return to
}

// Mask picks the elements where mask, of bool or uint8, is not zero: as mask itself does as an index,
// but a tensor of another dtype is an IndexError instead of a list of positions. The mask's shape is
// that of as many dimensions of the indexed tensor; in their place the result has one.
func Mask(mask Tensor) IndexTerm { return indexMask{mask} }

// Index is Python's t[terms]. Where all terms are among [At], the slices, [Ellipsis] and [NewAxis]
// the result is a view that shares t's storage; with any other term, a copy. (An integer Tensor of no
// dimensions counts as At. Without terms the result is a view of all of t.) The rules are those of
// PyTorch, which are NumPy's: index tensors are broadcast together; the dimensions that they give
// the result stand where they stood when they stand side by side, else in front.
//
// It panics with an *Error: of the kind IndexError for a position out of range, more terms than
// dimensions, a mask of another shape, and index tensors that cannot be broadcast; ValueError for a
// step that is not positive.
func (t Tensor) Index(terms ...IndexTerm) Tensor {
	var few [fewTerms]indexTerm
	var blk struct {
		scope unsafe.Pointer
		out   outTensor
	}
	self := t.wordOf(getName, "self")
	converted := convertTerms(terms, getName, few[:])
	slow := ctorch.BeforeCall()
	err := ctorch.GetItem(self, converted, int64(len(terms)),
		(*ctorch.Block)(unsafe.Pointer(&blk)))
	warnings := slow.After()
	runtime.KeepAlive(t.T)
	keepTerms(terms)
	checkBack(getName, err, warnings)
	return newTensor(&blk.out, blk.scope)
}

// IndexPut is Python's t[terms] = value, for a number or a Tensor, and returns t. The value is
// broadcast to the shape of t[terms], and converted to t's dtype; only where a term is a Tensor, a
// [Mask], a [List], [True] or [False] must a Tensor value have t's dtype, as in PyTorch. Where index
// tensors name an element twice, one of its values remains.
//
// It panics with an *Error as [Tensor.Index] does, and with the kind RuntimeError where the value
// does not fit.
func (t Tensor) IndexPut(value Scalar, terms ...IndexTerm) Tensor {
	t.put(value, terms, false)
	return t
}

// IndexPutAccumulate is Python's t[terms] += value, except that an element that index tensors name
// more than once is added to each time. It returns t. Value and errors are as in [Tensor.IndexPut].
func (t Tensor) IndexPutAccumulate(value Scalar, terms ...IndexTerm) Tensor {
	t.put(value, terms, true)
	return t
}

func (t Tensor) put(value Scalar, terms []IndexTerm, accumulate bool) {
	self := t.wordOf(putName, "self")
	var what ctorch.ItemValue
	tensor, isTensor := value.(Tensor)
	if isTensor {
		what.Word = tensor.wordOf(putName, "value")
	} else {
		var ok bool
		if what.Scalar, ok = ctorch.ScalarOf(value); !ok {
			panic(badValue(reflect.TypeOf(value)))
		}
	}
	what.Accumulate = boolInt(accumulate)
	var few [fewTerms]indexTerm
	converted := convertTerms(terms, putName, few[:])
	slow := ctorch.BeforeCall()
	err := ctorch.SetItem(self, converted, int64(len(terms)),
		&what)
	warnings := slow.After()
	runtime.KeepAlive(t.T)
	runtime.KeepAlive(tensor.T)
	keepTerms(terms)
	checkBack(putName, err, warnings)
}

// The names of the operations in errors.
const (
	getName = "index"
	putName = "index_put_"
)

const (
	fewTerms = 6 // an index of no more costs no heap allocation
	maxTerms = 64
)

// convertTerms puts terms into the form that C takes: into few, if they fit.
func convertTerms(terms []IndexTerm, op string, few []indexTerm) *indexTerm {
	converted := few
	switch n := len(terms); {
	case n > maxTerms:
		panic(newError(op, IndexError, fmt.Sprintf("an index has at most %d terms, not %d", maxTerms, n)))
	case n > len(few):
		converted = make([]indexTerm, n)
	}
	for i, term := range terms {
		converted[i] = convertTerm(term, op, i)
	}
	return unsafe.SliceData(converted)
}

type indexTerm = ctorch.IndexTerm

func convertTerm(term IndexTerm, op string, i int) indexTerm {
	switch v := term.(type) {
	case indexAt:
		return indexTerm{Kind: ctorch.IndexAt, Start: int64(v)}
	case indexSlice:
		if v.steps > 1 {
			panic(newError(op, TypeError, fmt.Sprintf("argument 'terms[%d]' is a slice with %d steps", i, v.steps)))
		}
		return indexTerm{Kind: ctorch.IndexSlice, Start: v.start, Stop: v.stop, Step: v.step}
	case allTerm:
		return indexTerm{Kind: ctorch.IndexSlice, Stop: math.MaxInt64, Step: 1}
	case indexWord:
		return indexTerm{Kind: int64(v)}
	case indexBool:
		return indexTerm{Kind: ctorch.IndexBool, Start: boolInt(bool(v))}
	case Tensor:
		return indexTerm{Kind: ctorch.IndexTensor, Start: v.wordOfTerm(op, i)}
	case indexMask:
		return indexTerm{Kind: ctorch.IndexMask, Start: v.mask.wordOfTerm(op, i)}
	case indexInts:
		return indexTerm{Kind: ctorch.IndexInts, Start: int64(len(v)), Of: unsafe.Pointer(unsafe.SliceData(v))}
	case indexBools:
		return indexTerm{Kind: ctorch.IndexBools, Start: int64(len(v)), Of: unsafe.Pointer(unsafe.SliceData(v))}
	}
	panic(badTerm(op, i))
}

func (t Tensor) wordOfTerm(op string, i int) int64 {
	if t.T == nil {
		panic(badTensor(t, op, fmt.Sprintf("terms[%d]", i)))
	}
	return int64(uintptr(unsafe.Pointer(t.T)))
}

//go:noinline
func badTerm(op string, i int) *Error {
	return newError(op, TypeError, fmt.Sprintf("argument 'terms[%d]' is nil, where an IndexTerm is required", i))
}

//go:noinline
func badValue(t reflect.Type) *Error {
	if t == nil {
		return newError(putName, TypeError, "argument 'value' is nil, where a number or a Tensor is required")
	}
	return newError(putName, TypeError, "argument 'value' must be a Tensor or a Go integer, float, complex or bool, not "+t.String())
}

// keepTerms keeps alive what terms point to.
func keepTerms(terms []IndexTerm) { runtime.KeepAlive(unsafe.SliceData(terms)) }
