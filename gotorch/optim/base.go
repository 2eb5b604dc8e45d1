package optim

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Base is what all optimisers have in common: groups of parameters, and what can be done with them. G is the
// type of a group, such as [SGDGroup], and *G knows the rule by which parameters change.
type Base[G any, P interface {
	*G
	rule
}] struct {
	Groups []*G

	op       string // "optim.SGD", for errors
	defaults G      // the options of groups that are not given others
	steps    int64
	hooks    hooks
}

// Common is what all groups have in common.
type Common struct {
	Params []gotorch.Tensor // not to be changed

	memories []memory
	names    []string     // of the parameters; nil: they have none
	extra    gotorch.Dict // what is in state dicts beside the options; see ParamGroup
}

func (c *Common) common() *Common { return c }

// memory is what is remembered of a parameter. Its tensors are those of the rule's slots.
type memory struct {
	steps       int64
	stepsTensor gotorch.Tensor // steps, as a fused kernel wants it
	tensors     []gotorch.Tensor
}

// slot is a tensor that a rule remembers of each parameter.
type slot struct {
	name     string
	begin    func(p gotorch.Tensor) gotorch.Tensor // nil: the rule makes it
	unwanted bool                                  // with the group's options; a state dict may have it all the same
	scalar   bool                                  // it has no dimensions, and not the parameter's shape
	anyDType bool                                  // of a complex parameter it may be of another dtype

	// shape is what it has in place of the parameter's shape, and whether that parameter has it at all; nil:
	// all parameters have it, in their shape.
	shape func(p gotorch.Tensor) ([]int64, bool)
}

// rule is how parameters of a group change. The options are fields of the group with a tag, PyTorch's name
// for them:
//
//	LR float64 `optim:"lr"`
//	_  struct{} `optim:"foreach=None,differentiable=False"` // what Go does not have, for state dicts
type rule interface {
	common() *Common
	// check panics with a ValueError for options that are out of range.
	check(op string)
	slots() []slot
	// step changes the parameters that have a gradient: grads has them, in the places of the parameters, with zero
	// Tensors for none. eachStep does for rules with a function for one.
	step(grads []gotorch.Tensor)
	// counted reports whether a state dict has the number of steps.
	counted() bool
}

// particular is a rule that does not take every gradient. All others take those that are dense.
type particular interface {
	// refuses returns why it cannot do with a gradient of the i-th parameter; "" if it can.
	refuses(i int, grad gotorch.Tensor) string
}

const sparseUnsupported = "sparse gradients are not supported"

// ownState is a rule that remembers something else than tensors of each parameter.
type ownState interface {
	// ownState returns it as it is in state dicts for the i-th parameter; nil for nothing.
	ownState(i int) gotorch.Dict
	// readOwn reads it; nil is nothing.
	readOwn(r *reader, i int, state gotorch.Dict)
}

func zerosLike(p gotorch.Tensor) gotorch.Tensor { return gotorch.ZerosLike(p.Detach()) }

// scalarOf returns a number as it is remembered: a float32 whatever the parameter is, unless numbers are float64 by
// default.
func scalarOf(x float64) gotorch.Tensor {
	dtype := gotorch.Float32
	if gotorch.DefaultDType() == gotorch.Float64 {
		dtype = gotorch.Float64
	}
	return gotorch.Full([]int64{}, x, gotorch.TensorOptions{DType: dtype})
}

// scalarOne is what a number that is remembered as a tensor begins as.
func scalarOne(gotorch.Tensor) gotorch.Tensor { return scalarOf(1) }

// scaleOne multiplies t by a number, as Python's mul_ does: see scale.
func scaleOne(t gotorch.Tensor, by float64) { scale([]gotorch.Tensor{t}, by) }

// begin makes what is remembered of the i-th parameter, where it is not there yet.
func (c *Common) begin(i int, slots []slot) *memory {
	m := &c.memories[i]
	for len(m.tensors) < len(slots) {
		m.tensors = append(m.tensors, gotorch.Tensor{})
	}
	for k, s := range slots {
		if !s.unwanted && s.begin != nil && !m.tensors[k].Defined() {
			m.tensors[k] = remember(func() gotorch.Tensor { return s.begin(c.Params[i]) })
		}
	}
	return m
}

