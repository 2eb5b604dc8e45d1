package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/distributed/checkpoint"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/finite"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

// Models of which each rank has a part: what distributed.FullyShard makes.
//
// A checkpoint of one is a folder, which package distributed/checkpoint writes: each rank writes what it has, and reads what it
// needs. What is not sharded is one value of it, "loop": all that a file would have.

// shardsOf returns the parts that a module's tensors are, by their names in its state, and what these names would be if nothing were
// sharded; nil where nothing is.
func shardsOf(model nn.Modular) (shards map[string]distributed.Shard, names map[string]string) {
	for prefix, m := range model.NamedModules() {
		sharded, is := m.(*distributed.FullySharded)
		if !is {
			continue
		}
		if shards == nil {
			shards, names = map[string]distributed.Shard{}, map[string]string{}
		}
		if prefix != "" {
			prefix += "."
		}
		for _, pair := range sharded.ShardedStateDict() {
			name := pair.Key.(string)
			within := prefix + "module." + name
			names[within] = prefix + name
			if shard, is := pair.Value.(distributed.Shard); is {
				shards[within] = shard
			}
		}
	}
	return shards, names
}

// shardedIn returns the sharded modules that are or are within what checkpoints have.
func (l *LoopOf[B]) shardedIn() (all []*distributed.FullySharded) {
	for _, p := range l.parts {
		if model, is := p.value.(nn.Modular); is {
			for _, m := range model.NamedModules() {
				if sharded, is := m.(*distributed.FullySharded); is && !slices.Contains(all, sharded) {
					all = append(all, sharded)
				}
			}
		}
	}
	return all
}

// sharded is the loop's own model, if it is sharded; else nil.
func (l *LoopOf[B]) sharded() *distributed.FullySharded {
	sharded, _ := l.model.(*distributed.FullySharded)
	return sharded
}

// ownerOf returns the sharded module whose parameters an optimiser changes, if there is one.
func (l *LoopOf[B]) ownerOf(p part) (owner *distributed.FullySharded, err error) {
	opt, is := p.value.(optim.Optimizer)
	if !is {
		return nil, nil
	}
	params := map[uintptr]bool{}
	for _, group := range opt.ParamGroups() {
		for _, t := range group.Params() {
			params[uintptr(*t.T)] = true
		}
	}
	n := len(params)
	for _, sharded := range l.shardedIn() {
		for _, t := range sharded.Parameters() {
			if params[uintptr(*t.T)] {
				delete(params, uintptr(*t.T))
				if owner != nil && owner != sharded {
					return nil, args.Errorf("train.LoopOf.Checkpoints", gotorch.NotImplementedError,
						"%q has parameters of two sharded models: make an optimiser for each", p.name)
				}
				owner = sharded
			}
		}
	}
	if owner != nil && len(params) > 0 {
		return nil, args.Errorf("train.LoopOf.Checkpoints", gotorch.NotImplementedError,
			"%q has %d parameters of a sharded model, and %d that are not: make an optimiser for each", p.name, n-len(params), len(params))
	}
	return owner, nil
}

// tensorsOf are a module's tensors for package checkpoint, under the names that they have if nothing is sharded.
func tensorsOf(model nn.Modular) (state checkpoint.State) {
	shards, names := shardsOf(model)
	state = checkpoint.State{}
	for name, t := range model.StateDict() {
		as := name
		if n, is := names[name]; is {
			as = n
		}
		if shard, is := shards[name]; is {
			state[as] = shard
		} else {
			state[as] = t.Detach()
		}
	}
	return state
}

// inFolder returns what package checkpoint has of a part; nil where it is whole on each rank, if always does not ask for it
// nevertheless.
func (l *LoopOf[B]) inFolder(p part, always bool) (any, error) {
	switch v := p.value.(type) {
	case nn.Modular:
		if shards, _ := shardsOf(v); shards != nil || always {
			return tensorsOf(v), nil
		}
	case optim.Optimizer:
		owner, err := l.ownerOf(p)
		if err != nil {
			return nil, err
		}
		if owner != nil {
			return checkpoint.Optimizer(owner, v), nil
		}
		if always {
			for _, of := range l.parts {
				if model, is := of.value.(nn.Modular); is && owns(model, v) {
					return checkpoint.Optimizer(model, v), nil
				}
			}
		}
	}
	if always {
		return nil, fmt.Errorf("it has no dict %s that is whole", p.key())
	}
	return nil, nil
}

