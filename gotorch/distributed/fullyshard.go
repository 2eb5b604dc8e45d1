package distributed

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// FullyShardOptions are the arguments of [FullyShard] that have defaults, with PyTorch's names.
//
// See https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.MixedPrecisionPolicy
type FullyShardOptions struct {
	// Group is the ranks that train together. It must be given.
	Group *Group
	// Units are modules within net, each of which has its parameters whole while it computes, and at no other time: most
	// often the layers of which a model has many. What is in none of them is whole while the model computes.
	Units []nn.Modular
	// NoReshardAfterForward has parameters stay whole until the backward pass has used them: more memory, and one exchange
	// less.
	NoReshardAfterForward bool
	// ParamDType is what parameters are whole in, and a unit's input is converted to; default: their own.
	ParamDType gotorch.DType
	// ReduceDType is what gradients are averaged in; default: ParamDType, or their own.
	ReduceDType gotorch.DType
	// NoPrefetch leaves out that the next unit's parameters come while one computes, for which there is the memory of one
	// more unit: above its parts a rank has 2 units at most then, and else 3.
	NoPrefetch bool
	// NoInitSync leaves out that rank 0's parameters and buffers are copied to the others at the beginning.
	NoInitSync bool
}

// FullySharded is what [FullyShard] makes: the module, of which each rank keeps a part of all parameters.
//
// See https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule
type FullySharded struct {
	nn.Module
	Net nn.Modular `nn:"module"`

	group   *Group
	options FullyShardOptions `nn:"-"`
	root    *shardUnit        `nn:"-"`
	units   []*shardUnit      `nn:"-"` // root is the first
	remove  []func()          // what net has of this
	noSync  bool

	mutex  sync.Mutex    // of what follows, for backward passes on several goroutines
	recent []*shardFrame `nn:"-"` // whose parameters are whole in the backward pass, the last used last
	order  []*shardUnit  `nn:"-"` // of the last forward pass
	pass   []*shardUnit  `nn:"-"` // of this one
	last   *shardFrame   `nn:"-"` // of this one
}

// FullyShard has each rank of a group keep a part of every parameter of net, of its gradient and of what an optimiser has for
// it: 1/n of the memory on n ranks. A parameter is whole only while its unit computes, forward and backward; gradients are
// averaged over the ranks, of which each keeps its part. Each rank has its own samples, as with [DataParallel], and what they
// come to is the same.
//
//	model := distributed.FullyShard(net, distributed.FullyShardOptions{Group: world, Units: net.Blocks})
//	opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 1e-3})
//	loss := nn.CrossEntropyLoss().Forward(model.Forward(x), y)
//	loss.Backward()
//	model.ClipGradNorm(1)
//	opt.Step()
//
// Of a parameter with m rows (its first dimension) rank r of n keeps ceil(m/n) from row r*ceil(m/n) on, as far as there are
// so many: the parameters of net and of the result are these parts from now on, which an optimiser is to be given. It may be
// any that treats each element for itself; not LBFGS, Adafactor or Muon. net is whole again after [FullySharded.Unshard]. An
// nn.SyncBatchNorm in it goes by the batches of all ranks until then.
//
// Units are called by their own Forward where they are of package nn, else by [nn.Call] or [nn.CallWith]. Where one computes
// in another way it panics with a RuntimeError, as its parameters are not there. A gotorch.Checkpoint may be around a call of
// a unit, not within one. A unit may compute several times, and may be left out, by all ranks alike: what one rank does not
// come to the others wait for, until their time is over.
//
// All ranks must call it, with the same options and a net of the same parameters. It panics with a ValueError where there is
// no group, where a unit is not within net, within another unit or net itself, where a parameter has no dimensions, is
// complex, or of another dtype than others of its unit; and with a RuntimeError where the ranks' models, units or options
// differ, which all ranks get and which says which rank's, and in which parameter. A copy by nn.Clone is a sharded module of its own, with
// the same units and parts. Gradients of gradients, and transforms of package functorch, are
// refused.
//
// See https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html
func FullyShard(net nn.Modular, opts ...FullyShardOptions) *FullySharded {
	const op = "distributed.FullyShard"
	opt := args.Option(opts)
	if opt.Group == nil {
		panic(args.ValueError(op, "Group is not given: it is what distributed.Init returns"))
	}
	for _, d := range []struct {
		name  string
		dtype gotorch.DType
	}{{"ParamDType", opt.ParamDType}, {"ReduceDType", opt.ReduceDType}} {
		if d.dtype != 0 && !d.dtype.IsFloatingPoint() {
			panic(args.ValueError(op, "%s is %v, and must be of floating point numbers", d.name, d.dtype))
		}
	}
	s := nn.Init(&FullySharded{Net: net, group: opt.Group, options: opt})
	s.divide(op)
	g := opt.Group
	g.checkSameModel(op, s.outline())
	if !opt.NoInitSync {
		s.copyFromRank0(op)
	}
	g.Barrier() // who fails has failed before
	for _, u := range s.units {
		for _, p := range u.params {
			p.replace(p.rowsOf(p.part.Detach(), g.Rank()))
		}
	}
	s.watch()
	s.enroll()
	s.remove = append(s.remove, g.joinBatchNorms(net)...)
	return s
}

