package safetensors_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/safetensors"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func write(tb testing.TB, tensors map[string]gotorch.Tensor) string {
	path := filepath.Join(tb.TempDir(), "a.safetensors")
	testhelp.Must(tb, gotorch.SaveSafetensors(path, tensors, nil))
	return path
}

func TestRowsAreSamples(t *testing.T) {
	x, y := gotorch.Arange(12).Reshape([]int64{4, 3}), gotorch.FromSlice([]int64{3, 2, 1, 0})
	path := write(t, map[string]gotorch.Tensor{"x": x, "y": y, "other": gotorch.Ones([]int64{5})})
	filestest.NothingStays(t, func() {
		set, err := safetensors.Open(path, safetensors.Options{Input: "x", Target: "y"})
		testhelp.Must(t, err)
		if set.Len() != 4 {
			t.Errorf("got %d rows", set.Len())
		}
		var order []int
		for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 3, Shuffle: true, Seed: 1}).All() {
			testhelp.Must(t, err)
			if !batch.Input.Select(1, 0).Equal(batch.Target.SubScalar(3).MulScalar(-3)) {
				t.Errorf("got %v", batch)
			}
			order = append(order, gotorch.ToSlice[int](batch.Target)...)
			batch.Close()
		}
		if slices.Sort(order); !slices.Equal(order, []int{0, 1, 2, 3}) {
			t.Errorf("got %v", order)
		}
	})
}

func TestFilesThatDoNotFitAreRefused(t *testing.T) {
	x := gotorch.Ones([]int64{4, 3})
	for text, tensors := range map[string]map[string]gotorch.Tensor{
		`no tensor "target": it has "input"`:             {"input": x},
		`no tensor "input": it has "target", "x"`:        {"x": x, "target": x},
		`"input" has 4 rows, and "target" 2`:             {"input": x, "target": gotorch.Ones([]int64{2})},
		"tensor target: ValueError: it has no dimension": {"input": x, "target": gotorch.Ones([]int64{})},
	} {
		path := write(t, tensors)
		before := gotorch.MemoryStats().LiveHandles
		_, err := safetensors.Open(path)
		filestest.WantBroken(t, err, path, text)
		if after := gotorch.MemoryStats().LiveHandles; after > before {
			t.Errorf("%s: %d tensors of it are alive", text, after-before)
		}
	}
	path := filestest.Write(t, "a", []byte("no tensors at all"))
	_, err := safetensors.Open(path)
	filestest.WantBroken(t, err, path, "")
	if _, err := safetensors.Open(path + "2"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func ExampleOpen() {
	path := filepath.Join(os.TempDir(), "gotorch-example.safetensors")
	defer os.Remove(path)
	err := gotorch.SaveSafetensors(path, map[string]gotorch.Tensor{
		"input": gotorch.NewTensor([][]float32{{1, 2}, {3, 4}}), "target": gotorch.FromSlice([]int64{0, 1}),
	}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := safetensors.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	sample, err := set.At(1)
	fmt.Println(sample.Input, sample.Target, err)
	// Output: tensor([3., 4.]) tensor(1) <nil>
}
