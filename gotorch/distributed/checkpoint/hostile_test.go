package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
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
		"a path of nothing":    {func(x *item) { x.Path = nil }, gotorch.UnpicklingError, "it has no path"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "c")
			testhelp.Must(t, Save(dir, State{"x": gotorch.Arange(4).To(gotorch.Float32)}))
			root, err := os.OpenRoot(dir)
			testhelp.Must(t, err)
			defer root.Close()
			m, err := readMetadata("test", root)
			testhelp.Must(t, err)
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
