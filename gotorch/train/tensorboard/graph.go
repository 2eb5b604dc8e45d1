package tensorboard

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/modes"
	"gotorch.dev/gotorch/nn"
)

// AddGraphOptions are the arguments of [SummaryWriter.AddGraph] that have defaults.
type AddGraphOptions struct {
	InputToModel []gotorch.Tensor // the arguments of the model's Forward; default: none, and the graph has no shapes or flow
}

// AddGraph adds the modules of a model, within each other, and their parameters with their shapes.
//
// With InputToModel, of a model whose Forward takes that many tensors, the model is called once, in evaluation mode and
// without gradients, and modules are called by [nn.Call]. Then the graph also has shapes of what modules return, and an
// edge from a module to another that was given what it returned, as it was. What is computed between modules is not
// known here, in contrast to PyTorch, which traces the model: there the edges are missing. The model's modes and buffers
// are as before; random numbers may have been drawn.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_graph.
func (w *SummaryWriter) AddGraph(model nn.Modular, opts ...AddGraphOptions) error {
	o := args.Option(opts)
	if v := reflect.ValueOf(model); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return w.refuse(&gotorch.Error{Op: "tensorboard.SummaryWriter.AddGraph", Kind: gotorch.TypeError, Msg: "the model is nil"})
	}
	var graph message
	err := gotorch.Try0(func() { graph = graphOf(model, o.InputToModel) })
	if err != nil {
		return w.refuse(err)
	}
	if err := w.add("", 0, time.Time{}, message{}.bytes(4, graph)); err != nil {
		return err
	}
	// Without it TensorBoard says that there is no graph of a run.
	stats := message{}.bytes(1, message{}.bytes(1, message{}.text(1, "/device:CPU:0")))
	return w.add("", 0, time.Time{}, message{}.bytes(8, message{}.text(1, "step1").bytes(2, stats)))
}

// node is a NodeDef.
type node struct {
	name, op string
	inputs   []string
	shapes   [][]int64
	known    bool // the shapes
	detail   string
}

func (n *node) message() message {
	m := message{}.text(1, n.name).text(2, n.op)
	for _, in := range n.inputs {
		m = m.text(3, in)
	}
	attr := func(key string, value message) { m = m.bytes(5, message{}.text(1, key).bytes(2, value)) }
	if n.known {
		var list message
		for _, s := range n.shapes {
			list = list.bytes(7, shape(s...))
		}
		attr("_output_shapes", message{}.bytes(1, list))
	}
	if n.detail != "" {
		attr("attr", message{}.bytes(2, []byte(valid(n.detail))))
	}
	return m
}

// graphOf is a GraphDef.
func graphOf(model nn.Modular, inputs []gotorch.Tensor) (m message) {
	model.Parameters() // which panics if it is no model
	scopes := map[string]string{"": class(model)}
	scope := func(name string) string { // Sequential/0_Linear/weight
		if known, is := scopes[name]; is {
			return known
		}
		return scopes[""] + "/" + strings.ReplaceAll(name, ".", "/")
	}
	var nodes []*node
	of := map[string]*node{}
	parents := map[string]bool{}
	for name := range model.NamedModules() {
		if name != "" {
			parents[name[:max(0, strings.LastIndexByte(name, '.'))]] = true
		}
	}
	for name, child := range model.NamedModules() {
		if name != "" {
			above, last := "", name
			if i := strings.LastIndexByte(name, '.'); i >= 0 {
				above, last = name[:i], name[i+1:]
			}
			scopes[name] = scope(above) + "/" + class(child) + "[" + last + "]"
		}
		if parents[name] {
			continue // a scope of others
		}
		n := &node{name: scope(name) + "/forward", op: class(child), detail: fmt.Sprint(child)}
		of[name], nodes = n, append(nodes, n)
	}
	for name, p := range model.NamedParameters() {
		owner, last := "", name
		if i := strings.LastIndexByte(name, '.'); i >= 0 {
			owner, last = name[:i], name[i+1:]
		}
		n := &node{name: scope(owner) + "/" + last, op: "Parameter", shapes: [][]int64{p.Shape()}, known: true, detail: p.DType().String()}
		nodes = append(nodes, n)
		if module := of[owner]; module != nil {
			module.inputs = append(module.inputs, n.name)
		}
	}
	if inputs != nil {
		nodes = append(nodes, flow(model, inputs, of)...)
	}
	for _, n := range nodes {
		m = m.bytes(1, n.message())
	}
	return m.bytes(4, message{}.varint(1, 22))
}

func class(m nn.Modular) string {
	name := fmt.Sprintf("%T", m)
	name = name[strings.LastIndexByte(name, '.')+1:]
	return strings.TrimSuffix(strings.TrimRight(name, "]"), "Module")
}

