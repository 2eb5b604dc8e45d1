package utils

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	"gotorch.dev/gotorch/nn/internal/fields"
)

// Weight and spectral normalisation as PyTorch had them before parametrizations: a parameter is computed by a
// hook before each call, of parameters with other names.

// norm is how a parameter is computed. It is the tag of the hook, and shared by copies of the module.
type norm interface {
	of() string // the parameter's name
	compute(m any, call bool) gotorch.Tensor
}

// find returns the norm of a kind that a parameter has, or the zero value.
func find[N norm](m nn.Modular, name string) (found N, ok bool) {
	for _, tag := range nn.Internals(m).Hooks() {
		if n, ok := tag.(N); ok && n.of() == name {
			return n, true
		}
	}
	return found, false
}

// parameterOf returns where m has a parameter, or panics with a ValueError.
func parameterOf(op string, m nn.Modular, name string) fields.Place {
	place, ok := nn.Internals(m).Place(name)
	switch parts := nn.Internals(m).Parts(false); {
	case !ok || place.Kind != fields.Parameter:
		panic(args.ValueError(op, "module %v has no parameter with the name %q", m, name))
	case parts != nil && parts.FindComputed(name) != nil:
		panic(args.ValueError(op, "%q of module %v is computed of other parameters already", name, m))
	case nn.Internals(m).Lazy():
		panic(args.ValueError(op, "%q of a lazy module has no shape yet: call Forward once before", name))
	}
	return place
}

// attach has n compute a parameter of m of others, and now makes it value.
func attach(m nn.Modular, place fields.Place, n norm, value func() gotorch.Tensor, tensors ...*fields.Tensor) {
	parts := nn.Internals(m).Parts(true)
	parts.Tensors = append(parts.Tensors[:len(parts.Tensors):len(parts.Tensors)], tensors...)
	parts.Computed = append(parts.Computed[:len(parts.Computed):len(parts.Computed)], &fields.Computed{Name: n.of(), Kind: place.Kind})
	for _, t := range tensors {
		nn.Internals(m).Made(t.T)
	}
	*place.T = value()
	nn.Internals(m).AddHook(n, func(m any) {
		place, _ := nn.Internals(m.(nn.Modular)).Place(n.of())
		gotorch.Unscoped(func() { *place.T = n.compute(m, true) })
	})
}

// detach makes the parameter one of m again, with the value that n gives it.
func detach(m nn.Modular, n norm, suffixes ...string) {
	parts := nn.Internals(m).Parts(true)
	defer parts.Turn.Take()()
	var value gotorch.Tensor
	gotorch.Unscoped(func() {
		gotorch.NoGrad(func() { value = n.compute(m, false).Detach() })
		value.RequiresGrad_()
	})
	place, _ := nn.Internals(m).Place(n.of())
	*place.T = value
	for _, suffix := range suffixes {
		parts.Remove(n.of() + suffix)
	}
	parts.RemoveComputed(n.of())
	nn.Internals(m).RemoveHook(n)
	nn.Internals(m).Made(value)
	nn.Internals(m).Tidy()
}

func orWeight(name string) string {
	if name == "" {
		return "weight"
	}
	return name
}

func runtimeError(op, format string, values ...any) *gotorch.Error {
	return &gotorch.Error{Op: op, Kind: gotorch.RuntimeError, Msg: fmt.Sprintf(format, values...)}
}

// WeightNormOptions are the arguments of [WeightNorm] that have defaults.
type WeightNormOptions struct {
	Name string // of the parameter; default: "weight"
	Dim  int64  // the dimension that has a length for each of its places; -1: one length for all, PyTorch's None
}

// RemoveNormOptions are the arguments of [RemoveWeightNorm] and [RemoveSpectralNorm] that have defaults.
type RemoveNormOptions struct {
	Name string // of the parameter; default: "weight"
}

// WeightNorm has a parameter of m computed of its length and its direction before each call, and returns m: the
// parameters weight_g and weight_v are learned in its place. PyTorch prefers parametrizations.WeightNorm, which
// loads the state dicts of this one. It panics with a ValueError if m has no such parameter, and with a
// RuntimeError if it is computed so already.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.weight_norm.html.
func WeightNorm[M nn.Modular](m M, opts ...WeightNormOptions) M {
	const op = "utils.WeightNorm"
	opt := args.Option(opts)
	n := &weightNorm{name: orWeight(opt.Name), dim: opt.Dim}
	if _, twice := find[*weightNorm](m, n.name); twice {
		panic(runtimeError(op, "Cannot register two weight_norm hooks on the same parameter %s", n.name))
	}
	place := parameterOf(op, m, n.name)
	var g, v gotorch.Tensor
	gotorch.Unscoped(func() {
		v = place.T.Detach()
		g = gotorch.NormExceptDim(v, gotorch.NormExceptDimOptions{Dim: n.dim})
		v.RequiresGrad_()
		g.RequiresGrad_()
		attach(m, place, n, func() gotorch.Tensor { return product(v, g, n.dim) },
			&fields.Tensor{Name: n.name + "_g", T: g}, &fields.Tensor{Name: n.name + "_v", T: v})
	})
	return m
}

// RemoveWeightNorm makes a parameter of m that [WeightNorm] has taken one again, a new tensor, and returns m. It
// panics with a ValueError if it was not taken.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_weight_norm.html.
func RemoveWeightNorm[M nn.Modular](m M, opts ...RemoveNormOptions) M {
	name := orWeight(args.Option(opts).Name)
	n, ok := find[*weightNorm](m, name)
	if !ok {
		panic(args.ValueError("utils.RemoveWeightNorm", "weight_norm of '%s' not found in %v", name, m))
	}
	detach(m, n, "_g", "_v")
	return m
}

