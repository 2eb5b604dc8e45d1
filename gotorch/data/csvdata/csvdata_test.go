package csvdata_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/csvdata"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

var layout = tabular.Layout{Inputs: tabular.Columns("b", "a"), Targets: tabular.Columns("y")}

func TestColumnsAreFoundByTheirNames(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("\ufeffa,y,b,rest\r\n1,2,3,x\r\n\r\n4,5e1,-6.5,\"y, \"\"z\"\"\nmore\"\n"))
	set, err := csvdata.Open(path, layout)
	testhelp.Must(t, err)
	defer set.Close()
	if set.Len() != 2 || !slices.Equal(set.Names(), []string{"a", "y", "b", "rest"}) {
		t.Errorf("got %d rows of %q", set.Len(), set.Names())
	}
	batch, err := set.Batch([]int{1, 0, 1}, nil)
	testhelp.Must(t, err)
	if want := gotorch.NewTensor([][]float32{{-6.5, 4}, {3, 1}, {-6.5, 4}}); !batch.Input.Equal(want) || batch.Input.DType() != gotorch.Float32 {
		t.Errorf("got %v", batch.Input)
	}
	if !batch.Target.Equal(gotorch.FromSlice([]float32{50, 2, 50})) {
		t.Errorf("got %v", batch.Target)
	}
	one, err := set.At(1)
	testhelp.Must(t, err)
	if !one.Input.Equal(gotorch.FromSlice([]float32{-6.5, 4})) || one.Target.Dim() != 0 || gotorch.Item[float64](one.Target) != 50 {
		t.Errorf("got %v", one)
	}
	for _, i := range []int{-1, 2} {
		if _, err := set.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
	}
}

func TestInputsAreAllOtherColumnsWhereNoneAreNamed(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("1;2;3\n4;5;6\n"))
	set, err := csvdata.Open(path, tabular.Layout{Targets: tabular.Columns("z", "x"), InputDType: gotorch.Int64, TargetDType: gotorch.Float64}, csvdata.Options{Comma: ";", Names: []string{"x", "y", "z"}})
	testhelp.Must(t, err)
	defer set.Close()
	batch, err := set.Batch([]int{0, 1}, nil)
	testhelp.Must(t, err)
	if !batch.Input.Equal(gotorch.NewTensor([][]int64{{2}, {5}})) || !batch.Target.Equal(gotorch.NewTensor([][]float64{{3, 1}, {6, 4}})) {
		t.Errorf("got %v", batch)
	}
}

func TestMissingFieldsCountAsTheLayoutSays(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("# note\na,b,y\n,NA,1\n2,3,\n"))
	columns := tabular.Layout{Inputs: []tabular.Column{{Name: "a", Missing: math.NaN()}, {Name: "b", Missing: 0}}, Targets: tabular.Columns("y")}
	set, err := csvdata.Open(path, columns, csvdata.Options{Comment: "#"})
	testhelp.Must(t, err)
	defer set.Close()
	one, err := set.At(0)
	testhelp.Must(t, err)
	if got := gotorch.ToSlice[float64](one.Input); !math.IsNaN(got[0]) || got[1] != 0 {
		t.Errorf("got %v", got)
	}
	_, err = set.At(1)
	filestest.WantBroken(t, err, path, `row 1 (line 4): ValueError: column "y": the field is missing`)
	other, err := csvdata.Open(path, columns, csvdata.Options{Comment: "#", MissingValues: []string{}})
	testhelp.Must(t, err)
	defer other.Close()
	_, err = other.At(0)
	filestest.WantBroken(t, err, path, `column "b": "NA" is no number`)
}

func TestClassesAreNumbers(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("a,y\n1,dog\n2,NA\n3,cow\n"))
	set, err := csvdata.Open(path, tabular.Layout{Targets: []tabular.Column{{Name: "y", Classes: []string{"cat", "dog", "NA"}}}, TargetDType: gotorch.Int64})
	testhelp.Must(t, err)
	defer set.Close()
	batch, err := set.Batch([]int{0, 1}, nil)
	testhelp.Must(t, err)
	if !batch.Target.Equal(gotorch.FromSlice([]int64{1, 2})) {
		t.Errorf("got %v", batch.Target)
	}
	_, err = set.At(2)
	filestest.WantBroken(t, err, path, `row 2 (line 4): ValueError: column "y": "cow" is none of the column's 3 classes`)
}

