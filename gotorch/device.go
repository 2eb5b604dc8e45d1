package gotorch

import (
	"strconv"
	"strings"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// Device is where a tensor's memory is. The zero Device means "not given".
type Device int32

// DeviceType is a kind of device.
type DeviceType int8

// PyTorch's device types.
const (
	DeviceTypeCPU         DeviceType = 0
	DeviceTypeCUDA        DeviceType = 1
	DeviceTypeXLA         DeviceType = 9
	DeviceTypeVulkan      DeviceType = 10
	DeviceTypeXPU         DeviceType = 12
	DeviceTypeMPS         DeviceType = 13
	DeviceTypeMeta        DeviceType = 14
	DeviceTypeHPU         DeviceType = 15
	DeviceTypeMTIA        DeviceType = 19
	DeviceTypePrivateUse1 DeviceType = 20
)

var deviceTypes = [...]string{
	"cpu", "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan", "metal",
	"xpu", "mps", "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone",
}

// A Device is (type+1)<<16 | (index+1), so that zero is free and index -1 is "the current one".
const (
	CPU  Device = (Device(DeviceTypeCPU) + 1) << 16
	MPS  Device = (Device(DeviceTypeMPS) + 1) << 16
	Meta Device = (Device(DeviceTypeMeta) + 1) << 16 // has shapes but no data
)

// CUDA returns the i-th NVIDIA (or AMD) GPU. CUDA(-1) is the current one.
func CUDA(i int) Device { return NewDevice(DeviceTypeCUDA, i) }

// NewDevice returns the device of a type with an index, -1 for the current one. It panics with a
// RuntimeError if there can be no such device.
func NewDevice(t DeviceType, index int) Device {
	if t < 0 || int(t) >= len(deviceTypes) {
		panic(newError("NewDevice", RuntimeError, "unknown device type "+strconv.Itoa(int(t))))
	}
	if index < -1 || index > 127 {
		panic(newError("NewDevice", RuntimeError, "device index "+strconv.Itoa(index)+" is out of range"))
	}
	return (Device(t)+1)<<16 | Device(index+1)
}

// ParseDevice returns the device of a name as PyTorch writes it: "cpu", "cuda" or "cuda:1". A backend of
// another project goes by the name that its library has given itself, when it is loaded.
func ParseDevice(name string) (Device, error) {
	kind, index, indexed := strings.Cut(name, ":")
	for t, n := range deviceTypes {
		if n != kind && (DeviceType(t) != DeviceTypePrivateUse1 || kind != privateBackend()) {
			continue
		}
		if !indexed {
			return NewDevice(DeviceType(t), -1), nil
		}
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i > 127 || strconv.Itoa(i) != index {
			return 0, newError("ParseDevice", RuntimeError, "invalid index in device "+quote(name))
		}
		return NewDevice(DeviceType(t), i), nil
	}
	return 0, newError("ParseDevice", RuntimeError,
		"unknown device "+quote(name)+", expected one of "+strings.Join(deviceTypes[:], ", ")+", and an index as in cuda:0")
}

// Type returns the device's kind.
func (d Device) Type() DeviceType { return DeviceType(d>>16) - 1 }

// Index returns the device's number among those of its type, -1 for the current one.
func (d Device) Index() int { return int(d&0xffff) - 1 }

// IsCUDA reports whether d is a GPU under CUDA (or ROCm, which PyTorch calls by the same name).
func (d Device) IsCUDA() bool { return d.Type() == DeviceTypeCUDA }

// String returns PyTorch's name, "cuda:0".
func (d Device) String() string {
	if d == 0 {
		return "none"
	}
	if d.Index() < 0 {
		return d.Type().String()
	}
	return d.Type().String() + ":" + strconv.Itoa(d.Index())
}

// MarshalText is part of [encoding.TextMarshaler]: JSON, flag.TextVar and others write d as "cuda:0", and
// the zero Device as an empty text. The error, a ValueError, is for a number that is no device.
func (d Device) MarshalText() ([]byte, error) {
	if d == 0 {
		return nil, nil
	}
	if t := d.Type(); t < 0 || int(t) >= len(deviceTypes) {
		return nil, newError("MarshalText", ValueError, "there is no device of number "+strconv.Itoa(int(d)))
	}
	return []byte(d.String()), nil
}

// UnmarshalText is part of [encoding.TextUnmarshaler]. It reads what [ParseDevice] does, and an empty text
// as the zero Device. Where it fails d stays as it is.
func (d *Device) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*d = 0
		return nil
	}
	parsed, err := ParseDevice(string(text))
	if err == nil {
		*d = parsed
	}
	return err
}

func (t DeviceType) String() string {
	if t < 0 || int(t) >= len(deviceTypes) {
		return "none"
	}
	if t == DeviceTypePrivateUse1 {
		return privateBackend()
	}
	return deviceTypes[t]
}

// privateBackend is what a backend of another project calls itself, "privateuseone" where there is none.
func privateBackend() string {
	var name *ctorch.Char
	check("DeviceType", ctorch.GetDeviceTypeName(int32(DeviceTypePrivateUse1), &name))
	defer ctorch.FreeString(name)
	return ctorch.GoString(name)
}

func (d Device) required(op opID, arg string) int64 { return requiredEnum(d, op, arg) }

func deviceOf(d ctorch.Device) Device { return (Device(d.Type)+1)<<16 | (Device(d.Index) + 1) }

// CUDAIsAvailable reports whether tensors can be made on a GPU. The first call loads PyTorch's CUDA
// libraries, a fraction of a second; a program that never asks does not pay for them.
func CUDAIsAvailable() bool { return ctorch.CUDAIsAvailable() }

// CUDADeviceCount returns the number of GPUs, 0 where CUDA is not available.
func CUDADeviceCount() int { return int(ctorch.CUDADeviceCount()) }

// CUDASynchronize waits until a GPU has finished what it was given. It panics with a RuntimeError
// where CUDA is not available.
func CUDASynchronize(d Device) {
	if !d.IsCUDA() {
		panic(newError("CUDASynchronize", ValueError, "expected a CUDA device, got "+d.String()))
	}
	if err := ctorch.CUDASynchronize(int64(d.Index())); err != nil {
		panicC("CUDASynchronize", unsafe.Pointer(err))
	}
}

func quote(s string) string { return strconv.Quote(s) }
