package metrics

import (
	"maps"
	"math"
	"slices"
	"sort"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// MeanSquaredErrorOptions are the options of [MeanSquaredError].
type MeanSquaredErrorOptions struct {
	NoSquared  bool           // the root of the mean: RMSE
	NumOutputs gotorch.Scalar // a value for each of so many columns; default: 1
}

// MeanAbsoluteErrorOptions are the options of [MeanAbsoluteError].
type MeanAbsoluteErrorOptions struct {
	NumOutputs gotorch.Scalar // a value for each of so many columns; default: 1
}

// columns are the numbers of two matrices of equal shape, by rows.
type columns struct {
	preds, target []float64
	n, width      int
}

// read reads tensors of one shape. With one output they may have any number of dimensions, and are one column.
func (b *base) readColumns(output, target gotorch.Tensor, outputs int) columns {
	b.sameShape(output, target)
	shape := output.Shape()
	if outputs > 1 && (len(shape) != 2 || shape[1] != int64(outputs)) {
		panic(b.valueError("the output should have the shape (N, %d), and has %v", outputs, shape))
	}
	c := columns{preds: gotorch.ToSlice[float64](output), target: gotorch.ToSlice[float64](target), width: max(outputs, 1)}
	c.n = len(c.preds) / c.width
	return c
}

func (b *base) outputs(field gotorch.Scalar) int {
	n := args.Int(b.op(), "NumOutputs", field, 1)
	if n < 1 || n > 1<<24 {
		panic(b.valueError("NumOutputs should be a positive integer, and is %d", n))
	}
	return int(n)
}

// orScalar is a number where there is one, else a list.
func orScalar(values []float64) gotorch.Tensor {
	if len(values) == 1 {
		return scalar(values[0])
	}
	return vector(values)
}

// MeanSquaredError is the mean of squared differences of output and target, which have one shape. Before an update it is
// NaN.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/mean_squared_error.html.
func MeanSquaredError(opts ...MeanSquaredErrorOptions) *TensorMetric {
	opt := args.Option(opts)
	return meanError("MeanSquaredError", opt.NumOutputs, func(d float64) float64 { return float64(d * d) }, func(mean float64) float64 {
		if opt.NoSquared {
			return math.Sqrt(mean)
		}
		return mean
	})
}

// MeanAbsoluteError is the mean of absolute differences of output and target, which have one shape. Before an update it
// is NaN.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/mean_absolute_error.html.
func MeanAbsoluteError(opts ...MeanAbsoluteErrorOptions) *TensorMetric {
	return meanError("MeanAbsoluteError", args.Option(opts).NumOutputs, math.Abs, func(mean float64) float64 { return mean })
}

func meanError(name string, outputs gotorch.Scalar, of, end func(float64) float64) *TensorMetric {
	m := &TensorMetric{base: base{name: name}}
	width := m.outputs(outputs)
	var total []float64
	var n []int64
	m.floats("sum_error", &total, 0, make([]float64, width)...)
	m.ints("total", &n, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		c := m.readColumns(output, target, width)
		for i, p := range c.preds {
			total[i%width] += of(p - c.target[i])
		}
		n[0] += int64(c.n)
	}
	m.compute = func() gotorch.Tensor {
		result := make([]float64, width)
		for i := range result {
			result[i] = end(total[i] / float64(n[0]))
		}
		return orScalar(result)
	}
	return m
}

// R2ScoreOptions are the options of [R2Score].
type R2ScoreOptions struct {
	Adjusted    int64  // how many independent variables to adjust for
	MultiOutput string // over columns, or "variance_weighted", or "raw_values"; default: "uniform_average"
}

// ExplainedVarianceOptions are the options of [ExplainedVariance].
type ExplainedVarianceOptions struct {
	MultiOutput string // over columns, or "variance_weighted", or "raw_values"; default: "uniform_average"
}

// over makes one number of those of the outputs.
func (b *base) over(how string, values, weights []float64) []float64 {
	switch how {
	case "raw_values":
		return values
	case "variance_weighted":
		var mean float64
		for i, v := range values {
			mean += float64(weights[i] / sum(weights) * v)
		}
		return []float64{mean}
	}
	return []float64{sum(values) / float64(len(values))}
}

func (b *base) multiOutput(how string) {
	switch how {
	case "", "uniform_average", "variance_weighted", "raw_values":
	default:
		panic(b.valueError("MultiOutput should be \"uniform_average\", \"variance_weighted\" or \"raw_values\", and is %q", how))
	}
}

// R2Score is the coefficient of determination: 1 is a perfect fit, 0 as good as the mean. Output and target have the shape
// (N) or (N, D). Compute panics with a ValueError while there are fewer than two samples.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/r2_score.html.
func R2Score(opts ...R2ScoreOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: "R2Score"}}
	m.multiOutput(opt.MultiOutput)
	if opt.Adjusted < 0 {
		panic(m.valueError("Adjusted should be 0 or more, and is %d", opt.Adjusted))
	}
	var squares, totals, residuals []float64
	var n []int64
	sums := m.sums(map[string]*[]float64{"sum_squared_error": &squares, "sum_error": &totals, "residual": &residuals})
	m.ints("total", &n, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		c := sums(output, target)
		width := c.width
		for i, t := range c.target {
			totals[i%width] += t
			squares[i%width] += float64(t * t)
			d := t - c.preds[i]
			residuals[i%width] += float64(d * d)
		}
		n[0] += int64(c.n)
	}
	m.compute = func() gotorch.Tensor {
		count := float64(n[0])
		if n[0] < 2 {
			panic(m.valueError("there should be at least two samples, and there are %d", n[0]))
		}
		values, variances := make([]float64, len(totals)), make([]float64, len(totals))
		for i := range values {
			variances[i] = squares[i] - float64(totals[i]*(totals[i]/count))
			residual, variance := !(math.Abs(residuals[i]) <= 1e-4), !(math.Abs(variances[i]) <= 1e-4)
			switch {
			case residual && variance:
				values[i] = 1 - residuals[i]/variances[i]
			case !residual:
				values[i] = 1
			}
		}
		values = m.over(opt.MultiOutput, values, variances)
		if opt.Adjusted > 0 && opt.Adjusted < n[0]-1 { // else there is nothing to adjust by
			for i, v := range values {
				values[i] = 1 - float64((1-v)*(count-1)/(count-float64(opt.Adjusted)-1))
			}
		}
		return orScalar(values)
	}
	return m
}

