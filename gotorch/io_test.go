package gotorch_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

// named is a few tensors of different kinds: a transposed view, one without dimensions, one without
// elements, a wide and a narrow type.
func named() map[string]gotorch.Tensor {
	return map[string]gotorch.Tensor{
		"weight":   gotorch.FromSlice([]float32{1, 2, 3, 4, 5, 6}, 2, 3),
		"view":     gotorch.FromSlice([]float64{1, 2, 3, 4, 5, 6}, 2, 3).Transpose(0, 1),
		"scalar":   gotorch.FromScalar(int64(7)),
		"empty":    ones(0, 3),
		"bits":     gotorch.FromSlice([]bool{true, false, true}),
		"half":     floats(1.5, float32(math.Inf(-1))).To(gotorch.BFloat16),
		"":         gotorch.FromSlice([]complex64{1 - 2i}),
		"é\"\\\n😀": gotorch.FromSlice([]uint16{65535}),
	}
}

func sameTensors(t *testing.T, got, want map[string]gotorch.Tensor) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d tensors, want %d", len(got), len(want))
	}
	for name, w := range want {
		g, ok := got[name]
		if !ok {
			t.Errorf("%q is missing", name)
			continue
		}
		if g.String() != w.Detach().String() || g.DType() != w.DType() || !reflect.DeepEqual(g.Shape(), w.Shape()) {
			t.Errorf("%q is %v, want %v", name, g, w)
		}
	}
}

func TestSmokeTensorsInFiles(t *testing.T) {
	for _, name := range []string{"m.safetensors", "m.pt", "m.pth", "m.bin", "m.ckpt"} {
		path := filepath.Join(t.TempDir(), name)
		if err := gotorch.SaveTensors(path, named()); err != nil {
			t.Fatal(err)
		}
		for _, mapped := range []bool{false, true} {
			got, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Map: mapped})
			if err != nil {
				t.Fatal(name, err)
			}
			sameTensors(t, got, named())
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.part")); len(left) > 0 {
			t.Error("left behind:", left)
		}
	}
}

func TestSafetensorsKeepMetadata(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	want := map[string]string{"format": "pt", "": "\x01é\"", "empty": ""}
	if err := gotorch.SaveSafetensors(path, named(), want); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parsed, metadata, err := gotorch.ParseSafetensors(data)
	if err != nil || !reflect.DeepEqual(metadata, want) {
		t.Error(metadata, err)
	}
	sameTensors(t, parsed, named())
	loaded, metadata, err := gotorch.LoadSafetensors(path)
	if err != nil || !reflect.DeepEqual(metadata, want) {
		t.Error(metadata, err)
	}
	sameTensors(t, loaded, named())
	if len(data)%8 != 0 && binary.LittleEndian.Uint64(data)%8 != 0 {
		t.Error("the header is not padded")
	}
}

func TestEveryDTypeInFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	for d := gotorch.Uint8; d <= gotorch.Float4E2M1FNx2; d++ {
		if d.IsQuantized() {
			continue
		}
		raw := make([]byte, 4*d.Size())
		for i := range raw {
			raw[i] = byte(i % 2)
		}
		want := map[string]gotorch.Tensor{"t": gotorch.FromRaw(raw, d, 2, 2)}
		check := func(got map[string]gotorch.Tensor, err error) {
			t.Helper()
			if err != nil {
				t.Error(d, err)
				return
			}
			if g := got["t"]; g.DType() != d || !bytes.Equal(gotorch.RawData(g), raw) || fmt.Sprint(g.Shape()) != "[2 2]" {
				t.Error(d, "came back as", g.DType(), g.Shape())
			}
		}
		if err := gotorch.SaveTensors(path+".pt", want); err != nil {
			t.Error(d, err)
		} else {
			check(gotorch.LoadTensors(path + ".pt"))
		}
		err := gotorch.SaveTensors(path+".safetensors", want)
		if errors.Is(err, gotorch.NotImplementedError) {
			continue // the format lacks the dtype; tests/test_files.py compares which ones those are
		}
		if err != nil {
			t.Error(d, err)
		} else {
			check(gotorch.LoadTensors(path + ".safetensors"))
		}
	}
}

func TestSaveKeepsStructure(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.pt")
	large := new(big.Int).Lsh(big.NewInt(-3), 100)
	value := map[string]any{
		"epoch": 3, "loss": 0.5, "name": "é", "done": true, "none": nil, "z": 1 + 2i, "bytes": []byte{0, 128, 255},
		"dtype": gotorch.BFloat16, "device": gotorch.CUDA(1), "cpu": gotorch.CPU, "large": large, "seed": uint64(math.MaxUint64),
		"low": math.MinInt64, "small": -1, "list": []any{1, "two", []float32{3}}, "tuple": gotorch.Tuple{1, gotorch.Tuple{}},
		"state":  gotorch.Dict{{2, floats(1)}, {1, floats(2)}},
		"sorted": map[int]string{2: "b", 1: "a"},
		"tensor": gotorch.Tensor{},
	}
	if err := gotorch.Save(path, value); err != nil {
		t.Fatal(err)
	}
	got, err := gotorch.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d := got.(gotorch.Dict)
	state := d.Get("state").(gotorch.Dict)
	if state[0].Key != int64(2) || state.Get(int64(1)).(gotorch.Tensor).String() != "tensor([2.])" {
		t.Error("state is", state)
	}
	want := map[string]any{
		"epoch": int64(3), "loss": 0.5, "name": "é", "done": true, "none": nil, "z": 1 + 2i, "bytes": []byte{0, 128, 255},
		"dtype": gotorch.BFloat16, "device": gotorch.CUDA(1), "cpu": gotorch.CPU, "large": large,
		"seed": new(big.Int).SetUint64(math.MaxUint64), "low": int64(math.MinInt64), "small": int64(-1),
		"list": []any{int64(1), "two", []any{3.0}}, "tuple": gotorch.Tuple{int64(1), gotorch.Tuple{}},
		"sorted": gotorch.Dict{{int64(1), "a"}, {int64(2), "b"}}, "tensor": nil,
	}
	for key, w := range want {
		if g := d.Get(key); !reflect.DeepEqual(g, w) {
			t.Errorf("%s is %#v, want %#v", key, g, w)
		}
	}
	if d[0].Key != "bytes" || len(d) != len(value) {
		t.Error("the keys are not sorted, or not all there:", d)
	}
}