// shardUnit is parameters that are whole together.
type shardUnit struct {
	of     *FullySharded
	module nn.Modular
	name   string // of the module in net, "" for the root
	params []*shardParam
	part   int64 // how many elements a rank has of all params, with what fills rows up
	dtype  gotorch.DType

	open    int            // how many calls of the module are going on
	coming  *gathering     // what comes for the next call
	pending gotorch.Tensor // gradients of backward passes within NoSync, as reduce has them
}

// shardParam is a parameter of a unit.
type shardParam struct {
	names   []string       // in net: several where it is tied
	part    gotorch.Tensor // this rank's, which is in the module while the unit does not compute
	shape   []int64        // of the whole
	trained bool
	rows    int64 // of the whole
	each    int64 // of a rank, where there are so many
	row     int64 // elements of a row
	first   int64 // where it begins in a rank's part of the unit
}

func (p *shardParam) name() string { return p.names[0] }

// padded is how many elements a rank has, with what fills rows up.
func (p *shardParam) padded() int64 { return p.each * p.row }

func (p *shardParam) numel() int64 { return p.rows * p.row }

// rowsOf returns rank's part of whole.
func (p *shardParam) rowsOf(whole gotorch.Tensor, rank int) gotorch.Tensor {
	first := min(int64(rank)*p.each, p.rows)
	return whole.Narrow(0, first, min(p.each, p.rows-first))
}

// replace has the parameter be a copy of t from now on, without a gradient. It stays the same tensor: in the module under all
// names, and in an optimiser.
func (p *shardParam) replace(t gotorch.Tensor) {
	gotorch.Unscoped(func() {
		copied := t.Clone(gotorch.CloneOptions{MemoryFormat: gotorch.ContiguousFormat})
		p.part.SetGrad(gotorch.Tensor{})
		// While a graph lives that the parameter is in, libtorch keeps the node in which its gradients end, which knows its shape. It makes
		// another one for data of another dtype.
		another := gotorch.Float64
		if p.part.DType() == another {
			another = gotorch.Float32
		}
		none := gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: another, Device: p.part.Device()})
		p.part.SetData(none)
		p.part.SetData(copied)
		none.Close()
		copied.Close()
	})
}

