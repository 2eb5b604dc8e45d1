package data

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// DefaultCollate joins samples to a batch of another type, field by field, as torch.utils.data.default_collate does:
//
//	type Sample struct {            type Batch struct {
//		Image   gotorch.Tensor          Image   gotorch.Tensor // one dimension more, by Stack
//		Label   int                     Label   gotorch.Tensor // int64, one for each sample
//		Tokens  []int64                 Tokens  data.Padded    // as long as the longest
//		File    string                  File    []string
//	}                               }
//
//	loader := data.NewLoaderWith(set, data.DefaultCollate[Sample, Batch], data.LoaderOptions{BatchSize: 64})
//
// What a sample has, and what a batch has of it:
//
//   - a Tensor: a Tensor, or a [Padded] if the sizes of the first dimension differ
//   - a number or bool: a Tensor of one dimension and the dtype of Go's type (int is int64), or a slice of the same type
//   - a slice or array of numbers: a Tensor of two dimensions, or a Padded
//   - a string or []byte: a slice of them
//   - a struct: a struct that has each of its exported fields by the same name, or a pointer to one
//   - a map: a map with the keys of the first sample, which the others must have
//   - another slice or array: a slice, of what is made of the elements at each place; all must be equally long
//   - a type with a method Collate([]T) (T, error): the same type, by that method
//   - an interface: an interface, where numbers become tensors, texts slices, and the rest as above
//
// It returns a TypeError if B cannot be made of S, a KeyError if a key is missing, and a RuntimeError if lengths or shapes
// differ. A sample must not be empty: there is no batch of none.
//
// See https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.default_collate.
func DefaultCollate[S, B any](samples []S) (batch B, err error) {
	join, err := joinerOf(reflect.TypeFor[S](), reflect.TypeFor[B]())
	if err != nil {
		return batch, err
	}
	if len(samples) == 0 {
		return batch, &gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.ValueError, Msg: "there are no samples to join"}
	}
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.err
		default:
			panic(v)
		}
	}()
	return gotorch.Try(func() (batch B) {
		join(rows{reflect.ValueOf(samples)}, reflect.ValueOf(&batch).Elem())
		return batch
	})
}

// Padded is a batch of sequences that are not equally long.
type Padded struct {
	Values  gotorch.Tensor // (N, T, *), of zeros where a sequence is shorter than the longest
	Lengths gotorch.Tensor // (N), of int64
}

// PadOptions are the arguments of [Pad] that have defaults.
type PadOptions struct {
	PaddingValue float64 // what is put where a sequence has nothing
	PaddingSide  string  // "right" or "left": where that is; default: "right"
}

// Pad joins sequences of (T, *), whose lengths T differ, to a batch. It is torch.nn.utils.rnn.pad_sequence with
// batch_first=True and the lengths, which nn/utils/rnn.PackPaddedSequence takes. As a function for [NewLoaderWith]:
//
//	func(samples []gotorch.Tensor) (data.Padded, error) { return data.Pad(samples) }
//
// It returns a ValueError if there are no sequences, and a RuntimeError if they differ in more than their lengths.
func Pad(sequences []gotorch.Tensor, opts ...PadOptions) (Padded, error) {
	return gotorch.Try(func() Padded { return pad(sequences, args.Option(opts)) })
}

func pad(sequences []gotorch.Tensor, o PadOptions) Padded {
	const op = "data.Pad"
	if len(sequences) == 0 {
		panic(&gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: "there are no sequences to join"})
	}
	lengths := make([]int64, len(sequences))
	for i, t := range sequences {
		if t.Dim() == 0 {
			panic(&gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: fmt.Sprintf("sequence %d has no dimensions", i)})
		}
		lengths[i] = t.Size(0)
	}
	values := gotorch.PadSequence(sequences, gotorch.PadSequenceOptions{BatchFirst: true, PaddingValue: o.PaddingValue, PaddingSide: o.PaddingSide})
	return Padded{values, gotorch.FromSlice(lengths)}
}