// flow calls the model, and adds to nodes what modules are given and return. It returns nodes of inputs and outputs.
func flow(model nn.Modular, inputs []gotorch.Tensor, of map[string]*node) (ends []*node) {
	defer modes.Keep(model)()
	restore, free := nn.KeepState(model)
	defer free()
	defer restore()
	var known sources
	for i, t := range inputs {
		if !t.Defined() {
			panic(valueError("AddGraph", "input %d is the zero Tensor", i+1))
		}
		n := &node{name: fmt.Sprintf("input/%d", i+1), op: "IO Node", shapes: [][]int64{t.Shape()}, known: true}
		ends = append(ends, n)
		known.add(t, n.name)
	}
	var outputs []gotorch.Tensor
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			for name, m := range model.NamedModules() {
				n := of[name]
				hooked, is := m.(hooked)
				if n == nil || !is {
					continue
				}
				before := hooked.RegisterForwardPreHook(func(_ nn.Modular, given []gotorch.Tensor) []gotorch.Tensor {
					known.connect(n, given)
					return nil
				})
				defer before.Remove()
				after := hooked.RegisterForwardHook(func(_ nn.Modular, _, returned []gotorch.Tensor) []gotorch.Tensor {
					if !n.known { // the first call
						n.known = true
						for _, t := range returned {
							n.shapes = append(n.shapes, t.Shape())
						}
					}
					for _, t := range returned {
						known.add(t, n.name)
					}
					return nil
				})
				defer after.Remove()
			}
			model.Train(false)
			outputs = call(model, inputs)
			for i, t := range outputs {
				n := &node{name: fmt.Sprintf("output/%d", i+1), op: "IO Node", shapes: [][]int64{t.Shape()}, known: true}
				ends = append(ends, n)
				known.connect(n, []gotorch.Tensor{t})
			}
			known.close()
		})
	})
	return ends
}

type hooked interface {
	RegisterForwardPreHook(fn nn.ForwardPreHook) *nn.HookHandle
	RegisterForwardHook(fn nn.ForwardHook) *nn.HookHandle
}

// call calls a model's Forward, and returns the tensors that it returns.
func call(model nn.Modular, inputs []gotorch.Tensor) (outputs []gotorch.Tensor) {
	forward := reflect.ValueOf(model).MethodByName("Forward")
	if !forward.IsValid() {
		panic(valueError("AddGraph", "%T has no method Forward", model))
	}
	t := forward.Type()
	fixed := t.NumIn()
	if t.IsVariadic() {
		fixed--
	}
	tensor := reflect.TypeFor[gotorch.Tensor]()
	fits := len(inputs) == fixed || len(inputs) > fixed && t.IsVariadic() && t.In(fixed).Elem() == tensor
	for i := range fixed {
		fits = fits && t.In(i) == tensor
	}
	if !fits {
		panic(valueError("AddGraph", "Forward of %T is a %v, which does not take %d tensors", model, t, len(inputs)))
	}
	var values []reflect.Value
	for _, in := range inputs {
		values = append(values, reflect.ValueOf(in))
	}
	for _, result := range forward.Call(values) {
		switch r := result.Interface().(type) {
		case gotorch.Tensor:
			outputs = append(outputs, r)
		case []gotorch.Tensor:
			outputs = append(outputs, r...)
		}
	}
	return outputs
}

// sources are which node each tensor comes from.
type sources []source

type source struct {
	t       gotorch.Tensor // of its own, so that the memory is not given to another
	version int64
	name    string
}

func (s *sources) add(t gotorch.Tensor, name string) {
	if t.Defined() {
		*s = append(*s, source{t.Detach(), t.Version(), name})
	}
}

// connect makes those tensors that come from nodes inputs of n, if they are what the nodes have returned.
func (s *sources) connect(n *node, given []gotorch.Tensor) {
	for _, t := range given {
		for _, from := range slices.Backward(*s) {
			if t.Defined() && same(from.t, t) {
				if t.Version() == from.version && !slices.Contains(n.inputs, from.name) && from.name != n.name {
					n.inputs = append(n.inputs, from.name)
				}
				break
			}
		}
	}
}

func (s *sources) close() {
	for _, one := range *s {
		one.t.Close()
	}
}

// same reports whether two tensors are one: the same numbers at the same place.
func same(a, b gotorch.Tensor) bool {
	return a.SharesStorage(b) && a.StorageOffset() == b.StorageOffset() &&
		slices.Equal(a.Shape(), b.Shape()) && slices.Equal(a.Strides(), b.Strides())
}