// divide makes the units, with parameters that are whole yet.
func (s *FullySharded) divide(op string) {
	byModule := map[nn.Modular]*shardUnit{}
	s.root = &shardUnit{of: s, module: s.Net}
	s.units = []*shardUnit{s.root}
	for name, m := range s.Net.NamedModules() {
		if slices.Contains(s.options.Units, m) {
			if name == "" {
				panic(args.ValueError(op, "a unit is the module itself, of which what is in no unit is one"))
			}
			for _, other := range s.units[1:] {
				if strings.HasPrefix(name, other.name+".") {
					panic(args.ValueError(op, "unit %q is within unit %q", name, other.name))
				}
			}
			u := &shardUnit{of: s, module: m, name: name}
			byModule[m] = u
			s.units = append(s.units, u)
		}
	}
	for i, m := range s.options.Units {
		if byModule[m] == nil {
			panic(args.ValueError(op, "Units[%d], a %T, is not within the module", i, m))
		}
	}
	// A tensor that is in several units is the root's: it is whole while any computes.
	params := map[uintptr]*shardParam{}
	owner := map[*shardParam]*shardUnit{}
	var all []*shardParam
	for name, t := range nn.AllNamedParameters(s.Net) {
		handle := uintptr(*t.T)
		if handle == 0 {
			panic(args.TypeError(op, "the parameter %q was closed", name))
		}
		u := s.owner(name)
		p := params[handle]
		if p == nil {
			p = &shardParam{part: t, shape: t.Shape(), trained: t.RequiresGrad()}
			params[handle], owner[p] = p, u
			all = append(all, p)
		} else if owner[p] != u {
			owner[p] = s.root
		}
		p.names = append(p.names, name)
	}
	n := int64(s.group.Size())
	for _, p := range all {
		u := owner[p]
		if len(p.shape) == 0 {
			panic(args.ValueError(op, "the parameter %q has no dimensions: there is nothing to share out; make it one of one element", p.name()))
		}
		if p.part.DType().IsComplex() || p.part.Layout() != gotorch.Strided {
			panic(args.ValueError(op, "the parameter %q is %v and %v, and must be of real numbers and strided", p.name(), p.part.DType(), p.part.Layout()))
		}
		p.rows, p.row = p.shape[0], 1
		for _, size := range p.shape[1:] {
			p.row *= size
		}
		p.each = (p.rows + n - 1) / n
		p.first = u.part
		u.part += p.padded()
		if len(u.params) > 0 && u.dtype != p.part.DType() {
			panic(args.ValueError(op, "the parameters %q and %q of one unit are of %v and %v, and must be of one dtype", u.params[0].name(), p.name(), u.dtype, p.part.DType()))
		}
		u.dtype = p.part.DType()
		u.params = append(u.params, p)
	}
}

// owner returns the unit that a name is in.
func (s *FullySharded) owner(name string) *shardUnit {
	for _, u := range s.units[1:] {
		if strings.HasPrefix(name, u.name+".") {
			return u
		}
	}
	return s.root
}

// outline is what all ranks must have alike.
func (s *FullySharded) outline() outline {
	opt := s.options
	of := outline{Call: fmt.Sprintf("FullyShard with %d units, NoReshardAfterForward %v, ParamDType %v, ReduceDType %v, NoPrefetch %v, NoInitSync %v",
		len(opt.Units), opt.NoReshardAfterForward, opt.ParamDType, opt.ReduceDType, opt.NoPrefetch, opt.NoInitSync)}
	for i, u := range s.units {
		for _, p := range u.params {
			of.add("parameter", p.name(), p.part, i)
		}
	}
	if !opt.NoInitSync {
		of.addBuffers(s.Net)
	}
	of.addSynced(s.Net)
	return of
}

// copyFromRank0 gives all ranks rank 0's parameters and buffers.
func (s *FullySharded) copyFromRank0(op string) {
	var all []gotorch.Tensor
	for _, u := range s.units {
		for _, p := range u.params {
			all = append(all, p.part)
		}
	}
	for _, b := range s.Net.NamedBuffers() {
		all = append(all, b)
	}
	if len(all) > 0 {
		s.broadcast(op, all)
	}
}

// watch has calls of units and of what is in them go through here.
func (s *FullySharded) watch() {
	for _, u := range s.units {
		s.remove = append(s.remove, nn.RegisterForwardSpan(u.module, u.enter).Remove)
		if s.options.ParamDType != 0 && u != s.root { // Forward does it for the root
			convert := func(_ nn.Modular, inputs []gotorch.Tensor) []gotorch.Tensor { return s.convert(inputs) }
			if m, ok := u.module.(interface {
				RegisterForwardPreHook(nn.ForwardPreHook) *nn.HookHandle
			}); ok {
				s.remove = append(s.remove, m.RegisterForwardPreHook(convert).Remove)
			}
		}
	}
	// What has parameters of its own must not compute while they are not there.
	own := map[string][]*shardUnit{}
	for _, u := range s.units {
		for _, p := range u.params {
			for _, name := range p.names {
				if in := parent(name); !slices.Contains(own[in], u) {
					own[in] = append(own[in], u)
				}
			}
		}
	}
	for name, m := range s.Net.NamedModules() {
		for _, u := range own[name] {
			s.remove = append(s.remove, nn.RegisterForwardSpan(m, func() func() {
				if u.open == 0 {
					panic(args.Errorf("distributed.FullyShard", gotorch.RuntimeError,
						"the module %q computes while the parameters of %v are not there: call that by nn.Call, or its Forward where it is of package nn, within Forward or Around of the whole", name, u))
				}
				return func() {}
			}).Remove)
		}
	}
}

