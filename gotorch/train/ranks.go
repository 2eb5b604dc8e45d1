package train

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/regular"
)

// Several processes that train one model.

// Distributed has the ranks of g go through the run together: each has its own batches, and all have the same model. All
// of them must make the loop in the same way, and call Run with the same limit.
//
//	world, err := distributed.Init(ctx)
//	...
//	model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: world})
//	loop := train.NewLoop(model, optim.SGD(model.Parameters(), ...), nn.CrossEntropyLoss())
//	loop.Distributed(world)
//	loop.Progress(os.Stderr)
//	loop.Checkpoints("runs/a", train.CheckpointsOptions{Resume: true})
//	order := data.DistributedSampler(set, world.Size(), world.Rank())
//	loop.Run(ctx, data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Sampler: order}), train.Epochs(5))
//
// The model may also be one by distributed.FullyShard, of which each rank has a part; see below.
//
// Rank 0 alone shows progress, writes logs and saves. What is logged of a step is rank 0's; the history, whose losses are
// means over the ranks, is the same on all ranks after each epoch and checkpoint. [Validate] has each rank look at a part of
// the set, and records what all have found. What hooks of your own record of an epoch is rank 0's. Between two changes of
// parameters that [LoopOf.Accumulate] takes together gradients are not exchanged.
//
// Checkpoints are of the model within DataParallel, and have the random numbers and the place in the data of each rank.
// All ranks go on from rank 0's file, which the others need not see. The job may have another number of ranks then. Where the
// batches are a data.Loader's whose Sampler is a data.DistributedSampler, what is left of an epoch's samples is dealt out among the
// new ranks (see [data.Loader.LoadRanks]), so that the epoch has each sample once; gradients that Accumulate had added up count as
// they would have. With other batches, or where samples were left out because they failed, an epoch that was not over begins again,
// with the parameters as they were.
//
// A checkpoint of a sharded model is a folder in torch.distributed.checkpoint's format, into which each rank writes its part: a folder that
// all ranks must see. Its keys are model_state_dict, optimizer_state_dict with names for parameters, and loop, which has all that is not
// sharded. A job of any number of ranks goes on from it, with FullyShard, DataParallel or one process, and a sharded one from their files. Each
// rank's buffers are its own, and [Validate] goes by rank 0's. Its forward passes are those of all ranks: who calls the model in a hook does so on all
// ranks, equally often; [Validate] does. Gradients of steps that Accumulate takes together are whole on each rank until they are averaged. An
// optimiser has parameters of one sharded model; one for two is a NotImplementedError of the run.
//
// Where a rank's context is cancelled all stop after the next step, save, and have an error that is [context.Canceled], or
// what ended the context. Where a hook, a batch or a file of one rank fails, the others get a [*RankError]. A rank whose
// step itself fails must leave, by closing the group or ending the process: only then do the others, which wait for it,
// get a distributed.NetworkError.
//
// The sampler of a data.Loader is told the epoch, if it has a method SetEpoch.
//
// It panics with a NotImplementedError if a rank is a process of Python; with a TypeError if g is nil, if a loop by NewLoop or
// NewLossLoop has a model that neither distributed.DataParallel nor distributed.FullyShard has made, which each rank would train for
// itself, and for a ZeroRedundancyOptimizer of a sharded one; and with a ValueError if a model is sharded among another group.
func (l *LoopOf[B]) Distributed(g *distributed.Group) {
	const op = "train.LoopOf.Distributed"
	if g == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the group is nil: this process is not in it"})
	}
	if !g.AllGo() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.NotImplementedError, Msg: fmt.Sprintf(
			"there are ranks of Python in %v, which have no such loop: start all ranks with this program, or write the loop yourself", g)})
	}
	if l.model != nil {
		switch model := l.model.(type) {
		case *distributed.DistributedDataParallel:
			for i := range l.parts {
				if l.parts[i].value == l.model {
					l.parts[i].value = model.Net
				}
			}
		case *distributed.FullySharded:
			if _, is := l.opt.(*distributed.ZeroRedundancy); is {
				panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the optimiser is a ZeroRedundancyOptimizer, and of a sharded model each rank has its own part of all states: give NewLoop the optimiser itself"})
			}
		default:
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf(
				"the model is a %T, which each rank would train for itself: give NewLoop what distributed.DataParallel or distributed.FullyShard returns", l.model)})
		}
	}
	for _, sharded := range l.shardedIn() {
		if sharded.Group() != g {
			panic(&gotorch.Error{Op: op, Kind: gotorch.ValueError, Msg: fmt.Sprintf("the model is sharded among %v, and the loop is of %v", sharded.Group(), g)})
		}
	}
	l.ranks = &ranks{group: g}
}

