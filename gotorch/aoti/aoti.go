// Package aoti runs models that Python compiled with AOTInductor, PyTorch's compiler for serving.
// Python makes a package, a .pt2 file with machine code and weights:
//
//	program = torch.export.export(model, (example,), dynamic_shapes=...)
//	torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
//
// Go loads it and runs it. There is no Python in the process, and none is needed on the machine:
//
//	m, err := aoti.Load("model.pt2")
//	if err != nil { ... }
//	defer m.Close()
//	y := m.Run(x)[0]
//
// A package is a program. Its code runs with the rights of the process that loads it: load only
// packages that you trust. It runs on processors like the one on which it was compiled.
package aoti

import (
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LoadOptions are the arguments of [Load] that have defaults.
type LoadOptions struct {
	// ModelName says which of the models of the package. Default: the only one, or the one that is
	// named "model", as Python names it.
	ModelName string
	// Device is the GPU for packages that were compiled for CUDA, such as gotorch.CUDA(1). Default:
	// the current one. For packages for the CPU it may be gotorch.CPU, and nothing else.
	Device gotorch.Device
	// NumRunners is how many goroutines may be in [Model.Run] at a time. They share the weights.
	// Others wait for their turn. Default: the number of processors; 1 for a package for a GPU, where
	// each runner has memory of its own.
	//
	// It must be 1 for models that change their own buffers as they run.
	NumRunners gotorch.Scalar
	// SingleThreaded leaves out the locks in the compiled code, which is needed to capture a run in
	// a CUDA graph. NumRunners is 1 then. Several goroutines may still call Run; they take turns.
	SingleThreaded bool
	// Unchecked hands inputs to the compiled code as they are. That code does not look at them: it
	// reads past the end of a tensor that is too small, and takes one of another dtype or other
	// strides for what it expects. The check takes less than a microsecond.
	Unchecked bool
	// IgnoreChecksums accepts a package whose checksums are wrong. Python writes such packages after
	// torch.serialization.set_crc32_options(False). A damaged package that is loaded may do
	// anything.
	IgnoreChecksums bool
}

// Model is a compiled model. Its methods may be called from several goroutines at once.
type Model struct {
	compiled *compiled
	inputs   []Input
	outputs  []string
	info     compiledInfo
	runners  chan struct{} // has room for those that run
	cleanup  runtime.Cleanup

	inUse  sync.RWMutex // locked to close
	closed bool
}

// Input is what a model expects as an input.
type Input struct {
	// Name is the place in the arguments of the Python function: "0" is the first positional
	// argument, "mask" a keyword argument, "0.x" part of a dict that is the first argument.
	Name   string
	DType  gotorch.DType
	Device gotorch.DeviceType
	Dims   []Dim // nil if the package does not say
}

// Dim is the range of sizes that a dimension may have. Min and Max are equal where the size was fixed
// when the model was compiled.
type Dim struct{ Min, Max int64 }

// String returns "8", "1..64", or "1.." for a dimension without a limit.
func (d Dim) String() string {
	switch {
	case d.Min == d.Max:
		return strconv.FormatInt(d.Min, 10)
	case d.Max == math.MaxInt64:
		return strconv.FormatInt(d.Min, 10) + ".."
	}
	return strconv.FormatInt(d.Min, 10) + ".." + strconv.FormatInt(d.Max, 10)
}

// String returns "x float32[1..64, 8]", and "x float32[?]" where the package does not say the sizes.
func (in Input) String() string {
	dims := make([]string, len(in.Dims))
	if in.Dims == nil {
		dims = []string{"?"}
	}
	for i, d := range in.Dims {
		dims[i] = d.String()
	}
	return in.Name + " " + strings.TrimPrefix(in.DType.String(), "torch.") + "[" + strings.Join(dims, ", ") + "]"
}

// Constant is a parameter, buffer or other tensor that the compiled code reads.
type Constant struct {
	Name  string // in the Python module: "layers.0.weight"
	DType gotorch.DType
	Shape []int64
}

// Load loads a model of a package. The package's code is written to a folder under $TMPDIR, or /tmp,
// from which it must be possible to run code. The folder is gone when Load returns; that of a CUDA
// package when the model is closed.
//
// The error is that of the operating system if the file cannot be read, else an *gotorch.Error of kind
// ValueError if it is truncated or no package, KeyError if the package has no such model, and
// RuntimeError if the machine lacks what the code was compiled for: the kind of processor, its vector
// instructions, CUDA.
func Load(path string, opts ...LoadOptions) (*Model, error) {
	opt := args.Option(opts)
	const op = "aoti.Load"
	runners := int(args.Int(op, "NumRunners", opt.NumRunners, -1))
	if args.Given(opt.NumRunners) && runners < 1 {
		return nil, args.ValueError(op, "NumRunners is %d, and must be positive", runners)
	}
	if opt.SingleThreaded && runners > 1 {
		return nil, args.ValueError(op, "SingleThreaded goes with one runner, not %d", runners)
	}
	index := -1
	if opt.Device != 0 {
		index = opt.Device.Index()
	}
	c, err := load(path, compiledOptions{
		ModelName: opt.ModelName, NumRunners: max(runners, 0), SingleThreaded: opt.SingleThreaded,
		Unchecked: opt.Unchecked, IgnoreChecksums: opt.IgnoreChecksums, DeviceIndex: index,
	})
	if err != nil {
		return nil, err
	}
	m := &Model{compiled: c, info: c.Info()}
	m.runners = make(chan struct{}, m.info.NumRunners)
	if opt.Device != 0 && opt.Device.Type() != m.info.Device.Type() {
		c.Free()
		return nil, args.ValueError(op, "%s was compiled for %v, not for %v", path, m.info.Device, opt.Device)
	}
	names := leaves(m.info.InSpec, len(m.info.Inputs), true)
	for i, in := range m.info.Inputs {
		m.inputs = append(m.inputs, input(names[i], in))
	}
	m.outputs = leaves(m.info.OutSpec, m.info.NumOutputs, false)
	m.cleanup = runtime.AddCleanup(m, (*compiled).Free, c)
	return m, nil
}

func input(name string, t compiledTensor) Input {
	in := Input{Name: name, DType: t.DType, Device: gotorch.DeviceType(t.DeviceType)}
	if t.Sizes != nil {
		in.Dims = make([]Dim, len(t.Sizes))
	}
	for i := range in.Dims {
		in.Dims[i] = Dim{t.Min[i], t.Max[i]}
	}
	return in
}

// Run runs the model and returns its outputs. Inputs and outputs are the tensors in the arguments and
// the result of the Python function, in order: see [Model.Inputs] and [Model.Outputs]. Inputs may
// have any strides; those that differ from the ones of the example with which the model was exported
// cost a copy.
//
// No gradients are computed. It panics with a RuntimeError if an input requires a gradient, unless
// it is called in [gotorch.NoGrad]; with a TypeError for a wrong number of inputs or a wrong dtype;
// with a ValueError for a wrong shape or device, and after Close. It panics, as all functions that
// compute do, so that it can stand in an expression; [gotorch.Try] makes the panic an error.
//
// What is in the tensors is not checked: an index that is out of range where the model looks
// something up may end the process.
func (m *Model) Run(inputs ...gotorch.Tensor) []gotorch.Tensor {
	// Here and not in C, where those that wait would each keep an OS thread.
	m.runners <- struct{}{}
	defer func() { <-m.runners }()
	m.use("aoti.Run")
	defer m.inUse.RUnlock()
	return m.compiled.Run(inputs)
}

// use keeps the model from being closed until inUse is unlocked.
func (m *Model) use(op string) {
	m.inUse.RLock()
	if m.closed {
		m.inUse.RUnlock()
		panic(args.ValueError(op, "the model was used after Close"))
	}
}

// Close waits for the runs that go on, and frees the model's memory and code. Tensors that it returned
// stay valid. Closing twice is fine. A model that is not closed is freed some time after it was last
// used.
func (m *Model) Close() {
	m.inUse.Lock()
	defer m.inUse.Unlock()
	if !m.closed {
		m.closed = true
		m.cleanup.Stop()
		m.compiled.Free()
	}
}

// Name returns the model's name in its package.
func (m *Model) Name() string { return m.info.ModelName }

// Device returns the device that the model runs on.
func (m *Model) Device() gotorch.Device { return m.info.Device }

// Inputs returns what the model expects, in the order of [Model.Run]'s arguments.
func (m *Model) Inputs() []Input { return slices.Clone(m.inputs) }

// Outputs returns the names of the outputs: the place of each in the result of the Python function.
// That is "logits" for an entry of a dict, "0" for the first of a tuple, "state.1" for the second of
// a tuple in a dict, and "" if the result is a single tensor.
func (m *Model) Outputs() []string { return slices.Clone(m.outputs) }

// CallSpec returns how the arguments and the result of the Python function are made up of inputs and
// outputs: a TreeSpec of torch.utils._pytree each, as JSON.
func (m *Model) CallSpec() (in, out string) { return m.info.InSpec, m.info.OutSpec }

// Metadata returns what the package says about itself: what it was compiled for, under names that begin
// with AOTI_, and what Python gave as "aot_inductor.metadata".
func (m *Model) Metadata() map[string]string {
	metadata := make(map[string]string, len(m.info.Metadata))
	for k, v := range m.info.Metadata {
		metadata[k] = v
	}
	return metadata
}

// Constants returns the tensors that the compiled code reads, which [Model.UpdateConstants] can change.
// Not all parameters of the Python module are among them: the compiler makes numbers in the code of
// those that have one dimension and at most 8 elements, and may have computed others in advance.
func (m *Model) Constants() []Constant {
	constants := make([]Constant, len(m.info.Constants))
	for i, c := range m.info.Constants {
		constants[i] = Constant{c.Name, c.DType, slices.Clone(c.Sizes)}
	}
	return constants
}

// ConstantValues returns copies of the constants, by their names. Those that the package came without
// and that were not loaded are missing.
func (m *Model) ConstantValues() map[string]gotorch.Tensor {
	const op = "aoti.ConstantValues"
	m.use(op)
	defer m.inUse.RUnlock()
	values := map[string]gotorch.Tensor{}
	for i, t := range m.compiled.Constants(op) {
		if t.T != nil {
			values[m.info.Constants[i].Name] = t
		}
	}
	return values
}

// LoadConstants sets all constants by their names, as after a training step or for a package that came
// without. The tensors are copied, from any device. Runs that go on meanwhile use either all of the
// old values or all of the new ones.
//
// The error is an *gotorch.Error of kind KeyError if a constant is missing, or a name is none of the
// model's, TypeError for another dtype, and ValueError for another shape. Nothing has changed then.
func (m *Model) LoadConstants(tensors map[string]gotorch.Tensor) error {
	return m.setConstants("aoti.LoadConstants", tensors, true)
}

// UpdateConstants is [Model.LoadConstants] for some of the constants; the others keep their values.
func (m *Model) UpdateConstants(tensors map[string]gotorch.Tensor) error {
	return m.setConstants("aoti.UpdateConstants", tensors, false)
}

func (m *Model) setConstants(op string, tensors map[string]gotorch.Tensor, all bool) error {
	m.inUse.RLock()
	defer m.inUse.RUnlock()
	if m.closed {
		return args.ValueError(op, "the model was used after Close")
	}
	var names []string
	var list []gotorch.Tensor
	for name, t := range tensors {
		names = append(names, name)
		list = append(list, t)
	}
	return m.compiled.SetConstants(op, names, list, all)
}
