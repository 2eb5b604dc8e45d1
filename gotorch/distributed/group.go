package distributed

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Group is processes that exchange tensors. Several goroutines may use one, as far as all ranks then call its collectives
// in the same order.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.ProcessGroup
type Group struct {
	world *world
	rank  int
	ranks []int // of the members, in the world
	name  string
	whole bool // it is the world's
	allGo bool // no rank is Python's

	timeoutMS atomic.Int64

	mutex   sync.Mutex // collectives begin one after the other
	inUse   sync.RWMutex
	joining *joining // or nil
	handle  ctorch.DistGroup
	closed  bool
	cleanup runtime.Cleanup
}

// world is what the groups of a process have in common.
type world struct {
	backend    Backend
	store      *Store
	languages  *Store // of the ranks: see keyOfGo
	rank, size int
	timeoutMS  int64

	mutex  sync.Mutex
	groups int // that were made, which names the next one
}

// nextName names the next group, as Python does.
func (w *world) nextName() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.groups++
	return strconv.Itoa(w.groups - 1)
}

// compare tells the other ranks of Go what the next group is, and refuses another one of the same name: libtorch would connect ranks of
// different groups.
func (w *world) compare(op, name string, ranks []int) error {
	mine := fmt.Sprint(ranks)
	said, err := w.languages.CompareSet("group "+name, nil, []byte(mine))
	if err != nil || string(said) == mine {
		return err
	}
	text := fmt.Sprintf("rank %d makes a group of ranks %s, and another rank one of %s: all ranks must make the same groups in the same order", w.rank, mine, said)
	_ = w.languages.Set(refusedGroup(name), []byte(text))
	return args.ValueError(op, "%s", text)
}

func refusedGroup(name string) string { return "refused group " + name }

// newGroup makes a group, of which this process is a rank.
func (w *world) newGroup(op, name string, ranks []int, ms int64, description string) (*Group, error) {
	rank := slices.Index(ranks, w.rank)
	opts := groupOptions{Backend: string(w.backend), Name: name, Description: description, TimeoutMS: ms}
	whole := description == "default_pg"
	if !whole {
		for _, r := range ranks {
			opts.Ranks = append(opts.Ranks, int64(r))
		}
	}
	handle, err := use(w.store, op, func(s ctorch.DistStore) (ctorch.DistGroup, error) {
		return c10dNewGroup(s, rank, len(ranks), opts)
	})
	if of, is := errors.AsType[*gotorch.Error](err); is && of.Kind == gotorch.RuntimeError && w.backend == Gloo {
		of.Kind = NetworkError // c10d's self test has passed
	}
	if err != nil {
		return nil, err
	}
	// All members have come, so their keys are there.
	keys := make([]string, len(ranks))
	for i, r := range ranks {
		keys[i] = keyOfGo(r)
	}
	allGo, err := w.languages.Check(keys...)
	if err != nil {
		ctorch.DistGroupFree(handle)
		return nil, err
	}
	g := &Group{world: w, rank: rank, ranks: ranks, name: name, whole: whole, allGo: allGo, handle: handle}
	g.timeoutMS.Store(ms)
	// Freeing one waits for what has begun.
	g.cleanup = runtime.AddCleanup(g, func(h ctorch.DistGroup) { go ctorch.DistGroupFree(h) }, handle)
	return g, nil
}

// Rank returns the number of this process in the group, from 0.
func (g *Group) Rank() int { return g.rank }

// Size returns how many ranks the group has.
func (g *Group) Size() int { return len(g.ranks) }

// Ranks returns the members, in order, by their ranks in the group that [Init] has returned.
func (g *Group) Ranks() []int { return slices.Clone(g.ranks) }

// AllGo reports whether all ranks of the group are processes of Go.
func (g *Group) AllGo() bool { return g.allGo }

// Store returns the keys that all ranks of the job share. It is closed with the group that [Init] has returned.
func (g *Group) Store() *Store { return g.world.store }

// String returns "rank 1 of 4", and of a group of some "rank 0 of 2 (ranks 1, 3 of 4)".
func (g *Group) String() string {
	s := fmt.Sprintf("rank %d of %d", g.rank, len(g.ranks))
	if g.whole {
		return s
	}
	return fmt.Sprintf("%s (ranks %v of %d)", s, g.ranks, g.world.size)
}