// RankError is the error of a run that ended because of another rank.
type RankError struct {
	Rank  int    // in the group
	Msg   string // what is the matter with it
	Cause error  // context.Canceled where it was cancelled; else nil
}

// Error says which rank, and what is the matter with it.
func (e *RankError) Error() string { return fmt.Sprintf("rank %d %s", e.Rank, e.Msg) }

// Unwrap returns Cause.
func (e *RankError) Unwrap() error { return e.Cause }

// ranks is nil for a loop of one process.
type ranks struct{ group *distributed.Group }

// follows reports whether another rank writes what there is to write.
func (rs *ranks) follows() bool { return rs != nil && rs.group.Rank() > 0 }

// signal is what a rank tells the others before each step, and before all else that they do together: so that what one
// rank has to say never meets what others exchange.
type signal int64

const (
	goesOn    signal = iota
	isOver           // its batches are
	stops            // a hook has returned ErrStop
	cancelled        // its context is
	hasFailed
)

// agree exchanges signals, and returns the greatest. The error is a *RankError where a rank has failed, is at another step, or
// does not agree about details.
func (r *run[B]) agree(mine signal, details ...int) (greatest signal, err error) {
	const words = 5
	all := make([]int64, 0, words*r.ranks.group.Size())
	err = gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			said := make([]int64, words)
			said[0], said[1], said[2] = int64(mine), int64(r.step.Number), int64(r.at.epoch)
			for i, d := range details {
				said[3+i] = int64(d)
			}
			t := gotorch.Empty([]int64{int64(cap(all))}, gotorch.TensorOptions{DType: gotorch.Int64})
			r.ranks.group.AllGatherIntoTensor(t, gotorch.FromSlice(said))
			all = gotorch.ToSlice[int64](t)
		})
	})
	if err != nil {
		r.lost = true
		return 0, err
	}
	me := r.ranks.group.Rank()
	fail := func(rank int, format string, values ...any) (signal, error) {
		r.told = true // all ranks have such an error
		return 0, &RankError{Rank: rank, Msg: fmt.Sprintf(format, values...)}
	}
	for rank := range r.ranks.group.Size() {
		if signal(all[rank*words]) != hasFailed {
			continue
		}
		why := ""
		if rank == me {
			why = fmt.Sprint(r.failure)
		}
		if why, err = distributed.BroadcastObject(r.ranks.group, why, rank); err != nil {
			r.lost = true
			return 0, err
		}
		if rank != me {
			return fail(rank, "has failed: %s", why)
		}
		break
	}
	over := 0
	for rank := range r.ranks.group.Size() {
		said, ours := all[rank*words:(rank+1)*words], all[me*words:(me+1)*words]
		s := signal(said[0])
		if s > greatest {
			greatest = s
			r.stopper = rank
		}
		switch {
		case said[1] != ours[1] || said[2] != ours[2]:
			return fail(rank, "has done %d steps and is in epoch %d, and rank %d has done %d and is in epoch %d", said[1], said[2], me, ours[1], ours[2])
		case said[3] != ours[3] || said[4] != ours[4]:
			return fail(rank, "has %d batches in an epoch and %d steps in the run, and rank %d has %d and %d: data.DistributedSampler gives all as many",
				said[3], said[4], me, ours[3], ours[4])
		case s == isOver:
			over++
		}
	}
	if over > 0 && over < r.ranks.group.Size() && greatest < hasFailed {
		for rank := range r.ranks.group.Size() {
			if signal(all[rank*words]) == isOver {
				return fail(rank, "has no more batches in epoch %d, and others have: data.DistributedSampler gives all as many", r.at.epoch)
			}
		}
	}
	return greatest, nil
}

