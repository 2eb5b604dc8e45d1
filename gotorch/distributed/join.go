package distributed

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// JoinOptions are the arguments of [Join] that have defaults, with PyTorch's names. All ranks need the same.
type JoinOptions struct {
	// Disable has Join do nothing but call its function: for ranks that have as many batches as each other.
	Disable bool
	// ThrowOnEarlyTermination ends the function on all ranks when the first rank has come to its end: Join returns an
	// [UnevenInputsError] on all of them, and parameters are as after the last step that all have taken.
	ThrowOnEarlyTermination bool
	// NoDivideByInitialWorldSize divides the gradients of [DataParallel] by the number of ranks that still train, and not by
	// that of all: late batches count for more then.
	NoDivideByInitialWorldSize bool
}

// Joinable is what ranks with different numbers of batches may use in [Join]: [DataParallel]'s and [ZeroRedundancyOptimizer]'s
// results, and what a program has of its own. In each step, before its own collectives, it calls [NotifyJoin].
//
// See https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html#torch.distributed.algorithms.Joinable
type Joinable interface {
	// JoinGroup is the group of its collectives.
	JoinGroup() *Group
	// JoinHook is called at the beginning of a Join, and says what a rank does when it has come to the end.
	JoinHook(opts JoinOptions) JoinHook
}

// JoinHook is what a rank does that has come to the end of its batches. Each may be nil.
//
// See https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html#torch.distributed.algorithms.JoinHook
type JoinHook struct {
	// Main begins the collectives that the others begin in a step, and is called as often as there are steps.
	Main func()
	// Post is called when all ranks have come to the end. last is whether this one is among the last.
	Post func(last bool)
}

// Join runs fn, in which ranks take steps, and not each rank as many: those that have come to the end of fn take part in the
// others' collectives until all have. Then all have the model of one that has taken all steps.
//
//	err := model.Join(func() error {
//		for batch, err := range batches {
//			if err != nil {
//				return err
//			}
//			opt.ZeroGrad()
//			loss(model.Forward(batch.Input), batch.Target).Backward()
//			opt.Step()
//		}
//		return nil
//	})
//
// All ranks of the group must call it, with the same joinables in the same order. Within it all that is called of them must be
// steps that change the model, and no evaluation. Where fn returns an error, Join returns it at once, and where fn panics it goes
// on; the others are not told then, and get an error when the group's time limit has passed.
//
// Else the error is that of a collective, an [UnevenInputsError] with [JoinOptions.ThrowOnEarlyTermination], and a ValueError
// where joinables are none or of several groups, or a Join of the group goes on already; a TypeError for nil, and for one that cannot
// be compared with ==.
//
// Ranks of Python may be in one, with the same arguments. A model of Python's remains in this mode after its
// join, until `model.join(enable=False)` is called.
//
// See https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html#torch.distributed.algorithms.Join.
func Join(joinables []Joinable, fn func() error, opts ...JoinOptions) (err error) {
	const op = "distributed.Join"
	opt := args.Option(opts)
	if len(joinables) == 0 {
		return args.ValueError(op, "there is nothing to join: give one joinable at least")
	}
	for i, j := range joinables {
		if j == nil || !reflect.TypeOf(j).Comparable() {
			return args.TypeError(op, "joinable %d is a %T, and must be a pointer or something else that can be compared", i, j)
		}
	}
	g := joinables[0].JoinGroup()
	for _, j := range joinables {
		if j.JoinGroup() != g {
			return args.ValueError(op, "the joinables are of several groups, and must be of one")
		}
	}
	if opt.Disable {
		return fn()
	}
	j := &joining{joinables: joinables, options: opt}
	if err := j.begin(op, g); err != nil {
		return err
	}
	defer j.end(g)
	// Also before steps: a hook may be of a model that has been closed.
	var hooks []JoinHook
	if err := gotorch.Try0(func() {
		for _, of := range joinables {
			hooks = append(hooks, of.JoinHook(opt))
		}
	}); err != nil {
		return err
	}
	if err := j.run(fn); err != nil {
		return err
	}
	return gotorch.Try0(func() { j.follow(op, g, hooks) })
}

// joining is a Join that goes on. The group's mutex is of what it has of it.
type joining struct {
	joinables []Joinable
	options   JoinOptions
}

func (j *joining) begin(op string, g *Group) error {
	if err := g.enter(op); err != nil {
		return err
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.joining != nil {
		return args.ValueError(op, "a Join of this group goes on already")
	}
	g.joining = j
	return nil
}

func (j *joining) end(g *Group) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.joining = nil
}

// run calls fn, and returns its error or that of NotifyJoin.
func (j *joining) run(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			e, is := v.(error)
			if !is || !errors.Is(e, UnevenInputsError) {
				panic(v)
			}
			err = e
		}
	}()
	return fn()
}

// joinWarning is after how many steps of others alone Python warns, too.
const joinWarning = 1000

