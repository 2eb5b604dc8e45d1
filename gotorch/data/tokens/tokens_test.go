package tokens_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/data"
	"gotorch.dev/gotorch/data/tokens"
	"gotorch.dev/gotorch/internal/filestest"
	"gotorch.dev/gotorch/internal/testhelp"
)

// file writes numbers as a file of tokens.
func file[T any](tb testing.TB, numbers ...T) string {
	tb.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, numbers)
	testhelp.Must(tb, err)
	return filestest.Write(tb, "tokens.bin", b)
}

func TestTargetsAreOneTokenOn(t *testing.T) {
	set, err := tokens.Open(file[uint16](t, 0, 1, 2, 3, 4, 5, 6, 65535), 3)
	testhelp.Must(t, err)
	defer set.Close()
	if set.Len() != 2 || set.Tokens() != 8 {
		t.Errorf("got %d windows of %d tokens", set.Len(), set.Tokens())
	}
	batch, err := set.Batch([]int{1, 0}, nil)
	testhelp.Must(t, err)
	if want := gotorch.NewTensor([][]int64{{3, 4, 5}, {0, 1, 2}}); !batch.Input.Equal(want) {
		t.Errorf("got %v", batch.Input)
	}
	if want := gotorch.NewTensor([][]int64{{4, 5, 6}, {1, 2, 3}}); !batch.Target.Equal(want) {
		t.Errorf("got %v", batch.Target)
	}
	one, err := set.At(1)
	testhelp.Must(t, err)
	if !one.Input.Equal(gotorch.FromSlice([]int64{3, 4, 5})) {
		t.Errorf("got %v", one.Input)
	}
	for _, i := range []int{-1, 2} {
		if _, err := set.At(i); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
		if _, err := set.Batch([]int{i}, nil); !errors.Is(err, gotorch.IndexError) {
			t.Error(err)
		}
	}
}

func TestEveryDTypeIsRead(t *testing.T) {
	for dtype, path := range map[gotorch.DType]string{
		gotorch.Uint8: file[uint8](t, 1, 255, 3, 4), gotorch.Uint16: file[uint16](t, 1, 255, 3, 4), gotorch.Uint32: file[uint32](t, 1, 255, 3, 4),
		gotorch.Int32: file[int32](t, 1, 255, 3, 4), gotorch.Int64: file[int64](t, 1, 255, 3, 4),
	} {
		set, err := tokens.Open(path, 3, tokens.Options{DType: dtype})
		testhelp.Must(t, err)
		pair, err := set.At(0)
		testhelp.Must(t, err)
		if got := gotorch.ToSlice[int](pair.Target); !slices.Equal(got, []int{255, 3, 4}) {
			t.Errorf("%v: got %v", dtype, got)
		}
		all, err := set.Tensor()
		testhelp.Must(t, err)
		testhelp.Must(t, set.Close())
		if got := gotorch.ToSlice[int](all.To(gotorch.Int64)); all.DType() != dtype || !slices.Equal(got, []int{1, 255, 3, 4}) {
			t.Errorf("%v: got %v of %v", dtype, got, all.DType())
		}
	}
}

func TestAHeaderIsPassedBy(t *testing.T) {
	set, err := tokens.Open(file[uint16](t, 9, 9, 1, 2, 3), 2, tokens.Options{Header: 4})
	testhelp.Must(t, err)
	defer set.Close()
	all, err := set.Tensor()
	testhelp.Must(t, err)
	if got := gotorch.ToSlice[int](all.To(gotorch.Int64)); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("got %v", got)
	}
	path := file[uint8](t, 9, 1, 0, 2, 0, 3, 0)
	odd, err := tokens.Open(path, 2, tokens.Options{Header: 1})
	testhelp.Must(t, err)
	defer odd.Close()
	pair, err := odd.At(0)
	testhelp.Must(t, err)
	if got := gotorch.ToSlice[int](pair.Input); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("got %v", got)
	}
	_, err = odd.Tensor()
	filestest.WantBroken(t, err, path, "no whole number")
}

