package metrics

import (
	"errors"
	"math"
	"slices"
	"sort"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Detections are what a model found in an image.
type Detections struct {
	Boxes  gotorch.Tensor // (N, 4), in the BoxFormat of the options
	Scores gotorch.Tensor // (N), how sure it is of each
	Labels gotorch.Tensor // (N), classes
}

// GroundTruth is what is in an image.
type GroundTruth struct {
	Boxes   gotorch.Tensor // (N, 4), in the BoxFormat of the options
	Labels  gotorch.Tensor // (N), classes
	IsCrowd gotorch.Tensor // (N), 1 where a box holds many: what is found in it is neither right nor wrong; may be left out
	Area    gotorch.Tensor // (N), which says what is small and large; 0 or left out: that of the box
}

// MeanAveragePrecisionOptions are the options of [MeanAveragePrecision].
type MeanAveragePrecisionOptions struct {
	BoxFormat              string    // two corners, or "xywh": a corner and the size, or "cxcywh": the centre and the size; default: "xyxy"
	IoUThresholds          []float64 // how much a box and one that is there must overlap: 0.5, 0.55, ... 0.95
	RecThresholds          []float64 // the recalls at which precision is taken: 0, 0.01, ... 1
	MaxDetectionThresholds []int64   // how many boxes of an image and class count at most, for MAR: 1, 10, 100
}

// DetectionResult is what [MeanAveragePrecision] computes. A number of which nothing is known, such as that of large
// boxes where there are none, is -1.
type DetectionResult struct {
	MAP, MAP50, MAP75             float64   // over all IoU thresholds, and at 0.5 and 0.75
	MAPSmall, MAPMedium, MAPLarge float64   // of boxes of less than 32², of up to 96², and of more pixels
	MAR                           []float64 // mean recall with at most so many boxes, by MaxDetectionThresholds
	MARSmall, MARMedium, MARLarge float64
	Classes                       []int64   // all classes that were seen, in order
	MAPPerClass, MARPerClass      []float64 // of each of them, with the most boxes
}

// DetectionMetric measures boxes.
type DetectionMetric struct {
	base
	format          string
	ious, recalls   []float64
	most            []int64
	found, there    []float64 // rows of x, y, w, h, score, label, and of x, y, w, h, area, crowd, label
	nFound, nThere  []int64   // how many rows each image has
	columns, wanted int
}

// MeanAveragePrecision measures detection by COCO's definition: precision over recall, over classes, and over how much
// boxes must overlap. Everything is kept until Compute: ten numbers or so for each box.
//
// See https://lightning.ai/docs/torchmetrics/stable/detection/mean_average_precision.html.
func MeanAveragePrecision(opts ...MeanAveragePrecisionOptions) *DetectionMetric {
	opt := args.Option(opts)
	m := &DetectionMetric{base: base{name: "MeanAveragePrecision"}, format: opt.BoxFormat, ious: slices.Clone(opt.IoUThresholds),
		recalls: slices.Clone(opt.RecThresholds), most: slices.Sorted(slices.Values(opt.MaxDetectionThresholds)), columns: 6, wanted: 7}
	switch m.format {
	case "", "xyxy", "xywh", "cxcywh":
	default:
		panic(m.valueError("BoxFormat should be \"xyxy\", \"xywh\" or \"cxcywh\", and is %q", m.format))
	}
	if len(m.ious) == 0 {
		m.ious = spread(0.5, 0.95, 10)
	}
	if len(m.recalls) == 0 {
		m.recalls = spread(0, 1, 101)
	}
	if len(m.most) == 0 {
		m.most = []int64{1, 10, 100}
	}
	for _, v := range slices.Concat(m.ious, m.recalls) {
		if !(v >= 0 && v <= 1) {
			panic(m.valueError("IoUThresholds and RecThresholds should be from 0 to 1, and one is %v", v))
		}
	}
	if m.most[0] < 1 {
		panic(m.valueError("MaxDetectionThresholds should be positive, and one is %d", m.most[0]))
	}
	m.floats("detections", &m.found, m.columns)
	m.floats("groundtruths", &m.there, m.wanted)
	m.ints("detection_counts", &m.nFound, 1)
	m.ints("groundtruth_counts", &m.nThere, 1)
	m.check = m.consistent
	return m
}

// spread has n numbers from first to last, rounded as numpy.linspace rounds them.
func spread(first, last float64, n int) []float64 {
	values := make([]float64, n)
	step := (last - first) / float64(n-1)
	for i := range values {
		values[i] = float64(float64(i)*step) + first
	}
	values[n-1] = last
	return values
}

func (m *DetectionMetric) consistent() error {
	if len(m.nFound) != len(m.nThere) {
		return errLengths
	}
	for _, of := range []struct {
		counts []int64
		rows   int
	}{{m.nFound, len(m.found) / m.columns}, {m.nThere, len(m.there) / m.wanted}} {
		left := int64(of.rows)
		for _, n := range of.counts {
			if n < 0 || n > left {
				return errors.New("its images have other numbers of boxes than there are")
			}
			left -= n
		}
		if left != 0 {
			return errors.New("its images have other numbers of boxes than there are")
		}
	}
	return nil
}

// Update adds images: what was found in each, and what is there.
func (m *DetectionMetric) Update(preds []Detections, target []GroundTruth) {
	if len(preds) != len(target) {
		panic(m.valueError("there should be as many images with detections as with ground truth, and are %d and %d", len(preds), len(target)))
	}
	var found, there []float64
	var nFound, nThere []int64
	m.reading(nil, func() {
		for i, p := range preds {
			boxes := m.boxes("detections", i, p.Boxes)
			scores := m.list("Scores", i, p.Scores, len(boxes), true)
			labels := m.list("Labels", i, p.Labels, len(boxes), true)
			for j, b := range boxes {
				found = append(found, b[0], b[1], b[2], b[3], scores[j], labels[j])
			}
			t := target[i]
			wanted := m.boxes("ground truth", i, t.Boxes)
			crowd, area := m.list("IsCrowd", i, t.IsCrowd, len(wanted), false), m.list("Area", i, t.Area, len(wanted), false)
			labels = m.list("Labels", i, t.Labels, len(wanted), true)
			for j, b := range wanted {
				a := area[j]
				if !(a > 0) {
					a = float64(b[2] * b[3])
				}
				there = append(there, b[0], b[1], b[2], b[3], a, crowd[j], labels[j])
			}
			nFound, nThere = append(nFound, int64(len(boxes))), append(nThere, int64(len(wanted)))
		}
	})
	m.found, m.there = append(m.found, found...), append(m.there, there...)
	m.nFound, m.nThere = append(m.nFound, nFound...), append(m.nThere, nThere...)
}

// boxes reads boxes as a corner and the size.
func (m *DetectionMetric) boxes(what string, image int, t gotorch.Tensor) [][4]float64 {
	if !t.Defined() {
		panic(m.valueError("the %s of image %d have no Boxes", what, image))
	}
	shape := t.Shape()
	if len(shape) == 1 && shape[0] == 0 {
		return nil
	}
	if len(shape) != 2 || shape[1] != 4 {
		panic(m.valueError("the Boxes of the %s of image %d should have the shape (N, 4), and have %v", what, image, shape))
	}
	values := gotorch.ToSlice[float64](t)
	boxes := make([][4]float64, shape[0])
	for i := range boxes {
		a, b, c, d := values[4*i], values[4*i+1], values[4*i+2], values[4*i+3]
		switch m.format {
		case "xywh":
			boxes[i] = [4]float64{a, b, c, d}
		case "cxcywh":
			boxes[i] = [4]float64{a - c/2, b - d/2, c, d}
		default:
			boxes[i] = [4]float64{a, b, c - a, d - b}
		}
	}
	return boxes
}

func (m *DetectionMetric) list(what string, image int, t gotorch.Tensor, n int, needed bool) []float64 {
	if !t.Defined() {
		if needed {
			panic(m.valueError("image %d has no %s", image, what))
		}
		return make([]float64, n)
	}
	if t.Dim() != 1 || t.Size(0) != int64(n) {
		panic(m.valueError("the %s of image %d should be a list of %d, one for each box, and have the shape %v", what, image, n, t.Shape()))
	}
	return gotorch.ToSlice[float64](t)
}

// judged is what became of the detections of an image and class, for boxes of some sizes.
type judged struct {
	scores []float64
	hit    [][]bool // by IoU threshold: whether it is something that is there
	skip   [][]bool // and whether it counts neither way
	wanted int      // how many are there that count
}

// overlap is intersection over union; with a crowd, over the area of what was found.
func overlap(a, b []float64, crowd bool) float64 {
	w := min(a[0]+a[2], b[0]+b[2]) - max(a[0], b[0])
	h := min(a[1]+a[3], b[1]+b[3]) - max(a[1], b[1])
	if w <= 0 || h <= 0 {
		return 0
	}
	both, all := float64(w*h), float64(a[2]*a[3])
	if !crowd {
		all = all + float64(b[2]*b[3]) - both
	}
	return both / all
}

// judge matches what was found, best first, with what is there, of areas from low to high.
func (m *DetectionMetric) judge(found, there [][]float64, low, high float64) judged {
	outside := func(area float64) bool { return area < low || area > high }
	order := slices.Clone(found)
	sort.SliceStable(order, func(i, j int) bool { return order[i][4] > order[j][4] })
	order = order[:min(len(order), int(m.most[len(m.most)-1]))]
	skips := func(b []float64) bool { return b[5] != 0 || outside(b[4]) }
	targets := slices.Clone(there)
	sort.SliceStable(targets, func(i, j int) bool { return !skips(targets[i]) && skips(targets[j]) })
	j := judged{}
	for _, t := range targets {
		if !skips(t) {
			j.wanted++
		}
	}
	overlaps := make([][]float64, len(order))
	for d, f := range order {
		j.scores = append(j.scores, f[4])
		overlaps[d] = make([]float64, len(targets))
		for g, t := range targets {
			overlaps[d][g] = overlap(f, t, t[5] != 0)
		}
	}
	for _, threshold := range m.ious {
		taken := make([]bool, len(targets))
		hit, skip := make([]bool, len(order)), make([]bool, len(order))
		for d, f := range order {
			best, at := min(threshold, 1-1e-10), -1
			for g, t := range targets {
				if taken[g] && t[5] == 0 {
					continue
				}
				if at >= 0 && !skips(targets[at]) && skips(t) {
					break // one that counts is better than any that does not
				}
				if overlaps[d][g] >= best {
					best, at = overlaps[d][g], g
				}
			}
			if at < 0 {
				skip[d] = outside(float64(f[2] * f[3]))
				continue
			}
			hit[d], skip[d], taken[at] = true, skips(targets[at]), true
		}
		j.hit, j.skip = append(j.hit, hit), append(j.skip, skip)
	}
	return j
}

// curve is precision at each recall, and the last recall, at one IoU threshold; nil where nothing is there.
func (m *DetectionMetric) curve(images []judged, threshold int, most int64) (precisions []float64, recall float64) {
	type one struct {
		score     float64
		hit, skip bool
	}
	var all []one
	wanted := 0
	for _, j := range images {
		wanted += j.wanted
		for d := range j.scores[:min(len(j.scores), int(most))] {
			all = append(all, one{j.scores[d], j.hit[threshold][d], j.skip[threshold][d]})
		}
	}
	if wanted == 0 {
		return nil, -1
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].score > all[j].score })
	var right, wrong float64
	recalls, values := make([]float64, len(all)), make([]float64, len(all))
	for i, d := range all {
		if !d.skip && d.hit {
			right++
		} else if !d.skip {
			wrong++
		}
		recalls[i], values[i] = right/float64(wanted), right/(right+wrong+0x1p-52)
	}
	for i := len(values) - 1; i > 0; i-- {
		values[i-1] = max(values[i-1], values[i])
	}
	precisions = make([]float64, len(m.recalls))
	for r, wanted := range m.recalls {
		if at := sort.SearchFloat64s(recalls, wanted); at < len(values) {
			precisions[r] = values[at]
		}
	}
	if len(recalls) > 0 {
		recall = recalls[len(recalls)-1]
	}
	return precisions, recall
}