type weightNorm struct {
	name string
	dim  int64
}

func (n *weightNorm) of() string { return n.name }

func (n *weightNorm) compute(m any, _ bool) gotorch.Tensor {
	parts := nn.Internals(m.(nn.Modular)).Parts(true)
	return product(parts.Find(n.name+"_v").T, parts.Find(n.name+"_g").T, n.dim)
}

// product is v with the length g.
func product(v, g gotorch.Tensor, dim int64) gotorch.Tensor {
	return gotorch.Call("aten::_weight_norm", "", v, g, dim)[0].(gotorch.Tensor)
}

// SpectralNormOptions are the arguments of [SpectralNorm] that have defaults.
type SpectralNormOptions struct {
	Name             string         // of the parameter; default: "weight"
	NPowerIterations gotorch.Scalar // at each call while training; default: 1
	Eps              gotorch.Scalar // against division by zero; default: 1e-12
	Dim              gotorch.Scalar // whose places are the rows of the matrix; default: 0, for transposed convolutions 1
}

// SpectralNorm has a parameter of m divided by its greatest singular value before each call, and returns m:
// weight_orig is learned in its place, and the buffers weight_u and weight_v are what power iteration has found,
// beginning at random. PyTorch prefers parametrizations.SpectralNorm. It panics with a ValueError if m has no such
// parameter or NPowerIterations is not positive, and with a RuntimeError if it is computed so already or has no
// dimension Dim.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.spectral_norm.html.
func SpectralNorm[M nn.Modular](m M, opts ...SpectralNormOptions) M {
	const op = "utils.SpectralNorm"
	opt := args.Option(opts)
	n := &spectralNorm{name: orWeight(opt.Name), dim: args.Int(op, "Dim", opt.Dim, fields.RowDim(nn.Internals(m))),
		iterations: args.Int(op, "NPowerIterations", opt.NPowerIterations, 1), eps: args.Float(op, "Eps", opt.Eps, 1e-12)}
	if _, twice := find[*spectralNorm](m, n.name); twice {
		panic(runtimeError(op, "Cannot register two spectral_norm hooks on the same parameter %s", n.name))
	}
	if n.iterations <= 0 {
		panic(args.ValueError(op, "Expected n_power_iterations to be positive, but got n_power_iterations=%d", n.iterations))
	}
	place := parameterOf(op, m, n.name)
	weight := *place.T
	if dims := weight.Dim(); n.dim >= dims || n.dim < -dims {
		panic(runtimeError(op, "Dimension out of range (expected to be in range of [-%d, %d] but got %d)", dims, dims-1, n.dim))
	} else if n.dim < 0 {
		n.dim += dims
	}
	gotorch.Unscoped(func() {
		var u, v gotorch.Tensor
		gotorch.NoGrad(func() {
			matrix := n.matrix(weight)
			create := gotorch.TensorOptions{DType: weight.DType(), Device: weight.Device()}
			u = n.normalize(gotorch.Empty([]int64{matrix.Size(0)}, create).Normal_())
			v = n.normalize(gotorch.Empty([]int64{matrix.Size(1)}, create).Normal_())
		})
		attach(m, place, n, weight.Detach, &fields.Tensor{Name: n.name + "_orig", T: weight},
			&fields.Tensor{Name: n.name + "_u", Kind: fields.Buffer, T: u}, &fields.Tensor{Name: n.name + "_v", Kind: fields.Buffer, T: v})
	})
	return m
}

// RemoveSpectralNorm makes a parameter of m that [SpectralNorm] has taken one again, a new tensor, and returns m.
// It panics with a ValueError if it was not taken.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.remove_spectral_norm.html.
func RemoveSpectralNorm[M nn.Modular](m M, opts ...RemoveNormOptions) M {
	name := orWeight(args.Option(opts).Name)
	n, ok := find[*spectralNorm](m, name)
	if !ok {
		panic(args.ValueError("utils.RemoveSpectralNorm", "spectral_norm of '%s' not found in %v", name, m))
	}
	detach(m, n, "_orig", "_u", "_v")
	return m
}

type spectralNorm struct {
	name            string
	dim, iterations int64
	eps             float64
}

func (n *spectralNorm) of() string { return n.name }

func (n *spectralNorm) matrix(weight gotorch.Tensor) gotorch.Tensor {
	rows := fields.Rows(weight, n.dim)
	return rows.Reshape([]int64{rows.Size(0), -1})
}

func (n *spectralNorm) normalize(x gotorch.Tensor) gotorch.Tensor {
	return F.Normalize(x, F.NormalizeOptions{Dim: 0, Eps: n.eps})
}

// compute also brings u and v nearer to the singular vectors, for a call of a module that is training.
func (n *spectralNorm) compute(m any, call bool) gotorch.Tensor {
	parts := nn.Internals(m.(nn.Modular)).Parts(true)
	weight, u, v := parts.Find(n.name+"_orig").T, parts.Find(n.name+"_u").T, parts.Find(n.name+"_v").T
	return gotorch.Scope(func(*gotorch.ScopeHandle) gotorch.Tensor {
		matrix := n.matrix(weight)
		if call && m.(nn.Modular).Training() {
			gotorch.NoGrad(func() {
				for range n.iterations {
					v.Copy_(n.normalize(matrix.Transpose2D().MV(u)))
					u.Copy_(n.normalize(matrix.MV(v)))
				}
				// Copies, for autograd needs them as they are now, and the next call changes them.
				u, v = u.Clone(), v.Clone()
			})
		}
		return weight.Div(u.Dot(matrix.MV(v)))
	})
}
