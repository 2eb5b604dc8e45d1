// Package swautils averages the weights of a model over its training: stochastic weight averaging (SWA), and
// exponential moving averages (EMA).
//
//	average := swautils.AveragedModel(model)
//	schedule := swautils.SWALR(opt, 0.05)
//	for epoch := range 300 {
//		...
//		if epoch > 160 {
//			average.UpdateParameters(model)
//			schedule.Step()
//		}
//	}
//	err := swautils.UpdateBN(loader, average)
//	y := average.Forward(x)
//
// An EMA is updated after every step of the optimiser:
//
//	average := swautils.AveragedModel(model, swautils.AveragedModelOptions{
//		MultiAvgFn: swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: 0.99}), UseBuffers: true})
package swautils

import (
	"fmt"
	"iter"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/modes"
	"gotorch.dev/gotorch/nn"
)

// AvgFn returns the next average of a parameter, of the one so far, the model's parameter, and how many were
// averaged: a tensor of no dimensions, of int64.
type AvgFn func(averaged, current, numAveraged gotorch.Tensor) gotorch.Tensor

// MultiAvgFn writes the next averages of parameters, all of one dtype and on one device, over those so far.
type MultiAvgFn func(averaged, current []gotorch.Tensor, numAveraged gotorch.Tensor)

// EMAOptions are the arguments of [GetEMAAvgFn] and [GetEMAMultiAvgFn] that have defaults.
type EMAOptions struct {
	Decay gotorch.Scalar // the part of an average that stays, between 0 and 1; default: 0.999
}

func decayOf(op string, opts []EMAOptions) float64 {
	decay := args.Float(op, "Decay", args.Option(opts).Decay, 0.999)
	if !(decay >= 0 && decay <= 1) {
		panic(args.ValueError(op, "Invalid decay value %v provided. Please provide a value in [0,1] range.", decay))
	}
	return decay
}

// GetEMAAvgFn returns an [AvgFn] of an exponential moving average. It panics with a ValueError if Decay is not
// between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema.
func GetEMAAvgFn(opts ...EMAOptions) AvgFn {
	decay := decayOf("swautils.GetEMAAvgFn", opts)
	return func(averaged, current, _ gotorch.Tensor) gotorch.Tensor {
		return averaged.MulScalar(decay).Add(current.MulScalar(1 - decay))
	}
}

// GetEMAMultiAvgFn returns a [MultiAvgFn] of an exponential moving average. It panics with a ValueError if Decay is
// not between 0 and 1.
//
// See https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema.
func GetEMAMultiAvgFn(opts ...EMAOptions) MultiAvgFn {
	decay := decayOf("swautils.GetEMAMultiAvgFn", opts)
	return func(averaged, current []gotorch.Tensor, _ gotorch.Tensor) {
		if interpolates(averaged) {
			gotorch.ForeachLerpScalar_(averaged, current, 1-decay)
			return
		}
		for i, a := range averaged {
			a.Copy_(a.MulScalar(decay).Add(current[i].MulScalar(1 - decay)))
		}
	}
}

// GetSWAAvgFn returns an [AvgFn] in which all weights count the same, the default of [AveragedModel].
//
// See https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema.
func GetSWAAvgFn() AvgFn {
	return func(averaged, current, numAveraged gotorch.Tensor) gotorch.Tensor {
		return averaged.Add(current.Sub(averaged).Div(numAveraged.AddScalar(1)))
	}
}

// GetSWAMultiAvgFn returns a [MultiAvgFn] in which all weights count the same. As in PyTorch it panics with a
// RuntimeError for integers.
//
// See https://docs.pytorch.org/docs/stable/optim.html#weight-averaging-swa-and-ema.
func GetSWAMultiAvgFn() MultiAvgFn {
	return func(averaged, current []gotorch.Tensor, numAveraged gotorch.Tensor) {
		count := numAveraged.AddScalar(1)
		if interpolates(averaged) {
			gotorch.ForeachLerpScalar_(averaged, current, gotorch.Item[float64](count.Reciprocal()))
			return
		}
		counts := make([]gotorch.Tensor, len(averaged))
		for i := range counts {
			counts[i] = count
		}
		gotorch.ForeachAddCDivScalar_(averaged, gotorch.ForeachSubList(current, averaged), counts)
	}
}

// interpolates reports whether _foreach_lerp_ takes tensors.
func interpolates(tensors []gotorch.Tensor) bool {
	return len(tensors) > 0 && (tensors[0].DType().IsFloatingPoint() || tensors[0].DType().IsComplex())
}

