package metrics

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// BinaryOptions are the options of metrics of two classes that count right and wrong answers.
type BinaryOptions struct {
	Threshold       gotorch.Scalar // a score above it is class 1; default: 0.5
	MultidimAverage string         // or "samplewise": a value for each sample; default: "global"
	IgnoreIndex     *int64         // elements with this target do not count
	ZeroDivision    float64        // the value, 0 or 1, of precision, recall and F score where there is nothing to divide by
}

// MulticlassOptions are the options of metrics of several classes that count right and wrong answers.
type MulticlassOptions struct {
	Average         string         // over classes: "micro", "macro", "weighted", or "none"; default: "macro"
	TopK            gotorch.Scalar // an answer is right if it is among so many largest scores; default: 1
	MultidimAverage string         // or "samplewise": a value for each sample; default: "global"
	IgnoreIndex     *int64         // elements with this target do not count
	ZeroDivision    float64        // as in [BinaryOptions]
}

// MultilabelOptions are the options of metrics of several labels, each of which is there or is not.
type MultilabelOptions struct {
	Threshold       gotorch.Scalar // a score above it says that a label is there; default: 0.5
	Average         string         // over labels: "micro", "macro", "weighted", or "none"; default: "macro"
	MultidimAverage string         // or "samplewise": a value for each sample; default: "global"
	IgnoreIndex     *int64         // elements with this target do not count
	ZeroDivision    float64        // as in [BinaryOptions]
}

// tally counts the answers about one class: true and false positives and negatives.
type tally struct{ tp, fp, tn, fn float64 }

func (t tally) add(o tally) tally {
	return tally{t.tp + o.tp, t.fp + o.fp, t.tn + o.tn, t.fn + o.fn}
}

// ratio is what a metric makes of the counts of one class. multi says that there are several exclusive ones, and zero
// what nothing divided by nothing is.
type ratio func(t tally, multi bool, zero float64) float64

func accuracy(t tally, multi bool, _ float64) float64 {
	if multi {
		return safeDivide(t.tp, t.tp+t.fn, 0)
	}
	return safeDivide(t.tp+t.tn, t.tp+t.tn+t.fp+t.fn, 0)
}

func hamming(t tally, multi bool, _ float64) float64 { return 1 - accuracy(t, multi, 0) }

func precision(t tally, _ bool, zero float64) float64 { return safeDivide(t.tp, t.tp+t.fp, zero) }

func recall(t tally, _ bool, zero float64) float64 { return safeDivide(t.tp, t.tp+t.fn, zero) }

func specificity(t tally, _ bool, _ float64) float64 { return safeDivide(t.tn, t.tn+t.fp, 0) }

func fBeta(beta float64) ratio {
	b := float64(beta * beta)
	return func(t tally, _ bool, zero float64) float64 {
		num := float64((1 + b) * t.tp)
		return safeDivide(num, num+float64(b*t.fn)+t.fp, zero)
	}
}

// scores is the engine of all metrics that are made of counts of right and wrong answers.
type scores struct {
	task
	metric  *TensorMetric
	average string // "" of two classes
	zero    float64
	wanted  bool  // with TopK a class counts in the mean if it was wanted, whether or not it was given
	of      ratio // nil for the counts themselves
	state   [4][]int64
}

func (s *scores) setAverage(average string) {
	switch average {
	case "":
		average = "macro"
	case "micro", "macro", "weighted", "none":
	default:
		panic(s.valueError("Average should be \"micro\", \"macro\", \"weighted\" or \"none\", and is %q", average))
	}
	s.average = average
}

func newScores(name string, of ratio, zero float64) *scores {
	m := &TensorMetric{base: base{name: name}}
	s := &scores{metric: m, task: task{base: &m.base}, of: of, zero: zero}
	if zero != 0 && zero != 1 {
		panic(m.valueError("ZeroDivision should be 0 or 1, and is %v", zero))
	}
	return s
}

// ready ends the making.
func (s *scores) ready() *TensorMetric {
	m := s.metric
	n := max(1, int(s.classes))
	for i, name := range []string{"tp", "fp", "tn", "fn"} {
		if s.samplewise {
			m.ints(name, &s.state[i], n)
		} else {
			m.ints(name, &s.state[i], 0, make([]int64, n)...)
		}
	}
	m.check = func() error {
		for _, counts := range s.state[1:] {
			if len(counts) != len(s.state[0]) {
				return errLengths
			}
		}
		return nil
	}
	m.update, m.compute = s.update, s.compute
	return m
}

func (s *scores) update(output, target gotorch.Tensor) {
	e := s.read(output, target, false)
	n := max(1, int(s.classes))
	places := 1
	if s.samplewise {
		places = e.samples
	}
	var counts [4][]int64
	for i := range counts {
		counts[i] = make([]int64, places*n)
	}
	tp, fp, tn, fn := counts[0], counts[1], counts[2], counts[3]
	inner := e.each // elements of one label
	if s.labels {
		inner = e.each / n
	}
	for i, want := range e.target {
		if want == ignored {
			continue
		}
		got, at := e.preds[i], 0
		if s.samplewise {
			at = i / e.each * n
		}
		if s.classes > 0 && !s.labels {
			if got == want {
				tp[at+int(want)]++
			} else {
				fp[at+int(got)]++
				fn[at+int(want)]++
			}
			tn[at]++ // of all classes, until below
			continue
		}
		if s.labels {
			at += i / inner % n
		}
		switch {
		case want == 1 && got == 1:
			tp[at]++
		case want == 1:
			fn[at]++
		case got == 1:
			fp[at]++
		default:
			tn[at]++
		}
	}
	if s.classes > 0 && !s.labels {
		for at := 0; at < len(tn); at += n {
			all := tn[at]
			for c := at; c < at+n; c++ {
				tn[c] = all - tp[c] - fp[c] - fn[c]
			}
		}
	}
	for i := range counts {
		if s.samplewise {
			s.state[i] = append(s.state[i], counts[i]...)
		} else {
			for c, v := range counts[i] {
				s.state[i][c] += v
			}
		}
	}
}

