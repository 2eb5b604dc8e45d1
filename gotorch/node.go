package gotorch

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"
	"weak"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Node is a node of the autograd graph: a function whose results were recorded, and that a backward pass calls with the
// gradients of them. It keeps the graph behind it, with what that has saved.
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.Node
type Node struct{ c ctorch.Owner }

// NextFunction is where a gradient of a [Node] goes.
type NextFunction struct {
	Node  *Node // nil where the input has no gradient
	Input int   // which result of Node the input was
}

func wrapNode(n ctorch.Node) *Node {
	if n == nil {
		return nil
	}
	node := new(Node)
	node.c.Own(unsafe.Pointer(n), func(h unsafe.Pointer) { ctorch.FreeNode(ctorch.Node(h)) })
	return node
}

// GradFn returns the node that made t; nil if t is a leaf, or no graph was recorded.
//
//	for n := loss.GradFn(); n != nil; n = n.NextFunctions()[0].Node {
//		fmt.Println(n.Name())
//	}
func (t Tensor) GradFn() *Node {
	self := t.hold("GradFn", "self")
	defer ctorch.FreeTensor(self)
	var n ctorch.Node
	if err := ctorch.GradFn(self, &n); err != nil {
		panicC("GradFn", unsafe.Pointer(err))
	}
	return wrapNode(n)
}

// GetGradientEdge returns where the gradient of t goes: to its [Tensor.GradFn], or of a leaf to the node that adds to its
// Grad, and which result of that node t is. It panics with a RuntimeError if t does not require grad.
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.get_gradient_edge
func (t Tensor) GetGradientEdge() NextFunction {
	self := t.hold("GetGradientEdge", "self")
	defer ctorch.FreeTensor(self)
	var n ctorch.Node
	var output int64
	if err := ctorch.GradientEdge(self, &n, &output); err != nil {
		panicC("GetGradientEdge", unsafe.Pointer(err))
	}
	return NextFunction{wrapNode(n), int(output)}
}

func (t Tensor) nodeOfHook(op string) *Node {
	self := t.hold(op, "self")
	defer ctorch.FreeTensor(self)
	var n ctorch.Node
	if err := ctorch.GradientEdge(self, &n, nil); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	return wrapNode(n)
}

func (n *Node) handle(op string) ctorch.Node {
	if n == nil || n.c.H == nil {
		panic(newError(op, ValueError, "the Node is nil, as that of a leaf is"))
	}
	return ctorch.Node(n.c.H)
}

// Name returns what kind of node it is: "AddBackward0", "torch::autograd::AccumulateGrad" of a leaf, or the name of a [Function].
func (n *Node) Name() string {
	defer runtime.KeepAlive(n)
	var text *ctorch.Char
	if err := ctorch.NodeName(n.handle("Name"), &text); err != nil {
		panicC("Name", unsafe.Pointer(err))
	}
	defer ctorch.FreeString(text)
	return ctorch.GoString(text)
}

// String returns the name.
func (n *Node) String() string {
	if n == nil {
		return "<nil>"
	}
	return n.Name()
}

// ID returns a number that tells nodes apart, as long as they are there: two Nodes with the same ID are one.
func (n *Node) ID() uint64 {
	defer runtime.KeepAlive(n)
	return ctorch.NodeID(n.handle("ID"))
}

// NextFunctions returns where the gradients go that the node computes, one for each input of what was recorded.
func (n *Node) NextFunctions() []NextFunction {
	const op = "NextFunctions"
	defer runtime.KeepAlive(n)
	h := n.handle(op)
	count := int(ctorch.NodeNextCount(h))
	nodes, inputs := make([]ctorch.Node, count), make([]int64, count)
	if err := ctorch.NodeNext(h, unsafe.SliceData(nodes), unsafe.SliceData(inputs)); err != nil {
		panicC(op, unsafe.Pointer(err))
	}
	next := make([]NextFunction, count)
	for i := range next {
		next[i] = NextFunction{wrapNode(nodes[i]), int(inputs[i])}
	}
	return next
}

// Variable returns the leaf whose Grad the node adds to; the zero Tensor for another node.
func (n *Node) Variable() Tensor {
	defer runtime.KeepAlive(n)
	var t ctorch.Tensor
	if err := ctorch.NodeVariable(n.handle("Variable"), &t); err != nil {
		panicC("Variable", unsafe.Pointer(err))
	}
	return wrapHandle(t)
}

// Hooks of several tensors -------------------------------------------------------------------------------

