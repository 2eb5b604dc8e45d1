package tensorboard

import (
	"fmt"
	"math"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/train"
)

// AddScalarOptions are the arguments of [SummaryWriter.AddScalar] that have defaults.
type AddScalarOptions struct {
	Walltime        time.Time // when it was measured; default: now
	NewStyle        bool      // write a tensor, which loads faster, instead of a simple value
	DoublePrecision bool      // with NewStyle: in 64 bits
}

// AddScalar adds a number, in 32 bits but for the options.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_scalar.
func (w *SummaryWriter) AddScalar(tag string, value float64, globalStep int, opts ...AddScalarOptions) error {
	o := args.Option(opts)
	return w.summary(globalStep, o.Walltime, scalarOf(tag, value, o))
}

func scalarOf(tag string, value float64, o AddScalarOptions) message {
	switch {
	case !o.NewStyle:
		return summaryOf(tag, message{}.float(2, value))
	case o.DoublePrecision:
		return tensorOf(tag, message{}.varint(1, dtDouble).doubles(6, []float64{value}), metadata("scalars", nil))
	}
	return tensorOf(tag, message{}.varint(1, dtFloat).floats(5, []float32{float32(value)}), metadata("scalars", nil))
}

// tensorOf is a Summary of a TensorProto.
func tensorOf(tag string, tensor, metadata message) message {
	return summaryOf(tag, message{}.bytes(8, tensor).bytes(9, metadata))
}

// AddScalarsOptions are the arguments of [SummaryWriter.AddScalars] that have defaults.
type AddScalarsOptions struct {
	Walltime time.Time // when they were measured; default: now
}

// AddScalars adds several numbers that TensorBoard draws in one chart. Each goes into a folder of its own, below the
// writer's, by the name mainTag_NAME.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_scalars.
func (w *SummaryWriter) AddScalars(mainTag string, values []train.Value, globalStep int, opts ...AddScalarsOptions) error {
	o := args.Option(opts)
	folder := strings.ReplaceAll(mainTag, "/", "_") + "_"
	for _, v := range values {
		if !local(folder + v.Name) {
			return w.refuse(valueError("AddScalars", "%q and %q make no name of a folder", mainTag, v.Name))
		}
	}
	for _, v := range values {
		summary := scalarOf(mainTag, v.Value, AddScalarOptions{})
		if err := w.add(filepath.Clean(folder+v.Name), globalStep, o.Walltime, message{}.bytes(5, summary)); err != nil {
			return err
		}
	}
	return nil
}

// AddTensorOptions are the arguments of [SummaryWriter.AddTensor] that have defaults.
type AddTensorOptions struct {
	Walltime time.Time // when it was measured; default: now
}

// AddTensor adds the elements of a tensor of numbers or truth values, for programs that read event files, of a sparse one
// with the zeros that it leaves out. It returns an
// error for a quantised tensor or one of complex32, float8 or bits, and above 1 GiB.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.
func (w *SummaryWriter) AddTensor(tag string, t gotorch.Tensor, globalStep int, opts ...AddTensorOptions) error {
	o := args.Option(opts)
	proto, err := tensorProto(t)
	if err != nil {
		return w.refuse(err)
	}
	return w.summary(globalStep, o.Walltime, tensorOf(tag, proto, metadata("tensor", nil)))
}