func TestKeysOfSavedMaps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	nan := math.NaN()
	value := map[any]any{nan: "nan", "a": 1, 2: 3, [2]int{1, 2}: "tuple", true: 4, gotorch.Float32: 5}
	if err := gotorch.Save(path, value); err != nil {
		t.Fatal(err)
	}
	got, err := gotorch.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	d := got.(gotorch.Dict)
	if d.Get("a") != int64(1) || d.Get(int64(2)) != int64(3) || d.Get(gotorch.Tuple{int64(1), int64(2)}) != "tuple" || d.Get(true) != int64(4) || d.Get(gotorch.Float32) != int64(5) || len(d) != len(value) {
		t.Error(d)
	}
	if err := gotorch.Save(path, map[float64]int{nan: 1, math.Copysign(nan, -1): 2, 1: 3}); err != nil {
		t.Fatal(err)
	}
	if back, err := gotorch.LoadAs[map[float64]int](path); err != nil || len(back) != 3 {
		t.Error(back, err)
	}
	// Equal maps make equal files, whatever the order in which Go walks through them.
	mixed := map[any]int{1: 1, "1": 2, int8(2): 3, uint(3): 4, "2": 5, 2.5: 6, "2.5": 7}
	want := encoded(t, mixed)
	for range 20 {
		if !bytes.Equal(encoded(t, mixed), want) {
			t.Fatal("equal maps make different files")
		}
	}
}

func TestSaveKeepsSharedMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tied.pt")
	w := gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)
	if err := gotorch.Save(path, []gotorch.Tensor{w, w.Transpose(0, 1), w.Index(gotorch.At(1)), w.Detach().RequiresGrad_()}); err != nil {
		t.Fatal(err)
	}
	// Views whose elements are not those of the storage, and such of another dtype.
	c := gotorch.FromSlice([]complex64{1 + 2i, 3 - 4i})
	bits := gotorch.FromSlice([]uint16{1, 2, 3, 4})
	lazy := filepath.Join(t.TempDir(), "lazy.pt")
	whole := []any{c, c.Conj(), gotorch.Call("aten::_neg_view", "", c.Conj())[0], gotorch.ViewAsReal(c), bits, bits.ViewDType(gotorch.Int32), bits.Storage()}
	if err := gotorch.Save(lazy, whole); err != nil {
		t.Fatal(err)
	}
	v, err := gotorch.Load(lazy)
	if err != nil {
		t.Fatal(err)
	}
	list := v.([]any)
	for i := range 6 {
		if got, want := list[i].(gotorch.Tensor), whole[i].(gotorch.Tensor); got.String() != want.String() || got.DType() != want.DType() {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
	}
	list[0].(gotorch.Tensor).Fill_(5 + 6i)
	expect(t, list[1].(gotorch.Tensor), "tensor([5.-6.j, 5.-6.j])")
	expect(t, list[2].(gotorch.Tensor), "tensor([-5.+6.j, -5.+6.j])")
	expect(t, list[3].(gotorch.Tensor), "tensor([[5., 6.],\n        [5., 6.]])")
	list[4].(gotorch.Tensor).Fill_(1)
	expect(t, list[5].(gotorch.Tensor), "tensor([65537, 65537], dtype=torch.int32)")
	if n := list[6].(*gotorch.Storage).Bytes(); n != 8 {
		t.Error("the storage has", n, "bytes")
	}
	for _, mapped := range []bool{false, true} {
		v, err := gotorch.Load(path, gotorch.LoadOptions{Map: mapped})
		if err != nil {
			t.Fatal(err)
		}
		list := v.([]any)
		a, b, c := list[0].(gotorch.Tensor), list[1].(gotorch.Tensor), list[2].(gotorch.Tensor)
		a.MulScalar_(10)
		expect(t, b, "tensor([[10., 30.],\n        [20., 40.]])")
		expect(t, c, "tensor([30., 40.])")
		if !list[3].(gotorch.Tensor).RequiresGrad() || a.RequiresGrad() {
			t.Error("requires_grad was lost")
		}
	}
	// Writing to a mapped tensor changed no file.
	v, err = gotorch.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, v.([]any)[0].(gotorch.Tensor), "tensor([[1., 2.],\n        [3., 4.]])")
}

