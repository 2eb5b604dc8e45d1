// Package fields is how the packages below nn/utils change what a module consists of: they put a tensor's
// place, a field, aside, give the module parameters, buffers and children that are no fields, and have the
// field computed from those whenever the module is called. Package nn, which has the modules, implements [Module]; its
// types cannot be named here, so a module of a hook comes as an any that is an nn.Modular.
package fields

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"gotorch.dev/gotorch"
)

// Kind is what a tensor is to its module.
type Kind int

// Those that a struct's tags tell apart.
const (
	Parameter Kind = iota
	Buffer
	Transient
)

// Parts is what a module has besides the fields of its struct, and which of the fields are computed. It is
// changed only while no other goroutine uses the module; Turn guards the fields while Forward runs.
type Parts struct {
	Tensors  []*Tensor // behind those of the fields
	Children []Child   // behind those of the fields
	Computed []*Computed
	Prefix   string // stands before the name of the module's class

	Turn Turn
}

// Tensor is a parameter or buffer that is no field.
type Tensor struct {
	Name string
	Kind Kind
	T    gotorch.Tensor
}

// Child is a module that is no field.
type Child struct {
	Name   string
	Module any
}

// Computed is a field that is computed of other tensors, and so neither a parameter nor a buffer. It is not
// changed once it is part of a module, so that copies of the module share it.
type Computed struct {
	Name string
	Kind Kind // what the field was
	// Compute returns what the module is to use in the place of the field. It is nil where a hook of
	// [Module].AddHook writes the field itself, before the hooks that were registered later, as PyTorch's older
	// functions do.
	Compute func(module any) gotorch.Tensor
	// Load, if there is one, gives the tensors of an older state dict the names that they have now. The
	// module's own names begin with prefix.
	Load func(prefix string, dict map[string]gotorch.Tensor)
}

// Find returns the tensor of a name, or nil.
func (p *Parts) Find(name string) *Tensor {
	for _, t := range p.Tensors {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Remove removes the tensor of a name.
func (p *Parts) Remove(name string) {
	p.Tensors = slices.DeleteFunc(slices.Clone(p.Tensors), func(t *Tensor) bool { return t.Name == name })
}

// FindComputed returns what is known of the field of a name, or nil if it is not computed.
func (p *Parts) FindComputed(name string) *Computed {
	for _, c := range p.Computed {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// RemoveComputed makes a field a parameter or buffer again.
func (p *Parts) RemoveComputed(name string) {
	p.Computed = slices.DeleteFunc(slices.Clone(p.Computed), func(c *Computed) bool { return c.Name == name })
}

// Place is where a module has a tensor: a field, or what a holder of named tensors has for one.
type Place struct {
	T    *gotorch.Tensor
	Kind Kind
}

// Module is what package nn does for the others with a module: nn.Internals returns it.
type Module interface {
	// Parts returns what the module has, and makes it first if there is none and make is set.
	Parts(make bool) *Parts
	// Tidy forgets the parts if nothing is left in them.
	Tidy()
	// Place returns where the module itself, not one within, has the tensor of a name; ok is false where there is
	// none or it is the zero Tensor.
	Place(name string) (place Place, ok bool)
	// Made has it known that t is a parameter as it is, also one that does not require gradients.
	Made(t gotorch.Tensor)
	// AddHook has fn called before Forward; Hooks returns the tags of such hooks in their order.
	AddHook(tag any, fn func(m any))
	Hooks() (tags []any)
	RemoveHook(tag any)
	// Refresh computes a field, puts the result into it and returns it.
	Refresh(name string) gotorch.Tensor
	// Class is the name of the module's class, without a prefix.
	Class() string
	// Lazy says whether the module's tensors have no shape yet.
	Lazy() bool
	// Convolution returns what the module is if it is one.
	Convolution() (Convolution, bool)
	// BatchNorm returns what the module is if it is a batch normalisation.
	BatchNorm() (BatchNorm, bool)
}

// Convolution is a convolution's tensors, and of what kind it is.
type Convolution struct {
	Weight, Bias *gotorch.Tensor
	Directions   int
	Transposed   bool
}

// BatchNorm is a batch normalisation's tensors and numbers.
type BatchNorm struct {
	RunningMean, RunningVar, Weight, Bias gotorch.Tensor
	Eps                                   float64
	NumFeatures                           int64
}

// RowDim is the dimension of a module's weight that has one place for each output.
func RowDim(m Module) int64 {
	if conv, ok := m.Convolution(); ok && conv.Transposed {
		return 1
	}
	return 0
}

// Rows is t with one of its dimensions in front.
func Rows(t gotorch.Tensor, dim int64) gotorch.Tensor {
	if dim == 0 {
		return t
	}
	order := []int64{dim}
	for d := range t.Dim() {
		if d != dim {
			order = append(order, d)
		}
	}
	return t.Permute(order)
}

// Turn lets one goroutine at a time use what a module's fields were computed to. The goroutine may take it
// again: a module's Forward may come to call itself.
type Turn struct {
	mutex sync.Mutex
	owner atomic.Int64 // the OS thread, to which the goroutine is locked; 0: nobody
	depth int
}

// Take waits for the turn. It must be given back by the function that it returns, on the same goroutine.
func (t *Turn) Take() (give func()) {
	runtime.LockOSThread()
	thread := int64(syscall.Gettid())
	if t.owner.Load() != thread {
		t.mutex.Lock()
		t.owner.Store(thread)
	}
	t.depth++
	return func() {
		if t.depth--; t.depth == 0 {
			t.owner.Store(0)
			t.mutex.Unlock()
		}
		runtime.UnlockOSThread()
	}
}

// Taken reports whether this goroutine has the turn.
func (t *Turn) Taken() bool {
	owner := t.owner.Load()
	if owner == 0 {
		return false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return owner == int64(syscall.Gettid())
}

// The cache of a goroutine, of which there are as many as run inside of [Cached].
type cache struct {
	depth  int
	values map[key]gotorch.Tensor
}

type key struct {
	of   *Parts
	name string
}

var (
	caches  sync.Map // *cache by OS thread
	caching atomic.Int64
)

// Cached runs fn, in which this goroutine computes each field once.
func Cached(fn func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := syscall.Gettid()
	found, _ := caches.LoadOrStore(thread, &cache{values: map[key]gotorch.Tensor{}})
	c := found.(*cache)
	c.depth++
	caching.Add(1)
	defer func() {
		caching.Add(-1)
		if c.depth--; c.depth == 0 {
			caches.Delete(thread)
		}
	}()
	fn()
}

// Compute returns what compute does, or inside of [Cached] what it did first. What it returns is left to the
// collector, so that no scope frees what stays in a field.
func (p *Parts) Compute(name string, compute func() gotorch.Tensor) (result gotorch.Tensor) {
	if caching.Load() > 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if found, ok := caches.Load(syscall.Gettid()); ok {
			c, k := found.(*cache), key{p, name}
			if known, ok := c.values[k]; ok && known.Defined() {
				return known
			}
			defer func() {
				if result.T != nil {
					c.values[k] = result
				}
			}()
		}
	}
	gotorch.Unscoped(func() { result = compute() })
	return result
}