// Mask returns a bool tensor (N, T) that is true where there is something of a sequence, for sequences that begin at the
// left.
func (p Padded) Mask() gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		places := gotorch.Arange(p.Values.Size(1), gotorch.TensorOptions{Device: p.Lengths.Device()})
		return places.Unsqueeze(0).Lt(p.Lengths.Unsqueeze(1))
	})
}

// To returns the batch on another device.
func (p Padded) To(device gotorch.Device) Padded {
	return Padded{p.Values.To(device), p.Lengths.To(device)}
}

// Len returns the number of sequences.
func (p Padded) Len() int { return int(p.Lengths.Size(0)) }

// Close frees both tensors now rather than when the collector finds them.
func (p Padded) Close() {
	p.Values.Close()
	p.Lengths.Close()
}

// collater is what a sample type has that can be joined to batches.
type collater[S any] interface {
	Collate(samples []S) (S, error)
}

// collate joins samples to a batch of the same type.
func collate[S any](samples []S) (S, error) {
	var none S
	switch kind := any(none).(type) {
	case collater[S]:
		return kind.Collate(samples)
	case gotorch.Tensor:
		stacked, err := gotorch.Try(func() gotorch.Tensor { return gotorch.Stack(any(samples).([]gotorch.Tensor)) })
		return any(stacked).(S), err
	}
	t := reflect.TypeFor[S]()
	if _, err := joinerOf(t, t); err != nil {
		return none, &gotorch.Error{Op: "data.Loader", Kind: gotorch.TypeError, Msg: fmt.Sprintf(
			"samples of type %v cannot be joined to a batch of the same type: %s. Use data.NewLoaderWith with data.DefaultCollate and another type of batch or with a function of your own, "+
				"or give the type a method Collate([]%[1]v) (%[1]v, error)", t, why(err))}
	}
	return DefaultCollate[S, S](samples)
}

// why is the text of an error without its kind.
func why(err error) string {
	if e, is := errors.AsType[*gotorch.Error](err); is && error(e) == err {
		return e.Msg
	}
	return err.Error()
}

// How to join ---------------------------------------------------------------------------------------

// rows are the values that are joined: a slice of them, or the part of each that a path leads to.
type rows struct{ values reflect.Value }

func (r rows) len() int               { return r.values.Len() }
func (r rows) at(i int) reflect.Value { return r.values.Index(i) }

// of returns what part has of each.
func (r rows) of(t reflect.Type, part func(i int, v reflect.Value) reflect.Value) rows {
	parts := reflect.MakeSlice(reflect.SliceOf(t), r.len(), r.len())
	for i := range r.len() {
		parts.Index(i).Set(part(i, r.at(i)))
	}
	return rows{parts}
}

// A joiner puts what it makes of values into an addressable one. It panics with an *Error.
type joiner func(values rows, into reflect.Value)

type joinerKey struct{ from, to reflect.Type }

type foundJoiner struct {
	join joiner
	err  error
}

var joiners sync.Map // of foundJoiner by joinerKey

// joinerOf returns what makes a value of type to of values of type from.
func joinerOf(from, to reflect.Type) (joiner, error) {
	key := joinerKey{from, to}
	if found, is := joiners.Load(key); is {
		f := found.(foundJoiner)
		return f.join, f.err
	}
	f := foundJoiner{}
	f.join, f.err = findJoiner(from, to, nil)
	joiners.Store(key, f)
	return f.join, f.err
}

var (
	tensorType = reflect.TypeFor[gotorch.Tensor]()
	paddedType = reflect.TypeFor[Padded]()
	errorType  = reflect.TypeFor[error]()
	anyType    = reflect.TypeFor[any]()
)

func cannot(from, to reflect.Type, why string) error {
	if why == "" {
		why = ": " + becomes(from)
	}
	return &gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.TypeError, Msg: fmt.Sprintf("values of type %v cannot be joined to one of type %v%s", from, to, why)}
}

