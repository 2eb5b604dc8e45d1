package parquet_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/parquet"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// The tables of testdata are pyarrow's, and their columns formulas of the row: tests/make_datasets_golden.py.

var kinds = []string{"red", "green", "blue"}

var layout = tabular.Layout{
	Inputs:      []tabular.Column{{Name: "c", Missing: -1}, {Name: "b"}, {Name: "flag"}, {Name: "u"}, {Name: "a"}},
	Targets:     []tabular.Column{{Name: "kind", Classes: kinds}},
	InputDType:  gotorch.Float64,
	TargetDType: gotorch.Int64,
}

func row(i int) []float64 {
	c := float64(i) * 1.5
	if i%5 == 0 {
		c = -1
	}
	return []float64{c, float64(i) / 4, float64(i % 2), float64(1<<63 + uint64(i)), float64(i)}
}

func TestColumnsArePyarrows(t *testing.T) {
	for _, name := range []string{"plain", "packed"} {
		set, err := parquet.Open([]string{"testdata/" + name + ".parquet"}, layout)
		testhelp.Must(t, err)
		defer set.Close()
		if set.Len() != 1000 {
			t.Fatalf("got %d rows", set.Len())
		}
		for i := range 1000 {
			pair, err := set.At(i)
			testhelp.Must(t, err)
			if got := gotorch.ToSlice[float64](pair.Input); !slices.Equal(got, row(i)) || gotorch.Item[int](pair.Target) != i%3 {
				t.Fatalf("row %d is %v", i, pair)
			}
		}
		batch, err := set.Batch([]int{999, 0, 300}, nil)
		testhelp.Must(t, err)
		if got := gotorch.ToSlice[float64](batch.Input); !slices.Equal(got, slices.Concat(row(999), row(0), row(300))) {
			t.Errorf("got %v", got)
		}
		for _, i := range []int{-1, 1000} {
			if _, err := set.At(i); !errors.Is(err, gotorch.IndexError) {
				t.Error(err)
			}
		}
	}
}

// length encodes a text as its length and its first byte, and refuses one of 50 bytes.
func length(to []float64, text string) error {
	if to[0] = float64(len(text)); len(text) == 50 {
		return errors.New("fifty")
	}
	if text != "" {
		to[1] = float64(text[0])
	}
	return nil
}

// types are the columns of testdata/types.parquet, and the numbers of a row.
var types = []struct {
	column tabular.Column
	row    func(i int) []float64
}{
	{tabular.Column{Name: "decimal"}, func(i int) []float64 { return []float64{float64(i*i*i-50000) / 100} }},
	{tabular.Column{Name: "half"}, func(i int) []float64 { return []float64{float64(i) / 8} }},
	{tabular.Column{Name: "day"}, func(i int) []float64 { return []float64{float64(i)} }},
	{tabular.Column{Name: "day", Unit: time.Hour}, func(i int) []float64 { return []float64{24 * float64(i)} }},
	{tabular.Column{Name: "time"}, func(i int) []float64 { return []float64{float64(i)*1e6 + 5e5} }},
	{tabular.Column{Name: "time", Unit: time.Second}, func(i int) []float64 { return []float64{float64(i) + 0.5} }},
	{tabular.Column{Name: "written", Unit: time.Minute}, func(i int) []float64 { return []float64{float64(i)} }},
	{tabular.Column{Name: "colour", Classes: []string{"blue", "red"}, Unknown: 7}, func(i int) []float64 { return []float64{[]float64{1, 7, 0}[i%3]} }},
	{tabular.Column{Name: "year", Classes: []string{"2001", "2000"}, Unknown: -1}, func(i int) []float64 { return []float64{max(-1, float64(1-i))} }},
	{tabular.Column{Name: "text", Size: 3, Pad: 9, Missing: -1, Encode: length}, func(i int) []float64 {
		switch {
		case i%4 == 3:
			return []float64{-1, -1, -1}
		case i == 0:
			return []float64{0, 9, 9}
		}
		return []float64{float64(i), 'x', 9}
	}},
	{tabular.Column{Name: "list", Size: 3, Pad: -5, Missing: -3}, func(i int) []float64 {
		if i%7 == 0 {
			return []float64{-3, -3, -3}
		}
		return append([]float64{float64(10 * i), float64(10*i + 1), -3}[:i%4:i%4], -5, -5, -5)[:3]
	}},
	{tabular.Column{Name: "matrix", Size: 4}, func(i int) []float64 {
		return []float64{float64(i), float64(-i), float64(2 * i), float64(-2 * i)}
	}},
	{tabular.Column{Name: "items.price", Size: 2}, func(i int) []float64 { return []float64{float64(i) / 4, float64(i) / 2} }},
	{tabular.Column{Name: "items.colour", Size: 2, Classes: kinds}, func(i int) []float64 { return []float64{float64(i % 3), 0} }},
	{tabular.Column{Name: "point.x", Missing: math.Inf(1)}, func(i int) []float64 {
		if i%5 == 0 {
			return []float64{math.Inf(1)}
		}
		return []float64{float64(i)}
	}},
	{tabular.Column{Name: "point.inner.y", Missing: 1}, func(i int) []float64 {
		if i%5 == 0 || i%3 == 0 {
			return []float64{1}
		}
		return []float64{float64(-i)}
	}},
	{tabular.Column{Name: "map.key", Size: 2, Classes: kinds}, func(int) []float64 { return []float64{0, 1} }},
	{tabular.Column{Name: "map.value", Size: 2}, func(i int) []float64 { return []float64{float64(i), float64(-i)} }},
}

