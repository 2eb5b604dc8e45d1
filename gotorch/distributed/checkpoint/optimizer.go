package checkpoint

import (
	"fmt"
	"slices"
	"strconv"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// OptimizerState is an optimiser whose parameters go by their names in a module. See [Optimizer].
type OptimizerState struct {
	opt    optim.Optimizer
	shards map[string]distributed.Shard
	params []param // in the optimiser's order
}

type param struct {
	names []string // several where it is tied
	t     gotorch.Tensor
}

// Optimizer is an optimiser of a module's parameters, for [Save] and [Load]: in the checkpoint the parameters have the module's
// names, and what it remembers of a parameter that is sharded is sharded as that is. Of a [distributed.ZeroRedundancy] each rank
// saves what it has, and loads what it has to have. An optimiser that is in a State by itself has numbers for names, and that of
// the first rank is saved: it is one of parameters that all ranks have whole.
//
// It panics with a ValueError where the optimiser has a parameter that is none of the module's, and, when it is saved, with a
// NotImplementedError for an optimiser that remembers tensors of another shape for sharded parameters.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.get_optimizer_state_dict
func Optimizer(m nn.Modular, opt optim.Optimizer) *OptimizerState {
	const op = "checkpoint.Optimizer"
	o := &OptimizerState{opt: opt, shards: map[string]distributed.Shard{}}
	m, dict := stateOfModule(m)
	for _, pair := range dict {
		if s, is := pair.Value.(distributed.Shard); is {
			o.shards[pair.Key.(string)] = s
		}
	}
	names := map[uintptr][]string{}
	for name, t := range nn.AllNamedParameters(m) {
		names[uintptr(*t.T)] = append(names[uintptr(*t.T)], name)
	}
	for _, group := range opt.ParamGroups() {
		for _, t := range group.Params() {
			of := names[uintptr(*t.T)]
			if len(of) == 0 {
				panic(args.ValueError(op, "the optimiser has a parameter of shape %v that is none of the module's: make it of the module's Parameters, after FullyShard", t.Shape()))
			}
			o.params = append(o.params, param{of, t})
		}
	}
	return o
}

// StateDict returns the optimiser's state with names of parameters in it, as PyTorch's get_optimizer_state_dict does.
func (o *OptimizerState) StateDict() gotorch.Dict {
	const op = "checkpoint.Optimizer"
	result := slices.Clone(stateOf(o.opt))
	for i := range result {
		switch of := result[i].Value.(type) {
		case gotorch.Dict:
			if result[i].Key != "state" {
				continue
			}
			states := make(gotorch.Dict, len(of))
			for j, pair := range of {
				p := o.params[pair.Key.(int64)]
				state, is := pair.Value.(gotorch.Dict)
				if is {
					state = slices.Clone(state)
					for k := range state {
						state[k].Value = o.sharded(op, p, state[k])
					}
					pair.Value = state
				}
				states[j] = gotorch.DictItem{Key: p.names[0], Value: pair.Value}
			}
			result[i].Value = states
		case []any:
			if result[i].Key == "param_groups" {
				result[i].Value = o.groups(of, func(n any) any { return o.params[n.(int64)].names[0] })
			}
		}
	}
	return result
}

// sharded returns a value of a parameter's state, as a part of a whole where it is one.
func (o *OptimizerState) sharded(op string, p param, of gotorch.DictItem) any {
	t, is := of.Value.(gotorch.Tensor)
	if !is || t.T == nil || t.Dim() == 0 {
		return of.Value
	}
	s, is := o.shards[p.names[0]]
	if !is {
		return t
	}
	if !slices.Equal(t.Shape(), s.Local.Shape()) {
		panic(args.Errorf(op, gotorch.NotImplementedError, "%v of the parameter %q is of shape %v, and the parameter's part here of %v: it cannot be put together",
			of.Key, p.names[0], t.Shape(), s.Local.Shape()))
	}
	s.Local = t
	return s
}

// groups returns groups with other parameters in them.
func (o *OptimizerState) groups(list []any, other func(any) any) []any {
	result := make([]any, len(list))
	for i, v := range list {
		group := slices.Clone(v.(gotorch.Dict))
		for k := range group {
			if params, is := group[k].Value.([]any); is && group[k].Key == "params" {
				changed := make([]any, len(params))
				for n := range params {
					changed[n] = other(params[n])
				}
				group[k].Value = changed
			}
		}
		result[i] = group
	}
	return result
}

// LoadStateDict restores a state with names of parameters in it. The error is the optimiser's, or of kind KeyError for a
// parameter that the state does not name; then nothing changes.
func (o *OptimizerState) LoadStateDict(dict gotorch.Dict) error {
	const op = "checkpoint.Optimizer"
	states, _ := dict.Get("state").(gotorch.Dict)
	groups, is := dict.Get("param_groups").([]any)
	if !is {
		return args.Errorf(op, gotorch.KeyError, "there are no param_groups")
	}
	groupOf := map[string]gotorch.Dict{}
	for _, g := range groups {
		group, is := g.(gotorch.Dict)
		params, isList := group.Get("params").([]any)
		if !is || !isList {
			return args.ValueError(op, "a group of parameters is none: it must be a dict with params")
		}
		for _, name := range params {
			if name, is := name.(string); is {
				groupOf[name] = group
			}
		}
	}
	number := int64(0)
	state := gotorch.Dict{}
	var loaded []any
	for i, group := range o.opt.ParamGroups() {
		var like gotorch.Dict
		numbers := []any{}
		for range group.Params() {
			p := o.params[number]
			at := slices.IndexFunc(p.names, func(name string) bool { return groupOf[name] != nil })
			if at < 0 {
				return args.Errorf(op, gotorch.KeyError, "the parameter %q is in no group of the state", p.names[0])
			}
			of := groupOf[p.names[at]]
			if like == nil {
				like = of
			} else if &like[0] != &of[0] {
				return args.ValueError(op, "the parameters of group %d are in several groups of the state", i)
			}
			for _, name := range p.names {
				if s := states.Get(name); s != nil {
					state = append(state, gotorch.DictItem{Key: number, Value: s})
					break
				}
			}
			numbers = append(numbers, number)
			number++
		}
		if like == nil { // without parameters
			if i >= len(groups) {
				return args.ValueError(op, "the optimiser has %d groups, and the state %d", i+1, len(groups))
			}
			like, _ = groups[i].(gotorch.Dict)
		}
		like = slices.Clone(like)
		for k := range like {
			if like[k].Key == "params" {
				like[k].Value = numbers
			}
		}
		loaded = append(loaded, like)
	}
	return o.opt.LoadStateDict(gotorch.Dict{{Key: "state", Value: state}, {Key: "param_groups", Value: loaded}})
}

// optimizer reads what an optimiser has for its parameters.
func (c *checkpoint) optimizer(path []any, o *OptimizerState) error {
	n, err := c.find(path)
	if err != nil {
		return err
	}
	states := gotorch.Dict{}
	for _, p := range o.params {
		for _, name := range p.names {
			of := n.at("state", name)
			if of == nil {
				continue
			}
			state := gotorch.Dict{}
			for _, child := range of.children {
				v, err := c.state(child, o, name)
				if err != nil {
					return err
				}
				state = append(state, gotorch.DictItem{Key: child.name, Value: v})
			}
			states = append(states, gotorch.DictItem{Key: name, Value: state})
			break
		}
	}
	groups := []any{}
	if of := n.child("param_groups"); of != nil {
		v, err := c.value(of)
		if err != nil {
			return err
		}
		groups, _ = v.([]any)
	}
	c.sets(path, o, gotorch.Dict{{Key: "state", Value: states}, {Key: "param_groups", Value: groups}})
	return nil
}

// state reads a value of a parameter's state: of what has the parameter's shape, this rank's part.
func (c *checkpoint) state(n *node, o *OptimizerState, name string) (any, error) {
	s, sharded := o.shards[name]
	if n.item == nil || !n.item.Tensor || !sharded || len(n.item.Shape) == 0 {
		return c.value(n)
	}
	if !slices.Equal(n.item.Shape, s.Shape) {
		return nil, args.ValueError(c.op, "%q is of shape %v in %s, and the parameter %q of %v", n.item.Key, n.item.Shape, c.dir.Name(), name, s.Shape)
	}
	return c.box(n.item, s.Offsets, s.Local.Shape())
}

// withoutGaps adds to a dict that was read what no checkpoint has, since nothing is in it: the dicts that are empty in like.
func withoutGaps(read, like gotorch.Dict) gotorch.Dict {
	read = slices.Clone(read)
	for _, pair := range like {
		of, is := pairsOf(pair.Value)
		if !is {
			continue
		}
		at := slices.IndexFunc(read, func(r gotorch.DictItem) bool { return r.Key == nameOf(pair.Key) })
		if at < 0 {
			if len(of) == 0 {
				read = append(read, gotorch.DictItem{Key: nameOf(pair.Key), Value: gotorch.Dict{}})
			}
		} else if within, is := read[at].Value.(gotorch.Dict); is {
			read[at].Value = withoutGaps(within, of)
		}
	}
	return read
}

// numbered gives the states of an optimiser the numbers that their names are.
func numbered(dict gotorch.Dict) gotorch.Dict {
	for i := range dict {
		states, is := dict[i].Value.(gotorch.Dict)
		if !is || dict[i].Key != "state" {
			continue
		}
		for j := range states {
			if n, err := strconv.ParseInt(fmt.Sprint(states[j].Key), 10, 64); err == nil {
				states[j].Key = n
			}
		}
	}
	return dict
}
