package metrics

import (
	"errors"
	"math"
	"slices"
	"sort"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// CurveOptions are the options of curves, and of the numbers that are made of them.
type CurveOptions struct {
	// Thresholds are where scores are counted: memory does not grow with the samples then, and the result is an
	// approximation. Nil, or nothing in it, means that all scores are kept, and the result is exact.
	Thresholds []float64
	// NumThresholds is for that many thresholds, evenly spread from 0 to 1.
	NumThresholds int64
	IgnoreIndex   *int64 // elements with this target do not count
}

// AUROCOptions are the options of the area under a curve, and of average precision.
type AUROCOptions struct {
	Average       string         // over classes or labels: "macro", "weighted", "none", and of labels "micro"; default: "macro"
	MaxFPR        gotorch.Scalar // of two classes and the ROC curve: only the part up to this rate counts
	Thresholds    []float64      // as in [CurveOptions]
	NumThresholds int64          // as in [CurveOptions]
	IgnoreIndex   *int64         // elements with this target do not count
}

// AveragePrecisionOptions are the options of average precision.
type AveragePrecisionOptions struct {
	Average       string    // over classes or labels: "macro", "weighted", "none", and of labels "micro"; default: "macro"
	Thresholds    []float64 // as in [CurveOptions]
	NumThresholds int64     // as in [CurveOptions]
	IgnoreIndex   *int64    // elements with this target do not count
}

// Curve is a curve of one class: points with the threshold that gives each.
type Curve struct {
	X, Y       []float64 // of a ROC: false and true positive rate; of precision and recall: precision and recall
	Thresholds []float64 // for precision and recall one less: the last point, 1 and 0, has none
}

// CurveMetric is a metric that has a curve for each class or label, or one for two classes.
type CurveMetric struct {
	base
	engine *curves
	of     func(c *curves) []Curve
}

// Update adds a batch: scores and a target, as the constructor says.
func (m *CurveMetric) Update(output, target gotorch.Tensor) {
	m.reading([]gotorch.Tensor{output, target}, func() { m.engine.update(output, target) })
}

// Compute returns the curves: one for two classes, else one for each class or label. It panics with a ValueError if
// there are no samples.
func (m *CurveMetric) Compute() []Curve { return m.of(m.engine) }

// curves is the engine of all that is made of scores: all of them, or how many there are above each threshold.
type curves struct {
	task
	kind       int
	n          int       // of classes or labels; 1 for two classes
	thresholds []float64 // nil: exact
	order      []int     // of thresholds, from the smallest
	scores     []float64
	target     []int64 // for each score, or for several classes for each n of them
	counts     []int64 // by threshold and class: true negatives, false positives, false negatives, true positives
}

func newCurves(b *base, kind int, n int64, thresholds []float64, number int64, ignore *int64) *curves {
	c := &curves{task: task{base: b, labels: kind == multilabel, ignore: ignore}, kind: kind, n: int(n)}
	switch kind {
	case binary:
		c.n = 1
	case multiclass:
		c.setClasses("classes", n)
	case multilabel:
		c.setClasses("labels", n)
	}
	switch {
	case len(thresholds) > 0 && number != 0:
		panic(b.valueError("there should be Thresholds or NumThresholds, and not both"))
	case number < 0 || number == 1:
		panic(b.valueError("NumThresholds should be larger than 1, and is %d", number))
	case number > 0:
		gotorch.Scope0(func(*gotorch.ScopeHandle) { c.thresholds = gotorch.ToSlice[float64](gotorch.Linspace(0, 1, number)) })
	}
	for _, t := range thresholds {
		if !(t >= 0 && t <= 1) {
			panic(b.valueError("Thresholds should be between 0 and 1, and one is %v", t))
		}
		c.thresholds = append(c.thresholds, float64(float32(t)))
	}
	if c.thresholds != nil {
		c.order = make([]int, len(c.thresholds))
		for i := range c.order {
			c.order[i] = i
		}
		sort.SliceStable(c.order, func(i, j int) bool { return c.thresholds[c.order[i]] < c.thresholds[c.order[j]] })
		b.ints("confmat", &c.counts, 0, make([]int64, 4*c.n*len(c.thresholds))...)
		return c
	}
	b.floats("preds", &c.scores, c.n)
	each := 1
	if kind == multilabel {
		each = c.n
	}
	b.ints("target", &c.target, each)
	b.check = func() error {
		if len(c.scores)/c.n != len(c.target)/each {
			return errLengths
		}
		for _, t := range c.target {
			if t < ignored || kind == multiclass && t >= int64(c.n) || kind != multiclass && t > 1 {
				return errors.New("its targets hold what is no class")
			}
		}
		return nil
	}
	return c
}

// update reads scores into rows of n, and a target for each row, or for each score of labels.
func (c *curves) update(output, target gotorch.Tensor) {
	if target.IsFloatingPoint() {
		panic(c.valueError("the target should hold integers, and is %v", target.DType()))
	}
	if !output.IsFloatingPoint() {
		panic(c.valueError("the output should hold scores, and is %v", output.DType()))
	}
	switch c.kind {
	case multiclass:
		if output.Dim() != target.Dim()+1 {
			panic(c.valueError("the output should have one dimension more than the target, and they have %d and %d", output.Dim(), target.Dim()))
		}
		c.checkClasses(output, target)
		labels := c.classLabels("target", target, nil)
		keep := c.kept(labels)
		if len(labels) == 0 {
			return
		}
		flat := output.MoveDim([]int64{1}, []int64{-1}).Reshape([]int64{-1, int64(c.n)})
		c.add(gotorch.ToSlice[float64](probabilities(flat, keep, true)), labels, keep)
	case multilabel:
		c.checkBinary(output, target)
		if target.Numel() == 0 {
			return
		}
		byLabel := func(t gotorch.Tensor) gotorch.Tensor {
			return t.MoveDim([]int64{1}, []int64{-1}).Reshape([]int64{-1, int64(c.n)})
		}
		labels := c.binaryLabels("target", byLabel(target), true)
		c.add(gotorch.ToSlice[float64](probabilities(byLabel(output), nil, false)), labels, c.kept(labels))
	default:
		c.checkBinary(output, target)
		labels := c.binaryLabels("target", target, true)
		keep := c.kept(labels)
		c.add(gotorch.ToSlice[float64](probabilities(output, keep, false)), labels, keep)
	}
}

func (c *curves) add(scores []float64, labels []int64, keep []bool) {
	if c.thresholds != nil {
		c.count(scores, labels, keep)
		return
	}
	for i, label := range labels {
		switch {
		case keep == nil || keep[i]:
			c.target = append(c.target, label)
			if c.kind == multiclass {
				c.scores = append(c.scores, scores[i*c.n:(i+1)*c.n]...)
			} else {
				c.scores = append(c.scores, scores[i])
			}
		case c.kind == multilabel: // keeps its place
			c.target = append(c.target, ignored)
			c.scores = append(c.scores, scores[i])
		}
	}
}

// count adds to the counts of all thresholds: first where each score falls, then sums.
func (c *curves) count(scores []float64, labels []int64, keep []bool) {
	places := len(c.order) + 1
	above := make([]int64, 2*c.n*places) // by class, truth, and how many thresholds a score reaches
	for i, score := range scores {
		class, at := i%c.n, i
		if c.kind == multiclass {
			at = i / c.n
		}
		if keep != nil && !keep[at] {
			continue
		}
		truth := int(labels[at])
		if c.kind == multiclass {
			truth = 0
			if labels[at] == int64(class) {
				truth = 1
			}
		}
		// A NaN reaches none.
		reached := sort.Search(len(c.order), func(j int) bool { return !(score >= c.thresholds[c.order[j]]) })
		above[(2*class+truth)*places+reached]++
	}
	for class := range c.n {
		for truth := range 2 {
			these := above[(2*class+truth)*places : (2*class+truth+1)*places]
			all := sum(these)
			var below int64
			for j, t := range c.order {
				below += these[j]
				row := c.counts[4*(t*c.n+class) : 4*(t*c.n+class)+4]
				row[2*truth] += below
				row[2*truth+1] += all - below
			}
		}
	}
}

// column is the scores of one class, with 1 where that is the target; all says that no target is class 0.
func (c *curves) column(class int) (scores []float64, truth []bool, noneButZero bool) {
	noneButZero = true
	step := c.n
	for i := class; i < len(c.scores); i += step {
		var t int64
		if c.kind == multiclass {
			t = c.target[i/c.n]
		} else {
			t = c.target[i]
		}
		if t == ignored {
			continue
		}
		noneButZero = noneButZero && t == 0
		scores = append(scores, c.scores[i])
		truth = append(truth, c.kind == multiclass && t == int64(class) || c.kind != multiclass && t == 1)
	}
	if len(scores) == 0 {
		panic(c.valueError("there are no samples%s: Update comes before Compute", map[bool]string{true: " of one class"}[c.n > 1 && len(c.scores) > 0]))
	}
	return scores, truth, noneButZero
}

// steps counts true and false positives at each score that occurs, from the largest.
func steps(scores []float64, truth []bool) (tps, fps, thresholds []float64) {
	order := make([]int, len(scores))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := scores[i], scores[j]
		switch {
		case a > b || math.IsNaN(a) && !math.IsNaN(b):
			return -1
		case a < b || math.IsNaN(b) && !math.IsNaN(a):
			return 1
		}
		return 0
	})
	var tp, fp float64
	for k, i := range order {
		if truth[i] {
			tp++
		} else {
			fp++
		}
		if k+1 == len(order) || scores[order[k+1]] != scores[i] {
			tps, fps, thresholds = append(tps, tp), append(fps, fp), append(thresholds, scores[i])
		}
	}
	return tps, fps, thresholds
}

