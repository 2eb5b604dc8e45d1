package distributed

import (
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
)

// Shard is what one rank has of a tensor: a box of it, as a chunk of PyTorch's sharded checkpoints is. Package
// distributed/checkpoint saves and loads it.
type Shard struct {
	// Local is this rank's part, which may be without elements.
	Local gotorch.Tensor
	// Shape is that of the whole tensor.
	Shape []int64
	// Offsets is where Local begins in it, one for each dimension.
	Offsets []int64
}

// Sharder is a module that has parts of tensors for some of its parameters, such as the layers of package
// distributed/parallel: what ranks save of it, and load into it, are these parts.
type Sharder interface {
	// Shards returns the module's own parameters that are parts of a whole, by their names. Local is the parameter itself.
	Shards() map[string]Shard
}

// String says which part it is.
func (s Shard) String() string {
	return fmt.Sprintf("%v at %v of %v", s.Local.Shape(), s.Offsets, s.Shape)
}

// shardOf returns t, which has as many rows as the rank's part of the parameter, as a part of a whole.
func (s *FullySharded) shardOf(p *shardParam, t gotorch.Tensor) Shard {
	offsets := make([]int64, len(p.shape))
	offsets[0] = min(int64(s.group.Rank())*p.each, p.rows)
	return Shard{Local: t, Shape: slices.Clone(p.shape), Offsets: offsets}
}

// ShardedStateDict returns the module's state without an exchange: of parameters this rank's parts, each a [Shard], under the
// names that they have in a module that is not sharded, and buffers, which all ranks have. The parts are the module's own: who
// writes into them changes it.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.get_model_state_dict
func (s *FullySharded) ShardedStateDict() gotorch.Dict {
	parts := map[string]*shardParam{}
	for _, u := range s.units {
		for _, p := range u.params {
			for _, name := range p.names {
				parts[name] = p
			}
		}
	}
	state := s.Net.StateDict()
	dict := make(gotorch.Dict, 0, len(state))
	for _, name := range state.Names() {
		var value any = state[name].Detach()
		if p := parts[name]; p != nil {
			value = s.shardOf(p, state[name].Detach())
		}
		dict = append(dict, gotorch.DictItem{Key: name, Value: value})
	}
	return dict
}
