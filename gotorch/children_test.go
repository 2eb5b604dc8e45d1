package gotorch_test

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gotorch.dev/gotorch"
)

// Programs that are started while goroutines are in the middle of backward passes, hooks, checkpoints and files run, and inherit
// none of these files.
func TestProgramsAreStartedDuringBackward(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("/proc says which files a program has")
	}
	files := func() []string {
		out, err := exec.Command("ls", "/proc/self/fd").Output()
		if err != nil {
			t.Error(err)
		}
		return strings.Fields(string(out))
	}
	before := files() // some may have been inherited
	var stop atomic.Bool
	var all sync.WaitGroup
	loop := func(f func(*gotorch.ScopeHandle)) {
		all.Go(func() {
			for !stop.Load() {
				gotorch.Scope0(f)
			}
		})
	}
	for range 2 {
		loop(func(*gotorch.ScopeHandle) {
			x := floats(1, 2, 3).RequiresGrad_()
			y := gotorch.Checkpoint(func(x gotorch.Tensor) gotorch.Tensor { return x.Mul(x).Exp() }, x)
			y.RegisterHook(func(g gotorch.Tensor) gotorch.Tensor { return g.Add(gotorch.Dropout(g, 0.5, true)) })
			y.Sum().Backward()
			if !x.Grad().Defined() {
				t.Error("there is no gradient")
			}
		})
	}
	path := filepath.Join(t.TempDir(), "a.pt")
	loop(func(*gotorch.ScopeHandle) {
		err := gotorch.Save(path, floats(1, 2, 3))
		if err == nil {
			_, err = gotorch.Load(path)
		}
		if err != nil {
			t.Error(err)
		}
	})
	for range 30 {
		if now := files(); !slices.Equal(now, before) {
			t.Errorf("a program has the files %v, and before %v", now, before)
			break
		}
	}
	stop.Store(true)
	all.Wait()
}