func (c *curves) all(one func(class int) Curve) []Curve {
	result := make([]Curve, c.n)
	for i := range result {
		result[i] = one(i)
	}
	return result
}

func (c *curves) at(threshold, class int) []int64 {
	return c.counts[4*(threshold*c.n+class) : 4*(threshold*c.n+class)+4]
}

func (c *curves) roc(class int) Curve {
	if c.thresholds != nil {
		var r Curve
		for t := len(c.thresholds) - 1; t >= 0; t-- {
			r.add(rocPoint(c.at(t, class)))
			r.Thresholds = append(r.Thresholds, c.thresholds[t])
		}
		return r
	}
	scores, truth, _ := c.column(class)
	return exactROC(scores, truth)
}

func rocPoint(counts []int64) (fpr, tpr float64) {
	return safeDivide(float64(counts[1]), float64(counts[0]+counts[1]), 0), safeDivide(float64(counts[3]), float64(counts[2]+counts[3]), 0)
}

func (r *Curve) add(x, y float64) { r.X, r.Y = append(r.X, x), append(r.Y, y) }

func exactROC(scores []float64, truth []bool) Curve {
	tps, fps, thresholds := steps(scores, truth)
	r := Curve{X: []float64{0}, Y: []float64{0}, Thresholds: append([]float64{1}, thresholds...)}
	last := len(tps) - 1
	for i := range tps {
		r.add(safeDivide(fps[i], fps[last], 0), safeDivide(tps[i], tps[last], 0))
	}
	return r
}