func tensorProto(t gotorch.Tensor) (m message, err error) {
	head := func(dtype int64) message { return message{}.varint(1, dtype).bytes(2, shape(t.Shape()...)) }
	integers := map[gotorch.DType]struct {
		dtype int64
		field protowire.Number
	}{
		gotorch.Int8: {dtInt8, 7}, gotorch.Int16: {dtInt16, 7}, gotorch.Int32: {dtInt32, 7}, gotorch.Int64: {dtInt64, 10},
		gotorch.Uint8: {dtUint8, 16}, gotorch.Bool: {dtBool, 11}, gotorch.Uint16: {dtUint16, 7}, gotorch.Uint32: {dtUint32, 16},
	}
	err = gotorch.Try0(func() {
		if t.Numel() > (1<<30)/int64(max(1, t.DType().Size())) {
			panic(valueError("AddTensor", "the tensor has %d elements, which is more than fits into an event", t.Numel()))
		}
		switch d := t.DType(); d {
		case gotorch.Float32:
			m = head(dtFloat).floats(5, read[float32](t, d))
		case gotorch.Float64:
			m = head(dtDouble).doubles(6, read[float64](t, d))
		case gotorch.Float16, gotorch.BFloat16:
			// The bits of the number in 32 bits, as PyTorch writes them.
			bits := make([]int64, 0, t.Numel())
			for _, v := range read[float32](t, gotorch.Float32) {
				bits = append(bits, int64(int32(math.Float32bits(v))))
			}
			m = head(map[gotorch.DType]int64{gotorch.Float16: dtHalf, gotorch.BFloat16: dtBFloat16}[d]).varints(13, bits)
		case gotorch.Complex64:
			m = head(dtComplex64).floats(9, read[float32](gotorch.ViewAsReal(dense(t).ResolveConj()), gotorch.Float32))
		case gotorch.Complex128:
			m = head(dtComplex128).doubles(12, read[float64](gotorch.ViewAsReal(dense(t).ResolveConj()), gotorch.Float64))
		default:
			kind, is := integers[d]
			if !is {
				panic(valueError("AddTensor", "TensorBoard has no tensors of %s", d))
			}
			values := read[int64](t, gotorch.Int64)
			if kind.dtype == dtUint8 || kind.dtype == dtUint32 {
				for i := range values {
					values[i] = int64(uint32(values[i]))
				}
			}
			m = head(kind.dtype).varints(kind.field, values)
		}
	})
	return m, err
}

// read returns the elements of a tensor, which may be anywhere, as numbers of a dtype. Contiguous fails where an expanded
// tensor has more elements than there is memory for; a slice that is too long would end the program.
func read[T gotorch.Element](t gotorch.Tensor, d gotorch.DType) []T {
	return gotorch.Scope(func(*gotorch.ScopeHandle) []T {
		return gotorch.ToSlice[T](dense(t).To(d).To(gotorch.CPU).Contiguous())
	})
}

// given reports whether a tensor that may be left out is there: one that was closed is, and fails where it is used.
func given(t gotorch.Tensor) bool { return t.T != nil }

// dense returns a tensor with all of its elements, also those that a sparse one leaves out, without gradients.
func dense(t gotorch.Tensor) gotorch.Tensor {
	t = t.Detach()
	if t.Layout() != gotorch.Strided {
		return t.ToDense()
	}
	return t
}

// held returns the elements that a sparse tensor holds, and another one as it is.
func held(t gotorch.Tensor) gotorch.Tensor {
	t = t.Detach()
	if t.Layout() == gotorch.SparseCOO {
		return t.Coalesce().Values()
	}
	return t
}

// AddTextOptions are the arguments of [SummaryWriter.AddText] that have defaults.
type AddTextOptions struct {
	Walltime time.Time // when it was written; default: now
}

// AddText adds a text, which TensorBoard shows as Markdown.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_text.
func (w *SummaryWriter) AddText(tag, text string, globalStep int, opts ...AddTextOptions) error {
	o := args.Option(opts)
	tensor := message{}.varint(1, dtString).bytes(2, shape(1)).bytes(8, []byte(valid(text)))
	return w.summary(globalStep, o.Walltime, tensorOf(tag+"/text_summary", tensor, metadata("text", nil)))
}

// AddHistogramOptions are the arguments of [SummaryWriter.AddHistogram] that have defaults.
type AddHistogramOptions struct {
	Bins     []float64 // limits of the buckets, in ascending order; default: TensorFlow's, each 1.1 times the one before
	MaxBins  int       // buckets are put together so that there are about so many at most; default: as many as there are
	Walltime time.Time // when it was measured; default: now
}

