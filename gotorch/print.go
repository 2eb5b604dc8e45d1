package gotorch

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"gotorch.dev/gotorch/internal/ctorch"
)

// PrintOptions changes how tensors are printed, as the arguments of PyTorch's set_printoptions do.
// What is not set stays as it is, except SciMode: as in PyTorch, not to give it means SciAuto.
//
//	gotorch.SetPrintOptions(gotorch.PrintOptions{Precision: new(2), EdgeItems: new(1)})
type PrintOptions struct {
	Precision *int         // digits after the point; 4 at first
	Threshold *int         // a tensor of more elements is summarized; 1000 at first
	EdgeItems *int         // elements at each end of a summarized dimension; 3 at first
	LineWidth *int         // columns after which lines are broken; 80 at first
	Profile   PrintProfile // sets all of the above, before those that are given
	SciMode   SciMode
}

// PrintProfile is a set of printing options with a name. The zero PrintProfile means "not given".
type PrintProfile int8

const (
	DefaultProfile PrintProfile = 1 + iota
	ShortProfile                // 2 digits and 2 edge items
	FullProfile                 // every element
)

// SciMode says whether floating point numbers are printed like 1.0000e-05.
type SciMode int8

const (
	SciAuto SciMode = iota // where their magnitudes ask for it
	SciOn
	SciOff
)

// printStyle is printing options without gaps.
type printStyle struct {
	precision int
	threshold int
	edgeItems int
	lineWidth int
	sciMode   SciMode
	minWidth  int // of a number: the 8 in %8v
}

var printProfiles = [...]printStyle{
	DefaultProfile: {precision: 4, threshold: 1000, edgeItems: 3, lineWidth: 80},
	ShortProfile:   {precision: 2, threshold: 1000, edgeItems: 2, lineWidth: 80},
	FullProfile:    {precision: 4, threshold: math.MaxInt, edgeItems: 3, lineWidth: 80},
}

// globalStyle is replaced as a whole, so that whoever prints sees one call's options.
var (
	globalStyle      atomic.Pointer[printStyle]
	globalStyleMutex sync.Mutex // held to replace it
)

func init() { globalStyle.Store(&printProfiles[DefaultProfile]) }

// SetPrintOptions changes how tensors are printed in the whole process; [Sprint] does it for one
// text. It panics with a ValueError if a number is negative or there is no such profile or mode.
func SetPrintOptions(options PrintOptions) {
	globalStyleMutex.Lock()
	defer globalStyleMutex.Unlock()
	style := globalStyle.Load().with(options, "SetPrintOptions")
	globalStyle.Store(&style)
}

// GetPrintOptions returns the options in force: [SetPrintOptions] restores them.
func GetPrintOptions() PrintOptions {
	style := *globalStyle.Load()
	return PrintOptions{
		Precision: &style.precision,
		Threshold: &style.threshold,
		EdgeItems: &style.edgeItems,
		LineWidth: &style.lineWidth,
		SciMode:   style.sciMode,
	}
}

func (s printStyle) with(o PrintOptions, op string) printStyle {
	if o.Profile < 0 || int(o.Profile) >= len(printProfiles) {
		panic(newError(op, ValueError, "there is no Profile "+strconv.Itoa(int(o.Profile))))
	}
	if o.SciMode < SciAuto || o.SciMode > SciOff {
		panic(newError(op, ValueError, "there is no SciMode "+strconv.Itoa(int(o.SciMode))))
	}
	if o.Profile != 0 {
		minWidth := s.minWidth
		s = printProfiles[o.Profile]
		s.minWidth = minWidth
	}
	set := func(to, from *int, name string) {
		if from == nil {
			return
		}
		if *from < 0 {
			panic(newError(op, ValueError, name+" is "+strconv.Itoa(*from)+", expected 0 or more"))
		}
		*to = *from
	}
	set(&s.precision, o.Precision, "Precision")
	set(&s.threshold, o.Threshold, "Threshold")
	set(&s.edgeItems, o.EdgeItems, "EdgeItems")
	set(&s.lineWidth, o.LineWidth, "LineWidth")
	s.sciMode = o.SciMode
	return s
}

