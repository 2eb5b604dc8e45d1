package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/shards"
)

// Folder is a folder with a model, of which only what says what there is has been read. [Open] makes one. All of
// it may be used by several goroutines at once.
type Folder struct {
	dir, real string // as given, and without links
	opt       OpenOptions
	config    *Config
	weights   string // the file with the weights, or their index
	metadata  map[string]string

	files []*gotorch.SafetensorsFile

	mutex  sync.RWMutex
	closed bool
	parts  map[string]part
}

// part is where a tensor is.
type part struct {
	info TensorInfo
	file *gotorch.SafetensorsFile
	held gotorch.Tensor // of a file of torch.save
}

// TensorInfo says what a folder has of a tensor.
type TensorInfo struct {
	Name   string
	DType  gotorch.DType // 0 where this PyTorch has none of that kind
	Format string        // the dtype as the file has it: "BF16"
	Shape  []int64
	Bytes  int64  // that its elements take
	File   string // the name of the file that has it
}

// OpenOptions are the arguments of [Open] that have defaults.
type OpenOptions struct {
	// Weights is how the names of the files with the weights begin. Default: "model" for safetensors, and
	// "pytorch_model" for files of torch.save.
	Weights string
	// Variant is what some folders have in the names of their files: "fp16" opens model.fp16.safetensors.
	Variant string
	// FollowLinks opens files that are links to anywhere. Without it a link may lead to within the folder, or to
	// the files of a cache of Python's huggingface_hub, if the folder is in one.
	FollowLinks bool
}

// Open opens a folder as Python's transformers, diffusers and timm save models:
//
//	config.json                              what the model is: Config
//	model.safetensors                        its weights; or in shards,
//	model-00001-of-00002.safetensors ...
//	model.safetensors.index.json             with an index
//	tokenizer.json, generation_config.json   and other files: File
//
// It takes the first that it finds of model.safetensors, its index, and pytorch_model.bin and its index, which
// gotorch.Load reads. Of the weights only the headers are read, and each is checked: Open ends with an error where a
// shard is missing, or a header does not fit its file. What is wrong with a shard or the index is a
// *gotorch.ShardError; a folder without weights is an error that errors.Is finds to be fs.ErrNotExist, which says
// what was looked for.
//
// Files stay open until [Folder.Close], so that the weights are those that were there when the folder was opened,
// also if others take their names meanwhile.
func Open(dir string, opts ...OpenOptions) (folder *Folder, err error) {
	opt := args.Option(opts)
	for _, name := range []string{opt.Weights, opt.Variant} {
		if name != "" && shards.CheckName(name) != nil {
			return nil, args.ValueError("hub.Open", "%q is no part of a file's name", name)
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if real, err = filepath.Abs(real); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, real: real, opt: opt, parts: map[string]part{}, metadata: map[string]string{}}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.config, err = f.readJSON("config.json"); err != nil {
		return nil, err
	}
	var sought []string
	for _, candidate := range f.candidates() {
		sought = append(sought, candidate.name)
		if _, err := os.Lstat(filepath.Join(real, candidate.name)); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		f.weights = candidate.name
		if candidate.index {
			err = f.openIndex(candidate.name)
		} else {
			err = f.openFile(candidate.name, nil)
		}
		if err != nil {
			return nil, err
		}
		return f, nil
	}
	return nil, &fs.PathError{Op: "open", Path: dir, Err: fmt.Errorf("%w: there are no weights, neither %s", fs.ErrNotExist, strings.Join(sought, " nor "))}
}

type candidate struct {
	name  string
	index bool
}

// candidates returns the names that weights may have, the best first.
func (f *Folder) candidates() (list []candidate) {
	dot := ""
	if f.opt.Variant != "" {
		dot = "." + f.opt.Variant
	}
	for _, kind := range []struct{ base, ending string }{{"model", "safetensors"}, {"pytorch_model", "bin"}} {
		base := kind.base
		if f.opt.Weights != "" {
			base = f.opt.Weights
		}
		list = append(list, candidate{base + dot + "." + kind.ending, false}, candidate{base + "." + kind.ending + ".index" + dot + ".json", true})
	}
	return list
}

// resolve returns the path of a file of the folder, without links. It refuses links out of the folder.
func (f *Folder) resolve(name string) (string, error) {
	real, err := filepath.EvalSymlinks(filepath.Join(f.real, name))
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			return "", &fs.PathError{Op: "open", Path: filepath.Join(f.dir, name), Err: path.Err}
		}
		return "", &fs.PathError{Op: "open", Path: filepath.Join(f.dir, name), Err: err}
	}
	if f.opt.FollowLinks || within(f.real, real) || inCache(f.real, real) {
		return real, nil
	}
	return "", &fs.PathError{Op: "open", Path: filepath.Join(f.dir, name), Err: args.ValueError("hub.Open", "it is a link to %s, which is outside of the folder: with FollowLinks it is followed", real)}
}

