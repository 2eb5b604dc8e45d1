package constraints

import (
	"fmt"
	"reflect"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions/internal/numeric"
	"gotorch.dev/gotorch/internal/args"
)

// Param is a [gotorch.Tensor] or a Go number.
type Param = numeric.Param

// Constraint is a region of numbers, vectors or matrices.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
type Constraint interface {
	// Check returns for each event of value whether it lies inside: a tensor of bools, whose shape is that of
	// value without the last EventDim dimensions.
	Check(value gotorch.Tensor) gotorch.Tensor
	// IsDiscrete reports whether the values are whole numbers.
	IsDiscrete() bool
	// EventDim is the number of last dimensions that make up one event: 0 where each element is on its own.
	EventDim() int64
	// String is what PyTorch prints: GreaterThan(lower_bound=0.0).
	String() string
}

// Static is embedded in constraints of which discreteness and number of dimensions are known from the start.
// The zero Static is that of real numbers, each on its own.
type Static struct {
	Discrete   bool
	Dimensions int64
}

// IsDiscrete returns the field Discrete.
func (s Static) IsDiscrete() bool { return s.Discrete }

// EventDim returns the field Dimensions.
func (s Static) EventDim() int64 { return s.Dimensions }

// className is ClassName.
func className(c Constraint) string {
	t := reflect.TypeOf(c)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch c.(type) {
	case *IndependentConstraint:
		return "_IndependentConstraint"
	case *MixtureSameFamilyConstraint:
		return "MixtureSameFamilyConstraint"
	}
	if t.PkgPath() != reflect.TypeFor[Static]().PkgPath() {
		return t.Name()
	}
	return "_" + strings.TrimSuffix(t.Name(), "Constraint")
}

// ClassName returns the name of a constraint's class in PyTorch, for messages: "_GreaterThan". For a
// type from elsewhere it is the type's name.
func ClassName(c Constraint) string { return className(c) }

func text(c Constraint, fields ...any) string {
	parts := make([]string, 0, len(fields)/2)
	for i := 0; i < len(fields); i += 2 {
		parts = append(parts, fmt.Sprintf("%s=%s", fields[i], numeric.Text(fields[i+1])))
	}
	return strings.TrimPrefix(className(c), "_") + "(" + strings.Join(parts, ", ") + ")"
}

func bound(op, name string, p Param) Param { return numeric.Check("constraints."+op, name, p) }

// Dependent ------------------------------------------------------------------------------------------------

// DependentConstraint is what [Dependent] makes.
type DependentConstraint struct {
	discrete  *bool
	dimension *int64
}

// DependentOptions are what may be known of a region all the same.
type DependentOptions struct {
	IsDiscrete *bool
	EventDim   *int64
}

// Dependent stands for a region that depends on other variables, so that nothing can be said of values alone:
// Check panics with a ValueError, and IsDiscrete and EventDim with a NotImplementedError where the options do
// not tell.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Dependent(opts ...DependentOptions) *DependentConstraint {
	opt := args.Option(opts)
	return &DependentConstraint{opt.IsDiscrete, opt.EventDim}
}

// IsDependent reports whether c is a [Dependent] one.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func IsDependent(c Constraint) bool {
	_, ok := c.(*DependentConstraint)
	return ok
}

// IsDiscrete is part of [Constraint].
func (c *DependentConstraint) IsDiscrete() bool {
	if c.discrete == nil {
		panic(numeric.Errorf("constraints.Dependent", gotorch.NotImplementedError, ".is_discrete cannot be determined statically"))
	}
	return *c.discrete
}

// EventDim is part of [Constraint].
func (c *DependentConstraint) EventDim() int64 {
	if c.dimension == nil {
		panic(numeric.Errorf("constraints.Dependent", gotorch.NotImplementedError, ".event_dim cannot be determined statically"))
	}
	return *c.dimension
}