// becomes says what a batch may have of values of a type.
func becomes(t reflect.Type) string {
	switch {
	case t == tensorType:
		return "they become a gotorch.Tensor or a data.Padded"
	case isNumber(t):
		return fmt.Sprintf("they become a gotorch.Tensor or a %v", reflect.SliceOf(t))
	case t.Kind() == reflect.String:
		return fmt.Sprintf("they become a %v", reflect.SliceOf(t))
	case isBytes(t):
		return fmt.Sprintf("they become a %v, a gotorch.Tensor or a data.Padded", reflect.SliceOf(t))
	case isList(t) && isNumber(t.Elem()):
		return "they become a gotorch.Tensor or a data.Padded"
	case isList(t):
		return "they become a slice"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return "they become a struct that has the same fields"
	case t.Kind() == reflect.Map:
		return fmt.Sprintf("they become a map with keys of type %v", t.Key())
	}
	return "there is no batch of such values"
}

func isNumber(t reflect.Type) bool {
	return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128 && t.Kind() != reflect.Uintptr
}

func isList(t reflect.Type) bool { return t.Kind() == reflect.Slice || t.Kind() == reflect.Array }

// findJoiner is joinerOf; within are the types around, which must not come again.
func findJoiner(from, to reflect.Type, within []reflect.Type) (joiner, error) {
	for _, t := range within {
		if t == from {
			return nil, cannot(from, to, ", which have themselves within")
		}
	}
	within = append(within[:len(within):len(within)], from)
	if from == to {
		if m, is := from.MethodByName("Collate"); is && m.Type.NumIn() == 2 && m.Type.NumOut() == 2 &&
			m.Type.In(1) == reflect.SliceOf(from) && m.Type.Out(0) == to && m.Type.Out(1) == errorType {
			return byMethod(from, m.Index), nil
		}
	}
	switch {
	case from == tensorType && to == tensorType:
		return stackTensors, nil
	case from == tensorType && to == paddedType:
		return padTensors, nil
	case from == tensorType:
		return nil, cannot(from, to, "")
	case to.Kind() == reflect.Interface && to.NumMethod() == 0:
		return joinDynamic, nil
	case from.Kind() == reflect.Interface:
		return nil, cannot(from, to, ": an interface becomes an interface{}")
	case isNumber(from) && to == tensorType:
		return numbersToTensor, nil
	case to == reflect.SliceOf(from) && (isNumber(from) || from.Kind() == reflect.String || isBytes(from)):
		return list, nil
	case isList(from) && isNumber(from.Elem()) && to == tensorType:
		return ofLists(stackTensors, false), nil
	case isList(from) && isNumber(from.Elem()) && to == paddedType:
		return ofLists(padTensors, true), nil
	case isList(from) && isNumber(from.Elem()) && isList(to) && isNumber(to.Elem()):
		return nil, cannot(from, to, "")
	case from.Kind() == reflect.Pointer && from.Elem().Kind() == reflect.Struct:
		return pointers(from, to, within)
	case from.Kind() == reflect.Struct && to.Kind() == reflect.Struct:
		return structs(from, to, within)
	case from.Kind() == reflect.Map && to.Kind() == reflect.Map && from.Key() == to.Key():
		return mapsOf(from, to, within)
	case isList(from) && to.Kind() == reflect.Slice:
		return transposed(from, to, within)
	}
	return nil, cannot(from, to, "")
}

func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

func byMethod(t reflect.Type, method int) joiner {
	return func(values rows, into reflect.Value) {
		out := reflect.Zero(t).Method(method).Call([]reflect.Value{values.values})
		if err, _ := out[1].Interface().(error); err != nil {
			panic(failure{err: err})
		}
		into.Set(out[0])
	}
}

