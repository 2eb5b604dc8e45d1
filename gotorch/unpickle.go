package gotorch

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"

	"gotorch.dev/gotorch/internal/pickle"
)

func loadError(kind ErrorKind, format string, args ...any) *Error {
	return newError("Load", kind, fmt.Sprintf(format, args...))
}

// unpickler is the pickle.Host of files that torch.save has written. It makes tensors and plain data of what a file
// asks for, and a pickle.Object of everything else.
type unpickler struct {
	opt       LoadOptions
	budget    *pickle.Budget
	left      int64 // bytes that storages may still take
	work      int64 // elements that may still be looked at or converted
	bigEndian bool
	records   records
	storages  map[storageUse]*Storage
	first     *broken
	failures  int
	calls     int // of reduce that are under way
}

// records are where the bytes of storages are, by their keys.
type records interface {
	size(key string) (int64, bool)
	read(key string, b []byte) error
	mapped(key string) (*Storage, error) // nil where it cannot be
}

// storageUse is a storage with the size of the numbers whose bytes are in another order in the file, or 1.
type storageUse struct {
	key      string
	reversed int
	meta     bool
}

// typedStorage is a storage as a file refers to it: from offset on numel elements of it.
type typedStorage struct {
	storage       *Storage
	key           string
	dtype         DType
	untyped       bool // whether the file does not say of what it is
	meta          bool // whether it is on the meta device, and nowhere in the file
	offset, numel int64
}

// PickleName is part of pickle.Named.
func (typedStorage) PickleName() string { return "a storage" }

// broken stands for what could not be made, so that the error can say where it is.
type broken struct{ err *Error }

// PickleName is part of pickle.Named.
func (*broken) PickleName() string { return "a value that cannot be made" }

// shell is a tensor that is made before its elements are there, as files before PyTorch 0.2 have it.
type shell struct{ tensor Tensor }

// PickleName is part of pickle.Named.
func (*shell) PickleName() string { return "a tensor" }

// global is a class or function that a file names.
type global string

// PickleName is part of pickle.Named.
func (g global) PickleName() string { return string(g) }

func (g global) dtype() (DType, bool) {
	if name, ok := strings.CutPrefix(string(g), "torch."); ok && len(name) < 40 { // the error has the name, so that it costs what that is long
		if d, err := ParseDType(name); err == nil {
			return d, true
		}
	}
	return 0, false
}

// storageType returns the dtype of a class of storages, and Uint8 for those that have none.
func (g global) storageType() (d DType, untyped, ok bool) {
	name := string(g)
	for _, module := range []string{"torch.cuda.", "torch.storage.", "torch."} { // those of GPUs had their own
		if rest, ok := strings.CutPrefix(name, module); ok {
			name = strings.TrimPrefix(rest, "_")
			break
		}
	}
	if name == "UntypedStorage" {
		return Uint8, true, true
	}
	d, ok = storageTypes[name]
	return d, false, ok
}

// decode reads a pickle, and returns it in this package's types.
func (u *unpickler) decode(data []byte) (any, error) {
	u.budget = pickle.NewBudget(len(data))
	u.storages = map[storageUse]*Storage{}
	v, err := pickle.Decode(data, u, u.budget)
	if err == nil {
		f := &flattener{unpickler: u, done: map[any]flat{}, most: pickle.NewBudget(len(data))}
		if v, err = f.flatten(v); err == nil {
			err = f.tooLarge()
		}
	}
	if err == nil && u.first != nil { // of something that the file has dropped
		err = u.first.err
	}
	if err != nil {
		return nil, unpicklingError(err)
	}
	if o, ok := v.(*PickledObject); ok && o.isModule() {
		return nil, loadError(NotImplementedError, "the file is %s", o.wayOut())
	}
	return v, nil
}

func unpicklingError(err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return loadError(UnpicklingError, "%v", err)
}

// flattener turns what the pickle package makes into this package's types. A value that occurs in
// several places is turned once.
type flattener struct {
	*unpickler
	done   map[any]flat
	path   []any // keys and numbers of where the value is
	places int   // what has been turned comes to, were it written out: about the bytes of its text
	most   *pickle.Budget
}

// flat is a value that was turned; one that is under way has no places.
type flat struct {
	value  any
	places int
}

// add counts places, and stays where it is once there are too many to count.
func (f *flattener) add(places int) { f.places = min(f.places+places, math.MaxInt/2) }

// tooLarge is the error where there are too many places. In a hostile file a value may be in 2^50 of them. Whoever prints
// it, saves it or compares it comes to each.
func (f *flattener) tooLarge() error {
	if f.most.Has(f.places) {
		return nil
	}
	return loadError(UnpicklingError, "its values are in so many places at once that it would be far larger if it were written out")
}

// fail is loadError for the value that is being turned.
func (f *flattener) fail(e *Error) error {
	if len(f.path) == 0 {
		return e
	}
	at := "the value"
	for _, key := range f.path {
		at += placeIn(key)
	}
	return newError("Load", e.Kind, at+": "+e.Msg)
}

