package metrics

import (
	"errors"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

var errLengths = errors.New("its lists are not equally long")

// exactMatch counts samples that are right as a whole.
func exactMatch(name string, n int64, labels bool, opts []ExactMatchOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: name}}
	k := &task{base: &m.base, labels: labels, ignore: opt.IgnoreIndex}
	k.setClasses(map[bool]string{false: "classes", true: "labels"}[labels], n)
	k.setSamplewise(opt.MultidimAverage)
	k.setThreshold(opt.Threshold)
	var correct, total []int64
	if k.samplewise {
		m.ints("correct", &correct, 1)
		m.ints("total", &total, 1)
	} else {
		m.ints("correct", &correct, 0, 0)
		m.ints("total", &total, 0, 0)
	}
	m.check = func() error {
		if len(correct) != len(total) {
			return errLengths
		}
		return nil
	}
	m.update = func(output, target gotorch.Tensor) {
		e := k.read(output, target, false)
		if len(e.target) == 0 {
			return
		}
		parts, step, each := 1, 1, e.each // of a sample: things that are right or wrong, and where their elements are
		if labels {
			parts, each = e.each/int(n), int(n)
			step = parts
		}
		for s := range e.samples {
			right := int64(0)
			for p := range parts {
				good := int64(1)
				for i := range each {
					at := s*e.each + p + i*step
					if want := e.target[at]; want != ignored && want != e.preds[at] {
						good = 0
					}
				}
				right += good
			}
			if k.samplewise {
				correct, total = append(correct, right), append(total, int64(parts))
			} else {
				correct[0] += right
				total[0] += int64(parts)
			}
		}
	}
	m.compute = func() gotorch.Tensor {
		if k.samplewise && len(correct) == 0 {
			panic(m.valueError("there are no samples: Update comes before Compute"))
		}
		result := make([]float64, len(correct))
		for i := range result {
			result[i] = safeDivide(float64(correct[i]), float64(total[i]), 0)
		}
		if k.samplewise {
			return vector(result)
		}
		return scalar(result[0])
	}
	return m
}

// ConfusionMatrixOptions are the options of the confusion matrices.
type ConfusionMatrixOptions struct {
	Threshold   gotorch.Scalar // of two classes, and of labels: a score above it is class 1; default: 0.5
	Normalize   string         // "true", "pred" or "all": parts of rows, of columns, of everything; "none": counts
	IgnoreIndex *int64         // elements with this target do not count
}

// CohenKappaOptions are the options of Cohen's kappa.
type CohenKappaOptions struct {
	Threshold   gotorch.Scalar // of two classes: a score above it is class 1; default: 0.5
	Weights     string         // how much a mistake counts: "none", or by its distance: "linear", "quadratic"
	IgnoreIndex *int64         // elements with this target do not count
}

// MatthewsCorrCoefOptions are the options of Matthews' correlation coefficient.
type MatthewsCorrCoefOptions struct {
	Threshold   gotorch.Scalar // of two classes, and of labels: a score above it is class 1; default: 0.5
	IgnoreIndex *int64         // elements with this target do not count
}

// JaccardIndexOptions are the options of the Jaccard indices.
type JaccardIndexOptions struct {
	Threshold    gotorch.Scalar // of two classes, and of labels: a score above it is class 1; default: 0.5
	Average      string         // over classes or labels: "micro", "macro", "weighted", or "none"; default: "macro"
	IgnoreIndex  *int64         // elements with this target do not count
	ZeroDivision float64        // the value of a class that is nowhere
}

// kinds of tasks.
const (
	binary = iota
	multiclass
	multilabel
)

