// Parity does with gotorch what tests/test_parity.py does with PyTorch, case by case, for both to be
// compared bit by bit.
//
//	parity DIR
//
// For each case it reads DIR/CASE.in.safetensors and writes DIR/CASE.out.safetensors, or an error to
// DIR/CASE.error. Where a case is about files, it reads and writes those too.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/nn"
	F "gotorch.dev/gotorch/nn/functional"
	nninit "gotorch.dev/gotorch/nn/init"
	"gotorch.dev/gotorch/optim"
)

// tensors is what a case reads and writes.
type tensors = map[string]gotorch.Tensor

// files is where a case finds and leaves files.
type files struct{ dir string }

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

type testCase func(in tensors, f files) tensors

func main() {
	gotorch.SetNumThreads(1)
	dir := os.Args[1]
	for _, name := range slices.Sorted(keys(cases())) {
		must(os.WriteFile(filepath.Join(dir, "cases.txt"), []byte(strings.Join(slices.Sorted(keys(cases())), "\n")), 0o644))
		if err := run(dir, name, cases()[name]); err != nil {
			must(os.WriteFile(filepath.Join(dir, name+".error"), []byte(err.Error()), 0o644))
		}
	}
}

func keys[K comparable, V any](m map[K]V) func(yield func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func run(dir, name string, c testCase) error {
	in, err := gotorch.LoadTensors(filepath.Join(dir, name+".in.safetensors"))
	if err != nil {
		return err
	}
	out, err := gotorch.Try(func() tensors { return c(in, files{dir}) })
	if err != nil {
		return err
	}
	return gotorch.SaveTensors(filepath.Join(dir, name+".out.safetensors"), out)
}

func must(err error) {
	if err != nil {
		panic(&gotorch.Error{Op: "parity", Kind: gotorch.RuntimeError, Msg: err.Error()})
	}
}

func cases() map[string]testCase {
	all := map[string]testCase{
		"init":              initialValues,
		"functional":        functional,
		"losses":            losses,
		"train_cnn":         trainCNN,
		"names":             names,
		"state_from_python": stateFromPython,
		"state_to_python":   stateToPython,
		"optim_from_python": optimFromPython,
		"optim_to_python":   optimToPython,
		"loader":            loader,
		"repr":              repr,
		"containers":        containers,
		"sequences":         sequences,
		"functions":         functions,
	}
	for name, layer := range layers() {
		all["layer_"+name] = layerCase(layer)
	}
	for name, opt := range optimizers() {
		all["optim_"+name] = optimCase(opt, !strings.HasPrefix(name, "sgd_fused"))
	}
	return all
}

// layers are made with the same options as in Python.
func layers() map[string]func() nn.Layer {
	return map[string]func() nn.Layer{
		"linear":         func() nn.Layer { return nn.Linear(5, 3) },
		"linear_no_bias": func() nn.Layer { return nn.Linear(5, 3, nn.LinearOptions{NoBias: true}) },
		"linear_float64": func() nn.Layer { return nn.Linear(5, 3, nn.LinearOptions{DType: gotorch.Float64}) },
		"conv":           func() nn.Layer { return nn.Conv2d(4, 6, 3) },
		"conv_pairs": func() nn.Layer {
			return nn.Conv2d(4, 6, []int64{3, 2}, nn.Conv2dOptions{Stride: []int64{2, 1}, Padding: []int64{1, 2}, Dilation: []int64{1, 2}})
		},
		"conv_groups": func() nn.Layer {
			return nn.Conv2d(4, 6, 3, nn.Conv2dOptions{Groups: 2, NoBias: true})
		},
		"conv_same": func() nn.Layer {
			return nn.Conv2d(4, 6, [2]int{4, 3}, nn.Conv2dOptions{SamePadding: true, Dilation: []int64{1, 2}})
		},
		"conv_reflect": func() nn.Layer {
			return nn.Conv2d(4, 6, 3, nn.Conv2dOptions{Padding: []int64{2, 1}, PaddingMode: F.PadReflect})
		},
		"conv_circular_same": func() nn.Layer {
			return nn.Conv2d(4, 6, []int{4, 3}, nn.Conv2dOptions{SamePadding: true, PaddingMode: F.PadCircular})
		},
		"conv_replicate": func() nn.Layer {
			return nn.Conv2d(4, 6, 3, nn.Conv2dOptions{Padding: []int64{1}, PaddingMode: F.PadReplicate})
		},
		"max_pool": func() nn.Layer { return nn.MaxPool2d(2) },
		"max_pool_options": func() nn.Layer {
			return nn.MaxPool2d([]int64{3, 2}, nn.MaxPool2dOptions{Stride: []int64{2, 1}, Padding: []int64{1, 0}, Dilation: []int64{1, 2}, CeilMode: true})
		},
		"relu":         func() nn.Layer { return nn.ReLU() },
		"flatten":      func() nn.Layer { return nn.Flatten() },
		"flatten_dims": func() nn.Layer { return nn.Flatten(nn.FlattenOptions{StartDim: new(int64(0)), EndDim: new(int64(1))}) },
		"dropout":      func() nn.Layer { return nn.Dropout(0.3) },
		"batch_norm":   func() nn.Layer { return nn.BatchNorm2d(4) },
		"batch_norm_no_bias": func() nn.Layer {
			return nn.BatchNorm2d(4, nn.BatchNorm2dOptions{NoBias: true, Eps: new(1e-3), Momentum: new(0.0)})
		},
		"batch_norm_cumulative": func() nn.Layer {
			return nn.BatchNorm2d(4, nn.BatchNorm2dOptions{CumulativeAverage: true, NoAffine: true})
		},
		"batch_norm_untracked": func() nn.Layer {
			return nn.BatchNorm2d(4, nn.BatchNorm2dOptions{NoTrackRunningStats: true, Momentum: new(0.3)})
		},
		"sequential": func() nn.Layer {
			return nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(nn.ReLUOptions{InPlace: true}),
				nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(0.5, nn.DropoutOptions{InPlace: true}), nn.Linear(72, 3))
		},
	}
}

