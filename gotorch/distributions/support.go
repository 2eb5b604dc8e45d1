package distributions

import (
	"math"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	F "gotorch.dev/gotorch/nn/functional"
)

// What distributions are made of.

const eulerGamma = 0.57721566490153286060

var (
	last = []int64{-1}
	kept = gotorch.SumDimOptions{KeepDim: true}
)

// broadcast is numeric.Broadcast for the constructor op.
func broadcast(op string, names []string, params ...Param) []gotorch.Tensor {
	return numeric.Broadcast("distributions."+op, names, params...)
}

// lazy is a tensor that is computed when it is first asked for, and kept.
type lazy struct {
	mutex sync.Mutex
	value gotorch.Tensor
}

// get returns the tensor. What is computed outlives the scopes and modes of the caller. It is computed again
// where somebody has closed it.
func (l *lazy) get(compute func() gotorch.Tensor) gotorch.Tensor {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.value.Defined() {
		var value gotorch.Tensor
		gotorch.Unscoped(func() { gotorch.EnableGrad(func() { value = compute() }) })
		l.value = value
	}
	return l.value
}

// peek returns the tensor if it is there, else none.
func (l *lazy) peek() gotorch.Tensor {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.value
}

// ProbsOrLogits is embedded in distributions that are made of either probabilities or their logits. The other one is
// computed when it is first asked for.
type ProbsOrLogits struct {
	probs, logits lazy
	param         gotorch.Tensor // the one of both that was given
	binary        bool
	clamped       bool // probs are kept from 0 and 1
}

// either reports which of both arguments was given. It panics with a ValueError if there are both or none.
func either(op string, probs, logits Param) (isProbs bool) {
	if numeric.Given(probs) == numeric.Given(logits) {
		panic(numeric.Errorf("distributions."+op, gotorch.ValueError, "Either `probs` or `logits` must be specified, but not both."))
	}
	return numeric.Given(probs)
}

func newProbsOrLogits(isProbs bool, value gotorch.Tensor, binary, clamped bool) *ProbsOrLogits {
	p := &ProbsOrLogits{param: value, binary: binary, clamped: clamped}
	if isProbs {
		p.probs.value = value
	} else {
		p.logits.value = value
	}
	return p
}

// Probs are the probabilities.
func (p *ProbsOrLogits) Probs() gotorch.Tensor {
	return p.probs.get(func() gotorch.Tensor {
		logits := p.logits.peek()
		if !p.binary {
			return logits.Softmax(-1)
		}
		if p.clamped {
			return clampProbs(logits.Sigmoid())
		}
		return logits.Sigmoid()
	})
}

// Logits are the logarithms of the probabilities, or log(p / (1-p)) where it is about yes and no.
func (p *ProbsOrLogits) Logits() gotorch.Tensor {
	return p.logits.get(func() gotorch.Tensor {
		probs := clampProbs(p.probs.peek())
		if p.binary {
			return probs.Log().Sub(probs.Neg().Log1p())
		}
		return probs.Log()
	})
}

// ParamShape is the shape of Probs and Logits.
func (p *ProbsOrLogits) ParamShape() []int64 { return p.param.Shape() }

// expand returns what is there of both in another shape.
func (p *ProbsOrLogits) expand(shape []int64) *ProbsOrLogits {
	n := &ProbsOrLogits{binary: p.binary, clamped: p.clamped}
	if t := p.probs.peek(); t.T != nil {
		n.probs.value = t.Expand(shape)
		n.param = n.probs.value
	}
	if t := p.logits.peek(); t.T != nil {
		n.logits.value = t.Expand(shape)
		n.param = n.logits.value
	}
	return n
}

func (p *ProbsOrLogits) parameters(probs, logits constraints.Constraint) []Parameter {
	return []Parameter{{"probs", probs, p.probs.peek(), false}, {"logits", logits, p.logits.peek(), false}}
}

// ofParts is parameters for a distribution made of the one that p is of: both are checked, and are computed for that.
func (p *ProbsOrLogits) ofParts(d *Base, probs, logits constraints.Constraint) []Parameter {
	if d.Validates() {
		p.Probs()
		p.Logits()
	}
	found := p.parameters(probs, logits)
	for i := range found {
		found[i].Unprinted = true
	}
	return found
}

// clampProbs keeps probabilities from 0 and 1.
func clampProbs(p gotorch.Tensor) gotorch.Tensor {
	eps := numeric.Eps(p.DType())
	return p.Clamp(gotorch.ClampOptions{Min: eps, Max: 1 - eps})
}

// crossEntropy is that of logits with probabilities, for each element.
func crossEntropy(logits, probs gotorch.Tensor) gotorch.Tensor {
	return F.BinaryCrossEntropyWithLogits(logits, probs, F.BinaryCrossEntropyWithLogitsOptions{Reduction: F.None})
}

// standardNormal draws from a normal distribution.
func standardNormal(shape []int64, like gotorch.Tensor) gotorch.Tensor {
	return gotorch.Empty(shape, numeric.Like(like)).Normal_()
}

func uniform(shape []int64, like gotorch.Tensor) gotorch.Tensor {
	return gotorch.Rand(shape, numeric.Like(like))
}

// filled is a tensor of a number, of like's dtype.
func filled(shape []int64, number float64, like gotorch.Tensor) gotorch.Tensor {
	return gotorch.Full(shape, number, numeric.Like(like))
}

// where is whole where the condition holds, else a number.
func where(condition, whole gotorch.Tensor, number float64) gotorch.Tensor {
	return whole.WhereScalarOther(condition, number)
}

// set writes a number where mask holds.
func set(t, mask gotorch.Tensor, number gotorch.Scalar) { t.IndexPut(number, mask) }

// copied is a contiguous copy of t, to write into.
func copied(t gotorch.Tensor) gotorch.Tensor {
	return t.Clone(gotorch.CloneOptions{MemoryFormat: gotorch.ContiguousFormat})
}

// infinite is a tensor of infinities, of t's shape.
func infinite(t gotorch.Tensor) gotorch.Tensor { return gotorch.FullLike(t, math.Inf(1)) }

// tail returns the last sizes of a shape, and head what stands before them.
func tail(shape []int64, n int) []int64 { return shape[len(shape)-n:] }

func head(shape []int64, n int) []int64 { return shape[:len(shape)-n] }

// diagonal is that of matrices in the last two dimensions.
func diagonal(m gotorch.Tensor) gotorch.Tensor {
	return m.Diagonal(gotorch.DiagonalOptions{Dim1: -2, Dim2: new(int64(-1))})
}

// sum is over the last dimension.
func sum(t gotorch.Tensor) gotorch.Tensor { return t.SumDim(last) }

// logDiagonal is the sum of the logarithms on the diagonal.
func logDiagonal(m gotorch.Tensor) gotorch.Tensor { return sum(diagonal(m).Log()) }

// enumerated is 0, 1, ... along a new first dimension before those of a batch.
func enumerated(n int64, batch []int64, like gotorch.TensorOptions, opt EnumerateSupportOptions) gotorch.Tensor {
	shape := make([]int64, 1+len(batch))
	for i := range shape {
		shape[i] = 1
	}
	shape[0] = -1
	values := gotorch.Arange(n, like).View(shape)
	if opt.NoExpand {
		return values
	}
	return values.Expand(append([]int64{-1}, batch...))
}
