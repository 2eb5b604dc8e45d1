package distributed

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"weak"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/found"
	"gotorch.dev/gotorch/nn"
)

// What a training loop needs of a sharded module besides its passes.

// Group returns the ranks that train the module together.
func (s *FullySharded) Group() *Group { return s.group }

// SyncBuffers copies rank 0's buffers to the others: running averages, for instance, which each rank has of its own batches. All
// ranks must call it.
func (s *FullySharded) SyncBuffers() {
	var buffers []gotorch.Tensor
	for _, b := range s.Net.NamedBuffers() {
		buffers = append(buffers, b)
	}
	if len(buffers) > 0 {
		s.broadcast("FullySharded.SyncBuffers", buffers)
	}
}

// broadcast gives all ranks rank 0's tensors.
func (s *FullySharded) broadcast(op string, ts []gotorch.Tensor) {
	g := s.group
	if err := g.enter(op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	c10dBroadcastCoalesced(g.handle, ts, broadcastBytes, 0)
}

// UnsyncedGradients returns what backward passes within [FullySharded.NoSync] have added up on this rank, and no pass has
// averaged yet: copies of whole gradients in the dtype that they are averaged in, by the names of Net's NamedParameters. What has
// no gradient is left out. With [FullySharded.LoadUnsyncedGradients] they are what a checkpoint needs that is taken amid
// accumulation.
func (s *FullySharded) UnsyncedGradients() nn.StateDict {
	dict := nn.StateDict{}
	for _, u := range s.units {
		if u.pending.T == nil {
			continue
		}
		gotorch.NoGrad(func() {
			gotorch.Scope0(func(scope *gotorch.ScopeHandle) {
				there := gotorch.ToSlice[float64](u.pending.Select(0, 0).Narrow(0, u.part, int64(len(u.params))).To(gotorch.Float64))
				for i, p := range u.params {
					if there[i] != 0 {
						all := u.pending.Narrow(1, p.first, p.padded()).Reshape([]int64{-1})
						dict[p.name()] = all.Narrow(0, 0, p.numel()).View(p.shape).Clone()
						scope.Keep(dict[p.name()])
					}
				}
			})
		})
	}
	return dict
}

// LoadUnsyncedGradients puts gradients in the place of those that [FullySharded.UnsyncedGradients] returns; with none, there are
// none. They are copied. The error is a ValueError for a name that no parameter has, which is not trained, and for another shape;
// then nothing changes.
func (s *FullySharded) LoadUnsyncedGradients(gradients nn.StateDict) error {
	const op = "FullySharded.LoadUnsyncedGradients"
	left := maps.Clone(gradients)
	of := map[*shardParam]gotorch.Tensor{}
	for _, u := range s.units {
		for _, p := range u.params {
			for _, name := range p.names {
				t := gradients[name]
				if t.T == nil || !p.trained {
					continue
				}
				if !slices.Equal(t.Shape(), p.shape) {
					return args.ValueError(op, "%q is of shape %v, and the parameter of %v", name, t.Shape(), p.shape)
				}
				of[p] = t
				delete(left, name)
			}
		}
	}
	for _, name := range left.Names() {
		return args.ValueError(op, "%q is no parameter that is trained", name)
	}
	for _, u := range s.units {
		u.pending.Close()
		u.pending = gotorch.Tensor{}
		if !slices.ContainsFunc(u.params, func(p *shardParam) bool { return of[p].T != nil }) {
			continue
		}
		gotorch.NoGrad(func() {
			n := int64(s.group.Size())
			at := gotorch.TensorOptions{DType: u.reduceDType(), Device: u.params[0].part.Device()}
			gotorch.Unscoped(func() { u.pending = gotorch.Zeros([]int64{n, u.part + int64(len(u.params))}, at) })
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				for i, p := range u.params {
					t := of[p]
					if t.T == nil {
						continue
					}
					if t.Layout() != gotorch.Strided {
						t = t.ToDense()
					}
					padded := gotorch.Zeros([]int64{n * p.padded()}, at)
					padded.Narrow(0, 0, p.numel()).Copy_(t.Reshape([]int64{-1}))
					u.pending.Narrow(1, p.first, p.padded()).Copy_(padded.View([]int64{n, p.padded()}))
					u.pending.Select(1, u.part+int64(i)).Fill_(1)
				}
			})
		})
	}
	return nil
}

// reduceDType is what gradients are averaged in.
func (u *shardUnit) reduceDType() gotorch.DType {
	for _, dtype := range []gotorch.DType{u.of.options.ReduceDType, u.of.options.ParamDType} {
		if dtype != 0 {
			return dtype
		}
	}
	return u.dtype
}

// Gradients that are not finite ---------------------------------------------------------------------

// enroll has a gradient scaler know which parts belong together.
func (s *FullySharded) enroll() {
	of := weak.Make(s)
	me := found.NewOwner(func() found.Group {
		if s := of.Value(); s != nil && s.remove != nil {
			return ranksOf{s.group}
		}
		return nil
	})
	var handles []uintptr
	for _, u := range s.units {
		for _, p := range u.params {
			handle := uintptr(*p.part.T)
			handles = append(handles, handle)
			me.Has(handle)
		}
	}
	forget := func(handles []uintptr) {
		for _, handle := range handles {
			me.Forget(handle)
		}
	}
	cleanup := runtime.AddCleanup(s, forget, handles)
	s.remove = append(s.remove, func() {
		cleanup.Stop()
		forget(handles)
	})
}

// ranksOf is a found.Group.
type ranksOf struct{ *Group }

// MaxOverRanks implements found.Group.
func (r ranksOf) MaxOverRanks(t gotorch.Tensor) { r.AllReduce(t, Max) }

// Copies --------------------------------------------------------------------------------------------

// Cloned implements [nn.Cloned]: it makes the copy of a sharded module one that has units of its own.
func (c *FullySharded) Cloned(original nn.Modular, of func(module nn.Modular) nn.Modular) {
	s := original.(*FullySharded)
	c.mutex = sync.Mutex{}
	c.recent, c.order, c.pass, c.last, c.units, c.root, c.remove = nil, nil, nil, nil, nil, nil, nil
	if s.remove == nil { // after Unshard
		return
	}
	parts := map[string]gotorch.Tensor{}
	for name, t := range nn.AllNamedParameters(c.Net) {
		parts[name] = t
	}
	for _, u := range s.units {
		unit := *u
		unit.of, unit.module = c, of(u.module)
		unit.open, unit.coming, unit.pending, unit.params = 0, nil, gotorch.Tensor{}, nil
		for _, p := range u.params {
			param := *p
			param.part = parts[p.name()]
			unit.params = append(unit.params, &param)
		}
		c.units = append(c.units, &unit)
	}
	c.root = c.units[0]
	c.watch()
	c.enroll()
	c.remove = append(c.remove, c.group.joinBatchNorms(c.Net)...)
}

// checkFinite panics as utils.ClipGradNorm_ does, on all ranks.
func checkFinite(op string, total gotorch.Tensor) {
	if x := gotorch.Item[float64](total); math.IsNaN(x) || math.IsInf(x, 0) {
		panic(args.Errorf(op, gotorch.RuntimeError, "the total norm for gradients is non-finite, so it cannot be clipped: it is %v", x))
	}
}