// owns reports whether all of an optimiser's parameters are a module's.
func owns(model nn.Modular, opt optim.Optimizer) bool {
	of := map[uintptr]bool{}
	for _, t := range model.Parameters() {
		of[uintptr(*t.T)] = true
	}
	for _, group := range opt.ParamGroups() {
		for _, t := range group.Params() {
			if !of[uintptr(*t.T)] {
				return false
			}
		}
	}
	return true
}

// Writing ------------------------------------------------------------------------------------------

// writeFolder saves a checkpoint of sharded models, with all ranks. rest is all that is whole, of rank 0.
func (r *run[B]) writeFolder(name string, at position, rest func() (gotorch.Dict, error)) error {
	state := checkpoint.State{}
	var loop gotorch.Dict
	var failed error
	err := gotorch.Try0(func() {
		for _, p := range r.parts {
			v, err := r.inFolder(p, false)
			if err != nil {
				failed = err
				return
			}
			switch {
			case v != nil:
				state[p.key()] = v
			case !r.ranks.follows():
				loop = append(loop, gotorch.DictItem{Key: p.key(), Value: p.state()})
			}
		}
		if !r.ranks.follows() {
			var mine gotorch.Dict
			mine, failed = rest()
			state["loop"] = gotorch.Tuple{append(loop, mine...)}
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if gradients := r.unsynced(at); len(gradients) > 0 {
		mine := checkpoint.State{}
		for name, g := range gradients {
			defer g.Close()
			mine[name] = distributed.Shard{Local: g, Shape: g.Shape(), Offsets: make([]int64, g.Dim())}
		}
		state["gradients"] = checkpoint.State{strconv.Itoa(r.ranks.group.Rank()): mine}
	}
	return r.together(func(g *distributed.Group) error {
		return checkpoint.Save(filepath.Join(r.checkpoints.folder, name), state, checkpoint.SaveOptions{Group: g})
	})
}

// unsynced are gradients that Accumulate has added up and nobody has averaged.
func (r *run[B]) unsynced(at position) nn.StateDict {
	if sharded := r.sharded(); sharded != nil && !r.step.Updated && at.taken > 0 {
		return sharded.UnsyncedGradients()
	}
	return nil
}

// Folders ------------------------------------------------------------------------------------------

var checkpointFolder = regexp.MustCompile(`^step-(\d+)$`)

func folderOf(step int) string { return fmt.Sprintf("step-%08d", step) }

// metadata is the file of a checkpoint's folder that is written last.
const metadata = ".metadata"

func isComplete(folder string) bool {
	f, err := os.Stat(filepath.Join(folder, metadata))
	return err == nil && f.Mode().IsRegular()
}

var partOfFolder = regexp.MustCompile(`^__\d+_\d+\.distcp$`)

// removeFolder removes a checkpoint's folder, and nothing in it that is none of the checkpoint's.
func removeFolder(folder string) error {
	if err := os.Remove(filepath.Join(folder, metadata)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	for _, e := range entries {
		if partOfFolder.MatchString(e.Name()) {
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	os.Remove(folder) // unless something else is in it
	return nil
}

// Reading ------------------------------------------------------------------------------------------

// source is a checkpoint that is read: a file, or a folder.
type source struct {
	dict   gotorch.Dict // what is whole
	folder string       // where the rest is; "" for a file
}

func openSource(path string) (source, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		var loop gotorch.Tuple
		if err := checkpoint.Load(path, checkpoint.State{"loop": &loop}); errors.Is(err, gotorch.KeyError) {
			return source{}, fmt.Errorf("train: %s is a folder of torch.distributed.checkpoint, but no checkpoint of a train.Loop: read it with package distributed/checkpoint: %w", path, err)
		} else if err != nil {
			return source{}, err
		}
		s := source{folder: path}
		if len(loop) == 1 {
			s.dict, _ = loop[0].(gotorch.Dict)
		}
		return s, nil
	}
	value, err := gotorch.Load(path)
	if err != nil {
		return source{}, err
	}
	dict, _ := value.(gotorch.Dict)
	return source{dict: dict}, nil
}

// loadPart sets a part to what a checkpoint says.
func (l *LoopOf[B]) loadPart(p part, from source) error {
	whole, is := from.dict.Get(p.key()).(gotorch.Dict)
	if !is {
		if from.folder == "" {
			return fmt.Errorf("it has no dict %s", p.key())
		}
		to, err := l.inFolder(p, true)
		if err != nil {
			return err
		}
		return checkpoint.Load(from.folder, checkpoint.State{p.key(): to})
	}
	switch v := p.value.(type) {
	case nn.Modular:
		state, err := stateOf(whole)
		if err != nil {
			return err
		}
		if state, err = ownPart(v, state); err != nil {
			return err
		}
		return v.LoadStateDict(state)
	case optim.Optimizer:
		owner, err := l.ownerOf(p)
		if err != nil {
			return err
		}
		if owner != nil {
			return owner.LoadFullOptimStateDict(v, whole)
		}
	}
	return p.value.(Stateful).LoadStateDict(whole)
}

// ownPart returns of a state with whole tensors what a rank has of them.
func ownPart(model nn.Modular, whole nn.StateDict) (nn.StateDict, error) {
	shards, names := shardsOf(model)
	if shards == nil {
		return whole, nil
	}
	wrong := &nn.StateDictError{Module: fmt.Sprintf("%T", model)}
	state := nn.StateDict{}
	seen := map[string]bool{}
	for name, as := range names {
		t, is := whole[as]
		if !is {
			continue // which LoadStateDict says
		}
		seen[as] = true
		shard, is := shards[name]
		switch {
		case !is:
			state[name] = t
		case !slices.Equal(t.Shape(), shard.Shape):
			wrong.Mismatched = append(wrong.Mismatched, nn.Mismatch{Name: as, Want: shard.Shape, Got: t.Shape()})
		default:
			state[name] = t.Narrow(0, shard.Offsets[0], shard.Local.Size(0))
		}
	}
	if len(wrong.Mismatched) > 0 {
		slices.SortFunc(wrong.Mismatched, func(a, b nn.Mismatch) int { return strings.Compare(a.Name, b.Name) })
		return nil, wrong
	}
	for name, t := range whole {
		if !seen[name] {
			state[name] = t
		}
	}
	return state, nil
}

// namedParameters are those of the loop's model, with whole shapes.
func (r *run[B]) namedParameters() (names []string, shapes [][]int64) {
	model := r.model
	shards := map[string]distributed.Shard{}
	switch m := model.(type) {
	case *distributed.DistributedDataParallel:
		model = m.Net
	case *distributed.FullySharded:
		model = m.Net
		for _, pair := range m.ShardedStateDict() {
			if shard, is := pair.Value.(distributed.Shard); is {
				shards[pair.Key.(string)] = shard
			}
		}
	}
	for name, p := range model.NamedParameters() {
		shape := p.Shape()
		if shard, is := shards[name]; is {
			shape = shard.Shape
		}
		names, shapes = append(names, name), append(shapes, shape)
	}
	return names, shapes
}

// gradientsOf returns the gradients that a rank had added up amid Accumulate, one for each parameter; nil where there were none.
// state is what the checkpoint has of the rank.
func (r *run[B]) gradientsOf(rank int, state gotorch.Dict, from source) ([]any, error) {
	gradients, _ := state.Get("gradients").([]any)
	dtypes, sharded := state.Get("unsynced").(gotorch.Dict)
	if gradients == nil && !sharded {
		return nil, nil
	}
	wrong := errors.New("its gradients are of another model")
	if r.model == nil {
		return nil, wrong
	}
	names, shapes := r.namedParameters()
	if !sharded {
		if len(gradients) != len(names) {
			return nil, wrong
		}
		for i, g := range gradients {
			if g, is := g.(gotorch.Tensor); is && g.T != nil && !slices.Equal(g.Shape(), shapes[i]) {
				return nil, wrong
			}
		}
		return gradients, nil
	}
	gradients = make([]any, len(names))
	shards := checkpoint.State{}
	for name, like := range dtypes.All() {
		i := slices.Index(names, fmt.Sprint(name))
		like, is := like.(gotorch.Tensor)
		if i < 0 || !is {
			return nil, wrong
		}
		g := gotorch.Empty(shapes[i], gotorch.TensorOptions{DType: like.DType()})
		gradients[i] = g
		shards[names[i]] = distributed.Shard{Local: g, Shape: shapes[i], Offsets: make([]int64, len(shapes[i]))}
	}
	if from.folder == "" {
		return nil, errors.New("it is a file, and has gradients of a folder")
	}
	return gradients, checkpoint.Load(from.folder, checkpoint.State{"gradients": checkpoint.State{strconv.Itoa(rank): shards}})
}

// rank is this process's among those of the run.
func (r *run[B]) rank() int {
	if r.ranks == nil {
		return 0
	}
	return r.ranks.group.Rank()
}

// shardState is what a rank of a sharded model has of its own: its buffers, of which the checkpoint itself has rank 0's, and which
// gradients the folder has of it.
func (r *run[B]) shardState(at position) (dict gotorch.Dict) {
	var buffers gotorch.Dict
	for name, b := range r.sharded().Net.NamedBuffers() {
		buffers = append(buffers, gotorch.DictItem{Key: name, Value: b.Detach()})
	}
	if buffers != nil && r.rank() > 0 {
		dict = append(dict, gotorch.DictItem{Key: "buffers", Value: buffers})
	}
	var unsynced gotorch.Dict
	gradients := r.unsynced(at)
	for _, name := range gradients.Names() {
		unsynced = append(unsynced, gotorch.DictItem{Key: name, Value: gotorch.Empty([]int64{0}, gotorch.TensorOptions{DType: gradients[name].DType()})})
		gradients[name].Close()
	}
	if unsynced != nil {
		dict = append(dict, gotorch.DictItem{Key: "unsynced", Value: unsynced})
	}
	return dict
}

// loadShardState gives a rank its buffers, if it was there.
func (r *run[B]) loadShardState(own gotorch.Dict, same bool) error {
	buffers, is := own.Get("buffers").(gotorch.Dict)
	if r.sharded() == nil || !is || !same {
		return nil
	}
	for name, b := range r.sharded().Net.NamedBuffers() {
		t, is := buffers.Get(name).(gotorch.Tensor)
		if !is || !slices.Equal(t.Shape(), b.Shape()) {
			return fmt.Errorf("its buffers are of another model: %s", name)
		}
		gotorch.NoGrad(func() { b.Copy_(t) })
	}
	return nil
}

// setGradients has the model go on with gradients that were added up.
func (r *run[B]) setGradients(gradients []any) error {
	sharded := r.sharded()
	if sharded == nil {
		for i, p := range r.model.Parameters() {
			if g, is := gradients[i].(gotorch.Tensor); is && g.T != nil {
				p.SetGrad(g.To(p.Device(), p.DType()))
			}
		}
		return nil
	}
	names, _ := r.namedParameters()
	state := nn.StateDict{}
	for i, name := range names {
		if g, is := gradients[i].(gotorch.Tensor); is && g.T != nil {
			state[name] = g
		}
	}
	return sharded.LoadUnsyncedGradients(state)
}

// zeroGrad has no parameter have a gradient, and none that was added up.
func (r *run[B]) zeroGrad() {
	r.opt.ZeroGrad()
	if sharded := r.sharded(); sharded != nil {
		_ = sharded.LoadUnsyncedGradients(nil)
	}
}

// Gradients and losses that are not finite ----------------------------------------------------------

// badLoss returns the error of a loss that is not finite, of any rank. Of a sharded model all ranks look for the cause, as they compute
// with it together.
func (r *run[B]) badLoss(loss gotorch.Tensor, restore func()) error {
	sharded := r.sharded()
	if sharded == nil {
		return r.agreed(r.checkLoss(loss, restore))
	}
	bad, err := r.anyStops(!finite.All(loss))
	if err != nil || !bad {
		return err
	}
	restore()
	name, _ := nonFiniteParameter(r.model)
	var names []string
	err = r.together(func(g *distributed.Group) (err error) {
		names, err = distributed.AllGatherObject(g, name)
		return err
	})
	if err != nil {
		return err
	}
	parameter := ""
	for _, n := range names {
		parameter = cmp.Or(parameter, n)
	}
	cause, class, found := "", "", false
	batch, paired := any(r.step.Batch).(data.Pair)
	if parameter == "" && paired && r.pairLoss != nil {
		cause, class, found = nn.FirstNonFinite(r.model, func(copied nn.Modular) { nn.Call(copied.(nn.Layer), batch.Input) })
	}
	if finite.All(loss) {
		return r.agreed(nil)
	}
	e := &NonFiniteError{Epoch: r.step.Epoch, Step: r.step.Number + 1, Loss: valueOf(loss), Part: NonFiniteLoss}
	switch {
	case parameter != "":
		e.Part, e.Name = NonFiniteParameter, parameter
	case paired && r.pairLoss != nil && !finite.All(batch.Input):
		e.Part = NonFiniteInput
	case paired && r.pairLoss != nil && !finite.All(batch.Target):
		e.Part = NonFiniteTarget
	case found:
		e.Part, e.Name, e.Class = NonFiniteModule, cause, class
	}
	return r.agreed(e)
}

// badGradients returns the error of gradients that are not finite, of which a sharded model has parts on all ranks.
func (r *run[B]) badGradients(loss gotorch.Tensor) error {
	mine := r.checkGradients(loss)
	if r.sharded() == nil {
		return r.agreed(mine)
	}
	bad, err := r.anyStops(mine != nil)
	if err != nil || !bad {
		return err
	}
	e := &NonFiniteError{Epoch: r.step.Epoch, Step: r.step.Number, Loss: valueOf(loss), Part: NonFiniteGradient}
	var names []string
	if mine != nil {
		names = mine.Gradients
	}
	err = r.together(func(g *distributed.Group) error {
		all, err := distributed.AllGatherObject(g, names)
		if err != nil {
			return err
		}
		for name := range r.model.NamedParameters() {
			if slices.ContainsFunc(all, func(of []string) bool { return slices.Contains(of, name) }) {
				e.Gradients = append(e.Gradients, name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	e.Name = e.Gradients[0]
	r.told = true // all ranks have it
	return e
}

// wholeOf returns the tensor of which a rank has a part like shard; all ranks must call it.
func (r *run[B]) wholeOf(t gotorch.Tensor, shard distributed.Shard) gotorch.Tensor {
	g := r.ranks.group
	ranks := int64(g.Size())
	row, of := int64(1), gotorch.TensorOptions{DType: t.DType(), Device: t.Device()}
	for _, size := range shard.Shape[1:] {
		row *= size
	}
	each := (shard.Shape[0] + ranks - 1) / ranks * row
	all := gotorch.Zeros([]int64{ranks * each}, of)
	if each > 0 {
		mine := gotorch.Zeros([]int64{each}, of)
		mine.Narrow(0, 0, t.Numel()).Copy_(t.Detach().Reshape([]int64{-1}))
		g.AllGatherIntoTensor(all, mine)
	}
	return all.Narrow(0, 0, shard.Shape[0]*row).View(shard.Shape)
}

// Validation ---------------------------------------------------------------------------------------

// evaluate is [Evaluate] of the run's model, of which each rank looks at a part of the set. All ranks call the model equally often,
// as it may have to exchange what it computes with.
func (r *run[B]) evaluate(set data.Dataset[data.Pair], metrics []Metric) ([]Value, error) {
	if r.ranks == nil {
		return Evaluate(r.ctx, r.model.(nn.Layer), set, metrics...)
	}
	model, net, sync := r.model, nn.Modular(nil), func() {}
	switch m := r.model.(type) {
	case *distributed.DistributedDataParallel:
		model, net, sync = m.Net, m.Net, m.SyncBuffers
	case *distributed.FullySharded:
		net, sync = m.Net, m.SyncBuffers
	}
	if _, is := net.(nn.Layer); !is {
		return nil, &gotorch.Error{Op: "train.Validate", Kind: gotorch.TypeError, Msg: fmt.Sprintf("%T has no Forward of one tensor", net)}
	}
	layer := model.(nn.Layer)
	err := r.together(func(g *distributed.Group) error {
		sync()
		sizes, err := distributed.AllGatherObject(g, set.Len())
		for rank, n := range sizes {
			if n != sizes[0] && err == nil { // an error of all
				err = &RankError{Rank: rank, Msg: fmt.Sprintf("validates with %d samples, and rank 0 with %d: all must have the same set", n, sizes[0])}
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	rank, ranks := r.ranks.group.Rank(), r.ranks.group.Size()
	var mine []int
	for i := rank; i < set.Len(); i += ranks {
		mine = append(mine, i)
	}
	own := numEvaluations(len(mine))
	if own < numEvaluations((set.Len()+ranks-1)/ranks) { // its batches are full: one more is of one sample, which is not counted
		mine = append(mine, 0)
	}
	all := newSums(metrics)
	round := 0
	// All ranks come to the end of the epoch before they stop.
	err = eachEvaluation(context.WithoutCancel(r.ctx), layer, data.Subset(set, mine), func(batch data.Pair) error {
		if _, err := r.agree(goesOn); err != nil {
			return err
		}
		counted := metrics
		if round++; round > own {
			counted = nil
		}
		r.inStep = true // others may be waiting within the model
		return all.add(layer, batch, counted, func() { r.inStep = false })
	})
	if err != nil {
		return nil, err
	}
	total := newSums(metrics)
	err = r.together(func(g *distributed.Group) error {
		of, err := distributed.AllGatherObject(g, all)
		if err != nil {
			return err
		}
		for _, one := range of {
			for i := range metrics {
				total.Sums[i] += one.Sums[i]
				total.Counts[i] += one.Counts[i]
			}
		}
		return nil
	})
	if err != nil { // what is not of all ranks is nothing to record
		return nil, err
	}
	return total.values(metrics), nil
}