var typesLayout = func() (l tabular.Layout) {
	for _, c := range types {
		l.Inputs = append(l.Inputs, c.column)
	}
	l.Targets, l.InputDType, l.TargetDType = tabular.Columns("whole"), gotorch.Float64, gotorch.Int64
	return l
}()

func TestColumnsOfEveryTypeArePyarrows(t *testing.T) {
	path := "testdata/types.parquet"
	set, err := parquet.Open([]string{path}, typesLayout, parquet.Options{Groups: 1})
	testhelp.Must(t, err)
	defer set.Close()
	i := 0
	for pair, err := range set.Stream().All() {
		again, err2 := set.At(i)
		if i == 50 {
			filestest.WantBroken(t, err, path, `row 50: ValueError: column "text": its Encode: fifty`)
			filestest.WantBroken(t, err2, path, `row 50: ValueError: column "text": its Encode: fifty`)
			i++
			continue
		}
		testhelp.Must(t, errors.Join(err, err2))
		var want []float64
		for _, c := range types {
			want = append(want, c.row(i)...)
		}
		if got := gotorch.ToSlice[float64](pair.Input); !slices.Equal(got, want) || !gotorch.Equal(pair.Input, again.Input) {
			t.Fatalf("row %d is\n%v, want\n%v", i, got, want)
		}
		if got := gotorch.Item[int64](pair.Target); got != 1<<62+int64(i) {
			t.Errorf("row %d: got %d", i, got)
		}
		i++
	}
	if i != 60 {
		t.Errorf("got %d rows", i)
	}
	for text, l := range map[string]tabular.Layout{
		`row 1: ValueError: column "list": the list has 1 elements, and Size is 3: say by Pad`: {Targets: []tabular.Column{{Name: "list", Size: 3, Missing: 0}}},
		`row 2: ValueError: column "list": the list has 2 elements, and Size is 1`:             {Targets: []tabular.Column{{Name: "list", Size: 1, Missing: 0, Pad: 0}}},
		`row 0: ValueError: column "list": the field is missing`:                               {Targets: []tabular.Column{{Name: "list", Size: 3, Pad: 0}}},
		`row 1: ValueError: column "colour": the text is none of the column's 1 classes`:       {Targets: []tabular.Column{{Name: "colour", Classes: []string{"red"}, Missing: 0}, {Name: "day", Unit: 1}}},
		`row 1: ValueError: column "decimal": -499.99 is no int64`:                             {Targets: tabular.Columns("decimal"), TargetDType: gotorch.Int64},
		`row 0: ValueError: column "time": 0.5 is no int64`:                                    {Targets: []tabular.Column{{Name: "time", Unit: time.Second}}, TargetDType: gotorch.Int64},
	} {
		l.Inputs = []tabular.Column{}
		set, err := parquet.Open([]string{path}, l)
		testhelp.Must(t, err)
		defer set.Close()
		row := 0
		_, _ = fmt.Sscanf(text, "row %d", &row)
		for k := range row {
			if _, err := set.At(k); err != nil && !strings.Contains(text, `"list"`) {
				t.Errorf("row %d: %v", k, err)
			}
		}
		_, err = set.At(row)
		filestest.WantBroken(t, err, path, text)
	}
}

