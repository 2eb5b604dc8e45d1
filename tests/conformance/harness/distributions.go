package main

import (
	"fmt"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/transforms"
)

// What torch.distributions has, by PyTorch's names: functions, and constraints that are variables.
var probability = map[string]any{
	"Bernoulli": distributions.Bernoulli, "Beta": distributions.Beta, "Binomial": distributions.Binomial,
	"Categorical": distributions.Categorical, "Cauchy": distributions.Cauchy, "Chi2": distributions.Chi2,
	"ContinuousBernoulli": distributions.ContinuousBernoulli, "Dirichlet": distributions.Dirichlet,
	"Exponential": distributions.Exponential, "FisherSnedecor": distributions.FisherSnedecor, "Gamma": distributions.Gamma,
	"GeneralizedPareto": distributions.GeneralizedPareto, "Geometric": distributions.Geometric, "Gumbel": distributions.Gumbel,
	"HalfCauchy": distributions.HalfCauchy, "HalfNormal": distributions.HalfNormal, "Independent": distributions.Independent,
	"InverseGamma": distributions.InverseGamma, "Kumaraswamy": distributions.Kumaraswamy, "LKJCholesky": distributions.LKJCholesky,
	"Laplace": distributions.Laplace, "LogNormal": distributions.LogNormal, "LogisticNormal": distributions.LogisticNormal,
	"LowRankMultivariateNormal": distributions.LowRankMultivariateNormal, "MixtureSameFamily": distributions.MixtureSameFamily,
	"Multinomial": distributions.Multinomial, "MultivariateNormal": distributions.MultivariateNormal,
	"NegativeBinomial": distributions.NegativeBinomial, "Normal": distributions.Normal,
	"OneHotCategorical":                distributions.OneHotCategorical,
	"OneHotCategoricalStraightThrough": distributions.OneHotCategoricalStraightThrough,
	"Pareto":                           distributions.Pareto, "Poisson": distributions.Poisson,
	"RelaxedBernoulli": distributions.RelaxedBernoulli, "RelaxedOneHotCategorical": distributions.RelaxedOneHotCategorical,
	"StudentT": distributions.StudentT, "TransformedDistribution": distributions.Transformed, "Uniform": distributions.Uniform,
	"VonMises": distributions.VonMises, "Weibull": distributions.Weibull, "Wishart": distributions.Wishart,
	"LogitRelaxedBernoulli": distributions.LogitRelaxedBernoulli, "ExpRelaxedCategorical": distributions.ExpRelaxedCategorical,
	"kl_divergence": distributions.KLDivergence, "biject_to": transforms.BijectTo, "transform_to": transforms.TransformTo,
	"set_default_validate_args": distributions.SetDefaultValidateArgs,

	"AbsTransform": transforms.Abs, "AffineTransform": transforms.Affine, "CatTransform": transforms.Cat,
	"ComposeTransform": transforms.Compose, "CorrCholeskyTransform": transforms.CorrCholesky,
	"CumulativeDistributionTransform": transforms.CumulativeDistribution, "ExpTransform": transforms.Exp,
	"IndependentTransform": transforms.Independent, "LowerCholeskyTransform": transforms.LowerCholesky,
	"PositiveDefiniteTransform": transforms.PositiveDefinite, "PowerTransform": transforms.Power,
	"ReshapeTransform": transforms.Reshape, "SigmoidTransform": transforms.Sigmoid, "SoftmaxTransform": transforms.Softmax,
	"SoftplusTransform": transforms.Softplus, "StackTransform": transforms.Stack,
	"StickBreakingTransform": transforms.StickBreaking, "TanhTransform": transforms.Tanh,
	"identity_transform": transforms.Identity,

	"boolean": constraints.Boolean, "cat": constraints.Cat, "corr_cholesky": constraints.CorrCholesky,
	"dependent": constraints.Dependent, "greater_than": constraints.GreaterThan, "greater_than_eq": constraints.GreaterThanEq,
	"half_open_interval": constraints.HalfOpenInterval, "independent": constraints.Independent,
	"integer_interval": constraints.IntegerInterval, "interval": constraints.Interval, "is_dependent": constraints.IsDependent,
	"less_than": constraints.LessThan, "lower_cholesky": constraints.LowerCholesky,
	"lower_triangular": constraints.LowerTriangular, "MixtureSameFamilyConstraint": constraints.MixtureSameFamily,
	"multinomial": constraints.Multinomial, "nonnegative": constraints.Nonnegative,
	"nonnegative_integer": constraints.NonnegativeInteger, "one_hot": constraints.OneHot, "positive": constraints.Positive,
	"positive_definite": constraints.PositiveDefinite, "positive_integer": constraints.PositiveInteger,
	"positive_semidefinite": constraints.PositiveSemidefinite, "real": constraints.Real, "real_vector": constraints.RealVector,
	"simplex": constraints.Simplex, "square": constraints.Square, "stack": constraints.Stack, "symmetric": constraints.Symmetric,
	"unit_interval": constraints.UnitInterval,
}

const (
	specialProbability = -70 - iota
	specialProbabilityMethod
)

// lent are results that Go keeps until the next call, when Python has references of its own.
var lent []gotorch.Tensor

func runDistributions(index int64, in *reader) []reflect.Value {
	lent = nil
	switch index {
	case specialProbability:
		name := in.text()
		entry, ok := probability[name]
		if !ok {
			panic(broken("there is no " + name))
		}
		function := reflect.ValueOf(entry)
		if function.Kind() != reflect.Func {
			return []reflect.Value{lend(function, in)}
		}
		return lendAll(in.invoke(function), in)
	case specialProbabilityMethod:
		object := kept[in.next()]
		name := in.text()
		method := reflect.ValueOf(object).MethodByName(name)
		if !method.IsValid() {
			panic(broken(fmt.Sprintf("%T has no method %s", object, name)))
		}
		return lendAll(in.invoke(method), in)
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}

func lendAll(results []reflect.Value, in *reader) []reflect.Value {
	for i, r := range results {
		results[i] = lend(r, in)
	}
	return results
}

// object is the number of something that is kept.
type object []int64

// lend makes of a result what the writer can write: tensors stay Go's, and objects are kept by numbers.
func lend(result reflect.Value, in *reader) reflect.Value {
	switch v := result.Interface().(type) {
	case gotorch.Tensor:
		for _, t := range in.tensors {
			if t.T == v.T {
				return result // the caller's own
			}
		}
		lent = append(lent, v)
		return reflect.ValueOf(borrowed{v})
	case []distributions.ArgConstraint:
		texts := []string{}
		for _, a := range v {
			texts = append(texts, a.Name, a.Constraint.String())
		}
		return reflect.ValueOf(texts)
	case int:
		return reflect.ValueOf(int64(v))
	case distributions.Distribution, constraints.Constraint, transforms.Transform:
		numbers++
		kept[numbers], given[numbers] = v, in.tensors
		in.tensors = nil
		return reflect.ValueOf(object{numbers})
	}
	return result
}
