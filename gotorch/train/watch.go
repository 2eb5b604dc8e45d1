package train

import (
	"errors"
	"math"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// WatchOptions are the arguments of [LoopOf.Watch] that have defaults.
type WatchOptions struct {
	Every       gotorch.Scalar // look every so many steps; default: 100
	NoGradients bool           // leave out gradients
	NoWeights   bool           // leave out parameters
	NoUpdates   bool           // leave out by how much parameters change
	Histograms  bool           // give parameters and gradients to logs that make histograms, too
}

// Watch has the logs of [LoopOf.Log] get numbers of each parameter that is trained, whatever their Every is:
//
//	gradient/NAME/norm, /min, /max   of its gradient, as it is before it is clipped
//	weight/NAME/norm, /min, /max     of itself, after the step
//	update/NAME/ratio                the norm of its change by the step, as a part of its norm before
//	gradient/norm, weight/norm, update/ratio   of all together
//
// An update ratio of about 1e-3 is usual; one far above says that the learning rate is high. A norm is of the elements
// as one vector. Of a loop by [NewStepLoop], gradients are those that are left after the step. While it accumulates,
// gradients are those so far. Every look waits for a device that works by itself, and keeps a copy of the parameters for
// the step. With Histograms, a parameter without a finite element has none.
//
// It panics with a ValueError if Every is not positive.
func (l *LoopOf[B]) Watch(opts ...WatchOptions) {
	const op = "train.LoopOf.Watch"
	o := args.Option(opts)
	every := args.Int(op, "Every", o.Every, 100)
	if every < 1 {
		panic(args.ValueError(op, "Every must be positive, but is %d", every))
	}
	l.watches = append(l.watches, watch{int(every), o})
}

type watch struct {
	every int
	WatchOptions
}

// snapshot is a parameter before a step.
type snapshot struct {
	name  string
	value gotorch.Tensor // a copy
}

// looks returns what is to be looked at in a step.
func (r *run[B]) looks(number int) (gradients, weights, updates, histograms bool) {
	if !r.watching || r.ranks.follows() && !r.foldered { // of sharded models all ranks look, as each has a part
		return
	}
	for _, w := range r.watches {
		if number%w.every == 0 {
			gradients, weights, updates = gradients || !w.NoGradients, weights || !w.NoWeights, updates || !w.NoUpdates
			histograms = histograms || w.Histograms
		}
	}
	return
}

// trained returns the parameters that are trained, by their names. whole makes of a tensor that is like one, of which this rank may have
// a part, the whole.
func (r *run[B]) trained(visit func(name string, p gotorch.Tensor, whole func(gotorch.Tensor) gotorch.Tensor)) {
	models := 0
	for _, p := range r.parts {
		if _, is := p.value.(nn.Modular); is && p.trains {
			models++
		}
	}
	for _, part := range r.parts {
		model, is := part.value.(nn.Modular)
		if !is || !part.trains {
			continue
		}
		prefix := ""
		if models > 1 {
			prefix = part.name + "."
		}
		shards, names := shardsOf(model)
		for name, p := range model.NamedParameters() {
			whole := func(t gotorch.Tensor) gotorch.Tensor { return t }
			if shard, is := shards[name]; is {
				whole = func(t gotorch.Tensor) gotorch.Tensor { return r.wholeOf(t, shard) }
				name = names[name]
			}
			if p.Defined() && p.RequiresGrad() && p.Device().Type() != gotorch.DeviceTypeMeta {
				visit(prefix+name, p, whole)
			}
		}
	}
}

// watchBefore copies the parameters, where the change of them is asked for.
func (r *run[B]) watchBefore() {
	if _, _, updates, _ := r.looks(r.step.Number + 1); updates {
		gotorch.Unscoped(func() {
			r.trained(func(name string, p gotorch.Tensor, _ func(gotorch.Tensor) gotorch.Tensor) {
				r.before = append(r.before, snapshot{name, p.Detach().Clone()})
			})
		})
	}
}

// forgetBefore frees the copies.
func (r *run[B]) forgetBefore() {
	for _, s := range r.before {
		s.value.Close()
	}
	r.before = nil
}

// watchGradients looks at gradients before they are clipped. It is called in each evaluation of a step; the last counts.
func (r *run[B]) watchGradients() {
	r.watched = r.watched[:0]
	gradients, _, _, histograms := r.looks(r.step.Number)
	if !gradients {
		return
	}
	var all figures
	gotorch.NoGrad(func() {
		r.trained(func(name string, p gotorch.Tensor, whole func(gotorch.Tensor) gotorch.Tensor) {
			if g := p.Grad(); g.Defined() {
				g = whole(g)
				all.add(name, g)
				if histograms {
					r.histogram("gradient/"+name, g)
				}
			}
		})
		r.watched = append(r.watched, all.values("gradient")...)
	})
}

// histogram gives elements to the logs, without those that are not finite. logSteps returns its error.
func (r *run[B]) histogram(name string, t gotorch.Tensor) {
	t = real(t).Flatten()
	if t = t.MaskedSelect(t.IsFinite()); t.Numel() > 0 {
		if err := r.logHistogram(r.step.Number, name, t); err != nil {
			r.logFailed = errors.Join(r.logFailed, err)
		}
	}
}

// watchAfter looks at the parameters after a step.
func (r *run[B]) watchAfter() {
	gradients, weights, updates, histograms := r.looks(r.step.Number)
	if !gradients && !weights && !updates {
		return
	}
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		gotorch.NoGrad(func() {
			if gradients && r.LoopOf.step != nil {
				r.watchGradients()
			}
			type trained struct {
				p     gotorch.Tensor
				whole func(gotorch.Tensor) gotorch.Tensor
			}
			now := map[string]trained{}
			var all figures
			r.trained(func(name string, p gotorch.Tensor, whole func(gotorch.Tensor) gotorch.Tensor) {
				now[name] = trained{p, whole}
				if weights {
					w := whole(p)
					all.add(name, w)
					if histograms {
						r.histogram("weight/"+name, w)
					}
				}
			})
			if weights {
				r.watched = append(r.watched, all.values("weight")...)
			}
			if !updates || !r.step.Updated {
				return
			}
			var changes, were figures
			for _, s := range r.before {
				if of, is := now[s.name]; is && of.p.IsSameSize(s.value) {
					changes.add(s.name, of.whole(of.p.Detach().Sub(s.value)))
					were.add(s.name, of.whole(s.value))
				}
			}
			r.watched = append(r.watched, changes.ratios(&were)...)
		})
	})
}

