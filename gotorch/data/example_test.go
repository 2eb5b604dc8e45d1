package data_test

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
)

// words are a data set of one's own.
type words []string

func (w words) Len() int                 { return len(w) }
func (w words) At(i int) (string, error) { return w[i], nil }

func ExampleNewLoaderWith() {
	lengths := func(samples []string) (gotorch.Tensor, error) {
		var n []int64
		for _, s := range samples {
			n = append(n, int64(len(s)))
		}
		return gotorch.FromSlice(n), nil
	}
	for batch, err := range data.NewLoaderWith(words{"a", "bcd", "ef"}, lengths, data.LoaderOptions{BatchSize: 2}).All() {
		fmt.Println(batch, err)
	}
	// Output:
	// tensor([1, 3]) <nil>
	// tensor([2]) <nil>
}

func ExampleDefaultCollate() {
	type sample struct {
		Tokens []int64
		Label  int
	}
	type batch struct {
		Tokens data.Padded
		Label  gotorch.Tensor
	}
	b, err := data.DefaultCollate[sample, batch]([]sample{{[]int64{5, 6, 7}, 1}, {[]int64{8}, 0}})
	fmt.Println(b.Tokens.Values, b.Tokens.Lengths, b.Label, err)
	// Output:
	// tensor([[5, 6, 7],
	//         [8, 0, 0]]) tensor([3, 1]) tensor([1, 0]) <nil>
}

func ExampleNewIterableLoader() {
	lines := data.IterableOf(func(yield func(string, error) bool) { // such as those of a large file
		for _, line := range []string{"3", "1", "4", "1", "5"} {
			if !yield(line, nil) {
				return
			}
		}
	})
	numbers := data.TransformIterable(lines, func(line string, _ *rand.Rand) (gotorch.Tensor, error) {
		return gotorch.FromScalar(int64(line[0] - '0')), nil
	})
	for batch, err := range data.NewIterableLoader(numbers, data.LoaderOptions{BatchSize: 3, Workers: 2}).All() {
		fmt.Println(batch, err)
	}
	// Output:
	// tensor([3, 1, 4]) <nil>
	// tensor([1, 5]) <nil>
}

func ExampleLoader_StateDict() {
	loader := func() *data.Loader[gotorch.Tensor] {
		set := data.Transform[string](words{"a", "bcd", "ef", "ghij"}, func(s string, _ *rand.Rand) (gotorch.Tensor, error) {
			return gotorch.FromScalar(int64(len(s))), nil
		})
		return data.NewLoader(set, data.LoaderOptions{BatchSize: 2})
	}
	first := loader()
	for batch := range first.All() {
		fmt.Println(batch)
		break
	}
	second := loader()
	fmt.Println(second.LoadStateDict(first.StateDict()))
	for batch := range second.All() {
		fmt.Println(batch)
	}
	// Output:
	// tensor([1, 3])
	// <nil>
	// tensor([2, 4])
}

func ExampleSampleError() {
	set := data.Transform[string](words{"a", "", "c"}, func(s string, _ *rand.Rand) (gotorch.Tensor, error) {
		return gotorch.FromScalar(int64(s[0])), nil // which panics for an empty one
	})
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 3, MaxErrors: 1}).All() {
		fmt.Println(batch, err)
	}
	for _, err := range data.NewLoader(set).All() {
		if sample, is := errors.AsType[*data.SampleError](err); is {
			fmt.Println("sample", sample.Index)
		}
	}
	// Output:
	// tensor([97, 99]) <nil>
	// sample 1
}

func ExampleWeightedRandomSampler() {
	// As torch.utils.data.WeightedRandomSampler([1, 0, 1], 5, generator=torch.Generator().manual_seed(3)), without the second.
	g := gotorch.NewGenerator(gotorch.CPU).ManualSeed(3)
	sampler := data.WeightedRandomSampler([]float64{1, 0, 1}, 5, data.WeightedRandomSamplerOptions{Generator: g})
	second := 0
	for i := range sampler.All() {
		if i == 1 {
			second++
		}
	}
	fmt.Println(sampler.Len(), second)
	// Output: 5 0
}

func ExampleRandomSplit() {
	parts := data.RandomSplit[string](words{"a", "b", "c", "d", "e"}, []float64{0.8, 0.2})
	fmt.Println(parts[0].Len(), parts[1].Len())
	// Output: 4 1
}
