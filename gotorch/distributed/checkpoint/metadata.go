package checkpoint

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/pickle"
)

// A checkpoint is a folder. Each rank has written a file with the tensors that it had, each as torch.save writes one, one
// after the other. What they are is in .metadata, a pickle of dataclasses of Python's: the names of all values, the parts of
// each tensor, and where in which file a part is. It is written last.

const metadataName = ".metadata"

const version = "1.0.0" // of the format

// metadata is what .metadata says.
type metadata struct {
	items []*item // in the file's order
	byKey map[string]*item
	root  *node // by their paths
}

// item is a value of a checkpoint: a tensor, or anything else that torch.save takes.
type item struct {
	Key    string // its path, with dots
	Path   []any  // string keys of dicts, and int64 places in lists
	Tensor bool
	DType  gotorch.DType
	Shape  []int64
	Parts  []part // of what is no tensor, one
}

// String says what it is, without its name.
func (it *item) String() string {
	if !it.Tensor {
		return "no tensor"
	}
	return fmt.Sprintf("a tensor of %v, %v", it.Shape, it.DType)
}

// part is what is in one place of a file.
type part struct {
	Offsets, Sizes []int64 // in the tensor
	File           string
	At, Length     int64
	Transforms     []string // what undoes what its bytes went through, in this order
	Rank           int      // whose it is, while it is saved
}

// same reports whether two parts are of the same elements.
func (p part) same(other part) bool {
	return slices.Equal(p.Offsets, other.Offsets) && slices.Equal(p.Sizes, other.Sizes)
}

// node is a place in the tree of values: an item, or a dict or list of nodes.
type node struct {
	item     *item
	children []*node // in order
	byName   map[any]*node
	name     any
}

func (n *node) child(name any) *node {
	if n == nil {
		return nil
	}
	return n.byName[name]
}

// at returns the node of a path below n, or nil.
func (n *node) at(path ...any) *node {
	for _, name := range path {
		n = n.child(name)
	}
	return n
}

func (n *node) add(it *item) error {
	for i, name := range it.Path {
		if n.item != nil {
			return fmt.Errorf("%q is a value, and below it is %q", n.item.Key, it.Key)
		}
		next := n.byName[name]
		if next == nil {
			next = &node{name: name, byName: map[any]*node{}}
			n.byName[name] = next
			n.children = append(n.children, next)
		}
		if n = next; i == len(it.Path)-1 {
			if n.item != nil || len(n.children) > 0 {
				return fmt.Errorf("%q is there twice", it.Key)
			}
			n.item = it
		}
	}
	return nil
}

// index fills what follows from items. The error says what does not fit together.
func (m *metadata) index() error {
	compared := 0
	m.byKey, m.root = map[string]*item{}, &node{byName: map[any]*node{}}
	for _, it := range m.items {
		if m.byKey[it.Key] != nil {
			return fmt.Errorf("%q is there twice", it.Key)
		}
		m.byKey[it.Key] = it
		if err := it.check(&compared); err != nil {
			return fmt.Errorf("%q: %w", it.Key, err)
		}
		if err := m.root.add(it); err != nil {
			return err
		}
	}
	return nil
}

const (
	// mostCompared bounds the pairs of parts of all tensors that are looked at: a second's work, and more than real jobs have.
	mostCompared = 1 << 26
	// mostDeep bounds how deep dicts and lists are in each other.
	mostDeep = 200
	// mostDims bounds a shape: no tensor has more.
	mostDims = 64
)

