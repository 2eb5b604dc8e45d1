package metrics

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// task says what predictions and targets of a classification are.
type task struct {
	*base
	classes    int64 // of one element; or labels, each of which is there or is not. 0 of two classes
	labels     bool
	threshold  float64
	topK       int64
	samplewise bool
	ignore     *int64
}

// ignored stands for an element that does not count.
const ignored = -1

// within says whether there are samples with several elements each, and how many dimensions come before those.
func (k *task) setSamplewise(average string) {
	switch average {
	case "", "global":
	case "samplewise":
		k.samplewise = true
	default:
		panic(k.valueError("MultidimAverage should be \"global\" or \"samplewise\", and is %q", average))
	}
}

func (k *task) setThreshold(field gotorch.Scalar) {
	k.threshold = args.Float(k.op(), "Threshold", field, 0.5)
	if !(0 <= k.threshold && k.threshold <= 1) {
		panic(k.valueError("Threshold should be between 0 and 1, and is %v", k.threshold))
	}
}

func (k *task) setClasses(what string, n int64) {
	if n < 2 {
		panic(k.valueError("there should be at least two %s, and are %d", what, n))
	}
	k.classes = n
}

// elements are the predictions and targets of a batch: classes, or 0 and 1, or ignored.
type elements struct {
	preds, target []int64
	samples, each int // there are samples*each elements
}

func (k *task) counts(target []int64, i int) bool {
	return k.ignore == nil || target[i] != *k.ignore
}

// kept says which elements count; nil means all.
func (k *task) kept(target []int64) []bool {
	if k.ignore == nil {
		return nil
	}
	keep := make([]bool, len(target))
	for i := range target {
		keep[i] = target[i] != *k.ignore
	}
	return keep
}

// binaryLabels reads a target, or predictions, of zeros and ones.
func (k *task) binaryLabels(what string, t gotorch.Tensor, mayIgnore bool) []int64 {
	values := k.base.labels(what, t)
	for i, v := range values {
		if v != 0 && v != 1 && (!mayIgnore || k.counts(values, i)) {
			panic(k.runtimeError("the %s should hold only 0 and 1%s, and holds %d", what, k.orIgnored(mayIgnore), v))
		}
	}
	return values
}

func (k *task) orIgnored(mayIgnore bool) string {
	if !mayIgnore || k.ignore == nil {
		return ""
	}
	return " and the index to ignore"
}

// classLabels reads numbers of classes.
func (k *task) classLabels(what string, t gotorch.Tensor, keep []bool) []int64 {
	values := k.base.labels(what, t)
	mayIgnore := keep == nil
	for i, v := range values {
		if v >= 0 && v < k.classes || mayIgnore && !k.counts(values, i) || keep != nil && !keep[i] {
			continue
		}
		panic(k.runtimeError("the %s should hold classes from 0 to %d%s, and holds %d", what, k.classes-1, k.orIgnored(mayIgnore), v))
	}
	return values
}

// probabilities makes probabilities of logits, as soon as one number that counts cannot be a probability. keep has one
// element for each of scores, or for each of its rows if softmax is over columns.
func probabilities(scores gotorch.Tensor, keep []bool, softmax bool) gotorch.Tensor {
	values := gotorch.ToSlice[float64](scores)
	each := 1
	if softmax {
		each = int(scores.Size(1))
	}
	for i, v := range values {
		if v >= 0 && v <= 1 || keep != nil && !keep[i/each] {
			continue
		}
		if softmax {
			return scores.Softmax(1)
		}
		return scores.Sigmoid()
	}
	return scores
}

// binaryPreds reads predictions of zeros and ones, or scores against the threshold.
func (k *task) binaryPreds(output gotorch.Tensor, keep []bool) []int64 {
	if !output.IsFloatingPoint() {
		return k.binaryLabels("output", output, false)
	}
	return gotorch.ToSlice[int64](probabilities(output, keep, false).GtScalar(k.threshold))
}

