package tabular_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/csvdata"
	"gotorch.dev/gotorch/data/tabular"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

func TestColumnsAreOfNumbersByTheirNames(t *testing.T) {
	if got := tabular.Columns("b", "a"); !reflect.DeepEqual(got, []tabular.Column{{Name: "b"}, {Name: "a"}}) {
		t.Errorf("got %v", got)
	}
	if got := tabular.Columns(); got == nil || len(got) != 0 {
		t.Errorf("got %#v, which as Inputs would be all columns", got)
	}
}

// What the fields of a layout say they do, in the simplest of its readers.
func TestALayoutSaysWhatATensorHas(t *testing.T) {
	path := filestest.Write(t, "a.csv", []byte("a,b,c\n1,x,3\n,y,16777217\n"))
	y := tabular.Columns("c")
	for _, c := range []struct {
		layout        tabular.Layout
		input, target []float64 // of both rows
		shapes        string    // of a sample and of a batch
	}{
		{tabular.Layout{Inputs: []tabular.Column{{Name: "a", Missing: 0}}, Targets: y}, []float64{1, 0}, []float64{3, 1 << 24}, "[1] [] [2 1] [2]"},
		{tabular.Layout{Inputs: []tabular.Column{{Name: "a", Missing: math.Inf(1)}}, Targets: y, TargetDType: gotorch.Int64}, []float64{1, math.Inf(1)}, []float64{3, 1<<24 + 1}, "[1] [] [2 1] [2]"},
		{tabular.Layout{Inputs: []tabular.Column{{Name: "b", Classes: []string{"y", "x"}}}, Targets: y, TargetDType: gotorch.Float64}, []float64{1, 0}, []float64{3, 1<<24 + 1}, "[1] [] [2 1] [2]"},
		{tabular.Layout{Targets: []tabular.Column{{Name: "a", Missing: -1}, {Name: "b", Classes: []string{"x", "y"}}}, InputDType: gotorch.Int64}, []float64{3, 1<<24 + 1}, []float64{1, 0, -1, 1}, "[1] [2] [2 1] [2 2]"},
		{tabular.Layout{Inputs: tabular.Columns(), Targets: y}, nil, []float64{3, 1 << 24}, "[0] [] [2 0] [2]"},
	} {
		set, err := csvdata.Open(path, c.layout)
		testhelp.Must(t, err)
		defer set.Close()
		sample, err := set.At(0)
		testhelp.Must(t, err)
		batch, err := set.Batch([]int{0, 1}, nil)
		testhelp.Must(t, err)
		shapes := fmt.Sprint(sample.Input.Shape(), sample.Target.Shape(), batch.Input.Shape(), batch.Target.Shape())
		input, target := gotorch.ToSlice[float64](batch.Input.Flatten()), gotorch.ToSlice[float64](batch.Target.Flatten())
		if shapes != c.shapes || fmt.Sprint(input) != fmt.Sprint(c.input) || fmt.Sprint(target) != fmt.Sprint(c.target) {
			t.Errorf("%+v: got %v and %v of %s", c.layout, input, target, shapes)
		}
	}
	for _, layout := range []tabular.Layout{{}, {Targets: []tabular.Column{{Name: "b", Classes: []string{"x", "x"}}}}} {
		if err := gotorch.Try0(func() { _, _ = csvdata.Open(path, layout) }); !errors.Is(err, gotorch.ValueError) {
			t.Errorf("got %v", err)
		}
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "titanic.csv")
	if err := os.WriteFile(path, []byte("age,fare,sex,survived\n22,7.25,male,0\n38,,female,1\n"), 0o644); err != nil {
		panic(err)
	}
	set, err := csvdata.Open(path, tabular.Layout{
		Inputs: []tabular.Column{
			{Name: "age"},
			{Name: "fare", Missing: 0},
			{Name: "sex", Classes: []string{"female", "male"}},
		},
		Targets:     tabular.Columns("survived"),
		TargetDType: gotorch.Int64,
	})
	if err != nil {
		panic(err)
	}
	defer set.Close()
	batch, err := set.Batch([]int{0, 1}, nil)
	fmt.Println(batch.Input)
	fmt.Println(batch.Target, err)
	// Output:
	// tensor([[22.0000,  7.2500,  1.0000],
	//         [38.0000,  0.0000,  0.0000]])
	// tensor([0, 1]) <nil>
}
