package jpeg

import "golang.org/x/sys/cpu"

// vectors says whether the processor has AVX2. What it is used for has the results of the code in Go, which the tests hold
// it to.
var vectors = cpu.X86.HasAVX2

// transformAVX2 makes the samples of a block, as block.exact does for a block that is small, and clears it.
//
//go:noescape
func transformAVX2(words *[32]int64, to *byte, stride int)

// planesAVX2 makes n pixels as function pixel does; n is a multiple of 16, and not 0.
//
//go:noescape
func planesAVX2(red, green, blue, luma, cb, cr *byte, n int)

// smoothAVX2 makes what smoothXY does of n words, which have others before and behind; n is a multiple of 4, and not 0.
//
//go:noescape
func smoothAVX2(to *byte, near, far *uint64, n int)
