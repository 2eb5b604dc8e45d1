// Package safetensors trains on tensors of a safetensors file: the rows of one are the inputs, and those of another the
// targets.
//
//	set, err := safetensors.Open("train.safetensors")
//	if err != nil {
//		return err
//	}
//	loader := data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Shuffle: true})
//
// In Python such a file is written by
//
//	safetensors.torch.save_file({"input": x, "target": y}, "train.safetensors")
//
// The file is mapped, and may be larger than memory: nothing of it is read before a batch needs it.
// [gotorch.LoadSafetensors] reads such a file as what it is, tensors by their names.
package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/internal/files"
	"gotorch.dev/gotorch/internal/args"
)

// Options say what is in a file.
type Options struct {
	Input  string // the name of the tensor of inputs; default: "input"
	Target string // the name of the tensor of targets; default: "target"
}

// Open maps a file and makes a data set of two of its tensors. The file must not be changed in place while the data set
// is in use; replacing it is fine. It returns a *data.FileError if the file is not valid, lacks one of the tensors, or if
// they differ in their number of rows, and an *fs.PathError if it cannot be read.
func Open(path string, opts ...Options) (*data.TensorDataset, error) {
	opt := args.Option(opts)
	if opt.Input == "" {
		opt.Input = "input"
	}
	if opt.Target == "" {
		opt.Target = "target"
	}
	tensors, _, err := gotorch.LoadSafetensors(path, gotorch.LoadOptions{Map: true})
	var unread *fs.PathError
	if errors.As(err, &unread) {
		return nil, err
	}
	if err != nil {
		return nil, &data.FileError{Path: path, Err: err}
	}
	kept := false
	defer func() { // so that the file does not stay mapped
		for name, t := range tensors {
			if !kept || name != opt.Input && name != opt.Target {
				t.Close()
			}
		}
	}()
	var pair [2]gotorch.Tensor
	for i, name := range []string{opt.Input, opt.Target} {
		t, ok := tensors[name]
		if !ok {
			return nil, files.Errorf(path, "", "there is no tensor %q: it has %s", name, names(tensors))
		}
		if t.Dim() == 0 {
			return nil, files.Errorf(path, "tensor "+name, "it has no dimensions, and so no rows")
		}
		pair[i] = t
	}
	if n, m := pair[0].Size(0), pair[1].Size(0); n != m {
		return nil, files.Errorf(path, "", "%q has %d rows, and %q %d", opt.Input, n, opt.Target, m)
	}
	kept = true
	return data.NewTensorDataset(pair[0], pair[1]), nil
}

// names lists some of the tensors' names.
func names(tensors map[string]gotorch.Tensor) string {
	all := slices.Sorted(maps.Keys(tensors))
	if len(all) == 0 {
		return "none"
	}
	more := ""
	if len(all) > 8 {
		all, more = all[:8], ", ..."
	}
	for i, name := range all {
		all[i] = fmt.Sprintf("%.100q", name)
	}
	return strings.Join(all, ", ") + more
}
