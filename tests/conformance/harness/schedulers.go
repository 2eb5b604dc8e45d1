package main

import (
	"fmt"
	"reflect"

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
)

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
