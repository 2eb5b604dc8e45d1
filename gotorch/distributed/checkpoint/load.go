package checkpoint

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

const loadOp = "checkpoint.Load"

// LoadOptions are the arguments of [Load] that have defaults.
type LoadOptions struct {
	// Group is the ranks that load together, all of which must call Load; default: this process alone.
	Group *distributed.Group
}

// Load puts a checkpoint's values into state: into the tensors, shards, modules and optimisers that are there, and into what
// pointers point to, which is converted where no number becomes another one. Values of the checkpoint that state does not name
// are left alone. A rank reads what it needs, however many ranks have saved.
//
// Where something does not fit, or a file is damaged, all ranks return an error, and nothing is changed: until everything was
// read it is in memory beside what is there. Optimisers and other states then get theirs; where one refuses it, the others get
// back what they had. Only a hook or the extra state of a module that fails, after all that, leaves others loaded.
//
// The kind is KeyError for a name that the checkpoint does not have, ValueError for shapes and dtypes that differ (floating point
// tensors convert among themselves) and for tensors of which elements share memory, as those that Expand makes, RuntimeError for
// tensors of inference mode and for a checkpoint that is replaced while it is read, UnpicklingError for files that are none of a
// checkpoint's, NotImplementedError for sparse tensors and for files that an extension has changed that is not PyTorch's zstd.
// Files are data: nothing in them is run.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_loader.load
func Load(dir string, state State, opts ...LoadOptions) error {
	g := args.Option(opts).Group
	var c *checkpoint
	var which string
	err := tried(func() (err error) {
		if c, err = open(loadOp, dir); err == nil {
			which = c.digest
		}
		return err
	})
	if c != nil {
		defer c.close()
	}
	// None reads before all have opened it: where it is replaced meanwhile, each notices below.
	all, err := tell(loadOp, g, err, which)
	if err != nil {
		return err
	}
	for rank, other := range all {
		if other != all[0] {
			return args.Errorf(loadOp, gotorch.RuntimeError, "%s is another checkpoint for rank %d than for rank 0: it was replaced meanwhile, or is not one folder for all", dir, rank)
		}
	}
	if err := agree(loadOp, g, tried(func() error {
		err := c.each(nil, sorted(state))
		if changed := c.unchanged(); changed != nil {
			return changed
		}
		return err
	})); err != nil {
		return err
	}
	// What may refuse what it gets comes first, so that what others have taken can be put back.
	c.given = nil
	var back []func() error
	undo := func() (err error) {
		for _, restore := range slices.Backward(back) {
			err = errors.Join(err, tried(restore))
		}
		back = nil
		return err
	}
	defer func() { _ = undo() }() // where a state panics, or ends the goroutine
	if err := agree(loadOp, g, tried(func() error {
		for _, ch := range c.states {
			restore := ch.keep()
			if err := ch.set(); err != nil {
				return err
			}
			back = append(back, restore)
		}
		return nil
	})); err != nil {
		if failed := undo(); failed != nil {
			return errors.Join(err, failed)
		}
		return err
	}
	back = nil
	return agree(loadOp, g, tried(func() error {
		for _, set := range append(c.modules, c.places...) {
			if err := set(); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Read returns all that a checkpoint holds, with whole tensors in the CPU's memory: as torch.load returns what
// torch.distributed.checkpoint.format_utils.dcp_to_torch_save makes of it. Errors are those of [Load].
func Read(dir string) (dict gotorch.Dict, err error) {
	err = tried(func() error {
		c, err := open("checkpoint.Read", dir)
		if err != nil {
			return err
		}
		defer c.close()
		v, err := c.value(c.root)
		if changed := c.unchanged(); changed != nil {
			return changed
		}
		if err == nil {
			dict, c.made = v.(gotorch.Dict), nil
		}
		return err
	})
	return dict, err
}

// checkpoint is a folder that is read, and what was read for a state.
type checkpoint struct {
	*metadata
	op    string
	dir   *os.Root
	files map[string]file

	file   *os.File // .metadata, which stays open: so no other one that comes after it can be taken for it
	digest string   // of what is in it

	// Tensors that were read: those that are copied from are closed in the end, and those that something else gets to keep where
	// it does not come to that.
	made, given []gotorch.Tensor

	states          []change
	modules, places []func() error // held to take what they get
}

// change sets something that may refuse it. keep returns what puts back what was there.
type change struct {
	set  func() error
	keep func() (back func() error)
}

type file struct {
	*os.File
	size int64
}

func open(op, dir string) (*checkpoint, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	c := &checkpoint{op: op, dir: root, files: map[string]file{}}
	if c.metadata, c.file, c.digest, err = readMetadata(op, root); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *checkpoint) close() {
	for _, t := range append(c.made, c.given...) {
		t.Close()
	}
	for _, f := range c.files {
		f.Close()
	}
	if c.file != nil {
		c.file.Close()
	}
	c.dir.Close()
}

// unchanged is an error where the folder has another checkpoint by now, whose files may have the names of those that were read.
func (c *checkpoint) unchanged() error {
	was, err := c.file.Stat()
	if err != nil {
		return err
	}
	if is, err := c.dir.Stat(metadataName); err == nil && os.SameFile(was, is) {
		return nil
	}
	// Or the file system numbers its files anew.
	f, data, err := readAll(c.dir, metadataName)
	if err == nil {
		f.Close()
	}
	if err != nil || digestOf(data) != c.digest {
		return args.Errorf(c.op, gotorch.RuntimeError, "the checkpoint in %s was replaced or removed while it was read: read it again", c.dir.Name())
	}
	return nil
}

// give returns the tensors that were made since there were n to what keeps them.
func (c *checkpoint) give(n int) {
	c.given = append(c.given, c.made[n:]...)
	c.made = c.made[:n:n]
}

// mostOpen is how many files are open at once.
const mostOpen = 64

// load reads a part, which is a file of torch.save's within a file.
func (c *checkpoint) load(it *item, p part) (any, error) {
	f, known := c.files[p.File]
	if !known {
		if len(c.files) == mostOpen {
			for name, f := range c.files {
				f.Close()
				delete(c.files, name)
			}
		}
		opened, size, err := openRegular(c.dir, p.File)
		if err != nil {
			return nil, fmt.Errorf("%s: %q: %w", c.op, it.Key, err)
		}
		f = file{opened, size}
		c.files[p.File] = f
	}
	if p.At < 0 || p.Length < 0 || p.Length > math.MaxInt64-p.At || p.At+p.Length > f.size {
		return nil, args.ValueError(c.op, "%q is at %d to %d+%d in %s, which has %d bytes: it is truncated", it.Key, p.At, p.At, p.Length, filepath.Join(c.dir.Name(), p.File), f.size)
	}
	content, err := untransformed(c.op, it, p, io.NewSectionReader(f, p.At, p.Length))
	if err != nil {
		return nil, err
	}
	v, err := gotorch.Decode(content, content.Size())
	if err != nil {
		return nil, about(c.op, it.Key, err)
	}
	return v, nil
}

// box reads a box of a tensor, as a new tensor in the CPU's memory.
func (c *checkpoint) box(it *item, at, size []int64) (gotorch.Tensor, error) {
	// What the files have is known before there is memory for it: a part that is there is as large as it says.
	var result gotorch.Tensor
	var failed error
	copied := int64(0)
	wanted, _ := numel(size)
	for _, p := range it.Parts {
		from, n, elements := overlap(at, size, p.Offsets, p.Sizes)
		if elements == 0 {
			continue
		}
		gotorch.Scope0(func(s *gotorch.ScopeHandle) {
			v, err := c.load(it, p)
			if err != nil {
				failed = err
				return
			}
			t, is := v.(gotorch.Tensor)
			if !is || t.T == nil || t.DType() != it.DType || !slices.Equal(t.Shape(), p.Sizes) || t.Layout() != gotorch.Strided {
				failed = args.ValueError(c.op, "%q is %s, and %s has %s where its part of %v is to be", it.Key, it, p.File, kindOf(v), p.Sizes)
				return
			}
			if t.StorageBytes() < t.Numel()*int64(it.DType.Size()) { // nobody writes it so, and it would take more memory than there are bytes
				failed = args.ValueError(c.op, "%q: a part of %v has %d bytes in %s: it is not as large as it says", it.Key, p.Sizes, t.StorageBytes(), p.File)
				return
			}
			gotorch.NoGrad(func() {
				if result.T == nil {
					if elements == wanted && t.Numel() == wanted {
						result, copied = t.Detach(), wanted
						s.Keep(result)
						return
					}
					result = gotorch.Empty(size, gotorch.TensorOptions{DType: it.DType})
					s.Keep(result)
				}
				to, part := result, t
				for d := range at {
					to = to.Narrow(int64(d), from[d]-at[d], n[d])
					part = part.Narrow(int64(d), from[d]-p.Offsets[d], n[d])
				}
				to.Copy_(part)
				copied += elements
			})
		})
		if failed != nil {
			if result.T != nil {
				result.Close()
			}
			return gotorch.Tensor{}, failed
		}
	}
	if result.T == nil && wanted == 0 {
		result = gotorch.Empty(size, gotorch.TensorOptions{DType: it.DType})
	}
	if copied != wanted { // held by check
		return gotorch.Tensor{}, args.ValueError(c.op, "%q has %d of the %d elements of %v at %v", it.Key, copied, wanted, size, at)
	}
	c.made = append(c.made, result)
	return result, nil
}

func kindOf(v any) string {
	if t, is := v.(gotorch.Tensor); is && t.T != nil {
		return fmt.Sprintf("a tensor of %v, %v,", t.Shape(), t.DType())
	}
	return fmt.Sprintf("a %T", v)
}

// whole reads a tensor.
func (c *checkpoint) whole(it *item) (gotorch.Tensor, error) {
	return c.box(it, make([]int64, len(it.Shape)), it.Shape)
}

// value reads what is at a node, and below it.
func (c *checkpoint) value(n *node) (any, error) {
	switch {
	case n.item != nil && n.item.Tensor:
		return c.whole(n.item)
	case n.item != nil:
		var v any
		var err error
		gotorch.Scope0(func(s *gotorch.ScopeHandle) { // for what else a tensor is made of
			v, err = c.load(n.item, n.item.Parts[0])
			made := tensorsIn(v)
			s.Keep(made...)
			c.made = append(c.made, made...)
		})
		return v, err
	}
	dict := make(gotorch.Dict, 0, len(n.children))
	list := make([]any, len(n.children))
	isList := len(n.children) > 0
	for _, child := range n.children {
		v, err := c.value(child)
		if err != nil {
			return nil, err
		}
		dict = append(dict, gotorch.DictItem{Key: child.name, Value: v})
		if at, is := child.name.(int64); is && at >= 0 && at < int64(len(list)) {
			list[at] = v
		} else {
			isList = false
		}
	}
	if isList { // no name comes twice, so all places are filled
		return list, nil
	}
	return dict, nil
}

// tensorsIn returns the tensors in a value that was decoded.
func tensorsIn(value any) (tensors []gotorch.Tensor) {
	switch v := value.(type) {
	case gotorch.Tensor:
		return []gotorch.Tensor{v}
	case gotorch.Dict:
		for _, pair := range v {
			tensors = append(tensors, tensorsIn(pair.Value)...)
		}
	case []any:
		for _, v := range v {
			tensors = append(tensors, tensorsIn(v)...)
		}
	case gotorch.Tuple:
		return tensorsIn([]any(v))
	}
	return tensors
}

// find returns what is at a path, or an error that says that it is not there.
func (c *checkpoint) find(path []any) (*node, error) {
	if n := c.root.at(path...); n != nil {
		return n, nil
	}
	// Checkpoints without paths have names alone.
	if it := c.byKey[joined(path)]; it != nil {
		return &node{item: it}, nil
	}
	return nil, args.Errorf(c.op, gotorch.KeyError, "there is no %q in %s%s", joined(path), c.dir.Name(), c.near(path))
}

// near lists what is where a path leads to.
func (c *checkpoint) near(path []any) string {
	n := c.root
	at := 0
	for at < len(path) && n.child(path[at]) != nil {
		n = n.child(path[at])
		at++
	}
	const most = 10
	text := ""
	for i, child := range n.children {
		if i == most {
			text += ", ..."
			break
		}
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%v", child.name)
	}
	if text == "" {
		return ""
	}
	if at == 0 {
		return ": it has " + text
	}
	return fmt.Sprintf(": %q has %s", joined(path[:at]), text)
}

// tensor finds a tensor of a shape.
func (c *checkpoint) tensor(path []any, shape []int64) (*item, error) {
	n, err := c.find(path)
	if err != nil {
		return nil, err
	}
	if n.item == nil || !n.item.Tensor {
		return nil, args.ValueError(c.op, "%q is no tensor in %s", joined(path), c.dir.Name())
	}
	if !slices.Equal(n.item.Shape, shape) {
		return nil, args.ValueError(c.op, "%q is of shape %v in %s, and should be of %v", joined(path), n.item.Shape, c.dir.Name(), shape)
	}
	return n.item, nil
}

// part reads what goes into t, which lies at offsets of a tensor of a shape.
func (c *checkpoint) part(path []any, t gotorch.Tensor, shape, offsets []int64) (gotorch.Tensor, error) {
	it, err := c.tensor(path, shape)
	if err != nil {
		return gotorch.Tensor{}, err
	}
	if it.DType != t.DType() && !(it.DType.IsFloatingPoint() && t.DType().IsFloatingPoint()) {
		return gotorch.Tensor{}, args.ValueError(c.op, "%q is of %v in %s, and should be of %v", it.Key, it.DType, c.dir.Name(), t.DType())
	}
	size := t.Shape()
	if len(offsets) != len(shape) || len(size) != len(shape) {
		return gotorch.Tensor{}, args.ValueError(c.op, "%q: %v at %v is no part of a tensor of %v", it.Key, size, offsets, shape)
	}
	for d := range shape {
		if offsets[d] < 0 || offsets[d] > shape[d] || size[d] > shape[d]-offsets[d] {
			return gotorch.Tensor{}, args.ValueError(c.op, "%q: %v at %v is no part of a tensor of %v", it.Key, size, offsets, shape)
		}
	}
	if err := c.writable(it.Key, t); err != nil {
		return gotorch.Tensor{}, err
	}
	return c.box(it, offsets, size)
}

// writable is an error for a tensor that no values can be copied into.
func (c *checkpoint) writable(key string, t gotorch.Tensor) error {
	switch {
	case t.Layout() != gotorch.Strided || t.DType().IsQuantized():
		return args.Errorf(c.op, gotorch.NotImplementedError, "%q goes into a tensor that is sparse or quantised, and only others can be loaded", key)
	case t.Device().Type() == gotorch.Meta.Type():
		return args.ValueError(c.op, "%q goes into a tensor on the meta device, which has no memory", key)
	case t.IsInference() && !gotorch.InferenceModeEnabled():
		return args.Errorf(c.op, gotorch.RuntimeError, "%q goes into a tensor that was made in inference mode: load it within InferenceMode, too", key)
	}
	last := int64(0) // of the places in memory that it has
	strides := t.Strides()
	for d, n := range t.Shape() {
		last += (n - 1) * strides[d]
	}
	if t.Numel() > 0 && t.Numel() > last+1 {
		return args.ValueError(c.op, "%q goes into a tensor of which several elements are at one place in memory, such as Expand makes: load into a Clone of it", key)
	}
	return nil
}

// into reads what goes into a value.
func (c *checkpoint) into(path []any, value any) error {
	if len(path) > mostDeep {
		return tooDeep(c.op, path)
	}
	switch v := value.(type) {
	case gotorch.Tensor:
		if v.T == nil {
			return args.ValueError(c.op, "%q is a nil tensor, and should have the shape of what is loaded", joined(path))
		}
		return c.copied(path, v, v.Shape(), make([]int64, v.Dim()))
	case distributed.Shard:
		if v.Local.T == nil {
			return args.ValueError(c.op, "%q is a shard without a tensor", joined(path))
		}
		return c.copied(path, v.Local, v.Shape, v.Offsets)
	case *OptimizerState:
		return c.optimizer(path, v)
	case nn.Modular:
		m, like := stateOfModule(v)
		return c.module(path, m, like)
	case stateful:
		return c.stateful(path, v)
	}
	if pairs, is := pairsOf(value); is {
		return c.each(path, pairs)
	}
	if list, is := listOf(value); is {
		pairs := make(gotorch.Dict, len(list))
		for i, v := range list {
			pairs[i] = gotorch.DictItem{Key: int64(i), Value: v}
		}
		return c.each(path, pairs)
	}
	to := reflect.ValueOf(value)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return args.TypeError(c.op, "%q is a %T, into which nothing can be loaded: it must be a tensor, a module, an optimiser or a pointer", joined(path), value)
	}
	n, err := c.find(path)
	if err != nil {
		return err
	}
	before := len(c.made)
	read, err := c.value(n)
	if err != nil {
		return err
	}
	c.give(before)
	converted := reflect.New(to.Type().Elem())
	if err := gotorch.Assign(converted.Interface(), read, "the value"); err != nil {
		return about(c.op, joined(path), err)
	}
	c.places = append(c.places, func() error { to.Elem().Set(converted.Elem()); return nil })
	return nil
}

// each reads what goes into the values of a dict, or of a list, whose keys are int64.
func (c *checkpoint) each(path []any, pairs gotorch.Dict) error {
	for _, pair := range pairs {
		key := pair.Key
		if _, is := key.(int64); !is {
			key = nameOf(key)
		}
		if err := c.into(append(path[:len(path):len(path)], key), pair.Value); err != nil {
			return err
		}
	}
	return nil
}

// stateful reads the state of what has one.
func (c *checkpoint) stateful(path []any, v stateful) error {
	n, err := c.find(path)
	if err != nil {
		return err
	}
	before := len(c.made)
	read, err := c.value(n)
	if err != nil {
		return err
	}
	dict, is := read.(gotorch.Dict)
	if !is {
		return args.ValueError(c.op, "%q is a %T in %s, and should be a dict for a %T", joined(path), read, c.dir.Name(), v)
	}
	dict = withoutGaps(dict, stateOf(v))
	if _, is := v.(optim.Optimizer); is { // which copies
		dict = numbered(dict)
	} else {
		c.give(before)
	}
	c.sets(path, v, dict)
	return nil
}

// sets has what has a state get one.
func (c *checkpoint) sets(path []any, v stateful, dict gotorch.Dict) {
	c.states = append(c.states, change{
		set: func() error {
			if err := v.LoadStateDict(dict); err != nil {
				return about(c.op, joined(path), err)
			}
			return nil
		},
		keep: func() func() error {
			of := v
			if o, is := v.(*OptimizerState); is {
				of = o.opt
			}
			was := stateOf(of)
			return func() error { return of.LoadStateDict(was) }
		},
	})
}

// copied reads what goes into t.
func (c *checkpoint) copied(path []any, t gotorch.Tensor, shape, offsets []int64) error {
	read, err := c.part(path, t, shape, offsets)
	if err != nil {
		return err
	}
	c.places = append(c.places, func() error {
		gotorch.NoGrad(func() { t.Copy_(read) })
		read.Close()
		return nil
	})
	return nil
}

// module reads a module's state, of which like has the shapes.
func (c *checkpoint) module(path []any, m nn.Modular, like gotorch.Dict) error {
	dict := nn.StateDict{}
	for _, pair := range like {
		name := pair.Key.(string)
		at := append(path[:len(path):len(path)], name)
		var err error
		switch v := pair.Value.(type) {
		case distributed.Shard:
			dict[name], err = c.part(at, v.Local, v.Shape, v.Offsets)
		case gotorch.Tensor:
			if v.T == nil {
				continue
			}
			dict[name], err = c.part(at, v, v.Shape(), make([]int64, v.Dim()))
		}
		if err != nil {
			return err
		}
	}
	c.modules = append(c.modules, func() error {
		err := m.LoadStateDict(dict)
		for _, t := range dict {
			t.Close()
		}
		return err
	})
	return nil
}
