package graph

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/bits"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// The folder of pytorch_bridge.export_model: packages/model_folder.py writes it.

// ManifestFile is the name of the file by which a folder of export_model is known.
const ManifestFile = "manifest.json"

const (
	manifestFormat  = "gotorch-model"
	manifestVersion = 1
	maxManifest     = 64 << 20
	maxLibrary      = 1 << 30
	openOp          = "graph.Open"
	callOp          = "graph.Model.Call"
)

// Spec is what an input of a [Model] must be like, or an output is.
type Spec struct {
	Name  string
	DType gotorch.DType
	// Shape has -1 for sizes that are open; nil is any number of dimensions.
	Shape []int64
}

// String returns "x torch.float32[-1 4]".
func (s Spec) String() string {
	if s.Shape == nil {
		return fmt.Sprintf("%s %v[...]", s.Name, s.DType)
	}
	return fmt.Sprintf("%s %v%v", s.Name, s.DType, s.Shape)
}

// SizeRule is what a model demands of a size of an input: it is Scale*n + Offset for the number n that Symbol stands
// for, the same in all rules, and from Min to Max.
type SizeRule struct {
	Input         string
	Dim           int
	Symbol        string
	Scale, Offset int64
	Min, Max      int64 // math.MinInt64 and math.MaxInt64 where there is no bound
}

// State says that an output of a call is an input of the next: see pb.export_model(state=...).
type State struct{ Output, Input string }

// Model is the compiled graph in a folder that pytorch_bridge.export_model has written. [Open] loads one. All of it may
// be used by several goroutines at once.
//
//	m, err := graph.Open("models/digits/1")
//	if err != nil { ... }
//	defer m.Close()
//	y := m.Call(x)[0]
type Model struct {
	name            string
	digest          string
	inputs, outputs []Spec
	sizes           []SizeRule
	state           []State
	rows            bool
	changes         bool
	weights         *Weights // nil where there are none
	constants       int

	inUse   sync.RWMutex
	library *ctorch.Library // nil when it is closed
	entry   uintptr
}

// OpenOptions are the arguments of [Open] that have defaults.
type OpenOptions struct {
	// Map maps the weights instead of reading them: pages are read when they are used, and processes share them. It is
	// for files that are replaced by renaming alone, as export_model does. A file that is written to in place, as cp
	// does, changes the model under its callers, and one that is cut off ends the process. A tensor that is not at a
	// multiple of 64 bytes in the file is read, for its numbers to be the same.
	Map bool
	// AnyTorch loads what was exported with another release of PyTorch. Its numbers may differ in the last bits.
	AnyTorch bool
}

// Open loads a folder of pytorch_bridge.export_model. Loading runs code of the folder, with the rights of the program:
// open what you trust.
//
// Before that the manifest is checked, and that the files have the SHA-256 sums that it says. They are opened once, and
// what was checked is what is loaded. The error is that of the operating system where a file cannot be read; else a
// *gotorch.Error: of kind ValueError where the folder is damaged or not yet complete, and of kind RuntimeError where it
// is for another version of gotorch or PyTorch, or another kind of machine, and must be exported again.
func Open(dir string, opts ...OpenOptions) (*Model, error) {
	opt := args.Option(opts)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	f := folder{root: root, dir: dir}
	text, err := f.read(ManifestFile, maxManifest)
	if err != nil {
		return nil, err
	}
	man, err := parseManifest(text)
	if err != nil {
		return nil, args.ValueError(openOp, "%s: %v", filepath.Join(dir, ManifestFile), err)
	}
	if err := man.fits(dir, opt); err != nil {
		return nil, err
	}
	code, err := f.read(man.Library.File, maxLibrary)
	if err != nil {
		return nil, err
	}
	if err := man.Library.check(dir, sha256.Sum256(code), int64(len(code))); err != nil {
		return nil, err
	}
	m := man.model()
	sum := sha256.Sum256(text)
	m.digest = hex.EncodeToString(sum[:])
	if man.Weights != nil {
		if m.weights, err = f.weights(man, opt.Map); err != nil {
			return nil, err
		}
	}
	if err := m.load(dir, code); err != nil {
		m.weights.Close()
		return nil, err
	}
	return m, nil
}

