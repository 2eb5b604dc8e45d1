package data_test

import (
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

// squares is a data set whose samples are made when they are asked for, by way of other tensors.
type squares struct {
	n    int
	keep *memo // what At makes, if it is not nil
}

type memo struct {
	there  bool
	tensor gotorch.Tensor
	make   func(fn func()) // how
}

func (d squares) Len() int { return d.n }

func (d squares) At(i int) (data.Pair, error) {
	if k := d.keep; k != nil && !k.there {
		k.there = true
		k.make(func() { k.tensor = gotorch.Ones([]int64{1}) })
	}
	x := gotorch.Full([]int64{3}, i)
	if d.keep != nil {
		x = x.Mul(d.keep.tensor)
	}
	return data.Pair{Input: x.Mul(x), Target: gotorch.FromScalar(i)}, nil
}

func inputs(t *testing.T, l *data.Loader[data.Pair]) (all []float64) {
	t.Helper()
	for batch, err := range l.All() {
		testhelp.Must(t, err)
		all = append(all, gotorch.ToSlice[float64](batch.Input.To(gotorch.Float64))...)
		batch.Close()
	}
	return all
}

func TestWhatScopedBatchesAreMadeOfIsFreed(t *testing.T) {
	live := func() int64 { return gotorch.MemoryStats().LiveHandles }
	for _, workers := range []int{0, 2} {
		o := data.LoaderOptions{BatchSize: 10, Workers: workers, Shuffle: true, Seed: 3, Prefetch: 1}
		want := inputs(t, data.NewLoader[data.Pair](squares{n: 95}, o))
		o.Scoped = true
		l := data.NewLoader[data.Pair](squares{n: 95}, o)
		if got := inputs(t, l); !slices.Equal(got, want) {
			t.Errorf("%d workers: got %v, want %v", workers, got, want)
		}
		before, most := eventually(live, -1), int64(0)
		for batch, err := range l.All() {
			testhelp.Must(t, err)
			if workers == 0 {
				most = max(most, live()-before)
			}
			batch.Close()
		}
		if most > 2 { // the batch's own
			t.Errorf("%d tensors are alive beside the batch", most-2)
		}
	}
}

func TestScopedBatchesOfAnyTypeStay(t *testing.T) {
	type sample struct {
		X     gotorch.Tensor
		Words []int64
		Name  string
	}
	type batch struct {
		X     gotorch.Tensor
		Words data.Padded
		Name  []string
	}
	set := data.Transform[data.Pair](squares{n: 7}, func(p data.Pair, _ *rand.Rand) (sample, error) {
		i := gotorch.Item[int](p.Target)
		return sample{p.Input.AddScalar(1), make([]int64, i), fmt.Sprint(i)}, nil
	})
	check := func(b batch, err error) {
		t.Helper()
		testhelp.Must(t, err)
		if n := len(b.Name); gotorch.ToSlice[int](b.X)[0] != 1 && b.Name[0] == "0" || b.Words.Values.Size(0) != int64(n) || b.Words.Lengths.Size(0) != int64(n) {
			t.Errorf("got %v", b)
		}
	}
	o := data.LoaderOptions{BatchSize: 3, Scoped: true}
	for b, err := range data.NewLoaderWith(set, data.DefaultCollate[sample, batch], o).All() {
		check(b, err)
	}
	all := data.IterableOf(func(yield func(data.Pair, error) bool) {
		for i := range 7 {
			if p, err := (squares{n: 7}).At(i); !yield(p, err) {
				return
			}
		}
	})
	n := 0
	for b, err := range data.NewIterableLoader[data.Pair](all, o).All() {
		testhelp.Must(t, err)
		n += b.Len()
		if gotorch.Item[int](b.Input.Sum()) < 0 {
			t.Error("the batch is not there")
		}
	}
	for p, err := range data.NewLoader[data.Pair](squares{n: 7}, data.LoaderOptions{NoBatching: true, Scoped: true}).All() {
		testhelp.Must(t, err)
		if i := gotorch.Item[int](p.Target); gotorch.ToSlice[int](p.Input)[2] != i*i {
			t.Errorf("sample %d is %v", i, p)
		}
		n++
	}
	if n != 14 {
		t.Errorf("got %d samples", n)
	}
}

func TestWhatADataSetKeepsOfAScopedBatchIsClosedOrUnscoped(t *testing.T) {
	o := data.LoaderOptions{BatchSize: 2, Scoped: true}
	set := squares{n: 4, keep: &memo{make: func(fn func()) { fn() }}}
	var got error
	for _, err := range data.NewLoader[data.Pair](set, o).All() {
		got = err
	}
	sample, is := errors.AsType[*data.SampleError](got)
	if !is || !errors.Is(got, gotorch.ValueError) || sample.Index != 2 {
		t.Errorf("got %v", got)
	}
	set.keep = &memo{make: gotorch.Unscoped}
	if got := inputs(t, data.NewLoader[data.Pair](set, o)); !slices.Equal(got, []float64{0, 0, 0, 1, 1, 1, 4, 4, 4, 9, 9, 9}) {
		t.Errorf("got %v", got)
	}
}

// bulk gives many samples in one go.
type bulk struct {
	squares
	asked  *[][]int
	broken func(indices []int) ([]data.Pair, error)
}

func (d bulk) Samples(indices []int) ([]data.Pair, error) {
	*d.asked = append(*d.asked, slices.Clone(indices))
	if d.broken != nil {
		return d.broken(indices)
	}
	samples := make([]data.Pair, len(indices))
	for k, i := range indices {
		samples[k], _ = d.At(i)
	}
	return samples, nil
}

// PyTorch asks for the same: torch/utils/data/_utils/fetch.py, with a __getitems__ that appends what it gets to a list.
func TestSamplesComeInOneGo(t *testing.T) {
	var asked [][]int
	set := bulk{squares{n: 5}, &asked, nil}
	o := data.LoaderOptions{BatchSize: 2}
	for name, c := range map[string]struct {
		load func() iter.Seq2[data.Pair, error]
		want [][]int
	}{
		"joined":  {data.NewLoader[data.Pair](set, o).All, [][]int{{0, 1}, {2, 3}, {4}}},
		"with":    {data.NewLoaderWith[data.Pair](set, data.Pair{}.Collate, o).All, [][]int{{0, 1}, {2, 3}, {4}}},
		"subset":  {data.NewLoader(data.Subset[data.Pair](set, []int{4, 0, 3}), o).All, [][]int{{4, 0}, {3}}},
		"single":  {data.NewLoader[data.Pair](set, data.LoaderOptions{NoBatching: true}).All, nil},
		"within":  {data.NewLoader(data.Subset[data.Pair](squares{n: 5}, []int{4, 0, 3}), o).All, nil},
		"changed": {data.NewLoader(data.Transform[data.Pair](set, func(p data.Pair, _ *rand.Rand) (data.Pair, error) { return p, nil }), o).All, nil},
	} {
		asked = nil
		for p, err := range c.load() {
			testhelp.Must(t, err)
			if x := p.Target; !x.Mul(x).Equal(p.Input.Select(-1, 0)) {
				t.Errorf("%s: got %v", name, p)
			}
		}
		if !slices.EqualFunc(asked, c.want, slices.Equal) {
			t.Errorf("%s: asked for %v, want %v", name, asked, c.want)
		}
	}
	if _, err := data.Subset[data.Pair](set, []int{1}).(data.BulkDataset[data.Pair]).Samples([]int{1}); !errors.Is(err, gotorch.IndexError) {
		t.Error(err)
	}
}

func TestWhatIsWrongWithManySamplesIsTold(t *testing.T) {
	var asked [][]int
	set := bulk{squares{n: 5}, &asked, nil}
	for text, broken := range map[string]func(indices []int) ([]data.Pair, error){
		"data: batch 0 of samples [0 1]: the disk is broken":                                                   func([]int) ([]data.Pair, error) { return nil, errBroken },
		"data: batch 0 of samples [0 1]: data.Loader: ValueError: the data set's Samples gave 1 for 2 indices": func([]int) ([]data.Pair, error) { return make([]data.Pair, 1), nil },
		"data: batch 0 of samples [0 1]: panic: no":                                                            func([]int) ([]data.Pair, error) { panic("no") },
	} {
		set.broken = broken
		var got error
		for _, err := range data.NewLoader[data.Pair](set, data.LoaderOptions{BatchSize: 2}).All() {
			got = err
		}
		if !strings.HasPrefix(fmt.Sprint(got), text) {
			t.Errorf("got %q, want %q", fmt.Sprint(got), text)
		}
		// One by one they are there.
		if all := inputs(t, data.NewLoader[data.Pair](set, data.LoaderOptions{BatchSize: 2, MaxErrors: -1})); len(all) != 15 {
			t.Errorf("got %v", all)
		}
	}
}
