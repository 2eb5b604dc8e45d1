package graph_test

import (
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/graph"
	"gotorch.dev/gotorch/internal/modeltest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func open(t *testing.T, dir string, opts ...graph.OpenOptions) *graph.Model {
	t.Helper()
	m, err := graph.Open(dir, opts...)
	testhelp.Must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

func call(t *testing.T, m *graph.Model, x float32) float32 {
	t.Helper()
	return gotorch.Scope(func(*gotorch.ScopeHandle) float32 {
		return gotorch.ToSlice[float32](m.Call(gotorch.Full([]int64{3, 2}, x))[0])[0]
	})
}

func TestAFolderIsOpenedAndCalled(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, dir, 3, false)
	for _, mapped := range []bool{false, true} {
		m := open(t, dir, graph.OpenOptions{Map: mapped})
		if got := call(t, m, 2); got != 6 {
			t.Errorf("2 times 3 is %v", got)
		}
		if got := m.Inputs()[0].String(); got != "x torch.float32[-1 2]" {
			t.Errorf("got %s", got)
		}
		testhelp.Must(t, m.Close())
		testhelp.Must(t, m.Close())
		_, err := gotorch.Try(func() []gotorch.Tensor { return m.Call(gotorch.Ones([]int64{1, 2})) })
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "Close") {
			t.Errorf("after Close: %v", err)
		}
	}
}

func TestModelsWithTheSameSymbolsAreTheirOwn(t *testing.T) {
	var models []*graph.Model
	for i := range 8 {
		dir := filepath.Join(t.TempDir(), "m")
		modeltest.Write(t, dir, float32(i), i%2 == 1)
		models = append(models, open(t, dir))
	}
	for i, m := range models {
		x, h := gotorch.Ones([]int64{1, 2}), gotorch.Zeros([]int64{1, 2})
		in := []gotorch.Tensor{x, h}[:len(m.Inputs())]
		if got := gotorch.ToSlice[float32](m.Call(in...)[0])[0]; got != float32(i) {
			t.Errorf("model %d says %v", i, got)
		}
	}
}

func TestWrongInputsAreTypedErrors(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, dir, 3, false)
	m := open(t, dir)
	closed := gotorch.Ones([]int64{1, 2})
	closed.Close()
	for name, in := range map[string][]gotorch.Tensor{"none": nil, "two": {gotorch.Ones([]int64{1, 2}), gotorch.Ones([]int64{1, 2})},
		"zero": {{}}, "closed": {closed}, "shape": {gotorch.Ones([]int64{1, 3})}} {
		_, err := gotorch.Try(func() []gotorch.Tensor { return m.Call(in...) })
		var e *gotorch.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := call(t, m, 2); got != 6 {
		t.Errorf("then 2 times 3 is %v", got)
	}
}

// library changes the library, and the manifest with it.
func library(t *testing.T, dir string, m map[string]any, change func([]byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, "model.so")
	code, err := os.ReadFile(path)
	testhelp.Must(t, err)
	code = change(code)
	testhelp.Must(t, os.WriteFile(path, code, 0o666))
	m["library"] = modeltest.File("model.so", code)
}