// layerCase trains for two batches and evaluates one: outputs, gradients and state.
func layerCase(make func() nn.Layer) testCase {
	return func(in tensors, _ files) tensors {
		gotorch.ManualSeed(7)
		layer := make()
		out := tensors{}
		for _, i := range []string{"0", "1"} {
			x := in["x"+i].Detach().RequiresGrad_()
			y := layer.Forward(x.MulScalar(1))
			y.Mul(gotorch.Cos(y.Detach())).Sum().Backward()
			out["y"+i], out["dx"+i] = y.Detach(), x.Grad()
		}
		layer.Eval()
		out["evaluated"] = layer.Forward(in["x0"]).Detach()
		for name, p := range layer.NamedParameters() {
			out["grad."+name] = p.Grad()
		}
		for name, t := range layer.StateDict() {
			out["state."+name] = t
		}
		return out
	}
}

func initialValues(tensors, files) tensors {
	gotorch.ManualSeed(3)
	out := tensors{}
	empty := func(shape ...int64) gotorch.Tensor { return gotorch.Empty(shape) }
	out["uniform"] = nninit.Uniform_(empty(5, 7))
	out["uniform_bounds"] = nninit.Uniform_(empty(5, 7), nninit.UniformOptions{A: -2, B: new(0.0)})
	out["normal"] = nninit.Normal_(empty(5, 7), nninit.NormalOptions{Mean: 1, Std: new(3.0)})
	out["trunc_normal"] = nninit.TruncNormal_(empty(20, 30))
	out["trunc_normal_narrow"] = nninit.TruncNormal_(empty(20, 30), nninit.TruncNormalOptions{Mean: 0.5, Std: new(2.0), A: new(-0.1), B: new(0.4)})
	out["constant"] = nninit.Constant_(empty(3), 2.5)
	out["ones"] = nninit.Ones_(empty(3))
	out["zeros"] = nninit.Zeros_(empty(3))
	out["eye"] = nninit.Eye_(empty(3, 5))
	out["dirac3"] = nninit.Dirac_(empty(4, 3, 5))
	out["dirac4"] = nninit.Dirac_(empty(6, 2, 3, 4), nninit.DiracOptions{Groups: 3})
	out["dirac5"] = nninit.Dirac_(empty(2, 3, 3, 3, 3))
	out["xavier_uniform"] = nninit.XavierUniform_(empty(5, 7, 3), nninit.XavierOptions{Gain: new(1.5)})
	out["xavier_normal"] = nninit.XavierNormal_(empty(5, 7))
	out["kaiming_uniform"] = nninit.KaimingUniform_(empty(5, 7, 3, 3))
	out["kaiming_uniform_out"] = nninit.KaimingUniform_(empty(5, 7), nninit.KaimingOptions{FanOut: true, Nonlinearity: nninit.ReLU})
	out["kaiming_normal"] = nninit.KaimingNormal_(empty(5, 7), nninit.KaimingOptions{A: 0.2})
	out["orthogonal_tall"] = nninit.Orthogonal_(empty(7, 4))
	out["orthogonal_wide"] = nninit.Orthogonal_(empty(3, 2, 5), nninit.OrthogonalOptions{Gain: new(2.0)})
	out["sparse"] = nninit.Sparse_(empty(10, 6), 0.35)
	generator := gotorch.NewGenerator(gotorch.CPU).ManualSeed(11)
	out["generator"] = nninit.KaimingNormal_(empty(5, 7), nninit.KaimingOptions{Generator: generator})
	gains := []float64{
		nninit.CalculateGain(nninit.Identity), nninit.CalculateGain(nninit.Sigmoid), nninit.CalculateGain(nninit.Tanh),
		nninit.CalculateGain(nninit.ReLU), nninit.CalculateGain(nninit.LeakyReLU), nninit.CalculateGain(nninit.LeakyReLU, 0.2),
		nninit.CalculateGain(nninit.SELU),
	}
	out["gains"] = gotorch.FromSlice(gains)
	return out
}

