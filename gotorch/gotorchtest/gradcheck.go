package gotorchtest

import (
	"fmt"
	"math"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/functorch"
	"gotorch.dev/gotorch/internal/args"
)

// GradCheckOptions are the arguments of [GradCheck] that have defaults.
type GradCheckOptions struct {
	// Eps is by how much each number of an input is moved, up and down. Default: 1e-6.
	Eps gotorch.Scalar
	// ATol and RTol are what two Jacobians may differ by: |analytical - numerical| <= ATol + RTol·|numerical|.
	ATol gotorch.Scalar // default: 1e-5
	RTol gotorch.Scalar // default: 1e-3
	// NondetTol is what two backward passes of the same may differ by. Default: 0.
	NondetTol float64
	// NoCheckUndefinedGrad leaves out to check that gradients that are none count as zeros.
	NoCheckUndefinedGrad bool
	// CheckGradDTypes checks that gradients have the dtypes of what they are of.
	CheckGradDTypes bool
	// CheckBatchedGrad checks that a [functorch.VMap] of the backward pass gives what a pass for each gives.
	CheckBatchedGrad bool
	// CheckBatchedForwardGrad checks the same of forward mode.
	CheckBatchedForwardGrad bool
	// CheckForwardAD checks forward mode, as [functorch.JVP] computes it, besides backward mode.
	CheckForwardAD bool
	// NoCheckBackwardAD leaves out backward mode, and all checks that need it.
	NoCheckBackwardAD bool
	// FastMode compares one random product with the Jacobian instead of all of it: two calls of the function for
	// each input, where otherwise it is two for each number.
	FastMode bool
}

// GradGradCheckOptions are the arguments of [GradGradCheck] that have defaults. Those that [GradCheckOptions]
// has too mean the same, of the gradient.
type GradGradCheckOptions struct {
	// GradOutputs are the gradients of those results that have one. Default: random numbers from -1 to 1 that
	// require grad.
	GradOutputs []gotorch.Tensor
	// Eps is by how much each number is moved. Default: 1e-6.
	Eps gotorch.Scalar
	// ATol and RTol are what two Jacobians may differ by.
	ATol gotorch.Scalar // default: 1e-5
	RTol gotorch.Scalar // default: 1e-3
	// GenNonContigGradOutputs makes random GradOutputs that are not contiguous.
	GenNonContigGradOutputs bool
	// NondetTol is what two backward passes of the same may differ by. Default: 0.
	NondetTol float64
	// NoCheckUndefinedGrad leaves out to check that gradients that are none count as zeros.
	NoCheckUndefinedGrad bool
	// CheckGradDTypes checks that gradients have the dtypes of what they are of.
	CheckGradDTypes bool
	// CheckBatchedGrad checks that a [functorch.VMap] of the backward pass gives what a pass for each gives.
	CheckBatchedGrad bool
	// CheckFwdOverRev checks forward mode of the gradient.
	CheckFwdOverRev bool
	// NoCheckRevOverRev leaves out backward mode of the gradient; NoCheckUndefinedGrad must be given with it.
	NoCheckRevOverRev bool
	// FastMode compares one random product with the Jacobian instead of all of it.
	FastMode bool
}

// GradCheckError is what [GradCheck] has found: a gradient that is wrong.
type GradCheckError struct {
	// Msg says what was expected and what came.
	Msg string
	// Output and Input are the places of the result and of the argument whose Jacobian is wrong, among all
	// that the function returns and takes; -1 where the fault is of no single one.
	Output, Input int
	// Forward says that forward mode is wrong, not backward mode.
	Forward bool
	// Numerical and Analytical are the Jacobians, with a row for each number of the input and a column for each
	// of the output; none where the fault is another. They are left to the collector.
	Numerical, Analytical gotorch.Tensor
	// Difference is the greatest absolute difference between the two; NaN if there is one in them.
	Difference float64
}

// Error returns Msg.
func (e *GradCheckError) Error() string { return e.Msg }

// GradCheck compares the gradients that f has with what small changes of its arguments do to its results, and
// returns a *[GradCheckError] that says what differs, or nil where nothing does:
//
//	x := gotorch.Randn([]int64{3, 4}, gotorch.TensorOptions{DType: gotorch.Float64, RequiresGrad: true})
//	if err := gotorchtest.GradCheck(f, []gotorch.Tensor{x}); err != nil {
//		t.Fatal(err)
//	}
//
// Checked are the Jacobians of all results with respect to all inputs that require grad, which must be of dtype
// Float64 or Complex128, or differences are lost in rounding; that two backward passes give the same bits; that a gradient
// of zeros gives zeros, and so does one that is none. Where there are complex numbers, the real and the imaginary
// parts of results are checked one after the other, and gradients are PyTorch's, of the conjugate.
//
// f is called many times, and must compute the same each time. The memory of inputs is changed while they are
// checked, and has its numbers again when GradCheck returns, also when f panics; inputs without a tensor are
// given to f as they are. Where f is not differentiable, such as [gotorch.ReLU] at 0, there is nothing to compare,
// and the check fails.
//
// It panics with a ValueError if no input requires grad, or one is not dense, or a result is not; with a
// RuntimeError if a dimension of an input has stride 0; with a ValueError if options do not go together; and
// with what f panics with. An op without forward mode is a NotImplementedError under CheckForwardAD.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradcheck.html.
func GradCheck(f func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs []gotorch.Tensor, opts ...GradCheckOptions) error {
	const op = "gotorchtest.GradCheck"
	opt := args.Option(opts)
	if f == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "argument 'f' is nil, where a function is required"})
	}
	for _, wrong := range []struct {
		is  bool
		msg string
	}{
		{opt.NoCheckBackwardAD && !opt.CheckForwardAD, "NoCheckBackwardAD without CheckForwardAD leaves nothing to check"},
		{opt.CheckBatchedGrad && opt.NoCheckBackwardAD, "CheckBatchedGrad needs backward mode, and cannot go with NoCheckBackwardAD"},
		{opt.CheckBatchedForwardGrad && !opt.CheckForwardAD, "CheckBatchedForwardGrad needs CheckForwardAD"},
	} {
		if wrong.is {
			panic(args.ValueError(op, "%s", wrong.msg))
		}
	}
	c := newChecker(op, f, inputs, opt.Eps, opt.ATol, opt.RTol, opt.NondetTol)
	c.dtypes, c.fast = opt.CheckGradDTypes, opt.FastMode
	return c.run(opt)
}