// convert has floating point tensors be of ParamDType.
func (s *FullySharded) convert(ts []gotorch.Tensor) []gotorch.Tensor {
	if s.options.ParamDType == 0 {
		return ts
	}
	ts = slices.Clone(ts)
	for i, t := range ts {
		if t.T != nil && t.DType().IsFloatingPoint() && t.DType() != s.options.ParamDType {
			ts[i] = t.To(s.options.ParamDType)
		}
	}
	return ts
}

// Forward is the module's. It panics with a TypeError for a module whose Forward takes something else than one tensor: see
// [FullySharded.Around].
func (s *FullySharded) Forward(x gotorch.Tensor) gotorch.Tensor {
	layer, ok := s.Net.(nn.Layer)
	if !ok {
		panic(args.TypeError("distributed.FullyShard", "%T has no Forward of one tensor: call it within Around", s.Net))
	}
	var y gotorch.Tensor
	s.Around(func() { y = nn.Call(layer, s.convert([]gotorch.Tensor{x})[0]) })
	return y
}

// Around is for a module of any other signature: forward calls it.
//
//	var logits, hidden gotorch.Tensor
//	model.Around(func() { logits, hidden = net.Forward(tokens, mask) })
func (s *FullySharded) Around(forward func()) {
	if s.remove == nil {
		panic(args.ValueError("distributed.FullyShard", "the module was used after Unshard"))
	}
	defer s.root.enter()()
	forward()
}

// NoSync runs fn, in which backward passes average nothing: each rank adds its gradients up, whole, and the next backward pass
// after it averages them all. Until then Grad does not have them.
//
// See https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html#torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync
func (s *FullySharded) NoSync(fn func()) {
	before := s.noSync
	s.noSync = true
	defer func() { s.noSync = before }()
	fn()
}

// ExtraRepr returns which rank it is.
func (s *FullySharded) ExtraRepr() string { return fmt.Sprint(s.group) }

func (u *shardUnit) String() string {
	if u.name == "" {
		return "the module itself"
	}
	return fmt.Sprintf("unit %q", u.name)
}

// Forward passes -----------------------------------------------------------------------------------

// shardFrame is one call of a unit. The graph keeps it, so it must keep nothing of the graph.
type shardFrame struct {
	unit     *shardUnit
	versions []int64     // of the parts
	before   *shardFrame // the call that began before it

	whole  gotorch.Tensor // all parameters, where they are there for the backward pass
	coming *gathering     // or come
}

// enter makes the unit's parameters whole, until leave is called.
func (u *shardUnit) enter() (leave func()) {
	s := u.of
	u.open++
	if u.open > 1 || s.remove == nil {
		return func() { u.open-- }
	}
	runtime.LockOSThread() // on which EnterFetched notes where the parameters are
	f := &shardFrame{unit: u, versions: u.versions()}
	if u == s.root {
		s.begin()
	}
	s.mutex.Lock()
	if s.root.open > 0 && u != s.root {
		f.before, s.last = s.last, f
		s.pass = append(s.pass, u)
	}
	s.mutex.Unlock()
	end := func() {
		u.open--
		if u == s.root {
			s.end(f)
		}
		runtime.UnlockOSThread()
	}
	if len(u.params) == 0 {
		return end
	}
	done := false
	defer func() {
		if !done {
			end()
		}
	}()

	var whole gotorch.Tensor
	gotorch.Unscoped(func() { whole = u.gather() })
	s.prefetch()
	parts := make([]gotorch.Tensor, len(u.params))
	for i, p := range u.params {
		parts[i] = p.part
	}
	var params []gotorch.Tensor
	gotorch.Unscoped(func() {
		gotorch.Scope0(func(scope *gotorch.ScopeHandle) {
			params = gotorch.Apply(unshard{f, whole}, parts...)
			scope.Keep(params...)
		})
	})
	leaveFetched := func() {}
	if gotorch.GradEnabled() && !s.options.NoReshardAfterForward {
		leaveFetched = enterFetched("distributed.FullyShard", whole, f.fetch)
	}
	dict := nn.StateDict{}
	for i, p := range u.params {
		name := p.name()
		if u != s.root {
			name = strings.TrimPrefix(name, u.name+".")
		}
		dict[name] = params[i]
	}
	restore := nn.SwapTensors(u.module, dict)
	done = true
	return func() {
		restore()
		leaveFetched()
		for _, p := range params {
			p.Close()
		}
		whole.Close()
		end()
	}
}

