package idx_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data/idx"
	"gotorch.dev/gotorch/internal/filestest"
)

// file makes an IDX file.
func file(kind idx.Type, shape []uint32, elements any) []byte {
	b := []byte{0, 0, byte(kind), byte(len(shape))}
	for _, n := range shape {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b, err := binary.Append(b, binary.BigEndian, elements)
	if err != nil {
		panic(err)
	}
	return b
}

func pack(b []byte) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, _ = w.Write(b)
	_ = w.Close()
	return packed.Bytes()
}

func TestEveryTypeIsRead(t *testing.T) {
	for _, c := range []struct {
		kind     idx.Type
		elements any
		want     gotorch.Tensor
	}{
		{idx.Uint8, []uint8{1, 255}, gotorch.FromSlice([]uint8{1, 255})},
		{idx.Int8, []int8{1, -1}, gotorch.FromSlice([]int8{1, -1})},
		{idx.Int16, []int16{1, -258}, gotorch.FromSlice([]int16{1, -258})},
		{idx.Int32, []int32{1, -66051}, gotorch.FromSlice([]int32{1, -66051})},
		{idx.Float32, []float32{1.5, -2}, gotorch.FromSlice([]float32{1.5, -2})},
		{idx.Float64, []float64{1.5, -2}, gotorch.FromSlice([]float64{1.5, -2})},
	} {
		for _, packed := range []bool{false, true} {
			b := file(c.kind, []uint32{2}, c.elements)
			if packed {
				b = pack(b)
			}
			a, err := idx.Read(bytes.NewReader(b))
			if err != nil {
				t.Fatalf("%v: %v", c.kind, err)
			}
			if got := a.Tensor(); got.DType() != c.want.DType() || !got.Equal(c.want) {
				t.Errorf("%v: got %v, want %v", c.kind, got, c.want)
			}
		}
	}
}

func TestShapesMayBeEmpty(t *testing.T) {
	for _, shape := range [][]uint32{{}, {0}, {3, 0, 1 << 31}} {
		n := 1
		for _, size := range shape {
			n *= int(size)
		}
		a, err := idx.Read(bytes.NewReader(file(idx.Uint8, shape, make([]byte, n))))
		if err != nil || len(a.Data) != n || len(a.Shape) != len(shape) {
			t.Errorf("%v: got %v, %v", shape, a, err)
		}
	}
}

func TestBrokenFilesAreFormatErrors(t *testing.T) {
	good := file(idx.Uint8, []uint32{2, 3}, make([]byte, 6))
	packed := pack(good)
	noise := make([]byte, 256)
	for i := range noise {
		noise[i] = byte(i * i * 31)
	}
	long := pack(file(idx.Uint8, []uint32{256}, noise))
	flipped := slices.Clone(packed)
	flipped[len(flipped)-6] ^= 1 // in the checksum
	for reason, b := range map[string][]byte{
		"ends within the first 4":              {},
		"ends within the first 4 ":             {0, 0, 8},
		"begins with 01 00 08 01":              {1, 0, 8, 1, 0, 0, 0, 0},
		"begins with 00 00 0a 01":              {0, 0, 0x0a, 1, 0, 0, 0, 0},
		"ends within its header":               good[:9],
		"promises 6 bytes of data, and 5 came": good[:len(good)-1],
		"data follows after the 6 bytes":       append(slices.Clone(good), 0),
		"promises more than 1073741824 bytes":  {0, 0, 0x0e, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
		"gzip header is damaged":               packed[:5],
		"promises 256 bytes of data":           long[:len(long)/2],
		"its end is damaged":                   flipped,
	} {
		_, err := idx.Read(bytes.NewReader(b))
		var broken *idx.FormatError
		if !errors.As(err, &broken) || !strings.Contains(broken.Reason, strings.TrimSpace(reason)) {
			t.Errorf("got %v, want a FormatError with %q", err, reason)
		}
	}
	if _, err := idx.Read(bytes.NewReader(good[:9])); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestAHeaderAloneCostsNoMemory(t *testing.T) {
	promise := []byte{0, 0, 8, 1, 0x3f, 255, 255, 255} // a gigabyte
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := idx.Read(bytes.NewReader(promise)); err == nil {
		t.Error("a file without data was read")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated", n)
	}
}

func TestAShapeThatNoTensorHas(t *testing.T) {
	for _, shape := range [][]uint32{{0, 1<<32 - 1, 1<<32 - 1}, {1<<32 - 1, 0, 1<<32 - 1}} {
		_, err := idx.Read(bytes.NewReader(file(idx.Uint8, shape, []byte{})))
		var broken *idx.FormatError
		if !errors.As(err, &broken) {
			t.Errorf("%v: got %v", shape, err)
		}
	}
}

func TestASmallPackedFileDoesNotUnpackToAGigabyte(t *testing.T) {
	if testing.Short() {
		t.Skip("measures memory, and packs 100 MB")
	}
	const n = 100 << 20
	b := pack(file(idx.Uint8, []uint32{n}, make([]byte, n)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := idx.Read(bytes.NewReader(b))
	runtime.ReadMemStats(&after)
	if err == nil || !strings.Contains(err.Error(), "unpacks to more than 256 times its size") {
		t.Errorf("got %v", err)
	}
	// The buffer doubles as it grows.
	if took := after.TotalAlloc - before.TotalAlloc; took > 4*(16<<20+256*uint64(len(b))) {
		t.Errorf("%d bytes were allocated for a file of %d", took, len(b))
	}
	// Less is unpacked in any case.
	if a, err := idx.Read(bytes.NewReader(pack(file(idx.Uint8, []uint32{1 << 20}, make([]byte, 1<<20))))); err != nil || len(a.Data) != 1<<20 {
		t.Error(err)
	}
}

func TestReadFileNamesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(path, []byte("<html>"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := idx.ReadFile(path); err == nil || !strings.HasPrefix(err.Error(), path+" is not a valid IDX file") {
		t.Errorf("got %v", err)
	}
	var unread *fs.PathError
	if _, err := idx.ReadFile(filepath.Dir(path)); !errors.As(err, &unread) {
		t.Error(err)
	}
	filestest.NoFiles(t, func(path string) error { _, err := idx.ReadFile(path); return err })
}

// FuzzRead looks for input that is neither read right nor a FormatError.
func FuzzRead(f *testing.F) {
	f.Add(file(idx.Uint8, []uint32{2, 3}, make([]byte, 6)))
	f.Add(file(idx.Int16, []uint32{2}, []int16{1, 2}))
	f.Add(pack(file(idx.Float64, []uint32{1}, []float64{1})))
	f.Add([]byte{0, 0, 0x0e, 255})
	f.Add(file(idx.Uint8, []uint32{0, 1<<32 - 1, 1<<32 - 1}, []byte{}))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := idx.Read(bytes.NewReader(b))
		if err != nil {
			if broken := new(*idx.FormatError); !errors.As(err, broken) {
				t.Fatalf("got %T: %v", err, err)
			}
			return
		}
		n := 1
		for _, size := range a.Shape {
			n *= size
		}
		if got := a.Tensor().Numel(); n > 0 && int(got) != n {
			t.Fatalf("shape %v has %d elements", a.Shape, got)
		}
	})
}

func ExampleRead() {
	b := []byte{0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6}
	a, err := idx.Read(bytes.NewReader(b))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.Type, a.Shape)
	fmt.Println(a.Tensor())
	// Output:
	// uint8 [2 3]
	// tensor([[1, 2, 3],
	//         [4, 5, 6]], dtype=torch.uint8)
}
