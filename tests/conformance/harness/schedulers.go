package main

import (
	"fmt"
	"iter"
	"math"
	"reflect"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/optim"
	"gotorch.dev/gotorch/optim/lrscheduler"
	"gotorch.dev/gotorch/optim/swautils"
)

type functions1 = []func(int64) float64

// The schedulers, by PyTorch's names: their constructors. What is one value for all groups or one for each is given
// as a list here, of one or more.
var schedulers = map[string]any{
	"ChainedScheduler": lrscheduler.ChainedScheduler, "ConstantLR": lrscheduler.ConstantLR, "CosineAnnealingLR": lrscheduler.CosineAnnealingLR,
	"CosineAnnealingWarmRestarts": lrscheduler.CosineAnnealingWarmRestarts, "CyclicLR": lrscheduler.CyclicLR[[]float64, []float64],
	"ExponentialLR": lrscheduler.ExponentialLR, "LambdaLR": lrscheduler.LambdaLR[functions1], "LinearLR": lrscheduler.LinearLR,
	"MultiStepLR": lrscheduler.MultiStepLR, "MultiplicativeLR": lrscheduler.MultiplicativeLR[functions1],
	"OneCycleLR": lrscheduler.OneCycleLR[[]float64], "PolynomialLR": lrscheduler.PolynomialLR, "ReduceLROnPlateau": lrscheduler.ReduceLROnPlateau,
	"SWALR": swautils.SWALR[[]float64], "SequentialLR": lrscheduler.SequentialLR, "StepLR": lrscheduler.StepLR,
}

const (
	specialScheduler = -40 - iota
	specialSchedule
	specialScheduleTo
	specialRates
	specialAverage
	specialUpdate
	specialUpdateBN
)

// averages are the options of swautils.AveragedModel, by names.
var averages = map[string]func(decay float64) swautils.AveragedModelOptions{
	"default": func(float64) (o swautils.AveragedModelOptions) { return o },
	"swa": func(float64) (o swautils.AveragedModelOptions) {
		o.AvgFn = swautils.GetSWAAvgFn()
		return o
	},
	"swa_multi": func(float64) (o swautils.AveragedModelOptions) {
		o.MultiAvgFn = swautils.GetSWAMultiAvgFn()
		return o
	},
	"ema": func(decay float64) (o swautils.AveragedModelOptions) {
		o.AvgFn = swautils.GetEMAAvgFn(swautils.EMAOptions{Decay: decay})
		return o
	},
	"ema_multi": func(decay float64) (o swautils.AveragedModelOptions) {
		o.MultiAvgFn = swautils.GetEMAMultiAvgFn(swautils.EMAOptions{Decay: decay})
		return o
	},
	"own": func(float64) (o swautils.AveragedModelOptions) {
		o.AvgFn = func(averaged, current, n gotorch.Tensor) gotorch.Tensor {
			return averaged.MulScalar(2).Add(current.Mul(n))
		}
		return o
	},
}

// batches are what swautils.UpdateBN goes over.
type batches []gotorch.Tensor

func (b batches) All() iter.Seq2[gotorch.Tensor, error] {
	return func(yield func(gotorch.Tensor, error) bool) {
		for _, t := range b {
			if !yield(t, nil) {
				return
			}
		}
	}
}

func runSchedulers(index int64, in *reader) []reflect.Value {
	switch index {
	case specialScheduler:
		name := in.text()
		function, ok := schedulers[name]
		if !ok {
			panic(broken("there is no scheduler " + name))
		}
		made := in.invoke(reflect.ValueOf(function))
		numbers++
		kept[numbers] = made[0].Interface()
		return []reflect.Value{reflect.ValueOf(numbers)}
	case specialSchedule: // steps of the optimiser and the scheduler, with a metric for each if there are any
		opt, scheduler := kept[in.next()].(optim.Optimizer), kept[in.next()]
		steps := in.next()
		metrics := in.value(reflect.TypeFor[[]float64]()).Interface().([]float64)
		var rows [][]float64
		for i := range steps {
			opt.Step()
			switch s := scheduler.(type) {
			case lrscheduler.Scheduler:
				s.Step()
			case lrscheduler.MetricScheduler:
				s.Step(metrics[i])
			}
			rows = append(rows, ratesOf(opt, scheduler))
		}
		return []reflect.Value{reflect.ValueOf(rows)}
	case specialScheduleTo: // a place within an epoch
		opt, scheduler := kept[in.next()].(optim.Optimizer), kept[in.next()].(*lrscheduler.CosineAnnealingWarmRestartsScheduler)
		var rows [][]float64
		for _, epoch := range in.value(reflect.TypeFor[[]float64]()).Interface().([]float64) {
			scheduler.StepTo(epoch)
			rows = append(rows, ratesOf(opt, scheduler))
		}
		return []reflect.Value{reflect.ValueOf(rows)}
	case specialAverage:
		model := kept[in.next()].(nn.Layer)
		options := averages[in.text()](math.Float64frombits(uint64(in.next())))
		options.UseBuffers = in.next() != 0
		numbers++
		kept[numbers] = swautils.AveragedModel(model, options)
		return []reflect.Value{reflect.ValueOf(numbers)}
	case specialUpdate:
		kept[in.next()].(*swautils.AveragedModelModule[nn.Layer]).UpdateParameters(kept[in.next()].(nn.Modular))
		return nil
	case specialUpdateBN:
		model := kept[in.next()].(nn.Layer)
		if err := swautils.UpdateBN(batches(in.value(reflect.TypeFor[[]gotorch.Tensor]()).Interface().([]gotorch.Tensor)), model); err != nil {
			panic(err)
		}
		return nil
	case specialRates:
		opt := kept[in.next()].(optim.Optimizer)
		return []reflect.Value{reflect.ValueOf(ratesOf(opt, kept[in.next()]))}
	}
	panic(broken(fmt.Sprintf("there is no function %d", index)))
}

// ratesOf returns the learning rates and momenta of all groups, and the learning rates that a scheduler tells.
func ratesOf(opt optim.Optimizer, scheduler any) (row []float64) {
	for _, g := range opt.ParamGroups() {
		row = append(row, *g.LR())
		if m := g.Momentum(); m != nil {
			row = append(row, *m)
		}
	}
	return append(row, scheduler.(interface{ LastLRs() []float64 }).LastLRs()...)
}

// function makes a function of numbers that are looked up in a table, which begins again after its end.
func function(t reflect.Type, table []float64) reflect.Value {
	return reflect.MakeFunc(t, func(in []reflect.Value) []reflect.Value {
		at := in[0]
		if at.Kind() == reflect.Float64 {
			at = reflect.ValueOf(int64(at.Float()))
		}
		return []reflect.Value{reflect.ValueOf(table[int(at.Int())%len(table)])}
	})
}
