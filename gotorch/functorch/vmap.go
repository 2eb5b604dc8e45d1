package functorch

import (
	"math"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// None stands in [VMapOptions] for no dimension: of an argument that is the same for all elements of the batch,
// and of a result that is.
const None int64 = math.MinInt64

// VMapOptions are the arguments of [VMap] that have defaults.
type VMapOptions struct {
	// InDims has for each argument of the function the dimension that is mapped, counted from the end if
	// negative, or [None]. All tensors of an argument that is a tree share it; a variadic argument is as
	// many arguments as are given. Default: 0 for all.
	InDims []int64
	// OutDims has for each result the dimension in which the batch comes out, or [None]. Default: 0 for all.
	OutDims []int64
	// Randomness says what functions such as Randn and Dropout do inside: "error", "different" for each
	// element, or the "same" for all. Default: "error".
	Randomness string
	// ChunkSize is how many elements are computed at a time, to save memory. Default: all.
	ChunkSize gotorch.Scalar
}

// VMap returns a function that computes f for each element of a batch, with ops that work on the whole batch
// at once. f sees its arguments without the dimension that is mapped, and its results get it back. It may be
// any function of tensors, or trees of them, that returns such; what is returned has its type:
//
//	dot := func(x, y gotorch.Tensor) gotorch.Tensor { return x.Mul(y).Sum() }
//	functorch.VMap(dot)(xs, ys)                                                         // (n, d), (n, d) → (n)
//	functorch.VMap(dot, functorch.VMapOptions{InDims: []int64{functorch.None, 0}})(x, ys) // (d), (n, d) → (n)
//
// f must not ask for numbers, as Item does, nor let them decide what it does: that is a RuntimeError, and so
// is a random function unless the options allow it. In place it may change only what it has mapped as well.
// It panics with a TypeError if f is no function or has arguments that it cannot look into, and with a
// ValueError if the options do not fit f, the tensors' sizes differ, or f returns no tensors.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.vmap.html
func VMap[F any](f F, opts ...VMapOptions) F {
	const op = "VMap"
	fn := reflect.ValueOf(f)
	if !fn.IsValid() || fn.Kind() != reflect.Func {
		panic(typeError(op, "argument 'f' must be a function, not a %T", f))
	}
	notNil(op, fn.IsNil())
	t := fn.Type()
	if t.NumIn() == 0 {
		panic(valueError(op, "vmap over a function without arguments is unsupported"))
	}
	if t.NumOut() == 0 {
		panic(valueError(op, "f must return tensors, and has no results"))
	}
	for i := range t.NumOut() {
		if !holdsTensors(t.Out(i)) {
			panic(valueError(op, "f must only return Tensors, got type %v", t.Out(i)))
		}
	}
	opt := args.Option(opts)
	m := mapping{op: op, randomness: randomness(op, opt.Randomness), chunk: chunkSize(op, opt.ChunkSize)}
	if n := t.NumIn(); opt.InDims != nil && !t.IsVariadic() && len(opt.InDims) != n {
		panic(valueError(op, "InDims is not compatible with the structure of inputs: it has %d dimensions, and f %d arguments", len(opt.InDims), n))
	}
	if n := t.NumOut(); opt.OutDims != nil && len(opt.OutDims) != n {
		panic(valueError(op, "OutDims is not compatible with the structure of outputs: it has %d dimensions, and f %d results", len(opt.OutDims), n))
	}
	mapped := reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value { return m.call(fn, in, opt.InDims, opt.OutDims) })
	return mapped.Interface().(F)
}

func randomness(op, name string) int {
	switch name {
	case "", "error":
		return 0
	case "same":
		return randomnessSame
	case "different":
		return 2
	}
	panic(runtimeError(op, "Only allowed values for randomness are 'error', 'different', or 'same'. Got %s", name))
}

const randomnessSame = 1

// chunkSize returns 0 for one that is not given.
func chunkSize(op string, field gotorch.Scalar) int64 {
	n := args.IntPointer(op, "ChunkSize", field)
	if n == nil {
		return 0
	}
	if *n <= 0 {
		panic(valueError(op, "chunk_size should be greater than 0, got %d", *n))
	}
	return *n
}

// mapping is a VMap without its function.
type mapping struct {
	op         string
	randomness int
	chunk      int64
}

// call is what the function does that VMap returns.
func (m mapping) call(fn reflect.Value, in []reflect.Value, inDims, outDims []int64) []reflect.Value {
	t := fn.Type()
	if t.IsVariadic() { // each of them is an argument
		last := in[len(in)-1]
		in = in[: len(in)-1 : len(in)-1]
		for i := range last.Len() {
			in = append(in, last.Index(i))
		}
	}
	if inDims != nil && len(inDims) != len(in) {
		panic(valueError(m.op, "InDims is not compatible with the structure of inputs: it has %d dimensions, and there are %d arguments", len(inDims), len(in)))
	}
	var flat []gotorch.Tensor
	var dims []int64
	for i, v := range in {
		for _, leaf := range valueLeaves(m.op, v) {
			flat = append(flat, leaf)
			dims = append(dims, dimOf(inDims, i))
		}
	}
	var out []reflect.Value
	var outLeaves []int // of each result
	var outDimsFlat []int64
	results := m.run(flat, dims, func(batched []gotorch.Tensor) ([]gotorch.Tensor, []int64) {
		given := make([]reflect.Value, len(in))
		for i, v := range in {
			given[i] = fillValue(m.op, v, &batched)
		}
		out, outLeaves, outDimsFlat = fn.Call(given), nil, nil
		var flat []gotorch.Tensor
		for i, v := range out {
			found := valueLeaves(m.op, v)
			if len(found) == 0 {
				panic(valueError(m.op, "f must only return Tensors, and result %d, a %v, has none", i, v.Type()))
			}
			flat = append(flat, found...)
			outLeaves = append(outLeaves, len(found))
			for range found {
				outDimsFlat = append(outDimsFlat, dimOf(outDims, i))
			}
		}
		return flat, outDimsFlat
	})
	filled := make([]reflect.Value, len(out))
	for i, v := range out {
		filled[i] = fillValue(m.op, v, &results)
	}
	return filled
}

