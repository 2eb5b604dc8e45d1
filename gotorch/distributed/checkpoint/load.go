package checkpoint

import (
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
	"gotorch.dev/gotorch/internal/door"
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
// read it is in memory beside what is there. The kind is KeyError for a name that the checkpoint does not have, ValueError for
// shapes and dtypes that differ (floating point tensors convert among themselves), UnpicklingError for files that are none of a
// checkpoint's, NotImplementedError for compressed ones; *nn.StateDictError is a module's. Files are data: nothing in them is
// run.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict_loader.load
func Load(dir string, state State, opts ...LoadOptions) error {
	g := args.Option(opts).Group
	var commits []func() error
	err := agree(loadOp, g, tried(func() error {
		c, err := open(loadOp, dir)
		if err != nil {
			return err
		}
		defer c.close()
		for _, pair := range sorted(state) {
			commit, err := c.into([]any{pair.Key}, pair.Value)
			if err != nil {
				return err
			}
			commits = append(commits, commit)
		}
		return nil
	}))
	if err != nil {
		return err
	}
	return agree(loadOp, g, tried(func() error {
		for _, commit := range commits {
			if err := commit(); err != nil {
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
		dict, _ = v.(gotorch.Dict)
		return err
	})
	return dict, err
}

// checkpoint is a folder that is read.
type checkpoint struct {
	*metadata
	op    string
	dir   *os.Root
	files map[string]file
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
	m, err := readMetadata(op, root)
	if err != nil {
		root.Close()
		return nil, err
	}
	return &checkpoint{metadata: m, op: op, dir: root, files: map[string]file{}}, nil
}

func (c *checkpoint) close() {
	for _, f := range c.files {
		f.Close()
	}
	c.dir.Close()
}

// mostOpen is how many files are open at once.
const mostOpen = 64

// load reads a part, which is a file of torch.save's within a file.
func (c *checkpoint) load(it *item, p part) (any, error) {
	if p.Transformed {
		return nil, args.Errorf(c.op, gotorch.NotImplementedError, "%q is compressed, or changed by another extension: save it without", it.Key)
	}
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
	v, err := gotorch.Decode(io.NewSectionReader(f, p.At, p.Length), p.Length)
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
			if !is || t.T == nil || t.DType() != it.DType || !slices.Equal(t.Shape(), p.Sizes) {
				failed = args.ValueError(c.op, "%q is %s, and %s has %s where its part of %v is to be", it.Key, it, p.File, kindOf(v), p.Sizes)
				return
			}
			gotorch.NoGrad(func() {
				if result.T == nil {
					if elements == wanted && t.Numel() == wanted {
						result, copied = t.Detach(), wanted
						s.Keep(result)
						return
					}
					gotorch.Unscoped(func() { result = gotorch.Empty(size, gotorch.TensorOptions{DType: it.DType}) })
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
		gotorch.Unscoped(func() { result = gotorch.Empty(size, gotorch.TensorOptions{DType: it.DType}) })
	}
	if copied != wanted { // held by check
		return gotorch.Tensor{}, args.ValueError(c.op, "%q has %d of the %d elements of %v at %v", it.Key, copied, wanted, size, at)
	}
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
		return c.load(n.item, n.item.Parts[0])
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
	return c.box(it, offsets, size)
}

// into reads what goes into a value, and returns what puts it there.
func (c *checkpoint) into(path []any, value any) (commit func() error, err error) {
	switch v := value.(type) {
	case gotorch.Tensor:
		if v.T == nil {
			return nil, args.ValueError(c.op, "%q is a nil tensor, and should have the shape of what is loaded", joined(path))
		}
		return c.copied(path, v, v.Shape(), make([]int64, v.Dim()))
	case distributed.Shard:
		if v.Local.T == nil {
			return nil, args.ValueError(c.op, "%q is a shard without a tensor", joined(path))
		}
		return c.copied(path, v.Local, v.Shape, v.Offsets)
	case *OptimizerState:
		return c.optimizer(path, v)
	case *distributed.FullySharded:
		return c.module(path, v.Net, v.ShardedStateDict())
	case *distributed.DistributedDataParallel:
		return c.module(path, v.Net, sorted(v.Net.StateDict()))
	case nn.Modular:
		return c.module(path, v, sorted(v.StateDict()))
	case stateful:
		n, err := c.find(path)
		if err != nil {
			return nil, err
		}
		read, err := c.value(n)
		if err != nil {
			return nil, err
		}
		dict, is := read.(gotorch.Dict)
		if !is {
			return nil, args.ValueError(c.op, "%q is a %T in %s, and should be a dict for a %T", joined(path), read, c.dir.Name(), v)
		}
		dict = withoutGaps(dict, v.StateDict())
		if _, is := v.(optim.Optimizer); is {
			dict = numbered(dict)
		}
		return func() error { return v.LoadStateDict(dict) }, nil
	}
	if pairs, is := pairsOf(value); is {
		return c.each(pairs, func(pair gotorch.DictItem) (func() error, error) {
			return c.into(append(path[:len(path):len(path)], fmt.Sprint(pair.Key)), pair.Value)
		})
	}
	if list, is := value.([]any); is {
		pairs := make(gotorch.Dict, len(list))
		for i, v := range list {
			pairs[i] = gotorch.DictItem{Key: int64(i), Value: v}
		}
		return c.each(pairs, func(pair gotorch.DictItem) (func() error, error) {
			return c.into(append(path[:len(path):len(path)], pair.Key), pair.Value)
		})
	}
	to := reflect.ValueOf(value)
	if to.Kind() != reflect.Pointer || to.IsNil() {
		return nil, args.TypeError(c.op, "%q is a %T, into which nothing can be loaded: it must be a tensor, a module, an optimiser or a pointer", joined(path), value)
	}
	n, err := c.find(path)
	if err != nil {
		return nil, err
	}
	read, err := c.value(n)
	if err != nil {
		return nil, err
	}
	converted := reflect.New(to.Type().Elem())
	if err := door.Assign(converted.Elem(), read, "the value"); err != nil {
		return nil, about(c.op, joined(path), err)
	}
	return func() error { to.Elem().Set(converted.Elem()); return nil }, nil
}

func (c *checkpoint) each(pairs gotorch.Dict, into func(gotorch.DictItem) (func() error, error)) (func() error, error) {
	commits := make([]func() error, len(pairs))
	for i, pair := range pairs {
		var err error
		if commits[i], err = into(pair); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, commit := range commits {
			if err := commit(); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// copied reads what goes into t.
func (c *checkpoint) copied(path []any, t gotorch.Tensor, shape, offsets []int64) (func() error, error) {
	read, err := c.part(path, t, shape, offsets)
	if err != nil {
		return nil, err
	}
	return func() error {
		gotorch.NoGrad(func() { t.Copy_(read) })
		read.Close()
		return nil
	}, nil
}

// module reads a module's state, of which like has the shapes.
func (c *checkpoint) module(path []any, m nn.Modular, like gotorch.Dict) (func() error, error) {
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
			return nil, err
		}
	}
	return func() error {
		err := m.LoadStateDict(dict)
		for _, t := range dict {
			t.Close()
		}
		return err
	}, nil
}
