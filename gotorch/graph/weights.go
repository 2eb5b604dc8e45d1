package graph

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/regular"
)

// Weight says what a tensor of a generated package is.
type Weight struct {
	Name    string // in Python's state_dict: "layers.0.weight"
	DType   gotorch.DType
	Shape   []int64
	Strides []int64        // nil: those of a contiguous tensor
	Device  gotorch.Device // where the functions need it; the zero Device is the CPU

	Aliases  []string // further names that Python has for it
	Constant bool     // it is a constant of the graph, which Python has no name for
	Zero     bool     // it begins as zeros, and is in no file: what an optimiser keeps

	// RequiresGrad says that it does in Python: libtorch chooses the kernel of linear by that, also where
	// no gradient is recorded, so that the last bits depend on it.
	RequiresGrad bool
}

// hidden reports whether the weight is a matter of the package alone.
func (spec Weight) hidden() bool { return spec.Constant || spec.Zero }

// Weights are the tensors that the C functions of a generated package read, and for training change.
// Several goroutines may use them at once; [Weights.Close] and a training step wait for the others.
type Weights struct {
	Steps int64 // of training that have been made; [Weights.Change] guards it

	inUse   sync.RWMutex // locked to change and to close
	specs   []Weight
	tensors []gotorch.Tensor
	handles [][]unsafe.Pointer // for each function of the package, in its order
}

// LoadWeights reads the weights of a generated package from a safetensors file. The contents must have
// the SHA-256 sum that the package was generated with; "" takes any that fit. For each function of the
// package, orders has the numbers of the weights that it uses.
//
// The error is that of the operating system where the file cannot be read; else an *gotorch.Error of
// kind ValueError, which names op, the file and what is wrong with it.
func LoadWeights(op, path, sum string, specs []Weight, orders ...[]int) (*Weights, error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	if got := sha256.Sum256(data); sum != "" && hex.EncodeToString(got[:]) != sum {
		return nil, args.ValueError(op, "%s is not the file that the package was generated with: its SHA-256 sum is %x, not %s",
			path, got, sum)
	}
	return parseWeights(op, path, data, specs, orders)
}

// EmbeddedWeights are weights that are part of the program: data is the contents of a safetensors
// file.
func EmbeddedWeights(op string, data []byte, specs []Weight, orders ...[]int) *Weights {
	w, err := parseWeights(op, "the data in the package", data, specs, orders)
	if err != nil {
		panic(err)
	}
	return w
}

func parseWeights(op, path string, data []byte, specs []Weight, orders [][]int) (*Weights, error) {
	return makeWeights(op, path, specs, orders, func() (map[string]gotorch.Tensor, error) {
		tensors, _, err := gotorch.ParseSafetensors(data)
		return tensors, err
	})
}

// makeWeights makes weights of the tensors that read gives.
func makeWeights(op, path string, specs []Weight, orders [][]int, read func() (map[string]gotorch.Tensor, error)) (w *Weights, err error) {
	w = &Weights{specs: specs, tensors: make([]gotorch.Tensor, len(specs))}
	// They outlive a Scope that they happen to be loaded in.
	tryErr := gotorch.Try0(func() {
		gotorch.Unscoped(func() { err = w.take(op, path, read) })
	})
	if tryErr != nil && err == nil {
		err = tryErr
	}
	if err != nil {
		w.Close()
		return nil, err
	}
	w.handles = make([][]unsafe.Pointer, len(orders))
	for k, order := range orders {
		for _, i := range order {
			w.handles[k] = append(w.handles[k], *w.tensors[i].T)
		}
	}
	return w, nil
}

