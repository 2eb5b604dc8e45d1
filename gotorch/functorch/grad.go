package functorch

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Grad returns a function that computes the gradient of f, whose result must have no dimensions, with
// respect to its argument: a tensor, or a tree of them, which must be floating point or complex. The
// gradient is of the same type, with zeros where f does not depend on a tensor.
//
// It respects a NoGrad inside of f, and ignores one around it. It panics with a RuntimeError if f returns
// none, or a tensor with dimensions; [VJP] and [JacRev] take such functions.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func Grad[A any](f func(A) gotorch.Tensor) func(A) A {
	notNil("Grad", f == nil)
	return func(a A) A {
		return gradients("Grad", a, none{}, func(a A, _ none) (gotorch.Tensor, none) { return f(a), none{} }).grad
	}
}

// Grad2 is [Grad] for a function of two arguments. The gradient is that with respect to the first.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func Grad2[A, B any](f func(A, B) gotorch.Tensor) func(A, B) A {
	notNil("Grad2", f == nil)
	return func(a A, b B) A {
		return gradients("Grad2", a, b, func(a A, b B) (gotorch.Tensor, none) { return f(a, b), none{} }).grad
	}
}

// Grad3 is [Grad] for a function of three arguments. The gradient is that with respect to the first.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func Grad3[A, B, C any](f func(A, B, C) gotorch.Tensor) func(A, B, C) A {
	notNil("Grad3", f == nil)
	return func(a A, b B, c C) A {
		return gradients("Grad3", a, two[B, C]{b, c}, func(a A, r two[B, C]) (gotorch.Tensor, none) {
			return f(a, r.B, r.C), none{}
		}).grad
	}
}

// GradAndValue is [Grad] with the result of f beside the gradient.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad_and_value.html
func GradAndValue[A any](f func(A) gotorch.Tensor) func(A) (grad A, value gotorch.Tensor) {
	notNil("GradAndValue", f == nil)
	return func(a A) (A, gotorch.Tensor) {
		r := gradients("GradAndValue", a, none{}, func(a A, _ none) (gotorch.Tensor, none) { return f(a), none{} })
		return r.grad, r.value
	}
}

// GradAndValue2 is [GradAndValue] for a function of two arguments.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad_and_value.html
func GradAndValue2[A, B any](f func(A, B) gotorch.Tensor) func(A, B) (grad A, value gotorch.Tensor) {
	notNil("GradAndValue2", f == nil)
	return func(a A, b B) (A, gotorch.Tensor) {
		r := gradients("GradAndValue2", a, b, func(a A, b B) (gotorch.Tensor, none) { return f(a, b), none{} })
		return r.grad, r.value
	}
}

// GradAndValue3 is [GradAndValue] for a function of three arguments.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad_and_value.html
func GradAndValue3[A, B, C any](f func(A, B, C) gotorch.Tensor) func(A, B, C) (grad A, value gotorch.Tensor) {
	notNil("GradAndValue3", f == nil)
	return func(a A, b B, c C) (A, gotorch.Tensor) {
		r := gradients("GradAndValue3", a, two[B, C]{b, c}, func(a A, r two[B, C]) (gotorch.Tensor, none) {
			return f(a, r.B, r.C), none{}
		})
		return r.grad, r.value
	}
}

// GradAux is [GradAndValue] for a function that returns more than what is differentiated, such as a loss and
// the predictions: Python's has_aux. The further result may be any tree.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func GradAux[A, X any](f func(A) (gotorch.Tensor, X)) func(A) (grad A, value gotorch.Tensor, aux X) {
	notNil("GradAux", f == nil)
	return func(a A) (A, gotorch.Tensor, X) {
		r := gradients("GradAux", a, none{}, func(a A, _ none) (gotorch.Tensor, X) { return f(a) })
		return r.grad, r.value, r.aux
	}
}

// GradAux2 is [GradAux] for a function of two arguments.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func GradAux2[A, B, X any](f func(A, B) (gotorch.Tensor, X)) func(A, B) (grad A, value gotorch.Tensor, aux X) {
	notNil("GradAux2", f == nil)
	return func(a A, b B) (A, gotorch.Tensor, X) {
		r := gradients("GradAux2", a, b, f)
		return r.grad, r.value, r.aux
	}
}

// GradAux3 is [GradAux] for a function of three arguments.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.grad.html
func GradAux3[A, B, C, X any](f func(A, B, C) (gotorch.Tensor, X)) func(A, B, C) (grad A, value gotorch.Tensor, aux X) {
	notNil("GradAux3", f == nil)
	return func(a A, b B, c C) (A, gotorch.Tensor, X) {
		r := gradients("GradAux3", a, two[B, C]{b, c}, func(a A, r two[B, C]) (gotorch.Tensor, X) { return f(a, r.B, r.C) })
		return r.grad, r.value, r.aux
	}
}

