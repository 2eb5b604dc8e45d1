package gotorch_test

import (
	"errors"
	"fmt"
	"math"
	"os"
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
	failsAs[map[string]gotorch.Tensor](t, map[string]any{"a": 1}, gotorch.TypeError, `the value["a"] is an int, where gotorch.Tensor is expected`)
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

func TestFilesAsStructs(t *testing.T) {
	type inner struct {
		LR       float64 `torch:"lr"`
		Momentum float32
	}
	type checkpoint struct {
		Model     map[string]gotorch.Tensor
		Epoch     int
		BestAcc   float64
		Optimizer inner          `torch:"optim"`
		Scheduler map[string]any `torch:",optional"`
		Seed      uint64
		Ignored   int `torch:"-"`
		hidden    int //lint:ignore U1000 LoadAs must leave it alone
	}
	value := map[string]any{
		"model": map[string]any{"w": ones(2)}, "epoch": 3, "best_acc": 0.5, "other": []any{1, nil}, "seed": uint64(math.MaxUint64),
		"optim": map[string]any{"lr": 0.1, "momentum": 0.5},
	}
	path := saved(t, value)
	got, err := gotorch.LoadAs[checkpoint](path)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got.Model["w"], "tensor([1., 1.])")
	got.Model = nil
	if want := (checkpoint{Epoch: 3, BestAcc: 0.5, Optimizer: inner{0.1, 0.5}, Seed: math.MaxUint64}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	// Within others.
	if got, err := gotorch.LoadAs[map[string]inner](saved(t, map[string]any{"a": map[string]any{"lr": 1, "Momentum": 2}})); err != nil || got["a"] != (inner{1, 2}) {
		t.Error(got, err)
	}
	if got, err := gotorch.LoadAs[struct{ A gotorch.Tensor }](saved(t, map[string]any{"a": ones(1)})); err != nil || got.A.Numel() != 1 {
		t.Error(got, err)
	}
	failsAs[checkpoint](t, map[string]any{"model": map[string]any{}}, gotorch.ValueError, `the value has no "Epoch" for the field Epoch of gotorch_test.checkpoint; it has "model"`)
	failsAs[map[string]inner](t, map[string]any{"a": map[string]any{"lr": "x", "momentum": 1}}, gotorch.TypeError, `the value["a"]["lr"] is string`)
	failsAs[inner](t, map[string]any{"lr": 1, "momentum": 1, "Momentum_": 1}, gotorch.ValueError, "are all meant by the field Momentum")
	failsAs[inner](t, []int{1}, gotorch.TypeError, "is a list, where gotorch_test.inner is expected")
	failsAs[gotorch.Tensor](t, map[string]any{"T": 1}, gotorch.TypeError, "is a dict")
	failsAs[struct{ hidden int }](t, map[string]any{"hidden": 1}, gotorch.TypeError, "is a dict")
	failsAs[struct {
		A int `torch:"a,omitempty"`
	}](t, map[string]any{"a": 1}, gotorch.TypeError, "it may have a name, and then optional")
}

func TestEmbeddedStructsOfFiles(t *testing.T) {
	type Base struct{ Epoch int }
	type checkpoint struct {
		Base
		Loss float64
	}
	loadsAs(t, map[string]any{"epoch": 3, "loss": 0.5}, checkpoint{Base{3}, 0.5})
}

func ExampleLoadAs() {
	path := filepath.Join(os.TempDir(), "example-checkpoint.pt")
	defer os.Remove(path)
	err := gotorch.Save(path, map[string]any{ // as torch.save({"model": model.state_dict(), "epoch": 3}, path)
		"model": map[string]gotorch.Tensor{"bias": gotorch.FromSlice([]float32{1, 2})},
		"epoch": 3,
	})
	if err != nil {
		panic(err)
	}
	type Checkpoint struct {
		Model map[string]gotorch.Tensor
		Epoch int
	}
	checkpoint, err := gotorch.LoadAs[Checkpoint](path)
	fmt.Println(checkpoint.Epoch, checkpoint.Model["bias"], err)
	// Output: 3 tensor([1., 2.]) <nil>
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