// check holds the parts of a tensor to be within it, and no element to be in two of them. compared counts pairs of parts.
func (it *item) check(compared *int) error {
	if len(it.Path) == 0 {
		return errors.New("it has no path")
	}
	if len(it.Path) > mostDeep {
		return fmt.Errorf("it is in %d dicts and lists, and may be in %d", len(it.Path), mostDeep)
	}
	if !it.Tensor {
		if len(it.Parts) != 1 {
			return fmt.Errorf("it is in %d places, and should be in one", len(it.Parts))
		}
		return nil
	}
	total, ok := numel(it.Shape)
	if !ok {
		return fmt.Errorf("a tensor cannot have the shape %v", it.Shape)
	}
	covered := int64(0)
	parts := slices.Clone(it.Parts)
	for _, p := range parts {
		if len(p.Offsets) != len(it.Shape) || len(p.Sizes) != len(it.Shape) {
			return fmt.Errorf("a part with the offsets %v and sizes %v is none of a tensor of %v", p.Offsets, p.Sizes, it.Shape)
		}
		for d, n := range it.Shape {
			if p.Offsets[d] < 0 || p.Sizes[d] < 0 || p.Offsets[d] > n || p.Sizes[d] > n-p.Offsets[d] {
				return fmt.Errorf("a part with the offsets %v and sizes %v is not within a tensor of %v", p.Offsets, p.Sizes, it.Shape)
			}
		}
		n, _ := numel(p.Sizes)
		covered += n // at most as often as there are parts, which are in memory
		if covered < 0 {
			return errors.New("its parts have more elements than there can be")
		}
	}
	if covered < total {
		return fmt.Errorf("its parts have %d elements, and a tensor of %v has %d", covered, it.Shape, total)
	}
	parts = slices.DeleteFunc(parts, func(p part) bool { n, _ := numel(p.Sizes); return n == 0 })
	if len(it.Shape) == 0 && len(parts) > 1 {
		return errors.New("it is one number, in several parts")
	}
	if len(it.Shape) > 0 {
		slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(a.Offsets[0], b.Offsets[0]) })
		for i, a := range parts {
			for _, b := range parts[i+1:] {
				if b.Offsets[0] >= a.Offsets[0]+a.Sizes[0] {
					break
				}
				if *compared++; *compared > mostCompared {
					return errors.New("it has too many parts beside each other")
				}
				if meet(a, b) {
					return fmt.Errorf("its parts at %v and %v have elements in common", a.Offsets, b.Offsets)
				}
			}
		}
	}
	return nil
}

// meet reports whether two parts have elements in common, where each has some.
func meet(a, b part) bool {
	for d := range a.Offsets {
		if a.Offsets[d] >= b.Offsets[d]+b.Sizes[d] || b.Offsets[d] >= a.Offsets[d]+a.Sizes[d] {
			return false
		}
	}
	return true
}

// overlap returns where two boxes have elements in common, and how many.
func overlap(at1, size1, at2, size2 []int64) (at, size []int64, n int64) {
	n = 1
	for d := range at1 {
		first := max(at1[d], at2[d])
		last := min(at1[d]+size1[d], at2[d]+size2[d])
		at, size = append(at, first), append(size, max(0, last-first))
		n *= size[d] // not more than either has
	}
	return at, size, n
}

// numel returns how many elements a tensor of a shape has, and whether there can be one.
func numel(shape []int64) (int64, bool) {
	n := int64(1)
	for _, size := range shape {
		if size < 0 {
			return 0, false
		}
		high, low := bits.Mul64(uint64(n), uint64(size))
		if high != 0 || int64(low) < 0 {
			return 0, false
		}
		n = int64(low)
	}
	return n, true
}

// Reading -------------------------------------------------------------------------------------------------

