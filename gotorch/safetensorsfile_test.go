package gotorch_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
)

func ExampleOpenSafetensors() {
	path := filepath.Join(os.TempDir(), "example.safetensors")
	defer os.Remove(path)
	err := gotorch.SaveSafetensors(path, map[string]gotorch.Tensor{"x": gotorch.Arange(6).View([]int64{3, 2})}, nil)
	if err != nil {
		panic(err)
	}
	f, err := gotorch.OpenSafetensors(path)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	for _, e := range f.Entries() {
		fmt.Println(e.Name, e.Format, e.Shape)
	}
	rows, err := f.Rows("x", 1, 3)
	if err != nil {
		panic(err)
	}
	fmt.Println(rows)
	// Output:
	// x I64 [3 2]
	// tensor([[2, 3],
	//         [4, 5]])
}

// Who opens a file finds in it what who reads all of it does, and refuses what he refuses.
func FuzzOpenSafetensors(f *testing.F) {
	add := func(header string, data int) {
		f.Add(append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...), make([]byte, data)...))
	}
	add(`{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"__metadata__":{"k":"v"}}`, 16)
	add(`{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[3,7]}}`, 7)
	add(`{"a":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]},"b":{"dtype":"F6_E2M3","shape":[],"data_offsets":[4,5]}}`, 5)
	add(`{"a":{"dtype":"I64","shape":[0,9],"data_offsets":[0,0]}}`, 0)
	path := filepath.Join(f.TempDir(), "f.safetensors")
	f.Fuzz(func(t *testing.T, data []byte) {
		testhelp.Must(t, os.WriteFile(path, data, 0o666))
		file, err := gotorch.OpenSafetensors(path)
		want, metadata, wantErr := gotorch.ParseSafetensors(data)
		for _, x := range want {
			defer x.Close()
		}
		if err != nil {
			if wantErr == nil {
				t.Errorf("only the whole is read: %v", err)
			}
			return
		}
		defer file.Close()
		if wantErr != nil {
			if !errors.Is(wantErr, gotorch.NotImplementedError) { // a dtype, which the one tells and the other lists
				t.Errorf("only the header is read: %v", wantErr)
			}
			return
		}
		if fmt.Sprint(file.Metadata()) != fmt.Sprint(metadata) || len(file.Names()) != len(want) {
			t.Errorf("%v and %v", file.Metadata(), metadata)
		}
		for _, name := range file.Names() {
			x, err := file.Tensor(name)
			testhelp.Must(t, err)
			if string(gotorch.RawData(x)) != string(gotorch.RawData(want[name])) || fmt.Sprint(x.Shape(), x.DType()) != fmt.Sprint(want[name].Shape(), want[name].DType()) {
				t.Errorf("%q is %v and %v", name, x, want[name])
			}
			x.Close()
		}
	})
}

func TestASafetensorsFileSaysWhatIsAskedWrongly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.safetensors")
	testhelp.Must(t, gotorch.SaveSafetensors(path, map[string]gotorch.Tensor{"scalar": gotorch.Ones([]int64{}), "none": gotorch.Ones([]int64{0, 3})}, nil))
	f, err := gotorch.OpenSafetensors(path)
	testhelp.Must(t, err)
	for said, call := range map[string]func() (gotorch.Tensor, error){
		"KeyError":          func() (gotorch.Tensor, error) { return f.Tensor("x") },
		"has no dimensions": func() (gotorch.Tensor, error) { return f.Rows("scalar", 0, 1) },
		"rows 0 to 1":       func() (gotorch.Tensor, error) { return f.Rows("none", 0, 1) },
		"one options struct": func() (gotorch.Tensor, error) {
			return f.Tensor("scalar", gotorch.SafetensorsOptions{}, gotorch.SafetensorsOptions{})
		},
	} {
		if _, err := call(); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q is not in %v", said, err)
		}
	}
	empty, err := f.Rows("none", 0, 0)
	if err != nil || fmt.Sprint(empty.Shape()) != "[0 3]" {
		t.Error(empty, err)
	}
	testhelp.Must(t, f.Close())
	if _, err := f.Tensor("scalar"); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}