func TestIntegersAreExact(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("a,y\n9007199254740993,1\n1.5,1\n1e3,1\n9223372036854775808,1\n0x10,1\n1_0,1\n"))
	set, err := csvdata.Open(path, tabular.Layout{Targets: tabular.Columns("y"), InputDType: gotorch.Int64})
	testhelp.Must(t, err)
	defer set.Close()
	for i, want := range []int64{9007199254740993, -1, 1000, -1, -1, -1} {
		pair, err := set.At(i)
		if (err == nil) != (want > 0) || err == nil && gotorch.Item[int64](pair.Input) != want {
			t.Errorf("row %d: got %v, %v", i, pair, err)
		}
	}
}

const broken = "a,b,y\n1,2,3\n4,5\n6,7,8,9\nx,1,1\n1,\"2\"2,3\n10,11,12\n"

func TestABrokenRowIsAnErrorOfItsOwn(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte(broken))
	set, err := csvdata.Open(path, layout)
	testhelp.Must(t, err)
	defer set.Close()
	want := map[int]string{
		1: "row 1 (line 3): ValueError: the row has 2 fields, and the table 3 columns", 2: "row 2 (line 4): ValueError: the row has 4 fields",
		3: `row 3 (line 5): ValueError: column "a": "x" is no number`, 4: "row 4: ValueError: line 6, byte",
	}
	if set.Len() != 6 {
		t.Errorf("got %d rows", set.Len())
	}
	for i := range set.Len() {
		pair, err := set.At(i)
		if want[i] != "" {
			filestest.WantBroken(t, err, path, want[i])
		} else if err != nil || gotorch.Item[int](pair.Input.Select(0, 1)) != []int{1, 0, 0, 0, 0, 10}[i] {
			t.Errorf("row %d: got %v, %v", i, pair, err)
		}
	}
	if _, err := set.Batch([]int{0, 5, 4}, nil); err == nil {
		t.Error("a batch with a broken row was made")
	}
	i := 0
	for pair, err := range csvdata.NewStream([]string{path}, layout).All() {
		if want[i] != "" {
			filestest.WantBroken(t, err, path, want[i])
		} else if err != nil || gotorch.Item[int](pair.Input.Select(0, 1)) != []int{1, 0, 0, 0, 0, 10}[i] {
			t.Errorf("row %d: got %v, %v", i, pair, err)
		}
		i++
	}
	if i != 6 {
		t.Errorf("the stream has %d rows", i)
	}
}

// Lines that are passed by are no part of a row, however many they are, and MaxRow is of each row alone.
func TestMaxRowIsOfARow(t *testing.T) {
	long := strings.Repeat("x", 50)
	options := csvdata.Options{MaxRow: 100, Comment: "#"}
	for text, c := range map[string]struct {
		table string
		rows  int
	}{
		"comments":    {"a,b,y\n" + strings.Repeat("# "+long+long+long+"\n", 1000) + "1,2,3\n", 1},
		"blank lines": {strings.Repeat("\r\n", 20000) + "a,b,y\r\n" + strings.Repeat("\n", 20000) + "1,2,3\n" + strings.Repeat("\n", 20000), 1},
		"many rows":   {"a,b,y\n" + strings.Repeat("1,2,3\n", 1000), 1000},
		"just so":     {"a,b,y\n1,2," + strings.Repeat("0", 95) + "3\n", 1},
		"":            {"a,b,y\n1,2," + strings.Repeat("0", 195) + "3\n", 0},
		"by little":   {"a,b,y\n1,2," + strings.Repeat("0", 97) + "3\n", 0},
		" ":           {"a,b,y\n1,2,\"" + strings.Repeat("\n", 195) + "3\"\n", 0},
	} {
		path := filestest.Write(t, "a.csv", []byte(c.table))
		set, err := csvdata.Open(path, layout, options)
		if c.rows == 0 {
			filestest.WantBroken(t, err, path, "the row has more than 100 bytes")
		} else {
			testhelp.Must(t, err)
			defer set.Close()
			if pair, err := set.At(c.rows - 1); err != nil || set.Len() != c.rows || gotorch.Item[int](pair.Target) != 3 {
				t.Errorf("%s: %d rows, and %v, %v", text, set.Len(), pair, err)
			}
		}
		n := 0
		for _, err := range csvdata.NewStream([]string{path}, layout, options).All() {
			if err == nil {
				n++
			}
		}
		if n != c.rows {
			t.Errorf("%s: the stream has %d rows", text, n)
		}
	}
}