func (c *curves) precisionRecall(class int) Curve {
	if c.thresholds != nil {
		var r Curve
		for t := range c.thresholds {
			r.add(prPoint(c.at(t, class)))
		}
		r.add(1, 0)
		r.Thresholds = slices.Clone(c.thresholds)
		return r
	}
	scores, truth, noneButZero := c.column(class)
	return exactPrecisionRecall(scores, truth, noneButZero)
}

func prPoint(counts []int64) (precision, recall float64) {
	return float64(counts[3]) / float64(counts[1]+counts[3]), float64(counts[3]) / float64(counts[2]+counts[3])
}

func exactPrecisionRecall(scores []float64, truth []bool, one bool) Curve {
	tps, fps, thresholds := steps(scores, truth)
	var r Curve
	for i := len(tps) - 1; i >= 0; i-- {
		recall := tps[i] / tps[len(tps)-1]
		if one {
			recall = 1
		}
		r.add(tps[i]/(tps[i]+fps[i]), recall)
		r.Thresholds = append(r.Thresholds, thresholds[i])
	}
	r.add(1, 0)
	return r
}

// area is that under a curve, by trapezoids.
func (r Curve) area() (total float64) {
	for i := 1; i < len(r.X); i++ {
		total += float64((r.X[i] - r.X[i-1]) * (r.Y[i] + r.Y[i-1]) / 2)
	}
	return total
}

// averagePrecision is the sum of precisions, each for the recall that it adds. zero says that NaN counts as 0.
func (r Curve) averagePrecision(zero bool) (total float64) {
	number := func(v float64) float64 {
		if zero && math.IsNaN(v) {
			return 0
		}
		return v
	}
	for i := 1; i < len(r.X); i++ {
		total -= float64((number(r.Y[i]) - number(r.Y[i-1])) * number(r.X[i-1]))
	}
	return total
}

// BinaryROC is the curve of false and true positive rates. The output are scores of any shape, of which one outside of
// [0, 1] says that all of the batch are logits, and the target 0 and 1 of the same shape. The curve begins at the
// threshold 1; a rate of nothing is 0.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/roc.html.
func BinaryROC(opts ...CurveOptions) *CurveMetric {
	return newCurve("BinaryROC", binary, 1, (*curves).roc, opts)
}

