package nn

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// AllNamedParameters yields m's parameters under all of their names, as Python's named_parameters with remove_duplicate=False:
// one that several modules share comes with a name for each.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.named_parameters.
func AllNamedParameters(m Modular) iter.Seq2[string, gotorch.Tensor] {
	return func(yield func(string, gotorch.Tensor) bool) {
		for name, p := range bind(m).places(false, parameter) {
			if !yield(name, *p.tensor) {
				return
			}
		}
	}
}

// SwapOptions are the arguments of [SwapTensors] that have defaults.
type SwapOptions struct {
	Strict       bool // all parameters and buffers must be given, and no other names
	NoTieWeights bool // a tensor that m has under several names is replaced under those that are given alone
}

// SwapTensors puts tensors in the place of m's parameters and buffers of those names, until restore is called: what
// functorch.FunctionalCall does for one call. One that m has under several names is replaced under all. It panics with a ValueError
// where different tensors are given for one, and for Strict with a RuntimeError; it changes nothing then.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html
func SwapTensors(m Modular, tensors StateDict, opts ...SwapOptions) (restore func()) {
	const op = "FunctionalCall"
	opt := args.Option(opts)
	strict, tie := opt.Strict, !opt.NoTieWeights
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
