// Package distributions has probability distributions to sample from, to compute probabilities with, and to take
// gradients through: torch.distributions.
//
//	d := distributions.Normal(0, scale)                  // numbers or tensors, which broadcast
//	x := d.Sample(3, 2)                                  // (3, 2) samples of each
//	l := d.LogProb(x)
//	y := d.RSample()                                     // with a gradient for scale
//	k := distributions.KLDivergence(d, distributions.Normal(0, 1))
//
//	c := distributions.Categorical(distributions.CategoricalOptions{Logits: logits})
//	action := c.Sample()
//	loss := c.LogProb(action).Mul(reward).Neg()
//
// Parameters are broadcast to the BatchShape of a distribution; a single sample has its EventShape, which is that of
// no dimensions for numbers, (n,) for vectors. Sample(s...) is of shape s + BatchShape + EventShape, and LogProb takes
// what broadcasts with that and returns one number for each event. Numbers become tensors of the default dtype.
//
// For the same seed samples are those of PyTorch, and so is everything else, to the last bit.
//
// # Wrong arguments
//
// Parameters and values are checked: a negative scale, or a value that the distribution cannot have, panics with a
// *gotorch.Error, a ValueError. That takes time; the option NoValidateArgs leaves it out for one distribution,
// [SetDefaultValidateArgs] for all. What a distribution cannot do, such as the CDF of a [Beta], is a
// NotImplementedError.
//
// # Memory
//
// A distribution is no more than its parameters, and what it computes of them when first asked, such as logits of
// probs. In a [gotorch.Scope] make it inside: what is made of its parameters is freed with the scope.
//
// # Distributions of your own
//
// are structs that embed [Base], and are given to [Init]; see there. [RegisterKL] tells [KLDivergence] about them.
//
// The regions that values and parameters lie in are in package constraints, and maps between tensors, which
// [Transformed] makes distributions of, in package transforms.
package distributions
