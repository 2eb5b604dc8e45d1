package columns

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestADecimalIsTheFloatNextToIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range testhelp.Rounds(20000) {
		unscaled := new(big.Int)
		digits := make([]byte, 1+rng.IntN(60))
		for i := range digits {
			digits[i] = '0' + byte(rng.IntN(10))
		}
		scale := rng.IntN(40)
		if rng.IntN(3) == 0 { // an integer
			digits = append(digits[:min(len(digits), 22)], strings.Repeat("0", scale)...)
		}
		unscaled.SetString([]string{"", "-"}[rng.IntN(2)]+string(digits), 10)
		n := OfDecimal(unscaled, scale)
		exact := new(big.Rat).SetFrac(unscaled, new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil))
		float, _ := exact.Float64()
		integer := exact.IsInt() && exact.Num().IsInt64()
		if n.Float != float || n.Integer != integer || integer && n.Int != exact.Num().Int64() {
			t.Fatalf("%v with scale %d is %+v, want %v, an int64: %v", unscaled, scale, n, exact.FloatString(40), integer)
		}
		// A text in CSV is the same number.
		text, err := (&Column{Size: 1}).Text(nil, exact.FloatString(scale), nil)
		testhelp.Must(t, err)
		if got := text[0]; got.Float != float || got.Integer != integer || got.Int != n.Int && integer {
			t.Fatalf("%s is %+v, want %+v", exact.FloatString(scale), got, n)
		}
	}
}

func column(t *testing.T, c tabular.Column, names ...string) *Column {
	t.Helper()
	p, err := Of("test", tabular.Layout{Inputs: []tabular.Column{}, Targets: []tabular.Column{c}}, append(names, c.Name))
	testhelp.Must(t, err)
	return p.Column(0)
}

func floats(numbers []Number) (all []float64) {
	for _, n := range numbers {
		all = append(all, n.Float)
	}
	return all
}

func TestListsAreTexts(t *testing.T) {
	missing := map[string]bool{"": true, "nan": true, "NA": true}
	numbers := tabular.Column{Name: "a", Size: 4, Missing: -1, Pad: -2}
	texts := tabular.Column{Name: "a", Size: 4, Missing: -1, Pad: -2, Unknown: -3, Classes: []string{"a b", "b, c", "d"}}
	tricky := texts
	tricky.Classes = []string{"it's", `say "hi"`, `a\nb`, `"'`, "a, b", "é", "日", `\d`, "f (x)"}
	for _, c := range []struct {
		column tabular.Column
		text   string
		want   []float64 // nil: an error
	}{
		{numbers, "[1, 2.5, 3, 4]", []float64{1, 2.5, 3, 4}},
		{numbers, "[1. 2.\n 3. 4.]", []float64{1, 2, 3, 4}},
		{numbers, "[[1. 2.]\n [3. 4.]]", []float64{1, 2, 3, 4}},
		{numbers, "[[1,2],[3,4]]", []float64{1, 2, 3, 4}},
		{numbers, "[(1, 2), (3, 4)]", []float64{1, 2, 3, 4}},
		{numbers, "(1,)", []float64{1, -2, -2, -2}},
		{numbers, "1;2;;4", []float64{1, 2, -1, 4}},
		{numbers, "1;;", []float64{1, -1, -2, -2}},
		{numbers, "1|2", []float64{1, 2, -2, -2}},
		{numbers, " 1  2 ", []float64{1, 2, -2, -2}},
		{numbers, "7", []float64{7, -2, -2, -2}},
		{numbers, "[]", []float64{-2, -2, -2, -2}},
		{numbers, "()", []float64{-2, -2, -2, -2}},
		{numbers, "", []float64{-1, -1, -1, -1}},
		{numbers, "NA", []float64{-1, -1, -1, -1}},
		{numbers, "[1, None, nan, 2]", []float64{1, -1, -1, 2}},
		{numbers, "[1, null]", []float64{1, -1, -2, -2}},
		{numbers, "[1, 2, 3, 4, 5]", nil},
		{numbers, "[1, {}]", nil},
		{numbers, "[1 2 ... 8]", nil},
		{numbers, "[1, 'x']", nil},
		{texts, `["a b", "b, c", "d", "e"]`, []float64{0, 1, 2, -3}},
		{texts, `['a b', 'b, c', 'd', None]`, []float64{0, 1, 2, -1}},
		{texts, `d;a b; d`, []float64{2, 0, 2, -2}},
		{texts, `['a b`, nil},
		{numbers, "[True, False]", []float64{1, 0, -2, -2}},
		{numbers, "[true, 2]", []float64{1, 2, -2, -2}},
		{numbers, "1 2)", nil},
		{numbers, "[1, 2", nil},
		{numbers, "[1 2", nil},
		{numbers, "[", nil},
		{tricky, `["it's", 'x', 'say "hi"', 'a\\nb']`, []float64{0, -3, 1, 2}},
		{tricky, `['it\'s', 'say "hi"', 'a\nb', "\"'"]`, []float64{0, 1, -3, 3}},
		{tricky, `['it\'s']`, []float64{0, -2, -2, -2}},
		{tricky, `['a, b' "it's"]`, []float64{4, 0, -2, -2}}, // NumPy's
		{tricky, "['a, b'\n 'a, b']", []float64{4, 4, -2, -2}},
		{tricky, "['\\xe9', '\\u65e5', '\\d']", []float64{5, 6, 7, -2}},
		{tricky, `f (x);it's; f (x)`, []float64{8, 0, 8, -2}},
		{tricky, `[f (x), it's, (f (x))]`, []float64{8, 0, 8, -2}},
		{tricky, `'a, b';"it's"`, []float64{4, 0, -2, -2}},
		{tricky, `"a ""b"""`, nil},
		{tricky, `['a\']`, nil},
		{texts, `['a b' d, 'd']`, nil},
	} {
		got, err := column(t, c.column).Text(nil, c.text, missing)
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(floats(got), c.want) {
			t.Errorf("%q: got %v and %v, want %v", c.text, floats(got), err, c.want)
		}
	}
	if _, err := column(t, tabular.Column{Name: "a", Size: 1}).Text(nil, "["+strings.Repeat("[", 1<<16), nil); err == nil {
		t.Error("a list without an end is one")
	}
}

