package npy_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/npy"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// The files of testdata are NumPy's: tests/make_datasets_golden.py.

func TestEveryDTypeIsReadInEitherByteOrder(t *testing.T) {
	numbers := gotorch.NewTensor([][]float64{{1, 2, 3}, {4, 5, 6}})
	for name, dtype := range map[string]gotorch.DType{
		"i1": gotorch.Int8, "u1": gotorch.Uint8, "_i2": gotorch.Int16, "_i4": gotorch.Int32, "_i8": gotorch.Int64, "_u2": gotorch.Uint16,
		"_u4": gotorch.Uint32, "_u8": gotorch.Uint64, "_f2": gotorch.Float16, "_f4": gotorch.Float32, "_f8": gotorch.Float64,
		"_c8": gotorch.Complex64, "_c16": gotorch.Complex128,
	} {
		want := numbers
		if dtype.IsComplex() {
			want = gotorch.Complex(numbers, numbers.MulScalar(2))
		}
		want = want.To(dtype)
		for _, order := range []string{"little", "big"} {
			file := order + name
			if name[0] != '_' {
				file = name
			}
			got, err := npy.Load("testdata/" + file + ".npy")
			testhelp.Must(t, err)
			if got.DType() != dtype || !bytes.Equal(gotorch.RawData(got), gotorch.RawData(want)) || !slices.Equal(got.Shape(), want.Shape()) {
				t.Errorf("%s: got %v, want %v", file, got, want)
			}
		}
	}
	got, err := npy.Load("testdata/b1.npy")
	testhelp.Must(t, err)
	if !got.Equal(gotorch.NewTensor([][]bool{{false, true, true}, {true, false, true}})) {
		t.Errorf("got %v", got)
	}
}

func TestWhatIsWrittenIsWhatNumPyWrites(t *testing.T) {
	for _, name := range []string{"little_f4", "little_i8", "u1", "b1", "little_c16", "fortran", "scalar"} {
		path := "testdata/" + name + ".npy"
		a, err := npy.Load(path)
		testhelp.Must(t, err)
		var b bytes.Buffer
		testhelp.Must(t, npy.Write(&b, a))
		if want, _ := os.ReadFile(path); !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s: got %q, want %q", name, b.Bytes(), want)
		}
	}
}

func TestFortransOrderHasItsStrides(t *testing.T) {
	a, err := npy.Load("testdata/fortran.npy")
	testhelp.Must(t, err)
	if want := gotorch.Arange(6).To(gotorch.Float32).Reshape([]int64{2, 3}); !a.Equal(want) || !slices.Equal(a.Strides(), []int64{1, 2}) {
		t.Errorf("got %v with strides %v", a, a.Strides())
	}
}

func TestViewsAreWrittenAsWhatTheyAre(t *testing.T) {
	x := gotorch.Arange(24).Reshape([]int64{2, 3, 4})
	lazy := gotorch.Complex(gotorch.Ones([]int64{2}), gotorch.Ones([]int64{2})).Conj()
	for _, v := range []gotorch.Tensor{x.Transpose(0, 1), x.Permute([]int64{2, 1, 0}), x.Select(2, 1), lazy, gotorch.Empty([]int64{0, 3})} {
		var b bytes.Buffer
		testhelp.Must(t, npy.Write(&b, v))
		got, err := npy.Read(&b)
		testhelp.Must(t, err)
		if !got.Equal(v.ResolveConj()) || got.DType() != v.DType() {
			t.Errorf("got %v, want %v", got, v)
		}
	}
}

func TestWhatNumPyLacksIsNotWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.npy")
	if err := npy.Save(path, gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.BFloat16})); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
	if err := npy.SaveZip(path, map[string]gotorch.Tensor{"a": gotorch.Ones([]int64{2}, gotorch.TensorOptions{DType: gotorch.BFloat16})}); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) > 0 {
		t.Errorf("there is %v", list)
	}
}

