package gotorch

import "fmt"

// ToArg is what [Tensor.To] takes: a DType, Device, Layout, MemoryFormat, Tensor or ToOptions.
type ToArg interface {
	to(o *ToOptions)
}

// ToOptions are all that [Tensor.To] can change. The zero value of each means "as it is".
type ToOptions struct {
	DType        DType
	Device       Device
	Layout       Layout
	MemoryFormat MemoryFormat
	PinMemory    bool // page-locked, for fast copies to a GPU
	NonBlocking  bool // do not wait for a copy between pinned memory and a GPU
	Copy         bool // copy even if nothing changes
}

func (d DType) to(o *ToOptions)        { toOne(&o.DType, d, "DType") }
func (d Device) to(o *ToOptions)       { toOne(&o.Device, d, "Device") }
func (l Layout) to(o *ToOptions)       { toOne(&o.Layout, l, "Layout") }
func (f MemoryFormat) to(o *ToOptions) { toOne(&o.MemoryFormat, f, "MemoryFormat") }
func (t Tensor) to(o *ToOptions) {
	t.DType().to(o)
	t.Device().to(o)
}
func (a ToOptions) to(o *ToOptions) {
	a.DType.to(o)
	a.Device.to(o)
	a.Layout.to(o)
	a.MemoryFormat.to(o)
	o.PinMemory = o.PinMemory || a.PinMemory
	o.NonBlocking = o.NonBlocking || a.NonBlocking
	o.Copy = o.Copy || a.Copy
}

// toOne sets what is to become of a tensor, and panics with a ValueError if another argument says otherwise.
func toOne[T interface {
	comparable
	String() string
}](to *T, value T, what string) {
	var none T
	if value == none {
		return
	}
	if *to != none && *to != value {
		panic(newError("To", ValueError, fmt.Sprintf("the arguments have two values for %s, %v and %v", what, *to, value)))
	}
	*to = value
}

// To returns t with another dtype, device, layout or memory format; given a Tensor, with that one's
// dtype and device. Where nothing changes it returns t itself, unless ToOptions asks for a copy.
// It panics with a RuntimeError if the device is not available, and with a ValueError if two arguments contradict
// each other. Layouts with blocks need their size: see [ToSparseBSR].
//
//	t.To(gotorch.Float64)
//	t.To(gotorch.CUDA(0), gotorch.Float16)
//	t.To(gotorch.ToOptions{Device: gotorch.CUDA(0), NonBlocking: true})
//	t.To(other)
func (t Tensor) To(args ...ToArg) Tensor {
	var o ToOptions
	for _, a := range args {
		if a == nil {
			panic(newError("To", TypeError, "argument 'args' has a nil, where a DType, a Device, a Tensor or ToOptions is required"))
		}
		a.to(&o)
	}
	if o == (ToOptions{DType: o.DType}) && o.DType != 0 {
		if t.DType() == o.DType {
			return t
		}
		return ToDType(t, o.DType)
	}
	i := t.info("To")
	have := Layout(i.Layout + 1)
	same := !o.Copy && !o.PinMemory &&
		(o.DType == 0 || o.DType == DType(i.Dtype+1)) &&
		(o.Device == 0 || sameDevice(o.Device, deviceOf(i.Device))) &&
		(o.Layout == 0 || o.Layout == have) &&
		(o.MemoryFormat == 0 || o.MemoryFormat == PreserveFormat)
	if same {
		return t
	}
	if o.Layout != 0 && o.Layout != have {
		// PyTorch converts layouts by functions of their own.
		args := ToOptions{o.DType, o.Device, 0, o.MemoryFormat, o.PinMemory, o.NonBlocking, false}
		switch o.Layout {
		case Strided:
			return ToDense(t).To(args)
		case MKLDNN:
			return ToMKLDNN(t.To(args))
		}
		return ToSparse(t, ToSparseOptions{Layout: o.Layout}).To(args)
	}
	return ToOptionsOf(t, ToOptionsOfOptions{DType: o.DType, Device: o.Device, PinMemory: o.PinMemory,
		NonBlocking: o.NonBlocking, Copy: o.Copy, MemoryFormat: o.MemoryFormat})
}

// sameDevice reports whether a tensor on have is where want asks it to be.
func sameDevice(want, have Device) bool {
	return want == have || want.Type() == have.Type() && want.Type() == DeviceTypeCPU
}
