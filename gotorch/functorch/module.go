package functorch

import (
	"reflect"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// FunctionalCallOptions are the arguments of [FunctionalCall] that have defaults.
type FunctionalCallOptions struct {
	// NoTieWeights leaves tensors apart that are one in the module under several names. Without it, one that
	// is given for a name stands under all of them, and giving several different ones is a ValueError.
	NoTieWeights bool
	// Strict makes it a RuntimeError if a parameter or buffer is not given, or something is given that the
	// module does not have.
	Strict bool
}

// FunctionalCall returns layer.Forward(x) with other tensors in the place of the layer's parameters and
// buffers: those that are given, by their names in its StateDict; the others stay. They are not copied, so
// gradients with respect to them are there, and a buffer that the layer changes in place is changed in
// tensors. Afterwards the layer has its own tensors again, also if it panics. Meanwhile no other goroutine may
// use it.
//
// It panics with a ValueError for tied weights that are given differently, with a TypeError for one that is
// none or is closed, and for Strict as its options say. A name that the layer does not have is left alone.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html
func FunctionalCall(layer nn.Layer, tensors nn.StateDict, x gotorch.Tensor, opts ...FunctionalCallOptions) gotorch.Tensor {
	return FunctionalCallOf(layer, tensors, func() gotorch.Tensor { return nn.Call(layer, x) }, opts...)
}

// FunctionalCallOf is [FunctionalCall] for modules whose Forward is of another form: it returns what call
// returns, which calls the module.
//
//	logits, h := functorch.FunctionalCallOf(net, params, func() out { ... net.Forward(x, h) ... })
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html
func FunctionalCallOf[R any](m nn.Modular, tensors nn.StateDict, call func() R, opts ...FunctionalCallOptions) R {
	const op = "FunctionalCall"
	notNil(op, call == nil)
	opt := args.Option(opts)
	if v := reflect.ValueOf(m); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(typeError(op, "argument 'm' is nil, where a module is required"))
	}
	for _, name := range tensors.Names() {
		if !tensors[name].Defined() {
			panic(typeError(op, "the tensor for %q is none, or was closed", name))
		}
	}
	defer nn.SwapTensors(m, tensors, nn.SwapOptions{Strict: opt.Strict, NoTieWeights: opt.NoTieWeights})()
	return call()
}

// State returns a module's parameters and its buffers by name, as [FunctionalCall] takes them. They are the
// module's own tensors, not copies; those that have several names come under the first.
func State(m nn.Modular) (params, buffers nn.StateDict) {
	params, buffers = nn.StateDict{}, nn.StateDict{}
	for name, t := range m.NamedParameters() {
		params[name] = t
	}
	for name, t := range m.NamedBuffers() {
		buffers[name] = t
	}
	return params, buffers
}

// StackModuleState prepares models of one type for being run all at once, as an ensemble: it returns their
// parameters and their buffers, each stacked along a new first dimension. Stacked parameters are new leaves
// that an optimiser can train; they have no connection with the models' own.
//
//	params, buffers := functorch.StackModuleState(models)
//	ys := functorch.VMap(func(p, b nn.StateDict, x gotorch.Tensor) gotorch.Tensor {
//		return functorch.FunctionalCall(models[0], functorch.Merge(p, b), x)
//	}, functorch.VMapOptions{InDims: []int64{0, 0, functorch.None}})(params, buffers, x)
//
// It panics with a RuntimeError if there are no models, if they differ in type, in training mode, in the
// names or shapes of their tensors, or in which of them require gradients.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.stack_module_state.html
func StackModuleState[M nn.Modular](models []M) (params, buffers nn.StateDict) {
	const op = "StackModuleState"
	if len(models) == 0 {
		panic(runtimeError(op, "Expected at least one model, got 0."))
	}
	allParams, allBuffers := make([]nn.StateDict, len(models)), make([]nn.StateDict, len(models))
	for i, m := range models {
		if v := reflect.ValueOf(m); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			panic(typeError(op, "models[%d] is nil, where a module is required", i))
		}
		if m.Training() != models[0].Training() {
			panic(runtimeError(op, "Expected all models to have the same training/eval mode."))
		}
		if reflect.TypeOf(m) != reflect.TypeOf(models[0]) {
			panic(runtimeError(op, "Expected all models to be of the same class."))
		}
		allParams[i], allBuffers[i] = State(m)
	}
	return stackStates(op, allParams), stackStates(op, allBuffers)
}

func stackStates(op string, states []nn.StateDict) nn.StateDict {
	names := states[0].Names()
	for i, state := range states {
		if got := state.Names(); !slices.Equal(got, names) {
			panic(runtimeError(op, "Expected all models to have the same parameters and buffers; models[0] has %q, and models[%d] has %q", names, i, got))
		}
	}
	stacked := nn.StateDict{}
	for _, name := range names {
		tensors := make([]gotorch.Tensor, len(states))
		for i, state := range states {
			t := state[name]
			if t.RequiresGrad() != states[0][name].RequiresGrad() {
				panic(runtimeError(op, "Expected %s from each model to have the same .requires_grad", name))
			}
			tensors[i] = t
		}
		result := gotorch.Stack(tensors)
		if tensors[0].RequiresGrad() {
			result = result.Detach().RequiresGrad_()
		}
		stacked[name] = result
	}
	return stacked
}

// Merge returns the tensors of several state dicts in one, as Python's functional_call takes several. It
// panics with a ValueError for a name that is in two of them.
func Merge(dicts ...nn.StateDict) nn.StateDict {
	merged := nn.StateDict{}
	for _, dict := range dicts {
		for _, name := range dict.Names() {
			if _, twice := merged[name]; twice {
				panic(valueError("Merge", "[%q] appeared in multiple dictionaries; behavior of functional call is ambiguous", name))
			}
			merged[name] = dict[name]
		}
	}
	return merged
}

// ReplaceAllBatchNormModules_ takes the running statistics away from all batch norms in a module, so that they
// normalise by the batch at hand, in training and in evaluation: a [VMap] cannot keep statistics that are one for
// all elements. It returns the module.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.replace_all_batch_norm_modules_.html
func ReplaceAllBatchNormModules_[M nn.Modular](m M) M {
	if v := reflect.ValueOf(m); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(typeError("ReplaceAllBatchNormModules_", "argument 'm' is nil, where a module is required"))
	}
	for _, within := range m.NamedModules() {
		if norm, ok := within.(interface{ DropRunningStats() }); ok {
			norm.DropRunningStats()
		}
	}
	return m
}