func (w *Weights) take(op, path string, read func() (map[string]gotorch.Tensor, error)) error {
	tensors, err := read()
	if err != nil {
		return args.ValueError(op, "%s: %v", path, err)
	}
	defer func() {
		for _, t := range tensors {
			t.Close()
		}
	}()
	for i, spec := range w.specs {
		if spec.Zero {
			w.tensors[i] = gotorch.Zeros(spec.Shape, gotorch.TensorOptions{DType: spec.DType, Device: spec.Device})
			continue
		}
		t, ok := tensors[spec.Name]
		if !ok {
			return args.ValueError(op, "%s has no tensor %q", path, spec.Name)
		}
		if err := spec.check(t); err != nil {
			return args.ValueError(op, "%s: %v", path, err)
		}
		delete(tensors, spec.Name)
		laid, err := spec.laidOut(t)
		if err != nil {
			return args.ValueError(op, "%s: %v", path, err)
		}
		w.tensors[i] = spec.moved(laid)
		if spec.RequiresGrad {
			w.tensors[i].RequiresGrad_()
		}
	}
	if left := slices.Sorted(maps.Keys(tensors)); len(left) > 0 {
		return args.ValueError(op, "%s has a tensor %q, which the package does not know", path, left[0])
	}
	return nil
}

func (spec Weight) check(t gotorch.Tensor) error {
	if got := t.Shape(); !slices.Equal(got, spec.Shape) || t.DType() != spec.DType {
		return fmt.Errorf("%s is %v%v, where the package needs %v%v", spec.Name, t.DType(), got, spec.DType, spec.Shape)
	}
	if layout := t.Layout(); layout != gotorch.Strided {
		return fmt.Errorf("%s has layout %v, where the package needs a dense tensor", spec.Name, layout)
	}
	return nil
}

// laidOut returns t with the strides that it had in Python: what libtorch computes may depend on them in
// the last bits. It closes what it does not return. Elements that share memory have one value in Python, as in what
// expand and unfold return; a file in which they have several is refused.
func (spec Weight) laidOut(t gotorch.Tensor) (gotorch.Tensor, error) {
	if spec.Strides == nil {
		return t, nil
	}
	defer t.Close()
	laid := gotorch.EmptyStrided(spec.Shape, spec.Strides, gotorch.TensorOptions{DType: spec.DType})
	same := gotorch.Scope(func(*gotorch.ScopeHandle) bool {
		to, from := laid, t
		for d, stride := range spec.Strides {
			if stride == 0 && spec.Shape[d] > 1 { // the same memory again and again
				to, from = to.Narrow(int64(d), 0, 1), from.Narrow(int64(d), 0, 1)
			}
		}
		to.Copy_(from)
		return !spec.mayOverlap() || bytesOf(laid).Equal(bytesOf(t))
	})
	if !same {
		laid.Close()
		return gotorch.Tensor{}, fmt.Errorf("%s has several values for elements that its strides %v put into the same memory",
			spec.Name, spec.Strides)
	}
	return laid, nil
}

// mayOverlap reports whether two elements may be in the same memory: strides that are each beyond what the smaller ones
// reach keep them apart.
func (spec Weight) mayOverlap() bool {
	dims := make([]int, 0, len(spec.Shape))
	for d, n := range spec.Shape {
		if n > 1 {
			dims = append(dims, d)
		}
	}
	slices.SortFunc(dims, func(a, b int) int { return cmp.Compare(spec.Strides[a], spec.Strides[b]) })
	reach := int64(0)
	for _, d := range dims {
		if spec.Strides[d] <= reach {
			return !slices.Contains(spec.Shape, 0)
		}
		reach += (spec.Shape[d] - 1) * spec.Strides[d]
	}
	return false
}

// bytesOf returns the elements bit by bit: a NaN is equal to itself.
func bytesOf(t gotorch.Tensor) gotorch.Tensor { return t.Contiguous().ViewDType(gotorch.Uint8) }

// moved returns t on the device where the functions need it. It closes what it does not return.
func (spec Weight) moved(t gotorch.Tensor) gotorch.Tensor {
	if spec.Device == 0 {
		return t
	}
	defer t.Close()
	return t.To(gotorch.ToOptions{Device: spec.Device, Copy: true})
}

