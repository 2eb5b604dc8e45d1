package serve

import (
	"encoding/binary"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Ragged lets requests be joined whose sizes differ in one dimension of an input, such as texts of different lengths:
// shorter ones are padded at their end to the longest of the batch. The model must come to the same whatever is there,
// by a mask among its inputs, which is ragged as well, for instance; that it does is not checked. It needs [Batching].
//
// One long request among short ones would make a batch many times as large as what clients have sent. So a batch is at most
// twice as large, unless Padding or Step says otherwise: a request that would make it larger waits for the next one. The
// oldest that waits is in every batch, so that none waits for ever.
//
// An option for each such input:
//
//	srv.Add("tagger", model, serve.Batching{Max: 32},
//		serve.Ragged{Input: "ids", Dim: 1, Cut: []serve.Cut{{Output: "tags", Dim: 1}}},
//		serve.Ragged{Input: "mask", Dim: 1})
type Ragged struct {
	Input string
	// Dim is the dimension, of which 0 is the batch: 1 or more. Its size in the signature is open.
	Dim int
	// Value is what is put where nothing is; for BOOL inputs 0 or 1. default: 0
	Value gotorch.Scalar
	// Step keeps apart what differs much: only requests are joined whose sizes are the same when rounded up to a multiple of
	// Step. default: 0, all may be
	Step int
	// Padding is how much of the input in a batch may be padding, from 0, which joins what is equally long, to 1, which joins
	// all: 0.5 is as much as there is of requests. default: 0.5; with Step 1
	Padding gotorch.Scalar
	// Cut are the outputs that are as long as the padded input, and are cut back to what each request gave.
	Cut []Cut
}

// Cut is a dimension of an output: see [Ragged].
type Cut struct {
	Output string
	Dim    int // 1 or more
}

func (r Ragged) set(o *modelOptions) { o.ragged = append(o.ragged, r) }

// ragged is a Ragged that fits the signature.
type ragged struct {
	input, dim, step int
	element          []byte  // of the padding, in memory
	most             float64 // of a batch may be padding
}

// cut is a Cut that fits.
type cut struct{ output, dim, input, inputDim int }

// findRagged checks the options against the signature.
func (v *version) findRagged() error {
	for _, r := range v.options.ragged {
		i := slices.IndexFunc(v.signature.Inputs, func(s Spec) bool { return s.Name == r.Input })
		switch {
		case v.options.batching.Max == 0:
			return newError(InvalidArgument, "Ragged is for models with Batching")
		case i < 0:
			return newError(InvalidArgument, "Ragged names the input %q; the model has %v", r.Input, v.signature.Inputs)
		case v.raggedOf(i) != nil:
			return newError(InvalidArgument, "input %q is ragged twice", r.Input)
		case r.Step < 0 || r.Step > math.MaxInt32:
			return newError(InvalidArgument, "Ragged.Step is %d, and must not be negative", r.Step)
		}
		spec := v.signature.Inputs[i]
		if r.Dim < 1 || spec.Shape == nil || r.Dim >= len(spec.Shape) || spec.Shape[r.Dim] != -1 {
			return newError(InvalidArgument, "dimension %d of %v cannot be ragged: it is open, and not the first", r.Dim, spec)
		}
		if spec.Type == BYTES {
			return newError(InvalidArgument, "input %q is of texts, which cannot be ragged", r.Input)
		}
		one := ragged{input: i, dim: r.Dim, step: r.Step}
		err := gotorch.Try0(func() {
			if args.Given(r.Value) {
				args.Float("serve.Add", "Ragged.Value", r.Value, 0) // says what is no number
			}
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				var value gotorch.Scalar = 0
				if args.Given(r.Value) {
					value = r.Value
				}
				one.element = slices.Clone(gotorch.RawData(gotorch.Full([]int64{1}, value, gotorch.TensorOptions{DType: spec.Type.DType()})))
			})
		})
		if err != nil {
			return newError(InvalidArgument, "Ragged.Value of input %q: %v", r.Input, err)
		}
		usual := 0.5
		if r.Step > 0 {
			usual = 1
		}
		if err := gotorch.Try0(func() { one.most = args.Float("serve.Add", "Ragged.Padding", r.Padding, usual) }); err != nil {
			return newError(InvalidArgument, "Ragged.Padding of input %q: %v", r.Input, err)
		}
		if !(one.most >= 0 && one.most <= 1) {
			return newError(InvalidArgument, "Ragged.Padding of input %q is %v, and must be from 0 to 1", r.Input, one.most)
		}
		v.queueOf.padding = append(v.queueOf.padding, one.most)
		v.ragged = append(v.ragged, one)
		for _, c := range r.Cut {
			o := slices.IndexFunc(v.signature.Outputs, func(s Spec) bool { return s.Name == c.Output })
			if o < 0 {
				return newError(InvalidArgument, "Ragged.Cut names the output %q; the model has %v", c.Output, v.signature.Outputs)
			}
			spec := v.signature.Outputs[o]
			if c.Dim < 1 || spec.Shape != nil && (c.Dim >= len(spec.Shape) || spec.Shape[c.Dim] != -1) {
				return newError(InvalidArgument, "dimension %d of %v cannot be cut: it is open, and not the first", c.Dim, spec)
			}
			if v.cutOf(o) != nil {
				return newError(InvalidArgument, "output %q is cut twice", c.Output)
			}
			v.cuts = append(v.cuts, cut{o, c.Dim, i, r.Dim})
		}
	}
	return nil
}

