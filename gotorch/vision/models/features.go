package models

import (
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
)

// FeatureExtractor computes what layers within a model return: see [Features].
type FeatureExtractor struct {
	Model nn.Layer
	names []string
}

// Features returns what computes the results of the layers of the given names, as [nn.Module.NamedModules] has
// them, "layer3" or "layer4.1.conv2". The model is not changed, and its weights are the model's own. It panics with a
// ValueError if a name is given twice or none is, with an AttributeError if the model has no such layer, and with a
// TypeError if the model is nil.
//
//	maps := models.Features(model, "layer3", "layer4").Forward(images) // maps[0] is layer3's
//
// See https://docs.pytorch.org/vision/stable/feature_extraction.html.
func Features(model nn.Layer, names ...string) *FeatureExtractor {
	const op = "models.Features"
	if model == nil {
		panic(args.TypeError(op, "the model is nil, where a layer is required"))
	}
	if len(names) == 0 {
		panic(args.ValueError(op, "there must be a name of a layer at least"))
	}
	f := &FeatureExtractor{Model: model, names: slices.Clone(names)}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			panic(args.ValueError(op, "the name %q is given twice", name))
		}
		f.part(name)
	}
	return f
}

// part returns the module of a name.
func (f *FeatureExtractor) part(name string) interface {
	RegisterForwardHook(fn nn.ForwardHook) *nn.HookHandle
} {
	for n, m := range f.Model.NamedModules() {
		if n == name {
			if m, ok := m.(interface {
				RegisterForwardHook(fn nn.ForwardHook) *nn.HookHandle
			}); ok {
				return m
			}
		}
	}
	panic(args.Errorf("models.Features", gotorch.AttributeError, "%T has no layer %q", f.Model, name))
}

// enough ends a call of the model when everything wanted is there.
type enough struct{ of *FeatureExtractor }

// Forward calls the model and returns what its layers have returned, in the order of their names; of a layer that
// is called several times it is the first result, of one that returns several tensors the first. What comes behind
// the last of these layers is not computed. It panics with a RuntimeError if the model does not call one of the
// layers. As the layers get hooks for the time of the call, one goroutine may call it at a time.
func (f *FeatureExtractor) Forward(x gotorch.Tensor) []gotorch.Tensor {
	found := make([]gotorch.Tensor, len(f.names))
	missing := len(f.names)
	for i, name := range f.names {
		defer f.part(name).RegisterForwardHook(func(_ nn.Modular, _, outputs []gotorch.Tensor) []gotorch.Tensor {
			if found[i].T == nil && len(outputs) > 0 {
				found[i] = outputs[0]
				if missing--; missing == 0 {
					panic(enough{f})
				}
			}
			return nil
		}).Remove()
	}
	func() {
		defer func() {
			if missing > 0 {
				return // whatever it is goes on
			}
			if p := recover(); p != nil && p != any(enough{f}) {
				panic(p)
			}
		}()
		nn.Call(f.Model, x)
	}()
	for i, t := range found {
		if t.T == nil {
			panic(args.Errorf("models.Features", gotorch.RuntimeError, "the model does not call its layer %q", f.names[i]))
		}
	}
	return found
}