// multiHook is a hook for the gradients of several tensors.
type multiHook struct {
	nodes []*Node // which they do not keep, for nodes keep their hooks: for NodeWillRun alone
	fn    func(grads []Tensor)

	mutex  sync.Mutex
	passes map[int64]weak.Pointer[multiPass]
}

// multiPass is what one backward pass has brought. The pass keeps it.
type multiPass struct {
	grads     []Tensor
	missing   int // gradients that are to come
	isThrough bool
}

// RegisterMultiGradHook has fn called in each backward pass when the gradients of all tensors are there which the pass
// computes, with one gradient for each tensor: none for those that it does not. It panics with a RuntimeError if a tensor
// does not require grad. What is said of fn at [Tensor.RegisterHook] holds here too, but that its panic comes out of the
// backward pass that computes the last of the gradients.
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.register_multi_grad_hook
func RegisterMultiGradHook(tensors []Tensor, fn func(grads []Tensor)) *HookHandle {
	const op = "RegisterMultiGradHook"
	if fn == nil {
		panic(newError(op, TypeError, "the hook is nil"))
	}
	h := &multiHook{fn: fn, passes: map[int64]weak.Pointer[multiPass]{}}
	for i, t := range tensors {
		h.nodes = append(h.nodes, t.nodeOfHook(fmt.Sprintf("%s: tensors[%d]", op, i)))
	}
	return registerEach(tensors, func(i int, grad Tensor) { h.arrived(i, grad) })
}

// RegisterMultiGradHookAny has fn called in each backward pass with the first gradient of one of the tensors. Else it is
// [RegisterMultiGradHook].
//
// See https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.register_multi_grad_hook
func RegisterMultiGradHookAny(tensors []Tensor, fn func(grad Tensor)) *HookHandle {
	const op = "RegisterMultiGradHookAny"
	if fn == nil {
		panic(newError(op, TypeError, "the hook is nil"))
	}
	h := &multiHook{passes: map[int64]weak.Pointer[multiPass]{}}
	return registerEach(tensors, func(_ int, grad Tensor) {
		if h.isFirst() {
			fn(grad)
		}
	})
}

// registerEach registers a hook for each tensor, or none.
func registerEach(tensors []Tensor, arrived func(i int, grad Tensor)) *HookHandle {
	all := &HookHandle{}
	done := false
	defer func() {
		if !done {
			all.Remove()
		}
	}()
	for i, t := range tensors {
		all.more = append(all.more, t.RegisterHook(func(grad Tensor) (none Tensor) {
			arrived(i, grad)
			return none
		}))
	}
	done = true
	return all
}

// pass returns what the backward pass of this thread has brought, of which gradient i may be the first. It is called with the
// mutex, and may panic.
func (h *multiHook) pass(i int) *multiPass {
	id := ctorch.BackwardPass()
	if p := h.passes[id].Value(); p != nil {
		return p
	}
	for other, p := range h.passes {
		if p.Value() == nil {
			delete(h.passes, other)
		}
	}
	p := &multiPass{grads: make([]Tensor, len(h.nodes))}
	for k, n := range h.nodes {
		var will bool
		if err := ctorch.NodeWillRun(n.handle("NodeWillRun"), &will); err != nil {
			panicC("RegisterMultiGradHook", unsafe.Pointer(err))
		}
		if will || k == i { // a node that a pass begins with is not among those that it comes to
			p.missing++
		}
	}
	token := (&ctorch.Callback{Kept: p}).Lend()
	if err := ctorch.KeepForPass(token); err != nil {
		ctorch.TakeBack(token)
		panicC("RegisterMultiGradHook", unsafe.Pointer(err))
	}
	h.passes[id] = weak.Make(p)
	return p
}

// isFirst reports whether this is the first gradient of the pass.
func (h *multiHook) isFirst() bool {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	p := h.pass(0)
	first := !p.isThrough
	p.isThrough = true
	return first
}

// arrived notes a gradient, and calls the hook with the last of them. The tensors may be results of one node, which
// runs once and brings them one by one; then all of them have come.
func (h *multiHook) arrived(i int, grad Tensor) {
	if grads := h.note(i, grad); grads != nil {
		h.fn(grads)
	}
}

// note returns the gradients of the pass, if this is the last of them.
func (h *multiHook) note(i int, grad Tensor) []Tensor {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	p := h.pass(i)
	p.grads[i] = grad
	p.missing--
	if p.missing != 0 {
		return nil
	}
	return p.grads
}
