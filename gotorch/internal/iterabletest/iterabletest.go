// Package iterabletest has iterables of every kind, and puts them together at random, for tests of what the doc comment of
// data.Iterable promises.
package iterabletest

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	parquetgo "github.com/parquet-go/parquet-go"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/csvdata"
	"gotorch.dev/gotorch/data/imagefolder"
	"gotorch.dev/gotorch/data/lines"
	"gotorch.dev/gotorch/data/parquet"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/data/webdataset"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// Set is a way of making an Iterable, each time the same one, as the next process does.
type Set struct {
	Name     string
	Make     func() data.Iterable[string]
	Stateful bool // it has one of its own within, which loops that are left early may leave anywhere
}

// ErrBroken is the error of elements that are broken.
var ErrBroken = errors.New("broken")

// elements gives n elements from a place on, of which every seventh is broken.
func elements(order []int, skip int, yield func(string, error) bool) {
	for i := skip; i >= 0 && i < len(order); i++ {
		text, err := fmt.Sprint("e", order[i]), error(nil)
		if order[i]%7 == 4 {
			text, err = "", ErrBroken
		}
		if !yield(text, err) {
			return
		}
	}
}

func upTo(n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	return order
}

// plain has no method but All.
type plain int

func (p plain) All() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { elements(upTo(int(p)), 0, yield) }
}

// sized says how many it has, or something else.
type sized struct {
	plain
	says int
}

func (s sized) Len() int { return s.says }

// seekable can begin anywhere.
type seekable struct{ sized }

func (s seekable) From(start data.Start) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { elements(upTo(int(s.plain)), start.Skip, yield) }
}

// shuffled has an order that follows from the start: from the epoch, if it has a seed of its own.
type shuffled struct {
	sized
	seed uint64
}

func (r shuffled) All() iter.Seq2[string, error] { return r.From(data.Start{Seed: rand.Uint64()}) }

func (r shuffled) From(start data.Start) iter.Seq2[string, error] {
	seed, epoch := start.Seed, 0
	if r.seed > 0 {
		seed, epoch = r.seed, start.Epoch
	}
	return func(yield func(string, error) bool) {
		elements(rand.New(rand.NewPCG(seed, uint64(epoch))).Perm(int(r.plain)), start.Skip, yield)
	}
}

// stateful draws an order from what it has drawn before.
type stateful struct {
	n    int
	last uint64
}

func (s *stateful) All() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		rng := rand.New(rand.NewPCG(s.last, 1))
		s.last = rng.Uint64() >> 2
		elements(rng.Perm(s.n), 0, yield)
	}
}

func (s *stateful) StateDict() gotorch.Dict { return gotorch.Dict{{Key: "last", Value: int64(s.last)}} }

func (s *stateful) LoadStateDict(dict gotorch.Dict) error {
	last, is := dict.Get("last").(int64)
	if !is {
		return errors.New("it has no last")
	}
	s.last = uint64(last)
	return nil
}

// as makes texts of samples.
func as[S any](set data.Iterable[S], text func(S) string) data.Iterable[string] {
	return data.TransformIterable(set, func(s S, _ *rand.Rand) (string, error) { return text(s), nil })
}

func pair(p data.Pair) string {
	return fmt.Sprint(gotorch.ToSlice[float32](p.Input), gotorch.ToSlice[float32](p.Target))
}

// Sets are iterables of every kind, and n that are put together of them at random.
func Sets(tb testing.TB, n int) []Set {
	tb.Helper()
	all := sources(tb)
	kinds := slices.Clone(all)
	for i := range n {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		all = append(all, random(rng, kinds, 1+rng.IntN(3)))
	}
	return all
}