func TestDecodeFromMemory(t *testing.T) {
	var b bytes.Buffer
	if err := gotorch.Encode(&b, "x", ones(2)); err != nil {
		t.Fatal(err)
	}
	v, err := gotorch.Decode(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, v.(gotorch.Tensor), "tensor([1., 1.])")
	if _, err := gotorch.Decode(bytes.NewReader(b.Bytes()), int64(b.Len()), gotorch.LoadOptions{Map: true}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	var again bytes.Buffer
	if err := gotorch.Encode(&again, "x", ones(2)); err != nil || !bytes.Equal(b.Bytes(), again.Bytes()) {
		t.Error("equal values make different files")
	}
}

func TestFilesThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := gotorch.Load(filepath.Join(dir, "none.pt")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, name := range []string{"none.pt", "none.safetensors"} {
		if _, err := gotorch.LoadTensors(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	if _, _, err := gotorch.LoadSafetensors(filepath.Join(dir, "none.safetensors")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, err := range []error{
		func() error { _, err := gotorch.Load(dir); return err }(),
		func() error { _, err := gotorch.LoadTensors(dir); return err }(),
		func() error { _, _, err := gotorch.LoadSafetensors(dir); return err }(),
		gotorch.Save(dir, nil), gotorch.SaveSafetensors(dir, nil, nil),
		gotorch.Save(filepath.Join(dir, "no", "such", "folder.pt"), nil),
		gotorch.SaveSafetensors(filepath.Join(dir, "no", "such", "folder.safetensors"), nil, nil),
	} {
		if err == nil {
			t.Error("no error")
		}
	}
}

func TestWhatIsNoFileIsNotRead(t *testing.T) {
	before := testhelp.Descriptors(t)
	for what, path := range testhelp.NoFiles(t) {
		for name, err := range map[string]error{
			"Load":            func() error { _, err := gotorch.Load(path); return err }(),
			"LoadTensors":     func() error { _, err := gotorch.LoadTensors(path); return err }(),
			"LoadSafetensors": func() error { _, _, err := gotorch.LoadSafetensors(path); return err }(),
			"mapped": func() error {
				_, _, err := gotorch.LoadSafetensors(path, gotorch.LoadOptions{Map: true})
				return err
			}(),
		} {
			if err == nil {
				t.Errorf("%s: %s is read", name, what)
			}
		}
	}
	if n := testhelp.Descriptors(t); n > before+1 { // the socket's
		t.Errorf("%d files are open, %d were before", n, before)
	}
}

func TestValuesThatCannotBeSaved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	closed := ones(1)
	closed.Close()
	endless := map[string]any{}
	endless["self"] = endless
	for text, value := range map[string]any{
		"a value of type func() cannot be saved":                       func() {},
		"a value of type struct {} cannot be saved":                    struct{}{},
		"used after Close":                                             closed,
		"contains itself":                                              endless,
		"an object of the Python class m.C, which Save does not write": []any{&gotorch.PickledObject{Class: "m.C", Call: true}},
		"two keys of a dict are one in Python":                         map[any]int{1: 1, 1.0: 2},
		"two keys of a dict are one in Python, where":                  gotorch.Dict{{gotorch.Tuple{true, "x"}, 1}, {[2]any{1.0, "x"}, 2}},
		"a dict has a key of type []int":                               gotorch.Dict{{[]int{1}, 2}},
		"a dict has a key of type gotorch.Dict":                        gotorch.Dict{{gotorch.Tuple{gotorch.Dict{}}, 2}},
		"a value is the zero DType":                                    gotorch.DType(0),
		`the string "\xff" is not UTF-8`:                               map[string]any{"\xff": 1},
		"a value of type *int cannot be saved":                         new(int),
		"a value of type chan int cannot be saved":                     []any{make(chan int)},
	} {
		var e *gotorch.Error
		if err := gotorch.Save(path+".pt", value); !errors.As(err, &e) || !strings.Contains(e.Msg, text) {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	for text, value := range map[string]map[string]gotorch.Tensor{
		"tensor 'x' is sparse":             {"x": ones(2, 2).ToSparse()},
		"tensor 'x' is on the meta device": {"x": ones(2).To(gotorch.Meta)},
		"used after Close":                 {"x": closed},
		"'tensors' is the zero Tensor":     {"x": {}},
		"cannot be named '__metadata__'":   {"__metadata__": ones(1)},
		"contains a NUL byte":              {"a\x00b": ones(1)},
		"is not UTF-8":                     {"\xff": ones(1)},
		"has dtype ComplexDouble, which a safetensors file cannot hold": {"x": gotorch.FromSlice([]complex128{1})},
	} {
		var e *gotorch.Error
		if err := gotorch.SaveTensors(path+".safetensors", value); !errors.As(err, &e) || !strings.Contains(e.Msg, text) {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	if err := gotorch.SaveTensors(path+".xyz", nil); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
	for _, err := range []error{gotorch.Save("", 1), gotorch.SaveTensors("", nil), gotorch.SaveSafetensors("", nil, nil)} {
		if !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "the path is empty") {
			t.Error(err)
		}
	}
	if _, err := gotorch.Load(""); err == nil || !strings.Contains(err.Error(), "the path is empty") {
		t.Error(err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Error("left behind:", left)
	}
}

// Whoever loads a file that another replaces gets one of the two, and never parts of both.
func TestLoadingAFileThatIsBeingReplaced(t *testing.T) {
	dir := t.TempDir()
	for _, ext := range []string{".pt", ".safetensors"} {
		path := filepath.Join(dir, "m"+ext)
		versions := []string{filepath.Join(dir, "one"+ext), filepath.Join(dir, "two"+ext)}
		for i, version := range versions {
			// Of different sizes, so that what lies at a place of the one lies elsewhere in the other.
			tensors := map[string]gotorch.Tensor{}
			for k := range 4 + 8*i {
				tensors[fmt.Sprint("x", k)] = gotorch.Full([]int64{int64(500 * (i + 1))}, float64(i+1))
			}
			if err := gotorch.SaveTensors(version, tensors); err != nil {
				t.Fatal(err)
			}
		}
		replace := func(i int) {
			if err := errors.Join(os.Link(versions[i%2], path+".next"), os.Rename(path+".next", path)); err != nil {
				t.Error(err)
			}
		}
		replace(0)
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 1; ; i++ {
				select {
				case <-stop:
					return
				default:
					replace(i)
				}
			}
		}()
		for i := range 600 {
			tensors, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Map: i%3 > 0})
			if err != nil {
				t.Error(err)
				break
			}
			version := float32(len(tensors)/8 + 1)
			for name, x := range tensors {
				got := gotorch.ToSlice[float32](x)
				if len(got) != 500*int(version) || slices.Min(got) != version || slices.Max(got) != version {
					t.Fatalf("load %d: %s of version %v is %d elements from %v to %v", i, name, version, len(got), slices.Min(got), slices.Max(got))
				}
				x.Close()
			}
		}
		close(stop)
		<-done
	}
}

// smallFiles, where set, makes TestAFullDiskLeavesTheOldFile save to the file that it names, in a
// process whose files cannot grow beyond 4 KiB: that fails as a full disk does.
const smallFiles = "GOTORCH_TEST_SMALL_FILES"

func saveInSmallFile(path string) {
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 4096, Max: 4096}); err != nil {
		panic(err)
	}
	fmt.Println(gotorch.SaveTensors(path, map[string]gotorch.Tensor{"x": ones(100_000)}))
	os.Exit(3)
}

func TestAFullDiskLeavesTheOldFile(t *testing.T) {
	if path := os.Getenv(smallFiles); path != "" {
		saveInSmallFile(path)
	}
	dir := t.TempDir()
	for _, name := range []string{"m.pt", "m.safetensors"} {
		path := filepath.Join(dir, name)
		old := map[string]gotorch.Tensor{"x": ones(2)}
		if err := gotorch.SaveTensors(path, old); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0], "-test.run=^TestAFullDiskLeavesTheOldFile$")
		child.Env = append(os.Environ(), smallFiles+"="+path)
		said, _ := child.CombinedOutput()
		if child.ProcessState.ExitCode() != 3 || !strings.Contains(strings.ToLower(string(said)), "file too large") {
			t.Errorf("%s", said)
		}
		got, err := gotorch.LoadTensors(path)
		if err != nil {
			t.Fatal(err)
		}
		sameTensors(t, got, old)
	}
	if files, _ := os.ReadDir(dir); len(files) != 2 {
		t.Error("left behind:", files)
	}
	// A device that is always full.
	if err := gotorch.Save("/dev/full", ones(100_000)); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
	if err := gotorch.SaveSafetensors("/dev/full", map[string]gotorch.Tensor{"x": ones(100_000)}, nil); !errors.Is(err, syscall.ENOSPC) {
		t.Error(err)
	}
}