func TestColumnsOfOldFilesAreRead(t *testing.T) {
	set, err := parquet.Open([]string{"testdata/old.parquet"}, tabular.Layout{
		Inputs:      []tabular.Column{{Name: "time"}, {Name: "time", Unit: 500 * time.Millisecond}, {Name: "list", Size: 2}},
		Targets:     tabular.Columns("short"),
		InputDType:  gotorch.Int64,
		TargetDType: gotorch.Float64,
	})
	testhelp.Must(t, err)
	defer set.Close()
	for i := range set.Len() {
		pair, err := set.At(i)
		testhelp.Must(t, err)
		n := int64(i)
		if got := gotorch.ToSlice[int64](pair.Input); !slices.Equal(got, []int64{n*1e9 + 5e8, 2*n + 1, n, n + 1}) {
			t.Errorf("row %d is %v", i, got)
		}
		if got := gotorch.Item[float64](pair.Target); got != float64(i-30)/10 {
			t.Errorf("row %d: got %v", i, got)
		}
	}
}

func TestADictionaryMayHaveMoreValuesThanItsGroupRows(t *testing.T) {
	l := tabular.Layout{Inputs: tabular.Columns("a"), Targets: []tabular.Column{{Name: "kind", Classes: kinds}}}
	set, err := parquet.Open([]string{"testdata/categories.parquet"}, l)
	testhelp.Must(t, err)
	defer set.Close()
	n := 0
	for pair, err := range set.Stream().All() {
		testhelp.Must(t, err)
		if gotorch.Item[int](pair.Input) != n || gotorch.Item[int](pair.Target) != n%3 {
			t.Errorf("row %d is %v", n, pair)
		}
		n++
	}
	if n != 10 {
		t.Errorf("got %d rows", n)
	}
}

func TestSeveralFilesAreOneTable(t *testing.T) {
	set, err := parquet.Open([]string{"testdata/plain.parquet", "testdata/packed.parquet"}, layout, parquet.Options{Groups: 1})
	testhelp.Must(t, err)
	defer set.Close()
	seen := map[int]int{}
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 100, Shuffle: true, Seed: 1, Workers: 3}).All() {
		testhelp.Must(t, err)
		for _, i := range gotorch.ToSlice[int](batch.Input.Select(1, 4)) {
			seen[i]++
		}
	}
	if len(seen) != 1000 || seen[7] != 2 {
		t.Errorf("got %d rows", len(seen))
	}
	_, err = parquet.Open([]string{"testdata/plain.parquet", "testdata/other.parquet"}, layout)
	filestest.WantBroken(t, err, "testdata/other.parquet", `column "a": ValueError: it is INT32, and in testdata/plain.parquet it is INT64`)
}