func within(dir, path string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// inCache reports whether path is one of the blobs that the snapshot in dir consists of:
// models--org--name/blobs/0123abcd for models--org--name/snapshots/revision.
func inCache(dir, path string) bool {
	for at := dir; ; at = filepath.Dir(at) {
		above := filepath.Dir(at)
		if above == at {
			return false
		}
		if filepath.Base(above) == "snapshots" {
			return filepath.Dir(path) == filepath.Join(filepath.Dir(above), "blobs")
		}
	}
}

// openIndex opens the shards that an index names.
func (f *Folder) openIndex(name string) error {
	index := filepath.Join(f.dir, name)
	real, err := f.resolve(name)
	if err != nil {
		return err
	}
	file, size, err := regular.Open(real)
	if err != nil {
		return err
	}
	defer file.Close()
	if size > maxIndex {
		return &gotorch.ShardError{Index: index, Err: args.ValueError("hub.Open", "the index has %d bytes, and %d are the most that is read", size, maxIndex)}
	}
	parts, err := shards.Read(file)
	if err != nil {
		return &gotorch.ShardError{Index: index, Err: args.ValueError("hub.Open", "%v", err)}
	}
	for _, shard := range slices.Sorted(maps.Keys(parts)) {
		if err := shards.CheckName(shard); err != nil {
			return &gotorch.ShardError{Index: index, Shard: shard, Err: args.ValueError("hub.Open", "%v", err)}
		}
		if err := f.openFile(shard, parts[shard]); err != nil {
			var known *gotorch.ShardError
			if errors.As(err, &known) {
				known.Index, known.Shard = index, shard
				return known
			}
			return &gotorch.ShardError{Index: index, Shard: shard, Err: err}
		}
	}
	return nil
}

// maxIndex is a bound of the size of an index. That of a model with 100,000 tensors has 10 MB.
const maxIndex = 256 << 20

// openFile opens a file with tensors: all of them, or those of the names that an index gives it.
func (f *Folder) openFile(name string, wanted []string) error {
	real, err := f.resolve(name)
	if err != nil {
		return err
	}
	found := map[string]part{}
	if strings.HasSuffix(name, ".bin") {
		tensors, err := gotorch.LoadTensors(real, gotorch.LoadOptions{Map: true})
		if err != nil {
			return err
		}
		for key, t := range tensors {
			info := TensorInfo{Name: key, DType: t.DType(), Format: t.DType().String(), Shape: t.Shape(), Bytes: t.Numel() * int64(t.DType().Size()), File: name}
			found[key] = part{info: info, held: t}
		}
	} else {
		file, err := gotorch.OpenSafetensors(real)
		if err != nil {
			return err
		}
		f.files = append(f.files, file)
		for _, e := range file.Entries() {
			found[e.Name] = part{info: TensorInfo{e.Name, e.DType, e.Format, e.Shape, e.Bytes, name}, file: file}
		}
		for key, value := range file.Metadata() {
			if _, known := f.metadata[key]; !known {
				f.metadata[key] = value
			}
		}
	}
	if wanted == nil {
		f.parts = found
		return nil
	}
	for _, key := range wanted {
		p, ok := found[key]
		if !ok {
			closeAll(found)
			return &gotorch.ShardError{Tensor: key, Err: keyError("hub.Open", "the shard does not hold the tensor")}
		}
		f.parts[key] = p
		delete(found, key)
	}
	closeAll(found) // which the index says to be elsewhere, or nowhere
	return nil
}

func closeAll(parts map[string]part) {
	for _, p := range parts {
		if p.file == nil {
			p.held.Close()
		}
	}
}

// Close closes the folder's files. Tensors that came from it stay.
func (f *Folder) Close() error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	closeAll(f.parts)
	return errors.Join(errs...)
}

// Dir returns the folder's path, as it was given to [Open].
func (f *Folder) Dir() string { return f.dir }

// Config returns config.json, or nil where there is none; the methods of a nil Config say so.
func (f *Folder) Config() *Config { return f.config }

// WeightsFile returns the name of the file with the weights, or of their index.
func (f *Folder) WeightsFile() string { return f.weights }

// Metadata returns the strings that the safetensors files have beside their tensors.
func (f *Folder) Metadata() map[string]string { return maps.Clone(f.metadata) }

// Names returns the tensors' names in alphabetical order.
func (f *Folder) Names() []string { return slices.Sorted(maps.Keys(f.parts)) }