// GroupOptions are the arguments of [Group.New] that have defaults.
type GroupOptions struct {
	// Timeout is how long a collective waits for other ranks. Default: that of [Init].
	Timeout time.Duration
}

// New makes a group of some of the job's ranks, which are sorted. All ranks of the job must call it, in the same order
// as they make other groups; it waits for the members, no longer than the time limit. A process that is none of ranks gets nil, and no error.
//
// The error is a ValueError for ranks that are none, and where a rank of Go makes another group in its place; a [NetworkError],
// [TimeoutError] or [StoreError] where members did not come.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.new_group
func (g *Group) New(ranks []int, opts ...GroupOptions) (*Group, error) {
	const op = "Group.New"
	opt := args.Option(opts)
	w := g.world
	ms, err := milliseconds(op, opt.Timeout, time.Duration(w.timeoutMS)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	if len(ranks) == 0 {
		return nil, args.ValueError(op, "a group has one rank at least")
	}
	for i, r := range ranks {
		if r < 0 || r >= w.size {
			return nil, args.ValueError(op, "there is no rank %d among %d", r, w.size)
		}
		if i > 0 && r == ranks[i-1] {
			return nil, args.ValueError(op, "rank %d is there twice", r)
		}
	}
	name := w.nextName()
	if err := w.compare(op, name, ranks); err != nil || !slices.Contains(ranks, w.rank) {
		return nil, err
	}
	refused := make(chan error, 1)
	end, err := watch(op, w.languages, refusedGroup(name), func(err error) { refused <- err })
	if err != nil {
		return nil, err
	}
	defer end()
	return within(context.Background(), op, time.Duration(ms)*time.Millisecond, refused, func() string {
		return fmt.Sprintf("rank %d of %d was still waiting for the others of ranks %v", w.rank, w.size, ranks)
	}, func() (*Group, error) { return w.newGroup(op, name, ranks, ms, "undefined") })
}

// SetTimeout sets how long collectives that begin from now on wait for other ranks.
func (g *Group) SetTimeout(d time.Duration) error {
	const op = "Group.SetTimeout"
	ms, err := milliseconds(op, d, 0)
	if err != nil {
		return err
	}
	if err := g.enter(op); err != nil {
		return err
	}
	defer g.inUse.RUnlock()
	if err := c10dSetGroupTimeout(g.handle, ms); err != nil {
		return err
	}
	g.timeoutMS.Store(ms)
	return nil
}

// Close leaves the group: others that wait for this rank get an error. It waits for collectives that have begun. What
// was received stays valid.
func (g *Group) Close() error {
	g.inUse.Lock()
	defer g.inUse.Unlock()
	if g.closed {
		return nil
	}
	g.closed = true
	g.cleanup.Stop()
	ctorch.DistGroupFree(g.handle)
	if g.whole {
		return errors.Join(g.world.store.Close(), g.world.languages.Close())
	}
	return nil
}

// enter keeps the group from being closed until inUse is unlocked.
func (g *Group) enter(op string) error {
	if g == nil {
		return args.ValueError(op, "this process is not in the group")
	}
	g.inUse.RLock()
	if g.closed {
		g.inUse.RUnlock()
		return args.ValueError(op, "the group was used after Close")
	}
	return nil
}

// begin begins a collective. It panics with *gotorch.Error.
func (g *Group) begin(which ctorch.Collective, call call) *Work {
	if err := g.enter(call.Op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return newWork(call.Op, g, c10dBegin(g.handle, which, call))
}

// beginLocked begins an all-reduce: the group is in use, and its mutex locked.
func (g *Group) beginLocked(op string, t gotorch.Tensor, how ReduceOp) *Work {
	return newWork(op, g, c10dBegin(g.handle, ctorch.AllReduce, call{Op: op, Inputs: list(t), Reduce: int(how)}))
}

// checkRank panics for what is no rank of the group.
func (g *Group) checkRank(op, name string, rank int) {
	if g != nil && (rank < 0 || rank >= len(g.ranks)) {
		panic(args.ValueError(op, "%s is %d, and must be a rank of the group: 0 to %d", name, rank, len(g.ranks)-1))
	}
}
