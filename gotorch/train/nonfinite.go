package train

import (
	"fmt"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/finite"
	"gotorch.dev/gotorch/nn"
)

// StopAtNonFinite ends a run with a [*NonFiniteError] where a loss or a gradient is infinite or NaN, before the
// optimiser changes anything: parameters, the optimiser's state, buffers and random numbers are as before the step,
// and there are no gradients. Gradients are looked at after the hooks of [Loop.OnBackward].
//
// Of a loop by [NewLossLoop], whose loss is the program's own, it does not say which module it was.
//
// It is off by default: every step then copies the model's buffers, and waits for a device that works by itself.
func (l *LoopOf[B]) StopAtNonFinite() {
	l.automatic("StopAtNonFinite")
	l.finite = true
}

// NonFinitePart says what was not finite first.
type NonFinitePart string

const (
	NonFiniteInput     NonFinitePart = "input"     // the batch's input
	NonFiniteTarget    NonFinitePart = "target"    // the batch's target
	NonFiniteParameter NonFinitePart = "parameter" // a parameter, before the step
	NonFiniteModule    NonFinitePart = "module"    // what a module returned, though what it was given was finite
	NonFiniteLoss      NonFinitePart = "loss"      // the loss, though what the model returned was finite
	NonFiniteGradient  NonFinitePart = "gradient"  // the gradient of a parameter, though the loss was finite
)

// NonFiniteError is the error of a run that [Loop.StopAtNonFinite] has ended.
type NonFiniteError struct {
	Epoch, Step int // from 1; the step was not done
	Loss        float64
	Part        NonFinitePart
	Name        string   // of the module or parameter, as NamedModules and NamedParameters have it
	Class       string   // of the module, "BatchNorm2d"
	Gradients   []string // all parameters whose gradients are not finite
}

// Error says at which step, and what was not finite first.
func (e *NonFiniteError) Error() string {
	where := ""
	switch e.Part {
	case NonFiniteInput, NonFiniteTarget:
		where = "the batch's " + string(e.Part) + " is not finite"
	case NonFiniteParameter:
		where = fmt.Sprintf("the parameter %q was not finite before", e.Name)
	case NonFiniteModule:
		where = fmt.Sprintf("the first module to return what is not finite is %q, a %s", e.Name, e.Class)
		if e.Name == "" {
			where = fmt.Sprintf("what the model, a %s, returns is not finite, and no module within is the cause", e.Class)
		}
	case NonFiniteLoss:
		where = "what the model returns is finite, and its loss is not"
	case NonFiniteGradient:
		names := e.Gradients
		if len(names) > 5 {
			names = append(names[:5:5], fmt.Sprintf("and %d more", len(names)-5))
		}
		return fmt.Sprintf("step %d: gradients are not finite, of %s; the loss is %v", e.Step, strings.Join(names, ", "), e.Loss)
	}
	return fmt.Sprintf("step %d: the loss is %v: %s", e.Step, e.Loss, where)
}

// checkLoss returns an error if the loss is not finite, with what made it so.
func (r *run[B]) checkLoss(loss gotorch.Tensor, restore func()) *NonFiniteError {
	if finite.All(loss) {
		return nil
	}
	s := &r.step
	e := &NonFiniteError{Epoch: s.Epoch, Step: s.Number + 1, Loss: valueOf(loss), Part: NonFiniteLoss}
	restore()
	if name, is := nonFiniteParameter(r.model); is {
		e.Part, e.Name = NonFiniteParameter, name
		return e
	}
	batch, paired := any(s.Batch).(data.Pair)
	if !paired || r.pairLoss == nil {
		return e
	}
	switch {
	case !finite.All(batch.Input):
		e.Part = NonFiniteInput
		return e
	case !finite.All(batch.Target):
		e.Part = NonFiniteTarget
		return e
	}
	// The same once more, with a copy of the model that is watched.
	name, class, found := nn.FirstNonFinite(r.model, func(copied nn.Modular) { nn.Call(copied.(nn.Layer), batch.Input) })
	if found {
		e.Part, e.Name, e.Class = NonFiniteModule, name, class
	}
	return e
}

// nonFiniteParameter returns the name of the first parameter that is not finite.
func nonFiniteParameter(model nn.Modular) (name string, found bool) {
	for name, p := range model.NamedParameters() {
		if !finite.All(p) {
			return name, true
		}
	}
	return "", false
}

func valueOf(loss gotorch.Tensor) float64 { return gotorch.Item[float64](loss.Detach().Sum()) }

// checkGradients returns an error if a gradient is not finite.
func (r *run[B]) checkGradients(loss gotorch.Tensor) *NonFiniteError {
	var names []string
	for name, p := range r.model.NamedParameters() {
		if grad := p.Grad(); grad.Defined() && !finite.All(grad) {
			names = append(names, name)
		}
	}
	if names == nil {
		return nil
	}
	return &NonFiniteError{Epoch: r.step.Epoch, Step: r.step.Number, Loss: valueOf(loss), Part: NonFiniteGradient, Name: names[0], Gradients: names}
}
