package metrics

import (
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// PeakSignalNoiseRatioOptions are the options of [PeakSignalNoiseRatio].
type PeakSignalNoiseRatioOptions struct {
	Base gotorch.Scalar // of the logarithm; default: 10
}

// PeakSignalNoiseRatio is how many decibels the range of the pixels is above the error, over all pixels. Output and target
// have one shape. dataRange is the largest value less the smallest that a pixel may have: 1, or 255.
//
// See https://lightning.ai/docs/torchmetrics/stable/image/peak_signal_noise_ratio.html.
func PeakSignalNoiseRatio(dataRange float64, opts ...PeakSignalNoiseRatioOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: "PeakSignalNoiseRatio"}}
	if !(dataRange > 0) {
		panic(m.valueError("dataRange should be larger than 0, and is %v", dataRange))
	}
	radix := args.Float(m.op(), "Base", opt.Base, 10)
	if !(radix > 0) || radix == 1 {
		panic(m.valueError("Base should be larger than 0 and not 1, and is %v", radix))
	}
	var total []float64
	var n []int64
	m.floats("sum_squared_error", &total, 0, 0)
	m.ints("total", &n, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		c := m.readColumns(output, target, 1)
		for i, p := range c.preds {
			d := p - c.target[i]
			total[0] += float64(d * d)
		}
		n[0] += int64(c.n)
	}
	m.compute = func() gotorch.Tensor {
		return scalar((2*math.Log(dataRange) - math.Log(total[0]/float64(n[0]))) * (10 / math.Log(radix)))
	}
	return m
}

// StructuralSimilarityOptions are the options of [StructuralSimilarityIndexMeasure].
type StructuralSimilarityOptions struct {
	NoGaussianKernel bool           // a window in which all pixels count the same, of KernelSize
	Sigma            gotorch.Scalar // of the Gaussian window; default: 1.5
	KernelSize       gotorch.Scalar // of the other window, odd; default: 11
	Reduction        string         // over images, or "sum", or "none"; default: "elementwise_mean"
	DataRange        gotorch.Scalar // the largest value less the smallest that a pixel may have; left out: as in each batch
	K1               gotorch.Scalar // keeps means near 0 from dividing; default: 0.01
	K2               gotorch.Scalar // and variances; default: 0.03
}

// StructuralSimilarityIndexMeasure compares images (N, C, H, W) by their means and variances in a window that goes over
// them: 1 is the same. Without DataRange it depends on how images are put into batches.
//
// See https://lightning.ai/docs/torchmetrics/stable/image/structural_similarity.html.
func StructuralSimilarityIndexMeasure(opts ...StructuralSimilarityOptions) *TensorMetric {
	opt := args.Option(opts)
	const op = "metrics.StructuralSimilarityIndexMeasure"
	sigma, size := args.Float(op, "Sigma", opt.Sigma, 1.5), args.Int(op, "KernelSize", opt.KernelSize, 11)
	if size%2 == 0 || size <= 0 {
		panic(args.ValueError(op, "KernelSize should be an odd positive number, and is %d", size))
	}
	if !(sigma > 0 && sigma < 1e6) {
		panic(args.ValueError(op, "Sigma should be positive, and is %v", sigma))
	}
	if !opt.NoGaussianKernel {
		size = int64(float64(3.5*sigma)+0.5)*2 + 1
	}
	k1, k2 := args.Float(op, "K1", opt.K1, 0.01), args.Float(op, "K2", opt.K2, 0.03)
	pixels := args.FloatPointer(op, "DataRange", opt.DataRange)
	window := make([]float64, size)
	for i := range window {
		window[i] = 1
		if !opt.NoGaussianKernel {
			d := (float64(i) - float64(size-1)/2) / sigma
			window[i] = math.Exp(-d * d / 2)
		}
	}
	total := sum(window)
	if opt.Reduction == "elementwise_mean" {
		opt.Reduction = "mean"
	}
	return perSample("StructuralSimilarityIndexMeasure", opt.Reduction, "mean", func(m *TensorMetric, output, target gotorch.Tensor) []float64 {
		m.sameShape(output, target)
		shape := output.Shape()
		if len(shape) != 4 {
			panic(m.valueError("the output should have the shape (N, C, H, W), and has %v", shape))
		}
		if output.Numel() == 0 {
			return nil
		}
		pad := (size - 1) / 2
		if shape[2] <= pad || shape[3] <= pad {
			panic(m.valueError("images should be larger than %d, half of the window, and have the shape %v", pad, shape))
		}
		x, y := output.To(gotorch.Float64), target.To(gotorch.Float64)
		var spread float64
		if pixels != nil {
			spread = *pixels
		} else {
			spread = max(gotorch.Item[float64](x.Max().Sub(x.Min())), gotorch.Item[float64](y.Max().Sub(y.Min())))
		}
		kernel := make([]float64, 0, size*size)
		for _, a := range window {
			for _, b := range window {
				kernel = append(kernel, a/total*(b/total))
			}
		}
		weights := gotorch.FromSlice(kernel, 1, 1, size, size).To(x.Device()).Expand([]int64{shape[1], 1, size, size})
		x, y = gotorch.ReflectionPad2d(x, []int64{pad, pad, pad, pad}), gotorch.ReflectionPad2d(y, []int64{pad, pad, pad, pad})
		blur := func(t gotorch.Tensor) gotorch.Tensor {
			return gotorch.Conv2d(t, weights, gotorch.Conv2dOptions{Groups: new(shape[1])})
		}
		mx, my := blur(x), blur(y)
		xx := blur(x.Mul(x)).Sub(mx.Mul(mx)).ClampMin(0)
		yy := blur(y.Mul(y)).Sub(my.Mul(my)).ClampMin(0)
		xy := blur(x.Mul(y)).Sub(mx.Mul(my))
		c1, c2 := math.Pow(k1*spread, 2), math.Pow(k2*spread, 2)
		num := mx.Mul(my).MulScalar(2).AddScalar(c1).Mul(xy.MulScalar(2).AddScalar(c2))
		denom := mx.Mul(mx).Add(my.Mul(my)).AddScalar(c1).Mul(xx.Add(yy).AddScalar(c2))
		return gotorch.ToSlice[float64](num.Div(denom).Flatten(gotorch.FlattenOptions{StartDim: 1}).MeanDim([]int64{1}))
	})
}

