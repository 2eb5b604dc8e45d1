package distributions_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/distributions"
	"gotorch.dev/gotorch/distributions/constraints"
	"gotorch.dev/gotorch/distributions/transforms"
)

func Example() {
	loc := gotorch.FromSlice([]float32{0, 10}).RequiresGrad_()
	d := distributions.Normal(loc, 2)
	fmt.Println(d, d.BatchShape(), d.Sample(3).Shape())
	d.LogProb(gotorch.FromSlice([]float32{1, 9})).Sum().Backward()
	fmt.Println(loc.Grad())
	fmt.Println(distributions.KLDivergence(distributions.Normal(0, 1), distributions.Normal(1, 1)))
	// Output:
	// Normal(loc: torch.Size([2]), scale: torch.Size([2])) [2] [3 2]
	// tensor([ 0.2500, -0.2500])
	// tensor(0.5000)
}

func ExampleCategorical() {
	c := distributions.Categorical(distributions.CategoricalOptions{Probs: gotorch.FromSlice([]float32{1, 1, 2})})
	fmt.Println(c.Probs(), c.Mode(), c.LogProb(gotorch.FromSlice([]int64{2})).Exp())
	_, err := gotorch.Try(func() gotorch.Tensor { return c.LogProb(gotorch.FromSlice([]int64{3})) })
	fmt.Println(err)
	// Output:
	// tensor([0.2500, 0.2500, 0.5000]) tensor(2) tensor([0.5000])
	// distributions.Categorical: ValueError: Expected value argument (Tensor of shape (1,)) to be within the support (IntegerInterval(lower_bound=0, upper_bound=2)) of the distribution Categorical(probs: torch.Size([3]), logits: torch.Size([3])), but found invalid values:
	// tensor([3])
}

func ExampleTransformed() {
	logit := distributions.Transformed(distributions.Uniform(0, 1), []transforms.Transform{transforms.Sigmoid().Inv()})
	fmt.Println(logit.LogProb(gotorch.FromSlice([]float32{0, 2})))
	// Output:
	// tensor([-1.3863, -2.2539])
}

func ExampleKLDivergence() {
	learned := gotorch.FromSlice([]float32{0.25, 0.5}).RequiresGrad_()
	p := distributions.Bernoulli(distributions.BernoulliOptions{Probs: 0.5})
	q := distributions.Bernoulli(distributions.BernoulliOptions{Probs: learned})
	kl := distributions.KLDivergence(p, q)
	fmt.Println(kl.Detach()) // for each of q's batch
	kl.Sum().Backward()
	fmt.Println(learned.Grad())
	_, err := gotorch.Try(func() gotorch.Tensor { return distributions.KLDivergence(p, distributions.StudentT(1)) })
	fmt.Println(err)
	// Output:
	// tensor([0.1438, 0.0000])
	// tensor([-1.3333,  0.0000])
	// distributions.KLDivergence: NotImplementedError: No KL(p || q) is implemented for p type Bernoulli and q type StudentT
}

func ExampleMixtureSameFamily() {
	weights := distributions.Categorical(distributions.CategoricalOptions{Probs: gotorch.FromSlice([]float32{0.25, 0.75})})
	d := distributions.MixtureSameFamily(weights, distributions.Normal(gotorch.FromSlice([]float32{0, 4}), 1))
	fmt.Println(d.Mean(), d.Variance(), d.BatchShape(), d.Sample(5).Shape())
	// Output:
	// tensor(3.) tensor(4.) [] [5]
}

func ExampleMultivariateNormal() {
	covariance := gotorch.NewTensor([][]float32{{2, 1}, {1, 2}})
	d := distributions.MultivariateNormal(gotorch.Zeros([]int64{2}), distributions.MultivariateNormalOptions{CovarianceMatrix: covariance})
	fmt.Println(d.EventShape(), d.Sample(3).Shape())
	fmt.Println(d.LogProb(gotorch.NewTensor([][]float32{{0, 0}, {1, 1}})), d.Entropy())
	// Output:
	// [2] [3 2]
	// tensor([-2.3872, -2.7205]) tensor(3.3872)
}

// Numbers between 0 and 1 that are mostly near to one of them, and through which gradients go.
func ExampleRelaxedBernoulli() {
	logits := gotorch.FromSlice([]float32{-2, 2}).RequiresGrad_()
	d := distributions.RelaxedBernoulli(gotorch.Full(nil, 0.5), distributions.RelaxedBernoulliOptions{Logits: logits})
	x := d.RSample(1000)
	fmt.Println(x.Shape(), gotorch.Item[bool](x.Ge(gotorch.Zeros(nil)).All()))
	x.Sum().Backward()
	fmt.Println(gotorch.Item[bool](logits.Grad().GtScalar(0).All()))
	// Output:
	// [1000 2] true
	// true
}

// Three numbers that are drawn together: their log probabilities are added.
func ExampleIndependent() {
	each := distributions.Normal(gotorch.Zeros([]int64{2, 3}), 1)
	d := distributions.Independent(each, 1)
	fmt.Println(each.BatchShape(), d.BatchShape(), d.EventShape())
	fmt.Println(d.LogProb(gotorch.Zeros([]int64{2, 3})))
	// Output:
	// [2 3] [2] [3]
	// tensor([-2.7568, -2.7568])
}

// triangular is the difference of two uniform numbers.
type triangular struct {
	distributions.Base
	Width gotorch.Tensor
}

func (d *triangular) Parameters() []distributions.Parameter {
	return []distributions.Parameter{{Name: "width", Constraint: constraints.Positive, Value: d.Width}}
}
func (d *triangular) Variance() gotorch.Tensor { return d.Width.Square().DivScalar(6) }
func (d *triangular) Support() constraints.Constraint {
	return constraints.Interval(d.Width.Neg(), d.Width)
}

func ExampleInit() {
	width := gotorch.FromSlice([]float32{6})
	d := distributions.Init(&triangular{Width: width}, width.Shape(), nil)
	fmt.Println(d, d.StdDev())
	distributions.RegisterKL(func(p *triangular, q *distributions.UniformDistribution) gotorch.Tensor {
		return p.Width.Log()
	})
	fmt.Println(distributions.KLDivergence(d, distributions.Uniform(-6, 6)))
	_, err := gotorch.Try(func() gotorch.Tensor { return d.Mean() })
	fmt.Println(err)
	// Output:
	// triangular(width: tensor([6.])) tensor([2.4495])
	// tensor([1.7918])
	// distributions.triangular: NotImplementedError: triangular has no Mean
}