func TestSavingKeepsLinksAndModes(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"m.pt", "m.safetensors"} {
		path, link := filepath.Join(dir, name), filepath.Join(dir, "link-"+name)
		if err := os.WriteFile(path, nil, 0o640); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, link); err != nil {
			t.Fatal(err)
		}
		if err := gotorch.SaveTensors(link, map[string]gotorch.Tensor{"x": ones(2)}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil || info.Mode() != 0o640 || info.Size() == 0 {
			t.Error(info.Mode(), info.Size(), err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Error("the link was replaced", err)
		}
	}
}

// Files from anywhere ------------------------------------------------------------------------------------

// safetensorsFile returns a file with this header and n bytes of data.
func safetensorsFile(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

func TestMalformedSafetensors(t *testing.T) {
	entry := func(s string) string { return `{"x":` + s + `}` }
	for text, data := range map[string][]byte{
		"too short":                    {1, 2, 3},
		"header would be too large":    safetensorsFile("{}", 0)[:0:0],
		"truncated in its header":      safetensorsFile(`{"x":1`, 0)[:9],
		"expected '{' at byte 0":       safetensorsFile(` {}`, 0),
		"expected the end":             safetensorsFile(`{}x`, 0),
		"expected each name once":      safetensorsFile(`{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[],"data_offsets":[1,2]}}`, 2),
		"truncated in its data":        safetensorsFile(entry(`{"dtype":"U8","shape":[3],"data_offsets":[0,3]}`), 2),
		"belongs to no tensor":         safetensorsFile(entry(`{"dtype":"U8","shape":[1],"data_offsets":[0,1]}`), 2),
		"does not start where the":     safetensorsFile(entry(`{"dtype":"U8","shape":[1],"data_offsets":[1,2]}`), 2),
		"'x' does not start where":     safetensorsFile(entry(`{"dtype":"U8","shape":[1],"data_offsets":[2,1]}`), 2),
		"does not fit its shape":       safetensorsFile(entry(`{"dtype":"F32","shape":[1],"data_offsets":[0,2]}`), 2),
		"is too large":                 safetensorsFile(entry(`{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}`), 0),
		"'x' is too large":             safetensorsFile(entry(`{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}`), 0),
		"which this torch lacks":       safetensorsFile(entry(`{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}`), 3),
		"expected a smaller number":    safetensorsFile(entry(`{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}`), 1),
		"expected an unsigned":         safetensorsFile(entry(`{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}`), 1),
		"expected a shape":             safetensorsFile(entry(`{"dtype":"U8","shape":[`+strings.Repeat("1,", 70)+`1],"data_offsets":[0,1]}`), 1),
		"expected each key once":       safetensorsFile(entry(`{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}`), 1),
		"expected dtype, shape or":     safetensorsFile(entry(`{"dtype":"U8","size":[1],"data_offsets":[0,1]}`), 1),
		"and data_offsets before":      safetensorsFile(entry(`{"dtype":"U8","data_offsets":[0,1]}`), 1),
		"expected UTF-8":               safetensorsFile("{\"\xff\":1}", 0),
		"expected the second half":     safetensorsFile(`{"\ud800x":1}`, 0),
		"expected the first half":      safetensorsFile(`{"\udc00":1}`, 0),
		"expected an escape":           safetensorsFile(`{"\x":1}`, 0),
		"expected four hexadecimal":    safetensorsFile(`{"\u12g4":1}`, 0),
		"expected a string without":    safetensorsFile(`{"\u0000":1}`, 0),
		"expected no control":          safetensorsFile("{\"\n\":1}", 0),
		"expected the end of a string": safetensorsFile(`{"abc`, 0),
		`expected '"'`:                 safetensorsFile(`{"__metadata__":{"a":1}}`, 0),
	} {
		if text == "header would be too large" {
			data = binary.LittleEndian.AppendUint64(nil, 100_000_001)
		}
		_, _, err := gotorch.ParseSafetensors(data)
		var e *gotorch.Error
		if !errors.As(err, &e) || e.Kind != gotorch.ValueError && e.Kind != gotorch.NotImplementedError || !strings.Contains(e.Msg, text) {
			t.Errorf("got %v, want %s", err, text)
		}
		path := filepath.Join(t.TempDir(), "bad.safetensors")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, mapped := range []bool{false, true} {
			if _, _, err := gotorch.LoadSafetensors(path, gotorch.LoadOptions{Map: mapped}); err == nil {
				t.Errorf("%s: loaded", text)
			}
		}
	}
	if got, _, err := gotorch.ParseSafetensors(safetensorsFile(`{}   `, 0)); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	// Misaligned data is read all the same.
	path := filepath.Join(t.TempDir(), "odd.safetensors")
	data := safetensorsFile(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`, 5)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	got, _, err := gotorch.LoadSafetensors(path, gotorch.LoadOptions{Map: true})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, got["b"], "tensor([0.])")
}

// encoded returns a file of Save.
func encoded(t *testing.T, value any) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := gotorch.Encode(&b, "m", value); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repacked returns an archive with these records, in the folder m, and the version that each file has.
func repacked(t *testing.T, records map[string]string, method uint16) []byte {
	t.Helper()
	if _, ok := records["version"]; !ok {
		records = maps.Clone(records)
		records["version"] = "3\n"
	}
	return zipped(t, records, method)
}

// zipped returns an archive with these records alone.
func zipped(t *testing.T, records map[string]string, method uint16) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, data := range records {
		w, err := z.CreateHeader(&zip.FileHeader{Name: "m/" + name, Method: method})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const (
	storageRef = "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x02tQ"
	rebuild    = "ctorch._utils\n_rebuild_tensor_v2\n("
)

func TestMalformedArchives(t *testing.T) {
	whole := encoded(t, ones(2))
	damaged := bytes.Clone(whole)
	at := bytes.Index(damaged, []byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f})
	damaged[at] ^= 1
	pkl := func(text string) []byte {
		return repacked(t, map[string]string{"data.pkl": "\x80\x02" + text + ".", "data/0": "\x00\x00\x80\x3f\x00\x00\x80\x3f"}, zip.Store)
	}
	for _, c := range []struct {
		want string
		data []byte
	}{
		{"the file is none of torch.save's", []byte("GIF89a and so on")},
		{"the file is none of torch.save's", nil},
		{"truncated or damaged", whole[:len(whole)-30]},
		{"the pickle is truncated", []byte{0x80, 2, 0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'}},
		{"none of torch.save's", []byte("\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s.")},
		{"the tar format that torch.save had in PyTorch 0.1", append(append([]byte("sys_info"), make([]byte, 249)...), "ustar\x0000"...)},
		{"is a safetensors file", safetensorsFile(`{"x":{"dtype":"U8","shape":[],"data_offsets":[0,1]}}`, 1)},
		{"checksum is wrong", damaged},
		{"none of torch.save's", repacked(t, map[string]string{"readme": "hello"}, zip.Store)},
		{"is compressed", repacked(t, map[string]string{"data.pkl": strings.Repeat("N", 100) + "."}, zip.Deflate)},
		{"no record \"version\"", zipped(t, map[string]string{"data.pkl": "N.", "version2": "3\n"}, zip.Store)},
		{"version 11 of the format", repacked(t, map[string]string{"data.pkl": "N.", "version": "11"}, zip.Store)},
		{`is "x": it must be a number, 1 at least`, repacked(t, map[string]string{"data.pkl": "N.", "version": "x"}, zip.Store)},
		{`is "0": it must be a number, 1 at least`, repacked(t, map[string]string{"data.pkl": "N.", "version": "0"}, zip.Store)},
		{"its records in two folders", bytes.ReplaceAll(repacked(t, map[string]string{"data.pkl": "N.", "xyz": "N."}, zip.Store), []byte("m/xyz"), []byte("n/xyz"))},
		{"gotorch/jit", repacked(t, map[string]string{"data.pkl": "N.", "constants.pkl": "N."}, zip.Store)},
		{`byte order "middle"`, repacked(t, map[string]string{"data.pkl": "N.", "byteorder": "middle"}, zip.Store)},
		{"pytorch_bridge.export_go", repacked(t, map[string]string{"archive_format": "pt2", "models/model.json": "{}"}, zip.Store)},
		{"gotorch/aoti", repacked(t, map[string]string{"archive_format": "pt2", "data/aotinductor/model/x.so": ""}, zip.Store)},
		{"storage \"0\" is missing", repacked(t, map[string]string{"data.pkl": "\x80\x02" + storageRef + "."}, zip.Store)},

		{"the pickle is truncated", repacked(t, map[string]string{"data.pkl": "\x80\x02N"}, zip.Store)},
		{"the file calls a str", pkl("X\x02\x00\x00\x00ls)R")},
		{"refers to something that is no storage", pkl("NQ")},
		{"a reference to a storage is malformed", pkl(strings.Replace(storageRef, "K\x02t", "Nt", 1))},
		{"a storage has the type torch.float32", pkl(strings.Replace(storageRef, "FloatStorage", "float32", 1))},
		{"storage \"0\" is truncated", pkl(strings.Replace(storageRef, "K\x02t", "K\x03t", 1))},
		{"storage \"0\" is longer than the file says", pkl(strings.Replace(storageRef, "K\x02t", "K\x01t", 1))},
		{"a reference to a storage is malformed", pkl(strings.Replace(storageRef, "K\x02t", "J\xff\xff\xff\xfft", 1))},
		{"is too large", pkl(strings.Replace(storageRef, "K\x02t", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7ft", 1))},
		{"no known device", pkl(strings.Replace(storageRef, "cpu", "xyz", 1))},
		{"of the quantised dtype", pkl(strings.Replace(strings.Replace(storageRef, "FloatStorage", "QInt8Storage", 1), "K\x02t", "K\x08t", 1))},
		{"protocol 0", pkl("P('storage', 'x')\n")},
		{`the value["a"][1]: a tensor that reaches outside its storage`, pkl("}X\x01\x00\x00\x00a](N" + rebuild + storageRef + "K\x00K\x03\x85K\x01\x85\x89NtRes")},
		{"reaches outside its storage", pkl(rebuild + storageRef + "K\x00K\x03\x85K\x01\x85\x89NtR0N")}, // though nobody sees it
		{"reaches outside its storage", pkl(rebuild + storageRef + "K\x00K\x03\x85K\x01\x85\x89NtR")},
		{"reaches outside its storage", pkl(rebuild + storageRef + "K\x02K\x01\x85K\x01\x85\x89NtR")},
		{"reaches outside its storage", pkl(rebuild + storageRef + "K\x00K\x02\x85K\x02\x85\x89NtR")},
		{"a shape that is too large", pkl(rebuild + storageRef + "K\x00J\xff\xff\xff\x7fJ\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x87K\x00K\x00K\x00\x87\x89NtR")},
		{"a negative size or stride", pkl(rebuild + storageRef + "K\x00K\x02\x85J\xff\xff\xff\xff\x85\x89NtR")},
		{"is called with the wrong arguments", pkl(rebuild + storageRef + "K\x00K\x02\x85)\x89NtR")},
		{"is called with the wrong arguments", pkl(rebuild + "tR")},
		{"floating point", pkl(rebuild + strings.Replace(storageRef, "FloatStorage", "IntStorage", 1) + "K\x00)\x29\x88NtR")},
		{"the value contains itself", pkl("]q\x00h\x00a")},
		{"nested too deeply", pkl(strings.Repeat("]", 1500) + strings.Repeat("a", 1499))},
		{"is used before it is there", pkl("h\x05")},
		{"too few values", pkl("a")},
		{"too few values", pkl("(00")},
		{"finds no mark", pkl("t")},
		{"values are added to None", pkl("NNa")},
		{"pairs are added to a", pkl("]NNs")},
		{"a dict has a list as a key", pkl("}]Ns")},
		{"a dict has a dict as a key", pkl("}}\x85Ns")},
		{"protocol 9 is not supported", pkl("\x80\x09N")},
		{"0xff is no instruction", pkl("\xff")},
		{"extension registry", pkl("\x82\x01")},
		{"buffers that are kept outside", pkl("\x97")},
		{"an integer is too large", pkl("I" + strings.Repeat("1", 5000) + "\n")},
		{"is no integer", pkl("I1x\n")},
		{"is no float", pkl("Fx\n")},
		{"is no string", pkl("S'x\n")},
		{"is no number of a value", pkl("gx\n")},
		{"an integer is too large", pkl("\x8b\xff\xff\x00\x00" + strings.Repeat("\x01", 0xffff))},
		{"a string is not UTF-8", pkl("X\x01\x00\x00\x00\xff")},
		{"the pickle is truncated", pkl("X\xff\xff\xff\x7fabc")},
		{"the pickle is truncated", pkl("\x8e\xff\xff\xff\xff\xff\xff\xff\xffabc")},
		{"sets the state of a", pkl("]}b")},
		{"unknown device", pkl("ctorch\ndevice\nX\x03\x00\x00\x00xyz\x85R")},
	} {
		_, err := gotorch.Decode(bytes.NewReader(c.data), int64(len(c.data)))
		var e *gotorch.Error
		if !errors.As(err, &e) || !strings.Contains(e.Msg, c.want) {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
	// Records that claim more than there is, and that lie upon each other.
	v, err := gotorch.Decode(bytes.NewReader(damaged), int64(len(damaged)), gotorch.LoadOptions{IgnoreChecksums: true})
	if err != nil || v.(gotorch.Tensor).Numel() != 2 {
		t.Error("with IgnoreChecksums:", v, err)
	}
}

func TestASmallFileCannotAskForMuchMemory(t *testing.T) {
	const n = 100_000
	times := strings.Repeat
	text := func(n int) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) + times("a", n)
	}
	global := func(name string) string { return "c" + strings.Replace(name, " ", "\n", 1) + "\n" }
	// Value 0 is what is long, value 1 what makes more of it in a few bytes.
	put := func(long, function string) string { return long + "q\x00" + "0" + function + "q\x01" + "0" }
	items := "(" + times("K\x01", n) // and then 'l' or 't'
	pairs := "(" + func() (s string) {
		var b strings.Builder
		for i := range n {
			b.WriteString("M" + string(binary.LittleEndian.AppendUint16(nil, uint16(i))) + "N")
		}
		return b.String()
	}() + "d"
	tensor := rebuild + storageRef + "K\x00" + "(" + times("K\x01", 60) + "t" + "(" + times("K\x01", 60) + "t\x89Nt"

	const budget, places, wrong = "asks for far more memory or time", "in so many places at once", "is called with the wrong arguments"
	for name, c := range map[string]struct{ pkl, want string }{
		"dicts of a dict":       {put(pairs, global("collections OrderedDict")) + "](" + times("h\x01h\x00\x85R", n) + "e", budget},
		"changed dicts of one":  {put(pairs, global("collections OrderedDict")) + "](" + times("h\x01h\x00\x85RNNs", n) + "e", budget},
		"many pending":          {put(pairs, global("torch._utils _rebuild_tensor_v2")+"q\x02"+tensor[len(rebuild)-1:len(tensor)-1]+"h\x00t") + "](" + times("h\x02h\x01R", n) + "e", budget},
		"dicts of a list":       {put("]("+times("K\x01N\x86", n)+"e", global("collections OrderedDict")) + "](" + times("h\x01h\x00\x85R", n) + "e", budget},
		"sets of a list":        {put(items+"l", global("builtins set")) + "](" + times("h\x01h\x00\x85R", n) + "e", budget},
		"sizes of a tuple":      {put(items+"t", global("torch Size")) + "](" + times("h\x01h\x00\x85R", n) + "e", budget},
		"bytes of a text":       {put(text(n)+"X\x06\x00\x00\x00latin1\x86", global("_codecs encode")) + "](" + times("h\x01h\x00R", n) + "e", budget},
		"devices of a text":     {put(text(n)+"K\x01\x86", global("torch device")) + "](" + times("h\x01h\x00R", n) + "e", wrong},
		"tensors of a storage":  {put(tensor[len(rebuild)-1:], global("torch._utils _rebuild_tensor_v2")) + "](" + times("h\x01h\x00R", n) + "e", budget},
		"tensors of 1000 sizes": {rebuild + storageRef + "K\x00" + "(" + times("K\x01", n) + "tq\x00h\x00\x89NtR", wrong},
		"a long key":            {put(text(n), "N") + "}(" + times("h\x00N", n) + "u", budget},
		"a long storage name":   {"(X\x07\x00\x00\x00storage" + global("torch FloatStorage") + text(n) + "X\x03\x00\x00\x00cpuK\x00tq\x00" + times("Q0h\x00", n) + "Q", "is missing"},
		"a list twice, twice":   {"]q\x00" + times("]q\x01(h\x00h\x00eq\x00", 60), places},
		"a tuple twice, twice":  {")q\x00" + times("h\x00h\x00\x86q\x00", 60), places},
		"a dict twice, twice":   {"}q\x00" + times("}q\x01(K\x00h\x00K\x01h\x00uq\x00", 60), places},
		"a text in many places": {put(text(n), "N") + "](" + times("h\x00", n) + "e", places},
		"a tensor in many":      {tensor + "Rq\x00" + "](" + times("h\x00", n) + "e", places},
		// What costs no more than its length is read.
		"empty lists":        {"](" + times("]", n) + "e", ""},
		"dicts of one":       {"](" + times("}NNs", n) + "e", ""},
		"marks":              {times("(", n) + "N", ""},
		"twice the same":     {"N" + times("2", n), ""},
		"a growing memo":     {"N" + times("\x94", n), ""},
		"many short strings": {"](" + times("\x8c\x01a", n) + "e", ""},
		"many bytes":         {"](" + times("C\x01a", n) + "e", ""},
	} {
		data := repacked(t, map[string]string{"data.pkl": "\x80\x02" + c.pkl + ".", "data/0": "12345678"}, zip.Store)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		t.Logf("%s: %d bytes from a file of %d", name, took, len(data))
		if took > 64<<20+256*uint64(len(data)) {
			t.Errorf("%s: %d bytes from a file of %d", name, took, len(data))
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %.200v, want %q", name, err, c.want)
		}
	}
}

// What is added to a set is not added to the list that it was made of.
func TestSetsDoNotShareTheListThatTheyWereMadeOf(t *testing.T) {
	pkl := "\x80\x04](K\x01K\x02K\x03eq\x00cbuiltins\nset\nh\x00\x85R(K\x04\x90h\x00K\x05a\x86."
	v, err := gotorch.Decode(fileOf(t, pkl))
	want := gotorch.Tuple{[]any{int64(1), int64(2), int64(3), int64(4)}, []any{int64(1), int64(2), int64(3), int64(5)}}
	if err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("got %v, %v, want %v", v, err, want)
	}
}

func fileOf(t *testing.T, pkl string) (io.ReaderAt, int64) {
	t.Helper()
	data := repacked(t, map[string]string{"data.pkl": pkl, "data/0": "12345678"}, zip.Store)
	return bytes.NewReader(data), int64(len(data))
}

func TestLoadTensorsWantsADictOfTensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	for said, value := range map[string]any{
		"holds a tensor, and no dict of tensors: read it with Load": ones(1),
		"holds a list, and no dict":                                 []gotorch.Tensor{ones(1)},
		"holds a dict without tensors: read it with Load":           map[string]any{"x": 1},
		"holds a tensor under 1, which is no name":                  map[int]gotorch.Tensor{1: ones(1)},
		`there are some in ["model"], which LoadAs reads`:           map[string]any{"epoch": 1, "model": map[string]any{"x": ones(1)}},
	} {
		if err := gotorch.Save(path, value); err != nil {
			t.Fatal(err)
		}
		if _, err := gotorch.LoadTensors(path); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), said) {
			t.Errorf("%v, want %s", err, said)
		}
	}
	// Values of other types are left out.
	if err := gotorch.Save(path, map[string]any{"x": ones(2), "epoch": 3, "opt": map[string]any{"y": ones(1)}, "none": nil}); err != nil {
		t.Fatal(err)
	}
	if got, err := gotorch.LoadTensors(path); err != nil || len(got) != 1 || got["x"].Numel() != 2 {
		t.Error(got, err)
	}
}

func TestFilesLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	leavesNothing(t, func() {
		for _, name := range []string{"m.pt", "m.safetensors"} {
			path := filepath.Join(dir, name)
			for _, mapped := range []bool{false, true} {
				if err := gotorch.SaveTensors(path, named()); err != nil {
					t.Fatal(err)
				}
				if _, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Map: mapped}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("this system does not list its memory maps: ", err)
	}
	if strings.Contains(string(maps), dir) {
		t.Error("a file is still mapped")
	}
}

// Fuzz tests: whatever the bytes, there is an error or a value, and memory follows the length.

func FuzzParseSafetensors(f *testing.F) {
	f.Add(safetensorsFile(`{"x":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"__metadata__":{"a":"b\u00e9"}}`, 8))
	f.Add(safetensorsFile(`{"x":{"dtype":"F4","shape":[0,2],"data_offsets":[0,0]}}  `, 0))
	f.Add(safetensorsFile(`{}`, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		tensors, _, err := gotorch.ParseSafetensors(data)
		var e *gotorch.Error
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		for _, x := range tensors {
			if n := x.StorageBytes(); n > int64(len(data)) {
				t.Fatalf("a tensor of %d bytes from %d", n, len(data))
			}
			x.Close()
		}
	})
}

func FuzzDecode(f *testing.F) {
	var b bytes.Buffer
	values := gotorch.Dict{
		{"w", gotorch.FromSlice([]float32{1, 2, 3, 4}, 2, 2)}, {"n", 3}, {"l", []any{1.5, "x", nil, true, 2i}},
		{"t", gotorch.Tuple{gotorch.BFloat16, gotorch.CPU}}, {"b", []byte{1}}, {int64(5), gotorch.FromSlice([]uint16{1})},
	}
	if err := gotorch.Encode(&b, "m", values); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)), gotorch.LoadOptions{IgnoreChecksums: true})
		loaded(t, v, err)
	})
}

// loaded does with a value what programs do: it prints it, saves it and looks through it.
func loaded(t *testing.T, v any, err error) {
	t.Helper()
	var e *gotorch.Error
	if err != nil {
		if !errors.As(err, &e) {
			t.Fatalf("got %T: %v", err, err)
		}
		return
	}
	_ = fmt.Sprint(v)
	if err := gotorch.Encode(io.Discard, "m", v); err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
}

// FuzzLoad goes through a file, so that what is mapped is fuzzed too.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"m.pt", "m.safetensors"} {
		path := filepath.Join(f.TempDir(), name)
		if err := gotorch.SaveTensors(path, named()); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	path := filepath.Join(f.TempDir(), "m")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		for _, mapped := range []bool{false, true} {
			tensors, err := gotorch.LoadTensors(path, gotorch.LoadOptions{Map: mapped, IgnoreChecksums: true})
			if err != nil {
				loaded(t, nil, err)
				continue
			}
			for _, x := range tensors {
				_ = x.String()
				x.Close() // the file is changed in place next time
			}
		}
		_, err := gotorch.Load(path)
		loaded(t, nil, err)
	})
}

// FuzzDecodePickle changes only what is inside of the archive, where a random change of the whole
// seldom gets to.
func FuzzDecodePickle(f *testing.F) {
	f.Add([]byte("\x80\x02" + rebuild + storageRef + "K\x00K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."))
	f.Add([]byte("\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b]q\x01(K\x02\x88Neu}X\x09\x00\x00\x00_metadata}sb."))
	f.Add([]byte("\x80\x04\x95\x00\x00\x00\x00\x00\x00\x00\x00\x8c\x05torch\x94\x8c\x04Size\x94\x93\x94K\x02\x85\x85R\x8f(K\x01\x90C\x01a\x86."))
	// Protocol 0, objects, a sparse, a quantised and a meta tensor, an array and a scalar of NumPy's.
	storage := func(class string, n int) string {
		return strings.Replace(strings.Replace(storageRef, "FloatStorage", class, 1), "K\x02", "K"+string(rune(n)), 1)
	}
	of := func(class string, n, sizes, strides string) string {
		return rebuild + storage(class, 8/map[string]int{"LongStorage": 8, "FloatStorage": 4}[class]) + n + sizes + strides + "\x89NtR"
	}
	for _, pkl := range []string{
		"(dp0\nVa\np1\nI01\nsS'b\\x00'\nF1.5\nsVc\n(lp2\nL12L\naccopy_reg\n_reconstructor\n(cm\nC\nc__builtin__\nobject\nNtR(dVx\ng1\nsbas.",
		"\x80\x02cargparse\nNamespace\n)\x81q\x00}X\x01\x00\x00\x00ah\x00sb.",
		"\x80\x02(cm\nC\nK\x01o]a(K\x01K\x02u0(K\x01im\nC\n.",
		"\x80\x02ctorch._utils\n_rebuild_sparse_tensor\nctorch.serialization\n_get_layout\nX\x10\x00\x00\x00torch.sparse_coo\x85R(" +
			of("LongStorage", "K\x00", "K\x01K\x01\x86", "K\x01K\x01\x86") + of("FloatStorage", "K\x00", "K\x01\x85", "K\x01\x85") + "K\x05\x85\x88t\x86R.",
		"\x80\x02ctorch._utils\n_rebuild_qtensor\n(" + storage("QInt8Storage", 8) + "K\x00K\x02K\x04\x86K\x04K\x01\x86ctorch\nper_tensor_affine\nG\x3f\xf0\x00\x00\x00\x00\x00\x00K\x03\x87\x89NtR.",
		"\x80\x02ctorch._utils\n_rebuild_qtensor\n(" + storage("QInt8Storage", 8) + "K\x00K\x02K\x04\x86K\x04K\x01\x86(ctorch\nper_channel_affine\n" +
			of("FloatStorage", "K\x00", "K\x02\x85", "K\x01\x85") + of("FloatStorage", "K\x00", "K\x02\x85", "K\x01\x85") + "K\x00t\x89NtR.",
		"\x80\x02(ctorch._utils\n_rebuild_meta_tensor_no_storage\n(ctorch\nfloat16\nK\x02\x85K\x01\x85\x89tR" + storageRef + storage("ByteStorage", 8) + "t.",
		"\x80\x02cnumpy._core.multiarray\nscalar\ncnumpy\ndtype\nX\x02\x00\x00\x00i8K\x00K\x01\x87RC\x0812345678\x86R.",
		"\x80\x02}K\x01C\x01a\x86Ns(ctorch\nTensor\n)\x81(" + storageRef + "K\x00K\x02\x85K\x01\x85tb.",
	} {
		f.Add([]byte(pkl))
	}
	f.Fuzz(func(t *testing.T, pkl []byte) {
		data := repacked(t, map[string]string{"data.pkl": string(pkl), "data/0": "12345678"}, zip.Store)
		v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
		loaded(t, v, err)
	})
}

// legacyFile returns a file as torch.save wrote them before PyTorch 1.6: with a value, the keys of its storages, and these.
func legacyFile(pkl, keys, storages string) []byte {
	magic := "\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
	return []byte(magic + "\x80\x02M\xe9\x03." + "\x80\x02}." + pkl + keys + storages)
}

const (
	legacyTensor = "\x80\x02" + rebuild + "(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x02NtQK\x00K\x02\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR."
	legacyKeys   = "\x80\x02]X\x01\x00\x00\x000a."
	legacyFloats = "\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@"
)

func TestMalformedLegacyFiles(t *testing.T) {
	whole := legacyFile(legacyTensor, legacyKeys, legacyFloats)
	v, err := gotorch.Decode(bytes.NewReader(whole), int64(len(whole)))
	if err != nil {
		t.Fatal(err)
	}
	expect(t, v.(gotorch.Tensor), "tensor([1., 2.])")
	for cut := range whole {
		if _, err := gotorch.Decode(bytes.NewReader(whole), int64(cut)); err == nil {
			t.Errorf("%d of %d bytes are read", cut, len(whole))
		}
	}
	view := strings.Replace(legacyTensor, "K\x02NtQ", "K\x02(X\x01\x00\x00\x00vK\x01K\x01ttQ", 1)
	one := strings.Replace(view, "K\x00K\x02\x85", "K\x00K\x01\x85", 1)
	whole = legacyFile(one, legacyKeys, legacyFloats)
	if v, err = gotorch.Decode(bytes.NewReader(whole), int64(len(whole))); err != nil {
		t.Fatal(err)
	}
	expect(t, v.(gotorch.Tensor), "tensor([2.])")
	for want, data := range map[string][]byte{
		"that its value does not use":    legacyFile("\x80\x02N.", legacyKeys, legacyFloats),
		"storage \"0\" is missing":       legacyFile(legacyTensor, "\x80\x02].", ""),
		"a storage \"0\" that":           legacyFile(legacyTensor, "\x80\x02](X\x01\x00\x00\x000X\x01\x00\x00\x000e.", legacyFloats+legacyFloats),
		"where the keys of its storages": legacyFile(legacyTensor, "\x80\x02}.", legacyFloats),
		"storage \"0\" is truncated":     legacyFile(legacyTensor, legacyKeys, "\x01"+legacyFloats[1:]),
		"is longer than the file says":   legacyFile(legacyTensor, legacyKeys, "\x03"+legacyFloats[1:]+"\x00\x00\x00@"),
		"storage \"0\" is truncated:":    legacyFile(legacyTensor, legacyKeys, "\x01"+legacyFloats[1:]),
		"a view of storage":              legacyFile(strings.Replace(view, "vK\x01K\x01", "vK\x01K\x02", 1), legacyKeys, legacyFloats),
		"version 1002 of the format":     bytes.Replace(whole, []byte("M\xe9\x03"), []byte("M\xea\x03"), 1),
	} {
		if _, err := gotorch.Decode(bytes.NewReader(data), int64(len(data))); !errors.Is(err, gotorch.ValueError) && !errors.Is(err, gotorch.UnpicklingError) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func FuzzDecodeLegacy(f *testing.F) {
	f.Add(legacyFile(legacyTensor, legacyKeys, legacyFloats))
	f.Add(legacyFile("\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01K\x02\x85cnumpy\ndtype\nX\x02\x00\x00\x00f4K\x00K\x01\x87R(K\x03X\x01\x00\x00\x00>NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89C\x0812345678tb.", "\x80\x02].", ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
		loaded(t, v, err)
	})
}

func ExampleSaveTensors() {
	path := filepath.Join(os.TempDir(), "example.safetensors")
	defer os.Remove(path)
	if err := gotorch.SaveTensors(path, map[string]gotorch.Tensor{"bias": gotorch.FromSlice([]float32{1, 2})}); err != nil {
		panic(err)
	}
	tensors, err := gotorch.LoadTensors(path)
	fmt.Println(tensors["bias"], err)
	// Output: tensor([1., 2.]) <nil>
}

func ExampleSave() {
	path := filepath.Join(os.TempDir(), "example.pt")
	defer os.Remove(path)
	checkpoint := map[string]any{"epoch": 3, "model": map[string]gotorch.Tensor{"bias": gotorch.FromSlice([]float32{1, 2})}}
	if err := gotorch.Save(path, checkpoint); err != nil {
		panic(err)
	}
	v, err := gotorch.Load(path)
	d := v.(gotorch.Dict)
	fmt.Println(d.Get("epoch"), d.Get("model").(gotorch.Dict).Get("bias"), err)
	// Output: 3 tensor([1., 2.]) <nil>
}