// Check panics with a ValueError.
func (c *DependentConstraint) Check(gotorch.Tensor) gotorch.Tensor {
	panic(numeric.Errorf("constraints.Dependent", gotorch.ValueError, "Cannot determine validity of dependent constraint"))
}

// String is part of [Constraint].
func (c *DependentConstraint) String() string { return text(c) }

// Made of others -------------------------------------------------------------------------------------------

// IndependentConstraint is what [Independent] makes.
type IndependentConstraint struct {
	BaseConstraint          Constraint
	ReinterpretedBatchNDims int64
}

// Independent is base for events of n dimensions more: one lies inside where all its parts do.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Independent(base Constraint, n int64) *IndependentConstraint {
	mustConstraint("Independent", base)
	if n < 0 {
		panic(numeric.Errorf("constraints.Independent", gotorch.ValueError, "reinterpreted_batch_ndims must be >= 0, got %d", n))
	}
	return &IndependentConstraint{base, n}
}

func mustConstraint(op string, cs ...Constraint) {
	for _, c := range cs {
		if numeric.IsNil(c) {
			panic(numeric.Errorf("constraints."+op, gotorch.TypeError, "a constraint is nil"))
		}
	}
}

// IsDiscrete is part of [Constraint].
func (c *IndependentConstraint) IsDiscrete() bool { return c.BaseConstraint.IsDiscrete() }

// EventDim is part of [Constraint].
func (c *IndependentConstraint) EventDim() int64 {
	return c.BaseConstraint.EventDim() + c.ReinterpretedBatchNDims
}

// Check is part of [Constraint].
func (c *IndependentConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	result := c.BaseConstraint.Check(value)
	if result.Dim() < c.ReinterpretedBatchNDims {
		panic(tooFew(c, value))
	}
	return folded(result, result.Dim()-c.ReinterpretedBatchNDims)
}

func tooFew(c Constraint, value gotorch.Tensor) error {
	return numeric.Errorf("constraints.Check", gotorch.ValueError, "Expected value.dim() >= %d but got %d", c.EventDim(), value.Dim())
}

// folded returns whether all is true in what lies behind the first keep dimensions.
func folded(result gotorch.Tensor, keep int64) gotorch.Tensor {
	return result.Reshape(numeric.Join(result.Shape()[:keep], -1)).AllDim(-1)
}

// String is part of [Constraint].
func (c *IndependentConstraint) String() string {
	return fmt.Sprintf("IndependentConstraint(%s, %d)", c.BaseConstraint, c.ReinterpretedBatchNDims)
}

// MixtureSameFamilyConstraint is what [MixtureSameFamily] makes.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
type MixtureSameFamilyConstraint struct{ BaseConstraint Constraint }

// MixtureSameFamily is the region of a mixture whose components have base: a value is checked for all of them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func MixtureSameFamily(base Constraint) *MixtureSameFamilyConstraint {
	mustConstraint("MixtureSameFamily", base)
	return &MixtureSameFamilyConstraint{base}
}

// IsDiscrete is part of [Constraint].
func (c *MixtureSameFamilyConstraint) IsDiscrete() bool { return c.BaseConstraint.IsDiscrete() }

// EventDim is part of [Constraint].
func (c *MixtureSameFamilyConstraint) EventDim() int64 { return c.BaseConstraint.EventDim() }

// Check is part of [Constraint].
func (c *MixtureSameFamilyConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	result := c.BaseConstraint.Check(value.Unsqueeze(-1 - c.EventDim()))
	if value.Dim() < c.EventDim() {
		panic(tooFew(c, value))
	}
	return folded(result, min(value.Dim()-c.EventDim(), result.Dim()))
}

// String is part of [Constraint].
func (c *MixtureSameFamilyConstraint) String() string {
	return fmt.Sprintf("MixtureSameFamilyConstraint(%s)", c.BaseConstraint)
}

// CatConstraint is what [Cat] makes.
type CatConstraint struct {
	CSeq    []Constraint
	Dim     int64
	Lengths []int64
}