// folder is a folder that stays the same one when another takes its name.
type folder struct {
	root *os.Root
	dir  string
}

// open opens a regular file in the folder. Links lead to files in the folder, or are refused.
func (f folder) open(name string) (*os.File, fs.FileInfo, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, f.named(name, err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	}
	if err != nil {
		file.Close()
		return nil, nil, f.named(name, err)
	}
	return file, info, nil
}

// named returns err with the whole path.
func (f folder) named(name string, err error) error {
	var e *fs.PathError
	if errors.As(err, &e) {
		return &fs.PathError{Op: e.Op, Path: filepath.Join(f.dir, name), Err: e.Err}
	}
	return err
}

func (f folder) read(name string, most int64) ([]byte, error) {
	file, info, err := f.open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info.Size() > most {
		return nil, args.ValueError(openOp, "%s has %d bytes, and may have %d", filepath.Join(f.dir, name), info.Size(), most)
	}
	data, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, f.named(name, err)
	}
	return data, nil
}

// weights reads the weights.
func (f folder) weights(man *manifest, mapped bool) (*Weights, error) {
	file, info, err := f.open(man.Weights.File)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info.Size() != man.Weights.Bytes {
		return nil, man.Weights.short(f.dir, info.Size())
	}
	hash := sha256.New()
	n, err := io.Copy(hash, io.LimitReader(file, info.Size()+1))
	if err != nil {
		return nil, f.named(man.Weights.File, err)
	}
	if err := man.Weights.check(f.dir, [32]byte(hash.Sum(nil)), n); err != nil {
		return nil, err
	}
	path := filepath.Join(f.dir, man.Weights.File)
	order := make([]int, len(man.specs))
	for i := range order {
		order[i] = i
	}
	w, err := makeWeights(openOp, path, man.specs, [][]int{order}, func() (map[string]gotorch.Tensor, error) {
		return readTensors(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), mapped)
	})
	if err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err != nil || after.Size() != info.Size() || changed(info) != changed(after) {
		w.Close()
		return nil, args.ValueError(openOp, "%s was written to while it was read", path)
	}
	return w, nil
}

// changed is when a file was changed, by the system's clock, which nobody sets back.
func changed(info fs.FileInfo) syscall.Timespec {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim
	}
	return syscall.NsecToTimespec(info.ModTime().UnixNano())
}

// alignment is that of libtorch's own memory, in bytes. On other addresses kernels compute other last bits.
const alignment = 64

func readTensors(path string, mapped bool) (found map[string]gotorch.Tensor, err error) {
	f, err := gotorch.OpenSafetensors(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	found = map[string]gotorch.Tensor{}
	for _, name := range f.Names() {
		entry, _ := f.Entry(name)
		t, err := f.Tensor(name, gotorch.SafetensorsOptions{Read: !mapped || entry.Offset%alignment != 0})
		if err != nil {
			for _, t := range found {
				t.Close()
			}
			return nil, err
		}
		found[name] = t
	}
	return found, nil
}

// manifest is the file of that name.
type manifest struct {
	Format    string         `json:"format"`
	Version   int            `json:"version"`
	Name      string         `json:"name"`
	ABI       string         `json:"abi"`
	Torch     string         `json:"torch"`
	Platform  string         `json:"platform"`
	Inputs    []manifestSpec `json:"inputs"`
	Outputs   []manifestSpec `json:"outputs"`
	Sizes     []manifestSize `json:"sizes"`
	State     []manifestPair `json:"state"`
	Rows      bool           `json:"independent_rows"`
	Library   manifestFile   `json:"library"`
	Weights   *manifestFile  `json:"weights"`
	Tensors   []manifestW    `json:"tensors"`
	Constants int            `json:"constants"`
	Changes   bool           `json:"changes"`

	inputs, outputs []Spec
	specs           []Weight
}

type manifestFile struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	Bytes  int64  `json:"bytes"`
}

