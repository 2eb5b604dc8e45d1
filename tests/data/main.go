// Command data draws orders with package data for tests/test_data.py: each line of its input is a case in JSON, and so is
// each line of its output what it draws, or the error.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
)

type request struct {
	Kind        string    // of the order
	Seed        uint64    // of the default generator
	Own         *uint64   // of a generator for the sampler
	Loader      *uint64   // of a generator for the loader
	N           int       // samples
	Replacement bool      // of a random sampler
	Num         *int      // samples of an epoch
	Weights     []float64 // of a weighted sampler
	Indices     []int     // of a subset sampler
	Batch       int       // size of batches; 0: no loader around
	Drop        bool
	Workers     int
	As          string // how a loader gets the order: "sampler", "batch_sampler", "shuffle" or "sequential"
	Lengths     []int
	Fractions   []float64
	Sets        []int // lengths of sets that are joined
}

type answer struct {
	Epochs [][][]int // the batches of each epoch; without a loader, one batch
	Len    int
	Next   int64 // what the default generator draws then
	Error  string
}

func main() {
	in, out := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var r request
		if err := json.Unmarshal(in.Bytes(), &r); err != nil {
			panic(err)
		}
		a := answer{}
		gotorch.ManualSeed(r.Seed)
		if err := gotorch.Try0(func() { r.run(&a) }); err != nil {
			a = answer{Error: err.Error()}
		}
		a.Next = gotorch.Item[int64](gotorch.Randint(1<<40, []int64{1}))
		if err := out.Encode(a); err != nil {
			panic(err)
		}
	}
}

func generator(seed *uint64) *gotorch.Generator {
	if seed == nil {
		return nil
	}
	return gotorch.NewGenerator(gotorch.CPU).ManualSeed(*seed)
}

// set has its indices as samples.
type set int

func (s set) Len() int              { return int(s) }
func (s set) At(i int) (int, error) { return i, nil }

func (r *request) sampler() data.Sampler[int] {
	own := generator(r.Own)
	switch r.Kind {
	case "sequential":
		return data.SequentialSampler(set(r.N))
	case "random":
		o := data.RandomSamplerOptions{Replacement: r.Replacement, Generator: own}
		if r.Num != nil {
			o.NumSamples = *r.Num
		}
		return data.RandomSampler(set(r.N), o)
	case "subset":
		return data.SubsetRandomSampler(r.Indices, data.SubsetRandomSamplerOptions{Generator: own})
	case "weighted":
		return data.WeightedRandomSampler(r.Weights, *r.Num, data.WeightedRandomSamplerOptions{NoReplacement: !r.Replacement, Generator: own})
	}
	panic("no sampler " + r.Kind)
}

func (r *request) distributed(a *answer) {
	s := data.DistributedSampler(set(r.N), r.Sets[0], r.Sets[1], data.DistributedSamplerOptions{NoShuffle: !r.Replacement, Seed: r.Seed, DropLast: r.Drop})
	a.Len = s.Len()
	for epoch := range 3 {
		s.SetEpoch(epoch)
		a.Epochs = append(a.Epochs, [][]int{slices.AppendSeq([]int{}, s.All())})
	}
}

func (r *request) run(a *answer) {
	switch {
	case r.Kind == "split":
		for _, part := range r.parts() {
			a.Epochs = append(a.Epochs, [][]int{all(part)})
		}
	case r.Kind == "concat":
		var sets []data.Dataset[int]
		first := 0
		for _, n := range r.Sets {
			var indices []int
			for i := range n {
				indices = append(indices, first+i)
			}
			sets = append(sets, data.Subset[int](set(first+n), indices))
			first += n
		}
		a.Epochs = [][][]int{{all(data.Concat(sets...))}}
	case r.Kind == "distributed":
		r.distributed(a)
	case r.Batch == 0:
		s := r.sampler()
		a.Len = s.Len()
		for range 2 {
			a.Epochs = append(a.Epochs, [][]int{slices.AppendSeq([]int{}, s.All())})
		}
	case r.As == "":
		s := data.BatchSampler(r.sampler(), r.Batch, r.Drop)
		a.Len = s.Len()
		for range 2 {
			a.Epochs = append(a.Epochs, collect(s.All()))
		}
	default:
		l := r.loader()
		a.Len = l.Len()
		for range 2 {
			batches := [][]int{}
			for batch, err := range l.All() {
				if err != nil {
					panic(&gotorch.Error{Kind: gotorch.RuntimeError, Msg: err.Error()})
				}
				batches = append(batches, batch)
			}
			a.Epochs = append(a.Epochs, batches)
		}
	}
}

func collect(all iter.Seq[[]int]) [][]int {
	batches := [][]int{}
	for batch := range all {
		batches = append(batches, batch)
	}
	return batches
}

func all(d data.Dataset[int]) []int {
	samples := []int{}
	for i := range d.Len() {
		s, err := d.At(i)
		if err != nil {
			panic(fmt.Sprint(err))
		}
		samples = append(samples, s)
	}
	return samples
}

func (r *request) parts() []data.Dataset[int] {
	o := data.RandomSplitOptions{Generator: generator(r.Own)}
	if r.Fractions != nil {
		return data.RandomSplit[int](set(r.N), r.Fractions, o)
	}
	return data.RandomSplit[int](set(r.N), r.Lengths, o)
}

func (r *request) loader() *data.Loader[[]int] {
	o := data.LoaderOptions{BatchSize: r.Batch, DropLast: r.Drop, Workers: r.Workers, Generator: generator(r.Loader)}
	switch r.As {
	case "sampler":
		o.Sampler = r.sampler()
	case "batch_sampler":
		o.BatchSampler = data.BatchSampler(r.sampler(), r.Batch, r.Drop)
		o.BatchSize, o.DropLast = nil, false
	case "shuffle":
		o.Shuffle = true
	}
	return data.NewLoaderWith(data.Dataset[int](set(r.N)), func(samples []int) ([]int, error) { return slices.Clone(samples), nil }, o)
}