// array makes a file of a header and elements.
func array(header string, elements ...byte) []byte {
	b := []byte("\x93NUMPY\x01\x00")
	b = append(b, byte(len(header)), byte(len(header)>>8))
	return append(append(b, header...), elements...)
}

func TestBrokenFilesAreErrors(t *testing.T) {
	good := array("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", 1, 2)
	for text, b := range map[string][]byte{
		"ends within its first 8":                      {},
		"ends within its first 8 ":                     good[:7],
		"begins with 00":                               make([]byte, 20),
		"ends within its header":                       good[:30],
		"ends within its header ":                      good[:9],
		"version 9.0":                                  append([]byte("\x93NUMPY\x09\x00"), good[8:]...),
		"should have 2 bytes, and there are 1":         good[:len(good)-1],
		"should have 2 bytes, and there are 3":         append(slices.Clone(good), 0),
		"header should have 4294967295 bytes":          []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"),
		"should have 9223372036854775807 bytes, and":   array("{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775807,)}"),
		"too large":                                    array("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,)}"),
		"shape [4294967296 4294967296] is too large":   array("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296, 4294967296)}"),
		"shape [0 9223372036854775807 2] is too large": array("{'descr': '|u1', 'fortran_order': False, 'shape': (0, 9223372036854775807, 2)}"),
		"lacks one of":                                 array("{'descr': '|u1', 'shape': (2,)}", 1, 2),
		"no size":                                      array("{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}", 1, 2),
		"neither True nor False":                       array("{'descr': '|u1', 'fortran_order': 1, 'shape': (2,)}", 1, 2),
		`"a" is none of its keys`:                      array("{'a': '|u1', 'fortran_order': False, 'shape': (2,)}", 1, 2),
		"is there twice":                               array("{'shape': (2,), 'fortran_order': False, 'shape': (2,)}", 1, 2),
		"goes on with":                                 array("{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x", 1, 2),
		"a string does not end":                        array("{'descr", 1, 2),
		"'{' is missing":                               array("", 1, 2),
		`"<f3", and PyTorch has no such dtype`:         array("{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}", 1, 2),
		`"", which is no dtype`:                        array("{'descr': '', 'fortran_order': False, 'shape': (2,)}", 1, 2),
		"element 1 is 2, which is no bool":             array("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", 1, 2),
		"65 dimensions":                                array("{'descr': '|u1', 'fortran_order': False, 'shape': ("+strings.Repeat("1,", 65)+")}", 1),
	} {
		path := filestest.Write(t, "a.npy", b)
		_, err := npy.Load(path)
		filestest.WantBroken(t, err, path, strings.TrimSpace(text))
		if !errors.Is(err, gotorch.ValueError) {
			t.Errorf("%v is no ValueError", err)
		}
	}
	for name, text := range map[string]string{"objects": "running code", "text": `"<U2"`, "structure": "structures"} {
		path := "testdata/" + name + ".npy"
		_, err := npy.Load(path)
		filestest.WantBroken(t, err, path, text)
	}
	filestest.NoFiles(t, func(path string) error { _, err := npy.Load(path); return err })
	filestest.NoFiles(t, func(path string) error { _, err := npy.LoadZip(path); return err })
	filestest.NoFiles(t, func(path string) error { _, err := npy.Open(path); return err })
}

func TestAnArrayMayHaveAsManyDimensionsAsNumPys(t *testing.T) {
	a, err := npy.Parse(array("{'descr': '|u1', 'fortran_order': False, 'shape': ("+strings.Repeat("1,", 64)+")}", 7))
	testhelp.Must(t, err)
	if a.Dim() != 64 || gotorch.Item[int](a) != 7 {
		t.Errorf("got %d dimensions", a.Dim())
	}
}

