package args_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

type myFloat float32

func TestANumberThatIsWrittenIsGiven(t *testing.T) {
	for _, c := range []struct {
		field gotorch.Scalar
		want  float64
	}{
		{nil, 0.5}, {(*float64)(nil), 0.5}, {0, 0}, {0.0, 0}, {new(0.0), 0}, {new(float32(2)), 2}, {uint8(3), 3},
		{int64(-1), -1}, {myFloat(0.25), 0.25},
	} {
		if got := args.Float("op", "LR", c.field, 0.5); got != c.want {
			t.Errorf("%T %v is %v, not %v", c.field, c.field, got, c.want)
		}
	}
	for _, c := range []struct {
		field gotorch.Scalar
		want  int64
	}{{nil, 7}, {(*int64)(nil), 7}, {0, 0}, {new(int64(0)), 0}, {int32(-3), -3}, {uint(4), 4}} {
		if got := args.Int("op", "Groups", c.field, 7); got != c.want {
			t.Errorf("%T %v is %v, not %v", c.field, c.field, got, c.want)
		}
	}
}

func TestWhatIsNoNumberIsRefused(t *testing.T) {
	for part, fn := range map[string]func(){
		"op: TypeError: LR must be a real number, not string":     func() { args.Float("op", "LR", "0.1", 1) },
		"op: TypeError: LR must be a real number, not bool":       func() { args.Float("op", "LR", true, 1) },
		"op: TypeError: LR must be a real number, not complex128": func() { args.Float("op", "LR", 1i, 1) },
		"op: TypeError: Groups must be an integer, not float64":   func() { args.Int("op", "Groups", 2.0, 1) },
		"op: TypeError: Groups must be an integer, not *float64":  func() { args.Int("op", "Groups", new(2.0), 1) },
		"op: ValueError: Groups is 9223372036854775808, which is": func() { args.Int("op", "Groups", uint64(1<<63), 1) },
		"gotorch.Add: TypeError: there may be one options struct, and there are 3": func() {
			args.Option(make([]gotorch.AddOptions, 3))
		},
	} {
		err := gotorch.Try0(fn)
		if !errors.Is(err, gotorch.TypeError) && !errors.Is(err, gotorch.ValueError) || !strings.HasPrefix(err.Error(), part) {
			t.Errorf("got %v, want %q", err, part)
		}
	}
}

func TestSizesAreOneNumberOrAList(t *testing.T) {
	for _, c := range []struct {
		sizes any
		want  []int64
	}{{3, []int64{3}}, {int64(-1), []int64{-1}}, {[]int{2, 5}, []int64{2, 5}}, {[3]int64{1, 2, 3}, []int64{1, 2, 3}}, {[]int64(nil), nil}} {
		if got := args.Ints(c.sizes); !slices.Equal(got, c.want) {
			t.Errorf("%T %v is %v, not %v", c.sizes, c.sizes, got, c.want)
		}
	}
	list := []int64{1, 2}
	args.Ints(list)[0] = 7
	if list[0] != 1 {
		t.Error("the numbers are the caller's own")
	}
}