// AddHistogram adds a histogram of the elements of a tensor of real numbers; of a sparse one, as an embedding's gradient, of
// those that it holds. NaN and what is beyond the limits are in no
// bucket, though in its sums. It returns an error if the tensor has no elements, or none that is in a bucket.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_histogram.
func (w *SummaryWriter) AddHistogram(tag string, values gotorch.Tensor, globalStep int, opts ...AddHistogramOptions) error {
	o := args.Option(opts)
	var numbers []float64
	if err := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) { numbers = read[float64](held(values), gotorch.Float64) })
	}); err != nil {
		return w.refuse(err)
	}
	h, err := HistogramOf(numbers, HistogramOfOptions{Bins: o.Bins, MaxBins: o.MaxBins})
	if err != nil {
		return w.refuse(err)
	}
	return w.AddHistogramRaw(tag, h, globalStep, AddHistogramRawOptions{Walltime: o.Walltime})
}

// Histogram is what TensorBoard knows of numbers.
type Histogram struct {
	Min, Max, Num, Sum, SumSquares float64
	BucketLimits                   []float64 // the upper limit of each bucket; the first has nothing in it
	BucketCounts                   []float64 // how many numbers are in it
}

// HistogramOfOptions are the arguments of [HistogramOf] that have defaults.
type HistogramOfOptions struct {
	Bins    []float64 // limits of the buckets, in ascending order; default: TensorFlow's, each 1.1 times the one before
	MaxBins int       // buckets are put together so that there are about so many at most; default: as many as there are
}

// defaultBins are TensorFlow's limits: 0, and ±1e-12 to 1e20.
var defaultBins = sync.OnceValue(func() []float64 {
	var up []float64
	for v := 1e-12; v < 1e20; v *= 1.1 {
		up = append(up, v)
	}
	bins := make([]float64, 0, 2*len(up)+1)
	for i := range up {
		bins = append(bins, -up[len(up)-1-i])
	}
	return append(append(bins, 0), up...)
})

// HistogramOf returns the histogram of numbers. It returns an error if there are none, or none that is in a bucket, or
// if the limits are not in order.
func HistogramOf(values []float64, opts ...HistogramOfOptions) (Histogram, error) {
	o := args.Option(opts)
	limits := o.Bins
	if limits == nil {
		limits = defaultBins()
	}
	if len(limits) < 2 || !sort.Float64sAreSorted(limits) || math.IsNaN(limits[0]) {
		return Histogram{}, valueError("AddHistogram", "Bins must have two limits or more, in ascending order")
	}
	if o.MaxBins < 0 {
		return Histogram{}, valueError("AddHistogram", "MaxBins must not be negative, but is %d", o.MaxBins)
	}
	if len(values) == 0 {
		return Histogram{}, valueError("AddHistogram", "the tensor has no elements")
	}
	h := Histogram{Min: values[0], Max: values[0], Num: float64(len(values))}
	counts := make([]float64, len(limits)-1)
	last := limits[len(limits)-1]
	for _, v := range values {
		h.Min, h.Max = min(h.Min, v), max(h.Max, v) // NaN if one is
		h.SumSquares += float64(v * v)
		switch {
		case v >= limits[0] && v < last:
			counts[sort.Search(len(limits), func(i int) bool { return limits[i] > v })-1]++
		case v == last:
			counts[len(counts)-1]++
		}
	}
	h.Sum = pairwise(values)
	if o.MaxBins > 0 && len(counts) > o.MaxBins {
		counts, limits = fewer(counts, limits, o.MaxBins)
	}
	first, end := -1, 0
	for i, n := range counts {
		if n > 0 {
			if end = i + 1; first < 0 {
				first = i
			}
		}
	}
	if first < 0 {
		return Histogram{}, valueError("AddHistogram", "none of %d elements is in a bucket", len(values))
	}
	// TensorBoard knows the upper limits only, so an empty bucket before tells the lowest one.
	h.BucketCounts = append([]float64{0}, counts[first:end]...)
	h.BucketLimits = append([]float64(nil), limits[first:end+1]...)
	return h, nil
}

