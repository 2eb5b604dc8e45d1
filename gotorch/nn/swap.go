package nn

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/door"
)

// What functorch.FunctionalCall and distributed.FullyShard need.

func init() {
	door.SwapTensors = swapTensors
	door.AllParameters = func(m Modular) iter.Seq2[string, gotorch.Tensor] {
		return func(yield func(string, gotorch.Tensor) bool) {
			for name, p := range bind(m).places(false, parameter) {
				if !yield(name, *p.tensor) {
					return
				}
			}
		}
	}
}

// swapTensors puts tensors in the place of m's parameters and buffers of those names, until restore is
// called. With tie, one that m has under several names is replaced under all. It changes nothing where it
// panics.
func swapTensors(m Modular, tensors StateDict, strict, tie bool) (restore func()) {
	const op = "FunctionalCall"
	places := map[string]place{}
	names := map[uintptr][]string{} // of each tensor
	for name, p := range bind(m).places(false, parameter, buffer, transient) {
		places[name] = p
		if handle := uintptr(*p.tensor.T); handle != 0 {
			names[handle] = append(names[handle], name)
		}
	}
	with := maps.Clone(tensors)
	for _, tied := range names {
		if !tie || len(tied) == 1 {
			continue
		}
		var given gotorch.Tensor
		for _, name := range tied {
			t, ok := tensors[name]
			if ok && given.T != nil && *t.T != *given.T {
				slices.Sort(tied)
				panic(args.ValueError(op, "functional_call got multiple values for keys [%s], which are tied. Consider using NoTieWeights", strings.Join(tied, ", ")))
			}
			if ok {
				given = t
			}
		}
		if given.T != nil {
			for _, name := range tied {
				with[name] = given
			}
		}
	}
	if strict {
		checkSwap(op, m, places, with)
	}
	type former struct {
		place place
		was   gotorch.Tensor
	}
	var all []former
	for _, name := range with.Names() {
		if p, ok := places[name]; ok {
			all = append(all, former{p, *p.tensor})
			p.set(with[name])
		}
	}
	return func() {
		for _, f := range slices.Backward(all) {
			f.place.set(f.was)
		}
	}
}

// set is put for a tensor that stands in for a while, and is no parameter.
func (p place) set(t gotorch.Tensor) {
	*p.tensor = t
	if p.store != nil {
		p.store()
	}
}

func checkSwap(op string, m Modular, places map[string]place, with StateDict) {
	var missing, unexpected []string
	for _, name := range slices.Sorted(maps.Keys(places)) {
		if _, ok := with[name]; !ok {
			missing = append(missing, name)
		}
	}
	for _, name := range with.Names() {
		if _, ok := places[name]; !ok {
			unexpected = append(unexpected, name)
		}
	}
	if len(missing)+len(unexpected) == 0 {
		return
	}
	text := "Error(s) in reparametrizing for " + className(m) + ":"
	if len(unexpected) > 0 {
		text += " Unexpected key(s): " + quoted(unexpected) + "."
	}
	if len(missing) > 0 {
		text += " Missing key(s): " + quoted(missing) + "."
	}
	panic(&gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: text})
}