// sync is agree before a step or an epoch. It returns whether the run is to end after the step.
func (r *run[B]) sync(mine signal, details ...int) (end bool, err error) {
	if r.ranks == nil {
		return false, nil
	}
	if mine == goesOn && r.ctx.Err() != nil {
		mine = cancelled
	}
	greatest, err := r.agree(mine, details...)
	if err == nil && greatest == cancelled {
		r.stopped = true
	}
	return r.stopped, err
}

// canceled returns why the run is to end here, if it is.
func (r *run[B]) canceled() error {
	if r.ranks == nil {
		return canceled(r.ctx)
	}
	if !r.stopped {
		return nil
	}
	if err := canceled(r.ctx); err != nil {
		return err
	}
	return &RankError{Rank: r.stopper, Msg: "was cancelled", Cause: context.Canceled}
}

// tell is called where this rank's run ends with an error that the others do not know of.
func (r *run[B]) tell(err error) {
	r.failure = err
	if r.ranks == nil || r.told || r.lost || r.inStep || r.stopped {
		return
	}
	_, _ = r.agree(hasFailed)
}

// agreed returns an error within a step that all ranks then end with: theirs, or that another has one.
func (r *run[B]) agreed(bad *NonFiniteError) error {
	var mine error
	s := goesOn
	if bad != nil {
		mine, s, r.failure = bad, hasFailed, bad
	}
	if r.ranks == nil {
		return mine
	}
	_, err := r.agree(s)
	if mine != nil {
		r.told = true
		return mine
	}
	return err
}

// anyStops reports whether a hook of any rank has returned ErrStop, or what else mine says.
func (r *run[B]) anyStops(mine bool) (bool, error) {
	if r.ranks == nil {
		return mine, nil
	}
	s := goesOn
	if mine {
		s = stops
	}
	greatest, err := r.agree(s)
	return greatest == stops, err
}

// together does what all ranks do, after they have agreed to. An error of it leaves the others waiting.
func (r *run[B]) together(do func(g *distributed.Group) error) error {
	if _, err := r.agree(goesOn); err != nil {
		return err
	}
	var err error
	if panicked := gotorch.Try0(func() { err = do(r.ranks.group) }); panicked != nil {
		err = panicked
	}
	r.lost = r.lost || err != nil
	return err
}

// report is what a rank has to say for the history and for a checkpoint.
type report struct {
	Losses []float64
	Series map[string][]float64
	State  []byte
}

// share makes what this rank has recorded since the last time the mean over all ranks, and returns the states of all, if
// they are wanted.
func (r *run[B]) share(states bool, at position) (all []any, err error) {
	r.read()
	if r.ranks == nil {
		return nil, nil
	}
	h := r.history
	mine := report{Losses: after(h.Losses, r.shared), Series: map[string][]float64{}}
	for name, values := range h.Series {
		mine.Series[name] = after(values, r.shared)
	}
	if states {
		for _, p := range r.parts {
			if shared, is := p.value.(interface{ Consolidate(dst int) error }); is { // distributed.ZeroRedundancyOptimizer
				if err := r.together(func(*distributed.Group) error { return shared.Consolidate(0) }); err != nil {
					return nil, fmt.Errorf("%s: %w", p.name, err)
				}
			}
		}
		if model, is := r.model.(*distributed.DistributedDataParallel); is {
			if err := r.together(func(*distributed.Group) error { r.buckets = model.Buckets(); return nil }); err != nil {
				return nil, err
			}
		}
		if mine.State, err = encoded(r.rankState(at)); err != nil {
			return nil, err
		}
	}
	err = r.together(func(g *distributed.Group) error {
		reports, err := distributed.AllGatherObject(g, mine)
		if err != nil {
			return err
		}
		var losses [][]float64
		series := map[string][][]float64{}
		for _, one := range reports {
			losses = append(losses, one.Losses)
			for name, values := range one.Series {
				series[name] = append(series[name], values)
			}
			all = append(all, one.State)
		}
		h.Losses = append(h.Losses[:min(r.shared, len(h.Losses))], means(losses)...)
		for name, values := range series {
			if h.Series == nil {
				h.Series = map[string][]float64{}
			}
			old := h.Series[name]
			for len(old) < r.shared { // another rank alone has it
				old = append(old, math.NaN())
			}
			h.Series[name] = append(old[:r.shared], means(values)...)
		}
		r.shared = r.step.Number
		return nil
	})
	return all, err
}