// readMetadata reads what a folder holds. It returns the file, too, which stays open, and a digest of it.
func readMetadata(op string, dir *os.Root) (m *metadata, f *os.File, digest string, err error) {
	f, data, err := readAll(dir, metadataName)
	if errors.Is(err, os.ErrNotExist) {
		if local, _ := filepath.Glob(filepath.Join(dir.Name(), "__*"+metadataName)); len(local) > 0 {
			return nil, nil, "", args.Errorf(op, gotorch.NotImplementedError, "%s has a %s of each rank: save it with use_collectives=True", dir.Name(), metadataName)
		}
		if other, _ := filepath.Glob(filepath.Join(dir.Name(), "*.safetensors")); len(other) > 0 {
			return nil, nil, "", args.Errorf(op, gotorch.NotImplementedError, "%s has safetensors files and no %s, as HuggingFaceStorageWriter writes: read them with gotorch.LoadTensors", dir.Name(), metadataName)
		}
	}
	if err != nil {
		return nil, nil, "", err
	}
	budget := pickle.NewBudget(len(data))
	v, err := pickle.Decode(data, &reader{budget: budget}, budget)
	if err == nil {
		if m, err = asMetadata(v, budget); err == nil {
			return m, f, digestOf(data), nil
		}
	}
	f.Close()
	var typed *gotorch.Error
	if errors.As(err, &typed) {
		return nil, nil, "", args.Errorf(op, typed.Kind, "%s: %s", filepath.Join(dir.Name(), metadataName), typed.Msg)
	}
	return nil, nil, "", args.Errorf(op, gotorch.UnpicklingError, "%s: %v", filepath.Join(dir.Name(), metadataName), err)
}

func digestOf(data []byte) string { return fmt.Sprintf("%x", sha256.Sum256(data)) }

// openRegular opens a file of a folder, and nothing that waits, or is outside.
func openRegular(dir *os.Root, name string) (*os.File, int64, error) {
	f, err := dir.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if of, is := errors.AsType[*os.PathError](err); is { // which has the name in the folder alone
			err = &os.PathError{Op: "open", Path: filepath.Join(dir.Name(), name), Err: of.Err}
		}
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &os.PathError{Op: "read", Path: filepath.Join(dir.Name(), name), Err: errors.New("not a regular file")}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// largestMetadata is more than the parts of ten million tensors take.
const largestMetadata = 4 << 30

func readAll(dir *os.Root, name string) (*os.File, []byte, error) {
	f, size, err := openRegular(dir, name)
	if err != nil {
		return nil, nil, err
	}
	if size > largestMetadata {
		err = &os.PathError{Op: "read", Path: f.Name(), Err: fmt.Errorf("it is of %d bytes, and at most %d are read", size, int64(largestMetadata))}
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, size))
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, data, nil
}

// class is a class of Python's, and object one of its objects.
type class string

type object struct {
	class class
	state any
}

const module = "torch.distributed.checkpoint."

// The classes that a checkpoint's metadata is made of, and functions that it calls.
const (
	metadataClass   class = module + "metadata.Metadata"
	tensorClass     class = module + "metadata.TensorStorageMetadata"
	bytesClass      class = module + "metadata.BytesStorageMetadata"
	chunkClass      class = module + "metadata.ChunkStorageMetadata"
	propertiesClass class = module + "metadata.TensorProperties"
	indexClass      class = module + "metadata.MetadataIndex"
	formatClass     class = module + "metadata._MEM_FORMAT_ENCODING"
	metaClass       class = module + "metadata.StorageMeta"
	storageClass    class = module + "filesystem._StorageInfo"
	sizeClass       class = "torch.Size"
	layoutFunction  class = "torch.serialization._get_layout"
)

var classes = []class{
	metadataClass, tensorClass, bytesClass, chunkClass, propertiesClass, indexClass, formatClass, metaClass, storageClass,
	sizeClass, layoutFunction, "collections.OrderedDict", "pathlib.Path", "pathlib.PosixPath", "pathlib.PurePosixPath",
	"pathlib.WindowsPath", "pathlib._local.PosixPath", "pathlib._local.WindowsPath",
}

// reader is a pickle.Host that knows these classes and no other.
type reader struct{ budget *pickle.Budget }

func (r *reader) Global(module, name string) (any, error) {
	full := class(module + "." + name)
	if slices.Contains(classes, full) {
		return full, nil
	}
	if module == "torch" {
		if d, err := gotorch.ParseDType(name); err == nil {
			return d, nil
		}
	}
	return nil, fmt.Errorf("the file asks for the Python object %s, which is not one of a checkpoint's", full)
}