type none struct{}

type two[B, C any] struct {
	B B
	C C
}

func notNil(op string, isNil bool) {
	if isNil {
		panic(typeError(op, "argument 'f' is nil, where a function is required"))
	}
}

// gradResult is what gradients returns. Scope looks into it.
type gradResult[A, X any] struct {
	grad  A
	value gotorch.Tensor
	aux   X
}

// gradients calls f with a, that is differentiated, and rest, that is not.
func gradients[A, R, X any](op string, a A, rest R, f func(A, R) (gotorch.Tensor, X)) gradResult[A, X] {
	return gotorch.Scope(func(*gotorch.ScopeHandle) (r gradResult[A, X]) {
		in := enterGrad(op)
		defer in.leave()
		a = mapTree(op, a, in.leaf)
		rest = mapTree(op, rest, in.wrap)
		value, aux := f(a, rest)
		if value.T == nil {
			panic(runtimeError(op, "Expected f(*args) to return a Tensor, got none"))
		}
		if n := value.Dim(); n != 0 {
			panic(runtimeError(op, "Expected f(*args) to return a scalar Tensor, got tensor with %d dims. "+
				"Maybe you wanted to use the vjp or jacrev APIs instead?", n))
		}
		inputs := leaves(op, a)
		grads := autogradGrad([]gotorch.Tensor{value}, inputs, nil, true)
		r.grad = fill(op, a, mapTensors(grads, in.unwrap))
		r.value = in.unwrap(value)
		r.aux = mapTree(op, aux, in.unwrap)
		return r
	})
}

// gradLevel is a level of Grad or JVP.
type gradLevel struct {
	op    string
	level int64
	leave func()
}

func enterGrad(op string) gradLevel {
	level, leave := enter(op, ctorch.TransformGrad, 0, 0)
	return gradLevel{op, level, leave}
}

func enterJVP(op string) gradLevel {
	level, leave := enter(op, ctorch.TransformJVP, 0, 0)
	return gradLevel{op, level, leave}
}

func (g gradLevel) leaf(t gotorch.Tensor) gotorch.Tensor   { return wrap(g.op, t, g.level, true) }
func (g gradLevel) wrap(t gotorch.Tensor) gotorch.Tensor   { return wrap(g.op, t, g.level, false) }
func (g gradLevel) unwrap(t gotorch.Tensor) gotorch.Tensor { return unwrap(g.op, t, g.level) }

// autogradGrad is autograd's Grad, with zeros for what does not depend on the inputs. cotangents may be nil.
func autogradGrad(outputs, inputs, cotangents []gotorch.Tensor, createGraph bool) []gotorch.Tensor {
	var of, with []gotorch.Tensor
	for i, t := range outputs {
		if !t.RequiresGrad() {
			continue
		}
		of = append(of, t)
		if cotangents != nil {
			with = append(with, cotangents[i])
		}
	}
	if len(of) == 0 || len(inputs) == 0 {
		return mapTensors(inputs, func(t gotorch.Tensor) gotorch.Tensor { return gotorch.ZerosLike(t) })
	}
	grads := gotorch.Grad(of, inputs, gotorch.GradOptions{
		GradOutputs: with, RetainGraph: new(true), CreateGraph: createGraph, AllowUnused: true})
	for i := range grads {
		if grads[i].T == nil {
			grads[i] = gotorch.ZerosLike(inputs[i])
		}
	}
	return grads
}

// VJP calls f, and returns its result with a function that computes vector-Jacobian products: given a
// cotangent for each tensor of the result, in a tree of the same structure, it returns the products with
// respect to each tensor of the argument. It may be called many times, on any goroutine; what it needs is
// kept until it is dropped.
//
// All tensors of the argument and the result must be floating point or complex. It panics with a
// RuntimeError otherwise, and if the result has no tensor or the cotangents do not fit it.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.vjp.html
func VJP[A, R any](f func(A) R, primals A) (result R, vjp func(cotangents R) A) {
	notNil("VJP", f == nil)
	result, vjp, _ = VJPAux(func(a A) (R, none) { return f(a), none{} }, primals)
	return result, vjp
}