func (k *task) checkBinary(output, target gotorch.Tensor) {
	k.sameShape(output, target)
	shape := output.Shape()
	least := 0
	if k.labels {
		if len(shape) < 2 || shape[1] != k.classes {
			panic(k.valueError("the output should have %d labels in its second dimension, and has the shape %v", k.classes, shape))
		}
		least = 1
	}
	if k.samplewise && len(shape) < least+2 {
		panic(k.valueError("with MultidimAverage \"samplewise\" the output should have at least %d dimensions, and has the shape %v", least+2, shape))
	}
}

// read reads a batch. The elements of labels are ordered by sample and label.
func (k *task) read(output, target gotorch.Tensor, ignoreFirst bool) elements {
	if k.classes == 0 || k.labels {
		k.checkBinary(output, target)
		labels := k.binaryLabels("target", target, true)
		keep := k.kept(labels)
		among := keep
		if !ignoreFirst {
			among = nil
		}
		e := elements{preds: k.binaryPreds(output, among), target: labels}
		e.drop(keep)
		e.shape(output.Shape())
		return e
	}
	k.checkClasses(output, target)
	labels := k.classLabels("target", target, nil)
	keep := k.kept(labels)
	e := elements{target: labels}
	if output.Dim() == target.Dim()+1 {
		if output.Numel() == 0 { // nothing to look for the largest of
			e.preds = make([]int64, len(labels))
		} else if k.topK <= 1 {
			e.preds = gotorch.ToSlice[int64](output.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))}))
		} else {
			e.preds = k.bestOf(output, labels)
		}
	} else {
		e.preds = k.classLabels("output", output, orAll(keep, len(labels)))
	}
	e.drop(keep)
	e.shape(target.Shape())
	return e
}

func orAll(keep []bool, n int) []bool {
	if keep == nil {
		keep = slices.Repeat([]bool{true}, n)
	}
	return keep
}

// bestOf has the class of the target where it is among the topK largest scores, and else the largest.
func (k *task) bestOf(output gotorch.Tensor, target []int64) []int64 {
	_, indices := output.TopK(k.topK, gotorch.TopKOptions{Dim: new(int64(1))})
	best := gotorch.ToSlice[int64](indices.MoveDim([]int64{1}, []int64{-1}))
	result := make([]int64, len(target))
	for i, want := range target {
		these := best[i*int(k.topK) : (i+1)*int(k.topK)]
		result[i] = these[0]
		if slices.Contains(these, want) {
			result[i] = want
		}
	}
	return result
}

func (k *task) checkClasses(output, target gotorch.Tensor) {
	o, t := output.Shape(), target.Shape()
	switch {
	case len(o) == len(t)+1 && len(t) > 0:
		if !output.IsFloatingPoint() {
			panic(k.valueError("an output of one dimension more than the target should hold scores, and is %v", output.DType()))
		}
		if o[1] != k.classes {
			panic(k.valueError("the output should have %d classes in its second dimension, and has the shape %v", k.classes, o))
		}
		if o[0] != t[0] || !same(o[2:], t[1:]) {
			panic(k.valueError("the output should have the shape (N, C, ...) and the target (N, ...), and they have %v and %v", o, t))
		}
	case len(o) == len(t):
		if !same(o, t) {
			panic(k.valueError("the output and the target should have the same shape, and have %v and %v", o, t))
		}
		if k.topK > 1 {
			panic(k.valueError("with TopK the output should hold scores of shape (N, C, ...), and has the shape %v, as the target", o))
		}
	default:
		panic(k.valueError("the output should have the target's shape, or (N, C, ...) where the target has (N, ...), and they have %v and %v", o, t))
	}
	if k.samplewise && len(t) < 2 {
		panic(k.valueError("with MultidimAverage \"samplewise\" the target should have at least 2 dimensions, and has the shape %v", t))
	}
}

func (e *elements) drop(keep []bool) {
	for i, k := range keep {
		if !k {
			e.target[i] = ignored
		}
	}
}

func (e *elements) shape(shape []int64) {
	e.samples, e.each = 1, len(e.target)
	if len(shape) > 0 {
		e.samples = int(shape[0])
		e.each = 0
		if e.samples > 0 {
			e.each = len(e.target) / e.samples
		}
	}
}