func (u *shardUnit) versions() []int64 {
	versions := make([]int64, len(u.params))
	for i, p := range u.params {
		versions[i] = p.part.Version()
	}
	return versions
}

// begin is called when the module begins to compute, and end at its end, with the root's frame.
func (s *FullySharded) begin() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, f := range s.recent {
		f.drop()
	}
	s.recent, s.pass, s.last = nil, nil, nil
}

func (s *FullySharded) end(f *shardFrame) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	f.before, s.last = s.last, nil
	s.order = s.pass
	for _, u := range s.units {
		u.coming.drop()
		u.coming = nil
	}
}

// prefetch begins to gather what was used next in the last pass.
func (s *FullySharded) prefetch() {
	s.mutex.Lock()
	next := len(s.pass)
	var u *shardUnit
	if !s.options.NoPrefetch && next < len(s.order) && slices.Equal(s.order[:next], s.pass) {
		u = s.order[next]
	}
	s.mutex.Unlock()
	if u != nil && u.coming == nil && u.open == 0 && len(u.params) > 0 {
		gotorch.Unscoped(func() { u.coming = u.beginGather(u.of.options.ParamDType) })
	}
}

// unshard makes a unit's parameters of their parts. Its gradients are averaged, and each rank has its part of them.
type unshard struct {
	frame *shardFrame
	whole gotorch.Tensor
}

// KeepsNothing has what Backward makes freed at its end.
func (unshard) KeepsNothing() {}

func (a unshard) Forward(ctx *gotorch.FunctionContext, parts []gotorch.Tensor) []gotorch.Tensor {
	ctx.SetMaterializeGrads(false)
	u := a.frame.unit
	params := make([]gotorch.Tensor, len(parts))
	var constant []gotorch.Tensor
	for i, p := range u.params {
		params[i] = a.whole.Narrow(0, p.first*int64(u.of.group.Size()), p.numel()).View(p.shape).VariableData()
		if !p.part.RequiresGrad() {
			constant = append(constant, params[i])
		}
	}
	ctx.MarkNonDifferentiable(constant...)
	return params
}

// Backward passes ----------------------------------------------------------------------------------

// fetch returns all parameters of the unit, as they were in the forward pass.
func (f *shardFrame) fetch() gotorch.Tensor {
	u := f.unit
	s := u.of
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.used(f)
	if f.whole.T == nil {
		if now := u.versions(); !slices.Equal(now, f.versions) {
			panic(args.Errorf("", gotorch.RuntimeError, "the parameters of %v were changed in place since the forward pass, which needs them as they were", u))
		}
		gotorch.Unscoped(func() {
			if f.coming != nil {
				f.whole = f.coming.end()
				f.coming = nil
			} else {
				f.whole = u.beginGather(s.options.ParamDType).end()
			}
		})
	}
	if b := f.before; b != nil && !s.options.NoPrefetch && b.unit != u && b.whole.T == nil && b.coming == nil && len(b.unit.params) > 0 &&
		slices.Equal(b.unit.versions(), b.versions) {
		s.used(b)
		s.used(f)
		gotorch.Unscoped(func() { b.coming = b.unit.beginGather(s.options.ParamDType) })
	}
	return f.whole
}

// used puts f to the end of what is whole, or will be, and drops what was used longest ago: before there is more. One computes
// and one comes.
func (s *FullySharded) used(f *shardFrame) {
	most := 2
	if s.options.NoPrefetch {
		most = 1
	}
	s.recent = append(slices.DeleteFunc(s.recent, func(o *shardFrame) bool { return o == f }), f)
	for len(s.recent) > most {
		s.recent[0].drop()
		s.recent = s.recent[1:]
	}
}

