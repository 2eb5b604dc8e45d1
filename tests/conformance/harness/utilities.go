package main

import (
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/nn/utils"
	"gotorch.dev/gotorch/nn/utils/parametrizations"
	"gotorch.dev/gotorch/nn/utils/parametrize"
	"gotorch.dev/gotorch/nn/utils/prune"
)

// The functions of nn/init and of the packages in nn/utils, by PyTorch's names. A module that one returns is
// kept, and Python gets its number.
var utilities = map[string]any{
	"init.calculate_gain":   nninit.CalculateGain,
	"init.constant_":        nninit.Constant_,
	"init.dirac_":           nninit.Dirac_,
	"init.eye_":             nninit.Eye_,
	"init.kaiming_normal_":  nninit.KaimingNormal_,
	"init.kaiming_uniform_": nninit.KaimingUniform_,
	"init.normal_":          nninit.Normal_,
	"init.ones_":            nninit.Ones_,
	"init.orthogonal_":      nninit.Orthogonal_,
	"init.sparse_":          nninit.Sparse_,
	"init.trunc_normal_":    nninit.TruncNormal_,
	"init.uniform_":         nninit.Uniform_,
	"init.xavier_normal_":   nninit.XavierNormal_,
	"init.xavier_uniform_":  nninit.XavierUniform_,
	"init.zeros_":           nninit.Zeros_,

	"utils.clip_grads_with_norm_":               utils.ClipGradsWithNorm_,
	"utils.convert_conv2d_weight_memory_format": utils.ConvertConv2dWeightMemoryFormat[nn.Modular],
	"utils.convert_conv3d_weight_memory_format": utils.ConvertConv3dWeightMemoryFormat[nn.Modular],
	"utils.fuse_conv_bn_eval":                   utils.FuseConvBNEval[nn.Modular],
	"utils.fuse_conv_bn_weights":                utils.FuseConvBNWeights,
	"utils.fuse_linear_bn_eval":                 utils.FuseLinearBNEval,
	"utils.fuse_linear_bn_weights":              utils.FuseLinearBNWeights,
	"utils.get_total_norm":                      utils.GetTotalNorm,
	"utils.remove_spectral_norm":                utils.RemoveSpectralNorm[nn.Modular],
	"utils.remove_weight_norm":                  utils.RemoveWeightNorm[nn.Modular],
	"utils.spectral_norm":                       utils.SpectralNorm[nn.Modular],
	"utils.vector_to_parameters":                utils.VectorToParameters,
	"utils.weight_norm":                         utils.WeightNorm[nn.Modular],
	"utils.skip_init": func(in, out int64, dtype gotorch.DType) nn.Modular {
		return utils.SkipInit(func(device gotorch.Device) *nn.LinearModule {
			return nn.Linear(in, out, nn.LinearOptions{Device: device, DType: dtype})
		})
	},

	"parametrizations.orthogonal":    parametrizations.Orthogonal[nn.Modular],
	"parametrizations.spectral_norm": parametrizations.SpectralNorm[nn.Modular],
	"parametrizations.weight_norm":   parametrizations.WeightNorm[nn.Modular],

	"parametrize.is_parametrized":                      parametrize.IsParametrized,
	"parametrize.register_parametrization":             parametrize.RegisterParametrization[nn.Modular],
	"parametrize.remove_parametrizations":              parametrize.RemoveParametrizations[nn.Modular],
	"parametrize.transfer_parametrizations_and_params": parametrize.TransferParametrizationsAndParams[nn.Modular],
	"parametrize.type_before_parametrizations":         parametrize.TypeBeforeParametrizations,
	"parametrize.ParametrizationList.right_inverse":    func(m nn.Modular, name string, v gotorch.Tensor) { parametrize.Of(m, name).RightInverse(v) },
	"parametrize.refresh":                              parametrize.Refresh,
	"parametrize.cached":                               callsInCache,
	"Module.clone":                                     nn.Clone[nn.Modular],
	"Module.field":                                     field,
	"Module.freeze":                                    func(m nn.Modular) { m.(interface{ RequiresGrad_(bool) }).RequiresGrad_(false) },
	"prune.custom_from_mask":                           prune.CustomFromMask[nn.Modular],
	"prune.identity":                                   prune.Identity[nn.Modular],
	"prune.is_pruned":                                  prune.IsPruned,
	"prune.l1_unstructured":                            prune.L1Unstructured[nn.Modular],
	"prune.ln_structured":                              prune.LnStructured[nn.Modular],
	"prune.random_structured":                          prune.RandomStructured[nn.Modular],
	"prune.random_unstructured":                        prune.RandomUnstructured[nn.Modular],
	"prune.remove":                                     prune.Remove[nn.Modular],
	"prune.ln_structured of a norm with a name":        lnStructured,
	"prune.global_unstructured":                        globalUnstructured,
	"prune.prune":                                      pruned,
	"prune.BasePruningMethod":                          func(m nn.Modular, name string) { prune.Apply(m, name, everyOther{}) },
	"prune.PruningContainer of methods of one's own": func(t, mask gotorch.Tensor) gotorch.Tensor {
		return prune.PruningContainer(everyOther{}).ComputeMask(t, mask)
	},
	"prune.PruningContainer of channels of one's own": func(t, mask gotorch.Tensor) gotorch.Tensor {
		return prune.PruningContainer(firstChannel{}).ComputeMask(t, mask)
	},
	"prune.PruningContainer of a method without a kind": func(t, mask gotorch.Tensor) gotorch.Tensor {
		return prune.PruningContainer(unknown{}).ComputeMask(t, mask)
	},
}

