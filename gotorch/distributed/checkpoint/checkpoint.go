// Package checkpoint saves what the ranks of a job have into one folder, and loads it into a job of any number of ranks, as
// torch.distributed.checkpoint does, and in its format: what Go has saved Python loads, and the other way round.
//
//	state := checkpoint.State{"model": model, "optim": checkpoint.Optimizer(model, opt), "epoch": epoch}
//	err := checkpoint.Save("run/epoch-3", state, checkpoint.SaveOptions{Group: world})
//	...
//	var epoch int
//	state := checkpoint.State{"model": model, "optim": checkpoint.Optimizer(model, opt), "epoch": &epoch}
//	err := checkpoint.Load("run/epoch-3", state, checkpoint.LoadOptions{Group: world})
//
// No rank ever has more than its own part: each writes what it has, and reads what it needs. The folder must be one that all
// ranks see. In Python the same is
//
//	model_state, optim_state = get_state_dict(model, opt)
//	dcp.save({"model": model_state, "optim": optim_state, "epoch": 3}, checkpoint_id="run/epoch-3")
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html
package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// State is what a checkpoint holds, by name: for [Save]
//
//	gotorch.Tensor                        the same on all ranks: rank 0's is saved
//	distributed.Shard                     of which each rank has a part
//	*distributed.FullySharded             the parts of its parameters, and its buffers
//	nn.Modular                            any other module, the same on all ranks
//	[Optimizer]                           the optimiser of either
//	what has StateDict and LoadStateDict  a scheduler, a gradient scaler, a loader of data
//	State, gotorch.Dict, nn.StateDict     and maps and slices of all these
//	bool, numbers, string, []byte ...     what gotorch.Save takes: rank 0's is saved
//
// and for [Load] the same, into which the checkpoint's values go, but a pointer for what is neither tensor nor module.
//
// See https://docs.pytorch.org/docs/stable/distributed.checkpoint.html#torch.distributed.checkpoint.state_dict.get_state_dict
type State map[string]any

// stateful is what has a state of its own.
type stateful interface {
	StateDict() gotorch.Dict
	LoadStateDict(dict gotorch.Dict) error
}

// leaf is a value that is saved for itself.
type leaf struct {
	path  []any
	value any // a gotorch.Tensor, a distributed.Shard, or data
}

// flatten calls see with each value of a tree that is saved for itself, as PyTorch divides one: dicts always, and lists where
// tensors or dicts are in them.
func flatten(path []any, value any, see func(leaf) error) error {
	if pairs, is := pairsOf(value); is {
		for _, pair := range pairs {
			if err := flatten(append(path[:len(path):len(path)], fmt.Sprint(pair.Key)), pair.Value, see); err != nil {
				return err
			}
		}
		return nil
	}
	if list, is := value.([]any); is && divided(list) {
		for i, v := range list {
			if err := flatten(append(path[:len(path):len(path)], int64(i)), v, see); err != nil {
				return err
			}
		}
		return nil
	}
	return see(leaf{path, value})
}

// divided reports whether what is in a list is saved for itself.
func divided(list []any) bool {
	for _, v := range list {
		switch v := v.(type) {
		case gotorch.Tensor, distributed.Shard:
			return true
		case []any:
			if divided(v) {
				return true
			}
		default:
			if _, is := pairsOf(v); is {
				return true
			}
		}
	}
	return false
}

// pairsOf returns what is in a dict, or in what is saved as one, in order.
func pairsOf(value any) (gotorch.Dict, bool) {
	switch v := value.(type) {
	case gotorch.Dict:
		return v, true
	case State:
		return sorted(v), true
	case map[string]any:
		return sorted(v), true
	case nn.StateDict:
		return sorted(v), true
	case map[string]gotorch.Tensor:
		return sorted(v), true
	case *distributed.FullySharded:
		return v.ShardedStateDict(), true
	case *distributed.DistributedDataParallel:
		return sorted(v.Net.StateDict()), true
	case nn.Modular:
		return sorted(v.StateDict()), true
	case stateful:
		return v.StateDict(), true
	}
	return nil, false
}

func sorted[V any](m map[string]V) gotorch.Dict {
	dict := make(gotorch.Dict, 0, len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		dict = append(dict, gotorch.DictItem{Key: name, Value: m[name]})
	}
	return dict
}

// agree has all ranks of a group fail where one does. The error is this rank's own, or names the first rank that failed.
func agree(op string, g *distributed.Group, err error) error {
	if g == nil || g.Size() == 1 {
		return err
	}
	said := ""
	if err != nil {
		said = cmp.Or(err.Error(), "an error")
	}
	all, failed := distributed.AllGatherObject(g, said)
	if err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	for rank, said := range all {
		if said != "" {
			return args.Errorf(op, gotorch.RuntimeError, "rank %d failed: %s", rank, said)
		}
	}
	return nil
}

// about says which value an error is about, and keeps its kind.
func about(op, key string, err error) error {
	if err, is := errors.AsType[*gotorch.Error](err); is {
		return args.Errorf(op, err.Kind, "%q: %s", key, err.Msg)
	}
	return fmt.Errorf("%s: %q: %w", op, key, err)
}

// tried calls fn, and returns what it panics with, too, where that is an error of this library.
func tried(fn func() error) error {
	failed, err := gotorch.Try(fn)
	if err != nil {
		return err
	}
	return failed
}
