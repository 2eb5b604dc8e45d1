package npy

import (
	"archive/zip"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/counting"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// What a packed byte unpacks to is at most 1032 bytes. An archive whose parts lie one over the other could hold more.
const maxRatio = 1032

// LoadZip reads all arrays of a .npz file, by their names without ".npy". What else is in the file is left out. The error
// is a *data.FileError if the file is no valid one, and says which array is not.
func LoadZip(path string) (_ map[string]gotorch.Tensor, err error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	archive, err := zip.NewReader(f, size)
	if err != nil {
		return nil, files.Wrap(path, "", fmt.Errorf("it is no valid .npz file: %w", err))
	}
	arrays := map[string]gotorch.Tensor{}
	defer func() {
		if err != nil {
			for _, t := range arrays {
				t.Close()
			}
		}
	}()
	left := int64(1<<20) + maxRatio*size
	for _, member := range archive.File {
		name, ok := strings.CutSuffix(member.Name, ".npy")
		if !ok {
			continue
		}
		where := "array " + name
		if _, twice := arrays[name]; twice {
			return nil, files.Errorf(path, where, "there are two of that name")
		}
		r, err := member.Open()
		if err != nil {
			return nil, files.Wrap(path, where, err)
		}
		t, n, err := readMember(r, left)
		r.Close()
		if err != nil {
			return nil, wrap(path, where, err)
		}
		left -= n
		arrays[name] = t
	}
	return arrays, nil
}

// readMember reads an array of at most so many bytes to its end, which also checks its checksum. It returns how many
// there were.
func readMember(r io.Reader, most int64) (gotorch.Tensor, int64, error) {
	counted := &counting.Reader{R: r}
	t, err := read(counted, most)
	if err != nil {
		return t, 0, err
	}
	switch n, err := io.CopyN(io.Discard, r, 1); {
	case n > 0:
		t.Close()
		return t, 0, invalid("more follows after its last element")
	case err != io.EOF:
		t.Close()
		return t, 0, err
	}
	return t, counted.N, nil
}

// ZipOptions say how a .npz file is written.
type ZipOptions struct {
	Compressed bool // as np.savez_compressed does
}

// SaveZip writes arrays by their names, as np.savez does. A file at path is replaced when the new one is complete, and
// not before.
func SaveZip(path string, arrays map[string]gotorch.Tensor, opts ...ZipOptions) error {
	method := zip.Store
	if args.Option(opts).Compressed {
		method = zip.Deflate
	}
	return replace.File(path, func(w io.Writer) error {
		archive := zip.NewWriter(w)
		for _, name := range slices.Sorted(maps.Keys(arrays)) {
			member, err := archive.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: method})
			if err != nil {
				return err
			}
			if err := Write(member, arrays[name]); err != nil {
				return fmt.Errorf("array %q: %w", name, err)
			}
		}
		return archive.Close()
	})
}