// sums adds sums of columns to the state, and returns what reads a batch: the first one says how many columns there are.
func (b *base) sums(parts map[string]*[]float64) func(output, target gotorch.Tensor) columns {
	names := slices.Sorted(maps.Keys(parts))
	for _, name := range names {
		b.floats(name, parts[name], 1)
		b.slots[len(b.slots)-1].inPlace = true
	}
	b.check = func() error {
		for _, p := range parts {
			if len(*p) != len(*parts[names[0]]) {
				return errLengths
			}
		}
		return nil
	}
	return func(output, target gotorch.Tensor) columns {
		b.oneOrTwo(output)
		b.sameShape(output, target)
		width := 1
		if output.Dim() == 2 {
			width = int(output.Size(1))
		}
		have := len(*parts[names[0]])
		if have > 0 && have != width || width == 0 {
			panic(b.valueError("the output should have %d columns, as before, and has the shape %v", max(1, have), output.Shape()))
		}
		c := b.readColumns(output, target, 1)
		c.width, c.n = width, len(c.preds)/width
		for _, p := range parts {
			if have == 0 {
				*p = make([]float64, width)
			}
		}
		return c
	}
}

// oneOrTwo refuses tensors of other dimensions than (N) and (N, D).
func (b *base) oneOrTwo(output gotorch.Tensor) {
	if d := output.Dim(); d != 1 && d != 2 {
		panic(b.valueError("output and target should have one or two dimensions, and the output has the shape %v", output.Shape()))
	}
}

