package data_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/internal/testhelp"
)

type point struct{ X, Y float64 }

type pointsOf struct{ X, Y gotorch.Tensor }

type sampleOfAll struct {
	Image  gotorch.Tensor
	Label  int
	Weight float32
	Good   bool
	Tokens []int64
	Place  point
	Corner *point
	File   string
	Raw    []byte
	Scores map[string]float64
	Fixed  [2]uint8
	Words  []string
}

type batchOfAll struct {
	Image  gotorch.Tensor
	Label  gotorch.Tensor
	Weight []float32
	Good   gotorch.Tensor
	Tokens data.Padded
	Place  pointsOf
	Corner *pointsOf
	File   []string
	Raw    [][]byte
	Scores map[string]gotorch.Tensor
	Fixed  gotorch.Tensor
	Words  [][]string
}

// What comes out is what torch.utils.data.default_collate gives for the same dicts, lists and numbers.
func TestDefaultCollateJoinsFieldByField(t *testing.T) {
	one := sampleOfAll{gotorch.Ones([]int64{2}), 3, 0.5, true, []int64{1, 2}, point{1, 2}, &point{5, 6}, "a", []byte("x"), map[string]float64{"p": 1}, [2]uint8{1, 2}, []string{"u", "v"}}
	two := sampleOfAll{gotorch.Zeros([]int64{2}), -4, 1.5, false, nil, point{3, 4}, &point{7, 8}, "b", nil, map[string]float64{"p": 2, "q": 3}, [2]uint8{3, 4}, []string{"w", "x"}}
	got, err := data.DefaultCollate[sampleOfAll, batchOfAll]([]sampleOfAll{one, two})
	testhelp.Must(t, err)
	for i, c := range []struct {
		got  any
		want string
	}{
		{got.Image, "tensor([[1., 1.],\n        [0., 0.]])"}, {got.Label, "tensor([ 3, -4])"}, {got.Weight, "[0.5 1.5]"},
		{got.Good, "tensor([ True, False])"}, {got.Tokens.Values, "tensor([[1, 2],\n        [0, 0]])"}, {got.Tokens.Lengths, "tensor([2, 0])"},
		{got.Tokens.Mask(), "tensor([[ True,  True],\n        [False, False]])"},
		{got.Place.X, "tensor([1., 3.], dtype=torch.float64)"}, {got.Corner.Y, "tensor([6., 8.], dtype=torch.float64)"}, {got.File, "[a b]"},
		{got.Raw, "[[120] []]"}, {got.Scores, "map[p:tensor([1., 2.], dtype=torch.float64)]"},
		{got.Fixed, "tensor([[1, 2],\n        [3, 4]], dtype=torch.uint8)"}, {got.Words, "[[u w] [v x]]"},
	} {
		if text := fmt.Sprint(c.got); text != c.want {
			t.Errorf("%d: got %s, want %s", i, text, c.want)
		}
	}
}

func TestDefaultCollateOfInterfacesIsPythons(t *testing.T) {
	got, err := data.DefaultCollate[map[string]any, map[string]any]([]map[string]any{
		{"A": 0, "B": []int{1, 2}, "C": "x", "D": map[string]any{"e": 1.5}, "F": []string{"p"}},
		{"A": 100, "B": []int{3, 4}, "C": "y", "D": map[string]any{"e": 2.5}, "F": []string{"q"}},
	})
	testhelp.Must(t, err)
	want := "map[A:tensor([  0, 100]) B:tensor([[1, 2],\n        [3, 4]]) C:[x y] D:map[e:tensor([1.5000, 2.5000], dtype=torch.float64)] F:[[p q]]]"
	if text := fmt.Sprint(got); text != want {
		t.Errorf("got %s, want %s", text, want)
	}
}

