package distributions

import (
	"cmp"
	"reflect"
	"sync"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/distributions/transforms"
)

// A divergence is a function for a pair of types.
type divergence struct {
	p, q reflect.Type
	of   func(p, q any) gotorch.Tensor
}

// The divergences that are known, in the order they were registered.
var divergences struct {
	sync.RWMutex
	known []divergence
}

// RegisterKL has [KLDivergence] call fn for distributions of types P and Q: pointers to structs, or interfaces. fn
// is also called for structs that embed those structs, unless something closer to them is registered, with the
// embedded one. A struct is closer than an interface, an interface than those that it has all methods of; of two
// that are as close the first one registered is called. What was registered before for the very same types is
// replaced.
//
//	distributions.RegisterKL(func(p *Triangular, q *distributions.NormalDistribution) gotorch.Tensor { ... })
//
// See https://docs.pytorch.org/docs/stable/distributions.html#torch.distributions.kl.register_kl.
func RegisterKL[P, Q Distribution](fn func(p P, q Q) gotorch.Tensor) {
	if fn == nil {
		panic(numeric.Errorf("distributions.RegisterKL", gotorch.TypeError, "the function is nil"))
	}
	d := divergence{reflect.TypeFor[P](), reflect.TypeFor[Q](), func(p, q any) gotorch.Tensor { return fn(p.(P), q.(Q)) }}
	divergences.Lock()
	defer divergences.Unlock()
	for i, k := range divergences.known {
		if k.p == d.p && k.q == d.q {
			divergences.known[i] = d
			return
		}
	}
	divergences.known = append(divergences.known, d)
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
			if !f.Anonymous || f.Type == reflect.TypeFor[Base]() {
				continue
			}
			inner := reflect.NewAt(f.Type, s.Field(i).Addr().UnsafePointer()) // the type may be unexported
			if f.Type.Kind() != reflect.Struct {
				inner = inner.Elem()
			}
			if d, ok := inner.Interface().(Distribution); ok && !numeric.IsNil(d) {
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
	if numeric.IsNil(p) || numeric.IsNil(q) {
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
	var best divergence
	for _, d := range divergences.known {
		_, a, ok := p.rank(d.p)
		_, b, both := q.rank(d.q)
		if ok && both && (best.of == nil || cmp.Or(p.compare(d.p, best.p), q.compare(d.q, best.q)) < 0) {
			best, of, with = d, a, b
		}
	}
	return best.of, of, with
}

// compare tells which of two types that have a rank is closer: it is below zero where that is a.
func (k kinds) compare(a, b reflect.Type) int {
	i, _, _ := k.rank(a)
	j, _, _ := k.rank(b)
	if i != j || a == b {
		return cmp.Compare(i, j)
	}
	switch above, below := a.Implements(b), b.Implements(a); { // both are interfaces
	case above && !below:
		return -1
	case below && !above:
		return 1
	}
	return 0
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
