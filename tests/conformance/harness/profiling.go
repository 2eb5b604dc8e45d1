package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"gotorch.dev/gotorch/profiler"
)

// A profile of what the process does between two calls, whoever does it: Go or Python.
const (
	specialProfileStart = -160 - iota
	specialProfileStop
)

var profiling *profiler.Profiler

// recordedEvent is an event as Python compares it; parents are numbers of lines.
type recordedEvent struct {
	Name, Overload, Go, Kind string
	Parent, Forward          int
	Shapes                   [][]int64
	Types                    []string
	Lists                    [][][]int64
	FLOPs, Memory, Self      int64
	Sequence, Goroutine      int64
	Unfinished               bool
}

type recordedAverage struct {
	Key, Kind           string
	Count               int
	Shapes              [][]int64
	FLOPs, Memory, Self int64
}

func runProfiles(index int64, in *reader) []reflect.Value {
	switch index {
	case specialProfileStart:
		if profiling != nil {
			profiling.Stop()
		}
		profiling = profiler.New(profiler.Options{RecordShapes: true, ProfileMemory: true, WithFLOPs: true})
		if err := profiling.Start(); err != nil {
			panic(err)
		}
		return nil
	case specialProfileStop:
		byShape := in.next() != 0
		p := profiling
		profiling = nil
		if err := p.Stop(); err != nil {
			panic(err)
		}
		trace := p.Trace()
		numbers := map[*profiler.Event]int{nil: -1}
		events := trace.Events()
		for i, e := range events {
			numbers[e] = i
		}
		recorded := make([]recordedEvent, len(events))
		for i, e := range events {
			r := recordedEvent{Name: e.Name, Overload: e.Overload, Go: e.Go, Kind: e.Kind.String(), Parent: numbers[e.Parent],
				Forward: numbers[e.Forward], Shapes: e.Shapes(), FLOPs: e.FLOPs, Memory: e.Memory, Self: e.SelfMemory,
				Sequence: e.Sequence, Goroutine: e.Goroutine, Unfinished: e.Unfinished}
			for _, input := range e.Inputs {
				r.Types = append(r.Types, input.Type)
				if input.Type == "TensorList" {
					list := [][]int64{}
					for _, t := range input.List {
						list = append(list, append([]int64{}, t.Shape...))
					}
					r.Lists = append(r.Lists, list)
				}
			}
			recorded[i] = r
		}
		var rows []recordedAverage
		for _, a := range trace.KeyAverages(profiler.KeyAveragesOptions{GroupByInputShape: byShape}).Rows {
			rows = append(rows, recordedAverage{a.Key, a.Kind.String(), a.Count, a.Shapes, a.FLOPs, a.Memory, a.SelfMemory})
		}
		var text, chrome strings.Builder
		if err := json.NewEncoder(&text).Encode(map[string]any{"events": recorded, "averages": rows}); err != nil {
			panic(err)
		}
		if err := trace.WriteChromeTrace(&chrome); err != nil {
			panic(err)
		}
		return []reflect.Value{reflect.ValueOf(text.String()), reflect.ValueOf(chrome.String())}
	}
	panic(broken(fmt.Sprint("there is no function ", index)))
}