// MulticlassROC has a curve for each class against all others. The output are scores (N, C, ...), or logits, and the
// target classes (N, ...).
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/roc.html.
func MulticlassROC(numClasses int64, opts ...CurveOptions) *CurveMetric {
	return newCurve("MulticlassROC", multiclass, numClasses, (*curves).roc, opts)
}

// MultilabelROC has a curve for each label. The output are scores (N, L, ...), or logits, and the target 0 and 1 of the
// same shape.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/roc.html.
func MultilabelROC(numLabels int64, opts ...CurveOptions) *CurveMetric {
	return newCurve("MultilabelROC", multilabel, numLabels, (*curves).roc, opts)
}

// BinaryPrecisionRecallCurve is the curve of precision and recall. Inputs are as of [BinaryROC]. With Thresholds a part of
// nothing is NaN.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision_recall_curve.html.
func BinaryPrecisionRecallCurve(opts ...CurveOptions) *CurveMetric {
	return newCurve("BinaryPrecisionRecallCurve", binary, 1, (*curves).precisionRecall, opts)
}

// MulticlassPrecisionRecallCurve has a curve for each class. Inputs are as of [MulticlassROC].
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision_recall_curve.html.
func MulticlassPrecisionRecallCurve(numClasses int64, opts ...CurveOptions) *CurveMetric {
	return newCurve("MulticlassPrecisionRecallCurve", multiclass, numClasses, (*curves).precisionRecall, opts)
}

// MultilabelPrecisionRecallCurve has a curve for each label. Inputs are as of [MultilabelROC].
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/precision_recall_curve.html.
func MultilabelPrecisionRecallCurve(numLabels int64, opts ...CurveOptions) *CurveMetric {
	return newCurve("MultilabelPrecisionRecallCurve", multilabel, numLabels, (*curves).precisionRecall, opts)
}

func newCurve(name string, kind int, n int64, one func(*curves, int) Curve, opts []CurveOptions) *CurveMetric {
	opt := args.Option(opts)
	m := &CurveMetric{base: base{name: name}}
	m.engine = newCurves(&m.base, kind, n, opt.Thresholds, opt.NumThresholds, opt.IgnoreIndex)
	m.of = func(c *curves) []Curve { return c.all(func(class int) Curve { return one(c, class) }) }
	return m
}

// BinaryAUROC is the area under [BinaryROC]'s curve: how often a 1 has a larger score than a 0.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/auroc.html.
func BinaryAUROC(opts ...AUROCOptions) *TensorMetric { return auroc("BinaryAUROC", binary, 1, opts) }

// MulticlassAUROC is the area under the curve of each class, and their mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/auroc.html.
func MulticlassAUROC(numClasses int64, opts ...AUROCOptions) *TensorMetric {
	return auroc("MulticlassAUROC", multiclass, numClasses, opts)
}

// MultilabelAUROC is the area under the curve of each label, and their mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/auroc.html.
func MultilabelAUROC(numLabels int64, opts ...AUROCOptions) *TensorMetric {
	return auroc("MultilabelAUROC", multilabel, numLabels, opts)
}

// BinaryAveragePrecision is the mean precision over the recalls of [BinaryPrecisionRecallCurve].
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/average_precision.html.
func BinaryAveragePrecision(opts ...AveragePrecisionOptions) *TensorMetric {
	return averagePrecision("BinaryAveragePrecision", binary, 1, opts)
}

// MulticlassAveragePrecision is the average precision of each class, and their mean over those that are known: a class
// without samples has NaN.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/average_precision.html.
func MulticlassAveragePrecision(numClasses int64, opts ...AveragePrecisionOptions) *TensorMetric {
	return averagePrecision("MulticlassAveragePrecision", multiclass, numClasses, opts)
}

// MultilabelAveragePrecision is the average precision of each label, and their mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/average_precision.html.
func MultilabelAveragePrecision(numLabels int64, opts ...AveragePrecisionOptions) *TensorMetric {
	return averagePrecision("MultilabelAveragePrecision", multilabel, numLabels, opts)
}