// confusion makes a metric of the numbers of elements by target and prediction: a matrix for classes, and matrices of
// two rows for labels.
func confusion(name string, kind int, n int64, threshold gotorch.Scalar, ignore *int64, compute func(m *TensorMetric, counts []float64) gotorch.Tensor) *TensorMetric {
	m := &TensorMetric{base: base{name: name}}
	k := &task{base: &m.base, labels: kind == multilabel, ignore: ignore}
	k.setThreshold(threshold)
	size := int64(4)
	switch kind {
	case multiclass:
		k.setClasses("classes", n)
		if n > 1<<15 {
			panic(m.valueError("there may be %d classes, and are %d", 1<<15, n))
		}
		size = n * n
	case multilabel:
		k.setClasses("labels", n)
		size = 4 * n
	}
	var counts []int64
	m.ints("confmat", &counts, 0, make([]int64, size)...)
	m.update = func(output, target gotorch.Tensor) {
		e := k.read(output, target, kind == binary)
		for i, want := range e.target {
			switch {
			case want == ignored:
			case kind == multiclass:
				counts[want*n+e.preds[i]]++
			case kind == binary:
				counts[2*want+e.preds[i]]++
			default:
				label := i / (e.each / int(n)) % int(n)
				counts[4*label+int(2*want+e.preds[i])]++
			}
		}
	}
	m.compute = func() gotorch.Tensor {
		values := make([]float64, len(counts))
		for i, c := range counts {
			values[i] = float64(c)
		}
		return compute(m, values)
	}
	return m
}

// BinaryConfusionMatrix counts elements by target (rows) and prediction (columns): a (2, 2) tensor, int64, or float64
// with Normalize. A part of nothing is 0.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/confusion_matrix.html.
func BinaryConfusionMatrix(opts ...ConfusionMatrixOptions) *TensorMetric {
	return confusionMatrix("BinaryConfusionMatrix", binary, 2, opts)
}

// MulticlassConfusionMatrix is [BinaryConfusionMatrix] for several classes: (C, C).
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/confusion_matrix.html.
func MulticlassConfusionMatrix(numClasses int64, opts ...ConfusionMatrixOptions) *TensorMetric {
	return confusionMatrix("MulticlassConfusionMatrix", multiclass, numClasses, opts)
}

// MultilabelConfusionMatrix has a matrix for each label: (L, 2, 2).
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/confusion_matrix.html.
func MultilabelConfusionMatrix(numLabels int64, opts ...ConfusionMatrixOptions) *TensorMetric {
	return confusionMatrix("MultilabelConfusionMatrix", multilabel, numLabels, opts)
}

func confusionMatrix(name string, kind int, n int64, opts []ConfusionMatrixOptions) *TensorMetric {
	opt := args.Option(opts)
	m := confusion(name, kind, n, opt.Threshold, opt.IgnoreIndex, func(_ *TensorMetric, counts []float64) gotorch.Tensor {
		shape := []int64{n, n}
		side := int(n)
		if kind == multilabel {
			shape, side = []int64{n, 2, 2}, 2
		}
		if opt.Normalize == "" || opt.Normalize == "none" {
			whole := make([]int64, len(counts))
			for i, c := range counts {
				whole[i] = int64(c)
			}
			return gotorch.FromSlice(whole, shape...)
		}
		for at := 0; at < len(counts); at += side * side {
			normalize(counts[at:at+side*side], side, opt.Normalize)
		}
		return gotorch.FromSlice(counts, shape...)
	})
	switch opt.Normalize {
	case "", "none", "true", "pred", "all":
	default:
		panic(m.valueError("Normalize should be \"true\", \"pred\", \"all\" or \"none\", and is %q", opt.Normalize))
	}
	return m
}

func normalize(matrix []float64, n int, how string) {
	totals := make([]float64, n) // of rows, of columns; the first of everything
	group := func(i int) int {
		switch how {
		case "true":
			return i / n
		case "pred":
			return i % n
		}
		return 0
	}
	for i, v := range matrix {
		totals[group(i)] += v
	}
	for i, v := range matrix {
		matrix[i] = safeDivide(v, totals[group(i)], 0)
	}
}

// BinaryCohenKappa says how much more two agree than by chance: 1 is always, 0 no more.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/cohen_kappa.html.
func BinaryCohenKappa(opts ...CohenKappaOptions) *TensorMetric {
	return cohenKappa("BinaryCohenKappa", binary, 2, opts)
}

// MulticlassCohenKappa is [BinaryCohenKappa] for several classes.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/cohen_kappa.html.
func MulticlassCohenKappa(numClasses int64, opts ...CohenKappaOptions) *TensorMetric {
	return cohenKappa("MulticlassCohenKappa", multiclass, numClasses, opts)
}