// fewer puts buckets together.
func fewer(counts, limits []float64, bound int) (fewerCounts, fewerLimits []float64) {
	each := len(counts) / bound
	for i := 0; i < len(counts); i += each {
		sum := 0.0
		for _, n := range counts[i:min(i+each, len(counts))] {
			sum += n
		}
		fewerCounts, fewerLimits = append(fewerCounts, sum), append(fewerLimits, limits[i])
	}
	return fewerCounts, append(fewerLimits, limits[len(limits)-1])
}

// pairwise adds numbers so that errors do not add up.
func pairwise(values []float64) (sum float64) {
	if len(values) > 128 {
		half := len(values) / 2
		return pairwise(values[:half]) + pairwise(values[half:])
	}
	for _, v := range values {
		sum += v
	}
	return sum
}

// AddHistogramRawOptions are the arguments of [SummaryWriter.AddHistogramRaw] that have defaults.
type AddHistogramRawOptions struct {
	Walltime time.Time // when it was measured; default: now
}

// AddHistogramRaw adds a histogram that the program has made.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.
func (w *SummaryWriter) AddHistogramRaw(tag string, h Histogram, globalStep int, opts ...AddHistogramRawOptions) error {
	o := args.Option(opts)
	if len(h.BucketLimits) != len(h.BucketCounts) {
		return w.refuse(valueError("AddHistogramRaw", "there are %d limits and %d counts", len(h.BucketLimits), len(h.BucketCounts)))
	}
	return w.summary(globalStep, o.Walltime, histogramOf(tag, h))
}

func histogramOf(tag string, h Histogram) message {
	proto := message{}.double(1, h.Min).double(2, h.Max).double(3, h.Num).double(4, h.Sum).double(5, h.SumSquares).
		doubles(6, h.BucketLimits).doubles(7, h.BucketCounts)
	return summaryOf(tag, message{}.bytes(5, proto))
}

// HParam is a hyperparameter of a run.
type HParam struct {
	Name   string
	Value  any   // a number, a string or a bool
	Domain []any // all values that it may have, of the same type; may be left out
}

// AddHParamsOptions are the arguments of [SummaryWriter.AddHParams] that have defaults.
type AddHParamsOptions struct {
	RunName    string // the folder below the writer's; default: the time
	GlobalStep int    // step of the metrics
}

// AddHParams adds hyperparameters of a run and the numbers that it came to, for TensorBoard to compare runs. They go
// into a folder below the writer's. It returns a TypeError for a hyperparameter of another type.
//
// Where PyTorch's writes a bool as a number, this says that it is one.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_hparams.
func (w *SummaryWriter) AddHParams(hparams []HParam, metrics []train.Value, opts ...AddHParamsOptions) error {
	o := args.Option(opts)
	if o.RunName == "" {
		o.RunName = fmt.Sprintf("%.7f", float64(time.Now().UnixNano())/1e9)
	}
	if !local(o.RunName) {
		return w.refuse(valueError("AddHParams", "RunName is %q, which is no folder below another", o.RunName))
	}
	var experiment, start message
	for _, p := range hparams {
		value, kind, err := hparamValue(p.Value)
		if err != nil {
			return w.refuse(fmt.Errorf("hyperparameter %q: %w", p.Name, err))
		}
		info := message{}.text(1, p.Name).varint(4, kind)
		if p.Domain != nil {
			var list message
			for _, d := range p.Domain {
				v, k, err := hparamValue(d)
				if err == nil && k != kind {
					err = valueError("AddHParams", "its domain has %v, which is of another type", d)
				}
				if err != nil {
					return w.refuse(fmt.Errorf("hyperparameter %q: %w", p.Name, err))
				}
				list = list.bytes(1, v)
			}
			info = info.bytes(5, list)
		}
		experiment = experiment.bytes(4, info)
		start = start.bytes(1, message{}.text(1, p.Name).bytes(2, value))
	}
	for _, m := range metrics {
		experiment = experiment.bytes(5, message{}.bytes(1, message{}.text(2, m.Name)))
	}
	folder := filepath.Clean(o.RunName)
	for _, part := range []struct {
		tag     string
		content message
	}{
		{"_hparams_/experiment", message{}.bytes(2, experiment)},
		{"_hparams_/session_start_info", message{}.bytes(3, start)},
		{"_hparams_/session_end_info", message{}.bytes(4, message{}.varint(1, 1))},
	} {
		summary := summaryOf(part.tag, message{}.bytes(9, metadata("hparams", part.content)))
		if err := w.add(folder, o.GlobalStep, time.Time{}, message{}.bytes(5, summary)); err != nil {
			return err
		}
	}
	for _, m := range metrics {
		summary := scalarOf(m.Name, m.Value, AddScalarOptions{})
		if err := w.add(folder, o.GlobalStep, time.Time{}, message{}.bytes(5, summary)); err != nil {
			return err
		}
	}
	return w.closeBelow(folder)
}