func TestAHeaderAloneCostsNoMemory(t *testing.T) {
	promise := array("{'descr': '<f8', 'fortran_order': False, 'shape': (134217728,)}")
	path := filestest.Write(t, "a.npy", promise)
	for what, fn := range map[string]func() error{
		"Read": func() error { _, err := npy.Read(bytes.NewReader(promise)); return err },
		"Load": func() error { _, err := npy.Load(path); return err },
		"Open": func() error { _, err := npy.Open(path); return err },
	} {
		var err error
		if n := filestest.Allocated(func() { err = fn() }); err == nil || n > 1<<20 {
			t.Errorf("%s: %d bytes were allocated; %v", what, n, err)
		}
	}
}

func TestArchivesAreReadAndWritten(t *testing.T) {
	arrays, err := npy.LoadZip("testdata/both.npz")
	testhelp.Must(t, err)
	if len(arrays) != 2 || !arrays["x"].Equal(gotorch.Arange(4).To(gotorch.Int32)) || !arrays["y"].Equal(gotorch.Ones([]int64{2, 2})) {
		t.Errorf("got %v", arrays)
	}
	for _, compressed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "a.npz")
		testhelp.Must(t, npy.SaveZip(path, arrays, npy.ZipOptions{Compressed: compressed}))
		again, err := npy.LoadZip(path)
		testhelp.Must(t, err)
		if len(again) != 2 || !again["x"].Equal(arrays["x"]) {
			t.Errorf("got %v", again)
		}
	}
}

// zipped makes an archive of names and contents, in turns.
func zipped(tb testing.TB, parts ...string) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		member, err := w.Create(parts[i])
		testhelp.Must(tb, err)
		_, err = io.WriteString(member, parts[i+1])
		testhelp.Must(tb, err)
	}
	testhelp.Must(tb, w.Close())
	return b.Bytes()
}

func TestBrokenArchivesAreErrors(t *testing.T) {
	good := string(array("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", 1, 2))
	whole := zipped(t, "a.npy", good, "other.txt", "left out")
	changed := slices.Clone(whole)
	changed[50] ^= 0xff
	for text, b := range map[string][]byte{
		"no valid .npz file":      whole[:len(whole)-5],
		"array a":                 changed,
		"there are two":           zipped(t, "a.npy", good, "a.npy", good),
		"more follows":            zipped(t, "a.npy", good+"x"),
		"array b: ValueError: it": zipped(t, "a.npy", good, "b.npy", good[:20]),
	} {
		path := filestest.Write(t, "a.npz", b)
		before := gotorch.MemoryStats().LiveHandles
		_, err := npy.LoadZip(path)
		filestest.WantBroken(t, err, path, text)
		if after := gotorch.MemoryStats().LiveHandles; after > before {
			t.Errorf("%s: %d arrays of it are alive", text, after-before)
		}
	}
	arrays, err := npy.LoadZip(filestest.Write(t, "a.npz", whole))
	if err != nil || len(arrays) != 1 {
		t.Errorf("got %v, %v", arrays, err)
	}
}

