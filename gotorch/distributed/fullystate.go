package distributed

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/optim"
)

// What is whole of a sharded module: for files, and for one process.

// ClipGradNorm is utils.ClipGradNorm_ of a sharded module: it scales all gradients so that their norm, of all ranks' shards
// together, is at most maxNorm, and returns the norm before. All ranks must call it, and all panic with a RuntimeError if the
// norm is not finite and ErrorIfNonfinite is given.
func (s *FullySharded) ClipGradNorm(maxNorm float64, opts ...utils.ClipGradNormOptions) gotorch.Tensor {
	const op = "FullySharded.ClipGradNorm"
	opt := args.Option(opts)
	p := args.Float(op, "NormType", opt.NormType, 2)
	if p == 0 { // the count of tensors whose norm is not 0: one may have shards on several ranks
		panic(args.ValueError(op, "NormType must not be 0, for shards of tensors"))
	}
	check := opt.ErrorIfNonfinite
	opt.ErrorIfNonfinite = false // of the whole norm alone
	params := s.Parameters()
	total := gotorch.Scope(func(*gotorch.ScopeHandle) (total gotorch.Tensor) {
		gotorch.NoGrad(func() { total = s.totalNorm(params, p) })
		return total
	})
	if check {
		checkFinite(op, total)
	}
	utils.ClipGradsWithNorm_(params, maxNorm, total)
	return total
}

// totalNorm computes the norm as Python does, for the same bits: the norm of each whole gradient, from those of its shards, and then
// the norm of these. The ranks agree on the gradients that there are, for a parameter may have been used on some ranks only.
func (s *FullySharded) totalNorm(params []gotorch.Tensor, p float64) gotorch.Tensor {
	op, present, empty := Sum, 1.0, 0.0
	switch {
	case math.IsInf(p, 1):
		op = Max
	case math.IsInf(p, -1):
		op, present = Min, -1
	}
	if p < 0 {
		empty = math.Inf(1)
	}
	var norms, counts []gotorch.Tensor
	for _, part := range params {
		grad, is := part.Grad(), 0.0
		norm := gotorch.Full(nil, empty, gotorch.TensorOptions{DType: part.DType(), Device: part.Device()})
		if grad.T != nil {
			is = present
			if grad.Numel() > 0 { // the infinite norm of no elements is an error
				norm = gotorch.LinalgVectorNorm(grad, gotorch.LinalgVectorNormOptions{Ord: p})
			}
		}
		norms = append(norms, norm.To(params[0].Device()))
		counts = append(counts, gotorch.FullLike(norms[0], is))
	}
	if len(norms) == 0 {
		return gotorch.FromScalar(float32(0))
	}
	shards := gotorch.Stack(norms)
	if op == Sum {
		shards.Pow_(p)
	}
	all := gotorch.Cat([]gotorch.Tensor{shards, gotorch.Stack(counts)})
	s.group.AllReduce(all, op)
	n := int64(len(params))
	whole := all.Narrow(0, 0, n).MaskedSelect(all.Narrow(0, n, n).NeScalar(0))
	if whole.Numel() == 0 {
		return gotorch.FromScalar(float32(0))
	}
	if op == Sum {
		whole.Pow_(1 / p)
	}
	return gotorch.LinalgVectorNorm(whole, gotorch.LinalgVectorNormOptions{Ord: p})
}

// FullStateOptions are the arguments of [FullySharded.FullStateDict] and [FullySharded.FullOptimStateDict] that have defaults.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.StateDictOptions
type FullStateOptions struct {
	// RankZeroOnly has rank 0 alone keep what is whole; the others get nil.
	RankZeroOnly bool
}

// FullStateDict returns the module's state with whole parameters, copies in the CPU's memory, by the names that they have in
// a module that is not sharded. All ranks must call it. One unit is whole at a time.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.get_model_state_dict
func (s *FullySharded) FullStateDict(opts ...FullStateOptions) nn.StateDict {
	keep := !args.Option(opts).RankZeroOnly || s.group.Rank() == 0
	dict := nn.StateDict{}
	if keep {
		for name, t := range s.Net.StateDict() {
			dict[name] = t.Detach().To(gotorch.CPU)
		}
	}
	s.whole(func(p *shardParam, t gotorch.Tensor) {
		if !keep {
			return
		}
		whole := t.Clone().To(gotorch.CPU)
		for _, name := range p.names {
			if _, saved := dict[name]; saved {
				dict[name] = whole
			}
		}
	})
	if !keep {
		return nil
	}
	return dict
}

