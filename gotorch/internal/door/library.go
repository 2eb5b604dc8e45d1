package door

import "unsafe"

// Library is a shared library that was loaded while the program runs.
type Library interface {
	// Symbol returns the address of a symbol, and 0 where there is none.
	Symbol(name string) uintptr
	// Text returns the text that a symbol is the beginning of, of at most so many bytes; "" where there is none.
	Text(name string, most int) string
	// Close unloads it. Nobody may be in it, or call it any more.
	Close() error
}

// OpenLibrary loads the shared library that code is. CallBlock calls a function of one on a block.
var (
	OpenLibrary func(code []byte) (Library, error)
	CallBlock   func(function uintptr, block unsafe.Pointer)
)

// OwnThreads sets how many threads an op may use that the calling goroutine runs, which is locked to its OS thread,
// until restore is called, whatever is set for all threads meanwhile.
var OwnThreads func(n int) (restore func())

// CPUQuota returns how many CPUs the control groups of the process allow, MemoryLimit how many bytes; 0: there is no limit.
// root is "", or the folder that a test has made a /proc and a /sys in. WhyThreads says where the number of threads per op
// comes from that holds when the program starts.
var (
	CPUQuota    func(root string) float64
	MemoryLimit func(root string) int64
	WhyThreads  func() string
)