// Compute returns what COCO's evaluation prints, and the numbers of each class.
func (m *DetectionMetric) Compute() DetectionResult {
	classes := map[float64]bool{}
	split := func(rows []float64, counts []int64, columns int) []map[float64][][]float64 {
		images := make([]map[float64][][]float64, len(counts))
		for i, n := range counts {
			images[i] = map[float64][][]float64{}
			for range n {
				row := rows[:columns]
				rows = rows[columns:]
				label := row[columns-1]
				classes[label] = true
				images[i][label] = append(images[i][label], row)
			}
		}
		return images
	}
	found, there := split(m.found, m.nFound, m.columns), split(m.there, m.nThere, m.wanted)
	names := make([]float64, 0, len(classes))
	for c := range classes {
		names = append(names, c)
	}
	slices.Sort(names)

	var r DetectionResult
	most := m.most[len(m.most)-1]
	areas := [][2]float64{{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}}
	var maps, mars [4]average
	var at50, at75 average
	limits := make([]average, len(m.most))
	for _, name := range names {
		r.Classes = append(r.Classes, int64(name))
		for a, area := range areas {
			var images []judged
			for i := range found {
				if f, t := found[i][name], there[i][name]; len(f)+len(t) > 0 {
					images = append(images, m.judge(f, t, area[0], area[1]))
				}
			}
			var mine, recalls average
			for t, threshold := range m.ious {
				precisions, recall := m.curve(images, t, most)
				mine.add(precisions...)
				if precisions == nil {
					continue
				}
				recalls.add(recall)
				maps[a].add(precisions...)
				mars[a].add(recall)
				if a > 0 {
					continue
				}
				switch threshold {
				case 0.5:
					at50.add(precisions...)
				case 0.75:
					at75.add(precisions...)
				}
				for i, n := range m.most {
					_, recall := m.curve(images, t, n)
					limits[i].add(recall)
				}
			}
			if a == 0 {
				r.MAPPerClass, r.MARPerClass = append(r.MAPPerClass, mine.value()), append(r.MARPerClass, recalls.value())
			}
		}
	}
	r.MAP, r.MAPSmall, r.MAPMedium, r.MAPLarge = maps[0].value(), maps[1].value(), maps[2].value(), maps[3].value()
	r.MARSmall, r.MARMedium, r.MARLarge = mars[1].value(), mars[2].value(), mars[3].value()
	r.MAP50, r.MAP75 = at50.value(), at75.value()
	for _, l := range limits {
		r.MAR = append(r.MAR, l.value())
	}
	return r
}

// average is a mean, or -1 of nothing.
type average struct{ total, n float64 }

func (a *average) add(values ...float64) {
	a.total += sum(values)
	a.n += float64(len(values))
}

func (a average) value() float64 {
	if a.n == 0 {
		return -1
	}
	return a.total / math.Max(a.n, 1)
}
