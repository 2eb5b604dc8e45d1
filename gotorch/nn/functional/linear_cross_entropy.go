package functional

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// LinearCrossEntropyChunking has [LinearCrossEntropy] go through the batch in chunks, so that there are never the
// logits of more than one chunk: the memory of a head over many classes is that of the chunk, not of the batch. It is
// PyTorch's class LinearCrossEntropyOptions, and its zero value has the same defaults.
//
// With the reductions Mean and Sum the gradients are computed in the forward pass, and a backward pass only
// multiplies them; with None it computes them anew. They cannot be differentiated again: a backward pass under
// CreateGraph is a RuntimeError, and there is no forward mode. Where chunks are not possible, [LinearCrossEntropy]
// warns and computes everything at once: with LabelSmoothing, for classes of several dimensions, and for targets of
// probabilities that require grad or have another dtype than the input.
//
// Chunks are worth it where there are more classes than features, and at least as many rows as features.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.LinearCrossEntropyOptions.html.
type LinearCrossEntropyChunking struct {
	// AllowRetainGraph lets the backward passes of the reductions Mean and Sum run again, under RetainGraph, for
	// memory of the size of the gradients. Without it the gradients are used up, and a second pass is a RuntimeError.
	AllowRetainGraph bool
	// BatchChunkSize is how many rows a chunk has. Default: what ChunkingMethod says.
	BatchChunkSize gotorch.Scalar
	// ChunkingMethod says how many rows a chunk has: with "aspect_ratio" so many that its logits take as much memory
	// as the input, rounded up to a power of two; with "aspect_ratio:N" an N-th of that; with "none", Python's None,
	// all, or BatchChunkSize. With "auto" it is "aspect_ratio", but where AccPolicy is "compact" never so many
	// that it takes more memory than without chunks. Default: "auto".
	ChunkingMethod string
	// AccPolicy says what is computed in AccDType where that is not the input's dtype: "accurate" as much as there
	// is, "compact" what gradients would be wrong without. "auto" is "accurate" for float16 and bfloat16 on the CPU,
	// and "compact" otherwise. Default: "auto".
	AccPolicy string
	// AccDType is the dtype of sums: the input's, or Float32 for an input of Float16 or BFloat16. Default: the
	// latter under AccPolicy "auto", and the input's otherwise.
	AccDType gotorch.DType
}

// Check panics with a ValueError if a field has a value that none can have; op is what the error says of where it
// comes from.
func (c LinearCrossEntropyChunking) Check(op string) {
	switch c.AccPolicy {
	case "", "auto", "accurate", "compact":
	default:
		panic(args.ValueError(op, "invalid acc_policy: %q; expected one of \"auto\", \"accurate\", \"compact\"", c.AccPolicy))
	}
	if _, _, ok := c.method(); !ok {
		panic(args.ValueError(op, "invalid chunking_method: %q; expected \"auto\", \"aspect_ratio\", \"aspect_ratio:N\" with N from 1, or \"none\"", c.ChunkingMethod))
	}
	if n := args.IntPointer(op, "BatchChunkSize", c.BatchChunkSize); n != nil && *n <= 0 {
		panic(args.ValueError(op, "batch_chunk_size must be positive int or None, got %d", *n))
	}
	switch c.AccDType {
	case 0, gotorch.Float16, gotorch.BFloat16, gotorch.Float32, gotorch.Float64:
	default:
		panic(args.ValueError(op, "acc_dtype must be one of Float16, BFloat16, Float32 and Float64, got %v", c.AccDType))
	}
}

// String returns what Python prints of the options.
func (c LinearCrossEntropyChunking) String() string {
	quoted := func(s string) string {
		switch s {
		case "":
			return "'auto'"
		case "none":
			return "None"
		}
		return "'" + s + "'"
	}
	retain, size, dtype := "False", "None", "None"
	if c.AllowRetainGraph {
		retain = "True"
	}
	if n := args.IntPointer("functional.LinearCrossEntropyChunking", "BatchChunkSize", c.BatchChunkSize); n != nil {
		size = strconv.FormatInt(*n, 10)
	}
	if c.AccDType != 0 {
		dtype = c.AccDType.String()
	}
	return fmt.Sprintf("LinearCrossEntropyOptions(allow_retain_graph=%s, batch_chunk_size=%s, chunking_method=%s, acc_policy=%s, acc_dtype=%s)",
		retain, size, quoted(c.ChunkingMethod), quoted(c.AccPolicy), dtype)
}