// GradGradCheck is [GradCheck] of the gradient of f: it compares second derivatives, with respect to the inputs
// and to the gradients of the results that the first ones are computed from. f must have a gradient that can be
// differentiated, and its results, or GradOutputs, must be of double precision too.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradgradcheck.html.
func GradGradCheck(f func(inputs []gotorch.Tensor) []gotorch.Tensor, inputs []gotorch.Tensor, opts ...GradGradCheckOptions) error {
	const op = "gotorchtest.GradGradCheck"
	opt := args.Option(opts)
	if f == nil {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "argument 'f' is nil, where a function is required"})
	}
	for _, wrong := range []struct {
		is  bool
		msg string
	}{
		{opt.NoCheckRevOverRev && !opt.CheckFwdOverRev, "NoCheckRevOverRev without CheckFwdOverRev leaves nothing to check"},
		{opt.NoCheckRevOverRev && !opt.NoCheckUndefinedGrad, "NoCheckRevOverRev needs NoCheckUndefinedGrad, as gradients that are none are those of backward mode"},
		{opt.NoCheckRevOverRev && opt.CheckBatchedGrad, "CheckBatchedGrad needs backward mode, and cannot go with NoCheckRevOverRev"},
	} {
		if wrong.is {
			panic(args.ValueError(op, "%s", wrong.msg))
		}
	}
	return keepError(func() *GradCheckError {
		newChecker(op, f, inputs, nil, nil, nil, 0) // what is wrong with the inputs is said before f is called
		var places []int                            // of the results that have a gradient
		with := slices.Clone(opt.GradOutputs)
		for i, y := range checkedCall(op, f, inputs) {
			if y.RequiresGrad() {
				places = append(places, i)
				if opt.GradOutputs == nil {
					with = append(with, randomGradient(y, opt.GenNonContigGradOutputs))
				}
			}
		}
		if len(with) != len(places) {
			panic(args.ValueError(op, "GradOutputs has %d tensors, and %d results of f have a gradient", len(with), len(places)))
		}
		wrt := requiringGrad(inputs)
		n := len(inputs)
		var used []int // of wrt, what there is a gradient of
		gradient := func(all []gotorch.Tensor) []gotorch.Tensor {
			outputs := pick(f(all[:n:n]), places)
			grads := gotorch.Grad(outputs, pick(all, wrt), gotorch.GradOptions{GradOutputs: all[n:], CreateGraph: true, AllowUnused: true})
			used = used[:0]
			var found []gotorch.Tensor
			for i, g := range grads {
				if g.T != nil {
					used, found = append(used, i), append(found, g)
				}
			}
			return found
		}
		if len(places) == 0 {
			gradient = func([]gotorch.Tensor) []gotorch.Tensor { return nil }
		}
		c := newChecker(op, gradient, append(slices.Clone(inputs), with...), opt.Eps, opt.ATol, opt.RTol, opt.NondetTol)
		c.dtypes, c.fast = opt.CheckGradDTypes, opt.FastMode
		// Autograd of a tensor within forward mode is the transform's, not the graph's.
		c.forward = func(all []gotorch.Tensor) []gotorch.Tensor {
			if len(places) == 0 || len(used) == 0 {
				return nil
			}
			_, vjp := functorch.VJP(func(xs []gotorch.Tensor) []gotorch.Tensor {
				return pick(f(replaceAt(all[:n], wrt, xs)), places)
			}, pick(all, wrt))
			return pick(vjp(all[n:]), used)
		}
		return c.check(GradCheckOptions{
			NoCheckUndefinedGrad: opt.NoCheckUndefinedGrad, CheckBatchedGrad: opt.CheckBatchedGrad,
			CheckForwardAD: opt.CheckFwdOverRev, NoCheckBackwardAD: opt.NoCheckRevOverRev,
		})
	})
}

func randomGradient(y gotorch.Tensor, spread bool) gotorch.Tensor {
	shape := y.Shape()
	stretched := slices.Clone(shape)
	if spread && len(shape) > 0 {
		stretched[len(shape)-1] *= 2
	}
	var g gotorch.Tensor
	gotorch.NoGrad(func() {
		g = y.Detach().NewZeros(stretched)
		numbers := g
		if g.IsComplex() {
			numbers = gotorch.ViewAsReal(g)
		}
		numbers.Uniform_(gotorch.UniformOptions{From: -1, To: new(1.0)})
		if spread && len(shape) > 0 {
			g = g.Index(gotorch.Ellipsis, gotorch.SliceStep(2))
		}
	})
	return g.RequiresGrad_()
}