// Use returns the handles for function number k, which are good until [Weights.Done]. It panics with a
// ValueError after Close.
func (w *Weights) Use(op string, k int) unsafe.Pointer {
	w.inUse.RLock()
	if w.handles == nil {
		w.inUse.RUnlock()
		panic(closed(op))
	}
	return unsafe.Pointer(unsafe.SliceData(w.handles[k]))
}

// Done ends what [Weights.Use] began.
func (w *Weights) Done() { w.inUse.RUnlock() }

// Change is [Weights.Use] for a function that changes the weights: nobody else uses them until
// [Weights.Changed].
func (w *Weights) Change(op string, k int) unsafe.Pointer {
	w.inUse.Lock()
	if w.handles == nil {
		w.inUse.Unlock()
		panic(closed(op))
	}
	return unsafe.Pointer(unsafe.SliceData(w.handles[k]))
}

// Changed ends what [Weights.Change] began.
func (w *Weights) Changed() { w.inUse.Unlock() }

//go:noinline
func closed(op string) *gotorch.Error {
	return args.ValueError(op, "the model was used after Close")
}

// names returns what Python calls the weight.
func (spec Weight) names() []string {
	if spec.hidden() {
		return nil
	}
	return append([]string{spec.Name}, spec.Aliases...)
}

// Map returns the weights by their names. They share memory with those that are in use.
func (w *Weights) Map(op string) map[string]gotorch.Tensor {
	w.Use(op, 0)
	defer w.Done()
	return w.named()
}

func (w *Weights) named() map[string]gotorch.Tensor {
	found := make(map[string]gotorch.Tensor, len(w.specs))
	for i, spec := range w.specs {
		for _, name := range spec.names() {
			found[name] = w.tensors[i].Detach()
		}
	}
	return found
}

// Set copies values into the weights of the same names; the others stay. Nobody else uses them
// meanwhile. The error is an *gotorch.Error of kind KeyError for a name that the package does not have,
// and ValueError for a tensor of another shape or dtype; nothing is changed then.
func (w *Weights) Set(op string, values map[string]gotorch.Tensor) error {
	return gotorch.Try0(func() {
		w.Change(op, 0)
		defer w.Changed()
		places := w.places(Weight.names)
		w.check(op, places, values)
		w.copy(places, values)
	})
}

// places returns the numbers of the weights by what names says of each.
func (w *Weights) places(names func(Weight) []string) map[string]int {
	found := make(map[string]int, len(w.specs))
	for i, spec := range w.specs {
		for _, name := range names(spec) {
			found[name] = i
		}
	}
	return found
}

// check panics if not every value fits the weight of its name.
func (w *Weights) check(op string, places map[string]int, values map[string]gotorch.Tensor) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		i, ok := places[name]
		if !ok {
			panic(&gotorch.Error{Op: op, Kind: gotorch.KeyError, Msg: fmt.Sprintf("the package has no weight %q", name)})
		}
		if err := w.specs[i].check(values[name]); err != nil {
			panic(args.ValueError(op, "%v", err))
		}
	}
}

func (w *Weights) copy(places map[string]int, values map[string]gotorch.Tensor) {
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for _, name := range slices.Sorted(maps.Keys(values)) {
				w.tensors[places[name]].Copy_(values[name])
			}
		})
	})
}

// Save writes the weights to a file under their names, as [gotorch.SaveTensors] does: a safetensors file,
// or one for torch.load. A file at path is replaced when the new one is complete.
func (w *Weights) Save(op, path string) error {
	return w.save(op, func() error { return gotorch.SaveTensors(path, w.named()) })
}

// save calls write while no step of training can come between two weights.
func (w *Weights) save(op string, write func() error) (err error) {
	tryErr := gotorch.Try0(func() {
		w.Use(op, 0)
		defer w.Done()
		gotorch.Scope0(func(*gotorch.ScopeHandle) { err = write() })
	})
	if tryErr != nil {
		return tryErr
	}
	return err
}