// method returns ChunkingMethod without its factor: "auto", "aspect_ratio" or "none".
func (c LinearCrossEntropyChunking) method() (name string, factor int64, ok bool) {
	switch c.ChunkingMethod {
	case "", "auto":
		return "auto", 1, true
	case "none", "aspect_ratio":
		return c.ChunkingMethod, 1, true
	}
	name, digits, _ := strings.Cut(c.ChunkingMethod, ":")
	n, err := strconv.ParseUint(digits, 10, 63)
	return name, int64(n), name == "aspect_ratio" && err == nil && n > 0
}

// chunking is a LinearCrossEntropyChunking for one call.
type chunking struct {
	rows   int64
	policy string
	acc    gotorch.DType
}

func (c LinearCrossEntropyChunking) of(op string, input gotorch.Tensor, n, classes int64, probabilities bool) chunking {
	dtype, device, features := input.DType(), input.Device().Type(), input.Size(-1)
	low := dtype == gotorch.Float16 || dtype == gotorch.BFloat16
	is := chunking{rows: n, policy: c.AccPolicy, acc: c.AccDType}
	if is.policy == "" || is.policy == "auto" {
		is.policy = "compact"
		if low && device == gotorch.DeviceTypeCPU {
			is.policy = "accurate"
		}
		if is.acc == 0 && low && (device == gotorch.DeviceTypeCPU || device == gotorch.DeviceTypeCUDA) {
			is.acc = gotorch.Float32
		}
	}
	if is.acc == 0 {
		is.acc = dtype
	}
	method, factor, _ := c.method()
	auto := method == "auto"
	size := args.IntPointer(op, "BatchChunkSize", c.BatchChunkSize)
	if size != nil {
		is.rows = min(*size, n)
		if auto {
			method = "none"
		}
	}
	if method != "none" {
		part := ceilDiv(n, ceilDiv(classes, features))
		is.rows = 1
		if part > 1 {
			is.rows = 1 << bits.Len64(uint64(part-1))
		}
		is.rows = min(is.rows/factor, n)
		if auto && is.policy == "compact" {
			most := n / 2
			if !probabilities {
				most = n * classes / (4 * features)
			}
			if most >= 1 {
				most = 1 << (bits.Len64(uint64(most)) - 1)
			}
			is.rows = max(1, min(is.rows, max(most, 1)))
		}
		if size != nil && *size != is.rows {
			panic(args.ValueError(op, "batch_chunk_size (=%d) and chunking_method ('%s') give different chunk sizes (%d vs %d); pass only one.",
				*size, c.ChunkingMethod, *size, is.rows))
		}
	}
	is.rows = max(1, is.rows)
	if is.acc != dtype && !(low && is.acc == gotorch.Float32) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
			"linear_cross_entropy supports float32 acc_dtype with float16/bfloat16 inputs, but got %v acc_dtype and %v inputs.", is.acc, dtype)})
	}
	return is
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }

// chunkedLoss is LinearCrossEntropy in chunks, of two-dimensional arguments. Its inputs are the input, the weight of
// the layer, the target, the bias, and the weight of each class, of which the last two may be none.
type chunkedLoss struct {
	chunking
	reduction   Reduction
	ignoreIndex int64
	retain      bool
}

// Indices of the inputs.
const (
	chunkInput = iota
	chunkLinear
	chunkTarget
	chunkBias
	chunkWeight
	chunkInputs
)

// Forward computes the loss, and the gradients unless the reduction is None.
func (c *chunkedLoss) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	if c.reduction == None {
		ctx.SaveForBackward(in...)
		return []gotorch.Tensor{c.losses(in)}
	}
	ctx.SetMaterializeGrads(false)
	results := c.gradients(in, gotorch.Tensor{}, ctx.NeedsInputGrad(chunkInput), ctx.NeedsInputGrad(chunkLinear), ctx.NeedsInputGrad(chunkBias))
	ctx.SaveForBackward(results[1:]...)
	ctx.Data = new(atomic.Bool)
	return results[:1]
}