// inPlace is a joiner whose errors say of what they are.
func inPlace(join joiner, what string) joiner {
	return func(values rows, into reflect.Value) {
		defer func() {
			switch v := recover().(type) {
			case nil:
			case failure:
				if v.placed {
					v.err = fmt.Errorf("%s: %w", what, v.err)
				}
				panic(v)
			case *gotorch.Error:
				panic(failure{fmt.Errorf("%s: %w", what, v), true})
			default:
				panic(v)
			}
		}()
		join(values, into)
	}
}

// failure is the error of a method Collate, or of finding out how to join, on its way to DefaultCollate.
type failure struct {
	err    error
	placed bool // it says in what of the samples it is
}

func tensorsOf(values rows) []gotorch.Tensor { return values.values.Interface().([]gotorch.Tensor) }

func stackTensors(values rows, into reflect.Value) {
	into.Set(reflect.ValueOf(gotorch.Stack(tensorsOf(values))))
}

func padTensors(values rows, into reflect.Value) {
	into.Set(reflect.ValueOf(pad(tensorsOf(values), PadOptions{})))
}

// numbersToTensor makes a tensor of a slice of numbers.
func numbersToTensor(values rows, into reflect.Value) {
	into.Set(reflect.ValueOf(gotorch.NewTensor(values.values.Interface())))
}

// ofLists joins lists of numbers as tensors, which may differ in length where they are padded.
func ofLists(join joiner, padded bool) joiner {
	return func(values rows, into reflect.Value) {
		for i := range values.len() {
			if n, first := values.at(i).Len(), values.at(0).Len(); n != first && !padded {
				panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
					"each element in list of batch should be of equal size: sample 0 has a list of %d, and sample %d one of %d; a data.Padded in the batch takes both", first, i, n)})
			}
		}
		tensors := values.of(tensorType, tensorOf)
		defer gotorch.Tensors(tensorsOf(tensors)).Close()
		join(tensors, into)
	}
}

// tensorOf makes a tensor of a list of numbers.
func tensorOf(_ int, v reflect.Value) reflect.Value {
	if v.Kind() == reflect.Slice && v.IsNil() {
		v = reflect.MakeSlice(v.Type(), 0, 0)
	}
	return reflect.ValueOf(gotorch.NewTensor(v.Interface()))
}

func list(values rows, into reflect.Value) {
	all := reflect.MakeSlice(into.Type(), values.len(), values.len())
	reflect.Copy(all, values.values)
	into.Set(all)
}

func pointers(from, to reflect.Type, within []reflect.Type) (joiner, error) {
	pointer := to.Kind() == reflect.Pointer
	target := to
	if pointer {
		target = to.Elem()
	}
	inner, err := findJoiner(from.Elem(), target, within)
	if err != nil {
		return nil, err
	}
	return func(values rows, into reflect.Value) {
		if pointer {
			into.Set(reflect.New(target))
			into = into.Elem()
		}
		inner(values.of(from.Elem(), func(i int, v reflect.Value) reflect.Value {
			if v.IsNil() {
				panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.ValueError, Msg: fmt.Sprintf("sample %d of the batch is nil", i)})
			}
			return v.Elem()
		}), into)
	}, nil
}

func structs(from, to reflect.Type, within []reflect.Type) (joiner, error) {
	type field struct {
		from, to int
		t        reflect.Type
		join     joiner
	}
	var fields []field
	for i := range from.NumField() {
		f := from.Field(i)
		if !f.IsExported() {
			return nil, cannot(from, to, fmt.Sprintf(": the field %s is not exported", f.Name))
		}
		into, is := to.FieldByName(f.Name)
		if !is || len(into.Index) != 1 || !into.IsExported() {
			return nil, cannot(from, to, fmt.Sprintf(": the batch has no field %s", f.Name))
		}
		join, err := findJoiner(f.Type, into.Type, within)
		if err != nil {
			return nil, fmt.Errorf("the field %s of %v: %w", f.Name, from, err)
		}
		fields = append(fields, field{i, into.Index[0], f.Type, inPlace(join, fmt.Sprintf("the field %s", f.Name))})
	}
	if len(fields) == 0 {
		return nil, cannot(from, to, ", which have no fields")
	}
	return func(values rows, into reflect.Value) {
		for _, f := range fields {
			f.join(values.of(f.t, func(_ int, v reflect.Value) reflect.Value { return v.Field(f.from) }), into.Field(f.to))
		}
	}, nil
}

