// Package modes keeps which modules of a model are in training mode.
package modes

import "gotorch.dev/gotorch/nn"

// Keep returns a function that puts every module of model back into the mode that it is in now, also those within a
// model of another mode: a layer that is frozen by Eval, say.
func Keep(model nn.Modular) (restore func()) {
	type kept struct {
		module   nn.Modular
		training bool
	}
	var all []kept
	for _, m := range model.NamedModules() {
		all = append(all, kept{m, m.Training()})
	}
	return func() {
		for _, k := range all { // from the outside in: Train goes inwards
			if k.module.Training() != k.training {
				k.module.Train(k.training)
			}
		}
	}
}