// bad are changes to a folder that make it none, and what its error says.
var bad = map[string]struct {
	kind   gotorch.ErrorKind
	says   string
	change func(t *testing.T, dir string, m map[string]any)
}{
	"no manifest":   {"", "no such file", func(t *testing.T, dir string, _ map[string]any) { os.Remove(filepath.Join(dir, "manifest.json")) }},
	"half":          {gotorch.ValueError, "not yet complete", func(t *testing.T, dir string, _ map[string]any) { cut(t, dir, "manifest.json") }},
	"half library":  {gotorch.ValueError, "not yet complete", func(t *testing.T, dir string, _ map[string]any) { cut(t, dir, "model.so") }},
	"half weights":  {gotorch.ValueError, "not yet complete", func(t *testing.T, dir string, _ map[string]any) { cut(t, dir, "weights.safetensors") }},
	"no library":    {"", "no such file", func(t *testing.T, dir string, _ map[string]any) { os.Remove(filepath.Join(dir, "model.so")) }},
	"other library": {gotorch.ValueError, "SHA-256", func(t *testing.T, dir string, _ map[string]any) { flip(t, dir, "model.so") }},
	"other weights": {gotorch.ValueError, "SHA-256", func(t *testing.T, dir string, _ map[string]any) { flip(t, dir, "weights.safetensors") }},
	"a library that was cut off before the manifest was written": {gotorch.ValueError, "no ELF file, or damaged",
		func(t *testing.T, dir string, m map[string]any) {
			library(t, dir, m, func(code []byte) []byte { return code[:len(code)/2] })
		}},
	"one that has no sections either": {gotorch.ValueError, "says of itself that it has more",
		func(t *testing.T, dir string, m map[string]any) {
			library(t, dir, m, func(code []byte) []byte {
				clear(code[40:48]) // e_shoff, e_shnum and e_shstrndx, without which the loader loads it
				clear(code[60:64])
				return code[:len(code)/2]
			})
		}},
	"another machine's library": {gotorch.ValueError, "is for EM_RISCV", func(t *testing.T, dir string, m map[string]any) {
		library(t, dir, m, func(code []byte) []byte { code[18] = byte(elf.EM_RISCV); return code })
	}},
	"abi": {gotorch.RuntimeError, "export the model again", func(t *testing.T, dir string, m map[string]any) {
		m["abi"] = "ABI1_0_0r1"
	}},
	"torch": {gotorch.RuntimeError, "export the model again", func(t *testing.T, dir string, m map[string]any) { m["torch"] = "1.0.0" }},
	"platform": {gotorch.RuntimeError, "export the model again", func(t *testing.T, dir string, m map[string]any) {
		m["platform"] = "plan9/mips"
	}},
	"version": {gotorch.ValueError, "version 2", func(t *testing.T, dir string, m map[string]any) { m["version"] = 2 }},
	"format":  {gotorch.ValueError, "format", func(t *testing.T, dir string, m map[string]any) { m["format"] = "onnx" }},
	"escape": {gotorch.ValueError, "in the folder itself", func(t *testing.T, dir string, m map[string]any) {
		m["library"].(map[string]any)["file"] = "../model.so"
	}},
	"absolute": {gotorch.ValueError, "in the folder itself", func(t *testing.T, dir string, m map[string]any) {
		m["weights"].(map[string]any)["file"] = "/etc/passwd"
	}},
	"link out": {"", "escapes", func(t *testing.T, dir string, m map[string]any) {
		os.Rename(filepath.Join(dir, "model.so"), dir+".so")
		os.Symlink(dir+".so", filepath.Join(dir, "model.so"))
	}},
	"pipe": {"", "not a regular file", func(t *testing.T, dir string, m map[string]any) {
		os.Remove(dir + "/model.so")
		os.Mkdir(dir+"/model.so", 0o777)
	}},
	"dtype": {gotorch.ValueError, "float33", func(t *testing.T, dir string, m map[string]any) { first(m, "inputs")["dtype"] = "float33" }},
	"twice": {gotorch.ValueError, "another's", func(t *testing.T, dir string, m map[string]any) {
		m["inputs"] = append(m["inputs"].([]any), first(m, "inputs"))
	}},
	"shape": {gotorch.ValueError, "shape", func(t *testing.T, dir string, m map[string]any) { first(m, "inputs")["shape"] = []int{-2} }},
	"huge": {gotorch.ValueError, "too large", func(t *testing.T, dir string, m map[string]any) {
		first(m, "tensors")["shape"] = []int64{1 << 40, 1 << 40}
	}},
	"strides": {gotorch.ValueError, "memory", func(t *testing.T, dir string, m map[string]any) { first(m, "tensors")["strides"] = []int64{1 << 40} }},
	"strides that add up to none": {gotorch.ValueError, "far more memory", func(t *testing.T, dir string, m map[string]any) {
		shape, strides := make([]int64, 33), make([]int64, 33)
		for i := range shape {
			shape[i], strides[i] = 2, 1<<59-1
		}
		strides[32] = 33 // all of them are 1<<64 + 1
		first(m, "tensors")["shape"], first(m, "tensors")["strides"] = shape, strides
	}},
	"strides over the same memory": {gotorch.ValueError, "the same memory", func(t *testing.T, dir string, m map[string]any) {
		path := filepath.Join(dir, "weights.safetensors")
		testhelp.Must(t, gotorch.SaveTensors(path, map[string]gotorch.Tensor{"w": gotorch.FromSlice([]float32{1, 2})}))
		data, err := os.ReadFile(path)
		testhelp.Must(t, err)
		m["weights"] = modeltest.File("weights.safetensors", data)
		first(m, "tensors")["strides"] = []int64{0}
	}},
	"other tensor": {gotorch.ValueError, "no tensor", func(t *testing.T, dir string, m map[string]any) {
		first(m, "tensors")["name"] = "v"
	}},
	"one input more": {gotorch.ValueError, "the library is for", func(t *testing.T, dir string, m map[string]any) {
		m["inputs"] = append(m["inputs"].([]any), map[string]any{"name": "z", "dtype": "float32", "shape": []int64{2}})
	}},
	"constants": {gotorch.ValueError, "constants", func(t *testing.T, dir string, m map[string]any) { m["constants"] = 7 }},
	"no library but text": {gotorch.ValueError, "no ELF file", func(t *testing.T, dir string, m map[string]any) {
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, "model.so"), []byte("#!/bin/sh\n"), 0o777))
		m["library"] = modeltest.File("model.so", []byte("#!/bin/sh\n"))
	}},
}

