// Numbers converts its arguments to all types that gotorch.Item knows, and prints what becomes of each:
// what libtorch/numbers.cc does with libtorch's conversion.
//
//	numbers i:300 u:18446744073709551615 f:0x1p-1074 c:1,2 b:1
package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"gotorch.dev/gotorch"
)

func main() {
	for _, arg := range os.Args[1:] {
		t := parse(arg)
		show[bool](arg, "bool", t)
		show[uint8](arg, "uint8", t)
		show[int8](arg, "int8", t)
		show[int16](arg, "int16", t)
		show[int32](arg, "int32", t)
		show[int64](arg, "int64", t)
		show[uint16](arg, "uint16", t)
		show[uint32](arg, "uint32", t)
		show[uint64](arg, "uint64", t)
		show[float32](arg, "float32", t)
		show[float64](arg, "float64", t)
		show[complex64](arg, "complex64", t)
		show[complex128](arg, "complex128", t)
	}
}

func parse(arg string) gotorch.Tensor {
	kind, text, _ := strings.Cut(arg, ":")
	switch kind {
	case "b":
		return gotorch.FromScalar(text == "1")
	case "i":
		return gotorch.FromScalar(must(strconv.ParseInt(text, 10, 64)))
	case "u":
		return gotorch.FromScalar(must(strconv.ParseUint(text, 10, 64)))
	case "f":
		return gotorch.FromScalar(must(strconv.ParseFloat(text, 64)))
	}
	re, im, _ := strings.Cut(text, ",")
	return gotorch.FromScalar(complex(must(strconv.ParseFloat(re, 64)), must(strconv.ParseFloat(im, 64))))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// show prints what Item makes of a tensor, and checks that ToSlice agrees.
func show[T gotorch.Element](arg, name string, t gotorch.Tensor) {
	v, err := gotorch.Try(func() T { return gotorch.Item[T](t) })
	list, listErr := gotorch.Try(func() []T { return gotorch.ToSlice[T](t) })
	if (err == nil) != (listErr == nil) || err == nil && bits(list[0]) != bits(v) {
		fmt.Println(arg, name, "Item and ToSlice differ:", v, err, list, listErr)
	}
	if err != nil {
		fmt.Println(arg, name, "overflow")
	} else {
		fmt.Println(arg, name, bits(v))
	}
}

func bits(v any) string {
	switch v := v.(type) {
	case bool:
		return map[bool]string{false: "0", true: "1"}[v]
	case float32:
		return bits(float64(v))
	case complex64:
		return bits(complex128(v))
	case float64:
		if math.IsNaN(v) {
			return "nan"
		}
		return fmt.Sprintf("%016x", math.Float64bits(v))
	case complex128:
		return bits(real(v)) + "," + bits(imag(v))
	}
	return fmt.Sprint(v)
}
