// Package modeltest writes folders like those of pytorch_bridge.export_model for tests, with a C compiler alone.
package modeltest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
)

// ABI is that of this program.
const ABI = "ABI2_15_0r3"

// code is two models: y = x * w, and where STATE is defined y = h' = max(h, x * w).
const code = `
#include <cgotorch.h>
const char *Mul_(Tensor, Tensor, Tensor *) __asm__("cgotorch_Mul");
const char *Maximum_(Tensor, Tensor, Tensor *) __asm__("cgotorch_Maximum");
struct result { Tensor handle; int64_t meta; };
struct block { void *scope; const char *error; const Tensor *constants; Tensor *x;
#ifdef STATE
  Tensor *h;
#endif
  struct result y;
#ifdef STATE
  struct result after;
#endif
};
const char gotorch_model_abi[] = ABI;
#ifdef STATE
const char gotorch_model_layout[] = "2 2 1 0";
#else
const char gotorch_model_layout[] = "1 1 1 0";
#endif
#ifdef HANG
int access(const char *, int);
int usleep(unsigned);
#endif
void gotorch_model_call(struct block *b) {
#ifdef HANG
  while (access(HANG, 0) == 0) usleep(1000);
#endif
#ifdef STATE
  const cgotorch_held held[] = {{&b->x, 1}, {&b->h, 1}};
#else
  const cgotorch_held held[] = {{&b->x, 1}};
#endif
  const int n = sizeof held / sizeof *held;
  b->error = cgotorch_hold_words(held, n);
  if (b->error) return;
  Tensor y;
#ifdef STATE
  Tensor scaled;
  b->error = Mul_((Tensor)b->x, b->constants[0], &scaled);
  if (!b->error) {
    b->error = Maximum_((Tensor)b->h, scaled, &y);
    FreeTensor(scaled);
  }
#else
  b->error = Mul_((Tensor)b->x, b->constants[0], &y);
#endif
  cgotorch_drop_held(held, n);
  if (b->error) return;
  b->scope = cgotorch_scope_get();
  b->y.handle = y;
  b->y.meta = cgotorch_meta(y);
#ifdef STATE
  b->after.handle = RetainTensor(y);
  b->after.meta = cgotorch_meta(y);
#endif
}
`

var compiled sync.Map // by flags: func() ([]byte, error)

// library compiles the code.
func library(flags ...string) ([]byte, error) {
	make, _ := compiled.LoadOrStore(strings.Join(flags, " "), sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "modeltest-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		source, out := filepath.Join(dir, "model.c"), filepath.Join(dir, "model.so")
		if err := os.WriteFile(source, []byte(code), 0o600); err != nil {
			return nil, err
		}
		_, here, _, _ := runtime.Caller(0)
		args := append([]string{"-O1", "-fPIC", "-shared", "-s", "-w", "-DCGOTORCH_WITHOUT_OPS",
			"-I" + filepath.Join(filepath.Dir(here), "../../../cgotorch"), source, "-o", out}, flags...)
		if said, err := exec.Command(cmp.Or(os.Getenv("CC"), "cc"), args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %s", err, said)
		}
		return os.ReadFile(out)
	}))
	return make.(func() ([]byte, error))()
}

// Write writes a folder with the model y = x * w, where x is float32[-1 2]; with stateful, y = h_out = max(h, x * w),
// where h is float32[-1 2]. It returns the manifest, for changes.
func Write(t testing.TB, dir string, w float32, stateful bool) map[string]any {
	t.Helper()
	return write(t, dir, w, stateful)
}

// Hanging is Write for a model that does not return while there is a file at path.
func Hanging(t testing.TB, dir string, w float32, path string) {
	t.Helper()
	write(t, dir, w, false, "-DHANG="+strconv.Quote(path))
}

func write(t testing.TB, dir string, w float32, stateful bool, flags ...string) map[string]any {
	t.Helper()
	flags = append(flags, `-DABI="`+ABI+`"`)
	spec := func(name string) map[string]any {
		return map[string]any{"name": name, "dtype": "float32", "shape": []int64{-1, 2}}
	}
	inputs, outputs, state := []any{spec("x")}, []any{spec("y")}, []any{}
	if stateful {
		flags = append(flags, "-DSTATE")
		inputs, outputs = append(inputs, spec("h")), append(outputs, spec("h_out"))
		state = append(state, map[string]any{"output": "h_out", "input": "h"})
	}
	lib, err := library(flags...)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join(dir, "weights.safetensors")
	value := gotorch.Full([]int64{2}, w)
	defer value.Close()
	if err := gotorch.SaveTensors(weights, map[string]gotorch.Tensor{"w": value}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(weights)
	if err != nil {
		t.Fatal(err)
	}
	torch, _, _ := strings.Cut(gotorch.TorchVersion(), "+")
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	m := map[string]any{
		"format": "gotorch-model", "version": 1, "name": "scale", "abi": ABI, "torch": torch,
		"platform": runtime.GOOS + "/" + machine, "inputs": inputs, "outputs": outputs, "sizes": []any{}, "state": state,
		"library": File("model.so", lib), "weights": File("weights.safetensors", data),
		"tensors":   []any{map[string]any{"name": "w", "dtype": "float32", "shape": []int64{2}}},
		"constants": 1, "changes": false,
	}
	if err := os.WriteFile(filepath.Join(dir, "model.so"), lib, 0o666); err != nil {
		t.Fatal(err)
	}
	Manifest(t, dir, m)
	return m
}

// Manifest writes a manifest.
func Manifest(t testing.TB, dir string, m map[string]any) {
	t.Helper()
	text, err := json.Marshal(m)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "manifest.json"), text, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// File is what a manifest says of a file.
func File(name string, data []byte) map[string]any {
	sum := sha256.Sum256(data)
	return map[string]any{"file": name, "sha256": hex.EncodeToString(sum[:]), "bytes": len(data)}
}
