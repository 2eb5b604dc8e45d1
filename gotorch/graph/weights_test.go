package graph_test

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestWeightsAreNoDevice(t *testing.T) {
	var e *fs.PathError
	pipe := filepath.Join(t.TempDir(), "pipe") // which nobody writes into
	testhelp.Must(t, syscall.Mkfifo(pipe, 0o600))
	for _, path := range []string{"/dev/zero", t.TempDir(), pipe} {
		if _, err := graph.LoadWeights("Load", path, "", nil); !errors.As(err, &e) {
			t.Errorf("%s: got %v", path, err)
		}
		if _, err := gotorch.LoadTensors(path); !errors.As(err, &e) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

// Python has such tensors of expand, unfold and as_strided. Elements in the same memory have one value there.
func TestWeightsWhoseElementsShareMemoryHaveOneValueEach(t *testing.T) {
	nan := float32(math.NaN())
	type floats = []float32
	for name, c := range map[string]struct {
		shape, strides []int64
		values         floats
		fits           bool
	}{
		"unfold":               {[]int64{2, 2}, []int64{1, 1}, floats{1, nan, nan, 3}, true},
		"unfold, other values": {[]int64{2, 2}, []int64{1, 1}, floats{1, 2, 4, 3}, false},
		"unfold, other sign":   {[]int64{2, 2}, []int64{1, 1}, floats{1, 0, float32(math.Copysign(0, -1)), 3}, false},
		"expand":               {[]int64{2, 2}, []int64{0, 1}, floats{1, 2, 1, 2}, true},
		"expand, other values": {[]int64{2, 2}, []int64{0, 1}, floats{1, 2, 1, 3}, false},
		"interleaved":          {[]int64{2, 3}, []int64{3, 2}, floats{1, 2, 3, 4, 5, 6}, true},
		"with a gap":           {[]int64{2, 3}, []int64{1, 7}, floats{1, 2, 3, 4, 5, 6}, true},
		"empty":                {[]int64{2, 0, 2}, []int64{1, 1, 1}, floats{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				x := gotorch.FromSlice(c.values).Reshape(c.shape)
				path := filepath.Join(t.TempDir(), "weights.safetensors")
				testhelp.Must(t, gotorch.SaveTensors(path, map[string]gotorch.Tensor{"w": x}))
				before := gotorch.MemoryStats().LiveHandles
				w, err := graph.LoadWeights("Load", path, "", []graph.Weight{{Name: "w", DType: gotorch.Float32, Shape: c.shape,
					Strides: c.strides}}, []int{0})
				if !c.fits {
					if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "the same memory") {
						t.Errorf("got %v", err)
					}
					if left := gotorch.MemoryStats().LiveHandles - before; left > 0 {
						t.Errorf("%d tensors more live", left)
					}
					return
				}
				testhelp.Must(t, err)
				defer w.Close()
				got := w.Map("Map")["w"]
				if !slices.Equal(got.Strides(), c.strides) || !got.Contiguous().ViewDType(gotorch.Uint8).Equal(x.ViewDType(gotorch.Uint8)) {
					t.Errorf("got %v of strides %v", got, got.Strides())
				}
			})
		})
	}
}

// FuzzLoadWeights looks for a file that a generated package does not stand, as its weights or as a
// checkpoint.
func FuzzLoadWeights(f *testing.F) {
	specs := []graph.Weight{
		{Name: "w", DType: gotorch.Float32, Shape: []int64{2, 2}, Strides: []int64{1, 2}, Aliases: []string{"tied"}},
		{Name: "c", DType: gotorch.Int64, Shape: []int64{3}, Constant: true},
		{Name: "w.momentum", DType: gotorch.Float32, Shape: []int64{2, 2}, Zero: true},
	}
	dir := f.TempDir()
	good := filepath.Join(dir, "weights.safetensors")
	tensors := map[string]gotorch.Tensor{"w": gotorch.Ones([]int64{2, 2}), "c": gotorch.FromSlice([]int64{1, 2, 3})}
	if err := gotorch.SaveTensors(good, tensors); err != nil {
		f.Fatal(err)
	}
	weights, err := graph.LoadWeights("Load", good, "", specs, []int{0, 1, 2})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(weights.Close)
	checkpoint := filepath.Join(dir, "checkpoint.pt")
	if err := weights.SaveCheckpoint("SaveCheckpoint", checkpoint); err != nil {
		f.Fatal(err)
	}
	for _, path := range []string{good, checkpoint} {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	path := filepath.Join(dir, "fuzzed")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		var e *gotorch.Error
		w, err := graph.LoadWeights("Load", path, "", specs, []int{0, 1, 2})
		if err != nil && !errors.As(err, &e) {
			t.Fatalf("got %T: %v", err, err)
		}
		w.Close()
		if err := weights.LoadCheckpoint("LoadCheckpoint", path); err != nil && !errors.As(err, &e) {
			t.Fatalf("got %T: %v", err, err)
		}
	})
}
