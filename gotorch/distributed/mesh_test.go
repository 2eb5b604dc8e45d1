package distributed_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributed"
	"gotorch.dev/gotorch/internal/rankstest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestAMeshHasAGroupAlongEachDimension(t *testing.T) {
	rankstest.Run(t, 7, distributed.Options{}, func(world *distributed.Group) {
		mesh, err := distributed.InitDeviceMesh(world, []int{2, 3}, "dp", "tp")
		if err != nil {
			t.Error(err)
			return
		}
		defer mesh.Close()
		if got := fmt.Sprint(mesh, mesh.Shape(), mesh.Names(), mesh.Size("tp")); got != "DeviceMesh(dp=2, tp=3) [2 3] [dp tp] 3" {
			t.Error(got)
		}
		r := world.Rank()
		if r == 6 { // beyond the mesh
			if mesh.Coordinate() != nil || mesh.Group("dp") != nil || mesh.Slice("tp").Group("tp") != nil {
				t.Error("a rank beyond the mesh has a place in it")
			}
			if err := gotorch.Try0(func() { mesh.LocalRank("dp") }); !errors.Is(err, gotorch.ValueError) {
				t.Error(err)
			}
			return
		}
		if !slices.Equal(mesh.Coordinate(), []int{r / 3, r % 3}) || mesh.LocalRank("dp") != r/3 || mesh.LocalRank("tp") != r%3 {
			t.Error(r, mesh.Coordinate())
		}
		if got := mesh.Group("dp").Ranks(); !slices.Equal(got, []int{r % 3, r%3 + 3}) {
			t.Error(r, got)
		}
		if got := mesh.Group("tp").Ranks(); !slices.Equal(got, []int{r / 3 * 3, r/3*3 + 1, r/3*3 + 2}) {
			t.Error(r, got)
		}
		x := gotorch.FromSlice([]int64{int64(r)})
		turned := mesh.Slice("tp", "dp")
		turned.Group("tp").AllReduce(x, distributed.Sum)
		if want := int64(r/3*9 + 3); gotorch.Item[int64](x) != want || !slices.Equal(turned.Coordinate(), []int{r % 3, r / 3}) {
			t.Error(r, x, turned.Coordinate())
		}
	})
}

func TestAMeshOfTheWholeWorldIsTheWorld(t *testing.T) {
	rankstest.Run(t, 2, distributed.Options{}, func(world *distributed.Group) {
		mesh, err := distributed.InitDeviceMesh(world, []int{2})
		if err != nil {
			t.Error(err)
			return
		}
		if mesh.Group("dim_0") != world {
			t.Error("another group")
		}
		testhelp.Must(t, mesh.Close())
		world.Barrier() // it is still open
	})
}

func TestMeshesThatCannotBe(t *testing.T) {
	rankstest.Run(t, 1, distributed.Options{}, func(world *distributed.Group) {
		part, err := world.New([]int{0})
		testhelp.Must(t, err)
		defer part.Close()
		for _, c := range []struct {
			of    *distributed.Group
			shape []int
			names []string
			want  string
		}{
			{world, nil, nil, "one dimension"},
			{world, []int{1, 0}, nil, "must be positive"},
			{world, []int{1 << 62, 4}, nil, "more ranks than the job"},
			{world, []int{1, 1}, []string{"a"}, "1 names for the 2"},
			{world, []int{1, 1}, []string{"a", "a"}, "twice"},
			{part, []int{1}, nil, "is not the group that Init has returned"},
			{nil, []int{1}, nil, "is not in the group"},
		} {
			mesh, err := distributed.InitDeviceMesh(c.of, c.shape, c.names...)
			if mesh != nil || !errors.Is(err, gotorch.ValueError) || !strings.Contains(err.Error(), c.want) {
				t.Error(c.shape, c.names, err)
			}
		}
		mesh, err := distributed.InitDeviceMesh(world, []int{1, 1}, "a", "b")
		testhelp.Must(t, err)
		for _, fn := range []func(){
			func() { mesh.Group("c") }, func() { mesh.Slice() }, func() { mesh.Slice("a", "a") }, func() { mesh.Slice("a").Group("b") },
		} {
			if err := gotorch.Try0(fn); !errors.Is(err, gotorch.ValueError) {
				t.Error(err)
			}
		}
	})
}
