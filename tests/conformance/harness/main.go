// Command harness is the Go package as a shared library, for Python to call in its own process.
//
// It calls the generated wrappers as a Go program does: arguments through parameters and options
// structs, results through return values, errors through panics. Python sends a call as words of
// eight bytes and receives the results in the same form; values.go says how a value is written.
package main

/*
#include <stdint.h>
*/
import "C"

import (
	"fmt"
	"maps"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"unsafe"

	"gotorch.dev/gotorch"
)

// entry is a wrapper: table_gen.go lists all of them.
type entry struct {
	schema   string
	function any
	method   any // a method expression; nil where there is none
	// where says of each argument of the schema where it goes: "-" is a parameter, "." the receiver
	// of the method and a parameter of the function, else it is the field of the options.
	where string
}

// How a call ended.
const (
	endedWell     = iota
	endedInError  // a panic with *gotorch.Error: operator, kind, message
	endedBadly    // any other panic: its text
	requestBroken // the harness could not make the call: why
)

// What is called of an entry.
const (
	formFunction = iota
	formMethod
)

func main() {}

//export conformance_call
func conformance_call(request *C.int64_t, n C.int64_t, response *C.int64_t, room C.int64_t) C.int64_t {
	in := &reader{words: unsafe.Slice((*int64)(unsafe.Pointer(request)), int(n))}
	out := &writer{}
	run(in, out)
	if len(out.words) > int(room) {
		out = &writer{}
		out.add(requestBroken)
		out.string("the results do not fit the buffer")
	}
	return C.int64_t(copy(unsafe.Slice((*int64)(unsafe.Pointer(response)), int(room)), out.words))
}

// conformance_collect runs Go's collector and waits until what it found is freed.
//
//export conformance_collect
func conformance_collect() C.int64_t {
	for range 3 {
		runtime.GC()
		gotorch.ReleaseCachedMemory()
	}
	return C.int64_t(gotorch.MemoryStats().LiveHandles)
}

//export conformance_size
func conformance_size() C.int64_t { return C.int64_t(len(table)) }

// run makes one call: its number, its form, whether an options struct is passed, the arguments.
func run(in *reader, out *writer) {
	defer in.release()
	defer func() {
		problem := recover()
		if problem == nil {
			return
		}
		out.words = out.words[:0]
		switch p := problem.(type) {
		case *gotorch.Error:
			out.add(endedInError)
			out.string(p.Op)
			out.string(string(p.Kind))
			out.string(p.Msg)
		case broken:
			out.add(requestBroken)
			out.string(string(p))
		default:
			out.add(endedBadly)
			out.string(fmt.Sprintf("%v\n%s", p, debug.Stack()))
		}
	}()
	results := call(in)
	out.add(endedWell)
	out.add(int64(len(results)))
	for _, r := range results {
		out.value(r, in)
	}
	// What the call did to the generators that it was given.
	out.add(int64(len(in.generators)))
	for _, g := range in.generators {
		out.tensor(g.State(), in)
	}
}

func call(in *reader) (results []reflect.Value) {
	index, form, options := in.next(), in.next(), in.next() != 0
	switch {
	case index == specialCount:
		var flops []int64
		var names []string
		counted := gotorch.FlopCounterMode(func() { results = call(in) })
		for _, name := range slices.Sorted(maps.Keys(counted)) {
			names, flops = append(names, name), append(flops, counted[name])
		}
		return append(results, reflect.ValueOf(names), reflect.ValueOf(flops))
	case index < 0:
		return runners[-index/10](index, in)
	}
	e := &table[index]
	function := reflect.ValueOf(e.function)
	if form == formMethod {
		function = reflect.ValueOf(e.method)
	}
	return function.Call(e.arguments(function.Type(), form, options, in))
}

// runners have the functions besides the generated ones, whose numbers are negative: ten for each file, by the
// tens of the number. Python knows them by the same numbers.
var runners map[int64]func(index int64, in *reader) []reflect.Value

func init() { // since some of them call others
	runners = map[int64]func(index int64, in *reader) []reflect.Value{
		-specialBackward / 10:      runSpecial,
		-specialMake / 10:          runModules,
		-specialOptimizer / 10:     runOptimizers,
		-specialScheduler / 10:     runSchedulers,
		-specialCount / 10:         runObserved,
		-specialTransform / 10:     runTransforms,
		-specialProbability / 10:   runDistributions,
		-specialGradCheck / 10:     runGradCheck,
		-specialComposed / 10:      runComposed,
		-specialSave / 10:          runVisionModels,
		-specialMeasure / 10:       runMetrics,
		-specialProfileStart / 10:  runProfiles,
		-specialImageFunction / 10: runVisionTransforms,
	}
}

const (
	specialBackward = -1 - iota
	specialGrad
	specialSeed
)

// specialCount is a call like any other, whose FLOPs come behind its results.
const specialCount = -50

func runSpecial(index int64, in *reader) []reflect.Value {
	tensors := reflect.TypeFor[[]gotorch.Tensor]()
	list := func() []gotorch.Tensor { return in.value(tensors).Interface().([]gotorch.Tensor) }
	switch index {
	case specialBackward:
		outputs, grads := list(), list()
		if len(outputs) == 1 {
			outputs[0].Backward(gotorch.BackwardOptions{Gradient: grads[0]})
		} else {
			gotorch.Backward(outputs, grads)
		}
		return nil
	case specialGrad:
		outputs, grads, inputs := list(), list(), list()
		result := gotorch.Grad(outputs, inputs, gotorch.GradOptions{GradOutputs: grads, AllowUnused: true})
		return []reflect.Value{reflect.ValueOf(result)}
	case specialSeed:
		gotorch.ManualSeed(uint64(in.next()))
		return nil
	}
	panic(broken(fmt.Sprint("there is no function ", index)))
}

// runObserved has what is said of modules besides what they compute.
func runObserved(index int64, in *reader) []reflect.Value {
	switch index {
	case specialStateHooks:
		return runStateHooks(in)
	case specialSummary:
		return runSummary(in)
	}
	panic(broken(fmt.Sprint("there is no function ", index)))
}
