// Command loadgo writes the Go program that Python's pytorch_bridge.load_go builds around a package:
// one shim per exported function, which reads its arguments, calls it and writes its results.
//
//	loadgo -list LIST -package PATH -o main.go
//
// LIST is what `go list -export -deps -json` says about the package. A description of the functions,
// and why others cannot be called, goes to the standard output as JSON; see describe.go.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/token"
	"os"
)

func main() {
	list := flag.String("list", "", "file with the output of go list -export -deps -json")
	path := flag.String("package", "", "import path of the package")
	out := flag.String("o", "", "file to write the program to")
	flag.Parse()
	if err := run(*list, *path, *out); err != nil {
		fmt.Fprintln(os.Stderr, "loadgo:", err)
		os.Exit(1)
	}
}

func run(list, path, out string) error {
	fset := token.NewFileSet()
	listed, err := readList(list)
	if err != nil {
		return err
	}
	pkg, err := importPackage(fset, listed, path)
	if err != nil {
		return err
	}
	docs, err := readDocs(listed[path])
	if err != nil {
		return err
	}
	described := describe(pkg, docs)
	program, err := writeProgram(pkg, described)
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, program, 0o644); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(described)
}