// placeIn is how error messages name an element: by its key, or its number.
func placeIn(key any) string {
	switch key := key.(type) {
	case string:
		return fmt.Sprintf("[%.100q]", key)
	case int, int64, float64, bool:
		return fmt.Sprintf("[%v]", key)
	}
	return "[" + describe(key) + "]"
}

func (f *flattener) flatten(v any) (any, error) {
	if len(f.path) > maxDepth {
		return nil, loadError(UnpicklingError, "the value is nested too deeply")
	}
	f.add(16)
	if err := f.tooLarge(); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *pickle.List, *pickle.Tuple, *pickle.Set, *pickle.Dict, *pickle.Object, *npArray:
	case *broken:
		return nil, f.fail(v.err)
	case *shell:
		f.add(512)
		return v.tensor, nil
	case global:
		f.add(len(v))
		if d, ok := v.dtype(); ok {
			return d, nil
		}
		return &PickledObject{Class: string(v)}, nil
	case *npDType:
		f.add(len(v.code))
		return &PickledObject{Class: "numpy.dtype", Args: Tuple{v.code}}, nil
	case typedStorage:
		f.add(512)
		done, ok := f.done[v]
		if !ok {
			var err error
			if done.value, err = v.value(); err != nil {
				return nil, err
			}
			f.done[v] = done
		}
		return done.value, nil
	case string:
		f.add(len(v))
		return v, nil
	case []byte:
		f.add(len(v))
		return v, nil
	case *big.Int:
		f.add(v.BitLen())
		return v, nil
	case Tensor:
		f.add(512)
		return v, nil
	default:
		return v, nil
	}
	if done, ok := f.done[v]; ok {
		if _, opaque := done.value.(*PickledObject); done.places == 0 && !opaque {
			return nil, f.fail(loadError(UnpicklingError, "the value contains itself"))
		}
		f.add(done.places)
		return done.value, nil
	}
	f.done[v] = flat{}
	before := f.places
	f.places = 1
	result, err := f.container(v)
	if err != nil {
		return nil, err
	}
	f.done[v] = flat{result, f.places}
	f.add(before)
	return result, nil
}

// in turns an element, which is under key.
func (f *flattener) in(key, v any) (any, error) {
	f.path = append(f.path, key)
	result, err := f.flatten(v)
	f.path = f.path[:len(f.path)-1]
	return result, err
}

func (f *flattener) container(v any) (any, error) {
	switch v := v.(type) {
	case *pickle.List:
		return f.list(v.Items)
	case *pickle.Set:
		return f.list(v.Items)
	case *pickle.Tuple:
		list, err := f.list(v.Items)
		return Tuple(list), err
	case *pickle.Dict:
		return f.dict(v)
	case *npArray:
		if v.tensor.T == nil {
			return f.object(v, v.opaque())
		}
		f.add(512)
		return v.tensor, nil
	case *pickle.Object:
		return f.object(v, v)
	}
	return nil, loadError(UnpicklingError, "there is %s", pickle.Describe(v))
}