func TestWritingToTheTensorDoesNotChangeTheFile(t *testing.T) {
	path := file[uint16](t, 1, 2, 3)
	set, err := tokens.Open(path, 2)
	testhelp.Must(t, err)
	defer set.Close()
	all, err := set.Tensor()
	testhelp.Must(t, err)
	all.Zero_()
	if b, _ := os.ReadFile(path); b[0] != 1 {
		t.Error("the file has changed")
	}
}

func TestStrideSaysHowFarWindowsAreApart(t *testing.T) {
	path := file[uint16](t, 0, 1, 2, 3, 4, 5)
	for stride, want := range map[int]int{1: 3, 2: 2, 3: 1, 100: 1} {
		set, err := tokens.Open(path, 3, tokens.Options{Stride: stride})
		testhelp.Must(t, err)
		if set.Len() != want {
			t.Errorf("stride %d: got %d windows, want %d", stride, set.Len(), want)
		}
		last, err := set.At(want - 1)
		testhelp.Must(t, err)
		if got := gotorch.ToSlice[int](last.Input)[0]; got != (want-1)*stride {
			t.Errorf("stride %d: the last begins with %d", stride, got)
		}
		set.Close()
	}
}

func TestRandomWindowsDependOnTheSeedAndNotOnTheWorkers(t *testing.T) {
	numbers := make([]uint16, 1000)
	for i := range numbers {
		numbers[i] = uint16(i)
	}
	set, err := tokens.Open(file(t, numbers...), 4)
	testhelp.Must(t, err)
	defer set.Close()
	var runs [][]int
	for _, workers := range []int{0, 3} {
		var starts []int
		for batch, err := range data.NewLoader(set.Random(300), data.LoaderOptions{BatchSize: 7, Seed: 1, Workers: workers}).All() {
			testhelp.Must(t, err)
			if !batch.Input.AddScalar(1).Equal(batch.Target) {
				t.Fatal("the targets are not one on")
			}
			starts = append(starts, gotorch.ToSlice[int](batch.Input.Select(1, 0))...)
		}
		runs = append(runs, starts)
	}
	if !slices.Equal(runs[0], runs[1]) || len(runs[0]) != 300 {
		t.Errorf("got %v and %v", runs[0], runs[1])
	}
	slices.Sort(runs[0])
	if distinct := len(slices.Compact(runs[0])); distinct < 200 {
		t.Errorf("only %d beginnings differ", distinct)
	}
	// The first and the last window are among them, and none beyond.
	short, err := tokens.Open(file[uint16](t, 0, 1, 2, 3), 2)
	testhelp.Must(t, err)
	defer short.Close()
	seen := map[int]bool{}
	for i := range 100 {
		pair, err := short.Random(100).At(i)
		testhelp.Must(t, err)
		seen[gotorch.ToSlice[int](pair.Input)[0]] = true
	}
	if len(seen) != 2 || !seen[0] || !seen[1] {
		t.Errorf("got %v", seen)
	}
	if _, err := short.Random(3).At(3); !errors.Is(err, gotorch.IndexError) {
		t.Error(err)
	}
}

func TestFilesThatAreNoTokensAreRefused(t *testing.T) {
	path := filestest.Write(t, "a", []byte{1, 2, 3, 4, 5})
	for text, opt := range map[string]tokens.Options{
		"no whole number of uint16 tokens": {}, "its header should have 6": {Header: 6}, "2 tokens are no window of 2": {Header: 1},
	} {
		_, err := tokens.Open(path, 2, opt)
		filestest.WantBroken(t, err, path, text)
	}
	path = file[int32](t, 1, -2, 3)
	set, err := tokens.Open(path, 2, tokens.Options{DType: gotorch.Int32})
	testhelp.Must(t, err)
	defer set.Close()
	_, err = set.At(0)
	filestest.WantBroken(t, err, path, "token 1: ValueError: -2 is no token")
	path = file[uint16](t, 1, 2, 50257)
	small, err := tokens.Open(path, 2, tokens.Options{Vocabulary: 50257})
	testhelp.Must(t, err)
	defer small.Close()
	_, err = small.At(0)
	filestest.WantBroken(t, err, path, "50257 is no token of a vocabulary of 50257")
	filestest.NoFiles(t, func(path string) error { _, err := tokens.Open(path, 1); return err })
	for _, opt := range []tokens.Options{{Stride: 0}, {Header: -1}, {Vocabulary: -1}} {
		filestest.WantKind(t, gotorch.ValueError, func() { _, _ = tokens.Open(path, 2, opt) })
	}
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = tokens.Open(path, 0) })
	filestest.WantKind(t, gotorch.ValueError, func() { _, _ = tokens.Open(path, 1<<30+1) })
	_, err = tokens.Open(path, 1<<30)
	filestest.WantBroken(t, err, path, "tokens are no window of 1073741824")
	filestest.WantKind(t, gotorch.TypeError, func() { _, _ = tokens.Open(path, 2, tokens.Options{DType: gotorch.Float32}) })
	filestest.WantKind(t, gotorch.ValueError, func() { small.Random(-1) })
}