// AveragedModelModule is what [AveragedModel] makes. It is a module, whose state dict has PyTorch's names:
// "n_averaged", and those of the model behind "module.".
type AveragedModelModule[M nn.Modular] struct {
	nn.Module
	Model     M              `nn:"module"`            // with the averages
	NAveraged gotorch.Tensor `nn:"n_averaged,buffer"` // how many were averaged, an int64 of no dimensions

	avgFn      AvgFn
	multiAvgFn MultiAvgFn
	useBuffers bool
}

// AveragedModelOptions are the arguments of [AveragedModel] that have defaults. Of AvgFn and MultiAvgFn one may be
// given.
type AveragedModelOptions struct {
	Device     gotorch.Device // where the averages are; default: where the model is
	AvgFn      AvgFn          // default: GetSWAAvgFn()
	MultiAvgFn MultiAvgFn
	UseBuffers bool // average buffers too, which are otherwise copied
}

// AveragedModel makes a copy of a model that keeps averages of its parameters; see [AveragedModelModule]. The
// functions are not in its state dict. It panics with an AssertionError if both are given.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.optim.swa_utils.AveragedModel.html.
func AveragedModel[M nn.Modular](model M, opts ...AveragedModelOptions) *AveragedModelModule[M] {
	o := args.Option(opts)
	if o.AvgFn != nil && o.MultiAvgFn != nil {
		panic(&gotorch.Error{Op: "swautils.AveragedModel", Kind: "AssertionError", Msg: "Only one of avg_fn and multi_avg_fn should be provided"})
	}
	a := &AveragedModelModule[M]{Model: nn.Clone(model), avgFn: o.AvgFn, multiAvgFn: o.MultiAvgFn, useBuffers: o.UseBuffers}
	gotorch.Unscoped(func() {
		if o.Device != 0 {
			a.Model.To(o.Device)
		}
		a.NAveraged = gotorch.Zeros([]int64{}, gotorch.TensorOptions{DType: gotorch.Int64, Device: o.Device})
	})
	return nn.Init(a)
}

// Forward calls the model with the averages. It panics with a TypeError if that is no nn.Layer: call its own Forward,
// by the field Model.
func (a *AveragedModelModule[M]) Forward(x gotorch.Tensor) gotorch.Tensor {
	layer, ok := any(a.Model).(nn.Layer)
	if !ok {
		panic(&gotorch.Error{Op: "swautils.AveragedModel.Forward", Kind: gotorch.TypeError,
			Msg: fmt.Sprintf("%T is no nn.Layer: call the Forward of the field Model", a.Model)})
	}
	return nn.Call(layer, x)
}

// UpdateParameters averages the parameters of a model, of the same structure, with those so far; the first time it
// copies them. It panics with a ValueError if the structure is another; then nothing has changed.
func (a *AveragedModelModule[M]) UpdateParameters(model nn.Modular) {
	const op = "swautils.AveragedModel.UpdateParameters"
	if v := reflect.ValueOf(model); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		panic(&gotorch.Error{Op: op, Kind: gotorch.TypeError, Msg: "the model is nil"})
	}
	gotorch.NoGrad(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			averaged, current := pairs(op, "parameters", a.Model.NamedParameters(), model.NamedParameters())
			buffers, others := pairs(op, "buffers", a.Model.NamedBuffers(), model.NamedBuffers())
			if a.useBuffers {
				averaged, current = append(averaged, buffers...), append(current, others...)
				buffers, others = nil, nil
			}
			if gotorch.Item[int64](a.NAveraged) == 0 {
				for i, t := range averaged {
					t.Copy_(current[i])
				}
			} else {
				a.average(averaged, current)
			}
			for i, t := range buffers {
				t.Copy_(others[i])
			}
			a.NAveraged.AddScalar_(1)
		})
	})
}

// pairs returns tensors of the average, and those of the model that belong to them, on the same devices. All are
// detached.
func pairs(op, what string, averages, of iter.Seq2[string, gotorch.Tensor]) (averaged, current []gotorch.Tensor) {
	for _, t := range averages {
		averaged = append(averaged, t.Detach())
	}
	for name, t := range of {
		i := len(current)
		if i < len(averaged) && fmt.Sprint(averaged[i].Shape()) != fmt.Sprint(t.Shape()) {
			panic(args.ValueError(op, "the model has shape %v for %s, and the average %v", t.Shape(), name, averaged[i].Shape()))
		}
		if t = t.Detach(); i < len(averaged) {
			t = t.To(averaged[i].Device())
		}
		current = append(current, t)
	}
	if len(averaged) != len(current) {
		panic(args.ValueError(op, "the model has %d %s, and the average %d", len(current), what, len(averaged)))
	}
	return averaged, current
}