func (f *flattener) list(items []any) ([]any, error) {
	list := make([]any, len(items))
	for i, item := range items {
		var err error
		if list[i], err = f.in(i, item); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (f *flattener) dict(d *pickle.Dict) (Dict, error) {
	dict := make(Dict, len(d.Items))
	for i, item := range d.Items {
		key, err := f.in(item.Key, item.Key)
		if err != nil {
			return nil, err
		}
		value, err := f.in(item.Key, item.Value)
		if err != nil {
			return nil, err
		}
		dict[i] = DictItem{key, value}
	}
	return dict, nil
}

// object turns what v, an object, is. It may contain itself.
func (f *flattener) object(v any, o *pickle.Object) (any, error) {
	f.add(len(o.Class))
	p := &PickledObject{Class: o.Class, Call: o.Call}
	f.done[v] = flat{value: p}
	var err error
	if o.Args != nil {
		var args any
		if args, err = f.in("arguments", o.Args); err != nil {
			return nil, err
		}
		p.Args = args.(Tuple)
	}
	if p.State, err = f.in("state", o.State); err != nil {
		return nil, err
	}
	if o.Items != nil {
		if p.Items, err = f.list(o.Items); err != nil {
			return nil, err
		}
	}
	if o.Pairs.Items != nil {
		if p.Pairs, err = f.dict(&o.Pairs); err != nil {
			return nil, err
		}
	}
	if whole, ok := wholeDTensor(p); ok {
		return whole, nil
	}
	return p, nil
}

// dtensorClass is the class of tensors of which each rank has a part.
const dtensorClass = "torch.distributed.tensor.DTensor"

// wholeDTensor returns the elements of a DTensor where this rank's part is all of them.
func wholeDTensor(o *PickledObject) (Tensor, bool) {
	if o.Class != dtensorClass || len(o.Args) < 3 {
		return Tensor{}, false
	}
	local, ok := o.Attr("_local_tensor").(Tensor)
	size, _ := o.Args[2].(Tuple)
	spec, _ := o.Attr("_spec").(*PickledObject)
	if !ok || spec == nil || local.Dim() != int64(len(size)) {
		return Tensor{}, false
	}
	for i, n := range local.Shape() {
		if size[i] != n {
			return Tensor{}, false
		}
	}
	placements, ok := spec.Attr("placements").(Tuple)
	for _, p := range placements {
		placement, _ := p.(*PickledObject)
		// The parts of others are empty, or the same; those of another kind have to be added up.
		if placement == nil || placement.Class != "torch.distributed.tensor.placement_types.Shard" &&
			placement.Class != "torch.distributed.tensor.placement_types.Replicate" {
			return Tensor{}, false
		}
	}
	return local, ok
}

// value returns what a storage is that stands for itself: one that has a dtype is the tensor of its elements.
func (s typedStorage) value() (any, error) {
	if s.untyped && s.offset == 0 {
		return s.storage, nil
	}
	if s.dtype.IsQuantized() {
		return nil, loadError(NotImplementedError, "a storage of the quantised dtype %s belongs to no tensor, which would have its scale", s.dtype)
	}
	var t Tensor
	err := Try0(func() { t = tensorOn(s.storage, s.dtype, s.offset, []int64{s.numel}, []int64{1}) })
	return t, err
}

// Global is part of pickle.Host. Nothing is looked up.
func (u *unpickler) Global(module, name string) (any, error) {
	if err := u.budget.Take(64 + len(module) + len(name)); err != nil {
		return nil, err
	}
	switch module {
	case "__builtin__", "exceptions": // Python 2's names, which protocols 0 to 2 have
		module = "builtins"
		if newer := map[string]string{"xrange": "range", "unicode": "str", "long": "int", "unichr": "chr", "basestring": "str"}[name]; newer != "" {
			name = newer
		}
	case "copy_reg":
		module = "copyreg"
	case "torch.tensor":
		module = "torch._tensor"
	case "numpy.core.multiarray", "numpy.core.numeric":
		module = "numpy._core" + strings.TrimPrefix(module, "numpy.core")
	}
	return global(module + "." + name), nil
}

// ByteString is part of pickle.ByteStrings: a string of Python 2 is text, if it can be.
func (u *unpickler) ByteString(b []byte) any {
	if s, ok := asText(b); ok {
		return s
	}
	return slices.Clone(b)
}

// locations are the places where a storage may have been. Without a Device the file's must be known, as in torch.load.
var locations = regexp.MustCompile(`^(cpu|mps|meta|(cuda|xpu|hpu|mtia|xla|privateuseone)(:\d{1,3})?)$`)

// Persistent is part of pickle.Host: it returns a storage.
func (u *unpickler) Persistent(id any) (any, error) {
	ref, err := parseStorageRef(id, u.budget)
	if err != nil || ref.module != nil {
		return ref.module, err
	}
	v, err := u.storageOf(ref)
	var e *Error
	if errors.As(err, &e) {
		return u.failed(e)
	}
	return v, err
}

// storageRef is what a pickle says of a storage.
type storageRef struct {
	module        any // a class, and its source, which are no storage
	key, location string
	dtype         DType
	untyped       bool
	numel         int64 // of the whole storage
	view          bool
	offset, size  int64 // of a view
}

// parseStorageRef reads a reference to what is kept outside of the pickle.
func parseStorageRef(id any, budget *pickle.Budget) (ref storageRef, err error) {
	if _, text := id.(string); text {
		return ref, loadError(NotImplementedError, "the file was written with pickle protocol 0, which does not keep where tensors are, so that torch.load cannot read it either: save it with another protocol")
	}
	t, _ := id.(*pickle.Tuple)
	if t == nil || len(t.Items) == 0 {
		return ref, loadError(UnpicklingError, "the file refers to something that is no storage: %s", pickle.Describe(id))
	}
	kind, _ := textOf(t.Items[0])
	if kind == "module" && len(t.Items) >= 2 { // the class of a module in a file of before 1.6, and its source
		return storageRef{module: t.Items[1]}, nil
	}
	if kind != "storage" || len(t.Items) != 5 && len(t.Items) != 6 {
		return ref, loadError(UnpicklingError, "the file refers to something that is no storage")
	}
	class, ok1 := t.Items[1].(global)
	key, ok2 := textOf(t.Items[2])
	if n, is := t.Items[2].(int64); is {
		key, ok2 = fmt.Sprint(n), true
	}
	location, ok3 := textOf(t.Items[3])
	numel, ok4 := t.Items[4].(int64)
	if !ok1 || !ok2 || !ok3 || !ok4 || numel < 0 {
		return ref, loadError(UnpicklingError, "a reference to a storage is malformed")
	}
	dtype, untyped, ok := class.storageType()
	if !ok {
		return ref, loadError(UnpicklingError, "a storage has the type %s", class)
	}
	ref = storageRef{key: key, location: location, dtype: dtype, untyped: untyped, numel: numel, size: numel}
	if len(t.Items) == 6 && t.Items[5] != nil {
		view, _ := t.Items[5].(*pickle.Tuple)
		if view == nil || len(view.Items) != 3 {
			return ref, loadError(UnpicklingError, "a reference to a storage is malformed")
		}
		ref.view = true
		ref.offset, ok1 = view.Items[1].(int64)
		ref.size, ok2 = view.Items[2].(int64)
		if !ok1 || !ok2 || ref.offset < 0 || ref.size < 0 || ref.offset > numel || ref.size > numel-ref.offset {
			return ref, loadError(ValueError, "a view of storage %.50q reaches outside it", key)
		}
	}
	if numel > math.MaxInt64/int64(max(1, dtype.Size())) {
		return ref, loadError(ValueError, "storage %.50q is too large", key)
	}
	return ref, budget.Take(64 + len(key) + len(location)) // to look it up
}

func (u *unpickler) storageOf(ref storageRef) (any, error) {
	meta := ref.location == "meta" && u.opt.Device == 0
	if u.opt.Device == 0 && !locations.MatchString(ref.location) {
		return nil, loadError(ValueError, "storage %.50q was on %.50q, which is no known device: set LoadOptions.Device to read it all the same", ref.key, ref.location)
	}
	s := typedStorage{key: ref.key, dtype: ref.dtype, untyped: ref.untyped, offset: ref.offset, numel: ref.size}
	nbytes := ref.numel * int64(ref.dtype.Size())
	var err error
	if s.meta = meta; meta {
		use := storageUse{ref.key, 1, true}
		if s.storage = u.storages[use]; s.storage == nil || s.storage.Bytes() != nbytes {
			err = Try0(func() {
				s.storage = Empty([]int64{nbytes}, TensorOptions{DType: Uint8, Device: Meta}).Storage()
			})
			u.storages[use] = s.storage
		}
		return s, err
	}
	switch n, ok := u.records.size(ref.key); {
	case !ok:
		return nil, loadError(ValueError, "storage %.50q is missing", ref.key)
	case n < nbytes:
		return nil, loadError(ValueError, "storage %.50q is truncated: %d bytes, and %d are expected", ref.key, n, nbytes)
	case n > nbytes:
		return nil, loadError(ValueError, "storage %.50q is longer than the file says: %d bytes, and %d are expected", ref.key, n, nbytes)
	}
	s.storage, err = u.load(ref.key, nbytes, u.reversed(ref.dtype))
	return s, err
}

// reversed is the size of the numbers of a dtype whose bytes are in another order in the file.
func (u *unpickler) reversed(d DType) int {
	if !u.bigEndian {
		return 1
	}
	return max(1, partSize(d))
}

// partSize is the size of a dtype's numbers, of which a complex one has two.
func partSize(d DType) int {
	if d.IsComplex() {
		return d.Size() / 2
	}
	return d.Size()
}

// reverseEach reverses the bytes of each number of n bytes.
func reverseEach(b []byte, n int) {
	for ; len(b) >= n; b = b[n:] {
		slices.Reverse(b[:n])
	}
}

// load returns the storage of a record of n bytes.
func (u *unpickler) load(key string, n int64, reversed int) (*Storage, error) {
	use := storageUse{key: key, reversed: reversed}
	if s := u.storages[use]; s != nil {
		return s, nil
	}
	// Records may overlap, so that a small file could ask for much memory.
	if u.left -= n; u.left < 0 {
		return nil, loadError(ValueError, "the file holds more data than it is long")
	}
	var s *Storage
	var err error
	if u.opt.Map && n > 0 && reversed == 1 {
		s, err = u.records.mapped(key)
	}
	if s == nil && err == nil {
		s, err = u.readStorage(key, n, reversed)
	}
	if err != nil {
		return nil, err
	}
	u.storages[use] = s
	return s, nil
}

func (u *unpickler) readStorage(key string, n int64, reversed int) (s *Storage, err error) {
	t, err := emptyBytes(n)
	if err != nil {
		return nil, err
	}
	if n > 0 {
		b := RawData(t)
		if err := u.records.read(key, b); err != nil {
			t.Close()
			return nil, err
		}
		reverseEach(b, reversed)
	}
	err = Try0(func() { s = u.onDevice(t).Storage() })
	return s, err
}

// onDevice returns a tensor of the file's on the device that the caller wants.
func (u *unpickler) onDevice(t Tensor) Tensor {
	if u.opt.Device == 0 {
		return t
	}
	return t.To(u.opt.Device)
}

// fail returns what stands for a value that cannot be made.
func (u *unpickler) fail(e *Error) *broken {
	b := &broken{e}
	if u.first == nil {
		u.first = b
	}
	u.failures++
	return b
}

// Build is part of pickle.Host. The attributes of what is data otherwise, like the _metadata of a state
// dict, are something that only Python has a use for.
func (u *unpickler) Build(object, state any) error {
	switch o := object.(type) {
	case *pickle.Dict, *pickle.Set, *broken:
		return nil
	case *pickle.Object:
		o.State = state
		return nil
	case *npDType:
		return o.build(state)
	case *npArray:
		err := o.build(u, state)
		var e *Error
		if errors.As(err, &e) {
			u.fail(e)
			return nil
		}
		return err
	case *shell:
		t, _ := state.(*pickle.Tuple)
		if t == nil || len(t.Items) != 4 {
			return loadError(UnpicklingError, "the state of a tensor is malformed")
		}
		made, err := u.rebuild("torch._utils._rebuild_tensor", argumentsOf(t.Items))
		if err == nil {
			o.tensor = made
		}
		return err
	case Tensor:
		// Of a parameter of before 0.4: whether it requires grad, whether it is volatile, and hooks.
		if t, ok := state.(*pickle.Tuple); ok && len(t.Items) == 3 {
			if requiresGrad, ok := t.Items[0].(bool); ok {
				return Try0(func() { o.RequiresGrad_(requiresGrad) })
			}
		}
		return nil
	}
	return loadError(UnpicklingError, "the file sets the state of %s", describe(object))
}

// describe is pickle.Describe, which knows no tensors.
func describe(v any) string {
	switch v.(type) {
	case Tensor:
		return "a tensor"
	case DType:
		return "a dtype"
	case Device:
		return "a device"
	case Layout:
		return "a layout"
	}
	return pickle.Describe(v)
}

// arguments are those of a call.
type arguments func(i int) any

func argumentsOf(items []any) arguments {
	return func(i int) any {
		if i < len(items) {
			return items[i]
		}
		return nil
	}
}

// brokenIn returns one of items that could not be made.
func brokenIn(items []any, depth int) *broken {
	for _, item := range items[:min(len(items), 16)] {
		if b, ok := item.(*broken); ok {
			return b
		}
		if t, ok := item.(*pickle.Tuple); ok && depth > 0 {
			if b := brokenIn(t.Items, depth-1); b != nil {
				return b
			}
		}
	}
	return nil
}

// Reduce is part of pickle.Host. An error of what cannot be made is told where it is used.
func (u *unpickler) Reduce(callable any, args *pickle.Tuple) (any, error) {
	if b := brokenIn(args.Items, 1); b != nil {
		return b, nil
	}
	v, err := u.reduce(callable, args)
	var e *Error
	if errors.As(err, &e) {
		return u.failed(e)
	}
	return v, err
}

// failed is fail, but for a file in which too much has failed.
func (u *unpickler) failed(e *Error) (any, error) {
	b := u.fail(e)
	if u.failures > mostFailures {
		return nil, u.first.err
	}
	return b, nil
}

// mostFailures is after how many values that cannot be made a file is not read on, to say where the first of them is.
const mostFailures = 100

// opaque is an object that nothing is known of.
func (u *unpickler) opaque(class string, args *pickle.Tuple) (any, error) {
	return &pickle.Object{Class: class, Call: true, Args: args}, u.budget.Take(256 + len(class))
}

func (u *unpickler) reduce(callable any, args *pickle.Tuple) (any, error) {
	if u.calls > 100 {
		return nil, loadError(UnpicklingError, "its calls are nested too deeply")
	}
	u.calls++
	defer func() { u.calls-- }()
	g, ok := callable.(global)
	if !ok {
		o, ok := callable.(*pickle.Object)
		if !ok {
			return nil, loadError(UnpicklingError, "the file calls %s", describe(callable))
		}
		return u.opaque(o.Class, &pickle.Tuple{Items: []any{o, args}}) // a call of what a call returns
	}
	in := args.Items
	arg := argumentsOf(in)
	bad := func() error { return loadError(UnpicklingError, "%s is called with the wrong arguments", g) }
	switch g {
	case "collections.OrderedDict", "collections.Counter", "builtins.dict":
		return u.dictOf(arg(0), bad)
	case "collections.defaultdict":
		return &pickle.Dict{}, nil // the first argument is a class, the rest follows as items
	case "builtins.set", "builtins.frozenset":
		if arg(0) == nil {
			return &pickle.Set{}, nil
		}
		if items, ok := itemsOf(arg(0)); ok {
			items, err := u.copied(items)
			return &pickle.Set{Items: items}, err
		}
		return nil, bad()
	case "builtins.complex":
		re, ok1 := arg(0).(float64)
		im, ok2 := arg(1).(float64)
		if ok1 && ok2 {
			return complex(re, im), nil
		}
		return nil, bad()
	case "_codecs.encode", "builtins.bytearray", "builtins.bytes":
		return u.bytesOf(in, arg, bad)
	case "builtins.getattr": // how protocols before 4 name what is within a class
		if of, ok := arg(0).(global); ok {
			if name, ok := textOf(arg(1)); ok && len(in) == 2 && len(of)+len(name) < 2000 {
				return of + "." + global(name), u.budget.Take(len(of) + len(name))
			}
		}
		return u.opaque(string(g), args)
	case "copyreg._reconstructor", "copyreg.__newobj__": // how protocols before 2 make objects: of a class, a base class and its value
		of, ok := arg(0).(global)
		if !ok {
			return nil, bad()
		}
		rest := &pickle.Tuple{Items: in[1:]}
		if g == "copyreg.__newobj__" {
			return u.reduce(of, rest)
		}
		if arg(1) == global("builtins.object") {
			rest = &pickle.Tuple{}
		}
		return u.opaque(string(of), rest)

	case "numpy.dtype", "numpy._core.multiarray.scalar", "numpy._core.multiarray._reconstruct", "numpy._core.numeric._frombuffer":
		return u.numpy(g, args)

	case "torch.Size":
		if dims, ok := itemsOf(arg(0)); ok {
			dims, err := u.copied(dims)
			return &pickle.Tuple{Items: dims}, err
		}
		if arg(0) == nil {
			return &pickle.Tuple{}, nil
		}
		return nil, bad()
	case "torch.device":
		name, ok := textOf(arg(0))
		if !ok || len(name) > 100 {
			return nil, bad()
		}
		if i, ok := arg(1).(int64); ok {
			name += ":" + fmt.Sprint(i)
		}
		return ParseDevice(name)
	case "torch.serialization._get_layout":
		name, _ := textOf(arg(0))
		for l := Strided; l <= Jagged; l++ {
			if l.String() == name {
				return l, nil
			}
		}
		return nil, bad()
	case "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3":
		return u.rebuild(g, arg)
	case "torch._utils._rebuild_sparse_tensor":
		return u.rebuildSparse(arg, bad)
	case "torch._utils._rebuild_qtensor":
		return u.rebuildQuantized(arg, bad)
	case "torch._utils._rebuild_meta_tensor_no_storage":
		return u.rebuildMeta(arg, bad)
	case "torch._utils._rebuild_device_tensor_from_cpu_tensor", "torch._utils._rebuild_device_tensor_from_numpy", "torch._utils._rebuild_xla_tensor":
		// Of a device without storages: data, dtype, device, whether it requires grad.
		t, ok1 := tensorOf(arg(0))
		of, _ := arg(1).(global)
		dtype, ok2 := of.dtype()
		requiresGrad, _ := arg(3).(bool)
		if !ok1 || !ok2 {
			return nil, bad()
		}
		if err := u.budget.Take(1024); err != nil {
			return nil, err
		}
		var made Tensor
		err := Try0(func() {
			if u.work -= t.Numel(); u.work < 0 {
				panic(tooMuchWork())
			}
			made = u.onDevice(t.Detach().To(dtype)).RequiresGrad_(requiresGrad)
		})
		return made, err
	case "torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state", "torch.nn.parameter.Parameter", "torch.autograd.variable.Variable":
		t, ok1 := tensorOf(arg(0))
		requiresGrad, ok2 := arg(1).(bool)
		if len(in) == 1 { // of before 0.4: what it requires follows
			requiresGrad, ok2 = false, true
		}
		if !ok1 || !ok2 {
			return nil, bad()
		}
		err := Try0(func() { t.RequiresGrad_(requiresGrad) })
		return t, err
	case "torch._tensor._rebuild_from_type_v2":
		// A tensor with attributes, or of a subclass: function, class, arguments, attributes.
		f, ok1 := arg(0).(global)
		class, ok2 := arg(1).(global)
		inner, ok3 := arg(2).(*pickle.Tuple)
		if !ok1 || !ok2 || !ok3 || f == g {
			return nil, bad()
		}
		if class == "torch.Tensor" || class == "torch.nn.parameter.Parameter" || class == "torch.nn.parameter.Buffer" {
			return u.reduce(f, inner)
		}
		if err := u.budget.Take(256 + len(class)); err != nil {
			return nil, err
		}
		o := &pickle.Object{Class: string(class), Call: true, Args: inner, State: arg(3)}
		if f != "torch._utils._rebuild_wrapper_subclass" {
			// The elements are known, though not how the subclass interprets them.
			made, err := u.reduce(f, inner)
			if err != nil {
				return nil, err
			}
			o.Args = &pickle.Tuple{Items: []any{made}}
		}
		return o, nil
	case "torch.Tensor":
		if len(in) == 0 {
			return &shell{}, u.budget.Take(256)
		}
	}
	if class, ok := strings.CutPrefix(string(g), "torch."); ok && len(in) == 0 {
		class = strings.TrimPrefix(class, "cuda.")
		if name, ok := strings.CutSuffix(class, "Tensor"); ok && storageTypes[name+"Storage"] != 0 {
			return &shell{}, u.budget.Take(256)
		}
	}
	return u.opaque(string(g), args)
}

// asText returns bytes as text if they are UTF-8.
func asText(b []byte) (string, bool) {
	s := string(b)
	return s, pickle.ValidText(s)
}

// textOf returns a string, also one that Python 2 has written.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		if len(v) > 1000 { // longer than any name, and every use would take another copy
			return "", false
		}
		return asText(v)
	}
	return "", false
}