type function = func([]gotorch.Tensor) []gotorch.Tensor

// checker is a check of one function with all that does not change on the way.
type checker struct {
	op      string
	f       function
	forward function // f as it is differentiated in forward mode
	inputs  []gotorch.Tensor
	wrt     []int // the inputs that require grad

	eps, atol, rtol, nondet float64
	dtypes, fast            bool

	part string // "real" or "imaginary", where only that part is looked at
}

func newChecker(op string, f function, inputs []gotorch.Tensor, eps, atol, rtol gotorch.Scalar, nondet float64) *checker {
	c := &checker{op: op, f: f, forward: f, inputs: slices.Clone(inputs), wrt: requiringGrad(inputs),
		eps: args.Float(op, "Eps", eps, 1e-6), atol: args.Float(op, "ATol", atol, 1e-5), rtol: args.Float(op, "RTol", rtol, 1e-3), nondet: nondet}
	for name, v := range map[string]float64{"Eps": c.eps, "ATol": c.atol, "RTol": c.rtol, "NondetTol": c.nondet} {
		if !(v >= 0) || name == "Eps" && (v == 0 || math.IsInf(v, 1)) {
			panic(args.ValueError(op, "%s is %v, which is no distance", name, v))
		}
	}
	if len(c.wrt) == 0 {
		panic(args.ValueError(op, "at least one input must require grad, and none does: give it TensorOptions{RequiresGrad: true}, or call RequiresGrad_"))
	}
	for _, i := range c.wrt {
		x := inputs[i]
		if x.Layout() != gotorch.Strided {
			panic(args.ValueError(op, "inputs[%d] is %v, and only dense tensors can be checked: make it of a dense input within f", i, x.Layout()))
		}
		shape := x.Shape()
		for d, stride := range x.Strides() {
			if stride == 0 && shape[d] > 1 {
				panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(
					"dimension %d of inputs[%d] has stride 0, so that its elements cannot be moved one by one: call Contiguous on it first", d, i)})
			}
		}
	}
	return c
}

func requiringGrad(ts []gotorch.Tensor) (places []int) {
	for i, t := range ts {
		if t.T != nil && t.RequiresGrad() {
			places = append(places, i)
		}
	}
	return places
}

func pick(ts []gotorch.Tensor, places []int) []gotorch.Tensor {
	picked := make([]gotorch.Tensor, len(places))
	for i, p := range places {
		picked[i] = ts[p]
	}
	return picked
}

func replaceAt(ts []gotorch.Tensor, places []int, with []gotorch.Tensor) []gotorch.Tensor {
	replaced := slices.Clone(ts)
	for i, p := range places {
		replaced[p] = with[i]
	}
	return replaced
}

func differentiable(t gotorch.Tensor) bool { return t.IsFloatingPoint() || t.IsComplex() }

// checkedCall calls f, and looks at what it returns.
func checkedCall(op string, f function, inputs []gotorch.Tensor) []gotorch.Tensor {
	outputs := f(slices.Clone(inputs))
	for i, y := range outputs {
		if y.T == nil {
			panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: fmt.Sprintf("result %d of f is no tensor", i)})
		}
		if y.Layout() != gotorch.Strided {
			panic(args.ValueError(op, "result %d of f is %v, and only dense tensors can be checked: call ToDense on it within f", i, y.Layout()))
		}
	}
	return outputs
}

// keepError runs a check in a scope, out of which nothing goes but the error's tensors.
func keepError(check func() *GradCheckError) error {
	var found *GradCheckError
	gotorch.Scope0(func(s *gotorch.ScopeHandle) {
		if found = check(); found == nil || found.Numerical.T == nil {
			return
		}
		gotorch.Unscoped(func() {
			gotorch.NoGrad(func() {
				found.Numerical, found.Analytical = found.Numerical.Detach().Clone(), found.Analytical.Detach().Clone()
			})
		})
	})
	if found == nil {
		return nil
	}
	return found
}

func (c *checker) run(opt GradCheckOptions) error {
	return keepError(func() *GradCheckError { return c.check(opt) })
}

func (c *checker) check(opt GradCheckOptions) *GradCheckError {
	outputs := checkedCall(c.op, c.f, c.inputs)
	if !opt.NoCheckBackwardAD {
		parts := []*checker{c}
		if slices.ContainsFunc(outputs, gotorch.Tensor.IsComplex) {
			parts = []*checker{c.ofOutputs("imaginary", gotorch.Imag), c.ofOutputs("real", gotorch.Real)}
		}
		for _, p := range parts {
			if found := p.backwardMode(); found != nil {
				return found
			}
		}
	}
	if opt.CheckForwardAD {
		parts := []*checker{c}
		if slices.ContainsFunc(c.inputs, func(x gotorch.Tensor) bool { return x.T != nil && x.IsComplex() }) {
			parts = []*checker{c.ofInputs("imaginary"), c.ofInputs("real")}
		}
		for _, p := range parts {
			if found := p.forwardMode(); found != nil {
				return found
			}
		}
		if !opt.NoCheckUndefinedGrad {
			for _, p := range parts {
				if found := p.undefinedTangents(); found != nil {
					return found
				}
			}
		}
	}
	if opt.CheckBatchedForwardGrad {
		if found := c.batchedForward(); found != nil {
			return found
		}
	}
	if opt.NoCheckBackwardAD {
		return nil
	}
	if opt.CheckBatchedGrad {
		for o, y := range outputs {
			if y.RequiresGrad() {
				if found := c.batchedBackward(o, y); found != nil {
					return found
				}
			}
		}
	}
	if found := c.zeroGradients(pick(outputs, requiringGrad(outputs))); found != nil {
		return found
	}
	if !opt.NoCheckUndefinedGrad {
		return c.undefinedGradients()
	}
	return nil
}