func cohenKappa(name string, kind int, n int64, opts []CohenKappaOptions) *TensorMetric {
	opt := args.Option(opts)
	m := confusion(name, kind, n, opt.Threshold, opt.IgnoreIndex, func(_ *TensorMetric, counts []float64) gotorch.Tensor {
		side := int(n)
		given, wanted := make([]float64, side), make([]float64, side)
		for i, c := range counts {
			wanted[i/side] += c
			given[i%side] += c
		}
		var seen, expected float64
		total := sum(counts)
		for i, c := range counts {
			distance := math.Abs(float64(i/side - i%side))
			weight := min(distance, 1)
			switch opt.Weights {
			case "linear":
				weight = distance
			case "quadratic":
				weight = float64(distance * distance)
			}
			seen += float64(weight * c)
			expected += float64(weight * (wanted[i/side] * given[i%side] / total))
		}
		return scalar(1 - seen/expected)
	})
	switch opt.Weights {
	case "", "none", "linear", "quadratic":
	default:
		panic(m.valueError("Weights should be \"linear\", \"quadratic\" or \"none\", and is %q", opt.Weights))
	}
	return m
}

// BinaryMatthewsCorrCoef is the correlation of predictions and targets, from -1 to 1.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/matthews_corr_coef.html.
func BinaryMatthewsCorrCoef(opts ...MatthewsCorrCoefOptions) *TensorMetric {
	return matthews("BinaryMatthewsCorrCoef", binary, 2, opts)
}

// MulticlassMatthewsCorrCoef is [BinaryMatthewsCorrCoef] for several classes.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/matthews_corr_coef.html.
func MulticlassMatthewsCorrCoef(numClasses int64, opts ...MatthewsCorrCoefOptions) *TensorMetric {
	return matthews("MulticlassMatthewsCorrCoef", multiclass, numClasses, opts)
}

// MultilabelMatthewsCorrCoef is [BinaryMatthewsCorrCoef] of all labels together.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/matthews_corr_coef.html.
func MultilabelMatthewsCorrCoef(numLabels int64, opts ...MatthewsCorrCoefOptions) *TensorMetric {
	return matthews("MultilabelMatthewsCorrCoef", multilabel, numLabels, opts)
}

func matthews(name string, kind int, n int64, opts []MatthewsCorrCoefOptions) *TensorMetric {
	opt := args.Option(opts)
	return confusion(name, kind, n, opt.Threshold, opt.IgnoreIndex, func(_ *TensorMetric, counts []float64) gotorch.Tensor {
		side := int(n)
		if kind == multilabel {
			all := make([]float64, 4)
			for i, c := range counts {
				all[i%4] += c
			}
			counts, side = all, 2
		}
		return scalar(matthewsOf(counts, side))
	})
}

func matthewsOf(counts []float64, n int) float64 {
	wanted, given := make([]float64, n), make([]float64, n)
	var right float64
	for i, c := range counts {
		wanted[i/n] += c
		given[i%n] += c
		if i/n == i%n {
			right += c
		}
	}
	total := sum(counts)
	covariance, varGiven, varWanted := float64(right*total), float64(total*total), float64(total*total)
	for i := range n {
		covariance -= float64(wanted[i] * given[i])
		varGiven -= float64(given[i] * given[i])
		varWanted -= float64(wanted[i] * wanted[i])
	}
	if n == 2 {
		tn, fp, fn, tp := counts[0], counts[1], counts[2], counts[3]
		switch {
		case tp+tn != 0 && fp+fn == 0:
			return 1
		case tp+tn == 0 && fp+fn != 0:
			return -1
		}
		if varGiven*varWanted == 0 {
			return matthewsLimit(tn, fp, fn, tp)
		}
	}
	if varGiven*varWanted == 0 {
		return 0
	}
	return covariance / math.Sqrt(varGiven*varWanted)
}

