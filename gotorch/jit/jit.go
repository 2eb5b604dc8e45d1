// Package jit runs TorchScript: models that Python wrote with torch.jit.save, scripted or traced.
//
//	torch.jit.script(model).save("model.pt")
//
// Go loads and runs them. There is no Python in the process, and none is needed on the machine:
//
//	m, err := jit.Load("model.pt")
//	if err != nil { ... }
//	defer m.Close()
//	m.Eval()
//	y := m.Forward(x)
//
// A method that takes or returns other things than tensors is called by its name:
//
//	out := m.Call("generate", tokens, 20, gotorch.Named("greedy", true))
//	words := jit.CallAs[[]string](m, "decode", tokens)
//
// Tensors, numbers, strings, lists, dicts and all else that a script knows go in and come out as Go values: see
// [Object.Call]. Parameters can be trained, and [Save] writes what Python reads again.
//
// A script is a program. Calling it runs what is written in the file, and loading it runs the methods __setstate__ of its
// classes, with the rights of the process: run only what you trust. A damaged file is an error.
package jit

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
	"gotorch.dev/gotorch/internal/regular"
	"gotorch.dev/gotorch/internal/replace"
)

// LoadOptions are the arguments of [Load] and [Decode] that have defaults.
type LoadOptions struct {
	// MapLocation is where all tensors of the module are put, those in its code too. Default: where they were when it was
	// saved, which must be there.
	MapLocation gotorch.Device
	// IgnoreChecksums accepts files whose checksums are wrong. Python writes such files after
	// torch.serialization.set_crc32_options(False).
	IgnoreChecksums bool
}

// Load reads a module that torch.jit.save has written. It is in the mode, training or evaluation, in which it was saved.
//
// The error is that of the operating system if the file cannot be read, else an *gotorch.Error: of kind ValueError if the
// file is truncated, damaged or no TorchScript; of kind NotImplementedError if a PyTorch before 1.3 wrote it, or it has tensors on the device meta or of several elements in a byte; of kind RuntimeError
// if its code needs what this process lacks: an operator of a library, which [gotorch.LoadLibrary] brings, or a device.
// Lengths, sizes and nesting in a file are checked before they are believed, and what was checked is what is loaded: each byte is
// read once, so a file that is written meanwhile is loaded as it was, or an error.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.load.html.
func Load(path string, opts ...LoadOptions) (*Module, error) {
	opt := args.Option(opts)
	f, _, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return load("jit.Load", source{
		Path: path, FD: f.Fd(), MapLocation: opt.MapLocation, IgnoreChecksums: opt.IgnoreChecksums,
	})
}

// Decode is [Load] from anywhere. It reads to the end, and what it has read is in memory until it returns.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.load.html.
func Decode(r io.Reader, opts ...LoadOptions) (*Module, error) {
	opt := args.Option(opts)
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return load("jit.Decode", source{
		Path: "the file", Data: data, MapLocation: opt.MapLocation, IgnoreChecksums: opt.IgnoreChecksums,
	})
}

func load(op string, from source) (*Module, error) {
	o, extra, err := loadModule(op, from)
	if err != nil {
		return nil, err
	}
	m := &Module{Object{o, new(tree)}}
	m.tree.extra = extra
	return m, nil
}

// SaveOptions are the arguments of [Save] and [Encode] that have defaults.
type SaveOptions struct {
	// ExtraFiles are put into the file, by their names: see [Module.ExtraFiles]. Default: none; those of the file that the
	// module was loaded from are not written again.
	ExtraFiles map[string]string
}

// Save writes a module as torch.jit.save does, so that Python and C++ read it too. A file at path is replaced when the new one is
// complete, and not before.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.save.html.
func Save(m *Module, path string, opts ...SaveOptions) error {
	return replace.File(path, func(w io.Writer) error { return encode("jit.Save", w, m, opts) })
}

// Encode is [Save] to anywhere. Nothing is written if the module cannot be saved. The file is in memory until it is written: w may
// take any time, and do anything with the module.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.save.html.
func Encode(w io.Writer, m *Module, opts ...SaveOptions) error {
	var file pieces
	if err := encode("jit.Encode", &file, m, opts); err != nil {
		return err
	}
	for _, piece := range file {
		if n, err := w.Write(piece); err != nil {
			return err
		} else if n < len(piece) {
			return io.ErrShortWrite
		}
	}
	return nil
}

// pieces is what was written, of which nothing is moved as it grows.
type pieces [][]byte

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, bytes.Clone(b))
	return len(b), nil
}

