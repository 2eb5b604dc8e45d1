// Probe is bundled by tests/test_bundle.py. It calls what libtorch does with the help of other libraries, and what
// it loads only when it is asked for.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"gotorch.dev/gotorch"
)

func main() {
	fmt.Println("torch", gotorch.TorchVersion())
	gotorch.ManualSeed(0)
	a := gotorch.FromSlice([]float32{2, 0, 0, 3}, 2, 2)
	fmt.Println("mm", gotorch.Data[float32](a.MM(a)))
	fmt.Println("inverse", gotorch.Data[float32](gotorch.LinalgInv(a).Contiguous()))
	fmt.Println("fft", gotorch.FFTFFT(gotorch.Ones([]int64{4})).DType())
	x, w := gotorch.Ones([]int64{1, 1, 8, 8}), gotorch.Ones([]int64{1, 1, 3, 3})
	fmt.Println("conv", gotorch.Conv2d(x, w).Max().Item())
	big := gotorch.Ones([]int64{300, 300}).RequiresGrad_(true)
	big.MM(big).Sum().Backward()
	fmt.Println("backward", big.Grad().Max().Item())
	if _, err := gotorch.Try(func() gotorch.Tensor { return a.To(gotorch.CUDA(0)) }); err != nil {
		fmt.Println("cuda", strings.SplitN(err.Error(), "\n", 2)[0])
	} else {
		fmt.Println("cuda works")
	}
	program, err := os.Executable()
	ops := filepath.Join(filepath.Dir(program), "data", "libops.so")
	if _, err := os.Stat(ops); err == nil {
		fmt.Println("ops", gotorch.LoadLibrary(ops))
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if text, err := os.ReadFile(filepath.Join(filepath.Dir(program), "data", "hello.txt")); err == nil {
		fmt.Println("data", string(text))
	}
	// What is mapped: the libraries that the program runs with.
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		if at := strings.IndexByte(line, '/'); at >= 0 && strings.Contains(line, ".so") && !seen[line[at:]] {
			seen[line[at:]] = true
			fmt.Print("mapped ", line[at:])
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		fmt.Println("package", info.Path)
	}
}
