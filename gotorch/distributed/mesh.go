package distributed

import (
	"fmt"
	"slices"
	"strings"

	"gotorch.dev/gotorch/internal/args"
)

// DeviceMesh is the ranks of a job as an array, with a group along each of its dimensions: data parallel along one,
// tensor parallel along another.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.DeviceMesh
type DeviceMesh struct {
	shape  []int
	names  []string
	at     []int // this rank's place; nil where it has none
	groups []*Group
	owned  []*Group // to be closed
}

// InitDeviceMesh makes a mesh of the ranks 0, 1, 2, ... of the world, of which the last dimension's are neighbours. names
// are of the dimensions; without any they are "dim_0", "dim_1", .... All ranks of the job must call it, in the same order
// as they make other groups; ranks beyond the mesh have no place in it. A dimension that has all ranks of the world is the
// world itself, another one a group of its own.
//
//	mesh, err := distributed.InitDeviceMesh(world, []int{2, 4}, "dp", "tp") // 8 ranks
//	mesh.Group("tp").AllReduce(t, distributed.Sum)                          // of ranks 0 to 3, and of 4 to 7
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.device_mesh.init_device_mesh
func InitDeviceMesh(world *Group, shape []int, names ...string) (*DeviceMesh, error) {
	const op = "InitDeviceMesh"
	if err := world.enter(op); err != nil {
		return nil, err
	}
	world.inUse.RUnlock()
	if !world.whole {
		return nil, args.ValueError(op, "%v is not the group that Init has returned", world)
	}
	if len(shape) == 0 {
		return nil, args.ValueError(op, "a mesh has one dimension at least")
	}
	size := 1
	for i, n := range shape {
		if n < 1 {
			return nil, args.ValueError(op, "dimension %d of the mesh is %d, and must be positive", i, n)
		}
		if size *= n; size > world.Size() {
			return nil, args.ValueError(op, "a mesh of %v has more ranks than the job: %d", shape, world.Size())
		}
	}
	m := &DeviceMesh{shape: slices.Clone(shape), names: slices.Clone(names)}
	if len(names) == 0 {
		for i := range shape {
			m.names = append(m.names, fmt.Sprintf("dim_%d", i))
		}
	}
	if len(m.names) != len(shape) {
		return nil, args.ValueError(op, "%d names for the %d dimensions of the mesh", len(names), len(shape))
	}
	for i, name := range m.names {
		if slices.Contains(m.names[:i], name) {
			return nil, args.ValueError(op, "the name %q is there twice", name)
		}
	}
	if rank := world.Rank(); rank < size {
		m.at = make([]int, len(shape))
		for i := len(shape) - 1; i >= 0; i-- {
			m.at[i], rank = rank%shape[i], rank/shape[i]
		}
	}
	// As in Python: one group after the other, of one dimension after the other.
	for dim := range shape {
		mine, err := m.along(world, dim)
		if err != nil {
			m.Close()
			return nil, err
		}
		m.groups = append(m.groups, mine)
	}
	return m, nil
}

// along makes all groups along a dimension, and returns this rank's.
func (m *DeviceMesh) along(world *Group, dim int) (mine *Group, err error) {
	if m.shape[dim] == world.Size() {
		return world, nil
	}
	step := 1 // between ranks that are neighbours in dim
	for _, n := range m.shape[dim+1:] {
		step *= n
	}
	size := 1
	for _, n := range m.shape {
		size *= n
	}
	for block := 0; block < size; block += step * m.shape[dim] {
		for first := block; first < block+step; first++ {
			ranks := make([]int, m.shape[dim])
			for i := range ranks {
				ranks[i] = first + i*step
			}
			g, err := world.New(ranks)
			if err != nil {
				return nil, err
			}
			if g != nil {
				mine = g
				m.owned = append(m.owned, g)
			}
		}
	}
	return mine, nil
}

// Shape returns how many ranks each dimension has.
func (m *DeviceMesh) Shape() []int { return slices.Clone(m.shape) }

// Names returns the dimensions' names.
func (m *DeviceMesh) Names() []string { return slices.Clone(m.names) }

// Coordinate returns this rank's place in each dimension; nil where it has none in the mesh.
func (m *DeviceMesh) Coordinate() []int { return slices.Clone(m.at) }

// Group returns the ranks that differ from this one in the named dimension alone; nil where this rank has no place in the
// mesh. [DeviceMesh.Close] closes it. It panics with a ValueError for another name.
func (m *DeviceMesh) Group(name string) *Group { return m.groups[m.dim("DeviceMesh.Group", name)] }

// LocalRank returns this rank's place in the named dimension, from 0. It panics with a ValueError for another name, and
// where this rank has none.
func (m *DeviceMesh) LocalRank(name string) int {
	const op = "DeviceMesh.LocalRank"
	dim := m.dim(op, name)
	if m.at == nil {
		panic(args.ValueError(op, "this rank has no place in the mesh"))
	}
	return m.at[dim]
}

// Size returns how many ranks the named dimension has. It panics with a ValueError for another name.
func (m *DeviceMesh) Size(name string) int { return m.shape[m.dim("DeviceMesh.Size", name)] }

// Slice returns the mesh of some of the dimensions, in the order of names: of the ranks that differ from this one in them
// alone. It has the same groups, which are still the first mesh's to close. It panics with a ValueError for another name,
// and for one that is there twice.
func (m *DeviceMesh) Slice(names ...string) *DeviceMesh {
	const op = "DeviceMesh.Slice"
	s := &DeviceMesh{}
	if len(names) == 0 {
		panic(args.ValueError(op, "a mesh has one dimension at least"))
	}
	for _, name := range names {
		dim := m.dim(op, name)
		if slices.Contains(s.names, name) {
			panic(args.ValueError(op, "the name %q is there twice", name))
		}
		s.shape, s.names, s.groups = append(s.shape, m.shape[dim]), append(s.names, name), append(s.groups, m.groups[dim])
		if m.at != nil {
			s.at = append(s.at, m.at[dim])
		}
	}
	return s
}

func (m *DeviceMesh) dim(op, name string) int {
	dim := slices.Index(m.names, name)
	if dim < 0 {
		panic(args.ValueError(op, "the mesh has no dimension %q, but %q", name, m.names))
	}
	return dim
}

// String returns "DeviceMesh(dp=2, tp=4)".
func (m *DeviceMesh) String() string {
	var dims []string
	for i, name := range m.names {
		dims = append(dims, fmt.Sprintf("%s=%d", name, m.shape[i]))
	}
	return "DeviceMesh(" + strings.Join(dims, ", ") + ")"
}

// Close closes the groups that were made for the mesh; the world stays. A slice of a mesh has none.
func (m *DeviceMesh) Close() error {
	for _, g := range m.owned {
		if err := g.Close(); err != nil {
			return err
		}
	}
	return nil
}