// begun returns what is remembered of the i-th parameter, for another step.
func (c *Common) begun(i int, slots []slot) *memory {
	m := c.begin(i, slots)
	m.steps++
	return m
}

// eachStep is step for a rule that changes one parameter at a time: it gets the parameter, its gradient (the
// negative one where maximize is true) and what is remembered.
func eachStep(r rule, grads []gotorch.Tensor, maximize bool, update func(p, grad gotorch.Tensor, m *memory)) {
	c, slots := r.common(), r.slots()
	for i, p := range c.Params {
		grad := grads[i]
		if !grad.Defined() {
			continue
		}
		if maximize {
			grad = grad.Neg()
		}
		update(p, grad, c.begun(i, slots))
	}
}

// gradients returns the gradients of all parameters, of which some are zero Tensors. It panics with a RuntimeError if
// the rule cannot do with one.
func gradients(op string, r rule) []gotorch.Tensor {
	particular, is := r.(particular)
	params := r.common().Params
	grads := make([]gotorch.Tensor, len(params))
	for i, p := range params {
		grads[i] = p.Grad()
		if !grads[i].Defined() {
			continue
		}
		var why string
		if is {
			why = particular.refuses(i, grads[i])
		} else if grads[i].Layout() != gotorch.Strided {
			why = sparseUnsupported
		}
		if why != "" {
			panic(runtimeError(op, fmt.Sprintf("%s, which parameter %d of its group has", why, i)))
		}
	}
	return grads
}

// decayed returns a gradient with weight decay added to it.
func decayed(grad, p gotorch.Tensor, decay float64) gotorch.Tensor {
	if decay == 0 {
		return grad
	}
	return grad.Add(p, gotorch.AddOptions{Alpha: decay})
}

// parts replaces complex tensors by views of their parts, which are changed each for itself.
func parts(tensors ...*gotorch.Tensor) {
	for _, t := range tensors {
		if t.Defined() && t.DType().IsComplex() {
			*t = gotorch.ViewAsReal(*t)
		}
	}
}

// made has addFirst add the group of a new optimiser, whose options are the defaults of later groups.
func (o *Base[G, P]) made(op string, defaults G, addFirst func()) {
	o.op, o.defaults = op, defaults
	addFirst()
	o.defaults = *o.Groups[0]
	*P(&o.defaults).common() = Common{}
}

// addGroup adds a group with the options that are given, and the defaults for those that are left out.
func (o *Base[G, P]) addGroup(params []gotorch.Tensor, options any) *G {
	if o.op == "" {
		panic(args.Errorf(fmt.Sprintf("%T.AddGroup", P(nil)), gotorch.RuntimeError, "the optimizer was not set up: make it by its constructor"))
	}
	g := o.defaults
	fill(o.op, reflect.ValueOf(&g).Elem(), reflect.ValueOf(options))
	o.add(&g, params)
	return &g
}

// fill sets the fields of a group that options of the same name are given for. A bool is given where it is true; an option
// NoX is that X is false.
func fill(op string, group, options reflect.Value) {
	for i := range options.NumField() {
		name, given := options.Type().Field(i).Name, options.Field(i)
		to := group.FieldByName(name)
		switch given := given.Interface().(type) {
		case bool:
			if !to.IsValid() {
				to, given = group.FieldByName(strings.TrimPrefix(name, "No")), !given
			}
			if !options.Field(i).IsZero() {
				to.SetBool(given)
			}
		case string:
			if given != "" {
				to.SetString(given)
			}
		case [2]gotorch.Scalar:
			for k, s := range given {
				if args.Given(s) {
					to.Index(k).Set(reflect.ValueOf(s))
				}
			}
		case gotorch.Scalar: // or a pointer to several numbers
			switch p := to.Addr().Interface().(type) {
			case *float64:
				*p = args.Float(op, name, given, *p)
			case *int64:
				*p = args.Int(op, name, given, *p)
			default:
				if p := options.Field(i); p.Kind() == reflect.Pointer && !p.IsNil() {
					to.Set(p.Elem())
				}
			}
		}
	}
}