// inMode runs fn in the mode of a name.
func inMode(mode string, fn func()) {
	switch mode {
	case "no_grad":
		gotorch.NoGrad(fn)
	case "inference_mode":
		gotorch.InferenceMode(fn)
	case "scope":
		gotorch.Scope0(func(*gotorch.ScopeHandle) { fn() })
	default:
		panic(broken("no mode " + mode))
	}
}

// callIn calls a layer in a mode, and returns a copy of what it makes.
func callIn(mode string, m nn.Modular, x gotorch.Tensor) (y gotorch.Tensor) {
	inMode(mode, func() {
		out := m.(nn.Layer).Forward(x)
		gotorch.Unscoped(func() { y = out.Clone() })
	})
	return y
}

func init() {
	utilities["Module.call_in"] = callIn
	utilities["Module.call"] = func(m nn.Layer, x gotorch.Tensor) gotorch.Tensor { return nn.Call(m, x) }
	utilities["Module.child"] = func(m nn.Modular, name string) nn.Modular {
		for n, child := range m.NamedModules() {
			if n == name {
				return child
			}
		}
		panic(broken("no module " + name))
	}
}

func callsInCache(m nn.Modular, x gotorch.Tensor) (a, b gotorch.Tensor) {
	parametrize.Cached(func() {
		a, b = m.(nn.Layer).Forward(x), m.(nn.Layer).Forward(x)
	})
	return a, b
}

// field is a layer's field, which Go keeps.
func field(m nn.Modular, name string) borrowed {
	return borrowed{reflect.ValueOf(m).Elem().FieldByName(name).Interface().(gotorch.Tensor)}
}

func lnStructured(m nn.Modular, name string, amount gotorch.Scalar, n string, dim int64) nn.Modular {
	return prune.LnStructured(m, name, amount, n, dim)
}

func globalUnstructured(modules []nn.Modular, names []string, method string, amount gotorch.Scalar, scores []gotorch.Tensor) {
	var parameters []prune.Parameter
	given := map[prune.Parameter]gotorch.Tensor{}
	for i, m := range modules {
		p := prune.Parameter{Module: m, Name: names[i]}
		parameters = append(parameters, p)
		if i < len(scores) {
			given[p] = scores[i]
		}
	}
	methods := map[string]prune.Method{
		"L1Unstructured":     &prune.L1UnstructuredMethod{Amount: amount},
		"RandomUnstructured": &prune.RandomUnstructuredMethod{Amount: amount},
		"RandomStructured":   &prune.RandomStructuredMethod{Amount: amount},
		"Identity":           &prune.IdentityMethod{},
	}
	prune.GlobalUnstructured(parameters, methods[method], prune.GlobalOptions{ImportanceScores: given})
}

func pruned(method string, amount gotorch.Scalar, t gotorch.Tensor, opts ...prune.PruneOptions) gotorch.Tensor {
	methods := map[string]prune.Method{
		"L1Unstructured":     &prune.L1UnstructuredMethod{Amount: amount},
		"RandomUnstructured": &prune.RandomUnstructuredMethod{Amount: amount},
		"RandomStructured":   &prune.RandomStructuredMethod{Amount: amount},
		"LnStructured":       &prune.LnStructuredMethod{Amount: amount, N: 1},
	}
	return prune.Prune(methods[method], t, opts...)
}

// Methods of pruning of one's own.
type (
	everyOther   struct{}
	firstChannel struct{}
	unknown      struct{ everyOther }
)

func (everyOther) PruningType() prune.PruningType { return prune.Unstructured }

func (everyOther) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	mask := defaultMask.Clone()
	mask.View([]int64{-1}).Index(gotorch.SliceStep(2)).Zero_()
	return mask
}

func (firstChannel) PruningType() prune.PruningType { return prune.Structured }
func (firstChannel) Dim() int64                     { return 0 }

func (firstChannel) ComputeMask(t, defaultMask gotorch.Tensor) gotorch.Tensor {
	mask := defaultMask.Clone()
	mask.Select(0, 0).Zero_()
	return mask
}

func (unknown) PruningType() prune.PruningType { return "unknown" }