// CatOptions are the arguments of [Cat] that have defaults.
type CatOptions struct {
	Dim     int64
	Lengths []int64 // 1 for each
}

// Cat applies each constraint to its part of a tensor along a dimension, as gotorch.Cat joins them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Cat(cseq []Constraint, opts ...CatOptions) *CatConstraint {
	opt := args.Option(opts)
	mustConstraint("Cat", cseq...)
	if opt.Lengths == nil {
		for range cseq {
			opt.Lengths = append(opt.Lengths, 1)
		}
	}
	if len(opt.Lengths) != len(cseq) {
		panic(numeric.Errorf("constraints.Cat", gotorch.ValueError, "lengths (%d) must match cseq (%d)", len(opt.Lengths), len(cseq)))
	}
	return &CatConstraint{cseq, opt.Dim, opt.Lengths}
}

func anyDiscrete(cs []Constraint) bool {
	for _, c := range cs {
		if c.IsDiscrete() {
			return true
		}
	}
	return false
}

func maxEventDim(op string, cs []Constraint) int64 {
	if len(cs) == 0 {
		panic(numeric.Errorf("constraints."+op, gotorch.ValueError, "there are no constraints to take the number of dimensions from"))
	}
	var dim int64
	for _, c := range cs {
		dim = max(dim, c.EventDim())
	}
	return dim
}

func inRange(op string, dim int64, value gotorch.Tensor) {
	if n := value.Dim(); dim < -n || dim >= n {
		panic(numeric.Errorf("constraints."+op, gotorch.ValueError, "dim %d out of range for value with %d dimensions", dim, n))
	}
}

// IsDiscrete is part of [Constraint].
func (c *CatConstraint) IsDiscrete() bool { return anyDiscrete(c.CSeq) }

// EventDim is part of [Constraint].
func (c *CatConstraint) EventDim() int64 { return maxEventDim("Cat", c.CSeq) }

// Check is part of [Constraint].
func (c *CatConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	inRange("Cat", c.Dim, value)
	checks, start := make([]gotorch.Tensor, len(c.CSeq)), int64(0)
	for i, part := range c.CSeq {
		checks[i] = part.Check(value.Narrow(c.Dim, start, c.Lengths[i]))
		start += c.Lengths[i]
	}
	return gotorch.Cat(checks, gotorch.CatOptions{Dim: c.Dim})
}

// String is part of [Constraint].
func (c *CatConstraint) String() string { return text(c) }

// StackConstraint is what [Stack] makes.
type StackConstraint struct {
	CSeq []Constraint
	Dim  int64
}

// StackOptions are the arguments of [Stack] that have defaults.
type StackOptions struct{ Dim int64 }

// Stack applies each constraint to one slice of a tensor along a dimension, as gotorch.Stack joins them.
//
// See https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.constraints.
func Stack(cseq []Constraint, opts ...StackOptions) *StackConstraint {
	mustConstraint("Stack", cseq...)
	return &StackConstraint{cseq, args.Option(opts).Dim}
}

// IsDiscrete is part of [Constraint].
func (c *StackConstraint) IsDiscrete() bool { return anyDiscrete(c.CSeq) }

// EventDim is part of [Constraint].
func (c *StackConstraint) EventDim() int64 {
	dim := maxEventDim("Stack", c.CSeq)
	if c.Dim+dim < 0 {
		dim++
	}
	return dim
}

// Check is part of [Constraint].
func (c *StackConstraint) Check(value gotorch.Tensor) gotorch.Tensor {
	inRange("Stack", c.Dim, value)
	n := min(int(value.Size(c.Dim)), len(c.CSeq))
	checks := make([]gotorch.Tensor, n)
	for i := range n {
		checks[i] = c.CSeq[i].Check(value.Select(c.Dim, int64(i)))
	}
	return gotorch.Stack(checks, gotorch.StackOptions{Dim: c.Dim})
}

// String is part of [Constraint].
func (c *StackConstraint) String() string { return text(c) }