// VJPAux is [VJP] for a function that returns more than what is differentiated: Python's has_aux.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.vjp.html
func VJPAux[A, R, X any](f func(A) (R, X), primals A) (result R, vjp func(cotangents R) A, aux X) {
	const op = "VJP"
	notNil(op, f == nil)
	type state struct {
		result  R
		aux     X
		inputs  A
		outputs []gotorch.Tensor
	}
	s := gotorch.Scope(func(*gotorch.ScopeHandle) (s state) {
		in := enterGrad(op)
		defer in.leave()
		s.inputs = mapTree(op, primals, in.leaf)
		out, aux := f(s.inputs)
		s.outputs = leaves(op, out)
		if len(s.outputs) == 0 {
			panic(runtimeError(op, "Expected f to be a function that has non-empty output"))
		}
		s.result = mapTree(op, out, in.unwrap)
		s.aux = mapTree(op, aux, in.unwrap)
		for _, t := range s.outputs {
			if !t.IsFloatingPoint() && !t.IsComplex() {
				panic(runtimeError(op, "All outputs of f must be floating-point or complex Tensors, got Tensor with dtype %v", t.DType()))
			}
		}
		return s
	})
	result = s.result
	like := structure(op, result)
	vjp = func(cotangents R) A {
		if got := structure(op, cotangents); got != like {
			panic(runtimeError(op, "Expected the structure of cotangents to be the same as the structure of outputs of the function. "+
				"cotangents: %s, primal output: %s", got, like))
		}
		var grads []gotorch.Tensor
		run := func() {
			grads = autogradGrad(s.outputs, leaves(op, s.inputs), leaves(op, cotangents), gotorch.GradEnabled())
		}
		if gotorch.InferenceModeEnabled() {
			on, inner := gotorch.GradEnabled(), run
			run = func() { gotorch.SetInferenceMode(false, func() { gotorch.SetGradEnabled(on, inner) }) }
		}
		run()
		return fill(op, s.inputs, grads)
	}
	return result, vjp, s.aux
}

// JVPOptions are the arguments of [JVP] that have defaults.
type JVPOptions struct {
	// Strict makes a result that does not depend on the argument a RuntimeError. Without it, its tangent
	// is zeros.
	Strict bool
}

// JVP calls f, and returns its result with the Jacobian-vector product: the derivative of the result in the
// direction of tangents, which is a tree of the structure and shapes of primals. This is automatic
// differentiation in forward mode, as good for functions with few inputs and many outputs as [VJP] is for the
// opposite.
//
// All tensors of primals must be floating point or complex. It panics with a RuntimeError if tangents do not
// fit, and with a NotImplementedError for an op that has no forward mode.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jvp.html
func JVP[A, R any](f func(A) R, primals, tangents A, opts ...JVPOptions) (result, tangent R) {
	notNil("JVP", f == nil)
	result, tangent, _ = JVPAux(func(a A) (R, none) { return f(a), none{} }, primals, tangents, opts...)
	return result, tangent
}

// JVPAux is [JVP] for a function that returns more than what is differentiated: Python's has_aux.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.jvp.html
func JVPAux[A, R, X any](f func(A) (R, X), primals, tangents A, opts ...JVPOptions) (result, tangent R, aux X) {
	const op = "JVP"
	notNil(op, f == nil)
	strict := args.Option(opts).Strict
	sameStructure(op, "tangents", "primals", tangents, primals)
	directions := leaves(op, tangents)
	if len(directions) == 0 {
		panic(runtimeError(op, "Expected primals to contain at least one Tensor."))
	}
	type results struct {
		result, tangent R
		aux             X
	}
	r := gotorch.Scope(func(*gotorch.ScopeHandle) (r results) {
		in := enterJVP(op)
		defer in.leave()
		next := 0
		duals := mapTree(op, primals, func(t gotorch.Tensor) gotorch.Tensor {
			next++
			return makeDual(op, t, directions[next-1])
		})
		out, aux := f(duals)
		outputs := leaves(op, out)
		if len(outputs) == 0 {
			panic(runtimeError(op, "Expected f to be a function that has non-empty output"))
		}
		tangents := make([]gotorch.Tensor, len(outputs))
		for i, dual := range outputs {
			outputs[i], tangents[i] = unpackDual(op, dual)
			if tangents[i].T == nil {
				if strict {
					panic(runtimeError(op, "The output of f is independent of the inputs. This is not allowed with Strict."))
				}
				tangents[i] = gotorch.ZerosLike(outputs[i])
			}
		}
		r.result = fill(op, out, mapTensors(outputs, in.unwrap))
		r.tangent = fill(op, out, mapTensors(tangents, in.unwrap))
		r.aux = mapTree(op, aux, in.unwrap)
		return r
	})
	return r.result, r.tangent, r.aux
}

// Linearize calls f, and returns its result with the linear function that is nearest to f there: given
// tangents, a tree of the structure of primals, it returns the Jacobian-vector product.
//
// In Python f is traced, and the part of it that does not depend on tangents computed once. Here f runs anew
// with each call of the linear function; so it must compute the same each time, and a single call is better
// done with [JVP].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.linearize.html
func Linearize[A, R any](f func(A) R, primals A) (result R, jvp func(tangents A) R) {
	notNil("Linearize", f == nil)
	result = f(primals)
	return result, func(tangents A) R {
		_, tangent := JVP(f, primals, tangents)
		return tangent
	}
}