// tensorOf returns what is a tensor, whatever the file makes it of.
func tensorOf(v any) (Tensor, bool) {
	switch v := v.(type) {
	case Tensor:
		return v, true
	case *shell:
		return v.tensor, v.tensor.T != nil
	case *npArray:
		return v.tensor, v.tensor.T != nil
	}
	return Tensor{}, false
}

func (u *unpickler) bytesOf(in []any, arg arguments, bad func() error) (any, error) {
	if b, ok := arg(0).([]byte); ok {
		return b, nil
	}
	s, ok := arg(0).(string)
	if ok && (arg(1) == "latin1" || arg(1) == "latin-1") {
		if err := u.budget.Take(len(s)); err != nil {
			return nil, err
		}
		b := make([]byte, 0, len(s))
		for _, r := range s {
			if r > 0xff {
				return nil, bad()
			}
			b = append(b, byte(r))
		}
		return b, nil
	}
	if ok && s == "" || len(in) == 0 {
		return []byte{}, nil
	}
	return nil, bad()
}

func itemsOf(v any) ([]any, bool) {
	switch v := v.(type) {
	case *pickle.Tuple:
		return v.Items, true
	case *pickle.List:
		return v.Items, true
	}
	return nil, false
}

// copied returns a copy of items: what is added to the one container must not show in the other.
func (u *unpickler) copied(items []any) ([]any, error) {
	if err := u.budget.Take(16 * len(items)); err != nil {
		return nil, err
	}
	return slices.Clone(items), nil
}

