package nn_test

import (
	"errors"
	"fmt"
	"regexp"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// refusal is an error that says which field is meant.
var refusal = regexp.MustCompile(`(?i)\b(value|layers|v|weight)\b|embeds gotorch\.Tensor`)

type (
	defined       gotorch.Tensor
	embedding     struct{ gotorch.Tensor }
	embeddingPtr  struct{ *gotorch.Tensor }
	pairOf[T any] struct{ A, B T }
	box[T any]    struct {
		nn.Module
		Value T
	}
	hidden    struct{ Weight gotorch.Tensor }
	hiddenPtr struct{ Weight gotorch.Tensor }
	inner     struct {
		nn.Module
		Weight gotorch.Tensor
	}
	key string
)

// Tensors and modules in fields of any type are found, or refused by the field's name; nothing is passed over but
// what functions remember.
func TestFieldsAreFoundOrRefused(t *testing.T) {
	one := func() gotorch.Tensor { return gotorch.Ones([]int64{1}) }
	lin := func() *nn.LinearModule { return nn.Linear(1, 1) }
	t1 := one()
	found := map[string]string{
		"map[key]mod":               "[value.1.bias value.1.weight]",
		"[][]mod":                   "[value.0.0.bias value.0.0.weight value.2.0.bias value.2.0.weight]",
		"map[string][]mod":          "[value.x.0.bias value.x.0.weight]",
		"[]map[string]mod":          "[value.0.x.bias value.0.x.weight]",
		"map[string]map[string]mod": "[value.x.y.bias value.x.y.weight]",
		"map[string][]tensor":       "[value.a.0]",
		"map[string]any mod":        "[value.a.bias value.a.weight]",
		"any mod":                   "[value.bias value.weight]",
		"[2]inner":                  "[value.0.weight value.1.weight]",
		"[]inner":                   "[value.0.weight value.1.weight]",
		"StateDict type":            "[value.a]",
		"fmt.Stringer mod":          "[value.bias value.weight]",
		"embedded unexported":       "[weight]",
		"embedded unexported ptr":   "[weight]",
		"embedded slice":            "[layers.0.bias layers.0.weight]",
		"embedded map":              "[tensor_map.a]",
		"embedded iface any":        "[any.bias any.weight]",
		// Nothing to be found, or nothing that anybody could see.
		"any func": "[]", "func": "[]", "iter": "[]", "int slice": "[]", "error iface": "[]", "any of other things": "[]", "itself": "[]",
	}
	try := func(name string, fn func() nn.Modular) {
		t.Helper()
		var names []string
		err := gotorch.Try0(func() { names = nn.Clone(fn()).StateDict().Names() })
		want, is := found[name]
		switch {
		case is && (err != nil || fmt.Sprint(names) != want):
			t.Errorf("%s: %v, %v", name, names, err)
		case !is && (!errors.Is(err, gotorch.TypeError) || !refusal.MatchString(err.Error())):
			t.Errorf("%s is not refused by name: %v, %v", name, names, err)
		}
	}
	try("defined", func() nn.Modular { return nn.Init(&box[defined]{Value: defined(one())}) })
	try("embedding", func() nn.Modular { return nn.Init(&box[embedding]{Value: embedding{one()}}) })
	try("embeddingPtr", func() nn.Modular { return nn.Init(&box[embeddingPtr]{Value: embeddingPtr{&t1}}) })
	try("*tensor", func() nn.Modular { return nn.Init(&box[*gotorch.Tensor]{Value: &t1}) })
	try("[]*tensor", func() nn.Modular { return nn.Init(&box[[]*gotorch.Tensor]{Value: []*gotorch.Tensor{&t1}}) })
	try("[]defined", func() nn.Modular { return nn.Init(&box[[]defined]{Value: []defined{defined(one())}}) })
	try("map[string]defined", func() nn.Modular {
		return nn.Init(&box[map[string]defined]{Value: map[string]defined{"a": defined(one())}})
	})
	try("map[int]mod", func() nn.Modular {
		return nn.Init(&box[map[int]*nn.LinearModule]{Value: map[int]*nn.LinearModule{1: lin()}})
	})
	try("map[key]mod", func() nn.Modular {
		return nn.Init(&box[map[key]*nn.LinearModule]{Value: map[key]*nn.LinearModule{"1": lin()}})
	})
	try("[][]mod", func() nn.Modular { return nn.Init(&box[[][]nn.Layer]{Value: [][]nn.Layer{{lin()}, nil, {lin()}}}) })
	try("map[string][]mod", func() nn.Modular {
		return nn.Init(&box[map[string][]nn.Layer]{Value: map[string][]nn.Layer{"x": {lin()}}})
	})
	try("[]map[string]mod", func() nn.Modular {
		return nn.Init(&box[[]map[string]nn.Layer]{Value: []map[string]nn.Layer{{"x": lin()}}})
	})
	try("map[string]map[string]mod", func() nn.Modular {
		return nn.Init(&box[map[string]map[string]nn.Layer]{Value: map[string]map[string]nn.Layer{"x": {"y": lin()}}})
	})
	try("map[string][1]tensor", func() nn.Modular {
		return nn.Init(&box[map[string][1]gotorch.Tensor]{Value: map[string][1]gotorch.Tensor{"a": {one()}}})
	})
	try("map[string][]tensor", func() nn.Modular {
		return nn.Init(&box[map[string][]gotorch.Tensor]{Value: map[string][]gotorch.Tensor{"a": {one()}}})
	})
	try("map[string]modstruct", func() nn.Modular { return nn.Init(&box[map[string]inner]{}) })
	try("map[mod]string", func() nn.Modular {
		return nn.Init(&box[map[*nn.LinearModule]string]{Value: map[*nn.LinearModule]string{lin(): "a"}})
	})
	try("map[any]any", func() nn.Modular { return nn.Init(&box[map[any]any]{Value: map[any]any{1: lin()}}) })
	try("map[string]any mod", func() nn.Modular { return nn.Init(&box[map[string]any]{Value: map[string]any{"a": lin()}}) })
	try("map[string]any tensor", func() nn.Modular { return nn.Init(&box[map[string]any]{Value: map[string]any{"a": one()}}) })
	try("any mod", func() nn.Modular { return nn.Init(&box[any]{Value: lin()}) })
	try("any modstruct", func() nn.Modular { return nn.Init(&box[any]{Value: inner{}}) })
	try("any tensor", func() nn.Modular { return nn.Init(&box[any]{Value: one()}) })
	try("any *tensor", func() nn.Modular { return nn.Init(&box[any]{Value: &t1}) })
	try("any []mod", func() nn.Modular { return nn.Init(&box[any]{Value: []nn.Layer{lin()}}) })
	try("any map[int]mod", func() nn.Modular { return nn.Init(&box[any]{Value: map[int]nn.Layer{1: lin()}}) })
	try("any struct with mod", func() nn.Modular { return nn.Init(&box[any]{Value: struct{ L nn.Layer }{lin()}}) })
	try("any struct with tensor", func() nn.Modular { return nn.Init(&box[any]{Value: hidden{one()}}) })
	try("any *struct with tensor", func() nn.Modular { return nn.Init(&box[any]{Value: &hidden{one()}}) })
	try("any []any", func() nn.Modular { return nn.Init(&box[any]{Value: []any{lin(), one()}}) })
	try("any pair any", func() nn.Modular { return nn.Init(&box[any]{Value: pairOf[any]{lin(), nil}}) })
	try("any chan", func() nn.Modular { return nn.Init(&box[any]{Value: make(chan gotorch.Tensor)}) })
	try("any func", func() nn.Modular { return nn.Init(&box[any]{Value: func() gotorch.Tensor { return t1 }}) })
	try("chan", func() nn.Modular { return nn.Init(&box[chan gotorch.Tensor]{}) })
	try("chan mod", func() nn.Modular { return nn.Init(&box[chan nn.Layer]{}) })
	try("func", func() nn.Modular { return nn.Init(&box[func(gotorch.Tensor) gotorch.Tensor]{}) })
	try("pair tensor", func() nn.Modular { return nn.Init(&box[pairOf[gotorch.Tensor]]{}) })
	try("pair mod", func() nn.Modular { return nn.Init(&box[pairOf[nn.Layer]]{}) })
	try("pair any mod", func() nn.Modular { return nn.Init(&box[pairOf[any]]{Value: pairOf[any]{A: lin()}}) })
	try("*pair any mod", func() nn.Modular { return nn.Init(&box[*pairOf[any]]{Value: &pairOf[any]{A: lin()}}) })
	try("**mod", func() nn.Modular { l := lin(); return nn.Init(&box[**nn.LinearModule]{Value: &l}) })
	try("*iface", func() nn.Modular { var l nn.Layer = lin(); return nn.Init(&box[*nn.Layer]{Value: &l}) })
	try("*[]mod", func() nn.Modular { return nn.Init(&box[*[]nn.Layer]{Value: &[]nn.Layer{lin()}}) })
	try("[]struct{mod}", func() nn.Modular {
		return nn.Init(&box[[]struct{ L nn.Layer }]{Value: []struct{ L nn.Layer }{{lin()}}})
	})
	try("[2]inner", func() nn.Modular { return nn.Init(&box[[2]inner]{Value: [2]inner{{Weight: one()}, {Weight: one()}}}) })
	try("[]inner", func() nn.Modular { return nn.Init(&box[[]inner]{Value: []inner{{Weight: one()}, {Weight: one()}}}) })
	try("StateDict type", func() nn.Modular { return nn.Init(&box[nn.StateDict]{Value: nn.StateDict{"a": one()}}) })
	try("error iface", func() nn.Modular { return nn.Init(&box[error]{}) })
	try("fmt.Stringer mod", func() nn.Modular { return nn.Init(&box[fmt.Stringer]{Value: lin()}) })
	try("embedded unexported", func() nn.Modular {
		return nn.Init(&struct {
			nn.Module
			hidden
		}{hidden: hidden{one()}})
	})
	try("embedded unexported ptr", func() nn.Modular {
		return nn.Init(&struct {
			nn.Module
			*hiddenPtr
		}{hiddenPtr: &hiddenPtr{one()}})
	})
	try("embedded defined", func() nn.Modular {
		return nn.Init(&struct {
			nn.Module
			defined
		}{defined: defined(one())})
	})
	try("embedded slice", func() nn.Modular { return nn.Init(&embedsSlice{Layers: Layers{lin()}}) })
	try("embedded map", func() nn.Modular { return nn.Init(&embedsMap{TensorMap: TensorMap{"a": one()}}) })
	try("embedded layers lower", func() nn.Modular { return nn.Init(&embedsLower{layers: layers{lin()}}) })
	try("embedded iface any", func() nn.Modular { return nn.Init(&embedsAny{Any: lin()}) })
	try("unexported any mod", func() nn.Modular {
		return nn.Init(&struct {
			nn.Module
			v any
		}{v: lin()})
	})
	try("unexported []any mod", func() nn.Modular {
		return nn.Init(&struct {
			nn.Module
			v []any
		}{v: []any{lin()}})
	})
	try("shadowed", func() nn.Modular {
		return nn.Init(&shadowing{hidden: hidden{one()}, Weight: one()})
	})
	try("ambiguous", func() nn.Modular {
		return nn.Init(&ambiguous{hidden: hidden{one()}, hiddenPtr2: hiddenPtr2{one()}})
	})
	try("iter", func() nn.Modular { return nn.Init(&box[func(func(gotorch.Tensor) bool)]{}) })
	try("any of other things", func() nn.Modular {
		return nn.Init(&box[any]{Value: map[any]any{1: []any{"a", nil, &struct{ Next any }{3}, errors.New("x")}}})
	})
	try("itself", func() nn.Modular {
		ring := []any{nil}
		ring[0] = ring
		return nn.Init(&box[any]{Value: ring})
	})
	try("deep", func() nn.Modular {
		return nn.Init(&box[any]{Value: []any{&struct{ Next any }{map[string]any{}}, map[any]any{1: [1]any{&struct{ Next any }{one()}}}}})
	})
	try("int slice", func() nn.Modular { return nn.Init(&box[[]int]{Value: []int{1}}) })
}

type Layers []nn.Layer
type layers []nn.Layer
type TensorMap map[string]gotorch.Tensor
type Any interface{}
type embedsSlice struct {
	nn.Module
	Layers
}
type embedsMap struct {
	nn.Module
	TensorMap
}
type embedsLower struct {
	nn.Module
	layers
}
type embedsAny struct {
	nn.Module
	Any
}
type hiddenPtr2 struct{ Weight gotorch.Tensor }
type shadowing struct {
	nn.Module
	hidden
	Weight gotorch.Tensor
}
type ambiguous struct {
	nn.Module
	hidden
	hiddenPtr2
}