// Backward multiplies the gradients by that of the loss, or computes them with those of the losses.
func (c *chunkedLoss) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	const op = "functional.LinearCrossEntropy"
	results := make([]gotorch.Tensor, chunkInputs)
	if grads[0].T == nil {
		return results
	}
	if gotorch.GradEnabled() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "the gradient of the chunked loss has no gradient itself: leave out CreateGraph, or the option Options"})
	}
	if c.reduction == None {
		found := c.gradients(ctx.SavedTensors(), grads[0], ctx.NeedsInputGrad(chunkInput), ctx.NeedsInputGrad(chunkLinear), ctx.NeedsInputGrad(chunkBias))
		results[chunkInput], results[chunkLinear], results[chunkBias] = found[1], found[2], found[3]
		return results
	}
	if !c.retain && ctx.Data.(*atomic.Bool).Swap(true) {
		panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: "linear_cross_entropy chunked backward called twice; the gradients are used up: give the option AllowRetainGraph for passes with RetainGraph"})
	}
	for i, g := range ctx.SavedTensors() {
		if g.T == nil {
			continue
		}
		if c.retain {
			g = g.Mul(grads[0])
		} else {
			g.Mul_(grads[0])
		}
		results[[...]int{chunkInput, chunkLinear, chunkBias}[i]] = g
	}
	return results
}

// chunks is what a pass through the chunks works with. What is none is not wanted, or the same as something else.
type chunks struct {
	*chunkedLoss
	input, linear, target, bias, weight gotorch.Tensor
	logitsType                          gotorch.DType
	probabilities                       bool

	cast     gotorch.Tensor // linear in logitsType
	logits   gotorch.Tensor // of one chunk
	rowsOf   gotorch.Tensor // a number for each of its rows
	scaled   gotorch.Tensor // its target times weights, of probabilities
	factors  gotorch.Tensor // the weight of each row in the loss, negative, of classes
	upstream gotorch.Tensor // the gradients of the losses
}

func (c *chunkedLoss) begin(in []gotorch.Tensor, upstream gotorch.Tensor) *chunks {
	k := &chunks{chunkedLoss: c, input: in[chunkInput], linear: in[chunkLinear], target: in[chunkTarget], bias: in[chunkBias], weight: in[chunkWeight], upstream: upstream}
	dtype := k.input.DType()
	classes := k.linear.Size(0)
	k.logitsType = c.acc
	if dtype == gotorch.Float16 && c.policy == "compact" {
		k.logitsType = dtype
	}
	k.probabilities = k.target.IsFloatingPoint()
	k.cast = k.linear.To(k.logitsType)
	if k.bias.T != nil {
		k.bias = k.bias.To(k.logitsType)
	}
	k.logits = k.input.NewEmpty([]int64{c.rows, classes}, gotorch.TensorOptions{DType: k.logitsType})
	k.rowsOf = k.input.NewEmpty([]int64{c.rows}, gotorch.TensorOptions{DType: k.logitsType})
	if k.probabilities {
		if k.weight.T != nil {
			k.weight = k.weight.To(k.logitsType).Unsqueeze(0)
		}
		if k.weight.T != nil || dtype != k.logitsType || upstream.T != nil {
			k.scaled = k.input.NewEmpty([]int64{c.rows, classes}, gotorch.TensorOptions{DType: k.logitsType})
		}
		return k
	}
	ignored := k.target.EqScalar(c.ignoreIndex)
	if c.ignoreIndex < 0 || c.ignoreIndex >= classes {
		k.target = gotorch.WhereScalarSelf(ignored, 0, k.target) // counted with weight 0
	}
	switch {
	case k.weight.T == nil:
		k.factors = ignored.LogicalNot().To(c.acc)
	case k.target.Numel() > k.weight.Numel():
		k.factors = gotorch.WhereScalarSelf(ignored, 0, k.weight.To(c.acc).IndexSelect(0, k.target))
	default:
		k.factors = gotorch.WhereScalarSelf(ignored, 0, k.weight.IndexSelect(0, k.target).To(c.acc))
	}
	switch {
	case c.reduction == Mean:
		d := k.factors.Sum()
		k.factors.Div_(gotorch.WhereScalarSelf(d.EqScalar(0), math.NaN(), d.Neg()))
	case c.reduction == Sum:
		k.factors.Neg_()
	case upstream.T != nil:
		k.factors.Neg_().Mul_(upstream.To(c.acc))
	}
	return k
}

