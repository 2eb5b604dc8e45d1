package jpeg

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

func needsVectors(t *testing.T) {
	t.Helper()
	if !vectors {
		t.Skip("this processor has no vectors that are used")
	}
}

// set puts a coefficient into a block as the decoder does: the halves of a word lend each other.
func (b *block) set(natural int, v int64) {
	b.words[natural/2] += v << (32 * (natural & 1))
}

func TestVectorsTransformAsLibjpegDoes(t *testing.T) {
	needsVectors(t)
	rng := rand.New(rand.NewPCG(1, 1))
	values := []func() int64{
		func() int64 { return rng.Int64N(2*largest+1) - largest },
		func() int64 { return []int64{-largest, largest}[rng.IntN(2)] }, // overflows between the passes
		func() int64 { return rng.Int64N(401) - 200 },
		func() int64 { return rng.Int64N(3) - 1 },
	}
	tries := 100_000
	if testing.Short() {
		tries = 5_000
	}
	for i := range tries {
		var b block
		value := values[i%len(values)]
		count := 1 + rng.IntN(64)
		for k := range count {
			natural := int(zigzag[k])
			if i%3 == 0 {
				natural = rng.IntN(64)
			}
			if b.words[natural/2] == 0 {
				b.set(natural, value())
			}
		}
		const stride = 11
		want, got := bytes.Repeat([]byte{7}, 7*stride+9), bytes.Repeat([]byte{7}, 7*stride+9)
		b.exact(want, stride)
		words := b.words
		transformAVX2(&b.words, &got[0], stride)
		if !bytes.Equal(got, want) {
			t.Fatalf("words %v: samples\n%v, not\n%v", words, got, want)
		}
		if b.words != [32]int64{} {
			t.Fatal("the block is not clear")
		}
	}
}

// Each colour that 8 bits make, but for luma, of which some are enough: a colour is luma and what chroma adds, cut off.
func TestVectorsMakeTheColoursOfPixel(t *testing.T) {
	needsVectors(t)
	lumas := []byte{0, 1, 2, 15, 63, 64, 100, 127, 128, 129, 191, 192, 240, 253, 254, 255}
	n := len(lumas)
	var r, g, b [17]byte
	cbs, crs := make([]byte, n), make([]byte, n)
	for cb := range 256 {
		for cr := range 256 {
			for i := range n {
				cbs[i], crs[i] = byte(cb), byte(cr)
			}
			planesAVX2(&r[0], &g[0], &b[0], &lumas[0], &cbs[0], &crs[0], n)
			for i, y := range lumas {
				if red, green, blue := pixel(y, byte(cb), byte(cr)); r[i] != red || g[i] != green || b[i] != blue {
					t.Fatalf("luma %d, cb %d, cr %d: (%d, %d, %d), not (%d, %d, %d)", y, cb, cr, r[i], g[i], b[i], red, green, blue)
				}
			}
		}
	}
	if r[16]|g[16]|b[16] != 0 {
		t.Error("more was written than there are pixels")
	}
}

func TestRowsOfEachLengthAreTheSameWithVectors(t *testing.T) {
	needsVectors(t)
	rng := rand.New(rand.NewPCG(2, 2))
	drawn := func(n int) []byte {
		row := make([]byte, n)
		for i := range row {
			row[i] = byte(rng.IntN(256))
		}
		return row
	}
	both := func(row func() []byte) (with, without []byte) {
		with = row()
		defer switched(t, false)()
		return with, row()
	}
	for n := 1; n <= 150; n++ {
		luma, cb, cr := drawn(n), drawn(n), drawn(n)
		with, without := both(func() []byte {
			to := bytes.Repeat([]byte{9}, 3*n+3) // a byte between planes that belongs to none
			planes(to[:n], to[n+1:2*n+1], to[2*n+2:3*n+2], luma, cb, cr)
			return to
		})
		if !bytes.Equal(with, without) {
			t.Fatalf("%d pixels differ", n)
		}
	}
	for blocks := 1; blocks <= 24; blocks++ {
		near, far := make([]uint64, 2*blocks+1), make([]uint64, 2*blocks+1)
		spread(near, drawn(8*blocks))
		spread(far, drawn(8*blocks))
		for _, room := range []int{16 * blocks, 16*blocks - 1, 16*blocks - 9, 16 * blocks / 2} {
			with, without := both(func() []byte {
				to := bytes.Repeat([]byte{9}, 16*blocks+1)
				smoothXY(to[:max(0, room):max(0, room)], near, far)
				return to
			})
			if !bytes.Equal(with, without) {
				t.Fatalf("%d samples in %d bytes differ", 8*blocks, room)
			}
		}
	}
}
