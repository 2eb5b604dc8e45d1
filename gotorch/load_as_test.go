package gotorch_test

import (
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

func saved(t *testing.T, value any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "v.pt")
	if err := gotorch.Save(path, value); err != nil {
		t.Fatal(err)
	}
	return path
}

func loadsAs[T any](t *testing.T, value any, want T) {
	t.Helper()
	if got, err := gotorch.LoadAs[T](saved(t, value)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %#v, %v, want %#v", got, err, want)
	}
}

func failsAs[T any](t *testing.T, value any, kind gotorch.ErrorKind, said string) {
	t.Helper()
	if got, err := gotorch.LoadAs[T](saved(t, value)); !errors.Is(err, kind) || !strings.Contains(err.Error(), said) {
		t.Errorf("got %#v, %v, want %v: %s", got, err, kind, said)
	}
}

func TestFilesAsATypeThatIsKnown(t *testing.T) {
	type name string
	loadsAs(t, map[string]any{"a": []any{1, 2}, "b": gotorch.Tuple{3}}, map[string][]int{"a": {1, 2}, "b": {3}})
	loadsAs(t, map[string]any{"lr": 0.5}, map[name]float32{"lr": 0.5})
	loadsAs(t, map[string]any{"n": 3, "s": "x", "no": nil}, map[string]any{"n": int64(3), "s": "x", "no": nil})
	loadsAs(t, []any{true, false}, []bool{true, false})
	loadsAs(t, 5, uint8(5))
	loadsAs(t, 5, 5.0)
	loadsAs(t, 2i, complex64(2i))
	loadsAs(t, "x", name("x"))
	loadsAs(t, []byte{1, 2}, []byte{1, 2})
	loadsAs(t, nil, (*int)(nil))
	n := 5
	loadsAs(t, 5, &n)
	loadsAs(t, gotorch.BFloat16, gotorch.BFloat16)
	loadsAs(t, []any{1, "x"}, any([]any{int64(1), "x"}))
}

func TestFilesThatAreOfAnotherType(t *testing.T) {
	failsAs[map[string][]int](t, map[string]any{"a": []any{1, "x"}}, gotorch.TypeError, `the value["a"][1] is string, where int is expected`)
	failsAs[map[string]gotorch.Tensor](t, map[string]any{"a": 1}, gotorch.TypeError, `the value["a"] is int, where gotorch.Tensor is expected`)
	failsAs[int](t, nil, gotorch.TypeError, "None")
	failsAs[int](t, 1.5, gotorch.TypeError, "float")
	failsAs[[]int](t, 1, gotorch.TypeError, "[]int is expected")
	failsAs[map[int]int](t, map[string]int{"a": 1}, gotorch.TypeError, `the key the value["a"] is string`)
	failsAs[int8](t, 128, gotorch.ValueError, "128, which int8 does not hold")
	failsAs[uint](t, -1, gotorch.ValueError, "uint does not hold")
	failsAs[float32](t, 1<<24+1, gotorch.ValueError, "float32 does not hold")
	failsAs[float64](t, int64(math.MaxInt64), gotorch.ValueError, "float64 does not hold")
	failsAs[float32](t, 1e300, gotorch.ValueError, "float32 does not hold")
}

func TestStatesOfEveryFormatAsMaps(t *testing.T) {
	for _, file := range []string{"m.pt", "m.safetensors"} {
		path := filepath.Join(t.TempDir(), file)
		if err := gotorch.SaveTensors(path, named()); err != nil {
			t.Fatal(err)
		}
		got, err := gotorch.LoadAs[map[string]gotorch.Tensor](path)
		if err != nil {
			t.Fatal(err)
		}
		sameTensors(t, got, named())
	}
}
