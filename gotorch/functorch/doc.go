// Package functorch transforms functions of tensors, as torch.func does: it makes of a function another
// one that computes its gradient, its Jacobian, or the same for each element of a batch. In Go func is a
// word of the language, so the package has the name under which the field knows these transforms.
//
// The results are Go functions again, so that transforms nest:
//
//	loss := func(w, x, y gotorch.Tensor) gotorch.Tensor { return x.MatMul(w).Sub(y).Square().Mean() }
//
//	g := functorch.Grad3(loss)(w, xs, ys)    // the gradient with respect to w
//	each := functorch.VMap(functorch.Grad3(loss), functorch.VMapOptions{InDims: []int64{functorch.None, 0, 0}})
//	gs := each(w, xs, ys)                    // and that of each example
//	h := functorch.Hessian(f)(x)             // which is JacFwd(JacRev(f))
//
// # Trees
//
// Where a function takes or returns several tensors, it does so in a tree: a struct with exported fields, a
// slice, an array or a map of tensors, or of trees. Gradients come in a tree of the same type. What is
// differentiated is the first argument, all tensors of it: put what else there is into the second and third
// argument of [Grad2] and [Grad3], or into the function's closure. A module's parameters are a tree, an
// [nn.StateDict], with which [FunctionalCall] runs the module.
//
//	params, _ := functorch.State(net)
//	g := functorch.Grad(func(p nn.StateDict) gotorch.Tensor {
//		return F.MSELoss(functorch.FunctionalCall(net, p, x), y)
//	})(params)
//
// # Rules
//
// A function that is transformed runs once, on tensors that stand for others, on the goroutine of its caller,
// which is locked to its OS thread meanwhile. It must do with them only what it can do without knowing their
// numbers: inside of a [VMap], Item and ToSlice are errors. Tensors from outside it may use, but not change.
// What it makes and does not return is freed when it returns, as in a [gotorch.Scope]: using that later is a
// ValueError. Goroutines that it starts have no part in the transform.
//
// Results belong to the graph of ordinary autograd, if what they were computed from does: Backward works
// through a transform, around it and not inside.
//
// Functions panic with *gotorch.Error. Each is documented beside its like in Python:
// https://docs.pytorch.org/docs/stable/func.api.html
package functorch