// whole calls see with each whole parameter, which is freed afterwards.
func (s *FullySharded) whole(see func(p *shardParam, whole gotorch.Tensor)) {
	if s.remove == nil {
		panic(args.ValueError("distributed.FullyShard", "the module was used after Unshard"))
	}
	for _, u := range s.units {
		if len(u.params) == 0 {
			continue
		}
		var all gotorch.Tensor
		gotorch.Unscoped(func() { all = u.beginGather(u.dtype).end() })
		for _, p := range u.params {
			flat := all.Narrow(0, p.first*int64(s.group.Size()), p.numel())
			t := flat.View(p.shape)
			see(p, t)
			t.Close()
			flat.Close()
		}
		all.Close()
	}
}

// LoadFullStateDict restores a state with whole parameters, of which each rank takes its part. The error is that of
// nn.Module.LoadStateDict, with whole shapes; a ValueError for LoadOptions.Assign, by which the parts would not be the module's.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.set_model_state_dict
func (s *FullySharded) LoadFullStateDict(dict nn.StateDict, opts ...nn.LoadOptions) error {
	if args.Option(opts).Assign {
		return args.ValueError("FullySharded.LoadFullStateDict", "Assign is given, and the module's parameters must stay the parts that they are")
	}
	parts := nn.StateDict{}
	for name, t := range dict {
		parts[name] = t
	}
	wrong := &nn.StateDictError{Module: fmt.Sprintf("%T", s.Net)}
	for _, u := range s.units {
		for _, p := range u.params {
			for _, name := range p.names {
				t, given := dict[name]
				switch {
				case !given || t.T == nil:
				case !slices.Equal(t.Shape(), p.shape):
					wrong.Mismatched = append(wrong.Mismatched, nn.Mismatch{Name: name, Want: p.shape, Got: t.Shape()})
				default:
					parts[name] = p.rowsOf(t, s.group.Rank())
				}
			}
		}
	}
	if len(wrong.Mismatched) > 0 {
		slices.SortFunc(wrong.Mismatched, func(a, b nn.Mismatch) int { return cmp.Compare(a.Name, b.Name) })
		return wrong
	}
	return s.Net.LoadStateDict(parts, opts...)
}

// FullOptimStateDict returns the state of an optimiser of the module's parameters as it were of whole ones: what has a
// parameter's shape is put together from all ranks, in the CPU's memory. All ranks must call it, after the same steps. It
// panics with a NotImplementedError where the optimiser has tensors of other shapes.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.get_optimizer_state_dict
func (s *FullySharded) FullOptimStateDict(opt optim.Optimizer, opts ...FullStateOptions) gotorch.Dict {
	const op = "FullySharded.FullOptimStateDict"
	keep := !args.Option(opts).RankZeroOnly || s.group.Rank() == 0
	dict := s.eachState(op, opt, opt.StateDict(), func(p *shardParam, name string, t gotorch.Tensor) gotorch.Tensor {
		if t.Dim() == 0 {
			return t
		}
		if !slices.Equal(t.Shape(), p.part.Shape()) {
			panic(args.Errorf(op, gotorch.NotImplementedError, "%q of the parameter %q is of shape %v, and the parameter's part here of %v: it cannot be put together",
				name, p.name(), t.Shape(), p.part.Shape()))
		}
		whole := s.gatherOne(p, t)
		if !keep {
			whole.Close()
			return gotorch.Tensor{}
		}
		return whole.To(gotorch.CPU)
	})
	if !keep {
		return nil
	}
	return dict
}

