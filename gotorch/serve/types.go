package serve

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
)

// DataType is a type of elements as the protocol names it: "FP32".
type DataType string

// The protocol's types. BYTES are texts or other bytes of any length, which no [gotorch.Tensor] holds.
const (
	BOOL   DataType = "BOOL"
	UINT8  DataType = "UINT8"
	UINT16 DataType = "UINT16"
	UINT32 DataType = "UINT32"
	UINT64 DataType = "UINT64"
	INT8   DataType = "INT8"
	INT16  DataType = "INT16"
	INT32  DataType = "INT32"
	INT64  DataType = "INT64"
	FP16   DataType = "FP16"
	BF16   DataType = "BF16" // binary only: JSON has no form of it
	FP32   DataType = "FP32"
	FP64   DataType = "FP64"
	BYTES  DataType = "BYTES"
)

var dataTypes = []struct {
	name  DataType
	dtype gotorch.DType
	size  int
}{
	{BOOL, gotorch.Bool, 1}, {UINT8, gotorch.Uint8, 1}, {UINT16, gotorch.Uint16, 2}, {UINT32, gotorch.Uint32, 4},
	{UINT64, gotorch.Uint64, 8}, {INT8, gotorch.Int8, 1}, {INT16, gotorch.Int16, 2}, {INT32, gotorch.Int32, 4},
	{INT64, gotorch.Int64, 8}, {FP16, gotorch.Float16, 2}, {BF16, gotorch.BFloat16, 2}, {FP32, gotorch.Float32, 4},
	{FP64, gotorch.Float64, 8}, {BYTES, 0, 0},
}

// TypeOf returns the protocol's type for a dtype, and "" for those that it has none for, such as complex ones.
func TypeOf(d gotorch.DType) DataType {
	for _, t := range dataTypes {
		if t.dtype == d && d != 0 {
			return t.name
		}
	}
	return ""
}

// DType returns the dtype of tensors of type t; the zero DType for BYTES and what is no type.
func (t DataType) DType() gotorch.DType {
	for _, known := range dataTypes {
		if known.name == t {
			return known.dtype
		}
	}
	return 0
}

// Size returns the bytes that an element takes; 0 for BYTES and what is no type.
func (t DataType) Size() int {
	for _, known := range dataTypes {
		if known.name == t {
			return known.size
		}
	}
	return 0
}

func (t DataType) known() bool { return t == BYTES || t.Size() > 0 }

// Spec is what an input of a model must be like, or an output is.
type Spec struct {
	Name string
	Type DataType // "" of an output is unknown: each answer says its own
	// Shape has -1 for sizes that are open, the batch among them: [-1 1 8 8]. A nil Shape is any, of any number of
	// dimensions, which the protocol cannot say: clients see [-1].
	Shape []int64
}

// String returns "images FP32[-1 1 8 8]".
func (s Spec) String() string {
	t := s.Type
	if t == "" {
		t = "?"
	}
	if s.Shape == nil {
		return s.Name + " " + string(t) + "[...]"
	}
	return fmt.Sprintf("%s %s%v", s.Name, t, s.Shape)
}

// fits reports whether a shape is one of the spec's.
func (s Spec) fits(shape []int64) bool {
	if s.Shape == nil {
		return true
	}
	if len(s.Shape) != len(shape) {
		return false
	}
	for i, want := range s.Shape {
		if want >= 0 && want != shape[i] {
			return false
		}
	}
	return true
}

// Signature is what a model takes and returns, in order.
type Signature struct {
	Inputs, Outputs []Spec
}

func (s Signature) clone() Signature {
	of := func(specs []Spec) []Spec {
		specs = slices.Clone(specs)
		for i := range specs {
			specs[i].Shape = slices.Clone(specs[i].Shape)
		}
		return specs
	}
	return Signature{of(s.Inputs), of(s.Outputs)}
}