func functional(in tensors, _ files) tensors {
	x, w, b := in["x"], in["weight"], in["bias"]
	gotorch.ManualSeed(5)
	largest, indices := F.MaxPool2dWithIndices(x, []int64{2}, F.MaxPool2dOptions{Stride: []int64{1}})
	mean, variance := in["mean"].Clone(), in["var"].Clone()
	return tensors{
		"linear":          F.Linear(x, in["square"], F.LinearOptions{Bias: in["row"]}),
		"conv":            F.Conv2d(x, w, F.Conv2dOptions{Bias: b, Padding: []int64{1}}),
		"pad":             F.Pad(x, []int64{1, 2}, F.PadOptions{Value: 3}),
		"pad_reflect":     F.Pad(x, []int64{1, 2, 2, 1}, F.PadOptions{Mode: F.PadReflect}),
		"max_pool":        F.MaxPool2d(x, []int64{2}),
		"largest":         largest,
		"indices":         indices,
		"relu":            F.ReLU(x),
		"dropout":         F.Dropout(x, 0.4, true),
		"dropout_off":     F.Dropout(x, 0.4, false),
		"batch_norm":      F.BatchNorm(x, F.BatchNormOptions{RunningMean: mean, RunningVar: variance, Training: true, Momentum: new(0.25)}),
		"running_mean":    mean,
		"running_var":     variance,
		"batch_norm_eval": F.BatchNorm(x, F.BatchNormOptions{RunningMean: in["mean"], RunningVar: in["var"], Eps: new(0.5)}),
		"softmax":         F.Softmax(x, 1),
		"log_softmax":     F.LogSoftmax(x, -1, F.SoftmaxOptions{DType: gotorch.Float64}),
	}
}

