package functional

import (
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ScaledDotProductAttentionOptions are the arguments of [ScaledDotProductAttention] that have defaults.
type ScaledDotProductAttentionOptions struct {
	AttnMask  gotorch.Tensor // bool, true where a key counts, or a number to be added; default: none
	DropoutP  float64        // drops weights with this probability, also in evaluation
	IsCausal  bool           // each query sees the keys up to its own place
	Scale     gotorch.Scalar // default: 1/√E
	EnableGQA bool           // key and value may have fewer heads, of which each serves several queries
}

// ScaledDotProductAttention returns softmax(Scale·query·keyᵀ + mask)·value:
// (N, ..., L, E), (N, ..., S, E) and (N, ..., S, V) → (N, ..., L, V).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html.
func ScaledDotProductAttention(query, key, value gotorch.Tensor, opts ...ScaledDotProductAttentionOptions) gotorch.Tensor {
	opt := args.Option(opts)
	return gotorch.ScaledDotProductAttention(query, key, value, gotorch.ScaledDotProductAttentionOptions{
		AttnMask: opt.AttnMask, DropoutP: opt.DropoutP, IsCausal: opt.IsCausal,
		Scale: args.FloatPointer("functional.ScaledDotProductAttention", "Scale", opt.Scale), EnableGQA: opt.EnableGQA})
}

// CanonicalMask returns a mask as numbers of a dtype to be added: −∞ where a mask of bool is true, a mask of
// numbers as it is. It panics with a ValueError for a mask of integers.
func CanonicalMask(mask gotorch.Tensor, dtype gotorch.DType) gotorch.Tensor {
	d := mask.DType()
	switch {
	case d.IsFloatingPoint():
		return mask
	case d != gotorch.Bool:
		panic(args.ValueError("functional.CanonicalMask", "only bool and floating types of masks are supported, not %v", d))
	}
	return gotorch.ZerosLike(mask, gotorch.TensorOptions{DType: dtype}).MaskedFill_(mask, math.Inf(-1))
}

// MultiHeadAttentionForwardOptions are the arguments of [MultiHeadAttentionForward] that have defaults.
type MultiHeadAttentionForwardOptions struct {
	InProjWeight          gotorch.Tensor // (3·E, E), unless UseSeparateProjWeight
	InProjBias            gotorch.Tensor // (3·E); default: none
	BiasK, BiasV          gotorch.Tensor // (1, 1, E), a key and value to be appended; default: none
	AddZeroAttn           bool           // append a key and value of zeros
	DropoutP              float64        // drops weights with this probability, while training
	OutProjBias           gotorch.Tensor // (E); default: none
	NoTraining            bool
	KeyPaddingMask        gotorch.Tensor // (N, S): true where a key does not count, or a number to be added
	NoNeedWeights         bool           // do not return the weights, which is faster
	AttnMask              gotorch.Tensor // (T, S) or (N·numHeads, T, S): true where a key does not count, or a number to be added
	UseSeparateProjWeight bool           // take QProjWeight, KProjWeight and VProjWeight
	QProjWeight           gotorch.Tensor // (E, E)
	KProjWeight           gotorch.Tensor // (E, Ek)
	VProjWeight           gotorch.Tensor // (E, Ev)
	StaticK, StaticV      gotorch.Tensor // (N·numHeads, S, E/numHeads), in place of the projected; default: none
	NoAverageAttnWeights  bool           // return the weights of each head
	IsCausal              bool           // AttnMask is causal, which is faster without weights
}

// MultiHeadAttentionForward is what nn.MultiheadAttention computes, with its parameters as arguments: query is
// (T, N, E), key (S, N, Ek) and value (S, N, Ev), also without N; the result is (T, N, E), and the weights
// (N, T, S), none with NoNeedWeights. embedDim must be E. It panics with a ValueError if shapes do not fit.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html.
func MultiHeadAttentionForward(query, key, value gotorch.Tensor, embedDim, numHeads int64, outProjWeight gotorch.Tensor,
	opts ...MultiHeadAttentionForwardOptions) (output, weights gotorch.Tensor) {
	const op = "functional.MultiHeadAttentionForward"
	opt := args.Option(opts)
	refuse := func(format string, values ...any) { panic(args.ValueError(op, format, values...)) }
	dims := query.Dim()
	if dims != 2 && dims != 3 {
		refuse("query should be unbatched 2D or batched 3D tensor but received %d-D query tensor", dims)
	}
	if key.Dim() != dims || value.Dim() != dims {
		refuse("for a %d-D query, expected key and value to be %d-D but found %d-D and %d-D tensors respectively", dims, dims, key.Dim(), value.Dim())
	}
	padding, mask := opt.KeyPaddingMask, opt.AttnMask
	if padding.T != nil && padding.Dim() != dims-1 {
		refuse("for a %d-D query, expected KeyPaddingMask to be %d-D but found %d-D tensor instead", dims, dims-1, padding.Dim())
	}
	if mask.T != nil && mask.Dim() != 2 && mask.Dim() != 3 {
		refuse("expected AttnMask to be 2-D or 3-D but found %d-D tensor instead", mask.Dim())
	}
	unbatched := dims == 2
	if unbatched {
		query, key, value = query.Unsqueeze(1), key.Unsqueeze(1), value.Unsqueeze(1)
		if padding.T != nil {
			padding = padding.Unsqueeze(0)
		}
	}
	shape := query.Shape()
	length, batch, width := shape[0], shape[1], shape[2]
	if width != embedDim {
		refuse("was expecting embedding dimension of %d, but got %d", embedDim, width)
	}
	if numHeads <= 0 || width%numHeads != 0 {
		refuse("embed_dim %d not divisible by num_heads %d", width, numHeads)
	}
	head, all := width/numHeads, batch*numHeads
	if k, v := key.Shape(), value.Shape(); k[0] != v[0] || k[1] != v[1] || !opt.UseSeparateProjWeight && k[2] != v[2] {
		refuse("key shape %v does not match value shape %v", k, v)
	} else if k[1] != batch {
		refuse("key shape %v does not match query shape %v: the batches differ", k, shape)
	}
	if padding.T != nil {
		padding = CanonicalMask(padding, query.DType())
	}
	if opt.IsCausal && mask.T == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "need AttnMask if specifying IsCausal"})
	}
	causal := opt.IsCausal
	if causal && padding.T == nil && opt.NoNeedWeights {
		mask = gotorch.Tensor{} // the kernel makes its own
	} else {
		if mask.T != nil {
			mask = CanonicalMask(mask, query.DType())
		}
		if padding.T != nil {
			causal = false
		}
	}
	q, k, v := project(op, query, key, value, opt)
	places := key.Size(0)
	if mask.T != nil {
		want := []int64{length, places}
		if mask.Dim() == 3 {
			want = []int64{all, length, places}
		}
		if got := mask.Shape(); !slices.Equal(got, want) {
			panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: sprintf("the shape of the %dD AttnMask is %v, but should be %v", len(got), got, want)})
		}
		if mask.Dim() == 2 {
			mask = mask.Unsqueeze(0)
		}
	}
	appended := func() {
		if mask.T != nil {
			mask = Pad(mask, []int64{0, 1})
		}
		if padding.T != nil {
			padding = Pad(padding, []int64{0, 1})
		}
	}
	if (opt.BiasK.T == nil) != (opt.BiasV.T == nil) {
		refuse("one of BiasK and BiasV is given, but not the other")
	}
	if opt.BiasK.T != nil {
		if opt.StaticK.T != nil || opt.StaticV.T != nil {
			refuse("a bias cannot be added to a static key or value")
		}
		k = gotorch.Cat([]gotorch.Tensor{k, opt.BiasK.Repeat([]int64{1, batch, 1})})
		v = gotorch.Cat([]gotorch.Tensor{v, opt.BiasV.Repeat([]int64{1, batch, 1})})
		appended()
	}
	byHead := func(x, static gotorch.Tensor, name string) gotorch.Tensor {
		if static.T == nil {
			return x.View([]int64{x.Size(0), all, head}).Transpose(0, 1)
		}
		if s := static.Shape(); len(s) != 3 || s[0] != all || s[2] != head {
			refuse("expecting %s of (%d, S, %d), but got %v", name, all, head, s)
		}
		return static
	}
	q = q.View([]int64{length, all, head}).Transpose(0, 1)
	k, v = byHead(k, opt.StaticK, "StaticK"), byHead(v, opt.StaticV, "StaticV")
	if opt.AddZeroAttn {
		zeros := gotorch.Zeros([]int64{all, 1, head}, gotorch.TensorOptions{DType: k.DType(), Device: k.Device()})
		k = gotorch.Cat([]gotorch.Tensor{k, zeros}, gotorch.CatOptions{Dim: 1})
		v = gotorch.Cat([]gotorch.Tensor{v, zeros}, gotorch.CatOptions{Dim: 1})
		appended()
	}
	places = k.Size(1)
	if padding.T != nil {
		if s := padding.Shape(); s[0] != batch || s[1] != places {
			refuse("expected KeyPaddingMask of (%d, %d), but got %v", batch, places, s)
		}
		padding = padding.View([]int64{batch, 1, 1, places}).Expand([]int64{-1, numHeads, -1, -1}).Reshape([]int64{all, 1, places})
		if mask.T == nil {
			mask = padding
		} else {
			mask = mask.Add(padding)
		}
	}
	p := opt.DropoutP
	if opt.NoTraining {
		p = 0
	}
	if opt.NoNeedWeights {
		if mask.T != nil {
			if mask.Size(0) == 1 {
				mask = mask.Unsqueeze(0)
			} else {
				mask = mask.View([]int64{batch, numHeads, -1, places})
			}
		}
		out := ScaledDotProductAttention(q.View([]int64{batch, numHeads, length, head}), k.View([]int64{batch, numHeads, places, head}),
			v.View([]int64{batch, numHeads, places, head}), ScaledDotProductAttentionOptions{AttnMask: mask, DropoutP: p, IsCausal: causal})
		out = out.Permute([]int64{2, 0, 1, 3}).Reshape([]int64{batch * length, width})
		return projectOut(out, outProjWeight, opt.OutProjBias, length, batch, unbatched), gotorch.Tensor{}
	}
	scaled := q.MulScalar(math.Sqrt(1 / float64(head)))
	if mask.T != nil {
		weights = gotorch.BAddBMM(mask, scaled, k.Transpose(-2, -1))
	} else {
		weights = gotorch.BMM(scaled, k.Transpose(-2, -1))
	}
	weights = Softmax(weights, -1)
	if p > 0 {
		weights = Dropout(weights, p, true)
	}
	out := gotorch.BMM(weights, v).Transpose(0, 1).Reshape([]int64{length * batch, width})
	output = projectOut(out, outProjWeight, opt.OutProjBias, length, batch, unbatched)
	weights = weights.View([]int64{batch, numHeads, length, places})
	if !opt.NoAverageAttnWeights {
		weights = weights.MeanDim([]int64{1})
	}
	if unbatched {
		weights = weights.SqueezeDim(0)
	}
	return output, weights
}

