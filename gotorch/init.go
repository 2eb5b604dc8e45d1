package gotorch

/*
#include <cgotorch.h>
#include <allocator.h>
#include <objects.h>
*/
import "C"

import (
	"fmt"
	"os"
	"unsafe"
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
	} else {
		C.cgotorch_install_allocator()
		C.cgotorch_install_objects()
		printWarnings()
		limitThreads()
	}
}

func libraryProblem() string {
	if err := C.cgotorch_check(); err != nil {
		return takeError("", unsafe.Pointer(err)).Msg
	}
	if built := C.GoString(C.cgotorch_api_hash()); built != apiHash {
		return "libcgotorch.so was built from another version of gotorch (" + built + ", this is " + apiHash +
			"); in a checkout type: make build, elsewhere: gotorch doctor"
	}
	return ""
}

// TorchVersion returns the version of the PyTorch that is loaded, "2.15.0+cu132".
func TorchVersion() string {
	if v := C.GoString(C.cgotorch_torch_loaded()); v != "" {
		return v
	}
	return C.GoString(C.cgotorch_torch_built())
}

// TorchLib returns the folder of the PyTorch library that is loaded.
func TorchLib() string { return C.GoString(C.cgotorch_torch_lib()) }