// add checks a group and appends it.
func (o *Base[G, P]) add(g P, params []gotorch.Tensor) {
	c := g.common()
	for _, other := range o.commons() {
		if other.names != nil {
			panic(args.ValueError(o.op, "all optimizer param groups should be with/without names. cannot add param group without names to the optimizer: remove them by optim.NameParams(opt, nil), and name all parameters after AddGroup"))
		}
	}
	c.Params = append([]gotorch.Tensor(nil), params...)
	c.memories = make([]memory, len(params))
	g.check(o.op)
	checkParams(o.op, params, o.commons())
	o.Groups = append(o.Groups, g)
}

func (o *Base[G, P]) commons() []*Common {
	list := make([]*Common, len(o.Groups))
	for i, g := range o.Groups {
		list[i] = P(g).common()
	}
	return list
}

// Step changes the parameters that have a gradient. It panics with a RuntimeError for gradients that the rule cannot
// do with, such as sparse ones; then nothing has changed.
func (o *Base[G, P]) Step() {
	call(o.hooks.beforeStep)
	o.change()
	call(o.hooks.afterStep)
}

// change is Step without hooks.
func (o *Base[G, P]) change() {
	step(func() {
		grads := make([][]gotorch.Tensor, len(o.Groups))
		for n, g := range o.Groups {
			grads[n] = gradients(o.op+".Step", P(g))
		}
		for n, g := range o.Groups {
			P(g).step(grads[n])
		}
	})
	o.steps++
}

// Steps returns how many steps this optimiser has taken. Those before a state dict was saved do not count.
func (o *Base[G, P]) Steps() int64 { return o.steps }

// StepWith computes a loss and its gradients by closure, which zeroes them first, then changes the parameters,
// and returns the loss. Autograd records in closure, also where the caller is in gotorch.NoGrad. It panics with a
// TypeError for a nil closure; if closure panics, nothing has changed.
func (o *Base[G, P]) StepWith(closure func() gotorch.Tensor) (loss gotorch.Tensor) {
	checkClosure(o.op, closure)
	call(o.hooks.beforeStep)
	gotorch.EnableGrad(func() { loss = closure() })
	o.change()
	call(o.hooks.afterStep)
	return loss
}

// checkClosure panics with a TypeError for a closure that is nil.
func checkClosure(op string, closure func() gotorch.Tensor) {
	if closure == nil {
		panic(&gotorch.Error{Op: op + ".StepWith", Kind: gotorch.TypeError, Msg: "the closure is nil, where a function that computes the loss is required"})
	}
}

// ZeroGrad drops the gradients.
func (o *Base[G, P]) ZeroGrad() {
	for _, c := range o.commons() {
		for _, p := range c.Params {
			p.SetGrad(gotorch.Tensor{})
		}
	}
}

// ParamGroups returns the groups, whose options have names in any optimiser.
func (o *Base[G, P]) ParamGroups() []ParamGroup {
	list := make([]ParamGroup, len(o.Groups))
	for i, g := range o.Groups {
		list[i] = ParamGroup{P(g).common(), reflect.ValueOf(g).Elem()}
	}
	return list
}

// LRs returns where the learning rate of each group is, to be read or changed.
func (o *Base[G, P]) LRs() []*float64 {
	var lrs []*float64
	for _, g := range o.ParamGroups() {
		lrs = append(lrs, g.LR())
	}
	return lrs
}

// optionField is a field of a group that is an option, or a constant of state dicts.
type optionField struct {
	index    int // -1: a constant
	name     string
	constant any
	orNone   bool // false is Python's None
}

func optionFields(t reflect.Type) (fields []optionField) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("optim")
		switch {
		case tag == "":
		case f.Name == "_":
			for pair := range strings.SplitSeq(tag, ",") {
				name, value, _ := strings.Cut(pair, "=")
				constant := map[string]any{"None": nil, "False": false, "True": true}[value]
				fields = append(fields, optionField{index: -1, name: name, constant: constant})
			}
		default:
			name, orNone := strings.CutSuffix(tag, "|None")
			fields = append(fields, optionField{index: i, name: name, orNone: orNone})
		}
	}
	return fields
}

