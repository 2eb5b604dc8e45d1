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
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// State is what a checkpoint holds, by name: for [Save]
//
//	gotorch.Tensor                        the same on all ranks that have one of this name: the first one's is saved
//	distributed.Shard                     of which each rank has a part
//	*distributed.FullySharded             the parts of its parameters, and its buffers
//	nn.Modular                            any other module, the same on all ranks, but for what a [distributed.Sharder] in it has
//	[Optimizer]                           the optimiser of either
//	what has StateDict and LoadStateDict  a scheduler, a gradient scaler, a loader of data
//	State, gotorch.Dict, nn.StateDict     and maps and slices of all these
//	bool, numbers, string, []byte ...     what gotorch.Save takes: that of the first rank that has one of this name
//
// What only one rank has, as its random numbers, goes by a name of its own, such as "random.3".
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
	if len(path) > mostDeep {
		return tooDeep(saveOp, path)
	}
	if pairs, is := pairsOf(value); is {
		for _, pair := range pairs {
			if err := flatten(append(path[:len(path):len(path)], nameOf(pair.Key)), pair.Value, see); err != nil {
				return err
			}
		}
		return nil
	}
	if list, is := listOf(value); is && divided(list, len(path)) {
		for i, v := range list {
			if err := flatten(append(path[:len(path):len(path)], int64(i)), v, see); err != nil {
				return err
			}
		}
		return nil
	}
	return see(leaf{path, value})
}

func tooDeep(op string, path []any) error {
	return args.ValueError(op, "%v is more than %d dicts and lists deep, or in itself", path[0], mostDeep)
}

// nameOf is what a key of a dict is in a name: str of it, in Python.
func nameOf(key any) string {
	switch key {
	case nil:
		return "None"
	case true:
		return "True"
	case false:
		return "False"
	}
	return fmt.Sprint(key)
}

// divided reports whether what is in a list is saved for itself.
func divided(list []any, deep int) bool {
	for _, v := range list {
		switch v.(type) {
		case gotorch.Tensor, distributed.Shard:
			return true
		}
		if _, is := pairsOf(v); is || deep > mostDeep {
			return true
		}
		if list, is := listOf(v); is && divided(list, deep+1) {
			return true
		}
	}
	return false
}

// listOf returns what is in a list, unless these are numbers or strings alone. Tuples are no lists, as in PyTorch.
func listOf(value any) ([]any, bool) {
	switch v := value.(type) {
	case []any:
		return v, true
	case gotorch.Tuple, gotorch.Counter:
		return nil, false
	}
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Slice {
		return nil, false
	}
	switch v.Type().Elem().Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Interface, reflect.Pointer:
	default:
		return nil, false
	}
	list := make([]any, v.Len())
	for i := range list {
		list[i] = v.Index(i).Interface()
	}
	return list, true
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
	case nn.Modular:
		_, dict := stateOfModule(v)
		return dict, true
	case stateful:
		return stateOf(v), true
	}
	v := reflect.ValueOf(value)
	if v.Kind() != reflect.Map {
		return nil, false
	}
	dict := make(gotorch.Dict, 0, v.Len())
	for _, key := range v.MapKeys() {
		dict = append(dict, gotorch.DictItem{Key: fmt.Sprint(key), Value: v.MapIndex(key).Interface()})
	}
	slices.SortFunc(dict, func(a, b gotorch.DictItem) int { return cmp.Compare(a.Key.(string), b.Key.(string)) })
	return dict, true
}

// stateOf returns what has a state: of what the ranks share out, this rank's.
func stateOf(v stateful) gotorch.Dict {
	if of, is := v.(interface{ LocalStateDict() gotorch.Dict }); is {
		return of.LocalStateDict()
	}
	return v.StateDict()
}

// stateOfModule returns a module without what wraps it, and its state, of which this rank has parts.
func stateOfModule(m nn.Modular) (nn.Modular, gotorch.Dict) {
	switch v := m.(type) {
	case *distributed.FullySharded:
		if len(shardsOf(v.Net)) > 0 {
			panic(args.Errorf("checkpoint", gotorch.NotImplementedError, "the module within FullyShard has parameters that are parts of others already, as of distributed/parallel"))
		}
		return v.Net, v.ShardedStateDict()
	case *distributed.DistributedDataParallel:
		m = v.Net
	}
	dict, shards := sorted(m.StateDict()), shardsOf(m)
	for i := range dict {
		if s, is := shards[dict[i].Key.(string)]; is {
			s.Local = dict[i].Value.(gotorch.Tensor)
			dict[i].Value = s
		}
	}
	return m, dict
}

// shardsOf returns the parameters in a module that are parts of a whole, by all their names.
func shardsOf(m nn.Modular) map[string]distributed.Shard {
	parts := map[uintptr]distributed.Shard{}
	for _, within := range m.NamedModules() {
		if s, is := within.(distributed.Sharder); is {
			for _, shard := range s.Shards() {
				if shard.Local.T != nil {
					parts[uintptr(*shard.Local.T)] = shard
				}
			}
		}
	}
	shards := map[string]distributed.Shard{}
	for name, t := range nn.AllNamedParameters(m) {
		if shard, is := parts[uintptr(*t.T)]; is {
			shards[name] = shard
		}
	}
	return shards
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
	_, err = tell(op, g, err, "")
	return err
}

// tell is agree, and returns what each rank says.
func tell(op string, g *distributed.Group, failed error, says string) ([]string, error) {
	if g == nil || g.Size() == 1 {
		return []string{says}, failed
	}
	type word struct{ Failed, Says string }
	mine := word{Says: says}
	if failed != nil {
		mine.Failed = cmp.Or(failed.Error(), "an error")
	}
	words, err := distributed.AllGatherObject(g, mine)
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	all := make([]string, len(words))
	for rank, w := range words {
		if w.Failed != "" {
			return nil, args.Errorf(op, gotorch.RuntimeError, "rank %d failed: %s", rank, w.Failed)
		}
		all[rank] = w.Says
	}
	return all, nil
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