// A mark at the begin of the file, which is no part of the first field, may stand before a quote, and without a header.
func TestAByteOrderMarkIsPassedBy(t *testing.T) {
	for _, c := range []struct {
		table string
		names []string
	}{{"\ufeff\"a\",b,y\n1,2,3\n4,5,6\n", nil}, {"\ufeffa,b,y\r\n1,2,3\r\n4,5,6\r\n", nil}, {"\ufeff1,2,3\n4,5,6\n", []string{"a", "b", "y"}}, {"\ufeff\"1\",2,3\n4,5,6\n", []string{"a", "b", "y"}}} {
		path := filestest.Write(t, "a.csv", []byte(c.table))
		options := csvdata.Options{Names: c.names}
		set, err := csvdata.Open(path, layout, options)
		testhelp.Must(t, err)
		defer set.Close()
		batch, err := set.Batch([]int{1, 0}, nil)
		if err != nil || !slices.Equal(gotorch.ToSlice[int](batch.Target), []int{6, 3}) {
			t.Errorf("%q: got %v, %v", c.table, batch, err)
		}
		for _, path := range []string{path, filestest.Write(t, "a.csv.gz", filestest.Gzip([]byte(c.table)))} {
			want := 3
			for pair, err := range csvdata.NewStream([]string{path}, layout, options).All() {
				if err != nil || gotorch.Item[int](pair.Target) != want {
					t.Errorf("%q: got %v, %v", c.table, pair, err)
				}
				want += 3
			}
		}
	}
}

func TestZeroHasASign(t *testing.T) {
	set, err := csvdata.Open(filestest.Write(t, "a.csv", []byte("a,b,y\n-0,0,1\n")), layout)
	testhelp.Must(t, err)
	defer set.Close()
	pair, err := set.At(0)
	testhelp.Must(t, err)
	// The layout has b before a.
	if x := gotorch.ToSlice[float64](pair.Input); math.Signbit(x[0]) || !math.Signbit(x[1]) {
		t.Errorf("got %v", x)
	}
}

func TestTablesThatDoNotFitAreRefused(t *testing.T) {
	for text, content := range map[string]string{
		"the file is empty": "", `there is no column "b": it has "a", "y"`: "a,y\n1,2\n", `two columns "a"`: "a,b,a,y\n", "use NewStream": string(filestest.Gzip([]byte("a,b,y\n"))),
		"row 0: ValueError: the row has more than 1000 bytes": "a,b,y\n\"" + strings.Repeat("x,1\n", 10000), "header: ValueError: line 1": "a\"b,c\n",
	} {
		path := filestest.Write(t, "a.csv", []byte(content))
		_, err := csvdata.Open(path, layout, csvdata.Options{MaxRow: 1000})
		filestest.WantBroken(t, err, path, text)
		if text == "use NewStream" {
			continue
		}
		var first error
		for _, err := range csvdata.NewStream([]string{path}, layout, csvdata.Options{MaxRow: 1000}).All() {
			if first == nil {
				first = err
			}
		}
		filestest.WantBroken(t, first, path, text)
	}
	filestest.NoFiles(t, func(path string) error { _, err := csvdata.Open(path, layout); return err })
	for _, opt := range []csvdata.Options{{Comma: "ab"}, {Comma: "\""}, {Comment: "\n"}, {Comma: "\r"}, {Comment: "\r"}, {Comma: "\x00"}, {Comment: ","}, {MaxRow: 0}} {
		filestest.WantKind(t, gotorch.ValueError, func() { csvdata.NewStream(nil, layout, opt) })
	}
	for _, l := range []tabular.Layout{{}, {Targets: []tabular.Column{{Name: "a", Classes: []string{"x", "x"}}}}} {
		filestest.WantKind(t, gotorch.ValueError, func() { csvdata.NewStream(nil, l) })
	}
	filestest.WantKind(t, gotorch.TypeError, func() {
		csvdata.NewStream(nil, tabular.Layout{Targets: tabular.Columns("y"), InputDType: gotorch.Bool})
	})
	filestest.WantKind(t, gotorch.TypeError, func() {
		csvdata.NewStream(nil, tabular.Layout{Targets: []tabular.Column{{Name: "y", Missing: "0"}}})
	})
}