// Parametrizations of one's own, as the tests have them in Python.
var ownModules = map[string]any{
	"Symmetric":    func() nn.Modular { return nn.Init(&Symmetric{}) },
	"NoResize":     func() nn.Modular { return nn.Init(&NoResize{}) },
	"Skew":         func() nn.Modular { return nn.Init(&Skew{}) },
	"RankOne":      func() nn.Modular { return nn.Init(&RankOne{}) },
	"Sum":          func() nn.Modular { return nn.Init(&Sum{}) },
	"Double":       func() nn.Modular { return nn.Init(&Double{}) },
	"Scaled":       func() nn.Modular { return nn.Init(&Scaled{Scale: gotorch.Full([]int64{}, 3.0)}) },
	"Resized":      func() nn.Modular { return nn.Init(&Resized{}) },
	"AsDouble":     func() nn.Modular { return nn.Init(&AsDouble{}) },
	"WrongInverse": func() nn.Modular { return nn.Init(&WrongInverse{}) },
	"Sequence":     func(layers []nn.Layer) nn.Modular { return nn.Sequential(layers...) },
	"Own": func() nn.Modular {
		return nn.Init(&Own{Weight: gotorch.Ones([]int64{3, 3}), Mean: gotorch.Ones([]int64{3})})
	},
}

type (
	// Symmetric has no RightInverse.
	Symmetric struct{ nn.Module }
	// NoResize says that it cannot be assigned to.
	NoResize struct{ nn.Module }
	// Skew is made of the part above the diagonal.
	Skew struct{ nn.Module }
	// RankOne is a matrix of two vectors.
	RankOne struct{ nn.Module }
	// Sum is made of two halves.
	Sum struct{ nn.Module }
	// Double can be assigned to.
	Double struct{ nn.Module }
	// Scaled has a parameter.
	Scaled struct {
		nn.Module
		Scale gotorch.Tensor
	}
	// Resized changes the shape, AsDouble the dtype, and WrongInverse the dtype in RightInverse.
	Resized      struct{ nn.Module }
	AsDouble     struct{ nn.Module }
	WrongInverse struct{ nn.Module }
	// Own is a module with a parameter and a buffer.
	Own struct {
		nn.Module
		Weight gotorch.Tensor
		Mean   gotorch.Tensor `nn:",buffer"`
	}
)

func (*Symmetric) Forward(x gotorch.Tensor) gotorch.Tensor {
	return x.Triu().Add(x.Triu(gotorch.TriuOptions{Diagonal: 1}).MT())
}

func (*NoResize) Forward(x gotorch.Tensor) gotorch.Tensor { return x.Sin() }

func (*NoResize) RightInverse(gotorch.Tensor) gotorch.Tensor {
	panic(&gotorch.Error{Op: "NoResize", Kind: gotorch.NotImplementedError, Msg: "no inverse"})
}

func (*Skew) Forward(x gotorch.Tensor) gotorch.Tensor {
	upper := x.Triu(gotorch.TriuOptions{Diagonal: 1})
	return upper.Sub(upper.MT())
}

func (*Skew) RightInverse(a gotorch.Tensor) gotorch.Tensor {
	return a.Triu(gotorch.TriuOptions{Diagonal: 1})
}

func (*RankOne) Forward(v ...gotorch.Tensor) gotorch.Tensor {
	return v[0].Unsqueeze(-1).Mul(v[1].Unsqueeze(-2))
}

func (*RankOne) RightInverse(y gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{y.Select(1, 0).Clone(), y.Select(0, 0).Clone()}
}

func (*Sum) Forward(v ...gotorch.Tensor) gotorch.Tensor { return v[0].Add(v[1]) }

func (*Sum) RightInverse(y gotorch.Tensor) []gotorch.Tensor {
	return []gotorch.Tensor{y, gotorch.ZerosLike(y)}
}

func (*Double) Forward(x gotorch.Tensor) gotorch.Tensor      { return x.MulScalar(2) }
func (*Double) RightInverse(y gotorch.Tensor) gotorch.Tensor { return y.DivScalar(2) }

func (m *Scaled) Forward(x gotorch.Tensor) gotorch.Tensor { return x.Mul(m.Scale) }

func (*Resized) Forward(x gotorch.Tensor) gotorch.Tensor { return x.Select(0, 0) }

func (*AsDouble) Forward(x gotorch.Tensor) gotorch.Tensor { return x.To(gotorch.Float64) }

func (*WrongInverse) Forward(x gotorch.Tensor) gotorch.Tensor { return x.To(gotorch.Float32) }
func (*WrongInverse) RightInverse(y gotorch.Tensor) gotorch.Tensor {
	return y.To(gotorch.Float64)
}

// Forward is called by nn.Call alone.
func (m *Own) Forward(x gotorch.Tensor) gotorch.Tensor { return x.MatMul(m.Weight).Add(m.Mean) }