// drop frees the parameters; they can be fetched again.
func (f *shardFrame) drop() {
	if f.whole.T != nil {
		f.whole.Close()
		f.whole = gotorch.Tensor{}
	}
	f.coming.drop()
	f.coming = nil
}

func (a unshard) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	if gotorch.GradEnabled() {
		panic(args.Errorf("distributed.FullyShard", gotorch.NotImplementedError, "gradients of sharded modules cannot be differentiated again"))
	}
	f := a.frame
	s := f.unit.of
	s.mutex.Lock()
	defer s.mutex.Unlock()
	f.drop()
	s.recent = slices.DeleteFunc(s.recent, func(o *shardFrame) bool { return o == f })
	return f.unit.reduce(grads)
}

// reduce averages gradients of whole parameters over the ranks, and returns this rank's part. A parameter that no rank has
// a gradient of has none.
//
// To each rank's part of the parameters there is one number for each more, which tells whether any rank has a gradient.
func (u *shardUnit) reduce(grads []gotorch.Tensor) []gotorch.Tensor {
	s := u.of
	n := int64(s.group.Size())
	length := u.part + int64(len(u.params))
	dtype := u.reduceDType()
	result := make([]gotorch.Tensor, len(grads))
	var mine gotorch.Tensor
	gotorch.Scope0(func(scope *gotorch.ScopeHandle) {
		input := gotorch.Zeros([]int64{n, length}, gotorch.TensorOptions{DType: dtype, Device: u.params[0].part.Device()})
		for i, p := range u.params {
			if grads[i].T == nil {
				continue
			}
			grad := grads[i]
			if grad.Layout() != gotorch.Strided {
				grad = grad.ToDense()
			}
			grad = grad.Reshape([]int64{p.rows, p.row})
			// The ranks that have all of their rows, and the one that has some.
			if full := p.rows / max(p.each, 1); full > 0 {
				input.Narrow(0, 0, full).Narrow(1, p.first, p.padded()).Copy_(grad.Narrow(0, 0, full*p.each).Reshape([]int64{full, p.padded()}))
				if left := p.rows - full*p.each; left > 0 {
					input.Select(0, full).Narrow(0, p.first, left*p.row).Copy_(grad.Narrow(0, full*p.each, left).Reshape([]int64{left * p.row}))
				}
			}
			input.Select(1, u.part+int64(i)).Fill_(1)
		}
		if s.noSync {
			if u.pending.T != nil {
				u.pending.Add_(input)
			} else {
				gotorch.Unscoped(func() { u.pending = input.Clone() })
			}
			return
		}
		if u.pending.T != nil {
			input.Add_(u.pending)
			u.pending.Close()
			u.pending = gotorch.Tensor{}
		}
		before, after := divisors(n, dtype)
		if before > 1 {
			input.DivScalar_(before)
		}
		mine = input.Select(0, int64(s.group.Rank()))
		switch {
		case n == 1:
		case u.byGloo():
			// Not ReduceScatterTensor, of which Gloo makes the same, of a copy.
			s.group.AllReduce(input, Sum)
			mine = mine.Clone()
		default:
			mine = gotorch.Empty([]int64{length}, gotorch.TensorOptions{DType: dtype, Device: input.Device()})
			s.group.ReduceScatterTensor(mine, input.View([]int64{-1}), Sum)
		}
		mine.DivScalar_(after)
		there := gotorch.ToSlice[float64](mine.Narrow(0, u.part, int64(len(u.params))).To(gotorch.Float64))
		for i, p := range u.params {
			if there[i] == 0 || !p.part.RequiresGrad() {
				continue
			}
			result[i] = mine.Narrow(0, p.first, p.part.Numel()).View(p.part.Shape()).To(u.dtype)
			scope.Keep(result[i])
		}
	})
	return result
}

// divisors are what gradients are divided by before and after they are added up, n together: where their dtype has the range
// of float32 afterwards, as Python does.
func divisors(n int64, dtype gotorch.DType) (before, after float64) {
	before = 1
	if dtype != gotorch.Float32 && dtype != gotorch.BFloat16 {
		for float64(n)/before > before && n%int64(before) == 0 {
			before *= 2
		}
	}
	return before, float64(n) / before
}