// overClasses makes a metric of a number of each class.
func overClasses(name string, kind int, n int64, opt AUROCOptions, one func(c *curves, class int) float64, micro func(c *curves) float64) *TensorMetric {
	m := &TensorMetric{base: base{name: name}}
	c := newCurves(&m.base, kind, n, opt.Thresholds, opt.NumThresholds, opt.IgnoreIndex)
	switch {
	case opt.Average == "", opt.Average == "macro", opt.Average == "weighted", opt.Average == "none":
	case opt.Average == "micro" && kind == multilabel:
	default:
		panic(m.valueError("Average should be \"macro\", \"weighted\", \"none\", or of labels \"micro\", and is %q", opt.Average))
	}
	m.update = c.update
	m.compute = func() gotorch.Tensor {
		if kind == binary {
			return scalar(one(c, 0))
		}
		if opt.Average == "micro" {
			return scalar(micro(c))
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = one(c, i)
		}
		if opt.Average == "none" {
			return vector(values)
		}
		var known, weights []float64
		for i, v := range values {
			if !math.IsNaN(v) {
				known = append(known, v)
				weights = append(weights, c.support(i))
			}
		}
		if opt.Average == "weighted" {
			return scalar(weightedMean(known, weights))
		}
		return scalar(sum(known) / float64(len(known)))
	}
	return m
}

// support is how many samples a class has.
func (c *curves) support(class int) (n float64) {
	if c.thresholds != nil {
		counts := c.at(0, class)
		return float64(counts[2] + counts[3])
	}
	if c.kind == multiclass {
		for _, t := range c.target {
			if t == int64(class) {
				n++
			}
		}
		return n
	}
	for i := class; i < len(c.target); i += c.n {
		if c.target[i] == 1 {
			n++
		}
	}
	return n
}

// flat has all labels as if they were one.
func (c *curves) flat() *curves {
	f := &curves{task: c.task, kind: binary, n: 1, thresholds: c.thresholds, order: c.order, scores: c.scores, target: c.target}
	if c.thresholds != nil {
		f.counts = make([]int64, 4*len(c.thresholds))
		for i, v := range c.counts {
			f.counts[i/(4*c.n)*4+i%4] += v
		}
	}
	return f
}

func auroc(name string, kind int, n int64, opts []AUROCOptions) *TensorMetric {
	opt := args.Option(opts)
	maxFPR := args.FloatPointer("metrics."+name, "MaxFPR", opt.MaxFPR)
	if maxFPR != nil && (kind != binary || !(*maxFPR > 0 && *maxFPR <= 1)) {
		panic(args.ValueError("metrics."+name, "MaxFPR is for two classes, and should be larger than 0 and no more than 1; it is %v", *maxFPR))
	}
	one := func(c *curves, class int) float64 {
		r := c.roc(class)
		if maxFPR == nil || *maxFPR == 1 || sum(r.X) == 0 || sum(r.Y) == 0 {
			return r.area()
		}
		if end := slices.Max(r.X); end <= float64(float32(*maxFPR)) {
			panic(c.valueError("with these thresholds the curve ends at the rate %v, before MaxFPR", end))
		}
		return r.partialArea(*maxFPR)
	}
	return overClasses(name, kind, n, opt, one, func(c *curves) float64 { return c.flat().roc(0).area() })
}

// partialArea is the area up to a false positive rate, scaled so that 0.5 is chance.
func (r Curve) partialArea(limit float64) float64 {
	limit = float64(float32(limit))
	stop := sort.Search(len(r.X), func(i int) bool { return r.X[i] > limit })
	part := Curve{X: slices.Clone(r.X[:stop]), Y: slices.Clone(r.Y[:stop])}
	if stop > 0 {
		weight := (limit - r.X[stop-1]) / (r.X[stop] - r.X[stop-1])
		part.add(limit, r.Y[stop-1]+float64(weight*(r.Y[stop]-r.Y[stop-1])))
	}
	least := float64(0.5 * limit * limit)
	return 0.5 * (1 + (part.area()-least)/(limit-least))
}

func averagePrecision(name string, kind int, n int64, opts []AveragePrecisionOptions) *TensorMetric {
	opt := args.Option(opts)
	one := func(c *curves, class int) float64 {
		return c.precisionRecall(class).averagePrecision(kind == binary || c.thresholds != nil)
	}
	return overClasses(name, kind, n, AUROCOptions{Average: opt.Average, Thresholds: opt.Thresholds, NumThresholds: opt.NumThresholds, IgnoreIndex: opt.IgnoreIndex},
		one, func(c *curves) float64 { return c.flat().precisionRecall(0).averagePrecision(true) })
}

