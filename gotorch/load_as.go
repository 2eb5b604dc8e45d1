package gotorch

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
)

// LoadAs is [Load] for a value whose type is known, so that no assertions are needed:
//
//	state, err := gotorch.LoadAs[map[string]gotorch.Tensor]("state.pt")
//	epochs, err := gotorch.LoadAs[map[string][]int](path)
//
//	type Checkpoint struct {
//		Model     map[string]gotorch.Tensor
//		Epoch     int
//		BestAcc   float64 `torch:"best_accuracy"`
//		Scheduler map[string]any `torch:",optional"`
//	}
//	checkpoint, err := gotorch.LoadAs[Checkpoint]("checkpoint.pt")
//
// Dicts become maps or structs, lists and tuples slices, and numbers Go's of any size, if they hold them; [Dict],
// [Tuple], [Tensor] and any take what is in the file as it is. A safetensors file is a map of tensors. An
// error of kind TypeError names the place of a value that is of another type, and one of kind ValueError
// that of a number that T does not hold.
//
// A field of a struct has the value whose key is the field's name, in any case, with or without underscores between
// words: BestAcc is BestAcc, bestacc or best_acc. Its tag may have another name; with "-" the field stays as it is. A
// key that is missing is an error of kind ValueError, unless the tag has optional; keys that no field has are left
// out. The attributes of a [PickledObject], such as an argparse.Namespace, become a map or struct, too.
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

// Assign puts a value that [Load] or [Operator.Call] has returned into the variable that to points to, as [LoadAs] does. place is what
// errors call the value. It is a TypeError if to is no pointer, and to stays as it is where there is an error.
func Assign(to any, value any, place string) error {
	v := reflect.ValueOf(to)
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return newError("Assign", TypeError, fmt.Sprintf("argument 'to' must be a pointer to a variable, not %T", to))
	}
	into := reflect.New(v.Type().Elem()).Elem()
	if err := assign(into, value, place); err != nil {
		return err
	}
	v.Elem().Set(into)
	return nil
}

// assign puts a value of a file into a variable. place says where in the file the value is.
func assign(to reflect.Value, v any, place string) error { return assignAt(to, v, place, 0) }

// assignAt is assign for a value within others. An object may contain itself, and so may a type.
func assignAt(to reflect.Value, v any, place string, depth int) error {
	if depth > maxDepth {
		return newError("LoadAs", ValueError, fmt.Sprintf("%.100s... is nested too deeply, or contains itself", place))
	}
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
		if err := assignAt(fresh.Elem(), v, place, depth+1); err != nil {
			return err
		}
		to.Set(fresh)
		return nil
	case reflect.Map:
		return assignMap(to, v, place, depth)
	case reflect.Slice:
		return assignSlice(to, v, place, depth)
	case reflect.Struct:
		if to.Type() == reflect.TypeFor[Tensor]() {
			return wrongType(to, pythonKind(v), place)
		}
		return assignStruct(to, v, place, depth)
	}
	return assignNumber(to, from, place)
}

