package distributed

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/optim"
)

// ZeroRedundancy is what [ZeroRedundancyOptimizer] makes: an optimiser whose state the ranks share out.
type ZeroRedundancy struct {
	optim.Optimizer
	group  *Group
	params []gotorch.Tensor
	owner  []int         // of each parameter
	whole  *gotorch.Dict // the states of all, since Consolidate
}

// ZeroRedundancyOptimizer has each rank keep the state of a part of the parameters only, such as the two averages of Adam
// (ZeRO's first stage): opt is made with all parameters, as on every other rank. A step changes those of this rank, and then
// each rank tells the others what its own are. The numbers are those that opt alone comes to, to the last bit; the state takes
// about 1/n of the memory on each of n ranks, as far as opt makes it in its first step.
//
//	model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: world})
//	opt := distributed.ZeroRedundancyOptimizer(world, optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 1e-3}))
//
// Gradients must be the same on all ranks, as those of [DataParallel] are. All ranks must call Step together. It panics with a
// ValueError for a group that this process is not in, and with a NotImplementedError for LBFGS, whose state is of all
// parameters together.
//
// See https://docs.pytorch.org/docs/stable/distributed.optim.html#torch.distributed.optim.ZeroRedundancyOptimizer.
func ZeroRedundancyOptimizer(g *Group, opt optim.Optimizer) *ZeroRedundancy {
	const op = "distributed.ZeroRedundancyOptimizer"
	if err := g.enter(op); err != nil {
		panic(err)
	}
	g.inUse.RUnlock()
	if opt == nil {
		panic(args.TypeError(op, "the optimiser is nil"))
	}
	if _, is := opt.(*optim.LBFGSOptimizer); is {
		panic(args.Errorf(op, gotorch.NotImplementedError, "LBFGS has one state of all parameters, which cannot be shared out"))
	}
	z := &ZeroRedundancy{Optimizer: opt, group: g}
	sizes := make([]int64, g.Size())
	for _, group := range opt.ParamGroups() {
		params := group.Params()
		first := len(z.params)
		z.params = append(z.params, params...)
		z.owner = append(z.owner, make([]int, len(params))...)
		// As PyTorch does: the largest first, each to the rank that has least.
		order := make([]int, len(params))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(params[j].Numel(), params[i].Numel()) })
		for _, i := range order {
			least := slices.Index(sizes, slices.Min(sizes))
			z.owner[first+i] = least
			sizes[least] += params[i].Numel()
		}
	}
	return z
}

// Owner returns the rank that keeps the state of a parameter, by its place among those of all groups.
func (z *ZeroRedundancy) Owner(i int) int { return z.owner[i] }

// Step changes this rank's parameters, and gets the others.
func (z *ZeroRedundancy) Step() {
	NotifyJoin(z)
	z.with(z.Optimizer.Step)
}

// StepWith computes gradients by closure, once, and is Step then.
func (z *ZeroRedundancy) StepWith(closure func() gotorch.Tensor) gotorch.Tensor {
	loss := closure()
	z.Step()
	return loss
}

// with has step see the gradients of this rank's parameters alone.
func (z *ZeroRedundancy) with(step func()) {
	z.whole = nil
	z.alone(step)
	g := z.group
	if err := g.enter("ZeroRedundancyOptimizer.Step"); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	for rank := range g.Size() {
		var theirs []gotorch.Tensor
		for i, p := range z.params {
			if z.owner[i] == rank {
				theirs = append(theirs, p)
			}
		}
		if len(theirs) > 0 {
			c10dBroadcastCoalesced(g.handle, theirs, broadcastBytes, rank)
		}
	}
}

// alone calls step while the others' parameters have no gradients, which they have again afterwards.
func (z *ZeroRedundancy) alone(step func()) {
	grads := make([]gotorch.Tensor, len(z.params))
	for i, p := range z.params {
		if z.owner[i] != z.group.Rank() {
			grads[i] = p.Grad()
			p.SetGrad(gotorch.Tensor{})
		}
	}
	defer func() {
		for i, p := range z.params {
			if z.owner[i] != z.group.Rank() && grads[i] != (gotorch.Tensor{}) {
				p.SetGrad(grads[i])
			}
		}
	}()
	step()
}

// Consolidate gives dst the states of all ranks, for StateDict. All ranks must call it; it is good until the next step.
//
// See https://docs.pytorch.org/docs/stable/distributed.optim.html#torch.distributed.optim.ZeroRedundancyOptimizer.consolidate_state_dict.
func (z *ZeroRedundancy) Consolidate(dst int) error {
	const op = "ZeroRedundancyOptimizer.Consolidate"
	dict := z.LocalStateDict()
	var b bytes.Buffer
	if err := gotorch.Encode(&b, "archive", dict.Get("state")); err != nil {
		return err
	}
	parts, err := GatherObject(z.group, b.Bytes(), dst)
	if err != nil || z.group.Rank() != dst {
		return err
	}
	states := gotorch.Dict{}
	for rank, part := range parts {
		value, err := gotorch.Decode(bytes.NewReader(part), int64(len(part)))
		if err != nil {
			return fmt.Errorf("%s: the state of rank %d: %w", op, rank, err)
		}
		state, is := value.(gotorch.Dict)
		if !is && value != nil {
			return args.ValueError(op, "the state of rank %d is a %T", rank, value)
		}
		states = append(states, state...)
	}
	slices.SortFunc(states, func(a, b gotorch.DictItem) int { return cmp.Compare(a.Key.(int64), b.Key.(int64)) })
	z.whole = &gotorch.Dict{{Key: "state", Value: states}, {Key: "param_groups", Value: dict.Get("param_groups")}}
	return nil
}

// StateDict returns the states of all ranks, as the optimiser alone has them. It panics with a RuntimeError where
// [ZeroRedundancy.Consolidate] was not called for this rank since the last step.
func (z *ZeroRedundancy) StateDict() gotorch.Dict {
	if z.whole == nil {
		panic(args.Errorf("ZeroRedundancyOptimizer.StateDict", gotorch.RuntimeError,
			"the states of the other ranks are not here: all ranks call Consolidate before, with this rank"))
	}
	return *z.whole
}

// LocalStateDict returns the state of this rank's parameters.
func (z *ZeroRedundancy) LocalStateDict() gotorch.Dict { return z.mine(z.Optimizer.StateDict()) }

// LoadStateDict restores what StateDict has returned, of which this rank keeps its part. The error is that of the optimiser.
func (z *ZeroRedundancy) LoadStateDict(dict gotorch.Dict) error {
	err := z.Optimizer.LoadStateDict(z.mine(dict))
	if err == nil {
		z.whole = nil
	}
	return err
}

// mine returns dict without the states of others' parameters.
func (z *ZeroRedundancy) mine(dict gotorch.Dict) gotorch.Dict {
	states, is := dict.Get("state").(gotorch.Dict)
	if !is {
		return dict
	}
	var kept gotorch.Dict
	for _, item := range states {
		n, is := item.Key.(int64)
		if !is || n < 0 || n >= int64(len(z.owner)) || z.owner[n] == z.group.Rank() {
			kept = append(kept, item)
		}
	}
	result := slices.Clone(dict)
	for i := range result {
		if result[i].Key == "state" {
			result[i].Value = kept
		}
	}
	return result
}
