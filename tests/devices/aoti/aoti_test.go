//go:build devices

// Package aoti runs a package of AOTInductor that tests/test_devices.py has compiled for a GPU.
package aoti

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/aoti"
	"gotorch.dev/gotorch/gotorchtest"
)

func TestOnAGPU(t *testing.T) {
	folder := os.Getenv("GOTORCH_TEST_AOTI")
	values, _, err := gotorch.LoadSafetensors(filepath.Join(folder, "values.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	device := gotorch.CUDA(0)
	model, err := aoti.Load(filepath.Join(folder, "model.pt2"), aoti.LoadOptions{Device: device, NumRunners: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	if model.Device().Type() != gotorch.DeviceTypeCUDA {
		t.Errorf("the model runs on %v", model.Device())
	}
	x := values["x"].To(device)
	var group sync.WaitGroup
	for range 8 { // goroutines with streams of their own
		group.Go(func() {
			gotorch.OnStream(gotorch.NewStream(device), func() {
				gotorch.Synchronize(device) // x was moved on another stream
				for range 10 {
					y := model.Run(x)[0]
					gotorchtest.AssertClose(t, y.To(gotorch.CPU), values["y"])
				}
			})
		})
	}
	group.Wait()
	if err := gotorch.Try0(func() { model.Run(values["x"]) }); err == nil {
		t.Error("an input on the CPU was taken")
	}
}
