package gotorch_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"gotorch.dev/gotorch"
)

// The instructions of pickles that the tests below are made of.

func pickledBytes(b string) string {
	return "B" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(b)))) + b
}

func pickledText(s string) string {
	return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(len(s)))) + s
}

func pickledInt(n int64) string {
	return "\x8a\x08" + string(binary.LittleEndian.AppendUint64(nil, uint64(n)))
}

// TestCostOfHostilePickles has values that are long and used many times in few bytes. Whatever comes of them, what is made
// meanwhile is in proportion to the file.
func TestCostOfHostilePickles(t *testing.T) {
	const long, times = 1 << 20, 2000
	text := strings.Repeat("a", long)
	dtype := func(code string) string {
		return "cnumpy\ndtype\n(" + pickledText(code) + "K\x00K\x01tR"
	}
	list := func(before, each string) string {
		return "\x80\x02" + before + "](" + strings.Repeat(each, times) + "e."
	}
	tensor := func(class string, bytes, size, stride int64) string {
		reference := strings.Replace(strings.Replace(storageRef, "FloatStorage", class, 1), "K\x02", pickledInt(bytes), 1)
		return rebuild + reference + "K\x00" + pickledInt(size) + "\x85" + pickledInt(stride) + "\x85\x89NtR"
	}
	channels := "\x80\x02ctorch._utils\n_rebuild_qtensor\n(" + strings.Replace(strings.Replace(storageRef, "FloatStorage", "QInt8Storage", 1), "K\x02", pickledInt(8), 1) +
		"K\x00" + pickledInt(1<<26) + "\x85K\x00\x85(ctorch\nper_channel_affine\n" + tensor("FloatStorage", 2, 1<<26, 0) + tensor("LongStorage", 1, 1<<26, 0) + "K\x00t\x89NtR."
	for name, pkl := range map[string]string{
		"a scalar of text":       list(dtype("U262144")+"q\x00"+pickledBytes(strings.Repeat("a\x00\x00\x00", long/4))+"q\x01cnumpy.core.multiarray\nscalar\nq\x020", "h\x02h\x00h\x01\x86R"),
		"a scalar of a str":      list(dtype("i8")+"q\x00"+pickledText(text)+"q\x01cnumpy.core.multiarray\nscalar\nq\x020", "h\x02h\x00h\x01\x86R"),
		"a dtype's code":         list(pickledBytes(text)+"q\x00cnumpy\ndtype\nq\x010", "h\x01h\x00\x85R"),
		"a dtype's order":        list(dtype("i8")+"q\x00(K\x03"+pickledBytes(text)+"NNNtq\x010", "h\x00h\x01b"),
		"elements of no dtype":   list("("+pickledText(text)+dtype("O8")+"K\x01\x85X\x01\x00\x00\x00Ctq\x00cnumpy.core.numeric\n_frombuffer\nq\x010", "h\x01h\x00R"),
		"elements in no order":   list("("+pickledBytes(text)+dtype("i8")+"K\x01\x85"+pickledBytes(text)+"tq\x00cnumpy.core.numeric\n_frombuffer\nq\x010", "h\x01h\x00R"),
		"the name of a class":    list("c__builtin__\ngetattr\nctorch\nx\n"+pickledText(text)+"\x86Rq\x000", "h\x00"),
		"a dtype in many places": list(dtype(text)+"q\x000", "h\x00"),
		"bytes of latin1":        list("c_codecs\nencode\nq\x00("+pickledText(text)+pickledText("latin1")+"tq\x010", "h\x00h\x01R"),
		"scales that are one":    channels,
	} {
		t.Run(name, func(t *testing.T) {
			data := repacked(t, map[string]string{"data.pkl": pkl, "data/0": "12345678"}, zip.Store)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			most := gotorch.MemoryStats().AllocatedBytes
			v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
			loaded(t, v, err)
			runtime.ReadMemStats(&after)
			if made := after.TotalAlloc - before.TotalAlloc; made > uint64(100*len(data)+64<<20) {
				t.Errorf("%d bytes are made of a file of %d: %v", made, len(data), err)
			}
			if peak := gotorch.MemoryStats().AllocatedBytes; peak > most+int64(100*len(data)+64<<20) {
				t.Errorf("tensors of %d bytes are made of a file of %d: %v", peak-most, len(data), err)
			}
		})
	}
}

