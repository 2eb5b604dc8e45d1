package graph_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