func projectOut(out, weight, bias gotorch.Tensor, length, batch int64, unbatched bool) gotorch.Tensor {
	out = Linear(out, weight, LinearOptions{Bias: bias})
	out = out.View([]int64{length, batch, out.Size(1)})
	if unbatched {
		out = out.SqueezeDim(1)
	}
	return out
}

// project returns queries, keys and values. Where those are one tensor, or two, the product is one, or two:
// PyTorch does the same, and so are the last bits.
func project(op string, query, key, value gotorch.Tensor, opt MultiHeadAttentionForwardOptions) (q, k, v gotorch.Tensor) {
	part := func(t gotorch.Tensor, i, n int64) gotorch.Tensor {
		if t.T == nil {
			return t
		}
		third := t.Size(0) / 3
		return t.Narrow(0, i*third, n*third)
	}
	one := func(x, w, b gotorch.Tensor) gotorch.Tensor { return Linear(x, w, LinearOptions{Bias: b}) }
	b := opt.InProjBias
	if opt.UseSeparateProjWeight {
		weights := []gotorch.Tensor{opt.QProjWeight, opt.KProjWeight, opt.VProjWeight}
		for i, w := range weights {
			in := []gotorch.Tensor{query, key, value}[i].Size(-1)
			if w.T == nil {
				panic(args.ValueError(op, "UseSeparateProjWeight needs QProjWeight, KProjWeight and VProjWeight"))
			}
			if s := w.Shape(); len(s) != 2 || s[0] != query.Size(-1) || s[1] != in {
				panic(args.ValueError(op, "expecting weights of shape (%d, %d), but got %v", query.Size(-1), in, s))
			}
		}
		return one(query, weights[0], part(b, 0, 1)), one(key, weights[1], part(b, 1, 1)), one(value, weights[2], part(b, 2, 1))
	}
	w := opt.InProjWeight
	if w.T == nil {
		panic(args.ValueError(op, "there is no InProjWeight"))
	}
	width := query.Size(-1)
	apart := func(x gotorch.Tensor, n int64) gotorch.Tensor {
		return x.Unflatten(-1, []int64{n, width}).Unsqueeze(0).Transpose(0, -2).SqueezeDim(-2).Contiguous()
	}
	switch {
	case key.T != value.T:
		return one(query, part(w, 0, 1), part(b, 0, 1)), one(key, part(w, 1, 1), part(b, 1, 1)), one(value, part(w, 2, 1), part(b, 2, 1))
	case query.T != key.T:
		q = one(query, part(w, 0, 1), part(b, 0, 1))
		both := apart(one(key, part(w, 1, 2), part(b, 1, 2)), 2)
		return q, both.Select(0, 0), both.Select(0, 1)
	}
	all := apart(one(query, w, b), 3)
	return all.Select(0, 0), all.Select(0, 1), all.Select(0, 2)
}
