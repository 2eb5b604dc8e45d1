package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/replace"
	"gotorch.dev/gotorch/nn"
)

// SaveOptions are the arguments of [Save] and [SaveModel] that have defaults.
type SaveOptions struct {
	// MaxShardBytes is how much one file holds at most; a tensor that is larger has one of its own. Default: 50e9, as in
	// Python's transformers.
	MaxShardBytes gotorch.Scalar
	// Config becomes config.json: what encoding/json makes an object of, or a *Config as it is. Default: no such file is
	// written, and one that is there stays.
	Config any
	// Mapping is that of [LoadInto], for which [SaveModel] goes the way back: to the names that the folder has.
	Mapping Mapping
	// Metadata are strings that each file gets beside format: pt, which Python asks for.
	Metadata map[string]string
	// DType converts floating tensors. Default: they stay as they are.
	DType gotorch.DType
}

// SaveModel writes a model's weights as a folder that [Open] and Python's from_pretrained read. Names and shapes are
// the folder's by the way back through the mapping, of which it finds out first whether there is one: what [Drop] leaves
// out is not written, and a [Func] has no way back, which is an error of kind ValueError. A tensor that the model has under
// several names is written under the first of them, as Python does.
func SaveModel(dir string, model nn.Modular, opts ...SaveOptions) error {
	opt := args.Option(opts)
	state := model.StateDict()
	defer func() {
		for _, t := range state {
			t.Close()
		}
	}()
	for _, names := range tied(state) {
		for _, name := range tiedAway(model, names) {
			state[name].Close()
			delete(state, name)
		}
	}
	p, err := opt.Mapping.back(state.Names())
	if err != nil {
		return err
	}
	tensors := nn.StateDict{}
	err = gotorch.Try0(func() {
		for _, s := range p.steps {
			in := make([]gotorch.Tensor, len(s.from))
			for i, name := range s.from {
				in[i] = state[name]
			}
			for i, out := range s.rule.apply(in) {
				tensors[s.to[i]] = out
			}
		}
	})
	if err != nil {
		return err
	}
	return Save(dir, tensors, opt)
}

// tiedAway returns the names of one tensor without the one that is written: the first in the model's order.
func tiedAway(model nn.Modular, names []string) []string {
	for name := range model.NamedParameters() {
		if i := slices.Index(names, name); i >= 0 {
			return slices.Delete(slices.Clone(names), i, i+1)
		}
	}
	return names[1:]
}

// Save writes tensors as a folder that [Open] and Python read: model.safetensors, or shards with an index where they
// are more than MaxShardBytes. The folder is made if it is not there. Other files in it stay, and weights that it had
// are replaced when the new ones are complete: until then the old ones are there, and a process that is killed leaves
// either of them or, for the moment in which several files change places, a folder without weights, never one with some of each.
// Options other than those of the files, such as Mapping, are for [SaveModel].
func Save(dir string, tensors nn.StateDict, opts ...SaveOptions) (err error) {
	const op = "hub.Save"
	opt := args.Option(opts)
	most := args.Int(op, "MaxShardBytes", wholeNumber(opt.MaxShardBytes), defaultShardBytes)
	if most < 1 {
		return args.ValueError(op, "MaxShardBytes must be positive, got %d", most)
	}
	if opt.DType != 0 && !opt.DType.IsFloatingPoint() {
		return args.ValueError(op, "DType must be a floating one, got %v", opt.DType)
	}
	for _, name := range tensors.Names() {
		if !tensors[name].Defined() {
			return args.ValueError(op, "%q is the zero Tensor, or was closed", name)
		}
	}
	var config []byte
	if opt.Config != nil {
		if config, err = configBytes(opt.Config); err != nil {
			return err
		}
	}
	metadata := map[string]string{"format": "pt"}
	maps.Copy(metadata, opt.Metadata)

	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	removeOld(dir)
	stage, err := os.MkdirTemp(dir, stagePattern)
	if err != nil {
		return err
	}
	defer os.RemoveAll(stage)
	files, index := shardsOf(tensors, opt.DType, most)
	for _, f := range files {
		if err := writeShard(filepath.Join(stage, f.name), f.names, tensors, opt.DType, metadata); err != nil {
			return err
		}
	}
	if len(files) > 1 {
		if err := replace.File(filepath.Join(stage, indexName), func(w io.Writer) error { return writeJSON(w, index) }); err != nil {
			return err
		}
	}
	return commit(dir, stage, files, config)
}

// defaultShardBytes is what save_pretrained of transformers has since version 5; it was a tenth of that before.
const defaultShardBytes int64 = 50e9

const (
	singleName = "model.safetensors"
	indexName  = "model.safetensors.index.json"
)