// sources are iterables of every kind: those of this module's packages, over files in a folder of the test's, and those that a
// program may write.
func sources(tb testing.TB) []Set {
	tb.Helper()
	var texts, rows bytes.Buffer
	for i := range 6 {
		fmt.Fprintf(&texts, "line %d\n", i)
		if i == 2 {
			texts.WriteString("\xff broken\n")
		}
		fmt.Fprintf(&rows, "%d,%d\n", i, 10*i)
		if i == 3 {
			rows.WriteString("broken,row\n")
		}
	}
	text := []string{filestest.Write(tb, "a.txt", texts.Bytes()), filepath.Join(tb.TempDir(), "none"), filestest.Write(tb, "b.txt.gz", filestest.Gzip([]byte("one\ntwo\nthree")))}
	layout := tabular.Layout{Inputs: tabular.Columns("x"), Targets: tabular.Columns("y")}
	csv := []string{filestest.Write(tb, "a.csv", append([]byte("x,y\n"), rows.Bytes()...)), filestest.Write(tb, "b.csv", []byte("y,x\n3,4\n5,6\n"))}
	tables := []string{parquetFile(tb, 9, false), parquetFile(tb, 7, true)}
	var shards []string
	for shard := range 3 {
		var parts []string
		for i := range 4 {
			name := fmt.Sprintf("%d%d", shard, i)
			parts = append(parts, name+".n", name)
			if name == "12" {
				parts = append(parts, name+".n", name) // twice
			}
		}
		shards = append(shards, filestest.Write(tb, "a.tar", filestest.Tar(parts...)))
	}
	var pictures []string
	for i := range 11 {
		content := fmt.Sprintf("P2 1 1 255 %d", i)
		if i == 5 {
			content = "broken"
		}
		pictures = append(pictures, fmt.Sprintf("%d/%d.pgm", i%2, i), content)
	}
	archive := filestest.Write(tb, "a.tar.gz", filestest.Gzip(filestest.Tar(pictures...)))
	web := func(name string, opt webdataset.Options) Set {
		return Set{Name: name, Make: func() data.Iterable[string] {
			return as(data.Iterable[*webdataset.Sample](webdataset.New(shards, opt)), func(s *webdataset.Sample) string { return s.Key })
		}}
	}
	folder := func(name string, opt imagefolder.StreamOptions) Set {
		return Set{Name: name, Make: func() data.Iterable[string] {
			s, err := imagefolder.NewStream(archive, imagefolder.Options{Classes: []string{"0", "1"}}, opt)
			testhelp.Must(tb, err)
			return as(data.Iterable[imagefolder.Sample](s), func(s imagefolder.Sample) string { return fmt.Sprint(s.Class, s.Image.At(0, 0)) })
		}}
	}
	return []Set{
		{Name: "plain", Make: func() data.Iterable[string] { return plain(9) }},
		{Name: "empty", Make: func() data.Iterable[string] { return plain(0) }},
		{Name: "sequence", Make: func() data.Iterable[string] { return data.IterableOf(plain(5).All()) }},
		{Name: "sized", Make: func() data.Iterable[string] { return sized{8, 8} }},
		{Name: "says less", Make: func() data.Iterable[string] { return sized{8, 5} }},
		{Name: "seekable", Make: func() data.Iterable[string] { return seekable{sized{10, 10}} }},
		{Name: "seekable says less", Make: func() data.Iterable[string] { return seekable{sized{7, 4}} }},
		{Name: "seekable says more", Make: func() data.Iterable[string] { return seekable{sized{6, 9}} }},
		{Name: "seekable of unknown length", Make: func() data.Iterable[string] { return seekable{sized{6, -1}} }},
		{Name: "random", Make: func() data.Iterable[string] { return shuffled{sized{9, 9}, 0} }},
		{Name: "random by epoch", Make: func() data.Iterable[string] { return shuffled{sized{8, 8}, 5} }},
		{Name: "stateful", Stateful: true, Make: func() data.Iterable[string] { return &stateful{n: 8, last: 3} }},
		{Name: "lines", Make: func() data.Iterable[string] { return lines.NewStream(text) }},
		{Name: "csv", Make: func() data.Iterable[string] {
			return as(data.Iterable[data.Pair](csvdata.NewStream(csv, layout)), pair)
		}},
		{Name: "parquet", Make: func() data.Iterable[string] {
			t, err := parquet.Open(tables, layout)
			testhelp.Must(tb, err)
			tb.Cleanup(func() { t.Close() })
			return as(data.Iterable[data.Pair](t.Stream()), pair)
		}},
		web("webdataset", webdataset.Options{}), web("webdataset, Shuffle", webdataset.Options{Shuffle: 4}),
		web("webdataset, ShuffleShards and Seed", webdataset.Options{ShuffleShards: true, Seed: 3}),
		web("webdataset, all", webdataset.Options{Shuffle: 5, ShuffleShards: true, Seed: 4}),
		folder("imagefolder", imagefolder.StreamOptions{}), folder("imagefolder, Shuffle and Seed", imagefolder.StreamOptions{Shuffle: 4, Seed: 2}),
		folder("imagefolder, Shuffle", imagefolder.StreamOptions{Shuffle: 3}),
	}
}