func after(values []float64, n int) []float64 { return values[min(n, len(values)):] }

// means returns the means of what is there; NaN is nothing.
func means(of [][]float64) []float64 {
	var result []float64
	for i := 0; ; i++ {
		sum, n, there := 0.0, 0, false
		for _, values := range of {
			if i < len(values) {
				there = true
				if !math.IsNaN(values[i]) {
					sum, n = sum+values[i], n+1
				}
			}
		}
		if !there {
			return result
		}
		result = append(result, sum/float64(n))
	}
}

func encoded(dict gotorch.Dict) ([]byte, error) {
	var b bytes.Buffer
	err := gotorch.Encode(&b, "archive", dict)
	return b.Bytes(), err
}

// shareRecord makes rank 0's record of an epoch everybody's.
func (r *run[B]) shareRecord(record *EpochRecord) error {
	if r.ranks == nil {
		return nil
	}
	return r.together(func(g *distributed.Group) (err error) {
		*record, err = distributed.BroadcastObject(g, *record, 0)
		return err
	})
}

// latest returns what the run goes on from: rank 0's latest checkpoint, and its path; "" where there is none.
func (r *run[B]) latest() (from source, path string, err error) {
	if !r.ranks.follows() {
		if path, err = LatestCheckpoint(r.checkpoints.folder); err == nil && path != "" && !r.checkpoints.goOn {
			err = fmt.Errorf("train: %s has checkpoints of a run already: give Checkpoints the option Resume to go on from %s, or another folder",
				r.checkpoints.folder, filepath.Base(path))
		}
	}
	if err != nil {
		return from, path, err
	}
	if r.ranks == nil || r.ranks.group.Size() == 1 {
		if path != "" {
			from, err = openSource(path)
		}
		return from, path, err
	}
	type file struct {
		Name   string
		Folder bool // which all ranks see
		Size   int64
		Sum    [sha256.Size]byte
	}
	var theirs file
	if path != "" {
		theirs.Name = filepath.Base(path)
		if theirs.Folder = isComplete(path); !theirs.Folder {
			if theirs.Size, theirs.Sum, err = sumOf(path); err != nil {
				return from, path, err
			}
		}
	}
	var content []byte
	err = r.together(func(g *distributed.Group) error {
		if theirs, err = distributed.BroadcastObject(g, theirs, 0); err != nil || theirs.Name == "" {
			return err
		}
		path = filepath.Join(r.checkpoints.folder, theirs.Name)
		if theirs.Folder {
			return nil
		}
		size, sum, err := sumOf(path)
		missing := err != nil || size != theirs.Size || sum != theirs.Sum
		lack, err := distributed.AllGatherObject(g, missing)
		if err != nil || !slices.Contains(lack, true) {
			return err
		}
		content, err = broadcastFile(g, path, theirs.Size)
		if !missing {
			content = nil
		}
		return err
	})
	if err != nil || theirs.Name == "" {
		return from, "", err
	}
	if content == nil {
		from, err = openSource(path)
		return from, path, err
	}
	value, err := gotorch.Decode(bytes.NewReader(content), int64(len(content)))
	from.dict, _ = value.(gotorch.Dict)
	return from, path, err
}

