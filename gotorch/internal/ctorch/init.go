package ctorch

import (
	"fmt"
	"os"
)

// Before anything else: does the library fit this package and the torch that is installed? With
// another one, calls would not fail but crash.
func init() {
	if problem := libraryProblem(); problem != "" {
		fmt.Fprintln(os.Stderr, "gotorch: "+problem)
		os.Exit(1)
	}
	// Python has tensors and warnings of its own, and may be replacing the allocator itself.
	if inPython {
		startInPython()
		return
	}
	InstallAllocator()
	InstallObjects()
	if m := PrintWarnings(); m != nil {
		_, text := TakeMessage(m)
		fmt.Fprintln(os.Stderr, "gotorch: "+text)
		os.Exit(1)
	}
	limitThreads()
}

func libraryProblem() string {
	if m := Check(); m != nil {
		_, text := TakeMessage(m)
		return text
	}
	if built := GoString(ApiHash()); built != apiHash {
		return "libcgotorch.so was built from another version of gotorch (" + built + ", this is " + apiHash +
			"); in a checkout type: make build, elsewhere: gotorch doctor"
	}
	return ""
}