func mapsOf(from, to reflect.Type, within []reflect.Type) (joiner, error) {
	inner, err := findJoiner(from.Elem(), to.Elem(), within)
	if err != nil {
		return nil, err
	}
	return func(values rows, into reflect.Value) {
		joined := reflect.MakeMap(to)
		for _, key := range values.at(0).MapKeys() {
			value := reflect.New(to.Elem()).Elem()
			inPlace(inner, fmt.Sprintf("the key %v", key))(values.of(from.Elem(), func(i int, v reflect.Value) reflect.Value {
				one := v.MapIndex(key)
				if !one.IsValid() {
					panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.KeyError, Msg: fmt.Sprintf("sample %d of the batch has no %v, which the first has", i, key)})
				}
				return one
			}), value)
			joined.SetMapIndex(key, value)
		}
		into.Set(joined)
	}, nil
}

func transposed(from, to reflect.Type, within []reflect.Type) (joiner, error) {
	inner, err := findJoiner(from.Elem(), to.Elem(), within)
	if err != nil {
		return nil, err
	}
	return func(values rows, into reflect.Value) {
		n := values.at(0).Len()
		for i := range values.len() {
			if values.at(i).Len() != n {
				panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
					"each element in list of batch should be of equal size: there are lists of %d and %d", n, values.at(i).Len())})
			}
		}
		joined := reflect.MakeSlice(to, n, n)
		for k := range n {
			inner(values.of(from.Elem(), func(_ int, v reflect.Value) reflect.Value { return v.Index(k) }), joined.Index(k))
		}
		into.Set(joined)
	}, nil
}

// joinDynamic joins to whatever the values' own type becomes.
func joinDynamic(values rows, into reflect.Value) {
	t := values.values.Type().Elem()
	if t.Kind() == reflect.Interface {
		first := values.at(0).Elem()
		if !first.IsValid() {
			panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.TypeError, Msg: "sample 0 of the batch is nil"})
		}
		t = first.Type()
		values = values.of(t, func(i int, v reflect.Value) reflect.Value {
			v = v.Elem()
			switch {
			case !v.IsValid():
				panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.TypeError, Msg: fmt.Sprintf("sample 0 of the batch is a %v, and sample %d is nil", t, i)})
			case v.Type() != t:
				panic(&gotorch.Error{Op: "data.DefaultCollate", Kind: gotorch.TypeError, Msg: fmt.Sprintf(
					"samples are of different types: sample 0 of the batch is a %v, and sample %d a %v", t, i, v.Type())})
			}
			return v
		})
	}
	to := dynamicType(t)
	join, err := joinerOf(t, to)
	if err != nil {
		panic(failure{err: err})
	}
	joined := reflect.New(to).Elem()
	join(values, joined)
	into.Set(joined)
}

// dynamicType returns what a batch of samples of type t is where nobody says it.
func dynamicType(t reflect.Type) reflect.Type {
	switch {
	case isNumber(t), isList(t) && isNumber(t.Elem()) && !isBytes(t):
		return tensorType
	case t.Kind() == reflect.String, isBytes(t):
		return reflect.SliceOf(t)
	case t == tensorType:
		return t
	case t.Kind() == reflect.Map:
		return reflect.MapOf(t.Key(), dynamicType(t.Elem()))
	case isList(t):
		return reflect.SliceOf(dynamicType(t.Elem()))
	case t.Kind() == reflect.Interface:
		return anyType
	}
	return t
}