func dimOf(dims []int64, i int) int64 {
	if dims == nil {
		return 0
	}
	return dims[i]
}

func valueLeaves(op string, v reflect.Value) (found []gotorch.Tensor) {
	mapValue(op, v, func(t gotorch.Tensor) gotorch.Tensor {
		found = append(found, t)
		return t
	}, 0)
	return found
}

// fillValue is fill with tensors that it takes off a list.
func fillValue(op string, v reflect.Value, with *[]gotorch.Tensor) reflect.Value {
	filled := reflect.New(v.Type()).Elem() // of v's own type, where that is an interface
	filled.Set(mapValue(op, v, func(gotorch.Tensor) gotorch.Tensor {
		t := (*with)[0]
		*with = (*with)[1:]
		return t
	}, 0))
	return filled
}

// run maps fn along dims, which it makes positive. fn returns tensors, and where the batch goes in each.
func (m mapping) run(in []gotorch.Tensor, dims []int64, fn func([]gotorch.Tensor) ([]gotorch.Tensor, []int64)) []gotorch.Tensor {
	size := int64(-1)
	for i, t := range in {
		if dims[i] == None {
			continue
		}
		shape := t.Shape()
		if n := int64(len(shape)); dims[i] < -n || dims[i] >= n {
			panic(valueError(m.op, "Got in_dim=%d for some input, but that input is a Tensor of dimensionality %d so expected in_dim to satisfy -%d <= in_dim < %d.",
				dims[i], n, n, n))
		} else if dims[i] < 0 {
			dims[i] += n
		}
		switch s := shape[dims[i]]; {
		case size < 0:
			size = s
		case s != size:
			panic(valueError(m.op, "Expected all tensors to have the same size in the mapped dimension, got sizes %d and %d for the mapped dimension", size, s))
		}
	}
	if size < 0 {
		panic(valueError(m.op, "Expected at least one Tensor to vmap over"))
	}
	if m.chunk == 0 {
		return m.once(size, in, dims, fn)
	}
	return m.chunks(size, in, dims, fn)
}

func (m mapping) once(size int64, in []gotorch.Tensor, dims []int64, fn func([]gotorch.Tensor) ([]gotorch.Tensor, []int64)) []gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		level, leave := enter(m.op, ctorch.TransformVMap, size, m.randomness)
		defer leave()
		batched := make([]gotorch.Tensor, len(in))
		for i, t := range in {
			batched[i] = t
			if dims[i] != None {
				batched[i] = addBatchDim(m.op, t, dims[i], level)
			}
		}
		out, outDims := fn(batched)
		results := make([]gotorch.Tensor, len(out))
		for i, t := range out {
			if outDims[i] != None {
				results[i] = removeBatchDim(m.op, t, level, size, outDims[i])
				continue
			}
			if info := infoOf(t); info.Kind == ctorch.TransformVMap && info.Level >= level {
				panic(valueError(m.op, "f can not return a BatchedTensor when out_dim is None"))
			}
			results[i] = t
		}
		return results
	})
}

func (m mapping) chunks(size int64, in []gotorch.Tensor, dims []int64, fn func([]gotorch.Tensor) ([]gotorch.Tensor, []int64)) []gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		var outDims []int64
		noted := func(in []gotorch.Tensor) ([]gotorch.Tensor, []int64) {
			out, dims := fn(in)
			for _, d := range dims {
				if d == None {
					panic(valueError(m.op, "with ChunkSize each result needs an OutDim"))
				}
			}
			outDims = dims
			return out, dims
		}
		var state gotorch.Tensor
		if m.randomness == randomnessSame {
			state = gotorch.DefaultGenerator(gotorch.CPU).State()
		}
		var parts [][]gotorch.Tensor
		for start := int64(0); start < size; start += m.chunk {
			end := min(start+m.chunk, size)
			part := make([]gotorch.Tensor, len(in))
			for i, t := range in {
				part[i] = t
				if dims[i] != None {
					part[i] = t.Narrow(dims[i], start, end-start)
				}
			}
			if state.T != nil {
				gotorch.DefaultGenerator(gotorch.CPU).SetState(state)
			}
			parts = append(parts, m.once(end-start, part, dims, noted))
		}
		if len(parts) == 0 { // of an empty batch
			return m.once(size, in, dims, fn)
		}
		results := make([]gotorch.Tensor, len(parts[0]))
		for i := range results {
			var of []gotorch.Tensor
			for _, part := range parts {
				if len(part) != len(results) {
					panic(runtimeError(m.op, "f returned %d tensors for one chunk and %d for another", len(results), len(part)))
				}
				of = append(of, part[i])
			}
			results[i] = gotorch.Cat(of, gotorch.CatOptions{Dim: outDims[i]})
		}
		return results
	})
}
