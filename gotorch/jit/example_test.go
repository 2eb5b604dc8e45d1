package jit_test

import (
	"fmt"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/jit"
)

func Example() {
	m, err := jit.Load("testdata/net.pt")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	m.Eval()

	x := gotorch.Ones([]int64{2, 3})
	fmt.Println(m.Forward(x).Shape())
	for _, method := range m.Methods()[:1] {
		fmt.Println(method.Name, method.Args, method.Returns)
	}
	out := m.Call("classify", x, gotorch.Named("words", true)).(gotorch.Tuple)
	fmt.Println(len(out[0].([]string)), m.Attr("words"))
	// Output:
	// [2 2]
	// classify [{x Tensor false <nil>} {words bool true false}] Tuple[List[str], Tensor]
	// 2 [cat dog]
}

func ExampleCallAs() {
	m, err := jit.Load("testdata/net.pt")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer m.Close()
	counter := jit.CallAs[*jit.Object](m, "count", m.Attr("counter"))
	fmt.Println(jit.CallAs[int](counter, "up"), jit.CallAs[int](m, "counted"))

	_, err = gotorch.Try(func() any {
		return m.Call("output", gotorch.Tuple{gotorch.Ones(nil), 1}, jit.Enum{Name: "RED"})
	})
	fmt.Println(err)
	// Output:
	// 7 7
	// output: ValueError: red is no color for this
}