// ofOutputs is the check of one part of complex results.
func (c *checker) ofOutputs(part string, of func(gotorch.Tensor) gotorch.Tensor) *checker {
	p := *c
	p.part = part
	p.f = func(xs []gotorch.Tensor) []gotorch.Tensor {
		ys := slices.Clone(c.f(xs))
		for i, y := range ys {
			if y.IsComplex() {
				ys[i] = of(y)
			}
		}
		return ys
	}
	return &p
}

// ofInputs is the check with one part of complex inputs, while the other stays what it is.
func (c *checker) ofInputs(part string) *checker {
	p := *c
	p.part = part
	p.inputs = slices.Clone(c.inputs)
	others := make([]gotorch.Tensor, len(c.inputs))
	for i, x := range c.inputs {
		if x.T == nil || !x.IsComplex() {
			continue
		}
		one, other := gotorch.Real, gotorch.Imag
		if part == "imaginary" {
			one, other = gotorch.Imag, gotorch.Real
		}
		plain := x.Detach().ResolveConj()
		p.inputs[i] = one(plain).Clone().RequiresGrad_(x.RequiresGrad())
		others[i] = other(plain).Clone()
	}
	whole := func(f function) function {
		return func(xs []gotorch.Tensor) []gotorch.Tensor {
			xs = slices.Clone(xs)
			for i, other := range others {
				if other.T == nil {
					continue
				}
				if part == "imaginary" {
					xs[i] = gotorch.Complex(other, xs[i])
				} else {
					xs[i] = gotorch.Complex(xs[i], other)
				}
			}
			return f(xs)
		}
	}
	p.f, p.forward = whole(c.f), whole(c.forward)
	return &p
}

// Jacobians by differences --------------------------------------------------------------------------------

// moved returns the derivatives of f along a direction by which view, a part of an input's memory, is moved to
// both sides: one for each result, flat, and none where a result is no floating point number.
func (c *checker) moved(view, by gotorch.Tensor) []gotorch.Tensor {
	var below, above []gotorch.Tensor
	call := func() []gotorch.Tensor {
		ys := c.f(slices.Clone(c.inputs))
		copies := make([]gotorch.Tensor, len(ys))
		for i, y := range ys { // one may be a view of an input
			copies[i] = y.Detach().Clone()
		}
		return copies
	}
	return gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
		orig := view.Clone()
		func() {
			defer view.Copy_(orig)
			view.Copy_(orig.Sub(by))
			below = call()
			view.Copy_(orig.Add(by))
			above = call()
		}()
		if len(below) != len(above) {
			panic(args.ValueError(c.op, "f returns %d tensors, and %d when an input is moved by %v", len(below), len(above), c.eps))
		}
		slopes := make([]gotorch.Tensor, len(below))
		for i, a := range below {
			b := above[i]
			if !slices.Equal(a.Shape(), b.Shape()) || a.DType() != b.DType() {
				panic(args.ValueError(c.op, "f must return results of the same shape and dtype when an input is moved by %v: result %d is %v of %v, and then %v of %v",
					c.eps, i, a.DType(), a.Shape(), b.DType(), b.Shape()))
			}
			if differentiable(a) {
				slopes[i] = b.Sub(a).DivScalar(2 * c.eps).Reshape([]int64{-1})
			}
		}
		return slopes
	})
}

// slopes are the derivatives along by, which has the shape of view; for a complex one by has two parts, and
// the derivative is with respect to the conjugate.
func (c *checker) slopes(view, by, byImag gotorch.Tensor) []gotorch.Tensor {
	found := c.moved(view, by)
	if !view.IsComplex() {
		return found
	}
	for i, imag := range c.moved(view, byImag.MulScalar(1i)) {
		if imag.T != nil {
			found[i] = found[i].Add(imag.MulScalar(1i))
		}
	}
	return found
}

// numerical returns the Jacobians of all results with respect to inputs[i], element by element; none for a
// result without gradients.
func (c *checker) numerical(i int) []gotorch.Tensor {
	x := c.inputs[i].VariableData() // the same memory, whose changes no graph sees
	shape, strides, offset := x.Shape(), x.Strides(), x.StorageOffset()
	rows := map[int][]gotorch.Tensor{}
	by := gotorch.Full([]int64{}, c.eps, gotorch.TensorOptions{DType: x.DType().ToReal(), Device: x.Device()})
	n := x.Numel()
	var none []gotorch.Tensor
	if n == 0 {
		none = c.f(slices.Clone(c.inputs))
	}
	for k := range n {
		at := offset
		for d, rest := len(shape)-1, k; d >= 0; d-- {
			at += rest % shape[d] * strides[d]
			rest /= shape[d]
		}
		slopes := c.slopes(x.AsStrided([]int64{}, []int64{}, gotorch.AsStridedOptions{StorageOffset: &at}), by, by)
		for o, slope := range slopes {
			rows[o] = append(rows[o], slope)
		}
	}
	jacobians := make([]gotorch.Tensor, max(len(rows), len(none)))
	for o, y := range none {
		if differentiable(y) {
			jacobians[o] = y.Detach().NewZeros([]int64{0, y.Numel()})
		}
	}
	for o, slopes := range rows {
		if slopes[0].T != nil {
			jacobians[o] = gotorch.Stack(slopes)
		}
	}
	return jacobians
}