// MeanIoUOptions are the options of [MeanIoU].
type MeanIoUOptions struct {
	NoIncludeBackground bool   // class 0 does not count
	PerClass            bool   // a value for each class
	InputFormat         string // of (N, C, ...), or "index": classes (N, ...); default: "one-hot"
}

// DiceScoreOptions are the options of [DiceScore].
type DiceScoreOptions struct {
	NoIncludeBackground bool   // class 0 does not count
	Average             string // over classes: "micro", "macro", "weighted", or "none"; default: "macro"
	InputFormat         string // of (N, C, ...), or "index": classes (N, ...); default: "one-hot"
	AggregationLevel    string // the mean over images, or "global": of all together; default: "samplewise"
}

// areas are how many elements of each image are of a class, in the output, in the target, and in both.
func (k *task) areas(output, target gotorch.Tensor, format string, first int) (preds, wanted, both []int64) {
	n := int(k.classes)
	k.sameShape(output, target)
	shape := output.Shape()
	index := format == "index"
	if least := map[bool]int{true: 2, false: 3}[index]; len(shape) < least {
		panic(k.valueError("the output should have at least %d dimensions with InputFormat %q, and has the shape %v", least, format, shape))
	}
	if !index && shape[1] != k.classes {
		panic(k.valueError("the output should have %d classes in its second dimension, and has the shape %v", n, shape))
	}
	if output.Numel() == 0 {
		return nil, nil, nil
	}
	samples := int(shape[0])
	preds, wanted, both = make([]int64, samples*n), make([]int64, samples*n), make([]int64, samples*n)
	labels := func(what string, t gotorch.Tensor) (classes []int64, marks []int64) {
		switch {
		case index:
			return k.classLabels(what, t, nil), nil
		case t.IsFloatingPoint():
			return gotorch.ToSlice[int64](t.ArgMax(gotorch.ArgMaxOptions{Dim: new(int64(1))})), nil
		}
		return nil, k.binaryLabels(what, t, false)
	}
	pc, pm := labels("output", output)
	tc, tm := labels("target", target)
	each := int(output.Numel()) / samples
	if !index {
		each /= n
	}
	is := func(classes, marks []int64, sample, class, i int) int64 {
		if marks != nil {
			return marks[(sample*n+class)*each+i]
		}
		if classes[sample*each+i] == int64(class) {
			return 1
		}
		return 0
	}
	for s := range samples {
		for c := first; c < n; c++ {
			for i := range each {
				p, t := is(pc, pm, s, c, i), is(tc, tm, s, c, i)
				preds[s*n+c] += p
				wanted[s*n+c] += t
				both[s*n+c] += p & t
			}
		}
	}
	return preds, wanted, both
}

func segmentation(name string, numClasses int64, format string, noBackground bool) (*TensorMetric, *task, int) {
	m := &TensorMetric{base: base{name: name}}
	k := &task{base: &m.base, classes: numClasses}
	if numClasses < 1 {
		panic(m.valueError("there should be at least one class, and are %d", numClasses))
	}
	switch format {
	case "", "one-hot", "index":
	default:
		panic(m.valueError("InputFormat should be \"one-hot\" or \"index\", and is %q", format))
	}
	if noBackground && numClasses > 1 {
		return m, k, 1
	}
	return m, k, 0
}