func TestWhatCannotBeJoinedSaysWhy(t *testing.T) {
	type hidden struct{ x int }
	type self struct{ Next *self }
	type unlike struct{ Z gotorch.Tensor }
	ones := gotorch.Ones([]int64{2})
	for name, c := range map[string]struct {
		err  func() error
		kind gotorch.ErrorKind
		part string
	}{
		"hidden":  {func() error { _, err := data.DefaultCollate[hidden, hidden]([]hidden{{1}}); return err }, gotorch.TypeError, "x is not exported"},
		"itself":  {func() error { _, err := data.DefaultCollate[self, self]([]self{{}}); return err }, gotorch.TypeError, "within"},
		"missing": {func() error { _, err := data.DefaultCollate[point, unlike]([]point{{}}); return err }, gotorch.TypeError, "no field X"},
		"types":   {func() error { _, err := data.DefaultCollate[point, point]([]point{{}}); return err }, gotorch.TypeError, "float64 cannot be joined to one of type float64: they become a gotorch.Tensor or a []float64"},
		"none":    {func() error { _, err := data.DefaultCollate[int, gotorch.Tensor](nil); return err }, gotorch.ValueError, "no samples"},
		"nil": {func() error { _, err := data.DefaultCollate[*point, pointsOf]([]*point{{}, nil}); return err }, gotorch.ValueError,
			"sample 1 of the batch is nil"},
		"no such key": {func() error {
			_, err := data.DefaultCollate[map[int]int, map[int]gotorch.Tensor]([]map[int]int{{7: 1}, {8: 1}})
			return err
		}, gotorch.KeyError, "has no 7"},
		"lengths": {func() error {
			_, err := data.DefaultCollate[[]string, [][]string]([][]string{{"a"}, {"b", "c"}})
			return err
		}, gotorch.RuntimeError, "each element in list of batch should be of equal size"},
		"shapes": {func() error {
			_, err := data.DefaultCollate[gotorch.Tensor, gotorch.Tensor]([]gotorch.Tensor{ones, ones.Unsqueeze(0)})
			return err
		}, gotorch.RuntimeError, "stack"},
		"ragged": {func() error {
			_, err := data.DefaultCollate[ragged, struct{ Tokens gotorch.Tensor }]([]ragged{{[]int{1}}, {[]int{1, 2}}})
			return err
		}, gotorch.RuntimeError, "the field Tokens: data.DefaultCollate: RuntimeError: each element in list of batch should be of equal size: sample 0 has a list of 1, and sample 1 one of 2; a data.Padded"},
		"shapes in a map": {func() error {
			_, err := data.DefaultCollate[map[string]gotorch.Tensor, map[string]gotorch.Tensor]([]map[string]gotorch.Tensor{{"a": ones}, {"a": ones.Unsqueeze(0)}})
			return err
		}, gotorch.RuntimeError, "the key a: stack"},
		"a struct in an interface": {func() error { _, err := data.DefaultCollate[any, any]([]any{ragged{}}); return err }, gotorch.TypeError, "values of type []int cannot be joined to one of type []int: they become a gotorch.Tensor or a data.Padded"},
		"mixed":                    {func() error { _, err := data.DefaultCollate[any, any]([]any{1, "a"}); return err }, gotorch.TypeError, "sample 0 of the batch is a int, and sample 1 a string"},
		"nils":                     {func() error { _, err := data.DefaultCollate[any, any]([]any{nil}); return err }, gotorch.TypeError, "nil"},
		"scalars": {func() error { _, err := data.Pad([]gotorch.Tensor{gotorch.FromScalar(1)}); return err }, gotorch.ValueError,
			"has no dimensions"},
		"nothing": {func() error { _, err := data.Pad(nil); return err }, gotorch.ValueError, "no sequences"},
		"no side": {func() error {
			_, err := data.Pad([]gotorch.Tensor{ones}, data.PadOptions{PaddingSide: "up"})
			return err
		}, gotorch.RuntimeError, "padding_side"},
	} {
		if err := c.err(); !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.part) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

type ragged struct{ Tokens []int }

// A loader says why it cannot join its samples, by the names of their types.
func TestALoaderSaysWhyItCannotJoin(t *testing.T) {
	of := func(fn func() error, parts ...string) {
		t.Helper()
		err := fn()
		for _, part := range append(parts, "data.NewLoaderWith with data.DefaultCollate") {
			if !errors.Is(err, gotorch.TypeError) || !strings.Contains(err.Error(), part) {
				t.Errorf("got %v, want %q", err, part)
			}
		}
	}
	first := func(l interface{ errors() error }) func() error { return l.errors }
	of(first(loaderOf[string]{}), "samples of type string", "they become a []string")
	of(first(loaderOf[ragged]{}), "the field Tokens", "they become a gotorch.Tensor or a data.Padded")
	of(first(loaderOf[fmt.Stringer]{}), "samples of type fmt.Stringer", "Collate([]fmt.Stringer) (fmt.Stringer, error)")
	of(first(loaderOf[struct{ hidden int }]{}), "the field hidden is not exported")
	of(first(loaderOf[chan int]{}), "samples of type chan int", "there is no batch of such values")
}

type loaderOf[S any] struct{}

func (loaderOf[S]) errors() (got error) {
	set := data.Transform[number](&numbers{n: 2}, func(number, *rand.Rand) (none S, err error) { return none, nil })
	for _, err := range data.NewLoader(set).All() {
		got = err
	}
	return got
}

// Structs and maps of tensors need no method, and a method within is called.
func TestTypesOfTensorsAreJoinedByThemselves(t *testing.T) {
	type triple struct {
		Anchor gotorch.Tensor
		Rest   map[string]data.Pair
		List   []gotorch.Tensor
	}
	set := data.Transform[number](&numbers{n: 4}, func(s number, _ *rand.Rand) (triple, error) {
		x := gotorch.FromScalar(s.values[0])
		return triple{x, map[string]data.Pair{"p": {Input: x, Target: x}}, []gotorch.Tensor{x, x}}, nil
	})
	for batch, err := range data.NewLoader(set, data.LoaderOptions{BatchSize: 4}).All() {
		testhelp.Must(t, err)
		for _, got := range []gotorch.Tensor{batch.Anchor, batch.Rest["p"].Target, batch.List[1]} {
			if fmt.Sprint(got) != "tensor([0, 1, 2, 3])" {
				t.Errorf("got %v", got)
			}
		}
	}
}

// failing is a sample that cannot be joined.
type failing struct{}

func (failing) Collate([]failing) (failing, error) { return failing{}, errBroken }

func TestTheErrorOfAMethodComesOutAsItIs(t *testing.T) {
	type outer struct{ Inner failing }
	if _, err := data.DefaultCollate[outer, outer]([]outer{{}}); err != errBroken {
		t.Errorf("got %v", err)
	}
	type bad struct{ C chan int }
	if _, err := data.DefaultCollate[any, any]([]any{bad{}}); !errors.Is(err, gotorch.TypeError) {
		t.Errorf("got %v", err)
	}
}

func TestPadIsPadSequence(t *testing.T) {
	long, short := gotorch.FromSlice([]float32{1, 2, 3}), gotorch.FromSlice([]float32{4})
	got, err := data.Pad([]gotorch.Tensor{short, long}, data.PadOptions{PaddingValue: -1, PaddingSide: "left"})
	testhelp.Must(t, err)
	if fmt.Sprint(got.Values) != "tensor([[-1., -1.,  4.],\n        [ 1.,  2.,  3.]])" || fmt.Sprint(got.Lengths) != "tensor([1, 3])" || got.Len() != 2 {
		t.Errorf("got %v", got)
	}
}