// ExplainedVariance is the part of the target's variance that the output explains, where a constant shift does not count.
// Output and target have the shape (N) or (N, D).
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/explained_variance.html.
func ExplainedVariance(opts ...ExplainedVarianceOptions) *TensorMetric {
	opt := args.Option(opts)
	m := &TensorMetric{base: base{name: "ExplainedVariance"}}
	m.multiOutput(opt.MultiOutput)
	var errs, squaredErrs, targets, squaredTargets []float64
	var n []int64
	sums := m.sums(map[string]*[]float64{"sum_error": &errs, "sum_squared_error": &squaredErrs, "sum_target": &targets, "sum_squared_target": &squaredTargets})
	m.ints("num_obs", &n, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		c := sums(output, target)
		width := c.width
		for i, t := range c.target {
			d := t - c.preds[i]
			errs[i%width] += d
			squaredErrs[i%width] += float64(d * d)
			targets[i%width] += t
			squaredTargets[i%width] += float64(t * t)
		}
		n[0] += int64(c.n)
	}
	m.compute = func() gotorch.Tensor {
		count := float64(n[0])
		values, variances := make([]float64, max(1, len(errs))), make([]float64, max(1, len(errs)))
		if len(errs) == 0 {
			return scalar(math.NaN())
		}
		for i := range values {
			mean, wanted := errs[i]/count, targets[i]/count
			num := squaredErrs[i]/count - float64(mean*mean)
			variances[i] = squaredTargets[i]/count - float64(wanted*wanted)
			switch {
			case num == 0:
				values[i] = 1
			case variances[i] != 0:
				values[i] = 1 - num/variances[i]
			}
		}
		return orScalar(m.over(opt.MultiOutput, values, variances))
	}
	return m
}

// CorrCoefOptions are the options of [PearsonCorrCoef] and [SpearmanCorrCoef].
type CorrCoefOptions struct {
	NumOutputs gotorch.Scalar // a value for each of so many columns; default: 1
}

// correlated has what both say of their inputs.
func (b *base) correlated(output, target gotorch.Tensor, width int) columns {
	b.oneOrTwo(output)
	b.sameShape(output, target)
	if shape := output.Shape(); len(shape) == 2 && shape[1] != int64(width) {
		panic(b.valueError("the output should have %d columns, and has the shape %v: NumOutputs says how many", width, shape))
	}
	return b.readColumns(output, target, width)
}

// PearsonCorrCoef is the linear correlation of output and target, of shape (N) or (N, NumOutputs). It is NaN where one of
// them does not vary.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/pearson_corr_coef.html.
func PearsonCorrCoef(opts ...CorrCoefOptions) *TensorMetric {
	m := &TensorMetric{base: base{name: "PearsonCorrCoef"}}
	width := m.outputs(args.Option(opts).NumOutputs)
	// Means, the largest distance from them, and sums of squares and products around them: sums of the numbers
	// themselves would lose what is small beside a large mean.
	var mx, my, dx, dy, vx, vy, xy []float64
	var n []int64
	parts := map[string]*[]float64{"mean_x": &mx, "mean_y": &my, "max_abs_dev_x": &dx, "max_abs_dev_y": &dy, "var_x": &vx, "var_y": &vy, "corr_xy": &xy}
	for _, name := range slices.Sorted(maps.Keys(parts)) {
		m.floats(name, parts[name], 0, make([]float64, width)...)
	}
	m.ints("n_total", &n, 0, 0)
	m.update = func(output, target gotorch.Tensor) {
		c := m.correlated(output, target, width)
		for row := range c.n {
			n[0]++
			for i := range width {
				x, y := c.preds[row*width+i], c.target[row*width+i]
				ex, ey := x-mx[i], y-my[i]
				mx[i] += ex / float64(n[0])
				my[i] += ey / float64(n[0])
				vx[i] += float64(ex * (x - mx[i]))
				vy[i] += float64(ey * (y - my[i]))
				xy[i] += float64(ex * (y - my[i]))
			}
		}
		for i := range c.preds {
			at := i % width
			dx[at] = max(dx[at], math.Abs(c.preds[i]-mx[at]))
			dy[at] = max(dy[at], math.Abs(c.target[i]-my[at]))
		}
	}
	m.compute = func() gotorch.Tensor {
		values := make([]float64, width)
		bound := math.Sqrt(0x1p-52)
		for i := range values {
			less := float64(n[0] - 1)
			x, y, both := vx[i]/less/dx[i]/dx[i], vy[i]/less/dy[i]/dy[i], xy[i]/less/dx[i]/dy[i]
			if !(x >= bound) || !(y >= bound) || math.IsInf(x, 0) || math.IsInf(y, 0) {
				values[i] = math.NaN()
				continue
			}
			values[i] = min(max(both/math.Sqrt(float64(x*y)), -1), 1)
		}
		return orScalar(values)
	}
	return m
}