// average makes the next averages.
func (a *AveragedModelModule[M]) average(averaged, current []gotorch.Tensor) {
	if a.avgFn != nil {
		next := make([]gotorch.Tensor, len(averaged))
		for i, t := range averaged {
			next[i] = a.avgFn(t, current[i], a.NAveraged.To(t.Device()))
			if !next[i].Defined() {
				panic(&gotorch.Error{Op: "swautils.AveragedModel.UpdateParameters", Kind: gotorch.TypeError, Msg: "AvgFn must return the next average, a tensor, and returned none"})
			}
		}
		for i, t := range averaged {
			t.Copy_(next[i])
		}
		return
	}
	type kind struct {
		device gotorch.Device
		dtype  gotorch.DType
	}
	var kinds []kind
	groups := map[kind][2][]gotorch.Tensor{}
	for i, t := range averaged {
		k := kind{t.Device(), t.DType()}
		g, ok := groups[k]
		if !ok {
			kinds = append(kinds, k)
		}
		groups[k] = [2][]gotorch.Tensor{append(g[0], t), append(g[1], current[i])}
	}
	for _, k := range kinds {
		g, count := groups[k], a.NAveraged.To(k.device)
		switch {
		case a.multiAvgFn != nil:
			a.multiAvgFn(g[0], g[1], count)
		case k.device.Type() != gotorch.DeviceTypeCPU: // as in PyTorch, where CPUs gain nothing by it
			GetSWAMultiAvgFn()(g[0], g[1], count)
		default:
			fn := GetSWAAvgFn()
			for i, t := range g[0] {
				t.Copy_(fn(t, g[1][i], count))
			}
		}
	}
}

// Batch is what a loader for [UpdateBN] gives: inputs, alone or with what a model should answer; of a list of tensors, as a loader
// over data.TensorRows gives them, the first is the inputs.
type Batch interface {
	gotorch.Tensor | data.Pair | []gotorch.Tensor
}

// Batches is where batches come from, as a data.Loader.
type Batches[S Batch] interface{ All() iter.Seq2[S, error] }

// UpdateBNOptions are the arguments of [UpdateBN] that have defaults.
type UpdateBNOptions struct {
	Device gotorch.Device // where inputs are moved to; default: they are left where they are
}

// UpdateBN makes the running statistics of a model's batch normalizations those of all inputs of a loader, each
// batch of which counts the same: averaged weights have none of their own. The model is in training mode meanwhile.
// It returns the loader's error. Whether it does or the model panics, momenta and the mode of each module are as before.
//
// See https://docs.pytorch.org/docs/stable/optim.html#torch.optim.swa_utils.update_bn.
func UpdateBN[S Batch](loader Batches[S], model nn.Layer, opts ...UpdateBNOptions) error {
	o := args.Option(opts)
	for what, v := range map[string]any{"loader": loader, "model": model} {
		if v := reflect.ValueOf(v); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
			panic(&gotorch.Error{Op: "swautils.UpdateBN", Kind: gotorch.TypeError, Msg: "the " + what + " is nil"})
		}
	}
	var norms []*nn.BatchNormNd
	for _, m := range model.NamedModules() {
		if f := reflect.ValueOf(m).Elem().FieldByName("BatchNormNd"); f.IsValid() && f.CanAddr() {
			if norm, ok := f.Addr().Interface().(*nn.BatchNormNd); ok {
				norms = append(norms, norm)
			}
		}
	}
	if len(norms) == 0 {
		return nil
	}
	restore := modes.Keep(model)
	cumulative := make([]bool, len(norms))
	for i, norm := range norms {
		cumulative[i] = norm.CumulativeAverage
	}
	defer func() {
		for i, norm := range norms {
			norm.CumulativeAverage = cumulative[i]
		}
		restore()
	}()
	model.Train(true)
	gotorch.NoGrad(func() {
		for _, norm := range norms {
			norm.ResetRunningStats()
			norm.CumulativeAverage = true
		}
	})
	for batch, err := range loader.All() {
		if err != nil {
			return err
		}
		gotorch.NoGrad(func() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				var x gotorch.Tensor
				switch batch := any(batch).(type) {
				case gotorch.Tensor:
					x = batch
				case data.Pair:
					x = batch.Input
				case []gotorch.Tensor:
					if len(batch) == 0 {
						panic(&gotorch.Error{Op: "swautils.UpdateBN", Kind: gotorch.ValueError, Msg: "a batch of the loader has no tensors, where the first should be the inputs"})
					}
					x = batch[0]
				}
				if o.Device != 0 {
					x = x.To(o.Device)
				}
				nn.Call(model, x)
			})
		})
	}
	return nil
}
