package aoti

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// compiled is an AOTIModel of aoti.h. Free must be called once, and nothing during or after it.
type compiled struct{ h ctorch.AOTIModel }

// compiledOptions are AOTIOptions; "" is NULL.
type compiledOptions struct {
	ModelName      string
	NumRunners     int
	SingleThreaded bool
	Unchecked      bool
	DeviceIndex    int

	IgnoreChecksums bool
}

// compiledTensor is an AOTITensorInfo. DType is 0 where it is not known, and Sizes nil; Device is -1.
type compiledTensor struct {
	Name       string
	DType      gotorch.DType
	DeviceType int
	Sizes      []int64
	Min, Max   []int64
}

// compiledInfo is an AOTIInfo.
type compiledInfo struct {
	ModelName       string
	Device          gotorch.Device
	NumRunners      int
	Inputs          []compiledTensor
	NumOutputs      int
	Constants       []compiledTensor
	Metadata        map[string]string
	InSpec, OutSpec string
}

func load(path string, opts compiledOptions) (*compiled, error) {
	const op = "aoti.Load"
	// For the error of the operating system; without waiting for who would write into a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f.Close()
	if strings.ContainsRune(opts.ModelName, 0) {
		return nil, args.ValueError(op, "the name %s contains a NUL byte", strconv.Quote(opts.ModelName))
	}
	cPath := ctorch.CString(path)
	defer ctorch.CFree(unsafe.Pointer(cPath))
	options := ctorch.AOTIOptions{
		NumRunners:      int64(opts.NumRunners),
		SingleThreaded:  opts.SingleThreaded,
		Unchecked:       opts.Unchecked,
		IgnoreChecksums: opts.IgnoreChecksums,
		DeviceIndex:     int64(opts.DeviceIndex),
	}
	if opts.ModelName != "" {
		options.ModelName = ctorch.CString(opts.ModelName)
		defer ctorch.CFree(unsafe.Pointer(options.ModelName))
	}
	m := &compiled{}
	state := ctorch.EnterBack() // the model's library may do anything as it is loaded
	message := ctorch.AOTILoad(cPath, &options, &m.h)
	warnings := ctorch.LeaveBack(state)
	defer warnings.HandOn(true)
	if message != nil {
		return nil, native.Error(op, message)
	}
	return m, nil
}

// Free frees the model.
func (m *compiled) Free() { ctorch.AOTIFree(m.h) }

// Run panics with *gotorch.Error.
func (m *compiled) Run(inputs []gotorch.Tensor) []gotorch.Tensor {
	const op = "aoti.Run"
	var held native.Holder
	defer held.Free()
	hs := held.All(op, "inputs", inputs)
	var results *ctorch.Tensor
	var n int64
	state := ctorch.EnterBack()
	message := ctorch.AOTIRun(m.h, unsafe.SliceData(hs), int64(len(hs)), &results, &n)
	warnings := ctorch.LeaveBack(state)
	return takeResults(op, results, n, message, warnings)
}

// Constants panics with *gotorch.Error; op is what errors say of where they come from.
func (m *compiled) Constants(op string) []gotorch.Tensor {
	var results *ctorch.Tensor
	var n int64
	state := ctorch.EnterBack()
	message := ctorch.AOTIConstants(m.h, &results, &n)
	return takeResults(op, results, n, message, ctorch.LeaveBack(state))
}

func takeResults(op string, results *ctorch.Tensor, n int64, message ctorch.Message, warnings ctorch.Warnings) []gotorch.Tensor {
	taken := false
	defer func() {
		if !taken {
			ctorch.FreeTensors(results, n)
		}
		ctorch.FreeArray(unsafe.Pointer(results))
	}()
	native.Check(op, message, warnings)
	taken = true
	return native.Tensors(unsafe.Slice(results, n))
}

// SetConstants sets constants, all of them or some.
func (m *compiled) SetConstants(op string, names []string, tensors []gotorch.Tensor, all bool) error {
	for _, name := range names {
		if strings.ContainsRune(name, 0) {
			return args.ValueError(op, "the name %s contains a NUL byte", strconv.Quote(name))
		}
	}
	return gotorch.Try0(func() {
		var held native.Holder
		defer held.Free()
		hs := held.All(op, "tensors", tensors)
		cNames := ctorch.CStrings(names)
		defer ctorch.FreeStrings(cNames)
		state := ctorch.EnterBack()
		message := ctorch.AOTISetConstants(m.h, unsafe.SliceData(cNames), unsafe.SliceData(hs), int64(len(hs)), all)
		native.Check(op, message, ctorch.LeaveBack(state))
	})
}

// Info returns what the package says of the model.
func (m *compiled) Info() compiledInfo {
	var c ctorch.AOTIInfo
	ctorch.AOTIGetInfo(m.h, &c)
	info := compiledInfo{
		ModelName:  ctorch.GoString(c.ModelName),
		Device:     gotorch.NewDevice(gotorch.DeviceType(c.Device.Type), int(c.Device.Index)),
		NumRunners: int(c.NumRunners),
		NumOutputs: int(c.NOutputs),
		Inputs:     compiledTensors(c.Inputs, c.NInputs),
		Constants:  compiledTensors(c.Constants, c.NConstants),
		Metadata:   map[string]string{},
		InSpec:     ctorch.GoString(c.InSpec),
		OutSpec:    ctorch.GoString(c.OutSpec),
	}
	for pair := range slices.Chunk(unsafe.Slice(c.Metadata, 2*c.NMetadata), 2) {
		info.Metadata[ctorch.GoString(pair[0])] = ctorch.GoString(pair[1])
	}
	return info
}

func compiledTensors(list *ctorch.AOTITensorInfo, n int64) []compiledTensor {
	ts := make([]compiledTensor, n)
	for i, c := range unsafe.Slice(list, n) {
		t := &ts[i]
		t.Name, t.DType, t.DeviceType = ctorch.GoString(c.Name), gotorch.DType(c.Dtype+1), int(c.DeviceType)
		if c.Ndim >= 0 {
			t.Sizes = append([]int64{}, unsafe.Slice(c.Sizes, c.Ndim)...) // [] where there are no dimensions
		}
		if c.Ndim > 0 && c.Min != nil {
			t.Min = slices.Clone(unsafe.Slice(c.Min, c.Ndim))
			t.Max = slices.Clone(unsafe.Slice(c.Max, c.Ndim))
		}
	}
	return ts
}
