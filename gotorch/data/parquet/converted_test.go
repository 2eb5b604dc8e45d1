package parquet

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	format "github.com/parquet-go/parquet-go"
	meta "github.com/parquet-go/parquet-go/format"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/internal/columns"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// deep is a row in structs and lists; what of it is missing is drawn.
type deep struct {
	Lists   []float32   `parquet:"lists,list"`
	Bare    []int64     `parquet:"bare"`
	Structs []inner     `parquet:"structs,list"`
	Single  []single    `parquet:"single"`
	Within  *inner      `parquet:"within,optional"`
	Matrix  [][]float64 `parquet:"matrix,list"`
	Price   int64       `parquet:"price,decimal(2:18)"`
	Small   int32       `parquet:"small,decimal(3:9)"`
	Time    time.Time   `parquet:"time,timestamp(microsecond)"`
	Day     int32       `parquet:"day,date"`
}

type single struct {
	X float64 `parquet:"x"`
}

type inner struct {
	A    *int32  `parquet:"a,optional"`
	Name string  `parquet:"name,dict"`
	Tags []int32 `parquet:"tags,list"`
}

// row is what a row is: lists are filled with -5, and -7 is missing.
func (d deep) row(size int) (all []float64) {
	list := func(elements []float64) {
		all = append(all, elements...)
		for range size - len(elements) {
			all = append(all, -5)
		}
	}
	lists, bare, as, names, tags, matrix := []float64{}, []float64{}, []float64{}, []float64{}, []float64{}, []float64{}
	optional := func(v *int32) float64 {
		if v == nil {
			return -7
		}
		return float64(*v)
	}
	name := func(text string) float64 { return float64(slices.Index(texts3[:2], text)) }
	for _, v := range d.Lists {
		lists = append(lists, float64(v))
	}
	for _, v := range d.Bare {
		bare = append(bare, float64(v))
	}
	for _, s := range d.Structs {
		as, names = append(as, optional(s.A)), append(names, name(s.Name))
		for _, tag := range s.Tags {
			tags = append(tags, float64(tag))
		}
	}
	for _, v := range d.Matrix {
		matrix = append(matrix, v...)
	}
	xs := []float64{}
	for _, s := range d.Single {
		xs = append(xs, s.X)
	}
	for _, elements := range [][]float64{lists, bare, as, names, tags, matrix, xs} {
		list(elements)
	}
	a, of := -7.0, -7.0
	if d.Within != nil {
		a, of = optional(d.Within.A), name(d.Within.Name)
	}
	return append(all, a, of, float64(d.Price)/100, float64(d.Small)/1000, float64(d.Time.UnixMicro())/1000, float64(d.Day)*24)
}

func TestStructsAndListsAreReadAsTheyWereWritten(t *testing.T) {
	const size = 6 // nothing that is drawn is longer
	rng := rand.New(rand.NewPCG(13, 14))
	drawn := func() inner {
		s := inner{Name: texts3[rng.IntN(3)], Tags: make([]int32, rng.IntN(3))}
		for i := range s.Tags {
			s.Tags[i] = int32(rng.Uint32())
		}
		if rng.IntN(3) > 0 {
			s.A = new(int32(rng.Uint32()))
		}
		return s
	}
	layout := tabular.Layout{InputDType: gotorch.Float64, Targets: tabular.Columns("day")}
	for _, name := range []string{"lists", "bare", "structs.a", "structs.name", "structs.tags", "matrix", "single.x"} {
		layout.Inputs = append(layout.Inputs, tabular.Column{Name: name, Size: size, Pad: -5, Missing: -7})
	}
	layout.Inputs[3].Classes, layout.Inputs[3].Unknown = texts3[:2], -1
	layout.Inputs = append(layout.Inputs, []tabular.Column{
		{Name: "within.a", Missing: -7}, {Name: "within.name", Classes: texts3[:2], Unknown: -1, Missing: -7}, {Name: "price"}, {Name: "small"},
		{Name: "time", Unit: time.Millisecond}, {Name: "day", Unit: time.Hour},
	}...)
	for i := range testhelp.Rounds(40) {
		rows := make([]deep, []int{1, 9, 300}[rng.IntN(3)])
		for k := range rows {
			d := deep{Price: rng.Int64N(1 << 50), Small: rng.Int32N(1e9) - 5e8, Time: time.UnixMicro(rng.Int64N(1<<50) - 1<<49), Day: rng.Int32N(1e5) - 5e4}
			d.Lists, d.Bare, d.Structs, d.Matrix = make([]float32, rng.IntN(5)), make([]int64, rng.IntN(7)), make([]inner, rng.IntN(4)), make([][]float64, rng.IntN(4))
			for k := range d.Lists {
				d.Lists[k] = rng.Float32()
			}
			for k := range d.Bare {
				d.Bare[k] = int64(rng.Int32())
			}
			for k := range d.Structs {
				d.Structs[k] = drawn()
				d.Single = append(d.Single, single{rng.Float64()})
			}
			for k := range d.Matrix {
				d.Matrix[k] = []float64{rng.Float64(), rng.Float64()}[:rng.IntN(3)]
			}
			if rng.IntN(2) == 0 {
				d.Within = new(drawn())
			}
			rows[k] = d
		}
		var b bytes.Buffer
		w := format.NewGenericWriter[deep](&b, format.Compression(codecs[i%len(codecs)]), format.DataPageVersion(1+rng.IntN(2)),
			format.PageBufferSize([]int{64, 1 << 16}[rng.IntN(2)]), format.MaxRowsPerRowGroup(int64(1+rng.IntN(300))))
		_, err := w.Write(rows)
		testhelp.Must(t, err)
		testhelp.Must(t, w.Close())
		set, err := Open([]string{filestest.Write(t, "a.parquet", b.Bytes())}, layout)
		testhelp.Must(t, err)
		k := 0
		for pair, err := range set.Stream().All() {
			testhelp.Must(t, err)
			if got, want := gotorch.ToSlice[float64](pair.Input), rows[k].row(size); !slices.Equal(got, want) {
				t.Fatalf("file %d: row %d of %d is\n%v, want\n%v", i, k, len(rows), got, want)
			}
			pair.Close()
			k++
		}
		if k != len(rows) {
			t.Errorf("file %d: got %d of %d rows", i, k, len(rows))
		}
		testhelp.Must(t, set.Close())
	}
}