// large makes a table of n rows whose fields are told by their numbers.
func large(tb testing.TB, n int) string {
	var text strings.Builder
	text.WriteString("a,b,y\n")
	for i := range n {
		if i%10 == 3 {
			text.WriteString("\n") // which is no row
		}
		fmt.Fprintf(&text, "%d,%d,\"%d\n\"\n", i, 2*i, 3*i)
	}
	return filestest.Write(tb, "large.csv", []byte(text.String()))
}

func TestRowsAreReadInAnyOrder(t *testing.T) {
	set, err := csvdata.Open(large(t, 3000), layout)
	testhelp.Must(t, err)
	defer set.Close()
	if set.Len() != 3000 {
		t.Fatalf("got %d rows", set.Len())
	}
	seen := map[int]bool{}
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 64, Shuffle: true, Seed: 1, Workers: 3}).All() {
		testhelp.Must(t, err)
		a, b, y := batch.Input.Select(1, 1), batch.Input.Select(1, 0), batch.Target
		if !a.MulScalar(2).Equal(b) || !a.MulScalar(3).Equal(y) {
			t.Fatalf("got %v", batch)
		}
		for _, i := range gotorch.ToSlice[int](a) {
			seen[i] = true
		}
	}
	if len(seen) != 3000 {
		t.Errorf("got %d rows", len(seen))
	}
}

func TestAStreamGoesOnWhereAnotherWas(t *testing.T) {
	packed := filestest.Write(t, "a.csv.gz", filestest.Gzip([]byte(broken)))
	paths := []string{packed, large(t, 5), filepath.Join(t.TempDir(), "none"), packed}
	show := func(pair data.Pair, err error) string {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(pair.Input, pair.Target)
	}
	var want []string
	for pair, err := range csvdata.NewStream(paths, layout).All() {
		want = append(want, show(pair, err))
	}
	if len(want) != 6+5+1+6 {
		t.Fatalf("got %q", want)
	}
	for stop := 1; stop <= len(want); stop++ {
		first, n := csvdata.NewStream(paths, layout), 0
		for range first.All() {
			if n++; n == stop {
				break
			}
		}
		second := csvdata.NewStream(paths, layout)
		testhelp.Must(t, second.LoadStateDict(first.StateDict()))
		var got []string
		for pair, err := range second.All() {
			got = append(got, show(pair, err))
		}
		if !slices.Equal(got, want[stop:]) {
			t.Errorf("stopped after %d: got %q", stop, got)
		}
	}
	if err := csvdata.NewStream(paths, layout).LoadStateDict(csvdata.NewStream(nil, layout).StateDict()); !errors.Is(err, gotorch.ValueError) {
		t.Errorf("got %v", err)
	}
}