// check says what is wrong with a signature.
func (s Signature) check() error {
	for side, specs := range map[string][]Spec{"input": s.Inputs, "output": s.Outputs} {
		seen := map[string]bool{}
		for i, spec := range specs {
			switch {
			case spec.Name == "":
				return newError(InvalidArgument, "%s %d of the model's signature has no name", side, i)
			case seen[spec.Name]:
				return newError(InvalidArgument, "two %ss of the model's signature have the name %q", side, spec.Name)
			case !spec.Type.known() && !(spec.Type == "" && side == "output"):
				return newError(InvalidArgument, "%s %q of the model's signature has type %q, which is none of the protocol's",
					side, spec.Name, spec.Type)
			}
			for _, n := range spec.Shape {
				if n < -1 {
					return newError(InvalidArgument, "%s %q of the model's signature has shape %v: a size is -1 where it is open, and else not negative",
						side, spec.Name, spec.Shape)
				}
			}
			seen[spec.Name] = true
		}
	}
	if len(s.Outputs) == 0 {
		return newError(InvalidArgument, "the model's signature has no outputs")
	}
	return nil
}

// Value is an input or output: a tensor, or for type BYTES the elements, row by row, with their shape.
type Value struct {
	Name   string
	Tensor gotorch.Tensor
	Bytes  [][]byte // where Tensor is not defined
	Shape  []int64  // of Bytes; of a tensor it is the tensor's own
}

// Texts returns Bytes as strings.
func (v Value) Texts() []string {
	texts := make([]string, len(v.Bytes))
	for i, b := range v.Bytes {
		texts[i] = string(b)
	}
	return texts
}

// NewTexts returns a value of type BYTES. Without a shape it has one dimension.
func NewTexts(name string, texts []string, shape ...int64) Value {
	v := Value{Name: name, Bytes: make([][]byte, len(texts)), Shape: shape}
	if shape == nil {
		v.Shape = []int64{int64(len(texts))}
	}
	for i, text := range texts {
		v.Bytes[i] = []byte(text)
	}
	return v
}

// Parameters are what a request says besides its inputs: values of type bool, int64, uint64, float64 and string.
type Parameters map[string]any

// Request is what a [Model] is run on: the inputs of one request, or of several that were joined along the first
// dimension.
type Request struct {
	// Inputs are in the order of the signature, and fit it. They belong to the request: a model may change them, and
	// must not keep them, or views of them, beyond Run.
	Inputs []Value
	// Parameters are the same for all joined requests. What the server itself understands is not among them: priority,
	// timeout, and what says how data is encoded.
	Parameters Parameters
	// Rows are how many rows each of the joined requests has, in order; nil where the model has no [Batching].
	Rows []int
	// Sequences are what the joined requests belong to, one for each, in order; nil where the model has no [Sequences].
	Sequences []*Sequence
}

// Input returns the input of a name, and the zero Value where there is none.
func (r *Request) Input(name string) Value {
	for _, v := range r.Inputs {
		if v.Name == name {
			return v
		}
	}
	return Value{}
}

// Model is what a server runs. Its methods are called from several goroutines at once, of Run as many as the model
// has [Instances].
type Model interface {
	// Signature is asked for once, when the model is added.
	Signature() Signature

	// Run computes the outputs, in the order of the signature; names may be left out. It is called in a
	// [gotorch.Scope], which frees all tensors when their elements have been copied, and in inference mode, on a
	// goroutine that is locked to its thread: what waits long belongs elsewhere. It may panic with *gotorch.Error, as
	// what computes does.
	//
	// ctx ends when no client waits for the results any more, and when the server is closed by force. With [Batching],
	// all inputs and outputs have the batch as their first dimension. Requests that were joined and failed together are
	// each run again alone, so that only those fail that are wrong: see Batching.FailTogether.
	//
	// An [*Error] says what the client sees; any other error is an [Internal] one.
	Run(ctx context.Context, in *Request) ([]Value, error)
}

// elements returns how many elements a shape has, and false where it has a negative size or too many.
func elements(shape []int64) (int, bool) {
	n := uint64(1)
	empty := false
	for _, size := range shape {
		if size < 0 {
			return 0, false
		}
		if size == 0 {
			empty = true
			continue
		}
		high, low := bits.Mul64(n, uint64(size))
		if high != 0 || low > math.MaxInt64/16 { // times an element's size it is still an int
			return 0, false
		}
		n = low
	}
	if empty {
		return 0, true
	}
	return int(n), true
}

// shapeText returns "[2 3]".
func shapeText(shape []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, n := range shape {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatInt(n, 10))
	}
	b.WriteByte(']')
	return b.String()
}