// SpearmanCorrCoef is the correlation of the ranks of output and target, of shape (N) or (N, NumOutputs). All numbers are
// kept until Compute. It panics with a ValueError if there are none.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/spearman_corr_coef.html.
func SpearmanCorrCoef(opts ...CorrCoefOptions) *TensorMetric {
	m := &TensorMetric{base: base{name: "SpearmanCorrCoef"}}
	width := m.outputs(args.Option(opts).NumOutputs)
	var preds, target []float64
	m.floats("preds", &preds, width)
	m.floats("target", &target, width)
	m.check = func() error {
		if len(preds) != len(target) {
			return errLengths
		}
		return nil
	}
	m.update = func(output, targets gotorch.Tensor) {
		if !output.IsFloatingPoint() || !targets.IsFloatingPoint() {
			panic(&gotorch.Error{Op: m.op(), Kind: gotorch.TypeError, Msg: "the output and the target should be floating point tensors"})
		}
		c := m.correlated(output, targets, width)
		preds, target = append(preds, c.preds...), append(target, c.target...)
	}
	m.compute = func() gotorch.Tensor {
		if len(preds) == 0 {
			panic(m.valueError("there are no samples: Update comes before Compute"))
		}
		values := make([]float64, width)
		for i := range values {
			x, y := ranks(preds, i, width), ranks(target, i, width)
			mean := float64(len(x)+1) / 2
			var xx, yy, xy float64
			for j := range x {
				ex, ey := x[j]-mean, y[j]-mean
				xx += float64(ex * ex)
				yy += float64(ey * ey)
				xy += float64(ex * ey)
			}
			n := float64(len(x))
			// 1e-6, as torchmetrics has it, keeps constants from NaN.
			values[i] = min(max(xy/n/(float64(math.Sqrt(xx/n)*math.Sqrt(yy/n))+1e-6), -1), 1)
		}
		return orScalar(values)
	}
	return m
}

// ranks numbers a column's values from 1; equal ones share the mean of theirs.
func ranks(values []float64, column, width int) []float64 {
	n := len(values) / width
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	at := func(i int) float64 { return values[i*width+column] }
	sort.SliceStable(order, func(i, j int) bool {
		a, b := at(order[i]), at(order[j])
		return a < b || math.IsNaN(b) && !math.IsNaN(a)
	})
	result := make([]float64, n)
	for first := 0; first < n; {
		last := first
		for last+1 < n && at(order[last+1]) == at(order[first]) {
			last++
		}
		for _, i := range order[first : last+1] {
			result[i] = float64(first+last)/2 + 1
		}
		first = last + 1
	}
	return result
}

// ReductionOptions are the options of metrics that have a number for each sample.
type ReductionOptions struct {
	Reduction string // over samples, or "mean", or "none"; default: "sum"
}