// follow takes part in the steps of others until all have come to the end.
func (j *joining) follow(op string, g *Group, hooks []JoinHook) {
	last := true
	for steps := 0; ; steps++ {
		if steps == joinWarning+1 {
			gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: fmt.Sprintf("Detected uneven input skew of greater than %d. This means that rank %d has at least %d "+
				"fewer inputs than other currently-active ranks. This level of skew could lead to performance degradation during training.", joinWarning, g.Rank(), joinWarning)})
		}
		if g.count(op, 0) == 0 {
			break
		}
		if j.options.ThrowOnEarlyTermination {
			g.count(op, 1)
			panic(args.Errorf(op, UnevenInputsError, "rank %d has exhausted all inputs, and others have not", g.Rank()))
		}
		for _, hook := range hooks {
			if hook.Main != nil {
				hook.Main()
			}
		}
		last = false
	}
	for _, hook := range hooks {
		if hook.Post != nil {
			hook.Post(last)
		}
	}
}

// count adds up n of all ranks.
func (g *Group) count(op string, n float32) float32 {
	if err := g.enter(op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	work, t := g.countLocked(op, n)
	g.mutex.Unlock()
	work.must()
	return gotorch.Item[float32](t)
}

// countLocked begins count: the group is in use, and its mutex locked.
func (g *Group) countLocked(op string, n float32) (*Work, gotorch.Tensor) {
	t := gotorch.Full([]int64{1}, n)
	return g.beginLocked(op, t, Sum), t
}

// largestLocked returns the largest rank that is given, of -1 and more.
func (g *Group) largestLocked(op string, rank int) int {
	t := gotorch.FromSlice([]int64{int64(rank)})
	g.beginLocked(op, t, Max).must()
	return int(gotorch.Item[int64](t))
}

// NotifyJoin says that this rank takes a further step: a [Joinable] calls it before the collectives of a step. Only the first
// of a [Join]'s tells it to the others; it does nothing for others, and without a Join.
//
// It panics with an [UnevenInputsError] where another rank has come to the end, with [JoinOptions.ThrowOnEarlyTermination].
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.algorithms.join.html#torch.distributed.algorithms.Join.notify_join_context
func NotifyJoin(of Joinable) {
	const op = "distributed.NotifyJoin"
	g := of.JoinGroup()
	if err := g.enter(op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if j := g.joining; j != nil && j.joinables[0] == of {
		j.notifyLocked(op, g)
	}
}

// notifyLocked returns the collective in which ranks that have not come to the end count themselves.
func (j *joining) notifyLocked(op string, g *Group) *Work {
	work, _ := g.countLocked(op, 1)
	if j.options.ThrowOnEarlyTermination {
		ended, t := g.countLocked(op, 0)
		if ended.must(); gotorch.Item[float32](t) != 0 {
			panic(args.Errorf(op, UnevenInputsError, "another rank has exhausted its inputs"))
		}
	}
	return work
}

// Join is [Join] of this model alone.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.join.
func (d *DistributedDataParallel) Join(fn func() error, opts ...JoinOptions) error {
	return Join([]Joinable{d}, fn, opts...)
}

// JoinGroup returns the ranks that train together: see [Joinable].
func (d *DistributedDataParallel) JoinGroup() *Group { return d.group }

// JoinHook has this rank take part in the others' backward passes, with gradients of zero, and in the end have the model of one of
// those that trained longest: see [Joinable].
func (d *DistributedDataParallel) JoinHook(opts JoinOptions) JoinHook {
	const op = "distributed.Join"
	if d.reducer == nil {
		panic(args.ValueError(op, "the module was used after Close"))
	}
	return JoinHook{
		Main: func() {
			d.synced = d.followForward(op)
			if d.synced {
				// It calls hooks, which begin collectives of their own.
				c10dShadow(d.reducer)
			}
		},
		Post: func(last bool) {
			if err := d.group.enter(op); err != nil {
				panic(err)
			}
			defer d.group.inUse.RUnlock()
			d.group.mutex.Lock()
			defer d.group.mutex.Unlock()
			rank := -1
			if last {
				rank = d.group.rank
			}
			root := d.group.largestLocked(op, rank)
			c10dBroadcastCoalesced(d.group.handle, d.states(), broadcastBytes, root)
		},
	}
}

// followForward takes part in what others do before a forward pass, and returns whether they average gradients after it.
func (d *DistributedDataParallel) followForward(op string) bool {
	if err := d.group.enter(op); err != nil {
		panic(err)
	}
	defer d.group.inUse.RUnlock()
	d.group.mutex.Lock()
	defer d.group.mutex.Unlock()
	c10dReducerForward(d.reducer, false)
	if buffers := d.syncedBuffers(); len(buffers) > 0 {
		root := d.group.largestLocked(op, -1)
		c10dBroadcastCoalesced(d.group.handle, buffers, broadcastBytes, root)
	}
	work, t := d.group.countLocked(op, 0)
	work.must()
	return gotorch.Item[float32](t) != 0
}

// joinedLocked is the Join that the model is in, or nil.
func (d *DistributedDataParallel) joinedLocked() *joining {
	if j := d.group.joining; j != nil && slices.Contains(j.joinables, Joinable(d)) {
		return j
	}
	return nil
}

// JoinGroup returns the ranks that share the state out: see [Joinable].
func (z *ZeroRedundancy) JoinGroup() *Group { return z.group }

// JoinHook has this rank go on to change its own parameters: see [Joinable]. It does so by the gradients that it has, as Python's
// does: those of others come to it by a [Joinable] of the program's own, or not at all.
func (z *ZeroRedundancy) JoinHook(JoinOptions) JoinHook {
	return JoinHook{Main: func() { z.with(z.Optimizer.Step) }}
}