// The keys of a checkpoint: those of package train, whose files are alike but for what an optimiser's
// state is.
const (
	modelState     = "model_state_dict"
	optimizerState = "optimizer_state_dict"
	stepsKey       = "step"
	stateKey       = "state"
)

// kept returns the name of what an optimiser keeps.
func (spec Weight) kept() []string {
	if !spec.Zero {
		return nil
	}
	return []string{spec.Name}
}

// SaveCheckpoint writes all that a training goes on from: the weights, what the optimiser keeps of each,
// and the number of steps. It is a file of [gotorch.Save], which Python reads with torch.load. A file at
// path is replaced when the new one is complete.
func (w *Weights) SaveCheckpoint(op, path string) error {
	return w.save(op, func() error {
		state := map[string]gotorch.Tensor{}
		for name, i := range w.places(Weight.kept) {
			state[name] = w.tensors[i].Detach()
		}
		return gotorch.Save(path, gotorch.Dict{
			{Key: modelState, Value: w.named()},
			{Key: optimizerState, Value: gotorch.Dict{{Key: stepsKey, Value: w.Steps}, {Key: stateKey, Value: state}}},
		})
	})
}

// LoadCheckpoint reads a file of [Weights.SaveCheckpoint], or of Python's TrainingStep.checkpoint: the next
// step is the one that would have come then. The error is that of [gotorch.Load] where the file cannot be
// read; else an *gotorch.Error, of kind KeyError for a name that the package does not have, and ValueError
// where the file does not fit otherwise. Nothing is changed then.
func (w *Weights) LoadCheckpoint(op, path string) error {
	var err error
	tryErr := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			var found any
			if found, err = gotorch.Load(path); err != nil {
				return
			}
			w.resume(op, path, found)
		})
	})
	if err != nil {
		return err
	}
	return tryErr
}

// resume takes over a checkpoint. It panics if it is none of these weights.
func (w *Weights) resume(op, path string, found any) {
	checkpoint, _ := found.(gotorch.Dict)
	optimizer, _ := checkpoint.Get(optimizerState).(gotorch.Dict)
	steps, ok := optimizer.Get(stepsKey).(int64)
	if !ok || steps < 0 {
		panic(args.ValueError(op, "%s is no checkpoint of a generated package: it needs %s, and %s with %s and %s",
			path, modelState, optimizerState, stepsKey, stateKey))
	}
	weights := w.tensorsOf(op, path, checkpoint.Get(modelState), Weight.names)
	state := w.tensorsOf(op, path, optimizer.Get(stateKey), Weight.kept)

	w.Change(op, 0)
	defer w.Changed()
	w.copy(w.places(Weight.names), weights)
	w.copy(w.places(Weight.kept), state)
	w.Steps = steps
}

// tensorsOf returns a dict of a checkpoint, which must have all tensors that names names, and no others.
func (w *Weights) tensorsOf(op, path string, dict any, names func(Weight) []string) map[string]gotorch.Tensor {
	places := w.places(names)
	items, _ := dict.(gotorch.Dict)
	values := make(map[string]gotorch.Tensor, len(items))
	for key, value := range items.All() {
		name, ok1 := key.(string)
		t, ok2 := value.(gotorch.Tensor)
		if !ok1 || !ok2 {
			panic(args.ValueError(op, "%s: the checkpoint holds other things than named tensors", path))
		}
		values[name] = t
	}
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if _, ok := values[name]; !ok {
			panic(args.ValueError(op, "%s: the checkpoint has no tensor %q", path, name))
		}
	}
	w.check(op, places, values)
	return values
}

// Close waits for the calls that go on, and frees the weights. Closing twice, or closing nil, is fine.
func (w *Weights) Close() {
	if w == nil {
		return
	}
	w.inUse.Lock()
	defer w.inUse.Unlock()
	w.handles = nil
	for _, t := range w.tensors {
		t.Close()
	}
	w.tensors = nil
}
