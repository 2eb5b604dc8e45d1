package distributions

import (
	"reflect"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/distributions/transforms"
)

// A pair of types that a divergence is known for.
type pair struct{ p, q reflect.Type }

var divergences = struct {
	sync.RWMutex
	known map[pair]func(p, q any) gotorch.Tensor
}{known: map[pair]func(p, q any) gotorch.Tensor{}}

// RegisterKL has [KLDivergence] call fn for distributions of types P and Q: pointers to structs, or interfaces. fn
// is also called for structs that embed those structs, unless something closer to them is registered, with the
// embedded one. What was registered before for the very same types is replaced.
//
//	distributions.RegisterKL(func(p *Triangular, q *distributions.NormalDistribution) gotorch.Tensor { ... })
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kl.register_kl.
func RegisterKL[P, Q Distribution](fn func(p P, q Q) gotorch.Tensor) {
	if fn == nil {
		panic(numeric.Errorf("distributions.RegisterKL", gotorch.TypeError, "the function is nil"))
	}
	divergences.Lock()
	defer divergences.Unlock()
	divergences.known[pair{reflect.TypeFor[P](), reflect.TypeFor[Q]()}] = func(p, q any) gotorch.Tensor {
		return fn(p.(P), q.(Q))
	}
}

// kinds are the types that a distribution may be registered by, the closest first: its own, and those of embedded
// distributions.
type kinds []kind

type kind struct {
	of    reflect.Type
	value any
}

func kindsOf(d Distribution) (found kinds) {
	v := reflect.ValueOf(d)
	for v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		found = append(found, kind{v.Type(), v.Interface()})
		s := v.Elem()
		v = reflect.Value{}
		for i := range s.NumField() {
			f := s.Type().Field(i)
			if !f.Anonymous || !f.IsExported() {
				continue
			}
			inner := s.Field(i)
			if inner.Kind() == reflect.Struct {
				inner = inner.Addr()
			}
			if _, ok := inner.Interface().(Distribution); ok && f.Type != reflect.TypeFor[Base]() {
				v = inner
				break
			}
		}
		if !v.IsValid() {
			break
		}
	}
	if len(found) == 0 {
		found = kinds{{reflect.TypeOf(d), d}}
	}
	return found
}

// rank is how far from a distribution type t is: interfaces come after all structs.
func (k kinds) rank(t reflect.Type) (rank int, value any, ok bool) {
	for i, kind := range k {
		if kind.of == t {
			return i, kind.value, true
		}
	}
	if t.Kind() == reflect.Interface && k[0].of.Implements(t) {
		return len(k), k[0].value, true
	}
	return 0, nil, false
}

// KLDivergence is the Kullback-Leibler divergence of q from p, the mean under p of log p - log q, for each element of
// the batch. It panics with a NotImplementedError where none is known for their types; [RegisterKL] adds one.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kl.kl_divergence.
func KLDivergence(p, q Distribution) gotorch.Tensor {
	if p == nil || q == nil {
		panic(numeric.Errorf("distributions.KLDivergence", gotorch.TypeError, "a distribution is nil"))
	}
	fn, of, with := closest(kindsOf(p), kindsOf(q))
	if fn == nil {
		panic(numeric.Errorf("distributions.KLDivergence", gotorch.NotImplementedError,
			"No KL(p || q) is implemented for p type %s and q type %s", className(p), className(q)))
	}
	return fn(of, with)
}

// closest returns the function that is registered for what is closest to p, then to q, and with what to call it.
func closest(p, q kinds) (fn func(p, q any) gotorch.Tensor, of, with any) {
	divergences.RLock()
	defer divergences.RUnlock()
	best := [2]int{}
	for types, f := range divergences.known {
		i, a, ok := p.rank(types.p)
		j, b, both := q.rank(types.q)
		if ok && both && (fn == nil || i < best[0] || i == best[0] && j < best[1]) {
			fn, of, with, best = f, a, b, [2]int{i, j}
		}
	}
	return fn, of, with
}

func notImplemented(format string, values ...any) *gotorch.Error {
	return numeric.Errorf("distributions.KLDivergence", gotorch.NotImplementedError, format, values...)
}

func klExponentialFamily(p, q ExponentialFamily) gotorch.Tensor {
	if reflect.TypeOf(p) != reflect.TypeOf(q) {
		panic(notImplemented("The cross KL-divergence between different exponential families cannot be computed: %s and %s",
			className(p), className(q)))
	}
	theirs := q.NaturalParams()
	natural, normalizer, gradient := bregman(p)
	result := q.LogNormalizer(theirs...).Sub(normalizer)
	for i, n := range natural {
		term := theirs[i].Sub(n).Mul(gradient[i])
		result.Sub_(numeric.SumRightmost(term, int64(len(q.EventShape()))))
	}
	return result
}

func klTransformed(p, q *TransformedDistribution) gotorch.Tensor {
	same := len(p.Transforms) == len(q.Transforms)
	for i := 0; same && i < len(p.Transforms); i++ {
		same = sameTransform(p.Transforms[i], q.Transforms[i])
	}
	if !same {
		panic(notImplemented("the transforms of both distributions must be equal"))
	}
	if numeric.Size(p.event) != numeric.Size(q.event) {
		panic(notImplemented("the events of both distributions must have the same shape, not %s and %s", numeric.Size(p.event), numeric.Size(q.event)))
	}
	return KLDivergence(p.BaseDist, q.BaseDist)
}

func sameTransform(a, b transforms.Transform) bool { return a == b || a.Equal(b) }

func klIndependent(p, q *IndependentDistribution) gotorch.Tensor {
	if p.ReinterpretedBatchNDims != q.ReinterpretedBatchNDims {
		panic(notImplemented("as many dimensions must be reinterpreted in both, not %d and %d", p.ReinterpretedBatchNDims, q.ReinterpretedBatchNDims))
	}
	return numeric.SumRightmost(KLDivergence(p.BaseDist, q.BaseDist), p.ReinterpretedBatchNDims)
}