// StateDict returns what the optimiser remembers, in PyTorch's form, in which parameters are numbered
// through all groups.
func (o *Base[G, P]) StateDict() gotorch.Dict {
	call(o.hooks.beforeState)
	return changed(o.hooks.afterState, o.state())
}

func (o *Base[G, P]) state() gotorch.Dict {
	var states gotorch.Dict
	var list []any
	number := int64(0)
	for _, g := range o.Groups {
		var numbers []any
		for i := range P(g).common().Params {
			if state := stateOf(P(g), i); state != nil {
				states = append(states, gotorch.DictItem{Key: number, Value: state})
			}
			numbers = append(numbers, number)
			number++
		}
		options := append(optionsOf(g), P(g).common().extra...)
		if names := P(g).common().names; names != nil {
			list := make([]any, len(names))
			for i, name := range names {
				list[i] = name
			}
			options = append(options, gotorch.DictItem{Key: "param_names", Value: list})
		}
		list = append(list, append(options, gotorch.DictItem{Key: "params", Value: numbers}))
	}
	return gotorch.Dict{{Key: "state", Value: states}, {Key: "param_groups", Value: list}}
}

// optionsOf returns all options of a group by PyTorch's names.
func optionsOf(group any) gotorch.Dict {
	var dict gotorch.Dict
	v := reflect.ValueOf(group).Elem()
	for _, f := range optionFields(v.Type()) {
		value := f.constant
		if f.index >= 0 {
			value = v.Field(f.index).Interface()
			switch x := value.(type) {
			case bool:
				if f.orNone && !x {
					value = nil
				}
			case string:
				if f.orNone && x == "" {
					value = nil
				}
			case [2]float64:
				value = gotorch.Tuple{x[0], x[1]}
			case [2]gotorch.Scalar:
				value = gotorch.Tuple{optional(x[0]), optional(x[1])}
			case [3]float64:
				value = gotorch.Tuple{x[0], x[1], x[2]}
			}
		}
		dict = append(dict, gotorch.DictItem{Key: f.name, Value: value})
	}
	return dict
}

// optional returns a number as a float64, or nil for what was not given.
func optional(s gotorch.Scalar) any {
	if p := args.FloatPointer("optim.StateDict", "an option", s); p != nil {
		return *p
	}
	return nil
}

// stateOf returns what is remembered of the i-th parameter, by PyTorch's names; nil for nothing.
func stateOf(r rule, i int) gotorch.Dict {
	if own, ok := r.(ownState); ok {
		return own.ownState(i)
	}
	m := &r.common().memories[i]
	var state gotorch.Dict
	for k, s := range r.slots() {
		if k < len(m.tensors) && m.tensors[k].Defined() {
			state = append(state, gotorch.DictItem{Key: s.name, Value: m.tensors[k]})
		}
	}
	if m.steps == 0 && state == nil || !r.counted() {
		return state // where PyTorch had begun it before the first step, there is state at step 0
	}
	if _, ints := r.(interface{ countedInInts() }); ints {
		return append(gotorch.Dict{{Key: "step", Value: m.steps}}, state...)
	}
	steps := m.stepsTensor
	if !steps.Defined() {
		steps = scalarOf(float64(m.steps))
	}
	return append(gotorch.Dict{{Key: "step", Value: steps}}, state...)
}

// LoadStateDict restores what StateDict, here or in PyTorch, has returned. If it does not fit, it returns a
// *gotorch.Error of kind ValueError and changes nothing.
func (o *Base[G, P]) LoadStateDict(dict gotorch.Dict) error {
	if len(o.hooks.beforeLoad) > 0 {
		dict = changed(o.hooks.beforeLoad, slices.Clone(dict))
	}
	err := o.load(dict)
	if err == nil {
		call(o.hooks.afterLoad)
	}
	return err
}