type manifestSpec struct {
	Name  string  `json:"name"`
	DType string  `json:"dtype"`
	Shape []int64 `json:"shape"`
}

type manifestSize struct {
	Input  string `json:"input"`
	Dim    int    `json:"dim"`
	Symbol string `json:"symbol"`
	Scale  int64  `json:"scale"`
	Offset int64  `json:"offset"`
	Min    *int64 `json:"min"`
	Max    *int64 `json:"max"`
}

type manifestPair struct {
	Output string `json:"output"`
	Input  string `json:"input"`
}

type manifestW struct {
	Name         string   `json:"name"`
	DType        string   `json:"dtype"`
	Shape        []int64  `json:"shape"`
	Strides      []int64  `json:"strides"`
	Aliases      []string `json:"aliases"`
	Constant     bool     `json:"constant"`
	RequiresGrad bool     `json:"requires_grad"`
}

func parseManifest(text []byte) (*manifest, error) {
	m := &manifest{}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("it is no manifest, or not yet complete: %w", err)
	}
	if head.Format != manifestFormat {
		return nil, fmt.Errorf("its format is %.40q, where a folder of export_model has %q", head.Format, manifestFormat)
	}
	if head.Version != manifestVersion {
		return nil, fmt.Errorf("it is of version %d, and this program reads version %d: export the model again with the "+
			"pytorch_bridge that belongs to it", head.Version, manifestVersion)
	}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, err
	}
	var err error
	if m.inputs, err = specs("input", m.Inputs); err != nil {
		return nil, err
	}
	if m.outputs, err = specs("output", m.Outputs); err != nil {
		return nil, err
	}
	if len(m.outputs) == 0 {
		return nil, errors.New("the model has no outputs")
	}
	if err := m.checkFiles(); err != nil {
		return nil, err
	}
	for _, w := range m.Tensors {
		d, err := gotorch.ParseDType(w.DType)
		if err != nil {
			return nil, fmt.Errorf("tensor %.100q: %w", w.Name, err)
		}
		if err := w.check(); err != nil {
			return nil, fmt.Errorf("tensor %.100q: %w", w.Name, err)
		}
		m.specs = append(m.specs, Weight{Name: w.Name, DType: d, Shape: w.Shape, Strides: w.Strides, Aliases: w.Aliases,
			Constant: w.Constant, RequiresGrad: w.RequiresGrad})
	}
	if (m.Weights == nil) != (len(m.Tensors) == 0) || m.Constants < 0 || m.Constants > len(m.Tensors) {
		return nil, fmt.Errorf("it has %d tensors, of which %d are constants, and a file of weights: %v", len(m.Tensors),
			m.Constants, m.Weights != nil)
	}
	return m, m.checkRules()
}

// specs checks the inputs or outputs.
func specs(side string, found []manifestSpec) ([]Spec, error) {
	var all []Spec
	seen := map[string]bool{}
	for i, s := range found {
		d, err := gotorch.ParseDType(s.DType)
		if err != nil {
			return nil, fmt.Errorf("%s %d: %w", side, i, err)
		}
		if s.Name == "" || seen[s.Name] {
			return nil, fmt.Errorf("%s %d has the name %.100q, which is empty or another's", side, i, s.Name)
		}
		seen[s.Name] = true
		if len(s.Shape) > 64 || slices.ContainsFunc(s.Shape, func(n int64) bool { return n < -1 }) {
			return nil, fmt.Errorf("%s %.100q has a shape that is none", side, s.Name)
		}
		all = append(all, Spec{s.Name, d, s.Shape})
	}
	return all, nil
}