// String returns the text that PyTorch prints for t: tensor([1., 2.], dtype=torch.float64). A big
// tensor is summarized, and only what is printed of it is read. The zero Tensor is "none", one
// that was closed "closed".
func (t Tensor) String() string { return Sprint(t) }

// Sprint returns the text that PyTorch prints for t, with other options than those in force. It
// panics with a ValueError where [SetPrintOptions] does.
func Sprint(t Tensor, options ...PrintOptions) string {
	p := printer{printStyle: *globalStyle.Load()}
	for _, o := range options {
		p.printStyle = p.with(o, "Sprint")
	}
	return p.text(t)
}

// Format implements [fmt.Formatter]. The verbs:
//
//	%v %s  as String
//	%+v    the same with device, size, dtype, strides and storage, also where they go without saying
//	%#v    only those, without the elements
//	%e     numbers in scientific notation
//	%f     none in scientific notation
//	%g     scientific notation where the magnitudes ask for it
//	%d     as String, of integers and bools
//
// A precision, as in %.2f, is the number of digits after the point; as everywhere in PyTorch, whole
// numbers have none. A width, as in %8v, is the least width of each number.
func (t Tensor) Format(f fmt.State, verb rune) {
	p := printer{printStyle: *globalStyle.Load()}
	if width, ok := f.Width(); ok {
		p.minWidth = width
	}
	if precision, ok := f.Precision(); ok {
		p.precision = precision
	}
	text := func() string { return p.text(t) }
	switch verb {
	case 'v':
		p.explicit = f.Flag('+') || f.Flag('#')
		p.noElements = f.Flag('#')
	case 's':
	case 'e':
		p.sciMode = SciOn
	case 'f', 'F':
		p.sciMode = SciOff
	case 'g':
		p.sciMode = SciAuto
	case 'd':
		if t.Defined() && !t.DType().IsInteger() && t.DType() != Bool {
			text = func() string { return "%!d(gotorch.Tensor=" + p.text(t) + ")" }
		}
	default:
		text = func() string { return "%!" + string(verb) + "(gotorch.Tensor=" + p.text(t) + ")" }
	}
	_, _ = f.Write([]byte(text())) // fmt's own buffer takes everything
}

// printer writes the text of a tensor.
type printer struct {
	printStyle
	explicit   bool // also say what the reader may assume
	noElements bool // write "..." for them
}

func (p *printer) text(t Tensor) string {
	switch {
	case t.T == nil:
		return "none"
	case !t.Defined():
		return "closed"
	}
	t = t.held("String", "self") // what is printed stays, whoever closes it
	defer t.Close()
	i := t.info("String")
	if i.Flags&ctorch.TensorHasStorage == 0 {
		if text, ok := p.wrapped(t); ok {
			return text
		}
	}
	if Layout(i.Layout+1) == Strided && i.Flags&(ctorch.TensorNested|ctorch.TensorQuantized) == 0 {
		return p.textOf(t, i)
	}
	// The parts of any other tensor are tensors, which are of no use afterwards.
	var text string
	NoGrad(func() {
		Scope0(func(*ScopeHandle) { text = p.textOf(t, i) })
	})
	return text
}

// wrapped is the text of a tensor that a function transform has wrapped: that of the one within.
func (p *printer) wrapped(t Tensor) (string, bool) {
	info, within := t.transformInfo()
	if within.T == nil {
		return "", false
	}
	defer within.Close()
	head := fmt.Sprintf("GradTrackingTensor(lvl=%d, value=", info.Level)
	if info.Kind == ctorch.TransformVMap {
		head = fmt.Sprintf("BatchedTensor(lvl=%d, bdim=%d, value=", info.Level, info.Dim)
	}
	return head + "\n    " + strings.ReplaceAll(p.text(within), "\n", "\n    ") + "\n)", true
}

