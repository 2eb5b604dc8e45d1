package data

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"gotorch.dev/gotorch"
)

type ownPin struct{ pinned bool }

func (o ownPin) PinMemory() ownPin { return ownPin{true} }

// The tensors of a batch are found wherever they are, and what is not a tensor stays.
func TestPinMemoryFindsEachTensor(t *testing.T) {
	one := func() gotorch.Tensor { return gotorch.FromScalar(1) }
	type inner struct {
		X    gotorch.Tensor
		Name string
	}
	type batch struct {
		Pair   Pair
		Padded Padded
		Map    map[string]inner
		Slice  []gotorch.Tensor
		Array  [2]gotorch.Tensor
		Any    any
		Leads  *inner
		Deep   [][]any
		None   gotorch.Tensor
		Nil    *inner
		NoMap  map[string]gotorch.Tensor
		Number int
		Bytes  []byte
		hidden gotorch.Tensor
	}
	b := batch{
		Pair: Pair{one(), one()}, Padded: Padded{one(), one()}, Map: map[string]inner{"a": {one(), "a"}}, Slice: []gotorch.Tensor{one(), {}},
		Array: [2]gotorch.Tensor{one(), one()}, Any: one(), Leads: &inner{one(), "b"}, Deep: [][]any{{one(), 3, nil}}, Number: 7, Bytes: []byte("b"), hidden: one(),
	}
	before, n := fmt.Sprintf("%v %v", b, *b.Leads), 0
	got := eachTensor(b, func(t gotorch.Tensor) gotorch.Tensor {
		n++
		return t.AddScalar(1)
	})
	two := "tensor(2)"
	for name, v := range map[string]any{
		"Pair": got.Pair.Target, "Padded": got.Padded.Lengths, "Map": got.Map["a"].X, "Slice": got.Slice[0], "Array": got.Array[1], "Any": got.Any,
		"Leads": got.Leads.X, "Deep": got.Deep[0][0],
	} {
		if fmt.Sprint(v) != two {
			t.Errorf("%s: got %v", name, v)
		}
	}
	if n != 11 || got.Map["a"].Name != "a" || got.Number != 7 || got.Deep[0][1] != 3 || got.None.Defined() || got.Nil != nil || fmt.Sprint(got.hidden) != "tensor(1)" {
		t.Errorf("%d tensors: got %v", n, got)
	}
	if after := fmt.Sprintf("%v %v", b, *b.Leads); after != before {
		t.Errorf("the batch is %v, and was %v", after, before)
	}
	if o, err := pinned(ownPin{}); err != nil || !o.pinned {
		t.Errorf("got %v, %v", o, err)
	}
}

// Without an accelerator PinMemory is warned of, and does nothing. Where pinning fails, the batch is an error and closed.
func TestPinMemoryWithoutAnAccelerator(t *testing.T) {
	if _, is := gotorch.Accelerator(); is {
		t.Skip("there is an accelerator")
	}
	warnings := 0
	gotorch.SetWarningHandler(func(gotorch.Warning) { warnings++ })
	defer gotorch.SetWarningHandler(nil)
	set := NewTensorDataset(gotorch.Arange(6), gotorch.Arange(6))
	for _, workers := range []int{0, 2} {
		l := NewLoader(set, LoaderOptions{BatchSize: 2, PinMemory: true, Workers: workers})
		n := 0
		for batch, err := range l.All() {
			if err != nil || batch.Len() != 2 {
				t.Error(err)
			}
			n++
		}
		if n != 3 {
			t.Errorf("%d batches", n)
		}
	}
	if warnings != 2 {
		t.Errorf("%d warnings", warnings)
	}
	l := NewLoader(set, LoaderOptions{BatchSize: 2})
	e := l.draw(nil, 0)
	e.pin = true
	r := prepared(context.Background(), l.source, e, job{indices: []int{0, 1}, count: 2})
	if r.n != 0 || len(r.errs) != 1 || !errors.Is(r.errs[0], gotorch.RuntimeError) {
		t.Errorf("got %v", r.errs)
	}
}
