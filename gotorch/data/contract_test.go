package data_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/lines"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/iterabletest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func joinTexts(samples []string) ([]string, error) { return slices.Clone(samples), nil }

// texts are the batches of an epoch, and with them what was left out; at most so many batches.
func texts(t *testing.T, l *data.Loader[[]string], most int) (batches []string) {
	t.Helper()
	if most == 0 {
		return nil
	}
	for batch, err := range l.All() {
		testhelp.Must(t, err)
		if batches = append(batches, strings.Join(batch, " ")); len(batches) == most {
			break
		}
	}
	return batches
}

// A loader that resumes goes on with the same batches: over every source, alone and within others, after each batch of two
// epochs, with any number of workers before and after. One whose loop is left begins the next epoch with its first sample.
func TestEveryIterableResumesAfterEachBatch(t *testing.T) {
	gotorch.SetWarningHandler(func(gotorch.Warning) {}) // of those that say too small a length
	defer gotorch.SetWarningHandler(nil)
	workers := []int{0, 1, 4}
	file := filepath.Join(t.TempDir(), "state.pt")
	for number, set := range iterabletest.Sets(t, testhelp.Rounds(20)) {
		if testing.Short() && number%4 > 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(number), 2))
		o := data.LoaderOptions{BatchSize: 1 + rng.IntN(5), MaxErrors: -1, DropLast: rng.IntN(4) == 0}
		if rng.IntN(2) == 0 {
			o.Seed = number
		}
		loader := func() *data.Loader[[]string] {
			o := o
			o.Workers = workers[rng.IntN(len(workers))]
			o.Prefetch = rng.IntN(3)
			return data.NewIterableLoaderWith(set.Make(), joinTexts, o)
		}
		const epochs = 4
		gotorch.ManualSeed(uint64(number))
		var want [epochs][]string
		whole := loader()
		for e := range want {
			want[e] = texts(t, whole, -1)
		}
		for e := range 2 {
			for stop := range len(want[e]) + 1 {
				gotorch.ManualSeed(uint64(number))
				first := loader()
				for k := range e {
					if got := texts(t, first, -1); !slices.Equal(got, want[k]) {
						t.Fatalf("%s: epoch %d is %q, and with other workers %q", set.Name, k, want[k], got)
					}
				}
				texts(t, first, stop)
				here := fmt.Sprintf("%s, batches of %d, after %d of epoch %d", set.Name, o.BatchSize, stop, e)
				testhelp.Must(t, gotorch.Save(file, first.StateDict()))
				random := gotorch.DefaultGenerator(gotorch.CPU).State()
				state, err := gotorch.Load(file)
				testhelp.Must(t, err)

				// The next process.
				gotorch.ManualSeed(99)
				second := loader()
				testhelp.Must(t, second.LoadStateDict(state.(gotorch.Dict)))
				if stop%2 == 1 { // and one more
					again := second.StateDict()
					second = loader()
					testhelp.Must(t, second.LoadStateDict(again))
				}
				gotorch.DefaultGenerator(gotorch.CPU).SetState(random)
				if got := texts(t, second, -1); !slices.Equal(got, want[e][stop:]) {
					t.Fatalf("%s:\ngot  %q\nwant %q", here, got, want[e][stop:])
				}
				for k := e + 1; k < epochs-1; k++ {
					if got := texts(t, second, -1); !slices.Equal(got, want[k]) {
						t.Fatalf("%s: epoch %d:\ngot  %q\nwant %q", here, k, got, want[k])
					}
				}

				// The same process.
				gotorch.DefaultGenerator(gotorch.CPU).SetState(random)
				next := e + 1
				if stop == 0 { // the loop was not begun
					next = e
				}
				got := texts(t, first, -1)
				if set.Stateful && stop > 0 { // it may draw otherwise, but no fewer
					if len(got) != len(want[next]) && !strings.Contains(set.Name, "Transform(") {
						t.Fatalf("%s: the next epoch has %q, where %q was", here, got, want[next])
					}
				} else if !slices.Equal(got, want[next]) {
					t.Fatalf("%s: the next epoch of a loop that was left:\ngot  %q\nwant %q", here, got, want[next])
				}
			}
		}
	}
}

// A stream with a state that waits for a loop says so in a loader, which would pass it over.
func TestAStateThatALoaderWouldPassOverIsAnError(t *testing.T) {
	waits(t, lines.NewStream([]string{filestest.Write(t, "a.txt", []byte("1\n2\n3\n"))}))
	waits(t, webdataset.New([]string{filestest.Write(t, "a.tar", filestest.Tar("1.a", "1", "2.a", "2", "3.a", "3"))}))
}

func waits[S any](t *testing.T, stream interface {
	data.Iterable[S]
	StateDict() gotorch.Dict
	LoadStateDict(dict gotorch.Dict) error
}) {
	loader := data.NewIterableLoaderWith(stream, func(s []S) (int, error) { return len(s), nil })
	count := func() (n int, last error) {
		for k, err := range loader.All() {
			n, last = n+k, err
		}
		return n, last
	}
	for range stream.All() {
		break
	}
	if n, err := count(); n != 3 || err != nil { // a loop that was left is none of the loader's business
		t.Errorf("%T: %d samples, %v", stream, n, err)
	}
	testhelp.Must(t, stream.LoadStateDict(stream.StateDict()))
	if n, err := count(); n != 0 || !errors.Is(err, gotorch.ValueError) {
		t.Errorf("%T: %d samples, %v", stream, n, err)
	}
	n := 0
	for _, err := range stream.All() {
		testhelp.Must(t, err)
		n++
	}
	if got, err := count(); n != 2 || got != 3 || err != nil {
		t.Errorf("%T: %d samples are the rest, and %d all, %v", stream, n, got, err)
	}
}

// A loop without a loader goes through all, also after one that was left, and while another is under way.
func TestEveryLoopOverAnIterableIsAnEpoch(t *testing.T) {
	for _, set := range iterabletest.Sets(t, testhelp.Rounds(20)) {
		if strings.Contains(set.Name, "Transform(") { // errors at random
			continue
		}
		count := func(s data.Iterable[string], most int) (n int, sorted []string) {
			for text, err := range s.All() {
				if err != nil {
					text = "an error"
				}
				sorted = append(sorted, text)
				if n++; n == most {
					break
				}
			}
			slices.Sort(sorted)
			return n, sorted
		}
		s := set.Make()
		n, all := count(s, -1)
		for most := range n + 1 {
			count(s, most)
			if _, got := count(s, -1); !slices.Equal(got, all) && !set.Stateful && !strings.Contains(set.Name, "Distributed(") {
				t.Fatalf("%s: after a loop of %d elements got %q, want %q", set.Name, most, got, all)
			} else if len(got) != n {
				t.Fatalf("%s: after a loop of %d elements got %d, want %d", set.Name, most, len(got), n)
			}
		}
		if n > 1 {
			outer := 0
			for range s.All() {
				if outer++; outer == 1 {
					if within, _ := count(s, -1); within != n {
						t.Errorf("%s: a loop within another has %d elements, want %d", set.Name, within, n)
					}
				}
			}
			if outer != n {
				t.Errorf("%s: a loop around another has %d elements, want %d", set.Name, outer, n)
			}
		}
	}
}