// described is a tensor with what decides about the form of its text.
type described struct {
	Tensor
	info              tensorInfo
	dtype             DType
	layout            Layout
	device            Device
	shape             []int64 // nil for nested tensors
	meta              bool
	nested, quantized bool
	sparse            bool
	parts             []tensorPart // of a sparse tensor
}

// tensorPart is one of the tensors that make up a sparse one.
type tensorPart struct {
	name   string
	tensor Tensor
}

func (p *printer) textOf(t Tensor, i tensorInfo) string {
	d := described{
		Tensor:    t,
		info:      i,
		dtype:     DType(i.Dtype + 1),
		layout:    Layout(i.Layout + 1),
		device:    deviceOf(i.Device),
		nested:    i.Flags&ctorch.TensorNested != 0,
		quantized: i.Flags&ctorch.TensorQuantized != 0,
	}
	d.meta = d.device.Type() == DeviceTypeMeta
	prefix := "tensor("
	if d.nested {
		prefix = "nested_tensor("
	} else {
		d.shape = i.copySizes()
		d.sparse = d.layout != Strided && d.layout != MKLDNN
	}
	if d.sparse {
		d.parts = sparseParts(t, d.layout)
	}
	indent := len(prefix)
	text := p.appendContents([]byte(prefix), d, indent)
	return string(p.appendSuffixes(text, p.suffixes(d), indent, d.layout == SparseCOO))
}

// appendContents appends what stands before the suffixes.
func (p *printer) appendContents(text []byte, d described, indent int) []byte {
	switch {
	case p.noElements, d.meta && !d.sparse:
		return append(text, "..."...)
	case d.sparse:
		return p.appendParts(text, d.parts, indent, d.meta)
	case d.nested:
		return p.appendNested(text, d.Tensor)
	case d.quantized && d.info.Numel > mostShown && int64(d.info.Numel) > int64(d.info.StorageNbytes):
		return append(text, "..."...) // it is expanded, and its values are not
	case d.quantized:
		values, err := Try(func() Tensor { return Dequantize(d.Tensor) })
		if err != nil {
			return append(text, "..."...) // it has no quantizer, and so no values
		}
		return p.appendElements(text, values, indent)
	}
	return p.appendElements(text, d.Tensor, indent)
}

// suffixes returns what PyTorch says of a tensor after its elements: what they do not tell.
func (p *printer) suffixes(d described) (suffixes []string) {
	add := func(name, value string) { suffixes = append(suffixes, name+"="+value) }
	count := func(name string, n int64) { add(name, strconv.FormatInt(n, 10)) }

	if p.explicit || d.device.Type() != DeviceTypeCPU {
		add("device", "'"+d.device.String()+"'")
	}

	// The brackets show the size of a dense tensor if they enclose something, as one pair does if
	// nothing is in it. Numbers show by their form whether they are of the usual dtypes.
	_, readable := elementReaders[d.dtype]
	dense := !d.sparse && !d.quantized && !d.nested
	filled := !d.meta && d.info.Numel > 0
	sizeShown := dense && (filled && readable && p.edgeItems > 0 || !filled && !d.meta && len(d.shape) == 1)
	dtypeShown := d.nested || d.dtype == DefaultDType()
	if filled || !dense {
		dtypeShown = dtypeShown || d.dtype == Int64 || d.dtype == Bool || d.dtype == defaultComplex()
	}
	if (p.explicit || !sizeShown) && !d.nested {
		add("size", sizeText(d.shape))
	}
	if d.sparse && !d.meta {
		count("nnz", d.parts[len(d.parts)-2].tensor.Size(-1))
	}
	if p.explicit || !dtypeShown {
		add("dtype", d.dtype.String())
	}
	if d.quantized {
		p.addQuantizer(d.Tensor, add)
	}
	if d.layout != Strided {
		add("layout", d.layout.String())
	}
	if p.explicit && d.info.Strides != nil {
		add("stride", sizeText(d.info.dims(1)))
	}
	if p.explicit && d.info.Flags&ctorch.TensorHasStorage != 0 {
		count("storage_offset", int64(d.info.StorageOffset))
		count("storage_nbytes", int64(d.info.StorageNbytes))
	}
	if name := gradFnName(d.Tensor); name != "" {
		add("grad_fn", "<"+name+">")
	} else if d.info.Flags&ctorch.TensorRequiresGrad != 0 {
		add("requires_grad", "True")
	}
	return suffixes
}

