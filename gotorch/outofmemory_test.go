package gotorch_test

import (
	"errors"
	"os"
	"os/exec"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gotorch.dev/gotorch"
)

func TestOpsThatWriteAreNotRunAgain(t *testing.T) {
	for op, again := range map[string]bool{
		"mm": true, "add.Tensor": true, "add_.Tensor": false, "add.out": false,
		"resize_": false, "batch_norm": false, "instance_norm": false, "native_batch_norm": false, "dropout": true,
	} {
		if gotorch.RunsAgain(op) != again {
			t.Errorf("%s is run again when memory is out: %v", op, !again)
		}
	}
}

// dataBytes returns the private memory of this process that can be written, used or not.
func dataBytes(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip("needs /proc/self/status: ", err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmData:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Skip("/proc/self/status has no VmData")
	return 0
}

// A system that overcommits nothing counts all of it, and so does ulimit -d.
func TestAddressesThatAreOnlyReservedAreNotCounted(t *testing.T) {
	gotorch.Ones([]int64{3})
	if n := dataBytes(t); n > 8<<30 {
		t.Errorf("the process has %d MiB of memory that can be written", n>>20)
	}
}

// In a process of its own, whose memory is bounded: dead tensors make room for the next.
func TestDeadTensorsMakeRoomOnTheCPU(t *testing.T) {
	const child = "GOTORCH_TEST_BOUNDED"
	if os.Getenv(child) == "" {
		me := exec.Command(os.Args[0], "-test.run=^TestDeadTensorsMakeRoomOnTheCPU$", "-test.v")
		me.Env = append(os.Environ(), child+"=1", "OMP_NUM_THREADS=1") // stacks of threads count as well
		out, err := me.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "ran out of memory at the end") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	debug.SetGCPercent(-1)
	const size = 64 << 20
	shape := []int64{size / 4}
	gotorch.Ones(shape).Close()
	gotorch.ReleaseCachedMemory()
	bound := uint64(dataBytes(t) + 8*size)
	const data = 2 // RLIMIT_DATA
	if err := syscall.Setrlimit(data, &syscall.Rlimit{Cur: bound, Max: bound}); err != nil {
		t.Fatal(err)
	}
	gotorch.WithoutCollections(func() {
		x := gotorch.Ones(shape)
		for range 40 {
			x.AddScalar(1) // dies at once
			gotorch.FromSlice(make([]float32, 16))
		}
		// One that is too big is refused still.
		err := gotorch.Try0(func() { gotorch.Ones([]int64{16 * size}) })
		if !errors.Is(err, gotorch.RuntimeError) || !strings.Contains(err.Error(), "can't allocate memory") {
			t.Fatal(err)
		}
		// A backward pass is not run again, but frees the dead.
		loss := x.RequiresGrad_().Mul(x.Detach()).Sum()
		gotorch.ReleaseCachedMemory()
		for uint64(dataBytes(t)+size) <= bound {
			gotorch.FromScalar(1).Expand(shape).Clone()
		}
		before := gotorch.MemoryStats().NativeBytes
		err = gotorch.Try0(func() { loss.Backward() })
		if err == nil || !strings.Contains(err.Error(), "can't allocate memory") {
			t.Fatal(err)
		}
		if after := gotorch.MemoryStats().NativeBytes; after > before-2*size {
			t.Errorf("%d MiB are in use after a backward pass that found no memory, before %d", after>>20, before>>20)
		}
		x.Close()
	})
	t.Log("ran out of memory at the end")
}