// closeBelow closes the file of a folder below the writer's, to which nothing more comes.
func (w *SummaryWriter) closeBelow(folder string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.files[folder]
	if f == nil {
		return nil
	}
	delete(w.files, folder)
	return w.keep(f.Close())
}

// hparamValue is a Value of protobuf's, and its DataType.
func hparamValue(v any) (value message, kind int64, err error) {
	switch v := v.(type) {
	case string:
		return message{}.bytes(3, []byte(valid(v))), 1, nil
	case bool:
		n := uint64(0)
		if v {
			n = 1
		}
		return append(message{4 << 3}, byte(n)), 2, nil
	}
	var number float64
	if err := gotorch.Try0(func() { number = args.Float("tensorboard.SummaryWriter.AddHParams", "it", v, math.NaN()) }); err != nil {
		return nil, 0, err
	}
	if !args.Given(v) {
		return nil, 0, &gotorch.Error{Op: "tensorboard.SummaryWriter.AddHParams", Kind: gotorch.TypeError, Msg: "it is nil: leave it out"}
	}
	return message{}.double(2, number), 3, nil
}

// AddPRCurveOptions are the arguments of [SummaryWriter.AddPRCurve] that have defaults.
type AddPRCurveOptions struct {
	NumThresholds gotorch.Scalar // of the curve, 127 at most; default: 127
	Weights       gotorch.Tensor // how much each element counts; default: 1
	Walltime      time.Time      // when it was measured; default: now
}

// AddPRCurve adds a curve of precision and recall: labels are 0 and 1, and predictions their probabilities, in [0, 1],
// of the same number of elements. Other predictions are in no count.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_pr_curve.
func (w *SummaryWriter) AddPRCurve(tag string, labels, predictions gotorch.Tensor, globalStep int, opts ...AddPRCurveOptions) error {
	const op = "tensorboard.SummaryWriter.AddPRCurve"
	o := args.Option(opts)
	var curve PRCurve
	err := gotorch.Try0(func() {
		n := int(min(args.Int(op, "NumThresholds", o.NumThresholds, 127), 127))
		if n < 2 {
			panic(valueError("AddPRCurve", "NumThresholds must be 2 or more, but is %d", n))
		}
		truth, scores := read[float64](labels, gotorch.Float64), read[float64](predictions, gotorch.Float64)
		var weights []float64
		if given(o.Weights) {
			weights = read[float64](o.Weights, gotorch.Float64)
		}
		if len(truth) != len(scores) || weights != nil && len(weights) != len(scores) {
			panic(valueError("AddPRCurve", "there are %d labels, %d predictions and %d weights", len(truth), len(scores), len(weights)))
		}
		// The product is rounded as the predictions are, where they have 32 bits.
		if d := predictions.DType(); d == gotorch.Float32 || d == gotorch.Float16 || d == gotorch.BFloat16 {
			for i := range scores {
				scores[i] = float64(float32(scores[i]) * float32(n-1))
			}
		} else {
			for i := range scores {
				scores[i] *= float64(n - 1)
			}
		}
		curve = prCurve(truth, scores, weights, n)
	})
	if err != nil {
		return w.refuse(err)
	}
	return w.AddPRCurveRaw(tag, curve, globalStep, AddPRCurveRawOptions{Walltime: o.Walltime})
}