func losses(in tensors, _ files) tensors {
	scores, classes, probabilities, weight := in["scores"], in["classes"], in["probabilities"], in["weight"]
	out := tensors{}
	for name, reduction := range map[string]F.Reduction{"mean": F.Mean, "sum": F.Sum, "none": F.None} {
		out["cross_entropy."+name] = F.CrossEntropy(scores, classes, F.CrossEntropyOptions{Reduction: reduction})
		out["cross_entropy_weight."+name] = F.CrossEntropy(scores, classes,
			F.CrossEntropyOptions{Reduction: reduction, Weight: weight, IgnoreIndex: new(int64(2)), LabelSmoothing: 0.1})
		out["cross_entropy_probabilities."+name] = F.CrossEntropy(scores, probabilities,
			F.CrossEntropyOptions{Reduction: reduction, LabelSmoothing: 0.2})
		out["nll."+name] = F.NLLLoss(F.LogSoftmax(scores, 1), classes,
			F.NLLLossOptions{Reduction: reduction, Weight: weight, IgnoreIndex: new(int64(0))})
		out["mse."+name] = F.MSELoss(scores, probabilities, F.MSELossOptions{Reduction: reduction})
		out["mse_weight."+name] = F.MSELoss(scores, probabilities, F.MSELossOptions{Reduction: reduction, Weight: scores.Abs()})
	}
	out["module"] = nn.CrossEntropyLoss(F.CrossEntropyOptions{Weight: weight, LabelSmoothing: 0.1}).Forward(scores, classes)
	return out
}

// optimizers are made with the same options as in Python.
func optimizers() map[string]func(params []gotorch.Tensor) optim.Optimizer {
	sgd := func(o optim.SGDOptions) func([]gotorch.Tensor) optim.Optimizer {
		return func(params []gotorch.Tensor) optim.Optimizer { return optim.SGD(params, o) }
	}
	adam := func(o optim.AdamOptions) func([]gotorch.Tensor) optim.Optimizer {
		return func(params []gotorch.Tensor) optim.Optimizer { return optim.Adam(params, o) }
	}
	adamW := func(o optim.AdamWOptions) func([]gotorch.Tensor) optim.Optimizer {
		return func(params []gotorch.Tensor) optim.Optimizer { return optim.AdamW(params, o) }
	}
	return map[string]func(params []gotorch.Tensor) optim.Optimizer{
		"sgd":             sgd(optim.SGDOptions{}),
		"sgd_momentum":    sgd(optim.SGDOptions{LR: 0.1, Momentum: 0.9, Dampening: 0.25}),
		"sgd_nesterov":    sgd(optim.SGDOptions{LR: 0.1, Momentum: 0.9, Nesterov: true, WeightDecay: 0.01}),
		"sgd_maximize":    sgd(optim.SGDOptions{LR: 0.1, Momentum: 0.5, Maximize: true, WeightDecay: 0.1}),
		"sgd_fused":       sgd(optim.SGDOptions{LR: 0.1, Momentum: 0.9, WeightDecay: 0.01, Fused: true}),
		"sgd_fused_plain": sgd(optim.SGDOptions{LR: 0.1, Fused: true, Maximize: true}),
		"adam":            adam(optim.AdamOptions{}),
		"adam_decay":      adam(optim.AdamOptions{LR: 0.01, WeightDecay: 0.1, Betas: &[2]float64{0.8, 0.95}, Eps: new(1e-5)}),
		"adam_amsgrad":    adam(optim.AdamOptions{LR: 0.01, AMSGrad: true, Maximize: true}),
		"adam_fused":      adam(optim.AdamOptions{LR: 0.01, WeightDecay: 0.1, Fused: true}),
		"adamw":           adamW(optim.AdamWOptions{}),
		"adamw_zero":      adamW(optim.AdamWOptions{LR: 0.01, WeightDecay: new(0.0), Betas: &[2]float64{0, 0.5}}),
		"adamw_amsgrad":   adamW(optim.AdamWOptions{LR: 0.01, AMSGrad: true, Maximize: true, WeightDecay: new(0.2)}),
		"adamw_fused":     adamW(optim.AdamWOptions{LR: 0.01, AMSGrad: true, Fused: true}),
		"sgd_groups": func(params []gotorch.Tensor) optim.Optimizer {
			o := optim.SGD(params[:1], optim.SGDOptions{LR: 0.1, Momentum: 0.9})
			o.AddGroup(params[1:], optim.SGDOptions{LR: 0.01})
			return o
		},
	}
}