func TestNothingStays(t *testing.T) {
	path := large(t, 100)
	filestest.NothingStays(t, func() {
		set, err := csvdata.Open(path, layout)
		testhelp.Must(t, err)
		testhelp.Must(t, set.Close())
		testhelp.Must(t, set.Close())
		_, err = set.At(0)
		filestest.WantBroken(t, err, path, "closed")
		for pair := range csvdata.NewStream([]string{path}, layout).All() {
			pair.Close()
			break
		}
	})
	set, err := csvdata.Open(path, layout)
	testhelp.Must(t, err)
	defer set.Close()
	testhelp.Must(t, os.Truncate(path, 100))
	_, err = set.At(99)
	filestest.WantBroken(t, err, path, "row ")
}

func TestErrorsTellTheLineHoweverFarItIs(t *testing.T) {
	var table strings.Builder
	table.WriteString("a,b\n")
	line := 1
	lines := map[int]int{} // of rows that are broken
	for i := range 3000 {
		line++
		switch {
		case i%100 == 99:
			lines[i] = line
			table.WriteString("x,1\n")
		case i%7 == 0: // a row of two lines
			line++
			fmt.Fprintf(&table, "%d,\"%d\n\"\n", i, i)
		default:
			fmt.Fprintf(&table, "%d,%030d\n", i, i)
		}
	}
	path := filestest.Write(t, "a.csv", []byte(table.String()))
	set, err := csvdata.Open(path, tabular.Layout{Inputs: tabular.Columns("a"), Targets: tabular.Columns("b")})
	testhelp.Must(t, err)
	defer set.Close()
	for row, line := range lines {
		_, err := set.At(row)
		filestest.WantBroken(t, err, path, fmt.Sprintf("row %d (line %d)", row, line))
	}
}

func TestTheEndOfALineIsNoPartOfItsLength(t *testing.T) {
	layout := tabular.Layout{Inputs: tabular.Columns("a"), Targets: tabular.Columns("b")}
	for _, c := range []struct {
		row  string
		fits bool
	}{
		{"1234,56789\r\n", true}, // ten bytes
		{"1234,56789\n", true},
		{"1234,56789", true},
		{"1234,5678901\r\n", false},
		{"1234,567890123\n", false},
	} {
		path := filestest.Write(t, "a.csv", []byte("a,b\n1,2\n"+c.row))
		_, err := csvdata.Open(path, layout, csvdata.Options{MaxRow: 10})
		if c.fits {
			testhelp.Must(t, err)
		} else {
			filestest.WantBroken(t, err, path, "the row has more than 10 bytes")
		}
	}
}