func (o *Base[G, P]) load(dict gotorch.Dict) error {
	op := o.op + ".LoadStateDict"
	r := &reader{op: op}
	list, ok := dict.Get("param_groups").([]any)
	if !ok {
		return args.ValueError(op, "the state dict has no list 'param_groups'")
	}
	states, ok := dict.Get("state").(gotorch.Dict)
	if !ok { // and not as if nothing were remembered, which training would go on from without a word
		return args.ValueError(op, "the state dict has %T as 'state', where a dict is required", dict.Get("state"))
	}
	byNumber := make(map[any]gotorch.Dict, len(states))
	for key, value := range states.All() {
		state, ok := value.(gotorch.Dict)
		switch key.(type) {
		case int64, string: // names, where a sharded model was saved
		default:
			ok = false
		}
		if !ok {
			return args.ValueError(op, "the state dict has %T as the state of parameter %v, where a dict is required, by a number or name", value, key)
		}
		byNumber[key] = state
	}
	if len(list) != len(o.Groups) {
		return args.ValueError(op, "loaded state dict has a different number of parameter groups: %d, not %d", len(list), len(o.Groups))
	}
	loaded := make([]G, len(o.Groups))
	for n, g := range o.Groups {
		options, _ := list[n].(gotorch.Dict)
		numbers, _ := options.Get("params").([]any)
		params := P(g).common().Params
		if len(numbers) != len(params) {
			return args.ValueError(op, "loaded state dict contains a parameter group that doesn't match the size of optimizer's group: group %d has %d parameters, not %d",
				n, len(numbers), len(params))
		}
		loaded[n] = *g
		r.options(&loaded[n], options)
		if merged, ok := any(&loaded[n]).(interface{ merge(old *G) }); ok {
			merged.merge(g)
		}
		c := P(&loaded[n]).common()
		c.extra = r.extra(reflect.TypeFor[G](), options)
		if names := r.names(options, len(params)); names != nil {
			c.names = names
		}
		c.memories = make([]memory, len(params))
		for i, number := range numbers {
			switch number.(type) {
			case int64, string:
				r.memory(P(&loaded[n]), i, byNumber[number])
			default:
				r.fail("params", number, "a list of numbers or names")
			}
		}
	}
	if r.err != nil {
		return r.err
	}
	for n, g := range o.Groups {
		*g = loaded[n]
	}
	return nil
}

// options reads the options of a group. A bool that is missing is false: some are newer than the file.
func (r *reader) options(group any, dict gotorch.Dict) {
	v := reflect.ValueOf(group).Elem()
	for _, f := range optionFields(v.Type()) {
		if f.index < 0 {
			continue
		}
		switch p := v.Field(f.index).Addr().Interface().(type) {
		case *float64:
			*p = r.float(dict, f.name)
		case *int64:
			*p = r.count(dict, f.name)
		case *bool:
			*p = r.bool(dict, f.name)
		case *string:
			*p = r.text(dict, f.name)
		case *[2]float64:
			r.numbers(dict, f.name, p[:])
		case *[3]float64:
			r.numbers(dict, f.name, p[:])
		case *[2]gotorch.Scalar:
			r.optionalNumbers(dict, f.name, p[:])
		default:
			panic(fmt.Sprintf("optim: an option of type %T", p))
		}
	}
}

// memory reads what is remembered of the i-th parameter; nil is nothing.
func (r *reader) memory(of rule, i int, state gotorch.Dict) {
	if own, ok := of.(ownState); ok {
		own.readOwn(r, i, state)
		return
	}
	if state == nil {
		return
	}
	c := of.common()
	m, slots := &c.memories[i], of.slots()
	if of.counted() {
		m.steps = r.count(state, "step")
	}
	m.tensors = make([]gotorch.Tensor, len(slots))
	for k, s := range slots {
		if state.Get(s.name) == nil && (s.unwanted || s.begin == nil) {
			continue
		}
		shape := c.Params[i].Shape()
		if s.shape != nil {
			size, has := s.shape(c.Params[i])
			if !has {
				continue
			}
			shape = size
		}
		m.tensors[k] = r.like(state, s.name, c.Params[i], shape, s)
	}
}
