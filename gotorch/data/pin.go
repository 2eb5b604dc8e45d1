package data

import (
	"reflect"

	"gotorch.dev/gotorch"
)

// pinned returns a batch with copies of its tensors in pinned memory.
func pinned[B any](batch B) (B, error) {
	if b, is := any(batch).(interface{ PinMemory() B }); is {
		return b.PinMemory(), nil
	}
	return gotorch.Try(func() B {
		return eachTensor(batch, func(t gotorch.Tensor) gotorch.Tensor { return t.PinMemory() })
	})
}

// eachTensor returns a value with what fn makes of each tensor in it: in exported fields, elements and what pointers lead to. The
// value itself is left as it is.
func eachTensor[V any](value V, fn func(gotorch.Tensor) gotorch.Tensor) (result V) {
	reflect.ValueOf(&result).Elem().Set(changed(reflect.ValueOf(&value).Elem(), fn))
	return result
}

func changed(v reflect.Value, fn func(gotorch.Tensor) gotorch.Tensor) reflect.Value {
	result := reflect.New(v.Type()).Elem()
	result.Set(v)
	switch {
	case v.Type() == tensorType:
		if t := v.Interface().(gotorch.Tensor); t.Defined() {
			return reflect.ValueOf(fn(t))
		}
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				result.Field(i).Set(changed(v.Field(i), fn))
			}
		}
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			result.Index(i).Set(changed(v.Index(i), fn))
		}
	case v.Kind() == reflect.Slice && !v.IsNil() && mayHaveTensors(v.Type().Elem()):
		result.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			result.Index(i).Set(changed(v.Index(i), fn))
		}
	case v.Kind() == reflect.Map && !v.IsNil():
		result.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for each := v.MapRange(); each.Next(); {
			result.SetMapIndex(each.Key(), changed(each.Value(), fn))
		}
	case v.Kind() == reflect.Interface && !v.IsNil():
		result.Set(changed(v.Elem(), fn))
	case v.Kind() == reflect.Pointer && !v.IsNil() && v.Type().Elem().Kind() == reflect.Struct:
		result.Set(reflect.New(v.Type().Elem()))
		result.Elem().Set(changed(v.Elem(), fn))
	}
	return result
}

// mayHaveTensors reports whether a value of a type may have a tensor in it.
func mayHaveTensors(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct, reflect.Array, reflect.Slice, reflect.Map, reflect.Interface, reflect.Pointer:
		return true
	}
	return false
}