// FuzzTable looks for a table whose rows differ by the way in which they are read.
func FuzzTable(f *testing.F) {
	f.Add([]byte(broken), uint8(3))
	f.Add([]byte("a,b,y\n\"1\n\",2,3\n\n4,5,6"), uint8(1))
	f.Add([]byte("a,b,y\n\"1"), uint8(0))
	f.Fuzz(func(t *testing.T, text []byte, seed uint8) {
		path := filestest.Write(t, "a.csv", text)
		opt := csvdata.Options{MaxRow: 100, Comment: "#"}
		set, err := csvdata.Open(path, layout, opt)
		var wrong *data.FileError
		if err != nil {
			if !errors.As(err, &wrong) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		defer set.Close()
		var want []string
		for pair, err := range csvdata.NewStream([]string{path}, layout, opt).All() {
			want = append(want, fmt.Sprint(pair.Input, pair.Target, err))
			if err == nil {
				pair.Close()
			}
		}
		if len(want) != set.Len() {
			t.Fatalf("the stream has %d rows, and the table %d", len(want), set.Len())
		}
		for _, i := range rand.New(rand.NewPCG(uint64(seed), 0)).Perm(len(want)) {
			pair, err := set.At(i)
			if got := fmt.Sprint(pair.Input, pair.Target, err); got != want[i] {
				t.Fatalf("row %d is %s, and in the stream %s", i, got, want[i])
			}
		}
	})
}

func ExampleOpen() {
	path := filepath.Join(os.TempDir(), "gotorch-example.csv")
	text := "age,fare,sex,survived\n22,7.25,male,0\n38,,female,1\n26,7.925,female,yes\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)
	set, err := csvdata.Open(path, tabular.Layout{
		Inputs:      []tabular.Column{{Name: "age"}, {Name: "fare", Missing: 0}, {Name: "sex", Classes: []string{"female", "male"}}},
		Targets:     []tabular.Column{{Name: "survived"}},
		TargetDType: gotorch.Int64,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	batch, err := set.Batch([]int{0, 1}, nil)
	fmt.Println(batch.Input, batch.Target, err)
	_, err = set.At(2)
	fmt.Println(strings.TrimPrefix(err.Error(), path+": "))
	// Output:
	// tensor([[22.0000,  7.2500,  1.0000],
	//         [38.0000,  0.0000,  0.0000]]) tensor([0, 1]) <nil>
	// row 2 (line 4): ValueError: column "survived": "yes" is no number
}

func TestColumnsOfEveryTypeAreRead(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte(`price,city,day,list,person,text
12.50,Rome,2024-01-31,"[1, 2]","{""age"": 31, ""name"": {""first"": ""Ada""}}",abc
9007199254740993.00,Oslo,1970-01-02,3;4,{},
1,,02.01.1970,"[1, 2]",{},x
1,,1970-01-01,"[1, 2, 3]",{},x
,Rome,1970-01-01,[],31,x
`))
	layout := tabular.Layout{
		Inputs: []tabular.Column{
			{Name: "city", Classes: []string{"Paris", "Rome"}, Unknown: -1, Missing: -2}, {Name: "day", Unit: 24 * time.Hour}, {Name: "list", Size: 2},
			{Name: "person.age", Missing: 0}, {Name: "person.name.first", Classes: []string{"Ada"}, Missing: 7},
			{Name: "text", Size: 2, Encode: func(to []float64, text string) error { to[1] = float64(len(text)); return nil }},
		},
		Targets: []tabular.Column{{Name: "price"}}, InputDType: gotorch.Int64, TargetDType: gotorch.Int64,
	}
	set, err := csvdata.Open(path, layout)
	testhelp.Must(t, err)
	defer set.Close()
	rows := 0
	for pair, err := range csvdata.NewStream([]string{path}, layout).All() {
		again, err2 := set.At(rows)
		text := []string{
			`row 0 (line 2): ValueError: column "price": 12.5 is no int64`, "",
			`row 2 (line 4): ValueError: column "day": "02.01.1970" is no date or time of ISO 8601: say by TimeFormat`,
			`row 3 (line 5): ValueError: column "list": the list has 3 elements, and Size is 2`,
			`row 4 (line 6): ValueError: column "list": the list has 0 elements, and Size is 2: say by Pad`,
		}[rows]
		rows++
		if text != "" {
			filestest.WantBroken(t, err, path, text)
			filestest.WantBroken(t, err2, path, text)
			continue
		}
		testhelp.Must(t, errors.Join(err, err2))
		if got := gotorch.ToSlice[int64](pair.Input); !slices.Equal(got, []int64{-1, 1, 3, 4, 0, 7, 0, 0}) || !pair.Input.Equal(again.Input) {
			t.Errorf("got %v", got)
		}
		if got := gotorch.Item[int64](pair.Target); got != 1<<53+1 {
			t.Errorf("got %d", got)
		}
	}
	if rows != 5 {
		t.Errorf("got %d rows", rows)
	}
	layout.Targets, layout.TargetDType = []tabular.Column{{Name: "price", Missing: 0}}, gotorch.Float32
	layout.Inputs = layout.Inputs[3:5]
	floats, err := csvdata.Open(path, layout)
	testhelp.Must(t, err)
	defer floats.Close()
	pair, err := floats.At(0)
	testhelp.Must(t, err)
	if got := gotorch.ToSlice[int64](pair.Input); !slices.Equal(got, []int64{31, 0}) || gotorch.Item[float64](pair.Target) != 12.5 {
		t.Errorf("got %v and %v", got, pair.Target)
	}
	_, err = floats.At(4)
	filestest.WantBroken(t, err, path, `column "person.age": "31" is no JSON object, in which "age" should be`)
}
