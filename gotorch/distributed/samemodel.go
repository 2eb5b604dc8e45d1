package distributed

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// Models that ranks train together must be the same. Gloo ends the process where ranks exchange tensors of different sizes, and
// where sizes agree by chance what comes of it is wrong, so the ranks compare their models before.

// outline is what of a model must be the same on all ranks.
type outline struct {
	Call    string // and the options that decide what is exchanged
	Tensors []outlined
}

// outlined is a parameter or a buffer. Its name only says which it is: ranks may call it differently.
type outlined struct {
	Kind, Name, DType string
	Shape             []int64
	Trained           bool
	Unit              int // of FullyShard
}

func (o *outline) add(kind, name string, t gotorch.Tensor, unit int) {
	o.Tensors = append(o.Tensors, outlined{kind, name, fmt.Sprint(t.DType()), t.Shape(), t.RequiresGrad(), unit})
}

// addSynced adds modules that exchange tensors while they compute.
func (o *outline) addSynced(net nn.Modular) {
	for name, m := range net.NamedModules() {
		if _, is := m.(*nn.SyncBatchNormModule); is {
			o.Tensors = append(o.Tensors, outlined{Kind: "SyncBatchNorm", Name: name})
		}
	}
}

func (o *outline) addBuffers(net nn.Modular) {
	for name, b := range net.NamedBuffers() {
		o.add("buffer", name, b, 0)
	}
}

func (t outlined) String() string { return fmt.Sprintf("the %s %q", t.Kind, t.Name) }

func (t outlined) sameAs(other outlined) bool {
	return t.Kind == other.Kind && t.DType == other.DType && t.Trained == other.Trained && t.Unit == other.Unit && slices.Equal(t.Shape, other.Shape)
}

// differs returns what is the matter with rank b's model, in the eyes of rank a; "" for nothing.
func (o outline) differs(other outline, a, b int) string {
	if o.Call != other.Call {
		return fmt.Sprintf("rank %d calls %s, and rank %d %s", b, other.Call, a, o.Call)
	}
	has := func(of outline, t outlined) bool {
		return slices.ContainsFunc(of.Tensors, func(u outlined) bool { return u.Kind == t.Kind && u.Name == t.Name })
	}
	for i := range max(len(o.Tensors), len(other.Tensors)) {
		switch {
		case i >= len(o.Tensors):
			return fmt.Sprintf("rank %d has %v, and rank %d has not", b, other.Tensors[i], a)
		case i >= len(other.Tensors):
			return fmt.Sprintf("rank %d has %v, and rank %d has not", a, o.Tensors[i], b)
		}
		t, u := o.Tensors[i], other.Tensors[i]
		switch {
		case t.sameAs(u):
		case t.Kind != u.Kind || t.Name != u.Name:
			if !has(other, t) {
				return fmt.Sprintf("rank %d has %v, and rank %d has not", a, t, b)
			}
			if !has(o, u) {
				return fmt.Sprintf("rank %d has %v, and rank %d has not", b, u, a)
			}
			return fmt.Sprintf("rank %d has %v where rank %d has %v", b, u, a, t)
		case !slices.Equal(t.Shape, u.Shape):
			return fmt.Sprintf("on rank %d %v is of %v, and on rank %d of %v", b, u, u.Shape, a, t.Shape)
		case t.DType != u.DType:
			return fmt.Sprintf("on rank %d %v is %s, and on rank %d %s", b, u, u.DType, a, t.DType)
		case t.Trained && !u.Trained:
			return fmt.Sprintf("on rank %d %v requires no gradient, and on rank %d it does", b, u, a)
		case t.Trained != u.Trained:
			return fmt.Sprintf("on rank %d %v requires a gradient, and on rank %d it does not", b, u, a)
		default:
			return fmt.Sprintf("on rank %d %v is in another unit than on rank %d", b, u, a)
		}
	}
	return ""
}

// checkSameModel panics with a RuntimeError, the same on all ranks, where a rank's model is not that of rank 0. Where there are
// ranks of Python, which know nothing of it, c10d alone compares.
func (g *Group) checkSameModel(op string, mine outline) {
	n := g.Size()
	if n == 1 || !g.allGo {
		return
	}
	text, err := json.Marshal(mine)
	if err != nil {
		panic(err)
	}
	same := true
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		sum := sha256.Sum256(text)
		words := make([]int64, len(sum)/8)
		for i := range words {
			words[i] = int64(binary.LittleEndian.Uint64(sum[8*i:]))
		}
		all := gotorch.Empty([]int64{int64(n * len(words))}, gotorch.TensorOptions{DType: gotorch.Int64})
		g.AllGatherIntoTensor(all, gotorch.FromSlice(words))
		sums := gotorch.ToSlice[int64](all)
		for rank := range n {
			same = same && slices.Equal(sums[:len(words)], sums[rank*len(words):(rank+1)*len(words)])
		}
	})
	if same {
		return
	}
	outlines, err := AllGatherObject(g, mine, ObjectOptions{Codec: JSON})
	if err != nil {
		panic(err)
	}
	for rank, other := range outlines {
		if said := outlines[0].differs(other, 0, rank); said != "" {
			panic(args.Errorf(op, gotorch.RuntimeError, "%s: all ranks must have the same model", said))
		}
	}
}

// keyOfGo is the key that a rank in Go sets, and one in Python does not.
func keyOfGo(rank int) string { return strconv.Itoa(rank) }