type row struct {
	X float32 `parquet:"x"`
	Y float32 `parquet:"y"`
}

// parquetFile writes groups of four rows; with broken, the second cannot be decoded.
func parquetFile(tb testing.TB, n int, broken bool) string {
	tb.Helper()
	var b bytes.Buffer
	w := parquetgo.NewGenericWriter[row](&b, parquetgo.MaxRowsPerRowGroup(4))
	for i := range n {
		_, err := w.Write([]row{{float32(i), float32(100 * n)}})
		testhelp.Must(tb, err)
	}
	testhelp.Must(tb, w.Close())
	content := b.Bytes()
	if broken {
		f, err := parquetgo.OpenFile(bytes.NewReader(content), int64(len(content)))
		testhelp.Must(tb, err)
		groups := f.Metadata().RowGroups
		if len(groups) < 2 {
			tb.Fatalf("there are %d groups", len(groups))
		}
		copy(content[groups[1].Columns[0].MetaData.DataPageOffset:], "\xff\xff\xff\xff")
	}
	path := filepath.Join(tb.TempDir(), "a.parquet")
	testhelp.Must(tb, os.WriteFile(path, content, 0o600))
	return path
}

// random puts sources together.
func random(rng *rand.Rand, sources []Set, depth int) Set {
	if depth == 0 {
		return sources[rng.IntN(len(sources))]
	}
	inner := random(rng, sources, depth-1)
	several := []Set{inner}
	for range rng.IntN(4) {
		several = append(several, random(rng, sources, rng.IntN(depth)))
	}
	var names []string
	for _, s := range several {
		names = append(names, s.Name)
	}
	anyStateful := slices.ContainsFunc(several, func(s Set) bool { return s.Stateful })
	twice := rng.IntN(4) == 0 && !anyStateful
	all := func() (sets []data.Iterable[string]) {
		for _, s := range several {
			sets = append(sets, s.Make())
		}
		if twice {
			sets = append(sets, sets[0])
		}
		return sets
	}
	list := strings.Join(names, ", ")
	if twice {
		list += ", the first"
	}
	size, lanes, buffer, ranks, dropLast := 1+rng.IntN(12), 1+rng.IntN(4), rng.IntN(3), 1+rng.IntN(3), rng.IntN(2) == 0
	rank := rng.IntN(ranks)
	switch rng.IntN(6) {
	case 0:
		return Set{fmt.Sprintf("Transform(%s)", inner.Name), func() data.Iterable[string] {
			return data.TransformIterable(inner.Make(), func(s string, rng *rand.Rand) (string, error) {
				if n := rng.IntN(12); n > 0 {
					return fmt.Sprint(s, "/", n), nil
				}
				return "", ErrBroken
			})
		}, inner.Stateful}
	case 1, 2:
		return Set{fmt.Sprintf("Shuffle(%s; %d)", inner.Name, size), func() data.Iterable[string] { return data.Shuffle(inner.Make(), size) }, inner.Stateful}
	case 3:
		return Set{fmt.Sprintf("Chain(%s)", list), func() data.Iterable[string] { return data.Chain(all()...) }, anyStateful}
	case 4:
		return Set{fmt.Sprintf("Interleave(%d; %s; %d)", lanes, list, buffer), func() data.Iterable[string] {
			return data.Interleave(lanes, all(), data.InterleaveOptions{Buffer: buffer})
		}, anyStateful}
	}
	return Set{fmt.Sprintf("Distributed(%s; %d, %d, %t)", inner.Name, ranks, rank, dropLast), func() data.Iterable[string] {
		return data.DistributedIterable(inner.Make(), ranks, rank, data.DistributedIterableOptions{DropLast: dropLast})
	}, inner.Stateful}
}