// optimCase makes steps by given gradients, where one parameter may get its first one late.
func optimCase(make func(params []gotorch.Tensor) optim.Optimizer, late bool) testCase {
	return func(in tensors, _ files) tensors {
		var params []gotorch.Tensor
		for i := 0; in[fmt.Sprintf("p%d", i)].Defined(); i++ {
			params = append(params, in[fmt.Sprintf("p%d", i)].RequiresGrad_())
		}
		opt := make(params)
		for step := range 30 {
			opt.ZeroGrad()
			for i, p := range params {
				if i != 3 || !late || step >= 5 {
					p.SetGrad(in[fmt.Sprintf("g%d.%d", i, step)])
				}
			}
			opt.Step()
			for _, lr := range opt.LRs() {
				*lr *= 0.97
			}
		}
		out := tensors{}
		for i, p := range params {
			out[fmt.Sprintf("p%d", i)] = p.Detach()
		}
		return out
	}
}

func cnn() *nn.SequentialModule {
	return nn.Sequential(
		nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
		nn.Flatten(), nn.Dropout(0.25), nn.Linear(8*5*5, 10),
	)
}

// trainCNN draws weights, batches and dropout masks like PyTorch.
func trainCNN(in tensors, _ files) tensors {
	gotorch.ManualSeed(42)
	model := cnn()
	opt := optim.AdamW(model.Parameters(), optim.AdamWOptions{LR: 0.01})
	var history []float32
	batches := data.NewLoader(data.NewTensorDataset(in["images"], in["labels"]), data.LoaderOptions{BatchSize: 8, Shuffle: true})
	for range 3 {
		for batch, err := range batches.All() {
			must(err)
			opt.ZeroGrad()
			loss := F.CrossEntropy(model.Forward(batch.Input), batch.Target)
			loss.Backward()
			opt.Step()
			history = append(history, gotorch.Item[float32](loss))
		}
	}
	out := tensors(model.StateDict())
	out["losses"] = gotorch.FromSlice(history)
	return out
}

// net has children and parameters in all the places where they may be.
type net struct {
	nn.Module
	Conv1    *nn.Conv2dModule
	FC       nn.Layer
	Blocks   []*block
	Heads    map[string]*nn.LinearModule
	Scale    gotorch.Tensor
	Weights  []gotorch.Tensor
	Mean     gotorch.Tensor   `nn:",buffer"`
	Cache    gotorch.Tensor   `nn:",transient"`
	Renamed  *nn.LinearModule `nn:"downsample"`
	Tied     *nn.LinearModule
	NoOutput *nn.LinearModule
}

type block struct {
	nn.Module
	Norm  *nn.BatchNorm2dModule
	Steps *nn.SequentialModule
}

func newBlock() *block {
	return nn.Init(&block{Norm: nn.BatchNorm2d(3), Steps: nn.Sequential(nn.Linear(2, 2), nn.ReLU())})
}

func newNet() *net {
	n := &net{
		Conv1:   nn.Conv2d(1, 2, 3),
		FC:      nn.Linear(4, 3),
		Blocks:  []*block{newBlock(), newBlock()},
		Heads:   map[string]*nn.LinearModule{"a": nn.Linear(2, 1), "b": nn.Linear(2, 1, nn.LinearOptions{NoBias: true})},
		Scale:   gotorch.Rand([]int64{3}),
		Weights: []gotorch.Tensor{gotorch.Rand([]int64{2}), gotorch.Rand([]int64{1})},
		Mean:    gotorch.Rand([]int64{3}),
		Cache:   gotorch.Rand([]int64{3}),
		Renamed: nn.Linear(1, 1),
	}
	n.Tied = n.Renamed
	return nn.Init(n)
}

func writeLines(path string, lines []string) {
	must(os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644))
}

func names(_ tensors, f files) tensors {
	gotorch.ManualSeed(1)
	n := newNet()
	var list []string
	for name := range n.NamedParameters() {
		list = append(list, "parameter "+name)
	}
	for name := range n.NamedBuffers() {
		list = append(list, "buffer "+name)
	}
	writeLines(f.path("names.txt"), list)
	return tensors(n.StateDict())
}