func TestFieldsOfStructsAreInJSON(t *testing.T) {
	c := tabular.Column{Name: "s.t.a", Missing: -1, Size: 2}
	for text, want := range map[string][]float64{
		`{"t": {"a": [1, 2]}, "a": 5}`: {1, 2}, `{"t": {"a": "3;4"}}`: {3, 4}, `{"t": {}}`: {-1, -1}, `{"t": null}`: {-1, -1}, ``: {-1, -1}, `{}`: {-1, -1},
		`[1, 2]`: nil, `{'t': {'a': [1, 2]}}`: nil, `{"t": 1}`: nil,
	} {
		p, err := Of("test", tabular.Layout{Targets: []tabular.Column{c}}, []string{"x", "s"})
		testhelp.Must(t, err)
		got, err := p.Targets[0].Text(nil, text, map[string]bool{"": true})
		if (err == nil) != (want != nil) || err == nil && !slices.Equal(floats(got), want) {
			t.Errorf("%q: got %v and %v, want %v", text, floats(got), err, want)
		}
	}
	if got := column(t, tabular.Column{Name: "s.a"}, "s"); got.Within != nil || got.At != 1 {
		t.Errorf("a column of this name comes first: got %+v", got)
	}
}

func TestTimesAreNumbersOfTheUnit(t *testing.T) {
	for _, c := range []struct {
		unit         time.Duration
		format, text string
		want         float64
	}{
		{24 * time.Hour, "", "1970-01-03", 2},
		{24 * time.Hour, "", "1969-12-31T12:00:00Z", -0.5},
		{time.Second, "", "1970-01-01 00:01:00.25", 60.25},
		{time.Second, "", "1970-01-01T02:00:00+02:00", 0},
		{time.Millisecond, "", "1970-01-01 00:00", 0},
		{time.Minute, "", "01:30", 90},
		{time.Second, "", "00:00:01.5", 1.5},
		{24 * time.Hour, "02.01.2006", "02.01.1970", 1},
		{time.Hour, "3PM", "2PM", 14},
		{24 * time.Hour, "", "9999-12-31", 2932896},
		{time.Millisecond, "", "9999-12-31 23:59:59.999", 253402300799999},
		{time.Microsecond, "", "0001-01-01 00:00:00.000001", -62135596799999999},
		{24 * time.Hour, "", "0001-01-01", -719162},
		{time.Second, "", "9999-12-31 23:59:59", 253402300799},
		{time.Second, "", "31/12/1999", math.NaN()},
		{time.Second, "2006", "1999-01-01", math.NaN()},
	} {
		n, err := column(t, tabular.Column{Name: "a", Unit: c.unit, TimeFormat: c.format}).Text(nil, c.text, nil)
		if math.IsNaN(c.want) != (err != nil) || err == nil && (n[0].Float != c.want || n[0].Integer != (c.want == math.Trunc(c.want))) {
			t.Errorf("%q: got %+v and %v, want %v", c.text, n, err, c.want)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range testhelp.Rounds(2000) {
		seconds, nanoseconds := rng.Int64N(253402300800+62135596800)-62135596800, rng.Int64N(1e9) // years 1 to 9999
		if n := rng.Int64() >> rng.IntN(63); rng.IntN(2) == 0 {
			seconds, nanoseconds = 0, n
		}
		unit := time.Duration(1 + rng.Int64()>>rng.IntN(62))
		if rng.IntN(2) == 0 {
			unit = []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Hour}[rng.IntN(5)]
		}
		at := time.Unix(seconds, nanoseconds).UTC()
		got, err := column(t, tabular.Column{Name: "a", Unit: unit}).Text(nil, at.Format("2006-01-02 15:04:05.999999999"), nil)
		testhelp.Must(t, err)
		n := new(big.Int).Mul(big.NewInt(at.Unix()), big.NewInt(1e9))
		exact := new(big.Rat).SetFrac(n.Add(n, big.NewInt(int64(at.Nanosecond()))), big.NewInt(int64(unit)))
		want, _ := exact.Float64()
		integer := exact.IsInt() && exact.Num().IsInt64()
		if one := got[0]; one.Integer != integer || math.Abs(one.Float-want) > math.Abs(want)*1e-15 || integer && one.Int != exact.Num().Int64() {
			t.Fatalf("%v in %v is %+v, want %s", at, unit, one, exact.FloatString(3))
		}
	}
}

func TestFieldsOfAColumnThatDoNotGoTogetherAreRefused(t *testing.T) {
	encode := func([]float64, string) error { return nil }
	for _, c := range []tabular.Column{
		{Size: -1}, {Unit: -1}, {Unknown: 1}, {Pad: 1}, {Encode: encode, Classes: []string{}}, {Encode: encode, Unit: 1}, {Classes: []string{}, Unit: 1},
		{TimeFormat: "2006"}, {TimeFormat: "02.01.", Unit: 1}, {TimeFormat: "Jan 2 15:04", Unit: 1}, {TimeFormat: "002", Unit: 1},
	} {
		err := gotorch.Try0(func() { _, _ = Of("test", tabular.Layout{Targets: []tabular.Column{c}}, []string{""}) })
		if err == nil || !strings.Contains(err.Error(), `column "" has `) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
	_, err := Of("test", tabular.Layout{Targets: tabular.Columns("s")}, []string{"s.a", "s.b"})
	if err == nil || !strings.Contains(err.Error(), `a layout names those: "s.a", "s.b"`) {
		t.Errorf("got %v", err)
	}
}

func TestEncodeBeginsWithThePad(t *testing.T) {
	c := column(t, tabular.Column{Name: "a", Size: 3, Pad: 7, Encode: func(to []float64, text string) (err error) {
		to[0], err = strconv.ParseFloat(text, 64)
		return err
	}})
	got, err := c.Text(nil, "5", map[string]bool{"5": true})
	if err != nil || !slices.Equal(floats(got), []float64{5, 7, 7}) {
		t.Errorf("got %v and %v", got, err)
	}
	c.Encode = func(to []float64, _ string) error { to[3] = 1; return nil }
	if _, err := c.Text(nil, "5", nil); err == nil || !strings.Contains(err.Error(), "its Encode: it panicked: runtime error: index out of range [3]") {
		t.Errorf("got %v", err)
	}
	c.Encode = func([]float64, string) error { return strconv.ErrSyntax }
	if _, err := c.Text(nil, "x", nil); err == nil || !strings.Contains(err.Error(), "its Encode: ") {
		t.Errorf("got %v", err)
	}
}
