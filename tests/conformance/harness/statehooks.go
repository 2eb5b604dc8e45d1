package main

import (
	"fmt"
	"reflect"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
)

// specialStateHooks makes a model, has hooks do what Python says, and saves and loads its state.
const specialStateHooks = -51

// remembering is a module with more state than its tensors.
type remembering struct {
	nn.Module
	Weight gotorch.Tensor
	Inner  *nn.LinearModule
	extra  gotorch.Tensor `nn:"-"`
}

func (r *remembering) GetExtraState() gotorch.Tensor { return r.extra }
func (r *remembering) SetExtraState(t gotorch.Tensor) error {
	if t.Numel() > 2 {
		return &gotorch.Error{Op: "SetExtraState", Kind: gotorch.ValueError, Msg: "too much"}
	}
	gotorch.Unscoped(func() { r.extra = t.Clone() })
	return nil
}

type stateModel struct {
	nn.Module
	Stem    *nn.LinearModule
	Norm    *nn.BatchNorm1dModule
	Blocks  []nn.Modular
	Special *remembering
}

// runStateHooks reads actions, "kind prefix what name", and the state dict to be loaded. It returns the calls of
// hooks, the names that were saved, what was missing and unexpected, the error, and the state afterwards.
func runStateHooks(in *reader) []reflect.Value {
	actions := in.value(reflect.TypeFor[[]string]()).Interface().([]string)
	names := in.value(reflect.TypeFor[[]string]()).Interface().([]string)
	tensors := in.value(reflect.TypeFor[[]gotorch.Tensor]()).Interface().([]gotorch.Tensor)
	partial := in.next() != 0
	zeros := nn.LinearOptions{NoBias: true}
	special := nn.Init(&remembering{Weight: gotorch.Zeros([]int64{2}), Inner: nn.Linear(1, 2, zeros), extra: gotorch.Zeros([]int64{1})})
	model := nn.Init(&stateModel{Stem: nn.Linear(2, 3), Norm: nn.BatchNorm1d(3),
		Blocks: []nn.Modular{nn.Linear(3, 3, zeros), nn.Sequential(nn.Linear(3, 1), nn.ReLU())}, Special: special})
	gotorch.NoGrad(func() {
		for _, p := range model.Parameters() {
			p.Zero_()
		}
	})
	var log []string
	say := func(kind, prefix string, names []string) {
		log = append(log, kind+" "+prefix+": "+strings.Join(names, " "))
	}
	each := func(kind, prefix string, do func(what, name string)) {
		for _, action := range actions {
			var k, p, what, name string
			fmt.Sscanf(strings.ReplaceAll(action, "|", " "), "%s %s %s %s", &k, &p, &what, &name)
			if k == kind && p == prefix+"." {
				do(what, name)
			}
		}
	}
	change := func(kind string, dict nn.StateDict, prefix string) {
		say(kind, prefix, dict.Names())
		each(kind, prefix, func(what, name string) {
			switch what {
			case "drop":
				delete(dict, name)
			case "add":
				dict[name] = gotorch.Zeros([]int64{1})
			case "ones":
				if t, ok := dict[name]; ok {
					dict[name] = gotorch.OnesLike(t)
				}
			}
		})
	}
	for name, m := range model.NamedModules() {
		of := m.(interface {
			RegisterStateDictPreHook(nn.StateDictPreHook) *nn.HookHandle
			RegisterStateDictPostHook(nn.StateDictPostHook) *nn.HookHandle
			RegisterLoadStateDictPreHook(nn.LoadStateDictPreHook) *nn.HookHandle
			RegisterLoadStateDictPostHook(nn.LoadStateDictPostHook) *nn.HookHandle
		})
		of.RegisterStateDictPreHook(func(_ nn.Modular, prefix string) { say("save_pre", prefix, nil) })
		of.RegisterStateDictPostHook(func(_ nn.Modular, dict nn.StateDict, prefix string) { change("save_post", dict, prefix) })
		of.RegisterLoadStateDictPreHook(func(_ nn.Modular, dict nn.StateDict, prefix string) { change("load_pre", dict, prefix) })
		of.RegisterLoadStateDictPostHook(func(_ nn.Modular, keys *nn.IncompatibleKeys) {
			prefix := name
			if prefix != "" {
				prefix += "."
			}
			sum := 0.0
			for _, t := range model.NamedParameters() {
				sum += gotorch.Item[float64](t.Detach().Sum())
			}
			say("load_post", prefix, append(append([]string{fmt.Sprintf("%.0f", sum)}, keys.Missing...), keys.Unexpected...))
			each("load_post", prefix, func(what, name string) {
				switch what {
				case "drop":
					keys.Missing, keys.Unexpected = nil, nil
				case "add":
					keys.Unexpected = append(keys.Unexpected, name)
				}
			})
		})
	}
	saved := model.StateDict().Names()
	dict := nn.StateDict{}
	for i, name := range names {
		dict[name] = tensors[i]
	}
	var report nn.LoadReport
	text := ""
	if err := model.LoadStateDict(dict, nn.LoadOptions{Partial: partial, Report: &report}); err != nil {
		text = err.Error()
	}
	var after []string
	var values []gotorch.Tensor
	log = append(log, "end")
	for _, parts := range []func(func(string, gotorch.Tensor) bool){model.NamedParameters(), model.NamedBuffers()} {
		for name, t := range parts {
			after, values = append(after, name), append(values, t.Detach().Clone())
		}
	}
	after, values = append(after, "extra"), append(values, special.extra.Clone())
	result := []reflect.Value{}
	for _, v := range []any{log, saved, report.Missing, report.Unexpected, text, after, values} {
		result = append(result, reflect.ValueOf(v))
	}
	return result
}