// wholeNumber lets 5e9 be written for a number of bytes.
func wholeNumber(n gotorch.Scalar) gotorch.Scalar {
	if f, ok := n.(float64); ok && f == float64(int64(f)) {
		return int64(f)
	}
	return n
}

func configBytes(config any) ([]byte, error) {
	if c, ok := config.(*Config); ok {
		if c == nil {
			return nil, args.ValueError("hub.Save", "Config is nil: the folder that it is from has no config.json")
		}
		return c.raw, nil
	}
	raw, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return nil, args.ValueError("hub.Save", "Config: %v", err)
	}
	if _, err := parseConfig(raw, "Config"); err != nil {
		return nil, err
	}
	return append(raw, '\n'), nil
}

type shardFile struct {
	name  string
	names []string
}

// indexFile is the JSON of an index.
type indexFile struct {
	Metadata struct {
		TotalParameters int64 `json:"total_parameters"`
		TotalSize       int64 `json:"total_size"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

// shardsOf puts tensors into files of at most so many bytes, in the order of their names.
func shardsOf(tensors nn.StateDict, dtype gotorch.DType, most int64) ([]shardFile, indexFile) {
	var index indexFile
	index.WeightMap = map[string]string{}
	files := []shardFile{{}}
	var used int64
	for _, name := range tensors.Names() {
		t := tensors[name]
		size := int64(t.DType().Size())
		if dtype != 0 && t.DType().IsFloatingPoint() {
			size = int64(dtype.Size())
		}
		size *= t.Numel()
		last := &files[len(files)-1]
		if len(last.names) > 0 && used+size > most {
			files = append(files, shardFile{})
			last, used = &files[len(files)-1], 0
		}
		last.names = append(last.names, name)
		used += size
		index.Metadata.TotalSize += size
		index.Metadata.TotalParameters += t.Numel()
	}
	if len(files) == 1 {
		files[0].name = singleName
	} else {
		for i := range files {
			files[i].name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(files))
		}
	}
	for _, f := range files {
		for _, name := range f.names {
			index.WeightMap[name] = f.name
		}
	}
	return files, index
}

func writeShard(path string, names []string, tensors nn.StateDict, dtype gotorch.DType, metadata map[string]string) error {
	part := map[string]gotorch.Tensor{}
	var made []gotorch.Tensor
	defer func() {
		for _, t := range made {
			t.Close()
		}
	}()
	for _, name := range names {
		t := tensors[name]
		if dtype != 0 && t.DType().IsFloatingPoint() && t.DType() != dtype {
			converted, err := gotorch.Try(func() gotorch.Tensor { return t.Detach().To(dtype) })
			if err != nil {
				return err
			}
			t, made = converted, append(made, converted)
		}
		part[name] = t
	}
	return gotorch.SaveSafetensors(path, part, metadata)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// weightFile is what [Save] writes, and what it replaces.
var weightFile = regexp.MustCompile(`^(model|pytorch_model)(-\d{5,}-of-\d{5,})?\.(safetensors|bin)(\.index\.json)?$`)

// commit puts what is complete into its place. What says where weights are goes first and comes last.
func commit(dir, stage string, files []shardFile, config []byte) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries { // before anything has changed
		if weightFile.MatchString(entry.Name()) && entry.IsDir() {
			return &fs.PathError{Op: "replace", Path: filepath.Join(dir, entry.Name()), Err: args.ValueError("hub.Save", "a folder has the name of a file with weights")}
		}
	}
	remove := func(which func(name string, shard bool) bool) error {
		for _, entry := range entries {
			m := weightFile.FindStringSubmatch(entry.Name())
			if m == nil || !which(entry.Name(), m[2] != "") {
				continue
			}
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		return nil
	}
	place := func(name string) error { return os.Rename(filepath.Join(stage, name), filepath.Join(dir, name)) }
	if config != nil {
		if err := replace.File(filepath.Join(dir, "config.json"), func(w io.Writer) error { _, err := w.Write(config); return err }); err != nil {
			return err
		}
	}
	if len(files) == 1 { // which takes the place of one that is there, and hides everything else
		if err := place(singleName); err != nil {
			return err
		}
		return errors.Join(remove(func(name string, shard bool) bool { return !shard && name != singleName }),
			remove(func(_ string, shard bool) bool { return shard }))
	}
	if err := remove(func(_ string, shard bool) bool { return !shard }); err != nil {
		return err
	}
	if err := remove(func(_ string, shard bool) bool { return shard }); err != nil {
		return err
	}
	for _, f := range files {
		if err := place(f.name); err != nil {
			return err
		}
	}
	return place(indexName)
}

// removeOld removes what a process that was killed has left of a Save, a day later.
func removeOld(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, stagePattern))
	for _, path := range old {
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > 24*time.Hour {
			os.RemoveAll(path)
		}
	}
}

const stagePattern = ".gotorch-*.part"