// MeanIoU is intersection over union of a segmentation, of each image and each class that is in it, and then their mean: with
// PerClass of each class, -1 where it is in no image. Output and target are 0 and 1, or scores, of shape (N, C, ...), or with InputFormat
// "index" classes (N, ...).
//
// See https://lightning.ai/docs/torchmetrics/stable/segmentation/mean_iou.html.
func MeanIoU(numClasses int64, opts ...MeanIoUOptions) *TensorMetric {
	opt := args.Option(opts)
	m, k, first := segmentation("MeanIoU", numClasses, opt.InputFormat, opt.NoIncludeBackground)
	var total []float64
	var n []int64
	width := 1
	if opt.PerClass {
		width = int(numClasses) - first
	}
	m.floats("score", &total, 0, make([]float64, width)...)
	m.ints("num_batches", &n, 0, make([]int64, width)...)
	m.update = func(output, target gotorch.Tensor) {
		preds, wanted, both := k.areas(output, target, opt.InputFormat, first)
		for i, p := range preds {
			c := i % int(numClasses)
			union := p + wanted[i] - both[i]
			if c < first || union == 0 {
				continue
			}
			at := 0
			if opt.PerClass {
				at = c - first
			}
			total[at] += float64(both[i]) / float64(union)
			n[at]++
		}
	}
	m.compute = func() gotorch.Tensor {
		values := make([]float64, width)
		for i := range values {
			values[i] = total[i] / float64(n[i])
		}
		if opt.PerClass {
			for i := range values {
				if n[i] == 0 {
					values[i] = -1
				}
			}
			return vector(values)
		}
		return scalar(values[0])
	}
	return m
}

// DiceScore is twice the intersection over the sum of the sizes, of each image and class. Inputs are as of [MeanIoU].
//
// See https://lightning.ai/docs/torchmetrics/stable/segmentation/dice.html.
func DiceScore(numClasses int64, opts ...DiceScoreOptions) *TensorMetric {
	opt := args.Option(opts)
	m, k, first := segmentation("DiceScore", numClasses, opt.InputFormat, opt.NoIncludeBackground)
	switch opt.Average {
	case "", "micro", "macro", "weighted", "none":
	default:
		panic(m.valueError("Average should be \"micro\", \"macro\", \"weighted\" or \"none\", and is %q", opt.Average))
	}
	switch opt.AggregationLevel {
	case "", "samplewise", "global":
	default:
		panic(m.valueError("AggregationLevel should be \"samplewise\" or \"global\", and is %q", opt.AggregationLevel))
	}
	width := int(numClasses) - first
	var num, denom, support []int64 // by image and class
	m.ints("numerator", &num, width)
	m.ints("denominator", &denom, width)
	m.ints("support", &support, width)
	m.check = func() error {
		if len(num) != len(denom) || len(num) != len(support) {
			return errLengths
		}
		return nil
	}
	m.update = func(output, target gotorch.Tensor) {
		preds, wanted, both := k.areas(output, target, opt.InputFormat, first)
		for i := range preds {
			if i%int(numClasses) >= first {
				num, denom, support = append(num, 2*both[i]), append(denom, preds[i]+wanted[i]), append(support, wanted[i])
			}
		}
	}
	m.compute = func() gotorch.Tensor {
		if len(num) == 0 {
			panic(m.valueError("there are no samples: Update comes before Compute"))
		}
		n, d, s := num, denom, support
		if opt.AggregationLevel == "global" {
			n, d, s = make([]int64, width), make([]int64, width), make([]int64, width)
			for i := range num {
				n[i%width] += num[i]
				d[i%width] += denom[i]
				s[i%width] += support[i]
			}
		}
		var table [][]float64
		for at := 0; at < len(n); at += width {
			table = append(table, dice(n[at:at+width], d[at:at+width], s[at:at+width], opt.Average))
		}
		means := make([]float64, len(table[0]))
		for c := range means {
			var total, count float64
			for _, row := range table {
				if !math.IsNaN(row[c]) {
					total += row[c]
					count++
				}
			}
			means[c] = total / count
		}
		if opt.Average == "none" {
			return vector(means)
		}
		return scalar(means[0])
	}
	return m
}

// dice is the score of one image: NaN of a class that is nowhere.
func dice(num, denom, support []int64, average string) []float64 {
	if average == "micro" {
		return []float64{float64(sum(num)) / float64(sum(denom))}
	}
	values := make([]float64, len(num))
	var total, weighted, known float64
	for i := range values {
		values[i] = float64(num[i]) / float64(denom[i])
		if denom[i] == 0 {
			continue
		}
		known++
		total += values[i]
		if all := sum(support); all > 0 {
			weighted += float64(values[i] * float64(support[i]) / float64(all))
		}
	}
	switch {
	case average == "none":
		return values
	case known == 0:
		return []float64{math.NaN()}
	case average == "weighted":
		return []float64{weighted}
	}
	return []float64{total / known}
}