// TestStackOfHostilePickles has calls that call each other: the stack of a goroutine ends the process when it is full.
func TestStackOfHostilePickles(t *testing.T) {
	const times = 4 << 20
	memo := "\x80\x02ccopy_reg\n__newobj__\nq\x00ctorch._tensor\n_rebuild_from_type_v2\nq\x01ctorch\nTensor\nq\x02000h\x00"
	for name, pkl := range map[string]string{
		"a list":      memo + "(" + strings.Repeat("h\x00", times) + "tR.",
		"each within": memo + strings.Repeat("(h\x01h\x00h\x02", times/4) + "K\x01\x85" + strings.Repeat("t", times/4) + "R.",
	} {
		t.Run(name, func(t *testing.T) {
			data := repacked(t, map[string]string{"data.pkl": pkl}, zip.Store)
			v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
			loaded(t, v, err)
			if err == nil {
				t.Error("it is read")
			}
		})
	}
}

// TestMissingMetaStorage reads a file of a big-endian machine whose storage is on the meta device, and so nowhere.
func TestMissingMetaStorage(t *testing.T) {
	reference := strings.NewReplacer("ctorch\nFloatStorage", "ctorch.storage\nUntypedStorage", "X\x03\x00\x00\x00cpu", "X\x04\x00\x00\x00meta", "K\x02", "K\x08").Replace(storageRef)
	pkl := "\x80\x02ctorch._utils\n_rebuild_tensor_v3\n(" + reference + "K\x00K\x02\x85K\x01\x85\x89Nctorch\nfloat32\ntR."
	for _, order := range []string{"little", "big"} {
		data := repacked(t, map[string]string{"data.pkl": pkl, "byteorder": order}, zip.Store)
		v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
		loaded(t, v, err)
		if x, ok := v.(gotorch.Tensor); !ok || x.Device() != gotorch.Meta || x.DType() != gotorch.Float32 || x.Numel() != 2 {
			t.Errorf("%s: %v, %v", order, v, err)
		}
	}
}

// TestTextOfManyDimensions prints tensors whose corners alone are more than memory holds.
func TestTextOfManyDimensions(t *testing.T) {
	for _, size := range []int64{2, 7} {
		for _, dims := range []int{21, 22, 40, 62} {
			shape := make([]int64, dims)
			for i := range shape {
				if shape[i] = size; size == 7 && i >= 22 {
					shape[i] = 1
				}
			}
			if text := gotorch.Zeros([]int64{1}).Expand(shape).String(); !strings.HasPrefix(text, "tensor(...") {
				t.Errorf("%d: %.50s", dims, text)
			}
		}
	}
}

// node is a type that a value which contains itself never ends in.
type node struct{ Next *node }

func TestValuesThatContainThemselves(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.pt")
	data := repacked(t, map[string]string{"data.pkl": "\x80\x02cm\nC\n)\x81q\x00}X\x04\x00\x00\x00Nexth\x00sb."}, zip.Store)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := gotorch.LoadAs[node](path); !errors.Is(err, gotorch.ValueError) || len(err.Error()) > 10000 {
		t.Errorf("a struct: %.200v", err)
	}
	type table map[string]table
	if _, err := gotorch.LoadAs[table](path); !errors.Is(err, gotorch.ValueError) || len(err.Error()) > 10000 {
		t.Errorf("a map: %.200v", err)
	}
	key := gotorch.Tuple{nil}
	key[0] = key
	if err := gotorch.Encode(&bytes.Buffer{}, "m", gotorch.Dict{{Key: key, Value: 1}}); !errors.Is(err, gotorch.ValueError) {
		t.Error(err)
	}
}

// TestOneStorageInManyPlaces: as in Python, it is one value.
func TestOneStorageInManyPlaces(t *testing.T) {
	data := repacked(t, map[string]string{"data.pkl": "\x80\x02](" + storageRef + "q\x00" + strings.Repeat("h\x00", 99) + "e.", "data/0": "12345678"}, zip.Store)
	v, err := gotorch.Decode(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	list := v.([]any)
	for _, x := range list {
		if x.(gotorch.Tensor).T != list[0].(gotorch.Tensor).T {
			t.Fatal("there are several tensors of one storage")
		}
	}
}