func (s *scores) compute() gotorch.Tensor {
	n := max(1, int(s.classes))
	places := len(s.state[0]) / n
	if s.samplewise && places == 0 {
		panic(s.valueError("there are no samples: Update comes before Compute"))
	}
	if s.of == nil {
		return s.computeCounts(places, n)
	}
	var result []float64
	for p := range places {
		result = append(result, s.reduced(s.tallies(p, n))...)
	}
	each := len(result) / places
	switch {
	case s.samplewise && each > 1:
		return rows(result, each)
	case s.samplewise || s.average == "none":
		return vector(result)
	}
	return scalar(result[0])
}

func (s *scores) tallies(place, n int) []tally {
	found := make([]tally, n)
	for c := range found {
		at := place*n + c
		found[c] = tally{float64(s.state[0][at]), float64(s.state[1][at]), float64(s.state[2][at]), float64(s.state[3][at])}
	}
	return found
}

// reduced is the metric of one sample, or of all.
func (s *scores) reduced(found []tally) []float64 {
	multi := s.classes > 0 && !s.labels
	if s.average == "" || s.average == "micro" {
		var total tally
		for _, t := range found {
			total = total.add(t)
		}
		return []float64{s.of(total, multi, s.zero)}
	}
	values := make([]float64, len(found))
	weights := make([]float64, len(found))
	for i, t := range found {
		values[i], weights[i] = s.of(t, multi, s.zero), 1
		switch {
		case s.average == "weighted":
			weights[i] = t.tp + t.fn
		case !multi:
		case s.wanted && t.tp+t.fn == 0, !s.wanted && t.tp+t.fp+t.fn == 0:
			weights[i] = 0 // neither wanted nor given
		}
	}
	if s.average == "none" {
		return values
	}
	return []float64{weightedMean(values, weights)}
}

// weightedMean is zero where all weights are.
func weightedMean(values, weights []float64) (mean float64) {
	total := sum(weights)
	for i, v := range values {
		mean += float64(safeDivide(float64(weights[i]*v), total, 0))
	}
	return mean
}

// computeCounts is StatScores: tp, fp, tn, fn and tp+fn.
func (s *scores) computeCounts(places, n int) gotorch.Tensor {
	var counts []float64
	for p := range places {
		found := s.tallies(p, n)
		var table [][5]float64
		for _, t := range found {
			table = append(table, [5]float64{t.tp, t.fp, t.tn, t.fn, t.tp + t.fn})
		}
		if s.average == "none" {
			for _, row := range table {
				counts = append(counts, row[:]...)
			}
			continue
		}
		var support, total float64
		for _, row := range table {
			support += row[4]
		}
		var all [5]float64
		for _, row := range table {
			weight := 1.0
			switch s.average {
			case "macro":
				weight = 1 / float64(n)
			case "weighted":
				weight = row[4] / support
			}
			total += weight
			for i := range all {
				all[i] += float64(row[i] * weight)
			}
		}
		counts = append(counts, all[:]...)
	}
	shape := []int64{5}
	if s.average == "none" {
		shape = []int64{int64(n), 5}
	}
	if s.samplewise {
		shape = append([]int64{int64(places)}, shape...)
	}
	t := gotorch.FromSlice(counts, shape...)
	if s.average == "macro" || s.average == "weighted" {
		return t
	}
	defer t.Close()
	return t.To(gotorch.Int64)
}

// The three kinds of tasks -------------------------------------------------------------------------

func binaryScores(name string, of ratio, opts []BinaryOptions) *TensorMetric {
	opt := args.Option(opts)
	s := newScores(name, of, opt.ZeroDivision)
	s.ignore = opt.IgnoreIndex
	s.setThreshold(opt.Threshold)
	s.setSamplewise(opt.MultidimAverage)
	return s.ready()
}

func multiclassScores(name string, numClasses int64, of ratio, opts []MulticlassOptions) *TensorMetric {
	opt := args.Option(opts)
	s := newScores(name, of, opt.ZeroDivision)
	s.setClasses("classes", numClasses)
	s.ignore = opt.IgnoreIndex
	s.topK = args.Int(s.op(), "TopK", opt.TopK, 1)
	if s.topK < 1 || s.topK > numClasses {
		panic(s.valueError("TopK should be from 1 to the %d classes, and is %d", numClasses, s.topK))
	}
	s.wanted = s.topK > 1 && slices.Contains(byWanted, name)
	s.setAverage(opt.Average)
	s.setSamplewise(opt.MultidimAverage)
	return s.ready()
}

// byWanted are the metrics for which a class that TopK never finds right is left out of the mean only if it was
// not wanted either; torchmetrics does not look at TopK there in the others.
var byWanted = []string{"MulticlassAccuracy", "MulticlassPrecision", "MulticlassRecall"}

func multilabelScores(name string, numLabels int64, of ratio, opts []MultilabelOptions) *TensorMetric {
	opt := args.Option(opts)
	s := newScores(name, of, opt.ZeroDivision)
	s.setClasses("labels", numLabels)
	s.labels = true
	s.ignore = opt.IgnoreIndex
	s.setThreshold(opt.Threshold)
	s.setAverage(opt.Average)
	s.setSamplewise(opt.MultidimAverage)
	return s.ready()
}