// check refuses shapes and strides of which a tensor beyond the file's size would be made.
func (w manifestW) check() error {
	if len(w.Shape) > 64 || w.Strides != nil && len(w.Strides) != len(w.Shape) {
		return errors.New("its shape or strides are none")
	}
	count, reach := uint64(1), uint64(1)
	empty := false
	for i, n := range w.Shape {
		if n < 0 {
			return errors.New("a size is negative")
		}
		empty = empty || n == 0
		high, low := bits.Mul64(count, uint64(max(n, 1)))
		if high != 0 || low > math.MaxInt64/16 {
			return errors.New("it is too large")
		}
		count = low
		if w.Strides != nil && n > 0 {
			high, low := bits.Mul64(uint64(n-1), uint64(w.Strides[i]))
			if w.Strides[i] < 0 || high != 0 || low > math.MaxInt64/16 {
				return errors.New("a stride is negative, or too large")
			}
			// Neither is more than 1<<59, so that the sum is what it says.
			if reach += low; reach > math.MaxInt64/16 {
				return errors.New("its strides reach over far more memory than it has elements")
			}
		}
	}
	// Strides may leave gaps in memory: those of a slice that was a parameter. More than this is no model's.
	if w.Strides != nil && !empty && reach/64 > count+1<<14 {
		return errors.New("its strides reach over far more memory than it has elements")
	}
	return nil
}

func (m *manifest) checkFiles() error {
	files := []manifestFile{m.Library}
	if m.Weights != nil {
		files = append(files, *m.Weights)
	}
	for _, f := range files {
		if f.File == "" || f.File == "." || f.File == ".." || strings.ContainsAny(f.File, "/\\\x00") {
			return fmt.Errorf("it names the file %.100q, where files are in the folder itself", f.File)
		}
		if len(f.SHA256) != 64 || f.Bytes < 0 {
			return fmt.Errorf("it has no SHA-256 sum, or no size, of %s", f.File)
		}
	}
	return nil
}

// byName has no list walked for each of its names, of which a manifest may have a great many.
func byName(specs []Spec) map[string]*Spec {
	found := make(map[string]*Spec, len(specs))
	for i := range specs {
		found[specs[i].Name] = &specs[i]
	}
	return found
}

func (m *manifest) checkRules() error {
	inputs, outputs := byName(m.inputs), byName(m.outputs)
	for _, r := range m.Sizes {
		s := inputs[r.Input]
		if s == nil || r.Scale < 1 || r.Dim < 0 || s.Shape != nil && r.Dim >= len(s.Shape) {
			return fmt.Errorf("it has a rule for size %d of input %.100q, which there is not", r.Dim, r.Input)
		}
	}
	for _, s := range slices.Concat(m.inputs, m.outputs) {
		if m.Rows && (len(s.Shape) == 0 || s.Shape[0] != -1 || m.Changes || len(m.State) > 0) {
			return fmt.Errorf("it says that rows are independent, and %v has none, or the model keeps something", s)
		}
	}
	seen := map[string]bool{}
	for _, p := range m.State {
		in, out := inputs[p.Input], outputs[p.Output]
		if in == nil || out == nil || seen["i"+p.Input] || seen["o"+p.Output] {
			return fmt.Errorf("its state %.100q is no output that becomes the input %.100q", p.Output, p.Input)
		}
		if in.Shape == nil || len(in.Shape) > 1 && slices.Contains(in.Shape[1:], -1) || in.DType != out.DType {
			return fmt.Errorf("its state %.100q cannot begin as zeros: %v", p.Output, *in)
		}
		seen["i"+p.Input], seen["o"+p.Output] = true, true
	}
	return nil
}

// fits says why the model is for another program.
func (m *manifest) fits(dir string, opt OpenOptions) error {
	again := func(format string, values ...any) error {
		return args.Errorf(openOp, gotorch.RuntimeError, "%s: %s; export the model again here, with pb.export_model", dir,
			fmt.Sprintf(format, values...))
	}
	if here := machine(); m.Platform != here {
		return again("it was made for %.40s, and this is %s", m.Platform, here)
	}
	if m.ABI != abi {
		return again("it calls functions of gotorch as %.40s has them, and this program has %s", m.ABI, abi)
	}
	if here, _, _ := strings.Cut(gotorch.TorchVersion(), "+"); m.Torch != here && !opt.AnyTorch {
		return again("it was exported with PyTorch %.40s, and this program has %s", m.Torch, here)
	}
	return nil
}

