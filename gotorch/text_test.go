package gotorch_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io"
	"testing"

	"gotorch.dev/gotorch"
)

func TestDTypesAndDevicesAreText(t *testing.T) {
	type config struct {
		DType  gotorch.DType
		Device gotorch.Device
		Sizes  map[gotorch.DType]int
	}
	for text, want := range map[string]config{
		`{"DType":"bfloat16","Device":"cuda:1","Sizes":{"float32":4}}`: {gotorch.BFloat16, gotorch.CUDA(1), map[gotorch.DType]int{gotorch.Float32: 4}},
		`{"DType":"float4_e2m1fn_x2","Device":"cpu","Sizes":{}}`:       {gotorch.Float4E2M1FNx2, gotorch.CPU, map[gotorch.DType]int{}},
		`{"DType":"","Device":"","Sizes":null}`:                        {},
	} {
		b, err := json.Marshal(want)
		if err != nil || string(b) != text {
			t.Errorf("got %s, %v, want %s", b, err, text)
		}
		var got config
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Error(err)
		}
		if got.DType != want.DType || got.Device != want.Device || len(got.Sizes) != len(want.Sizes) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	for d := gotorch.Uint8; d <= gotorch.BComplex32; d++ {
		var got gotorch.DType
		b, err := d.MarshalText()
		if err != nil || got.UnmarshalText(b) != nil || got != d {
			t.Errorf("%v is %q, and that %v", d, b, got)
		}
	}
}

func TestTextThatIsNoDTypeOrDevice(t *testing.T) {
	d, device := gotorch.Int8, gotorch.CPU
	if err := d.UnmarshalText([]byte("float33")); !errors.Is(err, gotorch.TypeError) || d != gotorch.Int8 {
		t.Error(d, err)
	}
	if err := device.UnmarshalText([]byte("gpu")); !errors.Is(err, gotorch.RuntimeError) || device != gotorch.CPU {
		t.Error(device, err)
	}
	if b, err := gotorch.DType(100).MarshalText(); err == nil {
		t.Errorf("%q", b)
	}
	if b, err := gotorch.Device(100 << 16).MarshalText(); err == nil {
		t.Errorf("%q", b)
	}
}

func TestDTypesAndDevicesAsFlags(t *testing.T) {
	set := flag.NewFlagSet("test", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	var (
		d      gotorch.DType
		device gotorch.Device
	)
	set.TextVar(&d, "dtype", gotorch.Float32, "")
	set.TextVar(&device, "device", gotorch.CPU, "")
	if err := set.Parse([]string{"-dtype", "half"}); err != nil || d != gotorch.Float16 || device != gotorch.CPU {
		t.Error(d, device, err)
	}
	if err := set.Parse([]string{"-device=cuda:x"}); err == nil {
		t.Error(device)
	}
}
