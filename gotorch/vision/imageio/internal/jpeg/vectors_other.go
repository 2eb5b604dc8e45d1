//go:build !amd64

package jpeg

var vectors = false // there are none

func transformAVX2(*[32]int64, *byte, int) { panic("no vectors") }

func planesAVX2(_, _, _, _, _, _ *byte, _ int) { panic("no vectors") }

func smoothAVX2(_ *byte, _, _ *uint64, _ int) { panic("no vectors") }