func (r *reader) Reduce(callable any, arguments *pickle.Tuple) (any, error) {
	of, ok := callable.(class)
	if !ok {
		return nil, fmt.Errorf("the file calls %v, which is no function", callable)
	}
	if err := r.budget.Take(64); err != nil {
		return nil, err
	}
	switch of {
	case sizeClass:
		if len(arguments.Items) == 1 {
			switch of := arguments.Items[0].(type) {
			case *pickle.Tuple:
				return of, nil
			case *pickle.List:
				return &pickle.Tuple{Items: of.Items}, nil
			}
		}
		return nil, errors.New("a torch.Size is not made of a tuple")
	case layoutFunction, formatClass: // one word or number
		if len(arguments.Items) != 1 {
			return nil, fmt.Errorf("%s has one argument, and not %d", of, len(arguments.Items))
		}
		return arguments.Items[0], nil
	case "collections.OrderedDict":
		return &pickle.Dict{}, nil
	}
	return &object{class: of}, nil
}

func (r *reader) Build(to, state any) error {
	o, ok := to.(*object)
	if !ok {
		return fmt.Errorf("the file sets the state of %T, which has none", to)
	}
	o.state = state
	return nil
}

func (r *reader) Persistent(any) (any, error) {
	return nil, errors.New("the file refers to something outside of it")
}

// field returns a field of an object of a class.
func field[T any](v any, of class, name string) (value T, err error) {
	o, ok := v.(*object)
	if !ok || o.class != of {
		return value, fmt.Errorf("there is %s, where a %s should be", described(v), of)
	}
	state, _ := o.state.(*pickle.Dict)
	if state == nil {
		return value, fmt.Errorf("a %s has no fields", of)
	}
	found, _ := state.Get(name)
	if value, ok = found.(T); !ok {
		return value, fmt.Errorf("the field %s of a %s is %s", name, of, described(found))
	}
	return value, nil
}

func described(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case *object:
		return "a " + string(v.class)
	case *pickle.Dict:
		return "a dict"
	case *pickle.List, *pickle.Tuple, *pickle.Set:
		return "a list"
	}
	return fmt.Sprintf("a %T", v)
}

func sizesOf(v any, of class, name string) ([]int64, error) {
	t, err := field[*pickle.Tuple](v, of, name)
	if err != nil {
		return nil, err
	}
	if len(t.Items) > mostDims {
		return nil, fmt.Errorf("%s of a %s has %d dimensions, and may have %d", name, of, len(t.Items), mostDims)
	}
	sizes := make([]int64, len(t.Items))
	for i, n := range t.Items {
		size, ok := n.(int64)
		if !ok {
			return nil, fmt.Errorf("%s of a %s has %s in it", name, of, described(n))
		}
		sizes[i] = size
	}
	return sizes, nil
}

// place is by what a part is found.
type place struct{ key, offsets string }

func placeOf(key string, offsets []int64) place { return place{key, fmt.Sprint(offsets)} }

// asMetadata takes apart what was read. A pickle may name one thing in many places, in two bytes each; what is looked at again
// for each of them is paid for from the budget.
func asMetadata(v any, budget *pickle.Budget) (*metadata, error) {
	values, err := field[*pickle.Dict](v, metadataClass, "state_dict_metadata")
	if err != nil {
		return nil, err
	}
	storage, err := field[*pickle.Dict](v, metadataClass, "storage_data")
	if err != nil {
		return nil, err
	}
	places := make(map[place]part, len(storage.Items))
	for _, s := range storage.Items {
		where, p, err := asPart(s.Key, s.Value, budget)
		if err != nil {
			return nil, err
		}
		places[where] = p
	}
	state, _ := v.(*object).state.(*pickle.Dict)
	planner, _ := state.Get("planner_data")
	paths := map[any]any{}
	if of, is := planner.(*pickle.Dict); is {
		for _, pair := range of.Items {
			paths[pair.Key] = pair.Value
		}
	}
	m := &metadata{}
	for _, entry := range values.Items {
		key, ok := entry.Key.(string)
		if !ok {
			return nil, fmt.Errorf("the name of a value is %s", described(entry.Key))
		}
		it := &item{Key: key, Path: []any{key}}
		if path, ok := paths[key]; ok {
			if it.Path, err = asPath(path, budget); err != nil {
				return nil, fmt.Errorf("%q: %w", key, err)
			}
		}
		if err := it.describe(entry.Value, places, budget); err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		m.items = append(m.items, it)
	}
	return m, m.index()
}