// The memory of a group that is forgotten is another one's, but not while somebody reads it.
func TestGroupsAreForgottenWhenNobodyReadsThem(t *testing.T) {
	set, err := parquet.Open([]string{"testdata/plain.parquet", "testdata/packed.parquet"}, layout, parquet.Options{Groups: 1})
	testhelp.Must(t, err)
	defer set.Close()
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(worker)))
			for range 50 {
				indices := make([]int, rng.IntN(20))
				for k := range indices {
					indices[k] = rng.IntN(2000)
				}
				batch, err := set.Batch(indices, nil)
				if err != nil {
					t.Error(err)
					return
				}
				got, targets := gotorch.ToSlice[float64](batch.Input), gotorch.ToSlice[int](batch.Target)
				for k, i := range indices {
					if !slices.Equal(got[5*k:][:5], row(i%1000)) || targets[k] != i%1000%3 {
						t.Errorf("row %d is %v and %d", i, got[5*k:][:5], targets[k])
						return
					}
				}
				batch.Close()
			}
		})
	}
	all.Wait()
}

func TestTheErrorOfABatchIsThatOfItsFirstRow(t *testing.T) {
	l := tabular.Layout{Inputs: tabular.Columns("c"), Targets: []tabular.Column{{Name: "kind", Classes: kinds[:2]}}}
	set, err := parquet.Open([]string{"testdata/plain.parquet"}, l)
	testhelp.Must(t, err)
	defer set.Close()
	for _, c := range []struct {
		indices []int
		text    string
	}{
		{[]int{1, 999, 2, 5}, `row 2: ValueError: column "kind"`}, // 999 is there, in the last group; 2 is no class, and 5 missing
		{[]int{1, 5, 2}, `row 5: ValueError: column "c"`},
		{[]int{1, 995, 2, -1}, `row 995: ValueError: column "c"`},
		{[]int{1, 998, 2}, `row 998: ValueError: column "kind"`},
	} {
		_, err := set.Batch(c.indices, nil)
		filestest.WantBroken(t, err, "testdata/plain.parquet", c.text)
	}
	if _, err := set.Batch([]int{1, 1000, 2}, nil); !errors.Is(err, gotorch.IndexError) {
		t.Error(err)
	}
}

func TestRowsThatDoNotFitAreErrorsOfTheirOwn(t *testing.T) {
	path := "testdata/plain.parquet"
	set, err := parquet.Open([]string{path}, tabular.Layout{Inputs: tabular.Columns("c"), Targets: []tabular.Column{{Name: "kind", Classes: kinds[:2]}}})
	testhelp.Must(t, err)
	defer set.Close()
	want := func(i int) string {
		switch {
		case i%5 == 0:
			return fmt.Sprintf(`row %d: ValueError: column "c": the field is missing`, i)
		case i%3 == 2:
			return fmt.Sprintf(`row %d: ValueError: column "kind": the text is none of the column's 2 classes: say by Unknown what others count as`, i)
		}
		return ""
	}
	i := 0
	for pair, err := range set.Stream().All() {
		_, err2 := set.At(i)
		if text := want(i); text != "" {
			filestest.WantBroken(t, err, path, text)
			filestest.WantBroken(t, err2, path, text)
		} else if err != nil || err2 != nil || gotorch.Item[float64](pair.Input) != float64(i)*1.5 {
			t.Errorf("row %d: got %v, %v, %v", i, pair, err, err2)
		}
		i++
	}
	if i != 1000 {
		t.Errorf("got %d rows", i)
	}
	ints, err := parquet.Open([]string{path}, tabular.Layout{Inputs: tabular.Columns("u"), Targets: tabular.Columns("a"), InputDType: gotorch.Int64})
	testhelp.Must(t, err)
	defer ints.Close()
	_, err = ints.At(0)
	filestest.WantBroken(t, err, path, `column "u": 9.223372036854776e+18 is no int64`)
}