// chunk is a part of the batch.
type chunk struct {
	start, n              int64
	input, target, logits gotorch.Tensor
	wide                  gotorch.Tensor // input in the dtype of sums
}

// each calls fn for each chunk, with the logits, from which the greatest of their row is subtracted: exp of
// them cannot overflow.
func (k *chunks) each(fn func(c chunk)) {
	total := k.input.Size(0)
	for start := int64(0); start < total; start += k.rows {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			c := chunk{start: start, n: min(k.rows, total-start)}
			c.input, c.target, c.logits = k.input.Narrow(0, start, c.n), k.target.Narrow(0, start, c.n), k.logits.Narrow(0, 0, c.n)
			c.wide = c.input.To(k.acc)
			gotorch.MMOut(c.input.To(k.logitsType), k.cast.Transpose2D(), c.logits)
			if k.bias.T != nil {
				c.logits.Add_(k.bias)
			}
			greatest := k.rowsOf.Narrow(0, 0, c.n).Unsqueeze(1)
			gotorch.AMaxOut(c.logits, greatest, gotorch.AMaxOptions{Dim: []int64{1}, KeepDim: true})
			c.logits.Sub_(greatest)
			fn(c)
		})
	}
}

// scaledTarget is the target of a chunk of probabilities, times the weights of the classes.
func (k *chunks) scaledTarget(c chunk) gotorch.Tensor {
	if k.scaled.T == nil {
		return c.target
	}
	t := k.scaled.Narrow(0, 0, c.n)
	if k.weight.T != nil {
		gotorch.MulOut(c.target, k.weight, t)
	} else {
		t.Copy_(c.target)
	}
	if k.upstream.T != nil {
		t.Mul_(k.upstream.Narrow(0, c.start, c.n).Unsqueeze(1))
	}
	return t
}

// sumExp makes exp of the logits, and returns the sum of each row. A sum of many classes in float16 overflows.
func (k *chunks) sumExp(c chunk) gotorch.Tensor {
	dtype := k.acc
	if k.input.DType() == gotorch.Float16 {
		dtype = gotorch.Float32
	}
	return c.logits.Exp_().SumDim([]int64{1}, gotorch.SumDimOptions{DType: dtype})
}

func (k *chunks) rowMass(t gotorch.Tensor) gotorch.Tensor {
	return t.SumDim([]int64{1}, gotorch.SumDimOptions{DType: k.acc})
}

// losses returns the loss of each row.
func (c *chunkedLoss) losses(in []gotorch.Tensor) gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		k := c.begin(in, gotorch.Tensor{})
		out := k.input.NewEmpty([]int64{k.input.Size(0)})
		k.each(func(c chunk) {
			var loss gotorch.Tensor
			if k.probabilities {
				target := k.scaledTarget(c)
				mass := k.rowMass(target)
				inner := gotorch.Einsum("bv,bv->b", []gotorch.Tensor{target, c.logits})
				loss = k.sumExp(c).Log_().Mul_(mass).Sub_(inner)
			} else {
				inner := c.logits.Gather(1, c.target.Unsqueeze(1)).SqueezeDim(1)
				loss = k.sumExp(c).Log_().Sub_(inner).Mul_(k.factors.Narrow(0, c.start, c.n))
			}
			out.Narrow(0, c.start, c.n).Copy_(loss)
		})
		return out
	})
}