// Backward mode -------------------------------------------------------------------------------------------

func (c *checker) backwardMode() *GradCheckError {
	outputs := checkedCall(c.op, c.f, c.inputs)
	places := requiringGrad(outputs)
	if len(places) == 0 {
		return c.noGradient()
	}
	if c.fast {
		return c.fastBackward(outputs, places)
	}
	numerical := make([][]gotorch.Tensor, len(c.wrt))
	for j, i := range c.wrt {
		numerical[j] = c.numerical(i)
	}
	for _, o := range places {
		analytical, found := c.analytical(outputs[o], o, gotorch.Tensor{})
		if found != nil {
			return found
		}
		for j, i := range c.wrt {
			if !c.close(analytical[j], numerical[j][o], c.atol) {
				return c.mismatch(analytical[j], numerical[j][o], o, i, false)
			}
		}
	}
	return nil
}

// noGradient checks that results from which nothing can be differentiated do not depend on the inputs.
func (c *checker) noGradient() *GradCheckError {
	for j, i := range c.wrt {
		var jacobians []gotorch.Tensor
		allowed := 0.0
		if c.fast {
			us, _ := c.vectors(nil)
			jacobians, allowed = c.alongVector(i, us[j]), c.nondet
		} else {
			jacobians = c.numerical(i)
		}
		for o, jacobian := range jacobians {
			if jacobian.T != nil && (greatest(jacobian) > allowed || !c.fast && !allZero(jacobian)) {
				zeros := gotorch.ZerosLike(jacobian)
				found := c.mismatch(zeros, jacobian, o, i, false)
				found.Msg = fmt.Sprintf("%s: result %d does not require grad, and changes with inputs[%d]: its numerical gradient is expected to be zero\nnumerical: %v", c.op, o, i, jacobian)
				return found
			}
		}
	}
	return nil
}

// analytical returns the Jacobian of a result with respect to each input, or with v the product v·J, and
// computes it twice.
func (c *checker) analytical(y gotorch.Tensor, o int, v gotorch.Tensor) ([]gotorch.Tensor, *GradCheckError) {
	inputs := pick(c.inputs, c.wrt)
	once := func() ([]gotorch.Tensor, *GradCheckError) {
		n := y.Numel()
		if v.T != nil {
			n = 1
		}
		rows := make([][]gotorch.Tensor, len(inputs))
		for k := range n {
			g := v
			if v.T == nil {
				g = y.Detach().NewZeros([]int64{n})
				g.Select(0, k).Fill_(1)
			}
			grads := gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
				grads := gotorch.Grad([]gotorch.Tensor{y}, inputs, gotorch.GradOptions{
					GradOutputs: []gotorch.Tensor{g.Reshape(y.Shape())}, RetainGraph: new(true), AllowUnused: true})
				for j, grad := range grads {
					if grad.T != nil {
						grads[j] = dense(grad).Clone() // it may be the memory of something else
					}
				}
				return grads
			})
			for j, grad := range grads {
				x := inputs[j]
				switch {
				case grad.T == nil:
					grad = x.Detach().NewZeros([]int64{x.Numel()})
				case c.dtypes && grad.DType() != x.DType():
					return nil, c.fault(o, c.wrt[j], false, "the gradient has dtype %v, and the input %v", grad.DType(), x.DType())
				case grad.Numel() != x.Numel():
					return nil, c.fault(o, c.wrt[j], false, "the gradient has shape %v, and the input %v", grad.Shape(), x.Shape())
				}
				rows[j] = append(rows[j], grad.Reshape([]int64{-1}))
			}
		}
		jacobians := make([]gotorch.Tensor, len(inputs))
		for j, x := range inputs {
			if len(rows[j]) == 0 {
				jacobians[j] = x.Detach().NewZeros([]int64{x.Numel(), 0})
			} else {
				jacobians[j] = gotorch.Stack(rows[j], gotorch.StackOptions{Dim: 1})
			}
		}
		return jacobians, nil
	}
	first, found := once()
	if found != nil {
		return nil, found
	}
	second, found := once()
	if found != nil {
		return nil, found
	}
	for j := range first {
		if d := greatest(first[j].Sub(second[j])); d > c.nondet {
			return nil, c.fault(o, c.wrt[j], false, "two backward passes from the same gradient give results that differ by %v, where NondetTol allows %v: Backward depends on something else, or is not deterministic", d, c.nondet)
		}
	}
	return first, nil
}

func dense(t gotorch.Tensor) gotorch.Tensor {
	if t.Layout() != gotorch.Strided {
		return t.ToDense()
	}
	return t
}

// Fast mode -----------------------------------------------------------------------------------------------

// direction is a vector of the elements of an input: two for the parts of a complex one.
type direction struct{ real, imag gotorch.Tensor }

// sum is by how much a product with it may be greater than what it is a product of.
func (u direction) sum() float64 {
	s := float(u.real.Sum())
	if u.imag.T != nil {
		s += float(u.imag.Sum())
	}
	return s
}

