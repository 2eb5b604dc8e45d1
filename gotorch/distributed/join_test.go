package distributed_test

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
)

func TestSmokeRanksWithFewerBatchesJoin(t *testing.T) {
	for _, remain := range []bool{false, true} {
		var ends [2]float32
		rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
			net := nn.Linear(1, 1, nn.LinearOptions{NoBias: true})
			gotorch.NoGrad(func() { net.Weight.Zero_() })
			model := distributed.DataParallel(net, distributed.DataParallelOptions{Group: g})
			defer model.Close()
			opt := optim.SGD(model.Parameters(), optim.SGDOptions{LR: 1})
			step := func() {
				opt.ZeroGrad()
				model.Forward(gotorch.Ones([]int64{1, 1})).Sum().Backward()
				opt.Step()
			}
			testhelp.Must(t, model.Join(func() error {
				for range 1 + 2*g.Rank() {
					step()
				}
				return nil
			}, distributed.JoinOptions{NoDivideByInitialWorldSize: remain}))
			ends[g.Rank()] = gotorch.Item[float32](net.Weight)
			// It is over: one rank alone may evaluate, and all may train on.
			if g.Rank() == 0 {
				gotorch.NoGrad(func() { model.Forward(gotorch.Ones([]int64{1, 1})) })
			}
			step()
		})
		want := float32(-2) // one step by 1, and two by 1/2
		if remain {
			want = -3
		}
		if ends != [2]float32{want, want} {
			t.Error(remain, ends)
		}
	}
}

// counted is a Joinable of a program's own.
type counted struct {
	g           *distributed.Group
	mains       int
	post        []bool
	fails, sums bool
}

func (c *counted) JoinGroup() *distributed.Group { return c.g }
func (c *counted) JoinHook(distributed.JoinOptions) distributed.JoinHook {
	if c.fails {
		panic(&gotorch.Error{Op: "counted", Kind: gotorch.ValueError, Msg: "no"})
	}
	if !c.sums {
		return distributed.JoinHook{}
	}
	return distributed.JoinHook{
		Main: func() {
			c.mains++
			c.g.AllReduce(gotorch.Zeros([]int64{1}), distributed.Sum)
		},
		Post: func(last bool) { c.post = append(c.post, last) },
	}
}

// uncomparable is no pointer.
type uncomparable struct {
	*counted
	_ []int
}

func (c *counted) step() float32 {
	distributed.NotifyJoin(c)
	x := gotorch.Ones([]int64{1})
	c.g.AllReduce(x, distributed.Sum)
	return gotorch.Item[float32](x)
}

func TestWhatAProgramHasJoins(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		c := &counted{g: g, sums: true}
		var sums []float32
		testhelp.Must(t, distributed.Join([]distributed.Joinable{c}, func() error {
			for range []int{2, 0, 3}[g.Rank()] {
				sums = append(sums, c.step())
			}
			return nil
		}))
		if want := [][]float32{{2, 2}, nil, {2, 2, 1}}[g.Rank()]; !slices.Equal(sums, want) {
			t.Error(g, sums)
		}
		if c.mains != []int{1, 3, 0}[g.Rank()] || !slices.Equal(c.post, []bool{g.Rank() == 2}) {
			t.Error(g, c.mains, c.post)
		}
	})
}

func TestAJoinThatEndsEarly(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		c, steps := &counted{g: g, sums: true}, 0
		err := distributed.Join([]distributed.Joinable{c}, func() error {
			for range 2 + g.Rank() {
				c.step()
				steps++
			}
			return nil
		}, distributed.JoinOptions{ThrowOnEarlyTermination: true})
		if !errors.Is(err, distributed.UnevenInputsError) || steps != 2 || len(c.post) > 0 {
			t.Error(g, err, steps)
		}
		g.Barrier() // the group is as good as before
	})
}

func TestAJoinThatFails(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(g *distributed.Group) {
		other, err := g.New([]int{0})
		testhelp.Must(t, err)
		defer other.Close()
		c := &counted{g: g}
		all := []distributed.Joinable{c}
		nothing := func() error { return nil }
		if err := distributed.Join(nil, nothing); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		for _, wrong := range []distributed.Joinable{nil, uncomparable{counted: c}} {
			if err := distributed.Join([]distributed.Joinable{wrong}, nothing); !errors.Is(err, gotorch.TypeError) {
				t.Error(err)
			}
		}
		if err := distributed.Join([]distributed.Joinable{c, &counted{g: other}}, nothing); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		if err := distributed.Join([]distributed.Joinable{&counted{}}, nothing); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		if err := distributed.Join([]distributed.Joinable{&counted{g: g, fails: true}}, nothing); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		if err := distributed.Join(all, func() error { return distributed.Join(all, nothing) }); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
		if err := distributed.Join(all, func() error { return errOfHook }); err != errOfHook {
			t.Error(err)
		}
		if err := gotorch.Try0(func() {
			_ = distributed.Join(all, func() error { panic(gotorch.Try0(func() { gotorch.Zeros([]int64{-1}) })) })
		}); !errors.Is(err, gotorch.RuntimeError) {
			t.Error(err)
		}
		// Each of them has ended its join.
		testhelp.Must(t, distributed.Join(all, func() error { return distributed.Join(all, nothing, distributed.JoinOptions{Disable: true}) }))

		model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
		testhelp.Must(t, model.Close())
		if err := model.Join(nothing); !errors.Is(err, gotorch.ValueError) {
			t.Error(err)
		}
	})
}

// A rank that dies in a join is an error on those that wait for it.
func TestARankThatLeavesAJoinIsAnError(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		model := distributed.DataParallel(nn.Linear(1, 1), distributed.DataParallelOptions{Group: g})
		defer model.Close()
		g.Barrier()
		if g.Rank() == 1 {
			return
		}
		err := model.Join(func() error { return nil })
		if !errors.Is(err, distributed.NetworkError) {
			t.Error(err)
		}
	})
}

func TestNothingIsLeftOfJoins(t *testing.T) {
	count := func() int64 {
		runtime.GC()
		runtime.GC()
		return gotorch.MemoryStats().LiveHandles
	}
	before := count()
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		for _, opt := range []distributed.DataParallelOptions{{}, {FindUnusedParameters: true}, {Compression: distributed.BF16Compress}} {
			opt.Group = g
			model := distributed.DataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), opt)
			for _, throw := range []bool{false, true} {
				err := model.Join(func() error {
					for range 1 + 3*g.Rank() {
						model.Forward(gotorch.Randn([]int64{3, 4})).Sum().Backward()
					}
					return nil
				}, distributed.JoinOptions{ThrowOnEarlyTermination: throw})
				if throw != errors.Is(err, distributed.UnevenInputsError) || !throw && err != nil {
					t.Error(err)
				}
			}
		}
	})
	for end := time.Now().Add(time.Minute); count() > before; {
		if time.Now().After(end) {
			t.Fatalf("%d tensors live, where %d did", count(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