func (u *unpickler) dictOf(pairs any, bad func() error) (any, error) {
	d := &pickle.Dict{}
	switch pairs := pairs.(type) {
	case nil:
	case *pickle.Dict:
		return pairs.Copy(u.budget)
	case *pickle.List:
		for _, pair := range pairs.Items {
			items, _ := itemsOf(pair)
			if len(items) != 2 {
				return nil, bad()
			}
			if err := d.Set(items[0], items[1], u.budget); err != nil {
				return nil, err
			}
		}
	default:
		return nil, bad()
	}
	return d, nil
}

// rebuild makes a tensor: of a storage, an offset, sizes and strides; whether it requires grad; hooks,
// which are none; a dtype, where the storage has none; and which lazy operations are pending.
func (u *unpickler) rebuild(g global, arg arguments) (t Tensor, err error) {
	bad := func() error { return loadError(UnpicklingError, "%s is called with the wrong arguments", g) }
	// About what libtorch and Go keep of a tensor.
	if err := u.budget.Take(1024); err != nil {
		return t, err
	}
	s, offset, sizes, strides, ok := u.geometry(arg)
	if !ok {
		return t, bad()
	}
	dtype, pending := s.dtype, arg(6)
	if g == "torch._utils._rebuild_tensor_v3" {
		of, _ := arg(6).(global)
		if dtype, ok = of.dtype(); !ok || dtype.Size() == 0 {
			return t, bad()
		}
		if reversed := u.reversed(dtype); s.untyped && !s.meta && reversed > 1 && s.storage.Bytes() > 0 {
			if s.storage, err = u.load(s.key, s.storage.Bytes(), reversed); err != nil {
				return t, err
			}
		}
		pending = arg(7)
	}
	if dtype.IsQuantized() {
		return t, bad()
	}
	bits, _ := pending.(*pickle.Dict)
	if bits != nil {
		if err := u.budget.Take(16 * len(bits.Items)); err != nil { // to look through them
			return t, err
		}
	}
	err = Try0(func() {
		t = tensorOn(s.storage, dtype, offset, sizes, strides)
		if bits != nil {
			if on, _ := bits.Get("conj"); on == true {
				t = t.Conj().Detach()
			}
			if on, _ := bits.Get("neg"); on == true {
				t = Call("aten::_neg_view", "", t)[0].(Tensor).Detach()
			}
		}
		if requiresGrad, _ := arg(4).(bool); requiresGrad {
			t.RequiresGrad_()
		}
	})
	return t, err
}

