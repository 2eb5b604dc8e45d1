// Export_model opens the folders that it is given, and holds each to what PyTorch has computed: golden.safetensors
// beside it, which tests/test_export_model.py writes.
package main

import (
	"flag"
	"fmt"
	"os"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/gotorchtest"
	"gotorch.dev/gotorch/graph"
)

var (
	bits   = flag.Bool("bits", false, "every bit must be the same")
	mapped = flag.Bool("map", false, "map the weights")
)

func main() {
	flag.Parse()
	failed := 0
	for _, dir := range flag.Args() {
		if err := check(dir); err != nil {
			fmt.Printf("%s: %v\n", dir, err)
			failed++
		}
	}
	fmt.Printf("%d of %d folders differ\n", failed, flag.NArg())
	if failed > 0 {
		os.Exit(1)
	}
}

func check(dir string) error {
	golden, err := gotorch.LoadTensors(dir + ".golden")
	if err != nil {
		return err
	}
	m, err := graph.Open(dir, graph.OpenOptions{Map: *mapped})
	if err != nil {
		return err
	}
	defer m.Close()
	tolerance := gotorchtest.Options{RTol: 2e-5, ATol: 2e-5, EqualNaN: true}
	if *bits {
		tolerance.RTol, tolerance.ATol = 0, 0
	}
	ran := 0
	for k := 0; ; k++ {
		var in []gotorch.Tensor
		for i := range m.Inputs() {
			x, ok := golden[fmt.Sprintf("%d.in.%d", k, i)]
			if !ok {
				if ran == 0 && k == 0 {
					return fmt.Errorf("there is nothing to compare with")
				}
				return nil
			}
			in = append(in, x)
		}
		if len(in) == 0 && k > 0 {
			return nil
		}
		out, err := gotorch.Try(func() []gotorch.Tensor { return m.Call(in...) })
		if _, fails := golden[fmt.Sprintf("%d.fails", k)]; fails != (err != nil) {
			return fmt.Errorf("run %d: PyTorch fails: %v; Go: %v", k, fails, err)
		}
		for i, got := range out {
			want := golden[fmt.Sprintf("%d.out.%d", k, i)]
			if diff := gotorchtest.Diff(got, want, tolerance); diff != "" {
				return fmt.Errorf("run %d, output %d: %s", k, i, diff)
			}
		}
		ran++
	}
}