// matthewsLimit is what is agreed on where a row or a column is empty.
func matthewsLimit(tn, fp, fn, tp float64) float64 {
	const eps = 0x1p-23 // of float32
	var num float64
	switch {
	case fn == 0 && tn == 0:
		num = math.Sqrt(eps) * (tp - fp)
	case fp == 0 && tn == 0:
		num = math.Sqrt(eps) * (tp - fn)
	case tp == 0 && fn == 0:
		num = math.Sqrt(eps) * (tn - fp)
	case tp == 0 && fp == 0:
		num = math.Sqrt(eps) * (tn - fn)
	case tp == 0:
		num = tn - float64(fp*fn)
	case tn == 0:
		num = tp - float64(fp*fn)
	case fp == 0 || fn == 0:
		num = tp * tn
	default:
		return 0
	}
	return num / math.Sqrt((tp+fp+eps)*(tp+fn+eps)*(tn+fp+eps)*(tn+fn+eps))
}

// BinaryJaccardIndex is intersection over union: of all elements that are 1 in the output or the target, the part that
// are in both.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/jaccard_index.html.
func BinaryJaccardIndex(opts ...JaccardIndexOptions) *TensorMetric {
	return jaccard("BinaryJaccardIndex", binary, 2, opts)
}

// MulticlassJaccardIndex is intersection over union of each class, and their mean: with a segmentation's scores
// (N, C, H, W) and classes (N, H, W), the mean IoU over all pixels. See [MeanIoU] for that of each image.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/jaccard_index.html.
func MulticlassJaccardIndex(numClasses int64, opts ...JaccardIndexOptions) *TensorMetric {
	return jaccard("MulticlassJaccardIndex", multiclass, numClasses, opts)
}

// MultilabelJaccardIndex is [BinaryJaccardIndex] of each label, and their mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/classification/jaccard_index.html.
func MultilabelJaccardIndex(numLabels int64, opts ...JaccardIndexOptions) *TensorMetric {
	return jaccard("MultilabelJaccardIndex", multilabel, numLabels, opts)
}

func jaccard(name string, kind int, n int64, opts []JaccardIndexOptions) *TensorMetric {
	opt := args.Option(opts)
	ignoredClass := -1
	if kind == multiclass && opt.IgnoreIndex != nil && *opt.IgnoreIndex >= 0 && *opt.IgnoreIndex < n {
		ignoredClass = int(*opt.IgnoreIndex)
	}
	m := confusion(name, kind, n, opt.Threshold, opt.IgnoreIndex, func(_ *TensorMetric, counts []float64) gotorch.Tensor {
		if kind == binary {
			return scalar(safeDivide(counts[3], counts[1]+counts[2]+counts[3], opt.ZeroDivision))
		}
		both, union, wanted, weights := make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)
		side := int(n)
		for i, c := range counts {
			if kind == multilabel {
				label, at := i/4, i%4
				both[label] += c * float64(at/3)
				union[label] += c * float64((at+2)/3)
				wanted[label] += c * float64(at/2)
			} else {
				union[i/side] += c
				wanted[i/side] += c
				if i/side == i%side {
					both[i/side] += c
				} else {
					union[i%side] += c
				}
			}
		}
		if opt.Average == "micro" {
			total := sum(union)
			if ignoredClass >= 0 {
				total -= union[ignoredClass]
			}
			return scalar(safeDivide(sum(both), total, opt.ZeroDivision))
		}
		values := make([]float64, n)
		for i := range values {
			values[i] = safeDivide(both[i], union[i], opt.ZeroDivision)
			weights[i] = 1
			if opt.Average == "weighted" {
				weights[i] = wanted[i]
			} else if i == ignoredClass || kind == multiclass && union[i] == 0 {
				weights[i] = 0
			}
		}
		if opt.Average == "none" {
			return vector(values)
		}
		var mean float64
		for i, v := range values {
			mean += float64(weights[i]*v) / sum(weights)
		}
		return scalar(mean)
	})
	switch opt.Average {
	case "", "micro", "macro", "weighted", "none":
	default:
		panic(m.valueError("Average should be \"micro\", \"macro\", \"weighted\" or \"none\", and is %q", opt.Average))
	}
	return m
}