// geometry returns the first four arguments of what makes a tensor of a storage. The offset is in all of the storage.
func (u *unpickler) geometry(arg arguments) (s typedStorage, offset int64, sizes, strides []int64, ok bool) {
	s, ok1 := arg(0).(typedStorage)
	offset, ok2 := arg(1).(int64)
	sizes, ok3 := dimsOf(arg(2))
	strides, ok4 := dimsOf(arg(3))
	ok = ok1 && ok2 && ok3 && ok4 && len(sizes) == len(strides) && offset >= 0 && offset <= math.MaxInt64-s.offset
	return s, offset + s.offset, sizes, strides, ok
}

// tooMuchWork is the error where a file has tensors made again and again of one storage.
func tooMuchWork() *Error {
	return loadError(UnpicklingError, "the file has more made of its storages than one of its length needs")
}

// maxDims is more dimensions than any operator takes.
const maxDims = 64

// dimsOf returns sizes or strides.
func dimsOf(v any) ([]int64, bool) {
	items, ok := itemsOf(v)
	if !ok || len(items) > maxDims {
		return nil, false
	}
	ns := make([]int64, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok {
			return nil, false
		}
		ns[i] = n
	}
	return ns, true
}

// rebuildSparse makes a sparse tensor of a layout, and a tuple of what it consists of.
func (u *unpickler) rebuildSparse(arg arguments, bad func() error) (t Tensor, err error) {
	layout, ok1 := arg(0).(Layout)
	parts, ok2 := arg(1).(*pickle.Tuple)
	if !ok1 || !ok2 {
		return t, bad()
	}
	if err := u.budget.Take(2048); err != nil {
		return t, err
	}
	of := argumentsOf(parts.Items)
	tensors := make([]Tensor, 2, 3)
	n := 2
	if layout != SparseCOO {
		tensors, n = append(tensors, Tensor{}), 3
	}
	cost := int64(0)
	for i := range tensors {
		var ok bool
		if tensors[i], ok = tensorOf(of(i)); !ok {
			return t, bad()
		}
		cost += tensors[i].Numel()
	}
	size, ok := dimsOf(of(n))
	if !ok {
		return t, bad()
	}
	if u.work -= cost; u.work < 0 { // every number is looked at
		return t, tooMuchWork()
	}
	err = Try0(func() {
		NoGrad(func() {
			if layout == SparseCOO {
				coalesced := of(3)
				if _, ok := coalesced.(bool); !ok {
					coalesced = nil
				}
				Call("aten::_validate_sparse_coo_tensor_args", "", tensors[0], tensors[1], size, coalesced, false)
				t = Call("aten::_sparse_coo_tensor_unsafe", "", tensors[0], tensors[1], size, Named("is_coalesced", coalesced))[0].(Tensor)
				return
			}
			Call("aten::_validate_sparse_compressed_tensor_args", "", tensors[0], tensors[1], tensors[2], size, layout, false)
			t = SparseCompressedTensor(tensors[0], tensors[1], tensors[2], size, TensorOptions{Layout: layout, DType: tensors[2].DType(), Device: tensors[2].Device()})
		})
	})
	return t, err
}