// prCurve makes a curve of scores from 0 to n-1.
func prCurve(truth, scores, weights []float64, n int) PRCurve {
	tp, fp := make([]float64, n), make([]float64, n)
	for i, s := range scores {
		at := math.Floor(s)
		if !(at >= 0 && at <= float64(n-1)) {
			continue
		}
		weight := 1.0
		if weights != nil {
			weight = weights[i]
		}
		tp[int(at)] += float64(truth[i] * weight)
		fp[int(at)] += float64((1 - truth[i]) * weight)
	}
	for i := n - 2; i >= 0; i-- {
		tp[i] += tp[i+1]
		fp[i] += fp[i+1]
	}
	c := PRCurve{TruePositives: tp, FalsePositives: fp}
	const least = 1e-7
	for i := range n {
		c.TrueNegatives = append(c.TrueNegatives, fp[0]-fp[i])
		c.FalseNegatives = append(c.FalseNegatives, tp[0]-tp[i])
		c.Precision = append(c.Precision, tp[i]/max(least, tp[i]+fp[i]))
		c.Recall = append(c.Recall, tp[i]/max(least, tp[0]))
	}
	return c
}

// PRCurve is a curve of precision and recall over thresholds, which ascend.
type PRCurve struct {
	TruePositives, FalsePositives, TrueNegatives, FalseNegatives []float64 // how many there are
	Precision, Recall                                            []float64
}

// AddPRCurveRawOptions are the arguments of [SummaryWriter.AddPRCurveRaw] that have defaults.
type AddPRCurveRawOptions struct {
	NumThresholds gotorch.Scalar // what is said to be their number, 127 at most; default: 127
	Walltime      time.Time      // when it was measured; default: now
}

// AddPRCurveRaw adds a curve of precision and recall that the program has made.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.
func (w *SummaryWriter) AddPRCurveRaw(tag string, c PRCurve, globalStep int, opts ...AddPRCurveRawOptions) error {
	o := args.Option(opts)
	n := len(c.TruePositives)
	var all []float32
	for _, row := range [][]float64{c.TruePositives, c.FalsePositives, c.TrueNegatives, c.FalseNegatives, c.Precision, c.Recall} {
		if len(row) != n || n == 0 {
			return w.refuse(valueError("AddPRCurveRaw", "the six lists must have the same length, and some elements"))
		}
		for _, v := range row {
			all = append(all, float32(v))
		}
	}
	thresholds := int64(min(127, n))
	if err := gotorch.Try0(func() {
		thresholds = min(127, args.Int("tensorboard.SummaryWriter.AddPRCurveRaw", "NumThresholds", o.NumThresholds, thresholds))
	}); err != nil {
		return w.refuse(err)
	}
	tensor := message{}.varint(1, dtFloat).bytes(2, shape(6, int64(n))).floats(5, all)
	return w.summary(globalStep, o.Walltime, tensorOf(tag, tensor, metadata("pr_curves", message{}.varint(2, thresholds))))
}

// Chart is a chart of [SummaryWriter.AddCustomScalars].
type Chart struct {
	Title  string
	Tags   []string // of numbers that are added by AddScalar
	Margin bool     // the three tags are a line, and the lower and upper bound of an area around it
}

// ChartCategory is some charts that belong together.
type ChartCategory struct {
	Title  string
	Charts []Chart
}

// AddCustomScalars says which charts TensorBoard makes of numbers, under "Custom scalars". One call for a writer counts.
// It returns an error if a chart with Margin has not three tags.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_custom_scalars.
func (w *SummaryWriter) AddCustomScalars(layout []ChartCategory) error {
	var m message
	for _, category := range layout {
		c := message{}.text(1, category.Title)
		for _, chart := range category.Charts {
			one := message{}.text(1, chart.Title)
			var tags message
			if chart.Margin {
				if len(chart.Tags) != 3 {
					return w.refuse(valueError("AddCustomScalars", "the chart %q has %d tags, where a margin has 3", chart.Title, len(chart.Tags)))
				}
				one = one.bytes(3, message{}.bytes(1, message{}.text(1, chart.Tags[0]).text(2, chart.Tags[1]).text(3, chart.Tags[2])))
			} else {
				for _, tag := range chart.Tags {
					tags = tags.bytes(1, []byte(valid(tag)))
				}
				one = one.bytes(2, tags)
			}
			c = c.bytes(2, one)
		}
		m = m.bytes(2, c)
	}
	tensor := message{}.varint(1, dtString).bytes(2, nil).bytes(8, m)
	return w.summary(0, time.Time{}, tensorOf("custom_scalars__config__", tensor, metadata("custom_scalars", nil)))
}