// KLDivergenceOptions are the options of [KLDivergence].
type KLDivergenceOptions struct {
	LogProb   bool   // output and target are logarithms of probabilities
	Reduction string // over samples, or "sum", or "none"; default: "mean"
}

func (b *base) reduction(how, otherwise string) string {
	switch how {
	case "":
		return otherwise
	case "sum", "mean", "none":
		return how
	}
	panic(b.valueError("Reduction should be \"sum\", \"mean\" or \"none\", and is %q", how))
}

// reduced is a metric of a number for each sample: their sum and how many there are, or all of them.
func perSample(name, reduction, otherwise string, of func(m *TensorMetric, output, target gotorch.Tensor) []float64) *TensorMetric {
	m := &TensorMetric{base: base{name: name}}
	how := m.reduction(reduction, otherwise)
	var total, all []float64
	var n []int64
	if how == "none" {
		m.floats("measures", &all, 1)
	} else {
		m.floats("measures", &total, 0, 0)
		m.ints("total", &n, 0, 0)
	}
	m.update = func(output, target gotorch.Tensor) {
		values := of(m, output, target)
		if how == "none" {
			all = append(all, values...)
			return
		}
		total[0] += sum(values)
		n[0] += int64(len(values))
	}
	m.compute = func() gotorch.Tensor {
		switch how {
		case "none":
			return vector(all)
		case "mean":
			return scalar(total[0] / float64(n[0]))
		}
		return scalar(total[0])
	}
	return m
}

// matrices reads two matrices of one shape.
func (b *base) matrices(output, target gotorch.Tensor) columns {
	b.sameShape(output, target)
	if output.Dim() != 2 {
		panic(b.valueError("the output should have the shape (N, D), and has %v", output.Shape()))
	}
	c := columns{preds: gotorch.ToSlice[float64](output), target: gotorch.ToSlice[float64](target)}
	c.n, c.width = int(output.Size(0)), int(output.Size(1))
	return c
}

// CosineSimilarity is the cosine of the angle between the rows of output and target, (N, D): their sum, or with Reduction
// "mean" their mean.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/cosine_similarity.html.
func CosineSimilarity(opts ...ReductionOptions) *TensorMetric {
	return perSample("CosineSimilarity", args.Option(opts).Reduction, "sum", func(m *TensorMetric, output, target gotorch.Tensor) []float64 {
		c := m.matrices(output, target)
		values := make([]float64, c.n)
		for row := range values {
			var xx, yy, xy float64
			for i := row * c.width; i < (row+1)*c.width; i++ {
				x, y := c.preds[i], c.target[i]
				xx += float64(x * x)
				yy += float64(y * y)
				xy += float64(x * y)
			}
			values[row] = xy / (math.Sqrt(xx) * math.Sqrt(yy))
		}
		return values
	})
}

// KLDivergence is the Kullback-Leibler divergence of the target's distributions from the output's, rows of (N, D) each:
// sum(output * log(output/target)). Rows are divided by their sums.
//
// See https://lightning.ai/docs/torchmetrics/stable/regression/kl_divergence.html.
func KLDivergence(opts ...KLDivergenceOptions) *TensorMetric {
	opt := args.Option(opts)
	return perSample("KLDivergence", opt.Reduction, "mean", func(m *TensorMetric, output, target gotorch.Tensor) []float64 {
		c := m.matrices(output, target)
		values := make([]float64, c.n)
		for row := range values {
			p, q := c.preds[row*c.width:(row+1)*c.width], c.target[row*c.width:(row+1)*c.width]
			ps, qs := sum(p), sum(q)
			for i := range p {
				if opt.LogProb {
					values[row] += float64(math.Exp(p[i]) * (p[i] - q[i]))
				} else if a := p[i] / ps; a != 0 {
					values[row] += float64(a * math.Log(a/(q[i]/qs)))
				}
			}
		}
		return values
	})
}