// rebuildQuantized makes a quantised tensor: what rebuild takes, and a tuple of how it is quantised in between.
func (u *unpickler) rebuildQuantized(arg arguments, bad func() error) (t Tensor, err error) {
	if err := u.budget.Take(2048); err != nil {
		return t, err
	}
	s, offset, sizes, strides, ok := u.geometry(arg)
	how, _ := itemsOf(arg(4))
	if !ok || len(how) == 0 || !s.dtype.IsQuantized() {
		return t, bad()
	}
	numbers, ok := map[DType]DType{QInt8: Int8, QUint8: Uint8, QInt32: Int32}[s.dtype]
	if !ok {
		return t, loadError(NotImplementedError, "a tensor has the dtype %s, of which several elements share a byte", s.dtype)
	}
	scheme, _ := how[0].(global)
	of := argumentsOf(how)
	err = Try0(func() {
		bits := tensorOn(s.storage, numbers, offset, sizes, strides) // panics where it reaches outside
		device := bits.Device()
		switch scheme {
		case "torch.per_tensor_affine":
			scale, ok1 := of(1).(float64)
			zero, ok2 := of(2).(int64)
			if !ok1 || !ok2 {
				panic(bad())
			}
			t = Call("aten::_empty_affine_quantized", "", []int64{0}, Named("dtype", s.dtype), Named("device", device), Named("scale", scale), Named("zero_point", zero))[0].(Tensor)
		case "torch.per_channel_affine", "torch.per_channel_affine_float_qparams":
			scales, ok1 := tensorOf(of(1))
			zeros, ok2 := tensorOf(of(2))
			axis, ok3 := of(3).(int64)
			if !ok1 || !ok2 || !ok3 || axis < 0 || axis >= int64(len(sizes)) || scales.Dim() != 1 || zeros.Dim() != 1 ||
				scales.Numel() != sizes[axis] || zeros.Numel() != sizes[axis] {
				panic(bad())
			}
			if u.work -= 2 * sizes[axis]; u.work < 0 { // which are copied
				panic(tooMuchWork())
			}
			empty := make([]int64, len(sizes))
			empty[axis] = sizes[axis]
			if len(sizes) == 1 { // whose only dimension is the axis: it takes memory for a moment
				empty = sizes
			}
			t = Call("aten::_empty_per_channel_affine_quantized", "", empty, Named("scales", scales), Named("zero_points", zeros), Named("axis", axis),
				Named("dtype", s.dtype), Named("device", device))[0].(Tensor)
		default:
			panic(loadError(NotImplementedError, "a tensor is quantised as %s, which cannot be read", describe(how[0])))
		}
		t.SetSourceStorageStorageOffset_(s.storage, offset, sizes, SetSourceStorageStorageOffsetOptions{Stride: strides})
	})
	return t, err
}

// rebuildMeta makes a tensor without memory: dtype, sizes, strides, whether it requires grad.
func (u *unpickler) rebuildMeta(arg arguments, bad func() error) (t Tensor, err error) {
	if err := u.budget.Take(1024); err != nil {
		return t, err
	}
	of, _ := arg(0).(global)
	dtype, ok1 := of.dtype()
	sizes, ok2 := dimsOf(arg(1))
	strides, ok3 := dimsOf(arg(2))
	if !ok1 || !ok2 || !ok3 || len(sizes) != len(strides) {
		return t, bad()
	}
	err = Try0(func() {
		t = EmptyStrided(sizes, strides, TensorOptions{DType: dtype, Device: Meta})
		if requiresGrad, _ := arg(3).(bool); requiresGrad {
			t.RequiresGrad_()
		}
	})
	return t, err
}