func TestRowsAreReadFromTheFile(t *testing.T) {
	dir := t.TempDir()
	x := gotorch.Arange(24).Reshape([]int64{4, 2, 3})
	y := gotorch.FromSlice([]int32{0, 1, 0, 1})
	testhelp.Must(t, npy.Save(filepath.Join(dir, "x.npy"), x))
	testhelp.Must(t, npy.Save(filepath.Join(dir, "y.npy"), y))
	filestest.NothingStays(t, func() {
		inputs, err := npy.Open(filepath.Join(dir, "x.npy"))
		testhelp.Must(t, err)
		defer inputs.Close()
		targets, err := npy.Open(filepath.Join(dir, "y.npy"))
		testhelp.Must(t, err)
		defer targets.Close()
		if inputs.Len() != 4 || inputs.DType() != gotorch.Int64 || !slices.Equal(inputs.Shape(), []int64{4, 2, 3}) {
			t.Errorf("got %d rows of %v, %v", inputs.Len(), inputs.DType(), inputs.Shape())
		}
		set, err := npy.Pairs(inputs, targets)
		testhelp.Must(t, err)
		one, err := set.At(2)
		testhelp.Must(t, err)
		if !one.Input.Equal(x.Select(0, 2)) || gotorch.Item[int](one.Target) != 0 {
			t.Errorf("got %v", one)
		}
		one.Close()
		n := 0
		for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 3, Workers: 2}).All() {
			testhelp.Must(t, err)
			n += batch.Len()
			if !batch.Input.Select(0, 0).Equal(x.Select(0, int64(n-batch.Len()))) {
				t.Errorf("got %v", batch.Input)
			}
			batch.Close()
		}
		if n != 4 {
			t.Errorf("got %d rows", n)
		}
		if _, err := set.At(4); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
		if _, err := inputs.Batch([]int{0, -1}, nil); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
		testhelp.Must(t, inputs.Close())
		testhelp.Must(t, inputs.Close())
		_, err = set.At(0)
		filestest.WantBroken(t, err, filepath.Join(dir, "x.npy"), "closed")
	})
	big, err := npy.Open("testdata/big_i4.npy")
	testhelp.Must(t, err)
	defer big.Close()
	row, err := big.At(1)
	testhelp.Must(t, err)
	if !row.Equal(gotorch.FromSlice([]int32{4, 5, 6})) {
		t.Errorf("got %v", row)
	}
	if _, err := npy.Pairs(big, big); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{"fortran": "Fortran", "scalar": "no dimensions"} {
		_, err := npy.Open("testdata/" + name + ".npy")
		filestest.WantBroken(t, err, "testdata/"+name+".npy", text)
	}
	path := filestest.Write(t, "a.npy", array("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n", 1, 2))
	short, err := npy.Open(path)
	testhelp.Must(t, err)
	defer short.Close()
	if _, err := npy.Pairs(big, short); err != nil {
		t.Error(err)
	}
	three, err := npy.Open(filepath.Join(dir, "y.npy"))
	testhelp.Must(t, err)
	defer three.Close()
	_, err = npy.Pairs(short, three)
	filestest.WantBroken(t, err, filepath.Join(dir, "y.npy"), "4 rows, and 2")
	testhelp.Must(t, os.Truncate(path, 20))
	_, err = short.At(1)
	filestest.WantBroken(t, err, path, "row 1: ValueError: the file ends within it")
}

// FuzzParse looks for bytes that are neither refused nor an array that is written as it was.
func FuzzParse(f *testing.F) {
	list, err := filepath.Glob("testdata/*.npy")
	testhelp.Must(f, err)
	for _, path := range list {
		b, err := os.ReadFile(path)
		testhelp.Must(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := npy.Parse(b)
		if err != nil {
			var broken *data.FileError
			if !errors.As(err, &broken) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		defer a.Close()
		var again bytes.Buffer
		testhelp.Must(t, npy.Write(&again, a))
		same, err := npy.Parse(again.Bytes())
		testhelp.Must(t, err)
		defer same.Close()
		if !slices.Equal(same.Shape(), a.Shape()) || !bytes.Equal(gotorch.RawData(same.Contiguous()), gotorch.RawData(a.Contiguous())) {
			t.Fatalf("got %v, want %v", same, a)
		}
	})
}

// FuzzZip looks for an archive that is neither refused nor read.
func FuzzZip(f *testing.F) {
	b, err := os.ReadFile("testdata/both.npz")
	testhelp.Must(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := npy.LoadZip(filestest.Write(t, "a.npz", b))
		var broken *data.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Fatalf("got %T: %v", err, err)
		}
	})
}

func ExampleSave() {
	path := filepath.Join(os.TempDir(), "gotorch-example.npy")
	defer os.Remove(path)
	if err := npy.Save(path, gotorch.NewTensor([][]float32{{1, 2}, {3, 4}})); err != nil {
		fmt.Println(err)
		return
	}
	rows, err := npy.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rows.Close()
	row, err := rows.At(1)
	fmt.Println(row, err)
	// Output: tensor([3., 4.]) <nil>
}
