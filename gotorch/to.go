package gotorch

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

func (d DType) to(o *ToOptions)        { o.DType = d }
func (d Device) to(o *ToOptions)       { o.Device = d }
func (l Layout) to(o *ToOptions)       { o.Layout = l }
func (f MemoryFormat) to(o *ToOptions) { o.MemoryFormat = f }
func (t Tensor) to(o *ToOptions)       { o.DType, o.Device = t.DType(), t.Device() }
func (a ToOptions) to(o *ToOptions) {
	if a.DType != 0 {
		o.DType = a.DType
	}
	if a.Device != 0 {
		o.Device = a.Device
	}
	if a.Layout != 0 {
		o.Layout = a.Layout
	}
	if a.MemoryFormat != 0 {
		o.MemoryFormat = a.MemoryFormat
	}
	o.PinMemory = o.PinMemory || a.PinMemory
	o.NonBlocking = o.NonBlocking || a.NonBlocking
	o.Copy = o.Copy || a.Copy
}

// To returns t with another dtype, device, layout or memory format; given a Tensor, with that one's
// dtype and device. Where nothing changes it returns t itself, unless ToOptions asks for a copy.
// It panics with a RuntimeError if the device is not available. Layouts with blocks need their size:
// see [ToSparseBSR].
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
	have := Layout(i.layout + 1)
	same := !o.Copy && !o.PinMemory &&
		(o.DType == 0 || o.DType == DType(i.dtype+1)) &&
		(o.Device == 0 || sameDevice(o.Device, deviceOf(i.device))) &&
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