// machine is what Python calls the system and the processor.
func machine() string {
	names := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	if name, ok := names[runtime.GOARCH]; ok {
		return runtime.GOOS + "/" + name
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

func (f manifestFile) short(dir string, got int64) error {
	return args.ValueError(openOp, "%s has %d bytes, where its manifest says %d: it is damaged, or not yet complete",
		filepath.Join(dir, f.File), got, f.Bytes)
}

func (f manifestFile) check(dir string, sum [32]byte, n int64) error {
	if n != f.Bytes {
		return f.short(dir, n)
	}
	if got := hex.EncodeToString(sum[:]); got != f.SHA256 {
		return args.ValueError(openOp, "%s has the SHA-256 sum %s, where its manifest says %s: it is damaged, or not yet complete",
			filepath.Join(dir, f.File), got, f.SHA256)
	}
	return nil
}

func (m *manifest) model() *Model {
	made := &Model{name: m.Name, inputs: m.inputs, outputs: m.outputs, changes: m.Changes, constants: m.Constants, rows: m.Rows}
	for _, r := range m.Sizes {
		rule := SizeRule{r.Input, r.Dim, r.Symbol, r.Scale, r.Offset, math.MinInt64, math.MaxInt64}
		if r.Min != nil {
			rule.Min = *r.Min
		}
		if r.Max != nil {
			rule.Max = *r.Max
		}
		made.sizes = append(made.sizes, rule)
	}
	for _, p := range m.State {
		made.state = append(made.state, State(p))
	}
	return made
}

// checkLibrary refuses what the system's loader would read beyond the end of, which ends the process. It has the sum that
// its manifest says, so that it is the manifest that was written to a library that was cut off.
func checkLibrary(code []byte) error {
	file, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		return fmt.Errorf("the library is no ELF file, or damaged: %w", err)
	}
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	if here, ok := machines[runtime.GOARCH]; ok && file.Machine != here {
		return fmt.Errorf("the library is for %v, and this machine is %v", file.Machine, here)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && (p.Off > uint64(len(code)) || p.Filesz > uint64(len(code))-p.Off) {
			return fmt.Errorf("the library has %d bytes, and says of itself that it has more", len(code))
		}
	}
	return nil
}

// load loads the library.
func (m *Model) load(dir string, code []byte) error {
	if err := checkLibrary(code); err != nil {
		return args.ValueError(openOp, "%s: %v; export the model again", dir, err)
	}
	lib, err := ctorch.OpenLibrary(code)
	if reason, is := err.(ctorch.NotLoaded); is {
		err = args.Errorf(openOp, gotorch.RuntimeError, "the library cannot be loaded: %s", string(reason))
	}
	if err != nil {
		return args.Errorf(openOp, gotorch.RuntimeError, "%s: %v", dir, err)
	}
	m.entry = lib.Symbol("gotorch_model_call")
	if got := lib.Text("gotorch_model_abi", 64); got != abi || m.entry == 0 {
		lib.Close()
		return args.Errorf(openOp, gotorch.RuntimeError, "%s: the library is for %q, where this program has %s; export the model again",
			dir, got, abi)
	}
	own := 0
	if m.weights != nil {
		own = len(m.weights.specs) - m.constants
	}
	// A manifest that says something else would have its block misread.
	layout := fmt.Sprintf("%d %d %d %d", len(m.inputs), len(m.outputs), m.constants, own)
	if got := lib.Text("gotorch_model_layout", 64); got != layout {
		lib.Close()
		return args.ValueError(openOp, "%s: the library is for %q inputs, outputs, constants and further tensors, and the manifest has %q",
			dir, got, layout)
	}
	m.library = lib
	return nil
}

// Name returns what the model was called when it was exported.
func (m *Model) Name() string { return m.name }

// Digest returns the SHA-256 sum of the manifest, in which those of all files are: models with the same are the same.
func (m *Model) Digest() string { return m.digest }

// Inputs returns what the arguments of [Model.Call] must be like.
func (m *Model) Inputs() []Spec { return slices.Clone(m.inputs) }

// Outputs returns the specs of the results of [Model.Call].
func (m *Model) Outputs() []Spec { return slices.Clone(m.outputs) }

// Sizes returns the rules that open sizes must keep.
func (m *Model) Sizes() []SizeRule { return slices.Clone(m.sizes) }

// IndependentRows reports whether row i of each output depends on row i of the inputs alone, as pb.export_model has proved
// it: the first dimension of all of them is open, and calls may be joined along it. False says only that there is no proof.
func (m *Model) IndependentRows() bool { return m.rows }

// State returns which outputs are inputs of a sequence's next call.
func (m *Model) State() []State { return slices.Clone(m.state) }

// Call computes the outputs. It panics with a *gotorch.Error: of kind TypeError or ValueError where an input is none
// that the model takes, of kind ValueError after [Model.Close], and as the functions of PyTorch do that the model calls.
func (m *Model) Call(inputs ...gotorch.Tensor) []gotorch.Tensor {
	if len(inputs) != len(m.inputs) {
		panic(args.TypeError(callOp, "the model takes %d inputs, %v, and got %d", len(m.inputs), m.inputs, len(inputs)))
	}
	// Two words for where it belongs and for an error, one for the constants, one for the state, one for each input,
	// two for each output. Numbers, not pointers: the words of tensors stay where they are, and alive by KeepAlive.
	block := make([]uintptr, 0, 4+len(inputs)+2*len(m.outputs))
	block = append(block, 0, 0)
	var call Call
	defer call.Warn()
	unlock := m.lock()
	defer unlock()
	if m.weights != nil {
		handles := unsafe.SliceData(m.weights.handles[0])
		if m.constants > 0 {
			block = append(block, uintptr(unsafe.Pointer(handles)))
		}
		if n := len(m.weights.specs); n > m.constants {
			block = append(block, uintptr(unsafe.Pointer(unsafe.SliceData(m.weights.handles[0][m.constants:]))))
		}
	}
	for i, x := range inputs {
		block = append(block, uintptr(Word(x, callOp, m.inputs[i].Name)))
	}
	first := len(block)
	block = block[:first+2*len(m.outputs)]
	call = Begin()
	ctorch.CallBlock(m.entry, unsafe.Pointer(unsafe.SliceData(block)))
	head := Block{block[0], block[1]}
	call.End(callOp, head)
	runtime.KeepAlive(inputs)
	outputs := make([]gotorch.Tensor, len(m.outputs))
	for i := range outputs {
		outputs[i] = Tensor(Result{block[first+2*i], int64(block[first+2*i+1])}, head)
	}
	return outputs
}

// lock keeps the model open, and where calls change it, others out.
func (m *Model) lock() (unlock func()) {
	lock, unlock := m.inUse.RLock, m.inUse.RUnlock
	if m.changes {
		lock, unlock = m.inUse.Lock, m.inUse.Unlock
	}
	lock()
	if m.library == nil {
		unlock()
		panic(closed(callOp))
	}
	return unlock
}

// Close waits for the calls that go on, frees the weights and unloads the code. Closing twice, or closing nil, is fine.
func (m *Model) Close() error {
	if m == nil {
		return nil
	}
	m.inUse.Lock()
	defer m.inUse.Unlock()
	if m.library == nil {
		return nil
	}
	m.weights.Close()
	lib := m.library
	m.library, m.entry = nil, 0
	if !lib.Close() {
		return args.Errorf("graph.Model.Close", gotorch.RuntimeError, "the library cannot be unloaded")
	}
	return nil
}