// AddCustomScalarsOptions are the arguments of [SummaryWriter.AddCustomScalarsMultilinechart] and
// [SummaryWriter.AddCustomScalarsMarginchart] that have defaults.
type AddCustomScalarsOptions struct {
	Category string // default: "default"
	Title    string // default: "untitled"
}

func (o AddCustomScalarsOptions) layout(margin bool, tags []string) []ChartCategory {
	if o.Category == "" {
		o.Category = "default"
	}
	if o.Title == "" {
		o.Title = "untitled"
	}
	return []ChartCategory{{o.Category, []Chart{{o.Title, tags, margin}}}}
}

// AddCustomScalarsMultilinechart is [SummaryWriter.AddCustomScalars] with one chart of several lines.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html.
func (w *SummaryWriter) AddCustomScalarsMultilinechart(tags []string, opts ...AddCustomScalarsOptions) error {
	return w.AddCustomScalars(args.Option(opts).layout(false, tags))
}

// AddCustomScalarsMarginchart is [SummaryWriter.AddCustomScalars] with one chart of a line and its bounds: three tags.
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html.
func (w *SummaryWriter) AddCustomScalarsMarginchart(tags []string, opts ...AddCustomScalarsOptions) error {
	return w.AddCustomScalars(args.Option(opts).layout(true, tags))
}

// AddMeshOptions are the arguments of [SummaryWriter.AddMesh] that have defaults.
type AddMeshOptions struct {
	Colors     gotorch.Tensor // (B, N, 3), from 0 to 255; default: none
	Faces      gotorch.Tensor // (B, F, 3), the numbers of the vertices of triangles; default: none
	ConfigDict string         // JSON of the scene of three.js; default: "{}"
	Walltime   time.Time      // when it was measured; default: now
}

// AddMesh adds meshes or clouds of points in space: vertices (B, N, 3).
//
// See https://docs.pytorch.org/docs/stable/tensorboard.html#torch.utils.tensorboard.writer.SummaryWriter.add_mesh.
func (w *SummaryWriter) AddMesh(tag string, vertices gotorch.Tensor, globalStep int, opts ...AddMeshOptions) error {
	o := args.Option(opts)
	if o.ConfigDict == "" {
		o.ConfigDict = "{}"
	}
	type part struct {
		kind int64
		name string
		t    gotorch.Tensor
	}
	var parts []part
	components := int64(0)
	for _, p := range []part{{1, "VERTEX", vertices}, {2, "FACE", o.Faces}, {3, "COLOR", o.Colors}} {
		if !given(p.t) {
			if p.kind == 1 {
				return w.refuse(valueError("AddMesh", "there are no vertices"))
			}
			continue
		}
		if s, err := gotorch.Try(p.t.Shape); err != nil {
			return w.refuse(err)
		} else if len(s) != 3 || s[2] != 3 {
			return w.refuse(valueError("AddMesh", "%s must be (B, N, 3), but is %v", strings.ToLower(p.name), s))
		}
		parts, components = append(parts, p), components|1<<p.kind
	}
	var summary message
	for _, p := range parts {
		numbers, err := gotorch.Try(func() []float32 { return read[float32](p.t, gotorch.Float32) })
		if err != nil {
			return w.refuse(err)
		}
		content := message{}.text(2, tag).varint(3, p.kind).text(5, o.ConfigDict).varints(6, p.t.Shape()).varint(7, components)
		tensor := message{}.varint(1, dtFloat).bytes(2, shape(p.t.Shape()...)).floats(5, numbers)
		summary = append(summary, tensorOf(tag+"_"+p.name, tensor, metadata("mesh", content))...)
	}
	return w.summary(globalStep, o.Walltime, summary)
}