// appendSuffixes appends ", size=(2, 3)" and the like, and the closing parenthesis. What would go
// beyond the line's width goes to a new line; the first suffix also when asked.
func (p *printer) appendSuffixes(text []byte, suffixes []string, indent int, newLine bool) []byte {
	// PyTorch takes the last line of the elements to be two columns longer than it is.
	column := len(text) - bytes.LastIndexByte(text, '\n') + 1
	for _, suffix := range suffixes {
		if newLine || column+len(suffix)+len(", ") > p.lineWidth {
			text = append(text, ",\n"...)
			text = appendSpaces(text, indent)
			column = indent + len(suffix)
		} else {
			text = append(text, ", "...)
			column += len(", ") + len(suffix)
		}
		text = append(text, suffix...)
		newLine = false
	}
	return append(text, ')')
}

// sparseParts returns the tensors that t consists of: indices, the last of them with one column for
// each of the values, and the values.
func sparseParts(t Tensor, layout Layout) []tensorPart {
	switch layout {
	case SparseCOO:
		// Indices and Values insist on a coalesced tensor.
		var indices, values ctorch.Tensor
		h := t.hold("String", "self")
		defer ctorch.FreeTensor(h)
		MustNil(unsafe.Pointer(ctorch.UncoalescedIndices(h, &indices)))
		first := wrapHandle(indices)
		MustNil(unsafe.Pointer(ctorch.UncoalescedValues(h, &values)))
		return []tensorPart{{"indices", first}, {"values", wrapHandle(values)}}
	case SparseCSR, SparseBSR:
		return []tensorPart{{"crow_indices", CrowIndices(t)}, {"col_indices", ColIndices(t)}, {"values", Values(t)}}
	default:
		return []tensorPart{{"ccol_indices", CcolIndices(t)}, {"row_indices", RowIndices(t)}, {"values", Values(t)}}
	}
}

func (p *printer) appendParts(text []byte, parts []tensorPart, indent int, meta bool) []byte {
	for k, part := range parts {
		if k > 0 {
			text = append(text, ",\n"...)
			text = appendSpaces(text, indent)
		}
		start := len(text)
		text = append(text, part.name+"=tensor("...)
		if meta {
			text = append(text, "..."...)
		} else {
			text = p.appendElements(text, part.tensor, indent+len(text)-start)
		}
		if meta || part.tensor.Numel() == 0 {
			text = append(text, ", size="+sizeText(part.tensor.Shape())...)
		}
		text = append(text, ')')
	}
	return text
}

func (p *printer) appendNested(text []byte, t Tensor) []byte {
	inner := printer{printStyle: p.printStyle}
	var texts []string
	for _, part := range Unbind(t) {
		texts = append(texts, "  "+strings.ReplaceAll(inner.text(part), "\n", "\n  "))
	}
	return append(text, "[\n"+strings.Join(texts, ",\n")+"\n]"...)
}

var qschemes = [...]string{"per_tensor_affine", "per_channel_affine", "per_tensor_symmetric",
	"per_channel_symmetric", "per_channel_affine_float_qparams"}

