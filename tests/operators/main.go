// Operators loads the library of tests/test_operators.py and prints what its operators return.
package main

import (
	"fmt"
	"os"
	"strings"

	"gotorch.dev/gotorch"
)

func main() {
	if _, err := gotorch.FindOperator("gotorchtest::scale", ""); err == nil {
		fmt.Println("the operator is there before its library is")
	}
	if err := gotorch.LoadLibrary(os.Args[1]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	found := 0
	for _, schema := range gotorch.Operators() {
		if strings.HasPrefix(schema, "gotorchtest::") {
			found++
		}
	}
	fmt.Println("operators:", found)

	x := gotorch.FromSlice([]float32{1, 2}).RequiresGrad_()
	op, err := gotorch.FindOperator("gotorchtest::scale", "")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(op.Schema())
	y := op.Call(x, 3, gotorch.Named("times", 2))[0].(gotorch.Tensor)
	y.Sum().Backward()
	fmt.Println(y.Detach(), x.Grad(), op.Call(gotorch.FromSlice([]int64{1}), 0.5)[0])

	t := gotorch.FromSlice([]int64{1})
	show("echo_lists", []gotorch.Tensor{t}, []gotorch.Tensor{{}, t}, []int{1, 2}, []float64{0.5}, []bool{true}, []string{"a", "é"})
	show("echo_lists", []gotorch.Tensor{}, nil, nil, nil, nil, nil)
	show("echo_lists", []gotorch.Tensor{}, []gotorch.Tensor{}, []int64{}, []float32{}, []bool{}, []string{})
	show("echo_values", 1+2i, "text", true, 3, gotorch.CPU, gotorch.BFloat16, nil)
	show("echo_values", true, "", false, 0.25, "cpu", nil, 7)
	show("echo_dict", map[string]gotorch.Tensor{"k": t})
	show("echo_dict", gotorch.Dict{{Key: 1, Value: t}})

	show("throw_int", x)
	show("throw_text", x)
	show("throw_index", x)
	_, err = gotorch.Try(func() bool {
		gotorch.Call("gotorchtest::rude", "", x)[0].(gotorch.Tensor).Sum().Backward()
		return true
	})
	fmt.Println(err)
}

func show(name string, args ...any) {
	results, err := gotorch.Try(func() []any { return gotorch.Call("gotorchtest::"+name, "", args...) })
	if err != nil {
		fmt.Println(err)
		return
	}
	var text []string
	for _, r := range results {
		text = append(text, fmt.Sprintf("%T=%v", r, r))
	}
	fmt.Println(strings.Join(text, " "))
}