// gradients returns the loss, reduced, and the gradients of the input, the layer's weight and its bias, where they
// are wanted. upstream are the gradients of the losses, where the reduction is None.
func (c *chunkedLoss) gradients(in []gotorch.Tensor, upstream gotorch.Tensor, ofInput, ofLinear, ofBias bool) []gotorch.Tensor {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		k := c.begin(in, upstream)
		dtype := k.input.DType()
		n, classes, features := k.input.Size(0), k.linear.Size(0), k.input.Size(1)
		mixed := dtype != c.acc
		zeros := func(dtype gotorch.DType, shape ...int64) gotorch.Tensor {
			return k.input.NewZeros(shape, gotorch.TensorOptions{DType: dtype})
		}
		empty := func(dtype gotorch.DType, shape ...int64) gotorch.Tensor {
			return k.input.NewEmpty(shape, gotorch.TensorOptions{DType: dtype})
		}
		inputType, lossType := dtype, dtype // while they are summed
		if mixed && c.policy != "compact" {
			inputType = c.acc
		}
		if mixed && dtype == gotorch.Float16 {
			lossType = c.acc
		}
		loss := zeros(lossType)
		if c.reduction == Mean && n == 0 {
			loss.Fill_(math.NaN())
		}
		var gradInput, gradLinear, gradBias gotorch.Tensor
		var inputPart, linearPart, biasPart gotorch.Tensor // of a chunk, in another dtype
		if ofInput {
			gradInput = empty(inputType, n, features)
			if inputType != k.logitsType {
				inputPart = empty(k.logitsType, c.rows, features)
			}
		}
		if ofLinear {
			gradLinear = zeros(dtype, classes, features)
			if c.policy != "compact" || k.logitsType != dtype {
				linearPart = empty(c.acc, classes, features)
			}
		}
		if ofBias {
			gradBias = zeros(dtype, classes)
			biasPart = gradBias
			if mixed {
				biasPart = zeros(c.acc, classes)
			}
		}
		wanted := ofInput || ofLinear || ofBias
		scale := 1.0
		if c.reduction == Mean {
			scale = 1 / float64(n)
		}
		pass := func(part chunk, partInput gotorch.Tensor) {
			logits, partTarget := part.logits, part.target
			if k.probabilities {
				target := k.scaledTarget(part)
				if upstream.T == nil {
					var inner gotorch.Tensor
					if k.logitsType == gotorch.Float16 { // the dot product would overflow
						inner = gotorch.Einsum("bv,bv->b", []gotorch.Tensor{target, logits}).Sum(gotorch.SumOptions{DType: gotorch.Float32})
					} else {
						inner = target.Reshape([]int64{-1}).Dot(logits.Reshape([]int64{-1}))
					}
					loss.Sub_(inner, gotorch.SubOptions{Alpha: scale})
				}
				mass := k.rowMass(target)
				if scale != 1 {
					// As a tensor the factor keeps its precision; as a number it is rounded to float16.
					mass.Mul_(gotorch.Full([]int64{}, scale, gotorch.TensorOptions{DType: gotorch.Float64}))
				}
				sums := k.sumExp(part)
				if wanted {
					factor := k.rowsOf.Narrow(0, 0, part.n)
					gotorch.DivOut(mass, sums, factor)
					logits.Mul_(factor.Unsqueeze(1))
				}
				if upstream.T == nil {
					loss.Add_(mass.To(sums.DType()).Dot(sums.Log_()))
				}
				if !wanted {
					return
				}
				logits.Sub_(target, gotorch.SubOptions{Alpha: scale})
				if ofBias {
					biasPart.Add_(logits.SumDim([]int64{0}, gotorch.SumDimOptions{DType: c.acc}))
				}
				if ofInput {
					gotorch.MMOut(logits, k.cast, partInput)
				}
				if ofLinear && linearPart.T != nil {
					gotorch.MMOut(logits.Transpose2D(), part.wide, linearPart)
					gradLinear.Add_(linearPart)
				} else if ofLinear {
					gradLinear.AddMM_(logits.Transpose2D(), part.input)
				}
				return
			}

			factors := k.factors.Narrow(0, part.start, part.n)
			loss.Add_(factors.Dot(logits.Gather(1, partTarget.Unsqueeze(1)).SqueezeDim(1).To(c.acc)))
			sums := k.sumExp(part)
			if wanted {
				factor := k.rowsOf.Narrow(0, 0, part.n)
				gotorch.DivOut(factors, sums, factor)
				logits.Mul_(factor.Unsqueeze(1))
			}
			loss.Sub_(factors.To(sums.DType()).Dot(sums.Log_()))
			if ofBias {
				biasPart.Sub_(logits.SumDim([]int64{0}, gotorch.SumDimOptions{DType: c.acc}))
				biasPart.IndexAdd_(0, partTarget, factors)
			}
			if ofInput {
				gotorch.MulOut(k.cast.IndexSelect(0, partTarget), factors.To(partInput.DType()).Unsqueeze(1), partInput)
				gotorch.AddMMOut(partInput, logits, k.cast, partInput, gotorch.AddMMOptions{Alpha: -1})
			}
			if !ofLinear {
				return
			}
			if linearPart.T != nil {
				gotorch.MMOut(logits.Transpose2D(), part.wide, linearPart)
				linearPart.IndexAdd_(0, partTarget, part.wide.Mul(factors.Unsqueeze(1)), gotorch.IndexAddOptions{Alpha: -1})
				gradLinear.Sub_(linearPart)
				return
			}
			gradLinear.AddMM_(logits.Transpose2D(), part.input, gotorch.AddMMOptions{Alpha: -1})
			gradLinear.IndexAdd_(0, partTarget, part.wide.Mul(factors.Unsqueeze(1)).To(dtype))
		}
		k.each(func(part chunk) {
			var partInput gotorch.Tensor
			if ofInput {
				partInput = gradInput.Narrow(0, part.start, part.n)
				if inputPart.T != nil {
					partInput = inputPart.Narrow(0, 0, part.n)
				}
			}
			pass(part, partInput)
			if inputPart.T != nil {
				gradInput.Narrow(0, part.start, part.n).Copy_(partInput)
			}
			if ofBias && mixed {
				gradBias.Add_(biasPart.To(dtype))
				biasPart.Zero_()
			}
		})
		if ofInput {
			gradInput = gradInput.To(dtype)
		}
		return []gotorch.Tensor{loss.To(dtype), gradInput, gradLinear, gradBias}
	})
}

