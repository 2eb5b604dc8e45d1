// Files reads a file of tensors and writes what it holds to another, for tests/test_files.py:
//
//	files HOW SOURCE TARGET
package main

import (
	"fmt"
	"os"

	"gotorch.dev/gotorch"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(how, source, target string) error {
	var opt gotorch.LoadOptions
	switch how {
	case "map", "safetensors-map":
		opt.Map = true
	case "unchecked":
		opt.IgnoreChecksums = true
	}
	switch how {
	case "value", "map", "unchecked":
		v, err := gotorch.Load(source, opt)
		if err != nil {
			return err
		}
		return gotorch.Save(target, v)
	case "tensors":
		tensors, err := gotorch.LoadTensors(source)
		if err != nil {
			return err
		}
		return gotorch.SaveTensors(target, tensors)
	default:
		tensors, metadata, err := gotorch.LoadSafetensors(source, opt)
		if err != nil {
			return err
		}
		return gotorch.SaveSafetensors(target, tensors, metadata)
	}
}