func asPath(v any, budget *pickle.Budget) ([]any, error) {
	t, ok := v.(*pickle.Tuple)
	if !ok {
		return nil, fmt.Errorf("its path is %s", described(v))
	}
	for _, name := range t.Items {
		cost := 64
		switch name := name.(type) {
		case string:
			cost += len(name)
		case int64:
		default:
			return nil, fmt.Errorf("its path has %s in it", described(name))
		}
		if err := budget.Take(cost); err != nil {
			return nil, err
		}
	}
	return t.Items, nil
}

// asPart reads a pair of storage_data: what it is, and where.
func asPart(index, info any, budget *pickle.Budget) (where place, p part, err error) {
	key, err := field[string](index, indexClass, "fqn")
	if err == nil {
		err = budget.Take(64 + len(key))
	}
	if err != nil {
		return where, p, err
	}
	var offsets []int64 // None of what is no tensor
	if found, _ := index.(*object).state.(*pickle.Dict).Get("offset"); found != nil {
		if offsets, err = sizesOf(index, indexClass, "offset"); err != nil {
			return where, p, err
		}
	}
	if p.File, err = field[string](info, storageClass, "relative_path"); err != nil {
		return where, p, err
	}
	if p.At, err = field[int64](info, storageClass, "offset"); err != nil {
		return where, p, err
	}
	if p.Length, err = field[int64](info, storageClass, "length"); err != nil {
		return where, p, err
	}
	transforms, _ := info.(*object).state.(*pickle.Dict).Get("transform_descriptors")
	var list []any
	switch of := transforms.(type) {
	case nil:
	case *pickle.List:
		list = of.Items
	case *pickle.Tuple:
		list = of.Items
	default:
		return where, p, fmt.Errorf("transform_descriptors of %q is %s", key, described(transforms))
	}
	for _, v := range list {
		name, is := v.(string)
		if !is || len(p.Transforms) == mostTransforms {
			return where, p, fmt.Errorf("transform_descriptors of %q has %s in it, or more than %d", key, described(v), mostTransforms)
		}
		p.Transforms = append(p.Transforms, name)
	}
	return placeOf(key, offsets), p, nil
}

// describe fills in what the metadata of a value says.
func (it *item) describe(v any, places map[place]part, budget *pickle.Budget) error {
	if o, ok := v.(*object); ok && o.class == bytesClass {
		p, found := places[placeOf(it.Key, nil)]
		if !found {
			return errors.New("no file has it")
		}
		it.Parts = []part{p}
		return nil
	}
	properties, err := field[*object](v, tensorClass, "properties")
	if err != nil {
		return err
	}
	of, _ := properties.state.(*pickle.Tuple)
	if properties.class != propertiesClass || of == nil || len(of.Items) == 0 {
		return errors.New("its properties are none of a tensor")
	}
	var ok bool
	if it.DType, ok = of.Items[0].(gotorch.DType); !ok {
		return fmt.Errorf("its dtype is %s", described(of.Items[0]))
	}
	it.Tensor = true
	if it.Shape, err = sizesOf(v, tensorClass, "size"); err != nil {
		return err
	}
	chunks, err := field[*pickle.List](v, tensorClass, "chunks")
	if err != nil {
		return err
	}
	for _, c := range chunks.Items {
		if err := budget.Take(256); err != nil {
			return err
		}
		offsets, err := sizesOf(c, chunkClass, "offsets")
		if err != nil {
			return err
		}
		sizes, err := sizesOf(c, chunkClass, "sizes")
		if err != nil {
			return err
		}
		if n, ok := numel(sizes); ok && n == 0 && !slices.Contains(it.Shape, 0) {
			continue // of a rank that has none of it
		}
		p, found := places[placeOf(it.Key, offsets)]
		if !found {
			return fmt.Errorf("no file has its part at %v", offsets)
		}
		p.Offsets, p.Sizes = offsets, sizes
		it.Parts = append(it.Parts, p)
	}
	return nil
}