// vectors returns a random vector of length 1 for each input, and for each output. They are the same in each
// check, and Python's.
func (c *checker) vectors(outputs []gotorch.Tensor) (us []direction, vs []gotorch.Tensor) {
	g := gotorch.NewGenerator(gotorch.CPU)
	vector := func(like gotorch.Tensor, dtype gotorch.DType) gotorch.Tensor {
		v := gotorch.RandGenerator([]int64{like.Numel()}, g).To(like.Device()).To(dtype)
		return v.Div_(v.Norm())
	}
	for _, i := range c.wrt {
		x := c.inputs[i].Detach()
		u := direction{real: vector(x, x.DType().ToReal())}
		if x.IsComplex() {
			u.imag = vector(x, x.DType().ToReal())
		}
		us = append(us, u)
	}
	for _, y := range outputs {
		vs = append(vs, vector(y.Detach(), y.DType()))
	}
	return us, vs
}

// alongVector returns the derivatives of all results along u.
func (c *checker) alongVector(i int, u direction) []gotorch.Tensor {
	x := c.inputs[i].VariableData()
	shaped := func(v gotorch.Tensor) gotorch.Tensor {
		if v.T == nil {
			return v
		}
		return v.Reshape(x.Shape()).MulScalar(c.eps)
	}
	return c.slopes(x, shaped(u.real), shaped(u.imag))
}

func (c *checker) fastBackward(outputs []gotorch.Tensor, places []int) *GradCheckError {
	us, vs := c.vectors(pick(outputs, places))
	slopes := make([][]gotorch.Tensor, len(c.wrt))
	for j, i := range c.wrt {
		slopes[j] = c.alongVector(i, us[j])
	}
	for p, o := range places {
		products, found := c.analytical(outputs[o], o, vs[p])
		if found != nil {
			return found
		}
		for j, i := range c.wrt {
			n := vs[p].Mul(slopes[j][o]).Sum()
			a := products[j].Reshape([]int64{-1})
			if a.IsComplex() {
				parts := gotorch.ViewAsReal(a.ResolveConj())
				a = gotorch.Complex(parts.Select(-1, 0).Dot(us[j].real), parts.Select(-1, 1).Dot(us[j].imag))
			} else {
				a = a.Dot(us[j].real)
			}
			if c.close(a, n, c.atol*us[j].sum()*float(vs[p].Sum())) {
				continue
			}
			jacobians, found := c.analytical(outputs[o], o, gotorch.Tensor{})
			if found != nil {
				return found
			}
			return c.fastMismatch(a, n, jacobians[j], c.numerical(i)[o], o, i, false)
		}
	}
	return nil
}

// Forward mode --------------------------------------------------------------------------------------------

// jvp is the derivative of the results along tangents of the inputs that require grad.
func (c *checker) jvp(tangents []gotorch.Tensor) []gotorch.Tensor {
	primals := make([]gotorch.Tensor, len(c.wrt))
	for j, i := range c.wrt {
		primals[j] = c.inputs[i].Detach()
	}
	return c.jvpOf(c.inputs, c.wrt, primals, tangents)
}

func (c *checker) jvpOf(inputs []gotorch.Tensor, places []int, primals, tangents []gotorch.Tensor) []gotorch.Tensor {
	_, along := functorch.JVP(func(xs []gotorch.Tensor) []gotorch.Tensor {
		return c.forward(replaceAt(inputs, places, xs))
	}, primals, tangents)
	return along
}

func (c *checker) zeroTangents() []gotorch.Tensor {
	zeros := make([]gotorch.Tensor, len(c.wrt))
	for j, i := range c.wrt {
		zeros[j] = gotorch.ZerosLike(c.inputs[i].Detach())
	}
	return zeros
}

func (c *checker) forwardMode() *GradCheckError {
	outputs := checkedCall(c.op, c.f, c.inputs)
	places := requiringGrad(outputs)
	var us []direction
	if c.fast { // which says of results without a graph, too, that their derivatives are zeros
		us, _ = c.vectors(nil)
		places = nil
		for o, y := range outputs {
			if differentiable(y) {
				places = append(places, o)
			}
		}
		if len(places) == 0 {
			return nil
		}
	}
	if len(places) == 0 {
		return c.noGradient()
	}
	for j, i := range c.wrt {
		var numerical, analytical []gotorch.Tensor
		atol := c.atol
		if c.fast {
			tangents := c.zeroTangents()
			tangents[j] = us[j].real.Reshape(c.inputs[i].Shape())
			numerical, analytical = c.alongVector(i, us[j]), c.jvp(tangents)
			atol *= us[j].sum()
		} else {
			numerical, analytical = c.numerical(i), c.forwardJacobians(j)
		}
		for _, o := range places {
			a, n := analytical[o], numerical[o]
			if c.fast {
				a = a.Reshape([]int64{-1})
			}
			if c.dtypes && analytical[o].IsComplex() != outputs[o].IsComplex() {
				return c.fault(o, i, true, "the derivative is %v, and the result %v", a.DType(), outputs[o].DType())
			}
			if c.close(a, n, atol) {
				continue
			}
			if c.fast {
				return c.fastMismatch(a, n, c.forwardJacobians(j)[o], c.numerical(i)[o], o, i, true)
			}
			return c.mismatch(a, n, o, i, true)
		}
	}
	return nil
}

// forwardJacobians returns the Jacobians of all results with respect to the input wrt[j], a row at a time.
func (c *checker) forwardJacobians(j int) []gotorch.Tensor {
	x := c.inputs[c.wrt[j]].Detach()
	n := x.Numel()
	var rows [][]gotorch.Tensor
	for k := range max(n, 1) {
		along := gotorch.Scope(func(*gotorch.ScopeHandle) []gotorch.Tensor {
			tangents := c.zeroTangents()
			if n > 0 {
				basis := x.NewZeros([]int64{n})
				basis.Select(0, k).Fill_(1)
				tangents[j] = basis.View(x.Shape())
			}
			return c.jvp(tangents)
		})
		if rows == nil {
			rows = make([][]gotorch.Tensor, len(along))
		}
		for o, d := range along {
			rows[o] = append(rows[o], d.Reshape([]int64{-1}))
		}
	}
	jacobians := make([]gotorch.Tensor, len(rows))
	for o, of := range rows {
		jacobians[o] = gotorch.Stack(of).Narrow(0, 0, n)
	}
	return jacobians
}

