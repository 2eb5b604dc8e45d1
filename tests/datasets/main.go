// Command datasets reads files with the packages below gotorch/data and writes what they hold as NumPy's files, or as
// JSON, for tests/test_datasets.py to compare with what Python reads.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/cifar"
	"gotorch.dev/gotorch/data/csvdata"
	"gotorch.dev/gotorch/data/imagefolder"
	"gotorch.dev/gotorch/data/lines"
	"gotorch.dev/gotorch/data/npy"
	"gotorch.dev/gotorch/data/parquet"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/data/tokens"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/vision/imageio"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(what, from, to string) error {
	switch what {
	case "npy":
		return each(from, func(path string) error {
			t, err := npy.Load(path)
			if err != nil {
				return err
			}
			return npy.Save(filepath.Join(to, filepath.Base(path)), t)
		})
	case "npz":
		return each(from, func(path string) error {
			arrays, err := npy.LoadZip(path)
			if err != nil {
				return err
			}
			compressed := strings.Contains(path, "packed")
			return npy.SaveZip(filepath.Join(to, filepath.Base(path)), arrays, npy.ZipOptions{Compressed: compressed})
		})
	case "images", "oriented":
		return each(from, func(path string) error {
			picture, err := imageio.ReadImage(path, imageio.DecodeOptions{Orient: what == "oriented"})
			if err != nil {
				return err
			}
			return npy.Save(filepath.Join(to, filepath.Base(path)+".npy"), imageio.FromImage(picture, imageio.RGB))
		})
	case "kinds":
		said := map[string]string{}
		err := each(from, func(path string) error {
			said[filepath.Base(path)] = ""
			if _, err := imageio.ReadImage(path); err != nil {
				said[filepath.Base(path)] = err.Error()
			}
			return nil
		})
		if err != nil {
			return err
		}
		return write(filepath.Join(to, "kinds.json"), said)
	case "csv", "parquet":
		return each(from, func(path string) error {
			if !strings.HasSuffix(path, "."+what) {
				return nil
			}
			return table(path, to)
		})
	case "lines":
		f, err := lines.Open(from)
		if err != nil {
			return err
		}
		all := make([]string, f.Len())
		for i := len(all) - 1; i >= 0; i-- { // in another order than they lie
			if all[i], err = f.At(i); err != nil {
				return err
			}
		}
		streamed := []string{}
		for line, err := range lines.NewStream([]string{from, from + ".gz"}).All() {
			if err != nil {
				return err
			}
			streamed = append(streamed, line)
		}
		return write(to, [][]string{all, streamed})
	case "folder":
		set, err := imagefolder.Open(from, imagefolder.Options{AllowEmpty: true})
		if err != nil {
			return err
		}
		type sample struct {
			Path  string
			Class int
		}
		samples := make([]sample, set.Len())
		for i := range samples {
			samples[i] = sample{set.Path(i), set.Class(i)}
		}
		return write(to, map[string]any{"classes": set.Classes(), "samples": samples})
	case "webdataset":
		shards, err := webdataset.Expand(from)
		if err != nil {
			return err
		}
		var all []any
		for sample, err := range webdataset.New(shards).All() {
			if err != nil {
				return err
			}
			fields := map[string]string{}
			for _, f := range sample.Fields {
				fields[f.Name] = fmt.Sprintf("%x", f.Data)
			}
			all = append(all, []any{filepath.Base(sample.Shard), sample.Key, fields})
		}
		return write(to, all)
	case "expand":
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		var all [][]string
		for pattern := range strings.Lines(string(text)) {
			paths, err := webdataset.Expand(strings.TrimSuffix(pattern, "\n"))
			if err != nil {
				return err
			}
			all = append(all, paths)
		}
		return write(to, all)
	case "cifar":
		train, test, err := cifar.Open(from)
		if err != nil {
			return err
		}
		for name, set := range map[string]*cifar.Set{"train": train, "test": test} {
			pictures, labels := set.Tensors()
			if err := npy.Save(filepath.Join(to, name+"_pictures.npy"), pictures); err != nil {
				return err
			}
			if err := npy.Save(filepath.Join(to, name+"_labels.npy"), labels); err != nil {
				return err
			}
		}
		return write(filepath.Join(to, "classes.json"), train.Classes())
	case "tokens":
		set, err := tokens.Open(from, 16, tokens.Options{Stride: 1, Header: 6})
		if err != nil {
			return err
		}
		defer set.Close()
		indices := make([]int, set.Len())
		for i := range indices {
			indices[i] = i
		}
		batch, err := set.Batch(indices, nil)
		if err != nil {
			return err
		}
		if err := npy.Save(filepath.Join(to, "input.npy"), batch.Input); err != nil {
			return err
		}
		return npy.Save(filepath.Join(to, "target.npy"), batch.Target)
	}
	return fmt.Errorf("nothing is called %q", what)
}

func each(dir string, fn func(path string) error) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, item := range list {
		if err := fn(filepath.Join(dir, item.Name())); err != nil {
			return err
		}
	}
	return nil
}

// table writes the inputs and targets of a table: in one batch, and as the stream has them.
func table(path, to string) error {
	text, err := os.ReadFile(path + ".json")
	if err != nil {
		return err
	}
	var spec struct {
		Inputs, Targets         []tabular.Column
		InputDType, TargetDType string
	}
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	dtypes := map[string]gotorch.DType{"float32": gotorch.Float32, "float64": gotorch.Float64, "int64": gotorch.Int64}
	layout := tabular.Layout{Inputs: spec.Inputs, Targets: spec.Targets, InputDType: dtypes[spec.InputDType], TargetDType: dtypes[spec.TargetDType]}
	var set interface {
		data.Batcher[data.Pair]
		Close() error
	}
	var stream func(func(data.Pair, error) bool)
	if strings.HasSuffix(path, ".csv") {
		set, err = csvdata.Open(path, layout)
		stream = csvdata.NewStream([]string{path}, layout).All()
	} else {
		var t *parquet.Table
		if t, err = parquet.Open([]string{path}, layout); err == nil {
			set, stream = t, t.Stream().All()
		}
	}
	if err != nil {
		return err
	}
	defer set.Close()
	indices := make([]int, set.Len())
	for i := range indices {
		indices[i] = len(indices) - 1 - i
	}
	batch, err := set.Batch(indices, nil)
	if err != nil {
		return err
	}
	n := 0
	for pair, err := range stream {
		if err != nil {
			return err
		}
		at := gotorch.At(int64(len(indices) - 1 - n))
		if !gotorch.AllClose(pair.Input, batch.Input.Index(at), gotorch.AllCloseOptions{EqualNaN: true}) ||
			!gotorch.AllClose(pair.Target, batch.Target.Index(at), gotorch.AllCloseOptions{EqualNaN: true}) {
			return fmt.Errorf("%s: row %d of the stream is %v, and of the table %v", path, n, pair, batch.Input.Index(at))
		}
		n++
	}
	if n != len(indices) {
		return fmt.Errorf("%s: the stream has %d rows, and the table %d", path, n, len(indices))
	}
	name := filepath.Join(to, filepath.Base(path))
	if err := npy.Save(name+".input.npy", batch.Input); err != nil {
		return err
	}
	return npy.Save(name+".target.npy", batch.Target)
}

func write(path string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
