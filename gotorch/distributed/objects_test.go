package distributed_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
)

type report struct {
	Rank  int
	Words []string
}

func reportOf(rank int) report { return report{rank, slices.Repeat([]string{"word"}, rank*3)} }

func TestValuesOfGoMoveBetweenRanks(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		rank := g.Rank()
		for _, codec := range []distributed.Codec{distributed.Gob, distributed.JSON} {
			opt := distributed.ObjectOptions{Codec: codec}
			all, err := distributed.GatherObject(g, reportOf(rank), 1, opt)
			if err != nil || (rank == 1) != (all != nil) {
				t.Error(g, all, err)
			}
			for i, r := range all {
				if r.Rank != i || len(r.Words) != 3*i {
					t.Error(g, all)
				}
			}
			var values []report
			if rank == 2 {
				values = []report{reportOf(5), reportOf(0), reportOf(7)}
			}
			got, err := distributed.ScatterObject(g, values, 2, opt)
			if want := []int{5, 0, 7}[rank]; err != nil || got.Rank != want || len(got.Words) != 3*want {
				t.Error(g, got, err)
			}
			if rank == 0 {
				for range 2 {
					got, from, err := distributed.RecvObject[map[string]int](g, distributed.AnyRank, opt)
					if err != nil || !reflect.DeepEqual(got, map[string]int{"rank": from}) {
						t.Error(got, from, err)
					}
				}
			} else if err := distributed.SendObject(g, map[string]int{"rank": rank}, 0, opt); err != nil {
				t.Error(err)
			}
			g.Barrier()
		}
	})
}

// A value that gob refuses.
type unfit struct{ F func() }

func TestValuesThatCannotBeEncodedFailOnAllRanks(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(g *distributed.Group) {
		var value any = map[string]int{}
		if g.Rank() == 1 {
			value = unfit{}
		}
		for i := range 3 {
			var err error
			switch i {
			case 0:
				_, err = distributed.GatherObject(g, value, 0)
			case 1:
				_, err = distributed.ScatterObject(g, []any{value}, 1) // one too few, and unfit
			case 2:
				if g.Rank() == 1 {
					err = distributed.SendObject(g, value, 0)
				} else {
					_, _, err = distributed.RecvObject[any](g, 1)
				}
			}
			if !errors.Is(err, gotorch.ValueError) {
				t.Error(g, i, err)
			}
		}
		// What another rank has encoded as something else.
		if g.Rank() == 1 {
			testhelp.Must(t, distributed.SendObject(g, "text", 0))
		} else if _, from, err := distributed.RecvObject[int](g, 1); err == nil || from != 1 {
			t.Error(from, err)
		}
		g.Barrier()
	})
}

func TestSendsAndReceivesOfABatch(t *testing.T) {
	rankstest.Run(t, 3, distributed.Options{}, func(g *distributed.Group) {
		var ops []distributed.P2POp
		got := map[int]gotorch.Tensor{}
		for peer := range g.Size() {
			if peer == g.Rank() {
				continue
			}
			got[peer] = gotorch.Zeros([]int64{2}, gotorch.TensorOptions{DType: gotorch.Int64})
			ops = append(ops,
				distributed.P2POp{Recv: got[peer], Peer: peer, Tag: 3},
				distributed.P2POp{Send: gotorch.FromSlice([]int64{int64(g.Rank()), int64(peer)}), Peer: peer, Tag: 3})
		}
		for _, w := range g.BatchSendRecv(ops) {
			testhelp.Must(t, w.Wait(t.Context()))
		}
		for peer, x := range got {
			if want := []int64{int64(peer), int64(g.Rank())}; !slices.Equal(gotorch.ToSlice[int64](x), want) {
				t.Error(g, peer, x)
			}
		}
		x := gotorch.Zeros([]int64{1})
		for i, bad := range []distributed.P2POp{{Peer: 0}, {Send: x, Recv: x}, {Send: x, Peer: 3}, {Send: x, Peer: g.Rank()}} {
			ops := []distributed.P2POp{{Send: x, Peer: (g.Rank() + 1) % 3}, bad}
			if err := gotorch.Try0(func() { g.BatchSendRecv(ops) }); !errors.Is(err, gotorch.ValueError) {
				t.Error(fmt.Sprint(i), err)
			}
		}
		g.Barrier() // nothing of those has begun
	})
}