// Tensors says what there is, in the order of the names.
func (f *Folder) Tensors() []TensorInfo {
	list := make([]TensorInfo, 0, len(f.parts))
	for _, name := range f.Names() {
		info, _ := f.Lookup(name)
		list = append(list, info)
	}
	return list
}

// Lookup says what there is of a tensor, and whether there is one of that name.
func (f *Folder) Lookup(name string) (TensorInfo, bool) {
	p, ok := f.parts[name]
	p.info.Shape = slices.Clone(p.info.Shape)
	return p.info, ok
}

// TensorOptions are the arguments of [Folder.Tensor] that have defaults.
type TensorOptions struct {
	// Read copies the elements into memory at once, rather than map them.
	Read bool
	// DType converts the tensor. Default: it has the dtype of the file.
	DType gotorch.DType
	// Device receives the tensor. Default: the CPU.
	Device gotorch.Device
}

// Tensor returns a tensor of the folder. It is mapped: the system reads a page of it when it is first used, and
// writing to it does not change the file; see [gotorch.SafetensorsFile.Tensor], also for what must not be done to
// the file meanwhile, and for when elements are read at once. From a file of torch.save tensors are mapped as well, but
// calls for one name, and for names that were tied when it was saved, share their memory.
//
// Errors are of kind KeyError for a name that is not there, and NotImplementedError for a dtype that this PyTorch lacks.
func (f *Folder) Tensor(name string, opts ...TensorOptions) (gotorch.Tensor, error) {
	return f.get("hub.Folder.Tensor", name, args.Option(opts), nil)
}

// Rows is [Folder.Tensor] for the rows from one to before another, along the first dimension, of which no others are
// read: a few tokens of a large embedding.
func (f *Folder) Rows(name string, from, to int64, opts ...TensorOptions) (gotorch.Tensor, error) {
	return f.get("hub.Folder.Rows", name, args.Option(opts), &[2]int64{from, to})
}

func (f *Folder) get(op, name string, opt TensorOptions, rows *[2]int64) (gotorch.Tensor, error) {
	f.mutex.RLock()
	defer f.mutex.RUnlock()
	p, ok := f.parts[name]
	switch {
	case f.closed:
		return gotorch.Tensor{}, args.ValueError(op, "the folder %s is closed", f.dir)
	case !ok:
		return gotorch.Tensor{}, keyError(op, "%s does not hold the tensor %q", f.dir, name)
	case p.file == nil:
		return gotorch.Try(func() gotorch.Tensor { return p.ofArchive(opt, rows) })
	}
	options := gotorch.SafetensorsOptions(opt)
	if rows != nil {
		return p.file.Rows(name, rows[0], rows[1], options)
	}
	return p.file.Tensor(name, options)
}

func (p part) ofArchive(opt TensorOptions, rows *[2]int64) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		t := p.held.Detach()
		if rows != nil {
			if t.Dim() == 0 || rows[0] < 0 || rows[1] < rows[0] || rows[1] > t.Size(0) {
				panic(args.Errorf("hub.Folder.Rows", gotorch.IndexError, "rows %d to %d of the tensor %q of shape %v", rows[0], rows[1], p.info.Name, p.info.Shape))
			}
			t = t.Narrow(0, rows[0], rows[1]-rows[0])
		}
		t = t.To(gotorch.ToOptions{DType: opt.DType, Device: opt.Device})
		if opt.Read && t.SharesStorage(p.held) {
			t = t.Clone()
		}
		return t
	})
}

// File returns the path of another file of the folder, such as "tokenizer.json", for who reads it. It refuses names
// that are none of a file of the folder, and links as [Open] does; errors.Is finds fs.ErrNotExist where there is none.
func (f *Folder) File(name string) (string, error) {
	if !filepath.IsLocal(name) || filepath.Clean(name) == "." || strings.ContainsAny(name, "\\\x00") {
		return "", args.ValueError("hub.Folder.File", "%q is no name of a file in the folder", name)
	}
	return f.resolve(name)
}

// tokenizerFiles are the names that files of tokenizers have.
var tokenizerFiles = []string{
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "vocab.txt",
	"merges.txt", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "chat_template.jinja",
}

// TokenizerFiles returns the paths of those files of the folder that a tokenizer is made of, by their names.
func (f *Folder) TokenizerFiles() map[string]string {
	found := map[string]string{}
	for _, name := range tokenizerFiles {
		if path, err := f.resolve(name); err == nil {
			found[name] = path
		}
	}
	return found
}

// ReadJSON reads another JSON file of the folder, such as "generation_config.json".
func (f *Folder) ReadJSON(name string) (*Config, error) {
	path, err := f.File(name)
	if err != nil {
		return nil, err
	}
	return ReadConfig(path)
}

func keyError(op, format string, values ...any) *gotorch.Error {
	return args.Errorf(op, gotorch.KeyError, format, values...)
}
