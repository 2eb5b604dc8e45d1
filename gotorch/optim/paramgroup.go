package optim

import (
	"fmt"
	"iter"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ParamGroup is a group of parameters of any optimiser, whose numbers have PyTorch's names: "lr", "weight_decay".
// Beside the options it keeps what schedules set, such as "initial_lr", which is in state dicts too, as in Python
// a group is a dict with whatever was put into it. [ParamGroupOf] makes one for an optimiser of a program's own.
type ParamGroup struct {
	common *Common
	group  reflect.Value // a struct
}

// Params returns the parameters of the group.
func (g ParamGroup) Params() []gotorch.Tensor {
	if g.common == nil {
		return nil // the zero ParamGroup
	}
	return append([]gotorch.Tensor(nil), g.common.Params...)
}

// Names returns the names of the group's parameters, in the same order; nil where they have none. See [NameParams].
func (g ParamGroup) Names() []string {
	if g.common == nil {
		return nil
	}
	return append([]string(nil), g.common.names...)
}

// NameParams gives all parameters of an optimiser their names, which are in its state dicts then, as where Python's is made
// with named_parameters():
//
//	opt := optim.AdamW(net.Parameters())
//	optim.NameParams(opt, net.NamedParameters())
//
// named may have other tensors, too. A state dict with names that is loaded replaces them. AddGroup panics for an optimiser
// with names: nil in place of named removes them before it, and all parameters may get their names after it. NameParams
// panics with a ValueError, and changes nothing, where a parameter has no name, and with a TypeError for a nil optimiser.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.state_dict.html
func NameParams(o Optimizer, named iter.Seq2[string, gotorch.Tensor]) {
	const op = "optim.NameParams"
	groups := groupsOf(op, o)
	if named == nil {
		for _, g := range groups {
			g.common.names = nil
		}
		return
	}
	names := map[uintptr]string{}
	for name, t := range named {
		if t.Defined() {
			names[uintptr(*t.T)] = name
		}
	}
	of := make([][]string, len(groups))
	for n, g := range groups {
		of[n] = []string{} // also of a group without parameters
		for i, p := range g.common.Params {
			name, known := "", false
			if p.Defined() {
				name, known = names[uintptr(*p.T)]
			}
			if !known {
				panic(args.ValueError(op, "all optimizer params should be with/without names. Some param names are missing: that of parameter %d of group %d", i, n))
			}
			of[n] = append(of[n], name)
		}
	}
	for n, g := range groups {
		g.common.names = of[n]
	}
}

// names reads the names of a group's parameters; nil where there are none.
func (r *reader) names(dict gotorch.Dict, n int) []string {
	value, given := any(nil), false
	for _, item := range dict {
		if item.Key == "param_names" {
			value, given = item.Value, true
		}
	}
	if !given {
		return nil
	}
	list, _ := value.([]any)
	names := make([]string, len(list))
	for i, item := range list {
		name, is := item.(string)
		if !is {
			list = nil
			break
		}
		names[i] = name
	}
	if len(list) != n {
		r.fail("param_names", value, fmt.Sprintf("a list of %d names", n))
		return nil
	}
	return names
}

// LR returns where the learning rate is, to be read or changed.
func (g ParamGroup) LR() *float64 { return g.number("lr") }

// Momentum returns where the momentum is, to be read or changed: the option "momentum", or where "betas" are, the
// first of them. It is nil for a rule that has none.
func (g ParamGroup) Momentum() *float64 {
	if g.common == nil {
		return nil
	}
	for _, f := range optionFields(g.group.Type()) {
		if f.index < 0 {
			continue
		}
		switch p := g.group.Field(f.index).Addr().Interface().(type) {
		case *float64:
			if f.name == "momentum" {
				return p
			}
		case *[2]float64:
			if f.name == "betas" {
				return &p[0]
			}
		}
	}
	return nil
}

// number returns where the option of a name is; nil if there is none, or if it is no float.
func (g ParamGroup) number(name string) *float64 {
	if g.common == nil {
		return nil
	}
	for _, f := range optionFields(g.group.Type()) {
		if f.name == name && f.index >= 0 {
			p, _ := g.group.Field(f.index).Addr().Interface().(*float64)
			return p
		}
	}
	return nil
}

// Get returns the number of a name: an option, or what [ParamGroup.Set] has kept. It reports false if there is none.
func (g ParamGroup) Get(name string) (float64, bool) {
	if p := g.number(name); p != nil {
		return *p, true
	}
	if g.common == nil {
		return 0, false
	}
	switch v := g.common.extra.Get(name).(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	}
	return 0, false
}

// Set changes the option of a name, or keeps a number under it beside the options. It panics with a ValueError for
// the name of an option that is no float, such as "betas" or "nesterov", and for the zero ParamGroup.
func (g ParamGroup) Set(name string, value float64) {
	if g.common == nil {
		panic(args.ValueError("optim.ParamGroup.Set", "the group is of no optimiser: take it of ParamGroups, or make it by optim.ParamGroupOf"))
	}
	if p := g.number(name); p != nil {
		*p = value
		return
	}
	if isOption(g.group.Type(), name) {
		panic(args.ValueError("optim.ParamGroup.Set", "the option '%s' is no float: change it in Groups of the optimiser", name))
	}
	for i, item := range g.common.extra {
		if item.Key == name {
			g.common.extra[i].Value = value
			return
		}
	}
	g.common.extra = append(g.common.extra, gotorch.DictItem{Key: name, Value: value})
}

// isOption reports whether a group's state dict has a name by itself.
func isOption(group reflect.Type, name string) bool {
	if name == "params" || name == "param_names" {
		return true
	}
	for _, f := range optionFields(group) {
		if f.name == name {
			return true
		}
	}
	return false
}

// extra returns what a state dict has of a group beside its options: numbers, bools, texts and None. A number in a
// tensor, as where Python has the learning rate in one, is a number.
func (r *reader) extra(group reflect.Type, dict gotorch.Dict) (extra gotorch.Dict) {
	for _, item := range dict {
		name, ok := item.Key.(string)
		if !ok || isOption(group, name) {
			continue
		}
		switch v := item.Value.(type) {
		case gotorch.Tensor:
			if v.Defined() && v.Numel() == 1 && !v.DType().IsComplex() {
				extra = append(extra, gotorch.DictItem{Key: name, Value: r.float(dict, name)})
			}
		case float64, int64, bool, string, nil:
			extra = append(extra, item)
		}
	}
	return extra
}

// Snapshot returns a function that makes the options of the group, and what is kept beside them, what they are now.
// Parameters and what is remembered of them are not touched.
func (g ParamGroup) Snapshot() (restore func()) {
	if g.common == nil {
		return func() {}
	}
	type option struct {
		index int
		value reflect.Value
	}
	var options []option
	for _, f := range optionFields(g.group.Type()) {
		if f.index >= 0 {
			value := reflect.New(g.group.Field(f.index).Type()).Elem()
			value.Set(g.group.Field(f.index))
			options = append(options, option{f.index, value})
		}
	}
	extra := append(gotorch.Dict(nil), g.common.extra...)
	return func() {
		for _, o := range options {
			g.group.Field(o.index).Set(o.value)
		}
		g.common.extra = extra
	}
}