func TestTablesThatDoNotFitAreRefused(t *testing.T) {
	path := "testdata/plain.parquet"
	for text, l := range map[string]tabular.Layout{
		`there is no column "z": it has "a", "b"`:                         {Inputs: tabular.Columns("z"), Targets: tabular.Columns("a")},
		`column "list": ValueError: it is a list in`:                      {Inputs: tabular.Columns("list"), Targets: tabular.Columns("a")},
		`column "kind": ValueError: it is text`:                           {Inputs: tabular.Columns("kind"), Targets: tabular.Columns("a")},
		`column "b": ValueError: it is of type FLOAT,`:                    {Inputs: []tabular.Column{{Name: "b", Classes: kinds}}, Targets: tabular.Columns("a")},
		`column "b": ValueError: it is of type FLOAT, and Encode`:         {Inputs: []tabular.Column{{Name: "b", Encode: func([]float64, string) error { return nil }}}, Targets: tabular.Columns("a")},
		`column "b": ValueError: it is of type FLOAT, and Unit`:           {Inputs: []tabular.Column{{Name: "b", Unit: 1}}, Targets: tabular.Columns("a")},
		`column "b": ValueError: it is of type FLOAT, and Size`:           {Inputs: []tabular.Column{{Name: "b", Size: 1}}, Targets: tabular.Columns("a")},
		`there is no column "b.c", and "b" has none within it`:            {Inputs: tabular.Columns("b.c"), Targets: tabular.Columns("a")},
		`column "list": ValueError: it is a list in each row, and Encode`: {Inputs: []tabular.Column{{Name: "list", Encode: func([]float64, string) error { return nil }}}, Targets: tabular.Columns("a")},
		`column "kind": ValueError: it is text, `:                         {Targets: tabular.Columns("a")}, // all others, as far as the first that is none
	} {
		_, err := parquet.Open([]string{path}, l)
		filestest.WantBroken(t, err, path, text)
	}
	_, err := parquet.Open([]string{path}, layout, parquet.Options{MaxRows: 299})
	filestest.WantBroken(t, err, path, "row group 0: ValueError: it has 300 rows, and MaxRows allows 299")
	set, err := parquet.Open([]string{path}, layout, parquet.Options{MaxPage: 10})
	testhelp.Must(t, err)
	defer set.Close()
	_, err = set.At(0)
	filestest.WantBroken(t, err, path, "MaxPage allows 10")
	filestest.NoFiles(t, func(path string) error { _, err := parquet.Open([]string{path}, layout); return err })
	for _, opt := range []parquet.Options{{Groups: 0}, {MaxRows: -1}, {MaxPage: 0}} {
		filestest.WantKind(t, gotorch.ValueError, func() { _, _ = parquet.Open([]string{path}, layout, opt) })
	}
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = parquet.Open(nil, layout) })
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = parquet.Open([]string{path}, tabular.Layout{}) })
}

// drain reads all of a table, and returns how many rows it has and the first error.
func drain(path string, l tabular.Layout) (n int, err error) {
	set, err := parquet.Open([]string{path}, l, parquet.Options{MaxRows: 1 << 16, MaxPage: 1 << 20})
	if err != nil {
		return 0, err
	}
	defer set.Close()
	for pair, broken := range set.Stream().All() {
		if broken != nil {
			if err == nil {
				err = broken
			}
			continue
		}
		pair.Close()
		n++
	}
	return n, err
}