func stateFromPython(_ tensors, f files) tensors {
	out := tensors{}
	for _, ending := range []string{"safetensors", "pt"} {
		n := newNet()
		must(nn.Load(n, f.path("from_python."+ending)))
		for name, t := range n.StateDict() {
			out[ending+"."+name] = t
		}
	}
	return out
}

func stateToPython(_ tensors, f files) tensors {
	n := newNet()
	must(nn.Save(n, f.path("to_python.safetensors")))
	must(nn.Save(n, f.path("to_python.pt")))
	return tensors(n.StateDict())
}

// trainABit gives an optimiser something to remember.
func trainABit(model nn.Layer, opt optim.Optimizer, x gotorch.Tensor, steps int) {
	for range steps {
		opt.ZeroGrad()
		model.Forward(x).Pow(2).Mean().Backward()
		opt.Step()
	}
}

func optimFromPython(in tensors, f files) tensors {
	out := tensors{}
	for name, opt := range resumable() {
		model := nn.Linear(3, 2)
		o := opt(model.Parameters())
		must(nn.Load(model, f.path(name+"_from_python.model.pt")))
		dict, err := gotorch.Load(f.path(name + "_from_python.opt.pt"))
		must(err)
		must(o.LoadStateDict(dict.(gotorch.Dict)))
		trainABit(model, o, in["x"], 5)
		out[name] = model.Weight.Detach()
	}
	return out
}

func optimToPython(in tensors, f files) tensors {
	out := tensors{}
	for name, opt := range resumable() {
		gotorch.ManualSeed(2)
		model := nn.Linear(3, 2)
		o := opt(model.Parameters())
		trainABit(model, o, in["x"], 5)
		must(nn.Save(model, f.path(name+"_to_python.model.pt")))
		must(gotorch.Save(f.path(name+"_to_python.opt.pt"), o.StateDict()))
		trainABit(model, o, in["x"], 5)
		out[name] = model.Weight.Detach()
	}
	return out
}

func resumable() map[string]func(params []gotorch.Tensor) optim.Optimizer {
	return map[string]func(params []gotorch.Tensor) optim.Optimizer{
		"sgd": func(params []gotorch.Tensor) optim.Optimizer {
			return optim.SGD(params, optim.SGDOptions{LR: 0.1, Momentum: 0.9})
		},
		"adamw": func(params []gotorch.Tensor) optim.Optimizer {
			return optim.AdamW(params, optim.AdamWOptions{LR: 0.1, AMSGrad: true})
		},
		"adamw_fused": func(params []gotorch.Tensor) optim.Optimizer {
			return optim.AdamW(params, optim.AdamWOptions{LR: 0.1, Fused: true})
		},
	}
}

func loader(_ tensors, _ files) tensors {
	n := 23
	set := data.NewTensorDataset(gotorch.ArangeStart(0, n), gotorch.ArangeStart(0, n))
	out := tensors{}
	for name, opt := range map[string]data.LoaderOptions{
		"plain":   {BatchSize: 5},
		"drop":    {BatchSize: 5, DropLast: true},
		"one":     {},
		"seeded":  {BatchSize: 4, Shuffle: true, Seed: 42},
		"workers": {BatchSize: 4, Shuffle: true, Seed: 42, Workers: 3},
		"default": {BatchSize: 4, Shuffle: true},
	} {
		gotorch.ManualSeed(9)
		l := data.NewLoader(set, opt)
		for epoch := range 2 {
			i := 0
			for batch, err := range l.All() {
				must(err)
				out[name+"."+strconv.Itoa(epoch)+"."+strconv.Itoa(i)] = batch.Input
				i++
			}
		}
	}
	return out
}

func repr(_ tensors, f files) tensors {
	var texts []string
	all := layers()
	for _, name := range slices.Sorted(keys(all)) {
		texts = append(texts, all[name]().String())
	}
	n := newNet()
	n.Weights = nil // which are a module of their own in PyTorch
	texts = append(texts, n.String(), nn.CrossEntropyLoss().String())
	writeLines(f.path("repr.txt"), texts)
	return tensors{}
}