func first(m map[string]any, key string) map[string]any { return m[key].([]any)[0].(map[string]any) }

func cut(t *testing.T, dir, name string) {
	info, err := os.Stat(filepath.Join(dir, name))
	testhelp.Must(t, err)
	testhelp.Must(t, os.Truncate(filepath.Join(dir, name), info.Size()/2))
}

func flip(t *testing.T, dir, name string) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	testhelp.Must(t, err)
	data[len(data)-1] ^= 1
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o666))
}

func TestBadFoldersAreTypedErrorsAndLeaveNothing(t *testing.T) {
	var left int64
	for name, b := range bad {
		dir := filepath.Join(t.TempDir(), "m")
		m := modeltest.Write(t, dir, 3, false)
		written, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
		testhelp.Must(t, err)
		b.change(t, dir, m)
		if now, err := os.ReadFile(filepath.Join(dir, "manifest.json")); err == nil && string(now) == string(written) {
			modeltest.Manifest(t, dir, m)
		}
		before := gotorch.MemoryStats().LiveHandles
		opened, err := graph.Open(dir)
		left += gotorch.MemoryStats().LiveHandles - before
		if err == nil {
			opened.Close()
			t.Errorf("%s: opened", name)
			continue
		}
		var e *gotorch.Error
		if b.kind != "" && (!errors.As(err, &e) || e.Kind != b.kind) || !strings.Contains(err.Error(), b.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left > 0 {
		t.Errorf("%d tensors more live after folders that were not opened", left)
	}
}

// What is unloaded is gone: the address space does not grow with what has been served.
func TestOpeningAgainAndAgainLeavesNoMapping(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, dir, 3, false)
	round := func(n int) {
		for range n {
			m, err := graph.Open(dir)
			testhelp.Must(t, err)
			if got := call(t, m, 2); got != 6 {
				t.Fatalf("got %v", got)
			}
			testhelp.Must(t, m.Close())
		}
	}
	round(20)
	maps, files := mappings(t), descriptors(t)
	round(100)
	if n := mappings(t); n > 0 || maps > 0 {
		t.Errorf("%d libraries are mapped, and were %d", n, maps)
	}
	if n := descriptors(t); n > files {
		t.Errorf("%d files are open, and were %d", n, files)
	}
}

func mappings(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/maps")
	testhelp.Must(t, err)
	return strings.Count(string(text), "gotorch-model")
}

func descriptors(t *testing.T) int {
	return testhelp.Descriptors(t)
}

func TestCloseWaitsForCalls(t *testing.T) {
	dir := t.TempDir()
	modeltest.Write(t, dir, 3, false)
	for range 20 {
		m := open(t, dir)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				for {
					_, err := gotorch.Try(func() float32 {
						return gotorch.Scope(func(*gotorch.ScopeHandle) float32 {
							return gotorch.ToSlice[float32](m.Call(gotorch.Ones([]int64{64, 2}))[0])[0]
						})
					})
					if err != nil {
						if !errors.Is(err, gotorch.ValueError) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		testhelp.Must(t, m.Close())
		calls.Wait()
	}
}

func FuzzOpen(f *testing.F) {
	dir := f.TempDir()
	m := modeltest.Write(f, dir, 3, false)
	text, err := os.ReadFile(filepath.Join(dir, "manifest.json"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	// One with all that a manifest may say.
	w := first(m, "tensors")
	w["strides"], w["aliases"], w["requires_grad"] = []int64{1}, []string{"v"}, true
	m["sizes"] = []any{map[string]any{"input": "x", "dim": 0, "symbol": "s0", "scale": 2, "offset": 1, "min": 1, "max": 64}}
	m["state"] = []any{map[string]any{"output": "y", "input": "x"}}
	modeltest.Manifest(f, dir, m)
	if text, err = os.ReadFile(filepath.Join(dir, "manifest.json")); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o666); err != nil {
			t.Fatal(err)
		}
		before := gotorch.MemoryStats().LiveHandles
		m, err := graph.Open(dir)
		var e *gotorch.Error
		var p *fs.PathError
		if err != nil && !errors.As(err, &e) && !errors.As(err, &p) {
			t.Errorf("got %T: %v", err, err)
		}
		m.Close()
		if left := gotorch.MemoryStats().LiveHandles - before; left > 0 {
			t.Errorf("%d tensors more live after %v", left, err)
		}
	})
}
