package optim

import (
	"fmt"
	"reflect"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// CustomOptimizer is what [Custom] makes: an optimiser with a program's own rule.
type CustomOptimizer[G any, P CustomRule[G]] struct{ Base[G, P] }

// CustomRule is a pointer to the struct of a group that embeds [CustomGroup] and has a method Update.
type CustomRule[G any] interface {
	*G
	rule
	custom() *CustomGroup
	// Update changes the parameter p by its gradient. It runs without grad mode, in a scope: what it makes is freed when
	// the step ends, and what is to last is in state.
	Update(p, grad gotorch.Tensor, state *ParamState)
}

// CustomGroup is embedded in the groups of an optimiser made by [Custom].
type CustomGroup struct {
	Common

	update func(p, grad gotorch.Tensor, state *ParamState)
	states []*ParamState
}

// ParamState is what an optimiser of [Custom] remembers of one parameter, as state[p] is in Python.
type ParamState struct {
	p       gotorch.Tensor
	steps   int64
	tensors gotorch.Dict
}

// Steps returns how many steps the parameter has taken, the present one included.
func (s *ParamState) Steps() int64 { return s.steps }

// Tensor returns the tensor of a name, to be changed in place. The first time begin makes it, from the parameter.
func (s *ParamState) Tensor(name string, begin func(p gotorch.Tensor) gotorch.Tensor) gotorch.Tensor {
	if t, is := s.tensors.Get(name).(gotorch.Tensor); is {
		return t
	}
	if name == "step" || begin == nil {
		panic(args.ValueError("optim.ParamState.Tensor", "a name other than 'step' and a function that makes the tensor are required, not %q", name))
	}
	t := remember(func() gotorch.Tensor { return begin(s.p.Detach()) })
	s.tensors = append(s.tensors, gotorch.DictItem{Key: name, Value: t})
	return t
}

// Custom makes an optimiser with a rule of one's own, as a subclass of Python's Optimizer is. Its groups are structs that
// embed [CustomGroup]; the fields with a tag are the options, by the names that they have in state dicts:
//
//	type signGroup struct {
//		optim.CustomGroup
//		LR float64 `optim:"lr"`
//	}
//
//	func (g *signGroup) Update(p, grad gotorch.Tensor, state *optim.ParamState) {
//		p.Add_(grad.Sign(), gotorch.AddOptions{Alpha: -g.LR})
//	}
//
//	opt := optim.Custom(model.Parameters(), signGroup{LR: 0.01})
//
// An option is a bool, a string, an int64, a float64, a [2]float64 or a [3]float64. One of them is "lr", a float64, which
// schedules change; Momentum of [ParamGroup] is the float64 "momentum" or the first of "betas". The optimiser has
// everything else that those of this package have. Step panics with a RuntimeError for sparse gradients. A state dict of an
// optimiser in Python that does not count its steps has no "step": they are then counted from 0.
//
// Custom panics with a ValueError if params is empty, or if a parameter is the result of a computation or comes twice, and
// with a TypeError for a group without "lr", or with an option of another type.
//
// See https://docs.pytorch.org/docs/stable/optim.html#torch.optim.Optimizer.
func Custom[G any, P CustomRule[G]](params []gotorch.Tensor, defaults G) *CustomOptimizer[G, P] {
	o := &CustomOptimizer[G, P]{}
	t := reflect.TypeFor[G]()
	checkOptions("optim.Custom", t)
	o.made(strings.TrimSuffix(t.String(), "Group"), defaults, func() { o.AddGroup(params) })
	return o
}

// AddGroup adds parameters and returns their group, which has the options that the optimiser was made with, to be changed. It
// panics as [Custom] does, but params may be empty.
func (o *CustomOptimizer[G, P]) AddGroup(params []gotorch.Tensor) *G {
	g := o.addGroup(params, struct{}{})
	P(g).custom().update = P(g).Update
	return g
}

//lint:ignore U1000 Custom's constraint asks for it
func (c *CustomGroup) custom() *CustomGroup { return c }

func (c *CustomGroup) check(string) {}

func (c *CustomGroup) slots() []slot { return nil }

func (c *CustomGroup) counted() bool { return false } // the steps are in the own state

func (c *CustomGroup) state(i int) *ParamState {
	if c.states == nil {
		c.states = make([]*ParamState, len(c.Params))
	}
	if c.states[i] == nil {
		c.states[i] = &ParamState{p: c.Params[i]}
	}
	return c.states[i]
}

func (c *CustomGroup) step(grads []gotorch.Tensor) {
	for i, p := range c.Params {
		if grads[i].Defined() {
			s := c.state(i)
			s.steps++
			c.update(p, grads[i], s)
		}
	}
}

func (c *CustomGroup) ownState(i int) gotorch.Dict {
	if s := c.state(i); s.steps > 0 || len(s.tensors) > 0 {
		return append(gotorch.Dict{{Key: "step", Value: s.steps}}, s.tensors...)
	}
	return nil
}

func (c *CustomGroup) readOwn(r *reader, i int, state gotorch.Dict) {
	if i == 0 {
		c.states = nil // those before are another group's, of which this one is a copy
	}
	if state == nil {
		return
	}
	s := c.state(i)
	for _, item := range state {
		if item.Key == "step" {
			s.steps = r.count(state, "step")
		}
	}
	for _, item := range state {
		if name, is := item.Key.(string); !is {
			r.keep(args.ValueError(r.op, "the state dict has %v in the state of a parameter, where a name is required", item.Key))
		} else if name != "step" {
			var shape []int64
			if t, is := item.Value.(gotorch.Tensor); is && t.Defined() {
				shape = t.Shape() // which only the rule knows
			}
			s.tensors = append(s.tensors, gotorch.DictItem{Key: name, Value: r.like(state, name, c.Params[i], shape, slot{anyDType: true})})
		}
	}
}

// ParamGroupOf returns the [ParamGroup] of a pointer to a struct that embeds [Common] and has options as those of [Custom], for
// the method ParamGroups of an [Optimizer] that is written from nothing. It panics with a TypeError for anything else.
func ParamGroupOf(group interface{ common() *Common }) ParamGroup {
	const op = "optim.ParamGroupOf"
	v := reflect.ValueOf(group)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		panic(args.TypeError(op, "a pointer to a struct that embeds optim.Common is required, not %T", group))
	}
	checkOptions(op, v.Type().Elem())
	return ParamGroup{group.common(), v.Elem()}
}