func (v *version) raggedOf(input int) *ragged {
	for i := range v.ragged {
		if v.ragged[i].input == input {
			return &v.ragged[i]
		}
	}
	return nil
}

func (v *version) cutOf(output int) *cut {
	for i := range v.cuts {
		if v.cuts[i].output == output {
			return &v.cuts[i]
		}
	}
	return nil
}

// appendSize is what tells requests apart that cannot be joined.
func (v *version) appendSize(key []byte, input, dim int, n int64) []byte {
	r := v.raggedOf(input)
	if r == nil || r.dim != dim {
		return binary.AppendUvarint(key, uint64(n))
	}
	if r.step == 0 {
		return append(key, 0)
	}
	return binary.AppendUvarint(key, (uint64(n)+uint64(r.step)-1)/uint64(r.step))
}

// lengths are a job's sizes of all ragged inputs, in their order.
func (v *version) lengths(j *job) []int64 {
	if len(v.ragged) == 0 {
		return nil
	}
	all := make([]int64, len(v.ragged))
	for i, r := range v.ragged {
		all[i] = j.in[r.input].shape[r.dim]
	}
	return all
}

// padding is how large a batch becomes. Requests of a batch agree but for the rows and the ragged sizes, so that these say
// how many elements they have; doubles hold them well enough.
type padding struct {
	rows    float64
	longest []float64 // of each ragged input
	given   []float64 // rows times their lengths
}

// add adds a job, if no more of any input than most is padding then. The first is always added.
func (p *padding) add(j *job, most []float64) bool {
	if len(most) == 0 || j.rows == 0 { // without rows it is as long as the others
		return true
	}
	rows := float64(j.rows)
	for i := range most {
		if p.rows == 0 {
			break
		}
		given := p.given[i] + rows*float64(j.lengths[i])
		whole := (p.rows + rows) * max(p.longest[i], float64(j.lengths[i]))
		if whole-given > most[i]*whole {
			return false
		}
	}
	if p.rows == 0 {
		p.longest, p.given = make([]float64, len(most)), make([]float64, len(most))
	}
	p.rows += rows
	for i := range most {
		p.longest[i] = max(p.longest[i], float64(j.lengths[i]))
		p.given[i] += rows * float64(j.lengths[i])
	}
	return true
}

// longest is the size of the ragged dimension in a batch. A request without rows may be of any length, and costs its client
// nothing: it does not count beside those that have some.
func (r *ragged) longest(jobs []*job) int64 {
	n := int64(0)
	for _, j := range jobs {
		if len(jobs) == 1 || j.rows > 0 {
			n = max(n, j.in[r.input].shape[r.dim])
		}
	}
	return n
}

// pad copies an input of one request into its place in the batch, whose rows are as long as the longest.
func (r *ragged) pad(to []byte, in *input, longest int64) []byte {
	size := len(r.element)
	outer, inner := 1, size
	for _, n := range in.shape[:r.dim] {
		outer *= int(n)
	}
	for _, n := range in.shape[r.dim+1:] {
		inner *= int(n)
	}
	own, whole := int(in.shape[r.dim])*inner, int(longest)*inner
	for k := range outer {
		copy(to, in.raw[k*own:(k+1)*own])
		for at := own; at < whole; at += size {
			copy(to[at:whole], r.element)
		}
		to = to[whole:]
	}
	return to
}

// parts are the pieces of a batched output that belong to a request, in units of its last dimensions: those from..to of
// rows that lie stride apart.
type parts struct{ first, count, own, stride int }

// cutParts returns the pieces of an output with so many units for j, whose rows begin at row at.
func (c *cut) cutParts(j *job, shape []int64, at, units int) parts {
	n := j.in[c.input].shape[c.inputDim]
	rows := int(shape[0])
	if rows == 0 || units == 0 {
		return parts{}
	}
	perRow := units / rows
	outer, inner := 1, 1
	for _, size := range shape[1:c.dim] {
		outer *= int(size)
	}
	for _, size := range shape[c.dim+1:] {
		inner *= int(size)
	}
	// Units may be bytes of elements.
	whole := perRow / outer
	return parts{first: at * perRow, count: j.rows * outer, own: whole / int(shape[c.dim]) * int(n), stride: whole}
}