// inChunks returns the loss in chunks, or none where that is not possible.
func (c *LinearCrossEntropyChunking) inChunks(op string, input, linear, target gotorch.Tensor, opt LinearCrossEntropyOptions) gotorch.Tensor {
	code := *opt.Reduction.code(op)
	probabilities := slices.Equal(target.Shape(), append(slices.Clone(input.Shape()[:input.Dim()-1]), linear.Size(0))) &&
		target.DType() == input.DType() && !(target.RequiresGrad() && gotorch.GradEnabled())
	if opt.LabelSmoothing != 0 || linear.Dim() > 2 || target.DType() != gotorch.Int64 && !probabilities {
		gotorch.Warn(gotorch.Warning{Kind: "UserWarning", Msg: fmt.Sprintf("linear_cross_entropy: Options ignored: chunks need LabelSmoothing 0, "+
			"a target of int64, or of probabilities with the dtype of input and without grad, and classes of one dimension. "+
			"Got LabelSmoothing %v, a target of %v, and linearWeight of shape %v.", opt.LabelSmoothing, target.DType(), linear.Shape())})
		return gotorch.Tensor{}
	}
	n, classes := int64(1), linear.Size(0)
	single := input.Dim() == 1
	if single {
		input, target = input.Unsqueeze(0), target.Unsqueeze(0)
	} else {
		n = input.Size(0)
	}
	if classes == 0 || input.Size(1) == 0 {
		return gotorch.Tensor{} // there is nothing to save
	}
	if !probabilities && !slices.Equal(target.Shape(), []int64{n}) {
		panic(args.ValueError(op, "Expected target of shape [%d], one class for each row of input, got %v", n, target.Shape()))
	}
	f := &chunkedLoss{chunking: c.of(op, input, n, classes, probabilities), reduction: None, ignoreIndex: args.Int(op, "IgnoreIndex", opt.IgnoreIndex, -100), retain: c.AllowRetainGraph}
	switch code {
	case 1:
		f.reduction = Mean
	case 2:
		f.reduction = Sum
	}
	// Gradients that wait for the backward pass are held by the graph alone.
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		loss := gotorch.Apply(f, input, linear, target, opt.LinearBias, opt.Weight)[0]
		if single && loss.Dim() > 0 {
			loss = loss.SqueezeDim(0)
		}
		return loss
	})
}