// Gathering ----------------------------------------------------------------------------------------

// gathering is a unit's parameters on their way.
type gathering struct {
	whole    gotorch.Tensor // of each parameter those of all ranks, one rank after the other
	works    []*Work
	versions []int64
}

// byGloo reports whether what is exchanged is in the computer's memory.
func (u *shardUnit) byGloo() bool {
	return u.params[0].part.Device().Type() == gotorch.DeviceTypeCPU && !asOnDevices.Load()
}

// asOnDevices is for tests: the computer's memory is exchanged as that of devices.
var asOnDevices atomic.Bool

// Gloo receives into memory of its own, and copies from there: for two exchanges at a time, so parameters come in pieces. These
// are of pieceBytes, and of leastOfRank for each rank where that is more, for which a network takes longer than for a message.
const (
	pieceBytes  = 2 << 20
	leastOfRank = 256 << 10
)

// gather returns all parameters of the unit: of each those of all ranks, one rank after the other.
func (u *shardUnit) gather() gotorch.Tensor {
	c := u.coming
	u.coming = nil
	if c != nil && !slices.Equal(c.versions, u.versions()) {
		c.drop()
		c = nil
	}
	if c == nil {
		c = u.beginGather(u.of.options.ParamDType)
	}
	return c.end()
}

// beginGather begins to exchange the parts, as numbers of a dtype; 0 is their own.
func (u *shardUnit) beginGather(dtype gotorch.DType) *gathering {
	g := u.of.group
	n := int64(g.Size())
	if dtype == 0 {
		dtype = u.dtype
	}
	for _, p := range u.params {
		if now := p.part.DType(); now != u.dtype {
			panic(args.ValueError("distributed.FullyShard", "the parameter %q was converted to %v, from %v: convert the module before it is sharded, or give ParamDType", p.name(), now, u.dtype))
		}
	}
	c := &gathering{versions: u.versions()}
	gotorch.NoGrad(func() {
		c.whole = gotorch.Empty([]int64{n * u.part}, gotorch.TensorOptions{DType: dtype, Device: u.params[0].part.Device()})
	})
	begun := false
	defer func() {
		if !begun {
			c.drop()
		}
	}()
	most := max(pieceBytes/n, leastOfRank) / int64(dtype.Size()) // elements of each rank in an exchange
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			var small [2][]gotorch.Tensor // outputs and inputs of one exchange
			var elements int64
			flush := func() {
				if elements > 0 {
					c.works = append(c.works, g.allGatherCoalesced(small[0], small[1]))
				}
				small, elements = [2][]gotorch.Tensor{}, 0
			}
			for _, p := range u.params {
				size := p.padded()
				if size == 0 {
					continue
				}
				all := c.whole.Narrow(0, n*p.first, n*size)
				ranks := all.View([]int64{n, size})
				mine := ranks.Select(0, int64(g.Rank()))
				mine.Narrow(0, 0, p.part.Numel()).Copy_(p.part.Detach().Reshape([]int64{-1}))
				switch {
				case n == 1:
				case !u.byGloo():
					c.works = append(c.works, g.AllGatherIntoTensorAsync(all, mine))
				case size > most:
					for first := int64(0); first < size; first += most {
						some := ranks.Narrow(1, first, min(most, size-first))
						c.works = append(c.works, g.AllGatherAsync(some.Unbind(), some.Select(0, int64(g.Rank()))))
					}
				default:
					small[0], small[1] = append(small[0], all), append(small[1], mine)
					if elements += size; elements >= most {
						flush()
					}
				}
			}
			flush()
		})
	})
	begun = true
	return c
}

// end waits, and returns all parameters.
func (c *gathering) end() gotorch.Tensor {
	ended := false
	defer func() {
		if !ended {
			c.drop()
		}
	}()
	for _, w := range c.works {
		w.must()
	}
	ended = true
	return c.whole
}

// drop lets go of what nobody needs, as soon as the exchanges have ended, which go on.
func (c *gathering) drop() {
	if c == nil {
		return
	}
	c.whole.Close()
	go func() {
		for _, w := range c.works {
			w.end() // frees what it has of the tensors
		}
	}()
}