func TestFilesThatLieAreErrorsAndCostNoMemory(t *testing.T) {
	whole, err := os.ReadFile("testdata/plain.parquet")
	testhelp.Must(t, err)
	lying := slices.Clone(whole)
	copy(lying[len(lying)-8:], []byte{0xff, 0xff, 0xff, 0x7f})
	for text, b := range map[string][]byte{"too short": {}, "ends with": whole[:len(whole)-1], "footer should have 2147483647 bytes": lying, "no valid Parquet file": append(make([]byte, 4), whole[4:]...)} {
		path := filestest.Write(t, "a.parquet", b)
		var err error
		n := filestest.Allocated(func() { _, err = drain(path, layout) })
		filestest.WantBroken(t, err, path, text)
		if n > 8<<20 {
			t.Errorf("%s: %d bytes were allocated", text, n)
		}
	}
	// Wherever a byte is another, there is an error or another number, and no more memory.
	nested, err := os.ReadFile("testdata/types.parquet")
	testhelp.Must(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range testhelp.Rounds(300) {
		b, layout := slices.Clone(whole), layout
		if i%2 == 1 {
			b, layout = slices.Clone(nested), typesLayout
		}
		for range 1 + rng.IntN(3) {
			b[rng.IntN(len(b))] = byte(rng.Uint32())
		}
		path := filestest.Write(t, "a.parquet", b)
		var err error
		n := filestest.Allocated(func() { _, err = drain(path, layout) })
		var broken *data.FileError
		if err != nil && !errors.As(err, &broken) {
			t.Errorf("got %T: %v", err, err)
		}
		if n > 64<<20 {
			t.Errorf("%d bytes were allocated", n)
		}
	}
}

// A damaged page packed by LZ4 has no end for some decoders, and a column of numbers may say that it is a map.
func TestWhatItsDecoderDoesNotExpectIsAnError(t *testing.T) {
	whole, err := os.ReadFile("testdata/packed.parquet")
	testhelp.Must(t, err)
	for at, c := range map[int]struct {
		b    byte
		text string
	}{12914: {0x0e, "does not unpack to the size in its header"}, 12711: {0x2c, "it is of type MAP, which is no number"}} {
		b := slices.Clone(whole)
		b[at] = c.b
		path := filestest.Write(t, "a.parquet", b)
		_, err := drain(path, layout)
		filestest.WantBroken(t, err, path, c.text)
	}
}

func TestAStreamGoesOnWhereAnotherWas(t *testing.T) {
	set, err := parquet.Open([]string{"testdata/plain.parquet", "testdata/packed.parquet"}, layout)
	testhelp.Must(t, err)
	defer set.Close()
	for _, stop := range []int{0, 1, 299, 300, 301, 1000, 1999, 2000} {
		first, n := set.Stream(), 0
		if stop > 0 {
			for range first.All() {
				if n++; n == stop {
					break
				}
			}
		}
		second := set.Stream()
		testhelp.Must(t, second.LoadStateDict(first.StateDict()))
		n = stop
		for pair, err := range second.All() {
			testhelp.Must(t, err)
			if got := gotorch.Item[int](pair.Input.Select(0, 4)); got != n%1000 {
				t.Fatalf("row %d is %d", n, got)
			}
			n++
		}
		if n != 2000 {
			t.Errorf("stopped after %d: there are %d rows", stop, n)
		}
	}
	one, err := parquet.Open([]string{"testdata/plain.parquet"}, layout)
	testhelp.Must(t, err)
	defer one.Close()
	for _, state := range []gotorch.Dict{nil, set.Stream().StateDict()} {
		if err := one.Stream().LoadStateDict(state); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

func TestNothingStaysOpen(t *testing.T) {
	filestest.NothingStays(t, func() {
		set, err := parquet.Open([]string{"testdata/plain.parquet"}, layout)
		testhelp.Must(t, err)
		pair, err := set.At(5)
		testhelp.Must(t, err)
		pair.Close()
		testhelp.Must(t, set.Close())
		testhelp.Must(t, set.Close())
		_, err = set.At(5)
		filestest.WantBroken(t, err, "testdata/plain.parquet", "closed")
		for _, err := range set.Stream().All() {
			filestest.WantBroken(t, err, "testdata/plain.parquet", "closed")
		}
		if _, err := parquet.Open([]string{"testdata/plain.parquet", "testdata/other.parquet"}, layout); err == nil {
			t.Error("files that do not fit together were opened")
		}
	})
}

func ExampleOpen() {
	set, err := parquet.Open([]string{"testdata/plain.parquet"}, tabular.Layout{
		Inputs:      []tabular.Column{{Name: "b"}, {Name: "c", Missing: 0}},
		Targets:     []tabular.Column{{Name: "kind", Classes: []string{"red", "green", "blue"}}},
		TargetDType: gotorch.Int64,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	batch, err := set.Batch([]int{0, 1, 2}, nil)
	fmt.Println(batch.Input, batch.Target, err)
	// Output:
	// tensor([[0.0000, 0.0000],
	//         [0.2500, 1.5000],
	//         [0.5000, 3.0000]]) tensor([0, 1, 2]) <nil>
}