// undefinedTangents checks that an input without a tangent counts as one whose tangent is zeros.
func (c *checker) undefinedTangents() *GradCheckError {
	if len(c.wrt) < 2 {
		return nil // without any tangent there is no forward mode
	}
	us, _ := c.vectors(nil)
	all := make([]gotorch.Tensor, len(c.wrt))
	for j, i := range c.wrt {
		all[j] = us[j].real.Reshape(c.inputs[i].Shape())
	}
	for j, i := range c.wrt {
		tangents := slices.Clone(all)
		tangents[j] = gotorch.ZerosLike(all[j])
		zeros := c.jvp(tangents)

		inputs := slices.Clone(c.inputs)
		inputs[i] = inputs[i].Detach()
		places := slices.Delete(slices.Clone(c.wrt), j, j+1)
		primals := pick(inputs, places)
		for k := range primals {
			primals[k] = primals[k].Detach()
		}
		none := c.jvpOf(inputs, places, primals, slices.Delete(slices.Clone(all), j, j+1))
		for o := range zeros {
			if differentiable(zeros[o]) && !zeros[o].AllClose(none[o]) {
				return c.fault(o, i, true, "the derivative differs when the input has no tangent from what it is with a tangent of zeros:\nwithout: %v\nzeros: %v", none[o], zeros[o])
			}
		}
	}
	return nil
}

// Batches -------------------------------------------------------------------------------------------------

func (c *checker) random(like gotorch.Tensor, g *gotorch.Generator) gotorch.Tensor {
	like = like.Detach()
	return gotorch.RandnGenerator(like.Shape(), g, gotorch.TensorOptions{DType: like.DType()}).To(like.Device())
}

// batched compares f of two vectors with a VMap of it.
func (c *checker) batched(f func(gotorch.Tensor) []gotorch.Tensor, like gotorch.Tensor) (place int, got, want gotorch.Tensor, err error) {
	g := gotorch.NewGenerator(gotorch.CPU)
	vectors := []gotorch.Tensor{c.random(like, g), c.random(like, g)}
	first, second := f(vectors[0]), f(vectors[1])
	result, err := gotorch.Try(func() []gotorch.Tensor { return functorch.VMap(f)(gotorch.Stack(vectors)) })
	if err != nil {
		return -1, got, want, err
	}
	for i := range first {
		want := gotorch.Stack([]gotorch.Tensor{first[i], second[i]})
		if !result[i].AllClose(want) {
			return i, result[i], want, nil
		}
	}
	return -1, got, want, nil
}

func (c *checker) batchedBackward(o int, y gotorch.Tensor) *GradCheckError {
	inputs := pick(c.inputs, c.wrt)
	place, got, want, err := c.batched(func(v gotorch.Tensor) []gotorch.Tensor {
		grads := gotorch.Grad([]gotorch.Tensor{y}, inputs, gotorch.GradOptions{GradOutputs: []gotorch.Tensor{v}, RetainGraph: new(true), AllowUnused: true})
		for j, g := range grads {
			if g.T == nil {
				grads[j] = gotorch.ZerosLike(inputs[j].Detach())
			}
		}
		return grads
	}, y)
	switch {
	case err != nil:
		return c.fault(o, -1, false, "its gradients cannot be computed for a batch: %v", err)
	case place >= 0:
		return c.fault(o, c.wrt[place], false, "the gradient for a batch differs from that of each:\ngot: %v\nwant: %v", got, want)
	}
	return nil
}

func (c *checker) batchedForward() *GradCheckError {
	for _, i := range c.wrt {
		inputs := slices.Clone(c.inputs)
		for _, k := range c.wrt {
			inputs[k] = inputs[k].Detach()
		}
		primals := []gotorch.Tensor{inputs[i]}
		place, got, want, err := c.batched(func(v gotorch.Tensor) []gotorch.Tensor {
			return c.jvpOf(inputs, []int{i}, primals, []gotorch.Tensor{v})
		}, inputs[i])
		switch {
		case err != nil:
			return c.fault(-1, i, true, "its derivatives cannot be computed for a batch: %v", err)
		case place >= 0:
			return c.fault(place, i, true, "the derivative for a batch differs from that of each:\ngot: %v\nwant: %v", got, want)
		}
	}
	return nil
}

// Gradients of zeros, and none ----------------------------------------------------------------------------

func (c *checker) zeroGradients(outputs []gotorch.Tensor) *GradCheckError {
	if len(outputs) == 0 {
		return nil
	}
	inputs := pick(c.inputs, c.wrt)
	grads := gotorch.Grad(outputs, inputs, gotorch.GradOptions{GradOutputs: zerosOf(outputs), RetainGraph: new(true), AllowUnused: true})
	for j, g := range grads {
		if g.T == nil {
			continue
		}
		x, i := inputs[j], c.wrt[j]
		switch g = dense(g); {
		case !allZero(g):
			return c.fault(-1, i, false, "the gradient is not multiplied by that of the results: for zeros it is %v", g)
		case g.DType() != x.DType():
			return c.fault(-1, i, false, "the gradient has dtype %v, and the input %v", g.DType(), x.DType())
		case g.Device() != x.Device():
			return c.fault(-1, i, false, "the gradient is on %v, and the input on %v", g.Device(), x.Device())
		case !slices.Equal(g.Shape(), x.Shape()):
			return c.fault(-1, i, false, "the gradient has shape %v, and the input %v", g.Shape(), x.Shape())
		}
	}
	return nil
}

