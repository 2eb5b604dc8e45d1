// Package constraints has the regions that parameters and values of distributions lie in: torch.distributions.constraints.
//
// A [Constraint] tells of each element, or of each event where it is about vectors or matrices, whether it lies
// inside:
//
//	ok := constraints.Positive.Check(x)              // of x's shape
//	ok := constraints.Simplex.Check(p)               // of the shape of p without its last dimension
//	ok := constraints.Interval(0, upper).Check(x)    // bounds are numbers or tensors
//
// Those without parameters are variables, such as [Real] and [Positive]; the others are made by functions. The
// function that makes a constraint has PyTorch's name, and its type the same with Constraint behind it.
//
// A constraint of your own is a type with the methods of [Constraint]; [Static] has two of them. What maps real
// numbers into it is registered with gotorch/distributions/transforms.
package constraints
