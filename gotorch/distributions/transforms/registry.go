package transforms

import (
	"reflect"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/internal/numeric"
)

// registry knows for types of constraints how transforms into them are made.
type registry struct {
	mutex sync.RWMutex
	known map[reflect.Type]func(constraints.Constraint) Transform
}

var (
	bijections = registry{known: map[reflect.Type]func(constraints.Constraint) Transform{}}
	maps       = registry{known: map[reflect.Type]func(constraints.Constraint) Transform{}}
)

func register[C constraints.Constraint](r *registry, factory func(C) Transform) {
	if factory == nil {
		panic(numeric.Errorf("transforms.Register", gotorch.TypeError, "the factory is nil"))
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.known[reflect.TypeFor[C]()] = func(c constraints.Constraint) Transform { return factory(c.(C)) }
}

func (r *registry) find(op string, c constraints.Constraint) Transform {
	if numeric.IsNil(c) {
		panic(numeric.Errorf(op, gotorch.TypeError, "the constraint is nil"))
	}
	r.mutex.RLock()
	factory, ok := r.known[reflect.TypeOf(c)]
	r.mutex.RUnlock()
	if !ok {
		panic(numeric.Errorf(op, gotorch.NotImplementedError, "Cannot transform %s constraints", constraints.ClassName(c)))
	}
	return factory(c)
}

// BijectTo returns a bijective transform from the real numbers into c, whose LogAbsDetJacobian is there: for
// Hamiltonian Monte Carlo, for instance. It panics with a NotImplementedError where none is registered.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraint_registry.
func BijectTo(c constraints.Constraint) Transform {
	return bijections.find("transforms.BijectTo", c)
}

// TransformTo returns a transform from the real numbers into c, which need not be bijective and may so be cheaper
// or better behaved: for parameters that are learned. It panics with a NotImplementedError where none is
// registered.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraint_registry.
func TransformTo(c constraints.Constraint) Transform { return maps.find("transforms.TransformTo", c) }

// RegisterBijectTo has [BijectTo] call factory for constraints of type C. What was registered before is replaced.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraint_registry.
func RegisterBijectTo[C constraints.Constraint](factory func(C) Transform) {
	register(&bijections, factory)
}

// RegisterTransformTo has [TransformTo] call factory for constraints of type C. What was registered before is
// replaced.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraint_registry.
func RegisterTransformTo[C constraints.Constraint](factory func(C) Transform) {
	register(&maps, factory)
}

// registerBoth registers a factory for both.
func registerBoth[C constraints.Constraint](factory func(C) Transform) {
	RegisterBijectTo(factory)
	RegisterTransformTo(factory)
}

func init() {
	registerBoth(func(*constraints.RealConstraint) Transform { return Identity })
	registerBoth(func(c *constraints.GreaterThanConstraint) Transform { return from(c.LowerBound, 1) })
	registerBoth(func(c *constraints.GreaterThanEqConstraint) Transform { return from(c.LowerBound, 1) })
	registerBoth(func(c *constraints.LessThanConstraint) Transform { return from(c.UpperBound, -1) })
	registerBoth(func(c *constraints.IntervalConstraint) Transform { return between(c.LowerBound, c.UpperBound) })
	registerBoth(func(c *constraints.HalfOpenIntervalConstraint) Transform { return between(c.LowerBound, c.UpperBound) })
	registerBoth(func(*constraints.CorrCholeskyConstraint) Transform { return CorrCholesky() })
	RegisterBijectTo(func(*constraints.SimplexConstraint) Transform { return StickBreaking() })
	RegisterTransformTo(func(*constraints.SimplexConstraint) Transform { return Softmax() })
	RegisterTransformTo(func(*constraints.LowerCholeskyConstraint) Transform { return LowerCholesky() })
	RegisterTransformTo(func(*constraints.PositiveDefiniteConstraint) Transform { return PositiveDefinite() })
	RegisterTransformTo(func(*constraints.PositiveSemidefiniteConstraint) Transform { return PositiveDefinite() })
	for r, to := range map[*registry]func(constraints.Constraint) Transform{&bijections: BijectTo, &maps: TransformTo} {
		all := func(cs []constraints.Constraint) []Transform {
			ts := make([]Transform, len(cs))
			for i, c := range cs {
				ts[i] = to(c)
			}
			return ts
		}
		register(r, func(c *constraints.IndependentConstraint) Transform {
			return Independent(to(c.BaseConstraint), c.ReinterpretedBatchNDims)
		})
		register(r, func(c *constraints.CatConstraint) Transform {
			return Cat(all(c.CSeq), CatOptions{Dim: c.Dim, Lengths: c.Lengths})
		})
		register(r, func(c *constraints.StackConstraint) Transform {
			return Stack(all(c.CSeq), StackOptions{Dim: c.Dim})
		})
	}
}

// from is the numbers beyond a bound, in the direction of scale.
func from(bound Param, scale int) Transform { return Compose([]Transform{Exp(), Affine(bound, scale)}) }

func between(lower, upper Param) Transform {
	is := func(p Param, n float64) bool {
		_, tensor := numeric.AsTensor(p)
		return !tensor && numeric.Float(p) == n
	}
	if is(lower, 0) && is(upper, 1) {
		return Sigmoid()
	}
	return Compose([]Transform{Sigmoid(), Affine(lower, numeric.Minus(upper, lower))})
}
