package columns

import (
	"math"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/testhelp"
)

// The numbers that come right behind the middle between two float32s: as float64s they are the middle, and round to the
// other one. What they are is NumPy's: np.array([n], dtype).astype(np.float32).view(np.uint32).
var singles = []struct {
	text string
	bits uint32
}{
	{"18014399583223809", 0x5a800001},    // 1<<54 + 1<<30 + 1
	{"-18014399583223809", 0xda800001},   // the same below zero
	{"9007199791611905", 0x5a000001},     // 1<<53 + 1<<29 + 1
	{"4611686293305294849", 0x5e800001},  // 1<<62 + 1<<38 + 1
	{"9223372586610589697", 0x5f000001},  // 1<<63 + 1<<39 + 1, which no int64 holds
	{"18446743523953737727", 0x5f7fffff}, // 1<<64 - 1<<39 - 1
	{"16777217", 0x4b800000},             // 1<<24 + 1
	{"16777219", 0x4b800002},
	{"9223372036854775807", 0x5f000000},
	{"18446744073709551615", 0x5f800000},
	{"-0", 0x80000000},
	{"-0.0", 0x80000000},
	{"1e400", 0x7f800000},
}

func TestIntegersAreRoundedToFloat32Once(t *testing.T) {
	for _, c := range singles {
		n, err := (&Column{Size: 1}).Text(nil, c.text, nil)
		testhelp.Must(t, err)
		if got := math.Float32bits(n[0].Single); got != c.bits {
			t.Errorf("%s is %#x, want %#x", c.text, got, c.bits)
		}
	}
}

func plan(t *testing.T, dtype gotorch.DType, c tabular.Column) *Plan {
	t.Helper()
	p, err := Of("test", tabular.Layout{Inputs: []tabular.Column{}, Targets: []tabular.Column{c}, TargetDType: dtype}, []string{c.Name})
	testhelp.Must(t, err)
	return p
}

// filled is what Fill makes of values, and Add of the same: both must be equal.
func filled[T Value](t *testing.T, dtype gotorch.DType, c tabular.Column, values []T, there []uint8, number func(T) Number) (bits []uint64, n int) {
	t.Helper()
	p := plan(t, dtype, c)
	places := make([]Place, len(values))
	for i := range places {
		places[i] = Place{From: len(values) - 1 - i, To: i}
	}
	block, added := p.Block(len(values)), p.Rows(len(values))
	n = Fill(block, 0, places, values, there)
	for k, place := range places {
		err := added.Add(func(c *Column, to []Number) ([]Number, error) {
			switch v := values[place.From]; {
			case there != nil && there[place.From] == 0:
				return c.Missing(to)
			case c.Classes != nil && v < 0:
				return to, &gotorch.Error{}
			default:
				return append(to, number(v)), nil
			}
		})
		if (err == nil) != (k < n) {
			t.Fatalf("%T to %v: place %d of %v: Fill stopped at %d, and Add says %v", values[0], dtype, k, values, n, err)
		}
		if err != nil {
			break
		}
	}
	of := func(s *side) (bits []uint64) {
		for _, v := range s.ints[:min(n, len(s.ints))] {
			bits = append(bits, uint64(v))
		}
		for _, v := range s.singly[:min(n, len(s.singly))] {
			bits = append(bits, uint64(math.Float32bits(v)))
		}
		for _, v := range s.floats[:min(n, len(s.floats))] {
			bits = append(bits, math.Float64bits(v))
		}
		return bits
	}
	got, want := of(&block.targets), of(&added.targets)
	if !slices.Equal(got, want) {
		t.Errorf("%T to %v: %v is %#x by Fill, and %#x by Add", values[0], dtype, values, got, want)
	}
	return got, n
}

func TestColumnsAreFilledAsRowsAreAdded(t *testing.T) {
	signed, float := func(v int64) Number { return OfInt(v) }, func(v float64) Number { return OfFloat(v) }
	none := []uint8{1, 0, 1, 1}
	for _, dtype := range []gotorch.DType{gotorch.Int64, gotorch.Float32, gotorch.Float64} {
		for _, missing := range []gotorch.Scalar{nil, 7, 0.5, math.NaN(), int64(18014399583223809)} {
			for _, there := range [][]uint8{nil, none} {
				c := tabular.Column{Name: "a", Missing: missing}
				filled(t, dtype, c, []int64{18014399583223809, math.MinInt64, math.MaxInt64, -1}, there, signed)
				filled(t, dtype, c, []uint64{math.MaxUint64, 3, math.MaxInt64, 9223372586610589697}, there, OfUint)
				filled(t, dtype, c, []uint64{5, math.MaxInt64, 1<<63 - 1, 0}, there, OfUint)
				filled(t, dtype, c, []float64{1 << 62, -1 << 63, 0, math.Copysign(0, -1)}, there, float)
				for _, last := range []float64{1 << 63, math.Inf(-1), math.NaN(), 0.5, -1 << 63} {
					filled(t, dtype, c, []float64{last, 1, 2, 3}, there, float)
					filled(t, dtype, c, []float32{float32(last), 1, 2, 3}, there, func(v float32) Number { return OfFloat(float64(v)) })
				}
				filled(t, dtype, c, []int32{math.MinInt32, 16777217, 0, -5}, there, func(v int32) Number { return OfInt(int64(v)) })
				filled(t, dtype, c, []uint32{math.MaxUint32, 16777217, 0, 1}, there, func(v uint32) Number { return OfInt(int64(v)) })
				filled(t, dtype, c, []uint8{1, 0, 0, 1}, there, func(v uint8) Number { return OfInt(int64(v)) })
				c.Classes = []string{"a", "b"}
				filled(t, dtype, c, []int32{1, -1, 0, 1}, there, func(v int32) Number { return OfInt(int64(v)) })
			}
		}
	}
	if got, _ := filled(t, gotorch.Float32, tabular.Column{Name: "a"}, []int64{18014399583223809}, nil, signed); got[0] != 0x5a800001 {
		t.Errorf("got %#x", got)
	}
	if _, n := filled(t, gotorch.Int64, tabular.Column{Name: "a"}, []float64{0.5, 1, 2}, nil, float); n != 2 {
		t.Errorf("got %d", n)
	}
}