// A list of nothing takes a bit in a file, and Size numbers in memory.
func TestListsAreHeldToMaxRows(t *testing.T) {
	var b bytes.Buffer
	w := format.NewGenericWriter[deep](&b)
	_, err := w.Write(make([]deep, 1000))
	testhelp.Must(t, err)
	testhelp.Must(t, w.Close())
	path := filestest.Write(t, "a.parquet", b.Bytes())
	layout := tabular.Layout{Inputs: tabular.Columns(), Targets: []tabular.Column{{Name: "lists", Size: 100000, Pad: 0}}}
	n := filestest.Allocated(func() { _, err = Open([]string{path}, layout) })
	filestest.WantBroken(t, err, path, "row group 0: ValueError: it has 1000 rows with 100000 numbers in a column, and MaxRows allows 16777216 together")
	if n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
	// So does a text of a dictionary, with Encode.
	w3 := &columns.Column{Size: 100000, Encode: func([]float64, string) error { return nil }}
	for most, text := range map[int64]string{299999: "the dictionary has 3 values of 100000 numbers, and MaxRows allows 299999", 300000: ""} {
		v, err := newValues(plainColumn(meta.ByteArray, false), w3, gotorch.Float32, most)
		testhelp.Must(t, err)
		v.begin(3, 0, nesting{})
		if err = v.setDictionary(dictionaryOf3(meta.ByteArray), 3, 1<<20); text == "" {
			testhelp.Must(t, err)
		} else {
			wantText(t, err, text)
		}
	}
}

// No writer writes such levels, but a hostile one.
func TestLevelsThatAreNoneAreErrors(t *testing.T) {
	of := nesting{repetition: 1, definition: 3, list: 2, empty: 1}
	for _, c := range []struct {
		repetitions, definitions bits
		text                     string
	}{
		{bits{6, 0}, bits{6, 3}, "it has more rows than the group, 2"},
		{bits{2, 1, 4, 0}, bits{6, 3}, "it continues a list that has not begun"},
		{bits{2, 0, 4, 1}, bits{6, 0}, "it continues a list that has not begun"},
		{bits{8, 0}, bits{6, 3}, "a run has 4 values, and 3 are left"},
		{bits{2, 0, 4, 1}, bits{2, 3}, "2 values are missing"},
		{bits{2, 0, 4, 1}, bits{6, 4}, "a run is of 4, which has more than 2 bits"},
		{bits{2, 0, 4, 1}, bits{6, 3}, ""},
	} {
		v, err := newValues(column{plainColumn(meta.Int32, false).SchemaElement, 0, "a", of}, &columns.Column{Size: 3, List: true}, gotorch.Int64, 1<<20)
		testhelp.Must(t, err)
		v.begin(2, 2, of)
		if err := v.data(make(bits, 12), c.repetitions, c.definitions, meta.Plain, 3, 1<<20); c.text == "" {
			testhelp.Must(t, err)
		} else {
			wantText(t, err, c.text)
		}
	}
	v, err := newValues(column{plainColumn(meta.Int32, false).SchemaElement, 0, "a", nesting{definition: 2}}, &columns.Column{Size: 1}, gotorch.Int64, 1<<20)
	testhelp.Must(t, err)
	v.begin(3, 3, nesting{definition: 2})
	wantText(t, v.data(make(bits, 12), nil, bits{6, 3}, meta.Plain, 3, 1<<20), "a level is 3, and the highest 2")
	wantText(t, v.data(bits{1, 6, 1}, nil, bits{6, 2}, meta.RLEDictionary, 3, 1<<20), "a value is the dictionary's 1, which has 0")
}