// Writing -------------------------------------------------------------------------------------------------

// encode returns the bytes of .metadata. They are no others' bytes, so that ranks notice when they have not opened the same.
func (m *metadata) encode() []byte {
	e := pickle.NewEncoder()
	text := func(s string) {
		e.String(s) // below 4 GB: it is a name
	}
	begin := func(of class) {
		at := strings.LastIndexByte(string(of), '.')
		e.Global(string(of[:at]), string(of[at+1:]))
		e.New()
		e.Dict()
	}
	end := func() {
		e.SetAll()
		e.Build()
	}
	sizes := func(of []int64) {
		e.Global("torch", "Size")
		e.Mark()
		e.Mark()
		for _, n := range of {
			e.Int(n)
		}
		e.Tuple()
		e.Tuple()
		e.Call()
	}
	begin(metadataClass)
	text("state_dict_metadata")
	e.Dict()
	for _, it := range m.items {
		text(it.Key)
		if !it.Tensor {
			begin(bytesClass)
			end()
			continue
		}
		begin(tensorClass)
		text("properties")
		e.Global(module+"metadata", "TensorProperties")
		e.New()
		e.Mark()
		e.Global("torch", it.DType.Name())
		e.Global("torch.serialization", "_get_layout")
		e.Mark()
		text("torch.strided")
		e.Tuple()
		e.Call()
		e.Bool(false) // requires_grad
		e.Global(module+"metadata", "_MEM_FORMAT_ENCODING")
		e.Mark()
		e.Int(0) // contiguous
		e.Tuple()
		e.Call()
		e.Bool(false) // pin_memory; versions before 2.15 have no sixth value
		e.Tuple()
		e.Build()
		text("size")
		sizes(it.Shape)
		text("chunks")
		e.List()
		for _, p := range it.Parts {
			begin(chunkClass)
			text("offsets")
			sizes(p.Offsets)
			text("sizes")
			sizes(p.Sizes)
			end()
		}
		e.AppendAll()
		end()
	}
	e.SetAll()
	text("planner_data")
	e.Dict()
	for _, it := range m.items {
		text(it.Key)
		e.Mark()
		for _, name := range it.Path {
			switch name := name.(type) {
			case string:
				text(name)
			case int64:
				e.Int(name)
			}
		}
		e.Tuple()
	}
	e.SetAll()
	text("storage_data")
	e.Dict()
	for _, it := range m.items {
		for i, p := range it.Parts {
			begin(indexClass)
			text("fqn")
			text(it.Key)
			text("index")
			if it.Tensor {
				e.Int(int64(i))
				text("offset")
				sizes(p.Offsets)
			} else {
				e.None()
			}
			end()
			begin(storageClass)
			text("relative_path")
			text(p.File)
			text("offset")
			e.Int(p.At)
			text("length")
			e.Int(p.Length)
			end()
		}
	}
	e.SetAll()
	text("storage_meta")
	begin(metaClass)
	text("checkpoint_id")
	e.None()
	text("save_id")
	text(rand.Text())
	text("load_id")
	e.None()
	text("modules")
	e.List()
	e.AppendAll()
	end()
	text("version")
	text(version)
	end()
	return e.Finish()
}

func joined(path []any) string {
	names := make([]string, len(path))
	for i, name := range path {
		switch name := name.(type) {
		case string:
			names[i] = name
		case int64:
			names[i] = strconv.FormatInt(name, 10)
		}
	}
	return strings.Join(names, ".")
}