// encode has C write into a pipe: it needs a file. Nobody changes the module meanwhile, so w must not be the user's.
func encode(op string, w io.Writer, m *Module, opts []SaveOptions) (err error) {
	opt := args.Option(opts)
	for name := range opt.ExtraFiles {
		if name == "" || strings.ContainsRune(name, 0) {
			return args.ValueError(op, "%q is no name of an extra file", name)
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	defer read.Close()
	saved := make(chan error, 1)
	go func() {
		defer write.Close()
		saved <- func() (err error) {
			m.tree.mutex.RLock()
			defer m.tree.mutex.RUnlock()
			return saveModule(op, m.object, write.Fd(), opt.ExtraFiles)
		}()
	}()
	_, copyErr := io.Copy(w, read)
	if copyErr != nil {
		io.Copy(io.Discard, read) //nolint:errcheck // what is left, so that C comes to its end
	}
	if err := <-saved; err != nil {
		return err
	}
	return copyErr
}

// SetProfilingMode sets whether scripts are profiled, and reports whether they were. It counts for the whole process.
//
// Python profiles: the first call of a method records the shapes and dtypes that come, and the second one compiles the method again
// for them. That pays on GPUs, where elementwise ops are fused. PyTorch's builds for the processor have nothing to fuse with, so
// there the second call only takes longer. In Go it is off, unless Go runs in a Python process, which then decides.
func SetProfilingMode(on bool) (was bool) { return setProfiles(on) }

// Module is a TorchScript module. Goroutines may call its methods at the same time, as far as the script allows that: one that
// changes an attribute of its module must be called by one at a time. What changes the module from Go, such as [Object.SetAttr],
// [Module.Train] and [Object.Close], waits for the calls that go on.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.ScriptModule.html.
type Module struct{ Object }

// Forward calls the method forward with tensors, and returns the tensor that it returns. It panics with a TypeError if that is
// anything else ([Object.Call] returns it), and as [Object.Call] does.
func (m *Module) Forward(inputs ...gotorch.Tensor) gotorch.Tensor {
	list := make([]any, len(inputs))
	for i, t := range inputs {
		list[i] = t
	}
	out := m.Call("forward", list...)
	t, ok := out.(gotorch.Tensor)
	if !ok {
		panic(args.TypeError("jit.Forward", "forward returned %s, and no tensor: use Call", kindOf(out)))
	}
	return t
}

func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case *Module:
		return "the module " + v.TypeName()
	case *Object:
		return "an object of " + v.TypeName()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", v), "gotorch.")
}

// ExtraFiles returns the extra files of the file that the module was loaded from: what _extra_files of torch.jit.save was.
func (m *Module) ExtraFiles() map[string]string {
	files := make(map[string]string, len(m.tree.extra))
	for name, content := range m.tree.extra {
		files[name] = content
	}
	return files
}

// named is a value with a name, of a list in PyTorch's order.
type named[T any] struct {
	Name  string
	Value T
}

func (m *Module) tensors(kinds int, once bool) []named[gotorch.Tensor] {
	return pairs[gotorch.Tensor](m.read(func(o *gotorch.Object) any { return tensorsOf("jit.Parameters", o, kinds, once) }))
}

func pairs[T any](dict any) []named[T] {
	d := dict.(gotorch.Dict)
	list := make([]named[T], len(d))
	for i, item := range d {
		list[i] = named[T]{item.Key.(string), item.Value.(T)}
	}
	return list
}

// NumParameters returns the number of elements of all parameters.
func (m *Module) NumParameters() int64 {
	n := int64(0)
	for _, p := range m.Parameters() {
		n += p.Numel()
	}
	return n
}

// Train puts the module and all modules within into training mode, or with on false into evaluation mode. A traced module
// does what it did when it was traced, and a frozen one what it did when it was frozen.
func (m *Module) Train(on bool) {
	m.tree.mutex.Lock()
	defer m.tree.mutex.Unlock()
	native.Must("jit.Train", ctorch.JITTrain(handle(m.object), on))
	runtime.KeepAlive(m.object)
}

// Eval puts the module and all modules within into evaluation mode.
func (m *Module) Eval() { m.Train(false) }

// Training reports whether the module is in training mode. One that does not say, as a frozen one, is not.
func (m *Module) Training() bool {
	for _, a := range m.Attributes() {
		if a.Name == "training" {
			on, _ := m.Attr("training").(bool)
			return on
		}
	}
	return false
}

// GetSubmodule returns a module within by its name, "layers.0"; "" is the module itself. It panics with an AttributeError if there
// is none.
func (m *Module) GetSubmodule(target string) *Module {
	if target == "" {
		return m
	}
	found, ok := m.Attr(target).(*Module)
	if !ok {
		panic(args.Errorf("jit.GetSubmodule", gotorch.AttributeError, "%q is no module", target))
	}
	return found
}

// modules returns the modules within, or the module's own alone.
func (m *Module) modules(all bool) []named[*Module] {
	return pairs[*Module](m.read(func(o *gotorch.Object) any { return modulesOf("jit.Modules", o, all) }))
}

// Argument is an argument of a [Method].
type Argument struct {
	Name       string
	Type       string // "Optional[Tensor]"
	HasDefault bool
	Default    any
}

// Method is a method of a script.
type Method struct {
	Name    string
	Args    []Argument // without self
	Returns string     // "Tuple[Tensor, int]"
	Results []Result   // of a tuple its elements, else the one
	Schema  string     // as PyTorch writes it
}

// Result is a result of a [Method].
type Result struct {
	Name string // of a field of a named tuple, else ""
	Type string
}

// Attribute is an attribute of an object: a parameter, a buffer, another module or anything else that is not constant.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.jit.Attribute.html.
type Attribute struct {
	Name, Type        string
	Parameter, Buffer bool
}

func attributes(described any) []Attribute {
	list := described.(gotorch.Tuple)[2].([]any)
	out := make([]Attribute, len(list))
	for i, a := range list {
		a := a.(gotorch.Tuple)
		out[i] = Attribute{a[0].(string), a[1].(string), a[2].(bool), a[3].(bool)}
	}
	return out
}

func (t *tree) methods(described any) []Method {
	list := described.(gotorch.Tuple)[3].([]any)
	out := make([]Method, len(list))
	for i, m := range list {
		m := m.(gotorch.Tuple)
		out[i] = Method{Name: m[0].(string), Schema: m[1].(string), Returns: m[2].(string)}
		for _, r := range m[4].([]any) {
			r := r.(gotorch.Tuple)
			out[i].Results = append(out[i].Results, Result{r[0].(string), r[1].(string)})
		}
		for _, a := range m[3].([]any) {
			a := a.(gotorch.Tuple)
			out[i].Args = append(out[i].Args, Argument{a[0].(string), a[1].(string), a[2].(bool), t.wrap(a[3])})
		}
	}
	slices.SortFunc(out, func(a, b Method) int { return strings.Compare(a.Name, b.Name) })
	return out
}