func TestAFileThatIsCutWhileItIsMappedIsAnError(t *testing.T) {
	path := file(t, make([]uint16, 10000)...)
	set, err := tokens.Open(path, 100)
	testhelp.Must(t, err)
	defer set.Close()
	testhelp.Must(t, os.Truncate(path, 4096))
	_, err = set.At(50)
	filestest.WantBroken(t, err, path, "token 5000: ValueError: the file cannot be read there")
	if _, err := set.At(0); err != nil {
		t.Error(err)
	}
}

func TestNothingStaysMapped(t *testing.T) {
	path := file(t, make([]uint16, 100)...)
	mapped := func() (n int) {
		gotorch.MemoryStats() // frees what was closed
		b, err := os.ReadFile("/proc/self/maps")
		testhelp.Must(t, err)
		for line := range slices.Values(splitLines(b)) {
			if len(line) > len(path) && line[len(line)-len(path):] == path {
				n++
			}
		}
		return n
	}
	filestest.NothingStays(t, func() {
		set, err := tokens.Open(path, 10)
		testhelp.Must(t, err)
		if mapped() == 0 {
			t.Error("the file is not mapped")
		}
		all, err := set.Tensor()
		testhelp.Must(t, err)
		testhelp.Must(t, set.Close())
		testhelp.Must(t, set.Close())
		_, err = set.At(0)
		filestest.WantBroken(t, err, path, "closed")
		_, err = set.Tensor()
		filestest.WantBroken(t, err, path, "closed")
		all.Close()
		if n := mapped(); n != 0 {
			t.Errorf("%d mappings are left", n)
		}
	})
	// A set that was forgotten is the collector's.
	func() {
		if _, err := tokens.Open(path, 10); err != nil {
			t.Error(err)
		}
	}()
	for range 100 {
		if runtime.GC(); mapped() == 0 {
			return
		}
	}
	t.Error("a forgotten set stays mapped")
}

func splitLines(b []byte) (all []string) {
	start := 0
	for i, c := range b {
		if c == '\n' {
			all = append(all, string(b[start:i]))
			start = i + 1
		}
	}
	return all
}

func BenchmarkBatch(b *testing.B) {
	set, err := tokens.Open(file(b, make([]uint16, 1<<20)...), 1024)
	testhelp.Must(b, err)
	defer set.Close()
	random := set.Random(12)
	rng, indices := rand.New(rand.NewPCG(1, 2)), make([]int, 12)
	for b.Loop() {
		batch, err := random.Batch(indices, rng)
		testhelp.Must(b, err)
		batch.Close()
	}
}

func ExampleSet_Random() {
	path := filepath.Join(os.TempDir(), "gotorch-example-tokens.bin")
	text := make([]byte, 0, 2000)
	for i := range 1000 {
		text = binary.LittleEndian.AppendUint16(text, uint16(i))
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		fmt.Println(err)
		return
	}
	defer os.Remove(path)
	set, err := tokens.Open(path, 8)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	for batch, err := range data.NewLoader(set.Random(12), data.LoaderOptions{BatchSize: 4}).All() {
		fmt.Println(batch.Input.Shape(), batch.Target.Sub(batch.Input).Max(), err)
	}
	// Output:
	// [4 8] tensor(1) <nil>
	// [4 8] tensor(1) <nil>
	// [4 8] tensor(1) <nil>
}
