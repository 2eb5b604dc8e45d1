package gotorch

import (
	"fmt"
	"math"
	"reflect"

	"gotorch.dev/gotorch/internal/door"
)

func init() { door.Assign = assign }

// LoadAs is [Load] for a value whose type is known, so that no assertions are needed:
//
//	state, err := gotorch.LoadAs[map[string]gotorch.Tensor]("state.pt")
//	epochs, err := gotorch.LoadAs[map[string][]int](path)
//
// Dicts become maps, lists and tuples slices, and numbers Go's of any size, if they hold them; [Dict],
// [Tuple], [Tensor] and any take what is in the file as it is. A safetensors file is a map of tensors. An
// error of kind TypeError names the place of a value that is of another type, and one of kind ValueError
// that of a number that T does not hold.
func LoadAs[T any](path string, opts ...LoadOptions) (result T, err error) {
	v, err := loadAny(path, opts)
	if err != nil {
		return result, err
	}
	var into T
	if err := assign(reflect.ValueOf(&into).Elem(), v, "the value"); err != nil {
		return result, err
	}
	return into, nil
}

// assign puts a value of a file into a variable. place says where in the file the value is.
func assign(to reflect.Value, v any, place string) error {
	from := reflect.ValueOf(v)
	if !from.IsValid() { // None
		switch to.Kind() {
		case reflect.Interface, reflect.Map, reflect.Slice, reflect.Pointer:
			to.SetZero()
			return nil
		}
		if to.Type() == reflect.TypeFor[Tensor]() {
			to.SetZero()
			return nil
		}
		return wrongType(to, "None", place)
	}
	if from.Type().AssignableTo(to.Type()) {
		to.Set(from)
		return nil
	}
	switch to.Kind() {
	case reflect.Pointer:
		fresh := reflect.New(to.Type().Elem())
		if err := assign(fresh.Elem(), v, place); err != nil {
			return err
		}
		to.Set(fresh)
		return nil
	case reflect.Map:
		return assignMap(to, v, place)
	case reflect.Slice:
		return assignSlice(to, v, place)
	}
	return assignNumber(to, from, place)
}

func assignMap(to reflect.Value, v any, place string) error {
	if m, ok := v.(map[string]Tensor); ok { // of a safetensors file
		d := make(Dict, 0, len(m))
		for key, t := range m {
			d = append(d, DictItem{key, t})
		}
		v = d
	}
	d, ok := v.(Dict)
	if !ok {
		return wrongType(to, fmt.Sprintf("%T", v), place)
	}
	made := reflect.MakeMapWithSize(to.Type(), len(d))
	for _, item := range d {
		at := fmt.Sprintf("%s[%#v]", place, item.Key)
		key, value := reflect.New(to.Type().Key()).Elem(), reflect.New(to.Type().Elem()).Elem()
		if err := assign(key, item.Key, "the key "+at); err != nil {
			return err
		}
		if !key.Comparable() {
			return wrongType(key, fmt.Sprintf("%T", item.Key), "the key "+at)
		}
		if err := assign(value, item.Value, at); err != nil {
			return err
		}
		if made.MapIndex(key).IsValid() {
			return newError("LoadAs", ValueError, "the key "+at+" is there twice as "+to.Type().Key().String())
		}
		made.SetMapIndex(key, value)
	}
	to.Set(made)
	return nil
}

func assignSlice(to reflect.Value, v any, place string) error {
	var list []any
	switch v := v.(type) {
	case []any:
		list = v
	case Tuple:
		list = v
	default:
		return wrongType(to, fmt.Sprintf("%T", v), place)
	}
	made := reflect.MakeSlice(to.Type(), len(list), len(list))
	for i, element := range list {
		if err := assign(made.Index(i), element, fmt.Sprintf("%s[%d]", place, i)); err != nil {
			return err
		}
	}
	to.Set(made)
	return nil
}

// assignNumber converts what keeps its value, and strings and bools to types that are made of them.
func assignNumber(to, from reflect.Value, place string) error {
	fits := true
	switch from.Kind() {
	case reflect.Int64:
		n := from.Int()
		switch {
		case to.CanInt():
			if fits = !to.OverflowInt(n); fits {
				to.SetInt(n)
			}
		case to.CanUint():
			if fits = n >= 0 && !to.OverflowUint(uint64(n)); fits {
				to.SetUint(uint64(n))
			}
		case to.CanFloat():
			f := float64(n)
			if to.Kind() == reflect.Float32 {
				f = float64(float32(n))
			}
			if fits = f < math.MaxInt64 && int64(f) == n; fits {
				to.SetFloat(f)
			}
		default:
			return wrongType(to, "int", place)
		}
	case reflect.Float64:
		if !to.CanFloat() {
			return wrongType(to, "float", place)
		}
		if fits = !to.OverflowFloat(from.Float()); fits {
			to.SetFloat(from.Float())
		}
	case reflect.Complex128:
		if !to.CanComplex() {
			return wrongType(to, "complex", place)
		}
		if fits = !to.OverflowComplex(from.Complex()); fits {
			to.SetComplex(from.Complex())
		}
	case reflect.String, reflect.Bool:
		if to.Kind() != from.Kind() {
			return wrongType(to, from.Kind().String(), place)
		}
		to.Set(from.Convert(to.Type()))
	default:
		return wrongType(to, from.Type().String(), place)
	}
	if !fits {
		return newError("LoadAs", ValueError, fmt.Sprintf("%s is %v, which %s does not hold", place, from, to.Type()))
	}
	return nil
}

func wrongType(to reflect.Value, is, place string) error {
	return newError("LoadAs", TypeError, fmt.Sprintf("%s is %s, where %s is expected", place, is, to.Type()))
}