func (p *printer) addQuantizer(t Tensor, add func(name, value string)) {
	var q ctorch.QuantizerInfo
	h := t.hold("String", "self")
	defer ctorch.FreeTensor(h)
	if err := ctorch.GetQuantizerInfo(h, &q); err != nil {
		ctorch.FreeString(err) // some tensors of quantized dtypes have no quantizer
		return
	}
	name := qschemes[q.Qscheme]
	add("quantization_scheme", "torch."+name)
	if strings.HasPrefix(name, "per_tensor") {
		add("scale", string(appendPythonFloat(nil, q.Scale)))
		add("zero_point", strconv.FormatInt(q.ZeroPoint, 10))
		return
	}
	inner := printer{printStyle: p.printStyle}
	add("scale", inner.text(QPerChannelScales(t)))
	add("zero_point", inner.text(QPerChannelZeroPoints(t)))
	add("axis", strconv.FormatInt(q.Axis, 10))
}

// appendElements appends the elements of a dense tensor.
func (p *printer) appendElements(text []byte, t Tensor, indent int) []byte {
	i := t.info("String")
	defer runtime.KeepAlive(t.T)
	e := elements{
		dtype: DType(i.Dtype + 1),
		shape: i.copySizes(),
		data:  i.Data,
		conj:  i.Flags&ctorch.TensorConj != 0,
		neg:   i.Flags&ctorch.TensorNeg != 0,
	}
	if unread := e.textUnread(&p.printStyle); unread != "" {
		return append(text, unread...)
	}
	switch {
	case Layout(i.Layout+1) == MKLDNN:
		return p.appendElements(text, ToDense(t), indent)
	case deviceOf(i.Device).Type() == DeviceTypeCPU:
		e.strides = i.copyStrides()
		if e.reach()+i.StorageOffset > i.StorageNbytes/i.Itemsize {
			return append(text, "..."...) // somebody made the storage smaller than the tensor
		}
	default:
		p.copyCorners(t, &e)
	}
	return e.appendText(text, indent, &p.printStyle)
}

// copyCorners brings what is printed of t from its device.
func (p *printer) copyCorners(t Tensor, e *elements) {
	NoGrad(func() {
		Scope0(func(*ScopeHandle) {
			for dim, edge := range e.edges(&p.printStyle) {
				if edge > 0 {
					d, n := int64(dim), int64(edge)
					head, tail := Narrow(t, d, 0, n), Narrow(t, d, e.shape[dim]-n, n)
					t = Cat([]Tensor{head, tail}, CatOptions{Dim: d})
				}
			}
			corners := make([]byte, t.Numel()*int64(e.dtype.Size()))
			e.data = unsafe.Pointer(&corners[0])
			MustNil(unsafe.Pointer(ctorch.CopyOut(t.wordOf("String", "self"), e.data, int64(len(corners)))))
			e.corners, e.conj, e.neg = true, false, false
			e.strides = contiguousStrides(t.Shape())
		})
	})
}

func contiguousStrides(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	step := int64(1)
	for dim := len(shape) - 1; dim >= 0; dim-- {
		strides[dim] = step
		step *= shape[dim]
	}
	return strides
}

// gradFnName returns the name of the autograd node that made t, "" for leaves.
func gradFnName(t Tensor) string {
	var name *ctorch.Char
	h := t.hold("String", "self")
	defer ctorch.FreeTensor(h)
	if err := ctorch.GradFnName(h, &name); err != nil {
		ctorch.FreeString(err)
		return "Invalid" // so says PyTorch of a view whose base was changed behind autograd's back
	}
	defer ctorch.FreeString(name)
	full := ctorch.GoString(name)
	return full[strings.LastIndexByte(full, ':')+1:]
}

// defaultComplex is the dtype of complex numbers that PyTorch prints without its name.
func defaultComplex() DType {
	if DefaultDType() == Float64 {
		return Complex128
	}
	return Complex64
}

// sizeText returns a shape as Python prints it: "(2, 3)", "(2,)".
func sizeText(shape []int64) string {
	text := []byte{'('}
	for i, size := range shape {
		if i > 0 {
			text = append(text, ", "...)
		}
		text = strconv.AppendInt(text, size, 10)
	}
	if len(shape) == 1 {
		text = append(text, ',')
	}
	return string(append(text, ')'))
}