func assignMap(to reflect.Value, v any, place string, depth int) error {
	d, ok := pairsOf(v)
	if !ok {
		return wrongType(to, pythonKind(v), place)
	}
	made := reflect.MakeMapWithSize(to.Type(), len(d))
	for _, item := range d {
		at := place + placeIn(item.Key)
		key, value := reflect.New(to.Type().Key()).Elem(), reflect.New(to.Type().Elem()).Elem()
		if err := assignAt(key, item.Key, "the key "+at, depth+1); err != nil {
			return err
		}
		if !key.Comparable() {
			return wrongType(key, pythonKind(item.Key), "the key "+at)
		}
		if err := assignAt(value, item.Value, at, depth+1); err != nil {
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

// pairsOf returns the pairs of a dict, the attributes of an object, or the tensors of a safetensors file.
func pairsOf(v any) (d Dict, ok bool) {
	switch v := v.(type) {
	case Dict:
		return v, true
	case map[string]Tensor:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			d = append(d, DictItem{name, v[name]})
		}
		return d, true
	case *PickledObject:
		if v.Pairs != nil {
			return v.Pairs, true
		}
		return v.attributes()
	}
	return nil, false
}

func assignStruct(to reflect.Value, v any, place string, depth int) error {
	d, ok := pairsOf(v)
	if !ok {
		return wrongType(to, pythonKind(v), place)
	}
	made := reflect.New(to.Type()).Elem()
	fields := 0
	for i := range made.NumField() {
		f := to.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("torch"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		fields++
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			if err := assignStruct(made.Field(i), d, place, depth); err != nil {
				return err
			}
			continue
		}
		if options != "" && options != "optional" {
			return newError("LoadAs", TypeError, fmt.Sprintf("the field %s of %s has the tag %q; it may have a name, and then optional", f.Name, to.Type(), f.Tag))
		}
		key, found, err := keyOfField(d, name, f.Name)
		switch {
		case err != nil:
			return newError("LoadAs", ValueError, fmt.Sprintf("%s: %v", place, err))
		case !found && options == "optional":
			continue
		case !found:
			if name == "" {
				name = f.Name
			}
			return newError("LoadAs", ValueError, fmt.Sprintf("%s has no %q for the field %s of %s; it has %s. A tag `torch:\",optional\"` lets it be missing", place, name, f.Name, to.Type(), someKeys(d)))
		}
		if err := assignAt(made.Field(i), d.Get(key), place+placeIn(key), depth+1); err != nil {
			return err
		}
	}
	if fields == 0 { // a struct that has nothing to do with the file
		return wrongType(to, pythonKind(v), place)
	}
	to.Set(made)
	return nil
}

// keyOfField returns the key that is meant for a field: the tag's name, or else that of the field.
func keyOfField(d Dict, tag, name string) (key string, found bool, err error) {
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }
	var like []string
	for _, item := range d {
		key, ok := item.Key.(string)
		switch {
		case !ok:
		case tag != "" && key == tag || tag == "" && key == name:
			return key, true, nil
		case tag == "" && plain(key) == plain(name):
			like = append(like, key)
		}
	}
	if len(like) > 1 {
		return "", false, fmt.Errorf("the keys %q are all meant by the field %s: give it a tag", like, name)
	}
	if len(like) == 1 {
		return like[0], true, nil
	}
	return "", false, nil
}

// someKeys names keys of a dict, for error messages.
func someKeys(d Dict) string {
	var keys []string
	for _, item := range d[:min(len(d), 10)] {
		keys = append(keys, strings.Trim(placeIn(item.Key), "[]"))
	}
	if len(d) > len(keys) {
		keys = append(keys, "...")
	}
	if len(keys) == 0 {
		return "no keys"
	}
	return strings.Join(keys, ", ")
}

func assignSlice(to reflect.Value, v any, place string, depth int) error {
	var list []any
	switch v := v.(type) {
	case []any:
		list = v
	case Tuple:
		list = v
	default:
		return wrongType(to, pythonKind(v), place)
	}
	made := reflect.MakeSlice(to.Type(), len(list), len(list))
	for i, element := range list {
		if err := assignAt(made.Index(i), element, fmt.Sprintf("%s[%d]", place, i), depth+1); err != nil {
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
		n, ok := from.Interface().(*big.Int)
		if !ok || !to.CanInt() && !to.CanUint() && !to.CanFloat() {
			return wrongType(to, pythonKind(from.Interface()), place)
		}
		if fits = n.IsUint64() && to.CanUint() && !to.OverflowUint(n.Uint64()); fits {
			to.SetUint(n.Uint64())
		}
	}
	if !fits {
		return newError("LoadAs", ValueError, fmt.Sprintf("%s is %v, which %s does not hold", place, from, to.Type()))
	}
	return nil
}

func wrongType(to reflect.Value, is, place string) error {
	return newError("LoadAs", TypeError, fmt.Sprintf("%s is %s, where %s is expected", place, is, to.Type()))
}