// CalibrationErrorOptions are the options of the calibration error.
type CalibrationErrorOptions struct {
	NBins       gotorch.Scalar // into how many bins probabilities fall; default: 15
	Norm        string         // "l1" is the expected error, "l2" the root of its mean square, "max" the largest; default: "l1"
	IgnoreIndex *int64         // elements with this target do not count
}

// BinaryCalibrationError says how far probabilities are from what happens: in each bin, how often the target is 1 against
// the mean probability of it. The output are probabilities, or logits, the target 0 and 1 of the same shape.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/calibration_error.html.
func BinaryCalibrationError(opts ...CalibrationErrorOptions) *TensorMetric {
	return calibration("BinaryCalibrationError", binary, 2, opts)
}

// MulticlassCalibrationError says how far the largest probabilities are from how often they are right. The output are
// probabilities (N, C, ...), or logits, the target classes (N, ...).
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/calibration_error.html.
func MulticlassCalibrationError(numClasses int64, opts ...CalibrationErrorOptions) *TensorMetric {
	return calibration("MulticlassCalibrationError", multiclass, numClasses, opts)
}

func calibration(name string, kind int, n int64, opts []CalibrationErrorOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: name}}
	k := &task{base: &m.base, ignore: opt.IgnoreIndex}
	if kind == multiclass {
		k.setClasses("classes", n)
	}
	bins := args.Int(m.op(), "NBins", opt.NBins, 15)
	if bins < 1 || bins > 1<<24 {
		panic(m.valueError("NBins should be from 1 to %d, and is %d", 1<<24, bins))
	}
	switch opt.Norm {
	case "", "l1", "l2", "max":
	default:
		panic(m.valueError("Norm should be \"l1\", \"l2\" or \"max\", and is %q", opt.Norm))
	}
	var count []int64 // with a bin for 1
	var confidence, right []float64
	m.ints("count", &count, 0, make([]int64, bins+1)...)
	m.floats("confidence", &confidence, 0, make([]float64, bins+1)...)
	m.floats("accuracy", &right, 0, make([]float64, bins+1)...)
	m.update = func(output, target gotorch.Tensor) {
		if !output.IsFloatingPoint() {
			panic(m.valueError("the output should hold probabilities or logits, and is %v", output.DType()))
		}
		var scores gotorch.Tensor
		var hit []float64
		var keep []bool
		if kind == binary {
			k.checkBinary(output, target)
			labels := k.binaryLabels("target", target, true)
			keep = k.kept(labels)
			scores = probabilities(output, keep, false)
			for _, l := range labels {
				hit = append(hit, float64(l))
			}
		} else {
			if output.Dim() != target.Dim()+1 {
				panic(m.valueError("the output should have one dimension more than the target, and they have %d and %d", output.Dim(), target.Dim()))
			}
			k.checkClasses(output, target)
			labels := k.classLabels("target", target, nil)
			keep = k.kept(labels)
			if len(labels) == 0 {
				return
			}
			flat := output.MoveDim([]int64{1}, []int64{-1}).Reshape([]int64{-1, n})
			values, indices := probabilities(flat, keep, true).MaxDim(1)
			scores = values.To(gotorch.Float32)
			for i, got := range gotorch.ToSlice[int64](indices) {
				hit = append(hit, 0)
				if got == labels[i] {
					hit[i] = 1
				}
			}
		}
		bounds := gotorch.Linspace(0, 1, bins+1, gotorch.TensorOptions{DType: scores.DType()})
		places := gotorch.ToSlice[int64](gotorch.Bucketize(scores, bounds, gotorch.BucketizeOptions{Right: true}))
		for i, p := range gotorch.ToSlice[float64](scores) {
			if keep != nil && !keep[i] {
				continue
			}
			at := min(max(places[i]-1, 0), bins)
			count[at]++
			confidence[at] += p
			right[at] += hit[i]
		}
	}
	m.compute = func() gotorch.Tensor {
		total := float64(sum(count))
		if total == 0 {
			panic(m.valueError("there are no samples: Update comes before Compute"))
		}
		number := func(v float64) float64 {
			if math.IsNaN(v) {
				return 0
			}
			return v
		}
		var linear, square, largest float64
		for i, c := range count {
			gap := math.Abs(number(right[i]/float64(c)) - number(confidence[i]/float64(c)))
			linear += float64(gap * float64(c) / total)
			square += float64(gap * gap * float64(c) / total)
			largest = max(largest, gap)
		}
		switch opt.Norm {
		case "l2":
			return scalar(math.Sqrt(square))
		case "max":
			return scalar(largest)
		}
		return scalar(linear)
	}
	return m
}