// checkOptions panics with a TypeError for the type of a group whose options cannot be read, or that has no learning rate.
func checkOptions(op string, t reflect.Type) {
	lr := false
	for _, f := range optionFields(t) {
		if f.index < 0 {
			continue
		}
		field := t.Field(f.index)
		switch reflect.Zero(field.Type).Interface().(type) {
		case bool, string, int64, float64, [2]float64, [3]float64:
		default:
			panic(args.TypeError(op, "the option %s of %v is of type %v, which no option is", field.Name, t, field.Type))
		}
		if !field.IsExported() {
			panic(args.TypeError(op, "the option %s of %v is not exported", field.Name, t))
		}
		lr = lr || f.name == "lr" && field.Type == reflect.TypeFor[float64]()
	}
	if !lr {
		panic(args.TypeError(op, "%v has no field of type float64 with the tag %s", t, fmt.Sprintf("`optim:%q`", "lr")))
	}
}

// groupsOf returns the groups of an optimiser, which is to be told apart from others. It panics with a TypeError for one that
// is nil or no pointer.
func groupsOf(op string, opt Optimizer) []ParamGroup {
	if opt == nil || !reflect.TypeOf(opt).Comparable() {
		panic(args.TypeError(op, "a pointer to an optimiser is required, not %T", opt))
	}
	groups := opt.ParamGroups()
	for i, g := range groups {
		if g.common == nil {
			panic(args.ValueError(op, "parameter group %d of the %T is empty: make it by optim.ParamGroupOf", i, opt))
		}
	}
	return groups
}