// figures are numbers of tensors, read all at once.
type figures struct {
	names   []string
	numbers []gotorch.Tensor // of each: norm, minimum, maximum
}

// real returns the elements of a tensor as numbers that have an order: of a sparse one those that are there, of complex
// ones the absolute values.
func real(t gotorch.Tensor) gotorch.Tensor {
	t = t.Detach()
	if t.Layout() == gotorch.SparseCOO {
		t = t.Coalesce().Values()
	}
	if t.DType().IsComplex() {
		t = t.Abs()
	}
	return t
}

func (f *figures) add(name string, t gotorch.Tensor) {
	if t = real(t); t.Numel() == 0 {
		return
	}
	t = t.To(gotorch.Float64)
	f.names = append(f.names, name)
	f.numbers = append(f.numbers, gotorch.Stack([]gotorch.Tensor{t.Norm(), t.Min(), t.Max()}).To(gotorch.CPU))
}

func (f *figures) read() []float64 {
	if len(f.numbers) == 0 {
		return nil
	}
	return gotorch.ToSlice[float64](gotorch.Cat(f.numbers))
}

func (f *figures) values(kind string) (values []Value) {
	numbers := f.read()
	if numbers == nil {
		return nil
	}
	squares := 0.0
	for i, name := range f.names {
		n := numbers[3*i:]
		squares += float64(n[0] * n[0])
		values = append(values, Value{kind + "/" + name + "/norm", n[0]}, Value{kind + "/" + name + "/min", n[1]}, Value{kind + "/" + name + "/max", n[2]})
	}
	return append(values, Value{kind + "/norm", math.Sqrt(squares)})
}

// ratios returns the norms of f as parts of those of others.
func (f *figures) ratios(others *figures) (values []Value) {
	of, to := f.read(), others.read()
	if of == nil {
		return nil
	}
	var squares [2]float64
	for i, name := range f.names {
		squares[0] += float64(of[3*i] * of[3*i])
		squares[1] += float64(to[3*i] * to[3*i])
		values = append(values, Value{"update/" + name + "/ratio", of[3*i] / to[3*i]})
	}
	return append(values, Value{"update/ratio", math.Sqrt(squares[0] / squares[1])})
}