func sumOf(path string) (size int64, sum [sha256.Size]byte, err error) {
	f, size, err := regular.Open(path)
	if err != nil {
		return 0, sum, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return 0, sum, err
	}
	return size, [sha256.Size]byte(h.Sum(nil)), nil
}

// broadcastFile gives all ranks what is in rank 0's file, in pieces.
func broadcastFile(g *distributed.Group, path string, size int64) ([]byte, error) {
	const piece = 64 << 20
	content := make([]byte, 0, size)
	var f io.Reader
	if g.Rank() == 0 {
		file, _, err := regular.Open(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		f = file
	}
	for at := int64(0); at < size; at += piece {
		part := make([]byte, min(piece, size-at))
		if f != nil {
			if _, err := io.ReadFull(f, part); err != nil {
				return nil, err
			}
		}
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			t := gotorch.FromSlice(part)
			g.Broadcast(t, 0)
			content = append(content, gotorch.ToSlice[byte](t)...)
		})
	}
	return content, nil
}

// ofRank returns what a checkpoint has of this rank, nil if there was none, and whether the job has as many ranks as it had then.
func (r *run[B]) ofRank(train gotorch.Dict) (mine gotorch.Dict, same bool, err error) {
	states, _ := train.Get("ranks").([]any)
	rank, size := 0, 1
	if r.ranks != nil {
		rank, size = r.ranks.group.Rank(), r.ranks.group.Size()
	}
	same = len(states) == size || len(states) == 0 && size == 1
	switch {
	case rank == 0:
		return train, same, nil
	case rank >= len(states): // there was no such rank
		return nil, same, nil
	}
	mine, err = stateOfRank(states, rank)
	return mine, same, err
}

// ofAll returns what a checkpoint has of all ranks that there were.
func (r *run[B]) ofAll(train gotorch.Dict) (all []gotorch.Dict, err error) {
	all = []gotorch.Dict{train}
	states, _ := train.Get("ranks").([]any)
	for rank := 1; rank < len(states); rank++ {
		one, err := stateOfRank(states, rank)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func stateOfRank(states []any, rank int) (gotorch.Dict, error) {
	content, is := states[rank].([]byte)
	if !is {
		return nil, fmt.Errorf("the state of rank %d is a %T", rank, states[rank])
	}
	value, err := gotorch.Decode(bytes.NewReader(content), int64(len(content)))
	dict, is := value.(gotorch.Dict)
	if err == nil && !is {
		err = errors.New("it is no dict")
	}
	if err != nil {
		return nil, fmt.Errorf("the state of rank %d: %w", rank, err)
	}
	return dict, nil
}

// meanGradients returns the means of the gradients that n ranks had added up amid Accumulate; nil where there were none. It has those
// of two at a time.
func meanGradients(n int, of func(rank int) ([]any, error)) (sums []any, err error) {
	for rank := range n {
		gradients, err := of(rank)
		if err != nil {
			return nil, err
		}
		if sums == nil {
			sums = slices.Clone(gradients)
			continue
		}
		for i := range min(len(sums), len(gradients)) {
			sum, is := sums[i].(gotorch.Tensor)
			g, too := gradients[i].(gotorch.Tensor)
			switch {
			case is && too:
				sums[i] = sum.Add(g)
			case too:
				sums[i] = g
			}
		}
	}
	for i := range sums {
		if sum, is := sums[i].(gotorch.Tensor); is {
			sums[i] = sum.DivScalar(n)
		}
	}
	return sums, nil
}

// setEpoch tells the sampler which epoch is next, from 0.
func (r *run[B]) setEpoch() {
	if loader, is := r.batches.(interface{ SetEpoch(epoch int) }); is && r.ranks != nil {
		loader.SetEpoch(r.at.epoch - 1)
	}
}