func zerosOf(ts []gotorch.Tensor) []gotorch.Tensor {
	zeros := make([]gotorch.Tensor, len(ts))
	for i, t := range ts {
		zeros[i] = t.Detach().NewZeros(t.Shape())
	}
	return zeros
}

// noGradientBack gives no gradient to what it is applied to.
type noGradientBack struct{}

func (noGradientBack) Forward(_ *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{in[0].Clone()}
}

func (noGradientBack) Backward(*gotorch.FunctionContext, []gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{{}}
}

// undefinedGradients checks that no gradient for all results, or for one of them, counts as zeros.
func (c *checker) undefinedGradients() *GradCheckError {
	const all = -1
	for without := all; ; without++ {
		outputs := c.f(slices.Clone(c.inputs))
		places := requiringGrad(outputs)
		if len(places) == 0 || without >= len(places) || without >= 0 && len(places) == 1 {
			return nil
		}
		ys := pick(outputs, places)
		place := -1
		for p := range ys {
			if without == all || without == p {
				ys[p] = gotorch.Apply(noGradientBack{}, ys[p])[0]
			}
		}
		if without != all {
			place = places[without]
		}
		inputs := pick(c.inputs, c.wrt)
		grads, err := gotorch.Try(func() []gotorch.Tensor {
			return gotorch.Grad(ys, inputs, gotorch.GradOptions{GradOutputs: zerosOf(ys), AllowUnused: true})
		})
		if err != nil {
			return c.fault(place, -1, false, "the backward pass cannot do without a gradient of a result, which stands for zeros: %v", err)
		}
		for j, g := range grads {
			if g.T != nil && !allZero(dense(g)) {
				return c.fault(place, c.wrt[j], false, "the gradient must be none or zeros where those of the results are, and is %v", g)
			}
		}
	}
}

// What is said --------------------------------------------------------------------------------------------

// allZero counts a NaN as no zero.
func allZero(t gotorch.Tensor) bool { return gotorch.Item[bool](t.EqScalar(0).All()) }

func float(t gotorch.Tensor) float64 { return gotorch.Item[float64](t) }

// greatest returns the greatest absolute value, 0 if there is none.
func greatest(t gotorch.Tensor) float64 {
	if t.Numel() == 0 {
		return 0
	}
	return float(t.Detach().Abs().Max())
}

func (c *checker) close(a, n gotorch.Tensor, atol float64) bool {
	dtype := a.DType().Promote(n.DType())
	return a.To(dtype).AllClose(n.To(dtype).To(a.Device()), gotorch.AllCloseOptions{RTol: &c.rtol, ATol: &atol})
}

// where names a result and an input.
func (c *checker) where(output, input int) string {
	switch {
	case output >= 0 && input >= 0:
		return fmt.Sprintf("result %d with respect to inputs[%d]", output, input)
	case output >= 0:
		return fmt.Sprintf("result %d", output)
	case input >= 0:
		return fmt.Sprintf("inputs[%d]", input)
	}
	return "all results"
}

func (c *checker) fault(output, input int, forward bool, format string, values ...any) *GradCheckError {
	mode := "backward mode"
	if forward {
		mode = "forward mode"
	}
	msg := fmt.Sprintf("%s: %s of %s: ", c.op, mode, c.where(output, input)) + fmt.Sprintf(format, values...)
	return &GradCheckError{Msg: msg, Output: output, Input: input, Forward: forward}
}

func (c *checker) mismatch(a, n gotorch.Tensor, output, input int, forward bool) *GradCheckError {
	dtype := a.DType().Promote(n.DType())
	difference := greatest(a.To(dtype).Sub(n.To(dtype)))
	part := ""
	if c.part != "" {
		of := "results"
		if forward {
			of = "inputs"
		}
		part = fmt.Sprintf(", of the %s part of complex %s", c.part, of)
	}
	found := c.fault(output, input, forward, "the Jacobians%s differ by up to %.6g, where %.6g + %.6g·|numerical| is allowed\nnumerical: %v\nanalytical: %v%s",
		part, difference, c.atol, c.rtol, n, a, c.advice(input))
	found.Numerical, found.Analytical, found.Difference = n, a, difference
	return found
}

// fastMismatch has the product that differs, and the Jacobians that it is of.
func (c *checker) fastMismatch(product, slope, a, n gotorch.Tensor, output, input int, forward bool) *GradCheckError {
	found := c.mismatch(a, n, output, input, forward)
	found.Msg += fmt.Sprintf("\nFastMode found it by a product with the Jacobian: %v, by differences %v", product, slope)
	if c.close(a, n, c.atol) {
		found.Msg += "\nEach element is near enough for a check without FastMode"
	}
	return found
}

// advice says what makes differences useless.
func (c *checker) advice(input int) string {
	for _, i := range append([]int{input}, c.wrt...) {
		if dtype := c.inputs[i].DType(); dtype.ToReal() != gotorch.Float64 {
			return fmt.Sprintf("\ninputs[%d] is %v, in which rounding hides differences of %g: check with %v", i, dtype, c.eps, gotorch.Float64)
		}
	}
	return ""
}
