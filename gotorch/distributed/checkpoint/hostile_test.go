package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/pickle"
	"gotorch.dev/gotorch/internal/testhelp"
)

// Each lie of a folder is found, before or when what it is about is read.
func TestAFolderThatLies(t *testing.T) {
	for name, c := range map[string]struct {
		lie  func(x *item)
		kind gotorch.ErrorKind
		says string
	}{
		"parts that overlap": {func(x *item) {
			x.Shape = []int64{5}
			more := x.Parts[0]
			more.Offsets = []int64{1}
			x.Parts = append(x.Parts, more)
		}, gotorch.UnpicklingError, "have elements in common"},
		"a part outside":       {func(x *item) { x.Shape = []int64{3} }, gotorch.UnpicklingError, "is not within a tensor of [3]"},
		"a part that lacks":    {func(x *item) { x.Shape = []int64{5} }, gotorch.UnpicklingError, "its parts have 4 elements"},
		"a negative size":      {func(x *item) { x.Parts[0].Sizes = []int64{-4} }, gotorch.UnpicklingError, ""},
		"a size beyond int64":  {func(x *item) { x.Shape = []int64{1 << 40, 1 << 40} }, gotorch.UnpicklingError, "cannot have the shape"},
		"another dtype":        {func(x *item) { x.DType = gotorch.Float64 }, gotorch.ValueError, "where its part of [4] is to be"},
		"another shape":        {func(x *item) { x.Shape, x.Parts[0].Sizes = []int64{2}, []int64{2} }, gotorch.ValueError, "where its part of [2] is to be"},
		"beyond the file":      {func(x *item) { x.Parts[0].Length = 1 << 40 }, gotorch.ValueError, "it is truncated"},
		"before the file":      {func(x *item) { x.Parts[0].At = -1 }, gotorch.ValueError, "it is truncated"},
		"an end beyond int64":  {func(x *item) { x.Parts[0].At = 1<<63 - 1 }, gotorch.ValueError, "it is truncated"},
		"a file that is above": {func(x *item) { x.Parts[0].File = "../outside" }, "", "escapes"},
		"a path without end":   {func(x *item) { x.Path = slices.Repeat([]any{"a"}, 1_000_000) }, gotorch.UnpicklingError, "may be in 200"},
		"too many dimensions":  {func(x *item) { x.Shape = slices.Repeat([]int64{1}, 65) }, gotorch.UnpicklingError, "65 dimensions"},
		"a path of nothing":    {func(x *item) { x.Path = nil }, gotorch.UnpicklingError, "it has no path"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "c")
			testhelp.Must(t, Save(dir, State{"x": gotorch.Arange(4).To(gotorch.Float32)}))
			root, err := os.OpenRoot(dir)
			testhelp.Must(t, err)
			defer root.Close()
			m, file, _, err := readMetadata("test", root)
			testhelp.Must(t, err)
			testhelp.Must(t, file.Close())
			content, err := os.ReadFile(filepath.Join(dir, m.items[0].Parts[0].File))
			testhelp.Must(t, err)
			testhelp.Must(t, os.WriteFile(filepath.Join(dir, "../outside"), content, 0o600))
			c.lie(m.items[0])
			testhelp.Must(t, os.WriteFile(filepath.Join(dir, metadataName), m.encode(), 0o600))
			_, err = Read(dir)
			if err == nil || !strings.Contains(err.Error(), c.says) || (c.kind != "" && !errors.Is(err, c.kind)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A view is written without what it is a view of.
func TestAViewIsWrittenAlone(t *testing.T) {
	dir := t.TempDir()
	testhelp.Must(t, Save(dir, State{"x": gotorch.Zeros([]int64{1000, 1000}).Select(0, 3)}))
	info, err := os.Stat(filepath.Join(dir, "__0_0.distcp"))
	testhelp.Must(t, err)
	if info.Size() > 10_000 {
		t.Errorf("%d bytes for 1000 numbers", info.Size())
	}
}

// Parts with few bytes that say they are large: no memory is taken for them.
func TestPartsThatAreLargerThanTheirBytes(t *testing.T) {
	const n = 1 << 44
	dir := t.TempDir()
	var part1 bytes.Buffer
	testhelp.Must(t, gotorch.Encode(&part1, "archive", gotorch.Zeros([]int64{1}).Expand([]int64{n})))
	length := int64(part1.Len())
	testhelp.Must(t, os.WriteFile(filepath.Join(dir, "f"), part1.Bytes(), 0o600))
	for _, parts := range []int64{1, 2} {
		it := &item{Key: "x", Path: []any{"x"}, Tensor: true, DType: gotorch.Float32, Shape: []int64{parts * n}}
		for i := range parts {
			it.Parts = append(it.Parts, part{Offsets: []int64{i * n}, Sizes: []int64{n}, File: "f", Length: length})
		}
		testhelp.Must(t, os.WriteFile(filepath.Join(dir, metadataName), (&metadata{items: []*item{it}}).encode(), 0o600))
		if _, err := Read(dir); !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), "not as large as it says") {
			t.Errorf("%d: %v", parts, err)
		}
	}
}

func objectOf(of class, fields ...any) *object {
	d := &pickle.Dict{}
	for i := 0; i < len(fields); i += 2 {
		d.Items = append(d.Items, pickle.Item{Key: fields[i], Value: fields[i+1]})
	}
	return &object{of, d}
}

// A pickle may have one thing in many places, in two bytes each. Who looks at it in each of them pays for it.
func TestAThingInManyPlaces(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	sizes := func(n ...any) *pickle.Tuple { return &pickle.Tuple{Items: n} }
	zeros := &pickle.List{}
	for range 1 << 16 {
		zeros.Items = append(zeros.Items, objectOf(chunkClass, "offsets", sizes(int64(0)), "sizes", sizes(int64(0))))
	}
	tensor := objectOf(tensorClass, "properties", &object{propertiesClass, sizes(gotorch.Float32)}, "size", sizes(int64(1)), "chunks", zeros)
	names, places, paths, tensors := &pickle.Dict{}, &pickle.Dict{}, &pickle.Dict{}, &pickle.Dict{}
	for i := range 1 << 16 {
		key := fmt.Sprint(i)
		names.Items = append(names.Items, pickle.Item{Key: key, Value: objectOf(bytesClass)})
		tensors.Items = append(tensors.Items, pickle.Item{Key: key, Value: tensor})
		places.Items = append(places.Items, pickle.Item{Key: objectOf(indexClass, "fqn", long, "offset", nil), Value: objectOf(storageClass, "relative_path", "f", "offset", int64(0), "length", int64(0))})
		paths.Items = append(paths.Items, pickle.Item{Key: key, Value: sizes(long, int64(i))})
	}
	plain := &pickle.Dict{}
	for i := range 1 << 16 {
		plain.Items = append(plain.Items, pickle.Item{Key: objectOf(indexClass, "fqn", fmt.Sprint(i), "offset", nil), Value: places.Items[0].Value})
	}
	for name, v := range map[string]*object{
		"a long name":      objectOf(metadataClass, "state_dict_metadata", names, "storage_data", places),
		"a path":           objectOf(metadataClass, "state_dict_metadata", names, "storage_data", plain, "planner_data", paths),
		"parts of nothing": objectOf(metadataClass, "state_dict_metadata", tensors, "storage_data", &pickle.Dict{}),
	} {
		if _, err := asMetadata(v, pickle.NewBudget(1<<22)); !errors.Is(err, pickle.ErrBudget) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