// gatherOne returns a tensor like a parameter, of which each rank has its part.
func (s *FullySharded) gatherOne(p *shardParam, part gotorch.Tensor) gotorch.Tensor {
	n := int64(s.group.Size())
	var all gotorch.Tensor
	gotorch.NoGrad(func() {
		of := gotorch.TensorOptions{DType: part.DType(), Device: part.Device()}
		all = gotorch.Zeros([]int64{n * p.padded()}, of)
		mine := gotorch.Zeros([]int64{p.padded()}, of)
		defer mine.Close()
		mine.Narrow(0, 0, part.Numel()).Copy_(part.Reshape([]int64{part.Numel()}))
		if p.padded() > 0 {
			s.group.AllGatherIntoTensor(all, mine)
		}
	})
	return all.Narrow(0, 0, p.numel()).View(p.shape)
}

// LoadFullOptimStateDict restores what [FullySharded.FullOptimStateDict] has returned, or an optimiser of a module that is
// not sharded: each rank takes its part. The error is that of the optimiser.
func (s *FullySharded) LoadFullOptimStateDict(opt optim.Optimizer, dict gotorch.Dict) (err error) {
	const op = "FullySharded.LoadFullOptimStateDict"
	var parts gotorch.Dict
	if err := gotorch.Try0(func() {
		parts = s.eachState(op, opt, dict, func(p *shardParam, name string, t gotorch.Tensor) gotorch.Tensor {
			if t.Dim() == 0 {
				return t
			}
			if !slices.Equal(t.Shape(), p.shape) {
				panic(args.ValueError(op, "%q of the parameter %q is of shape %v, and the parameter of %v", name, p.name(), t.Shape(), p.shape))
			}
			return p.rowsOf(t, s.group.Rank())
		})
	}); err != nil {
		return err
	}
	return opt.LoadStateDict(parts)
}

// eachState returns a state dict with other tensors for those of its parameters' states, which see makes of them, in the
// same order on all ranks.
func (s *FullySharded) eachState(op string, opt optim.Optimizer, dict gotorch.Dict, see func(*shardParam, string, gotorch.Tensor) gotorch.Tensor) gotorch.Dict {
	params := map[uintptr]*shardParam{}
	for _, u := range s.units {
		for _, p := range u.params {
			params[uintptr(*p.part.T)] = p
		}
	}
	var of []*shardParam
	for _, group := range opt.ParamGroups() {
		for _, t := range group.Params() {
			p := params[uintptr(*t.T)]
			if p == nil {
				panic(args.ValueError(op, "the optimiser has a parameter that is none of the sharded module's: make it after FullyShard, of the module's Parameters"))
			}
			of = append(of, p)
		}
	}
	result := slices.Clone(dict)
	for i := range result {
		states, is := result[i].Value.(gotorch.Dict)
		if result[i].Key != "state" || !is {
			continue
		}
		states = slices.Clone(states)
		slices.SortFunc(states, func(a, b gotorch.DictItem) int { return cmp.Compare(fmt.Sprint(a.Key), fmt.Sprint(b.Key)) })
		for j := range states {
			number, is := states[j].Key.(int64)
			if !is || number < 0 || number >= int64(len(of)) {
				panic(args.ValueError(op, "there is a state of parameter %v, and the optimiser has %d", states[j].Key, len(of)))
			}
			state, is := states[j].Value.(gotorch.Dict)
			if !is {
				continue
			}
			state = slices.Clone(state)
			for k := range state {
				if t, is := state[k].Value.(gotorch.Tensor); is && t.T != nil {
					state[k].Value = see(of[number], fmt.Sprint(state[k].Key), t)
				}
			}
			states[j].Value = state
		}
		slices.SortFunc(states, func(a, b gotorch.DictItem) int { return cmp.Compare(a.Key.(int64), b.Key.(int64)) })
		result[i].Value = states
	}
	return result
}

// Unshard ends the sharding: the parameters are whole again, and without gradients. All ranks must call it; afterwards only Net
// is used.
func (s *FullySharded) Unshard() {
	if s.remove == nil {
		return
	}
	s.whole(func(p *shardParam, t gotorch.Tensor) { p.replace(t) })
	s.begin() // drops what is whole
	for _, remove := range s.remove {
		remove()
	}
	s.remove = nil
}
