package ops

import (
	"fmt"
	"math"
	"runtime"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/nn"
	nninit "gotorch.dev/gotorch/nn/init"
)

// deform has the numbers of a deformable convolution.
type deform struct {
	strideY, strideX, padY, padX, dilationY, dilationX int
	groups, offsetGroups                               int // of the weight, and of the offset

	batch, in, height, width int // of the input
	out, kernelY, kernelX    int // of the weight
	outY, outX               int // of the result
	masked                   bool
	together                 int // images in one product of matrices
}

// together returns how many images torchvision takes at once, on which the order of sums depends.
func together(batch int) int {
	for k := min(batch/2, 32); k > 1; k-- {
		if batch%k == 0 {
			return k
		}
	}
	return 1
}

// place is where an element of the window of a place in the result lies in the input.
type place[T float] struct{ y, x, mask T }

// places finds that for all places of the result, for one element of the window, image and group of offsets.
func places[T float](d *deform, offset, mask []T, image, group, i, j int, to []place[T]) {
	area, kernel := d.outY*d.outX, d.kernelY*d.kernelX
	ys := offset[((image*d.offsetGroups+group)*2*kernel+2*(i*d.kernelX+j))*area:][:area]
	xs := offset[((image*d.offsetGroups+group)*2*kernel+2*(i*d.kernelX+j)+1)*area:][:area]
	for at := range to {
		y, x := at/d.outX, at%d.outX
		to[at] = place[T]{T(y*d.strideY-d.padY+i*d.dilationY) + ys[at], T(x*d.strideX-d.padX+j*d.dilationX) + xs[at], 1}
	}
	if d.masked {
		ms := mask[((image*d.offsetGroups+group)*kernel+i*d.kernelX+j)*area:][:area]
		for at, m := range ms {
			to[at].mask = m
		}
	}
}

// corner is the four elements around a place, with weights; an element outside of the input is -1.
type corner[T float] struct {
	at [4]int
	w  [4]T
}

func (c *corner[T]) around(d *deform, y, x T) {
	*c = corner[T]{at: [4]int{-1, -1, -1, -1}}
	if !(y > -1 && y < T(d.height) && x > -1 && x < T(d.width)) {
		return
	}
	top, left := int(math.Floor(float64(y))), int(math.Floor(float64(x)))
	ly, lx := y-T(top), x-T(left)
	hy, hx := 1-ly, 1-lx
	c.w = [4]T{hy * hx, hy * lx, ly * hx, ly * lx}
	for k := range c.at {
		row, column := top+k/2, left+k%2
		if row >= 0 && row < d.height && column >= 0 && column < d.width {
			c.at[k] = row*d.width + column
		}
	}
}

func (c *corner[T]) value(pixels []T) T {
	var v [4]T
	for k, at := range c.at {
		if at >= 0 {
			v[k] = pixels[at]
		}
	}
	return T(c.w[0]*v[0]) + T(c.w[1]*v[1]) + T(c.w[2]*v[2]) + T(c.w[3]*v[3])
}

// columns writes what each place of the result sees of images from first on: (in·kernel, together·area).
func columns[T float](d *deform, first int, input, offset, mask, to []T) {
	area, kernel := d.outY*d.outX, d.kernelY*d.kernelX
	per := d.in / d.offsetGroups
	parallel(d.together*d.offsetGroups, 8*d.together*d.in*kernel*area, func(from, end int) {
		where, corners := make([]place[T], area), make([]corner[T], area)
		for n := from; n < end; n++ {
			image, group := n/d.offsetGroups, n%d.offsetGroups
			for k := range kernel {
				places(d, offset, mask, first+image, group, k/d.kernelX, k%d.kernelX, where)
				for at := range where {
					corners[at].around(d, where[at].y, where[at].x)
				}
				for c := group * per; c < (group+1)*per; c++ {
					pixels := input[((first+image)*d.in+c)*d.height*d.width:][:d.height*d.width]
					row := to[((c*kernel+k)*d.together+image)*area:][:area]
					for at := range row {
						row[at] = where[at].mask * corners[at].value(pixels)
					}
				}
			}
		}
	})
}

// alongY and alongX are how much the interpolated value changes with the place.
func slopes[T float](d *deform, pixels []T, y, x T) (alongY, alongX T) {
	if !(y > -2 && y < T(d.height)+1 && x > -2 && x < T(d.width)+1) {
		return 0, 0
	}
	top, left := int(math.Floor(float64(y))), int(math.Floor(float64(x)))
	var v [4]T
	for k := range v {
		row, column := top+k/2, left+k%2
		if row >= 0 && row < d.height && column >= 0 && column < d.width {
			v[k] = pixels[row*d.width+column]
		}
	}
	dx, dy := x-T(left), y-T(top)
	return T(dx*(v[3]-v[1])) + T((1-dx)*(v[2]-v[0])), T(dy*(v[3]-v[2])) + T((1-dy)*(v[1]-v[0]))
}

// gradients adds to those of the input, the offset and the mask, given that of columns.
func gradients[T float](d *deform, first int, input, offset, mask, grad, toInput, toOffset, toMask []T) {
	area, kernel, size := d.outY*d.outX, d.kernelY*d.kernelX, d.height*d.width
	per := d.in / d.offsetGroups
	parallel(d.together*d.offsetGroups, 30*d.together*d.in*kernel*area, func(from, end int) {
		where := make([]place[T], area)
		for n := from; n < end; n++ {
			image, group := n/d.offsetGroups, n%d.offsetGroups
			for k := range kernel {
				places(d, offset, mask, first+image, group, k/d.kernelX, k%d.kernelX, where)
				of := ((first+image)*d.offsetGroups + group) * kernel
				ys, xs := toOffset[(2*of+2*k)*area:][:area], toOffset[(2*of+2*k+1)*area:][:area]
				for c := group * per; c < (group+1)*per; c++ {
					pixels := input[((first+image)*d.in+c)*size:][:size]
					result := toInput[((first+image)*d.in+c)*size:][:size]
					row := grad[((c*kernel+k)*d.together+image)*area:][:area]
					for at, g := range row {
						p := &where[at]
						dy, dx := slopes(d, pixels, p.y, p.x)
						ys[at] += T(T(p.mask*dy) * g)
						xs[at] += T(T(p.mask*dx) * g)
						if d.masked {
							var c corner[T]
							c.around(d, p.y, p.x)
							toMask[(of+k)*area+at] += T(g * c.value(pixels))
						}
						if !(p.y > -2 && p.y < T(d.height)+1 && p.x > -2 && p.x < T(d.width)+1) {
							continue
						}
						for row := int(p.y) - 1; row <= int(p.y)+1; row++ {
							for column := int(p.x) - 1; column <= int(p.x)+1; column++ {
								dy, dx := T(math.Abs(float64(p.y-T(row)))), T(math.Abs(float64(p.x-T(column))))
								if row >= 0 && row < d.height && column >= 0 && column < d.width && dy < 1 && dx < 1 {
									weight := (1 - dy) * (1 - dx)
									result[row*d.width+column] += T(T(p.mask*weight) * g)
								}
							}
						}
					}
				}
			}
		}
	})
}

// memory is the numbers of a tensor that may be left out.
func memory[T float](t gotorch.Tensor) []T {
	if t.T == nil {
		return nil
	}
	return gotorch.Data[T](t)
}

// deformForward is given the input, the weight, the offset, and the mask and the bias or none.
func deformForward[T float](d *deform, in []gotorch.Tensor) []gotorch.Tensor {
	options := gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()}
	area, kernel := int64(d.outY*d.outX), int64(d.kernelY*d.kernelX)
	groups, blocks, out := int64(d.groups), int64(d.batch/d.together), int64(d.out)
	weight := in[1].View([]int64{groups, out / groups, -1})
	column := gotorch.Empty([]int64{groups, int64(d.in) * kernel / groups, int64(d.together) * area}, options)
	result := gotorch.Zeros([]int64{blocks, groups, out / groups, int64(d.together) * area}, options)
	for b := range blocks {
		columns(d, int(b)*d.together, memory[T](in[0]), memory[T](in[2]), memory[T](in[3]), memory[T](column))
		for g := range groups {
			result.Select(0, b).Select(0, g).AddMM_(weight.Select(0, g), column.Select(0, g))
		}
	}
	result = result.View([]int64{blocks, out, int64(d.together), int64(d.outY), int64(d.outX)}).Transpose(1, 2).
		Reshape([]int64{int64(d.batch), out, int64(d.outY), int64(d.outX)})
	if in[4].T != nil {
		result = result.Add(in[4].View([]int64{1, out, 1, 1}))
	}
	runtime.KeepAlive(column.T)
	return []gotorch.Tensor{result}
}

// deformBackward returns the gradients of what deformForward was given, and is given that of the result before.
func deformBackward[T float](d *deform, in []gotorch.Tensor) []gotorch.Tensor {
	grad, in := in[0], in[1:]
	options := gotorch.TensorOptions{DType: gotorch.DTypeOf[T]()}
	area, kernel := int64(d.outY*d.outX), int64(d.kernelY*d.kernelX)
	groups, blocks, out := int64(d.groups), int64(d.batch/d.together), int64(d.out)
	weight := in[1].View([]int64{groups, out / groups, -1})
	parts := grad.View([]int64{blocks, int64(d.together), groups, out / groups, int64(d.outY), int64(d.outX)}).
		Permute([]int64{0, 2, 3, 1, 4, 5}).Contiguous().View([]int64{blocks, groups, out / groups, int64(d.together) * area})
	column := gotorch.Empty([]int64{groups, int64(d.in) * kernel / groups, int64(d.together) * area}, options)
	ofInput, ofWeight, ofOffset, ofMask := gotorch.Zeros(in[0].Shape(), options), gotorch.Zeros(weight.Shape(), options), gotorch.Zeros(in[2].Shape(), options), gotorch.Tensor{}
	if d.masked {
		ofMask = gotorch.Zeros(in[3].Shape(), options)
	}
	for b := range blocks {
		column.Zero_()
		for g := range groups {
			column.Select(0, g).AddMM_(weight.Select(0, g).Transpose(0, 1), parts.Select(0, b).Select(0, g))
		}
		gradients(d, int(b)*d.together, memory[T](in[0]), memory[T](in[2]), memory[T](in[3]), memory[T](column), memory[T](ofInput), memory[T](ofOffset), memory[T](ofMask))
	}
	for b := range blocks {
		columns(d, int(b)*d.together, memory[T](in[0]), memory[T](in[2]), memory[T](in[3]), memory[T](column))
		for g := range groups {
			ofWeight.Select(0, g).AddMM_(parts.Select(0, b).Select(0, g), column.Select(0, g).Transpose(1, 0))
		}
	}
	results := []gotorch.Tensor{ofInput, ofWeight.View(in[1].Shape()), ofOffset, ofMask, {}}
	if in[4].T != nil {
		results[4] = grad.SumDim([]int64{0, 2, 3})
	}
	runtime.KeepAlive(column.T)
	return results
}

// deforming is the differentiable function: of the input, the weight, the offset, and the mask and the bias or none.
type deforming struct{ deform }

const deformOp = "ops.DeformConv2d"

func (f deforming) Forward(ctx *gotorch.FunctionContext, in []gotorch.Tensor) []gotorch.Tensor {
	ctx.SaveForBackward(in...)
	return numbers(deformOp, true, &f.deform, in, deformForward[float32], deformForward[float64])
}

func (f deforming) Backward(ctx *gotorch.FunctionContext, grads []gotorch.Tensor) []gotorch.Tensor {
	saved := ctx.SavedTensors()
	given := make([]bool, len(saved))
	all := gradient(deformOp, grads, func(grads []gotorch.Tensor) []gotorch.Tensor {
		results := numbers(deformOp, true, &f.deform, slices.Concat(grads[:1], saved), deformBackward[float32], deformBackward[float64])
		return slices.DeleteFunc(results, func(t gotorch.Tensor) bool { return t.T == nil })
	})
	for i, t := range saved {
		given[i] = t.T != nil
	}
	results := make([]gotorch.Tensor, len(saved))
	for i := range results {
		if given[i] {
			results[i], all = all[0], all[1:]
		}
	}
	return results
}

// DeformConv2dOptions are the arguments of [DeformConv2d] that have defaults.
type DeformConv2dOptions struct {
	Bias     gotorch.Tensor // (out); none: there is none
	Stride   []int64        // of one number or two; nil: 1
	Padding  []int64        // of one number or two; nil: 0
	Dilation []int64        // of one number or two; nil: 1
	Mask     gotorch.Tensor // (N, groups·height·width, H′, W′), what each sample is multiplied by; none: 1
}

// two returns the two numbers of a list of one or two.
func two(op, name string, list []int64, value, least int64) [2]int64 {
	if list == nil {
		return [2]int64{value, value}
	}
	if len(list) == 1 {
		list = []int64{list[0], list[0]}
	}
	if len(list) != 2 || min(list[0], list[1]) < least || max(list[0], list[1]) > 1<<30 {
		panic(args.ValueError(op, "%s must be one number or two, from %d on, and is %v", name, least, list))
	}
	return [2]int64{list[0], list[1]}
}

// DeformConv2d is a convolution whose window is deformed at each place: input (N, in, H, W), offset (N,
// 2·groups·height·width, H′, W′) and weight (out, in/weightGroups, height, width) → (N, out, H′, W′). The offset
// has how far down and right each element of the window is moved; it has as many groups of the input's channels as
// its size says. With a Mask it is version 2 of the paper.
//
// float32 and float64 are torchvision's to the last bit, half precision is computed in float32; all arguments have
// gradients, which have none themselves. It panics with a RuntimeError for shapes that do not fit each other and for
// dtypes that differ, and with a ValueError for options that are no sizes.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.deform_conv2d.html.
func DeformConv2d(input, offset, weight gotorch.Tensor, opts ...DeformConv2dOptions) gotorch.Tensor {
	const op = deformOp
	opt := args.Option(opts)
	shaped(op, "input", input, 4, 0, "(N, C, H, W)")
	shaped(op, "offset", offset, 4, 0, "(N, 2·groups·height·width, H, W)")
	shaped(op, "weight", weight, 4, 0, "(out, in/groups, height, width)")
	sameDType(op, "input", input, "offset", offset)
	sameDType(op, "input", input, "weight", weight)
	stride, padding, dilation := two(op, "Stride", opt.Stride, 1, 1), two(op, "Padding", opt.Padding, 0, 0), two(op, "Dilation", opt.Dilation, 1, 1)
	x, w, o := input.Shape(), weight.Shape(), offset.Shape()
	fail := func(format string, values ...any) { panic(args.Errorf(op, gotorch.RuntimeError, format, values...)) }
	if w[2] < 1 || w[3] < 1 || w[1] < 1 {
		fail("weight must have channels, a height and a width, and is of shape %v", w)
	}
	if o[1]%(2*w[2]*w[3]) != 0 || o[1] == 0 {
		fail("the offset's second dimension must be a positive multiple of 2 * %d * %d, and is %d", w[2], w[3], o[1])
	}
	groups, offsetGroups := x[1]/w[1], o[1]/(2*w[2]*w[3])
	if groups < 1 || x[1]%w[1] != 0 || w[0]%groups != 0 {
		fail("weight of shape %v does not fit %d channels of the input", w, x[1])
	}
	if x[1]%offsetGroups != 0 {
		fail("the offset has %d groups, and %d channels of the input are no multiple of that", offsetGroups, x[1])
	}
	size := func(i int) int64 {
		return (x[2+i]+2*padding[i]-dilation[i]*(w[2+i]-1)-1)/stride[i] + 1
	}
	for i := range 2 {
		if x[2+i]+2*padding[i] < dilation[i]*(w[2+i]-1)+1 {
			fail("the kernel is larger than the padded input of shape %v", x)
		}
	}
	d := deform{strideY: int(stride[0]), strideX: int(stride[1]), padY: int(padding[0]), padX: int(padding[1]), dilationY: int(dilation[0]), dilationX: int(dilation[1]),
		groups: int(groups), offsetGroups: int(offsetGroups), batch: int(x[0]), in: int(x[1]), height: int(x[2]), width: int(x[3]),
		out: int(w[0]), kernelY: int(w[2]), kernelX: int(w[3]), outY: int(size(0)), outX: int(size(1)), masked: opt.Mask.T != nil, together: together(int(x[0]))}
	if want := []int64{x[0], o[1], size(0), size(1)}; !slices.Equal(o, want) {
		fail("offset must be of shape %v here, and is of shape %v", want, o)
	}
	if d.masked {
		sameDType(op, "input", input, "Mask", opt.Mask)
		if want := []int64{x[0], o[1] / 2, size(0), size(1)}; !slices.Equal(opt.Mask.Shape(), want) {
			fail("Mask must be of shape %v here, and is of shape %v", want, opt.Mask.Shape())
		}
	}
	if opt.Bias.T != nil {
		sameDType(op, "input", input, "Bias", opt.Bias)
		if opt.Bias.Numel() != w[0] {
			fail("Bias must be of shape (%d), and is of shape %v", w[0], opt.Bias.Shape())
		}
	}
	return gotorch.Apply(deforming{d}, input, weight, offset, opt.Mask, opt.Bias)[0]
}

// DeformConv2dModule is what [NewDeformConv2d] makes.
type DeformConv2dModule struct {
	nn.Module
	Weight gotorch.Tensor // (out, in/groups, height, width)
	Bias   gotorch.Tensor // (out), or none

	InChannels, OutChannels               int64
	KernelSize, Stride, Padding, Dilation [2]int64
	Groups                                int64
}

// NewDeformConv2dOptions are the arguments of [NewDeformConv2d] that have defaults.
type NewDeformConv2dOptions struct {
	Stride   []int64        // of one number or two; nil: 1
	Padding  []int64        // of one number or two; nil: 0
	Dilation []int64        // of one number or two; nil: 1
	Groups   gotorch.Scalar // default: 1
	NoBias   bool
}

// NewDeformConv2d makes a layer with the weight of [DeformConv2d]; kernelSize is one number or two. It panics with a
// ValueError if Groups does not divide the channels, or a size is not positive.
//
// See https://docs.pytorch.org/vision/stable/generated/torchvision.ops.DeformConv2d.html.
func NewDeformConv2d(inChannels, outChannels int64, kernelSize []int64, opts ...NewDeformConv2dOptions) *DeformConv2dModule {
	const op = "ops.NewDeformConv2d"
	opt := args.Option(opts)
	m := &DeformConv2dModule{InChannels: inChannels, OutChannels: outChannels, Groups: args.Int(op, "Groups", opt.Groups, 1),
		KernelSize: two(op, "kernelSize", append([]int64{}, kernelSize...), 0, 1), Stride: two(op, "Stride", opt.Stride, 1, 1),
		Padding: two(op, "Padding", opt.Padding, 0, 0), Dilation: two(op, "Dilation", opt.Dilation, 1, 1)}
	switch {
	case inChannels < 1 || outChannels < 1 || m.Groups < 1:
		panic(args.ValueError(op, "channels and groups must be positive, got %d, %d and %d", inChannels, outChannels, m.Groups))
	case inChannels%m.Groups != 0:
		panic(args.ValueError(op, "in_channels must be divisible by groups"))
	case outChannels%m.Groups != 0:
		panic(args.ValueError(op, "out_channels must be divisible by groups"))
	}
	m.Weight = gotorch.Empty([]int64{outChannels, inChannels / m.Groups, m.KernelSize[0], m.KernelSize[1]})
	if !opt.NoBias {
		m.Bias = gotorch.Empty([]int64{outChannels})
	}
	nninit.KaimingUniform_(m.Weight, nninit.KaimingOptions{A: math.Sqrt(5)})
	if !opt.NoBias {
		bound := 1 / math.Sqrt(float64(inChannels/m.Groups*m.KernelSize[0]*m.KernelSize[1]))
		nninit.Uniform_(m.Bias, nninit.UniformOptions{A: -bound, B: bound})
	}
	return nn.Init(m)
}

// Forward returns [DeformConv2d] of the input and offset, with a mask unless that is the zero Tensor.
func (m *DeformConv2dModule) Forward(input, offset, mask gotorch.Tensor) gotorch.Tensor {
	return DeformConv2d(input, offset, m.Weight, DeformConv2dOptions{Bias: m.Bias, Stride: m.Stride[:], Padding: m.Padding[:], Dilation: m.Dilation[:], Mask: mask})
}

// ExtraRepr returns what String writes between the parentheses.
func (m *DeformConv2dModule) ExtraRepr() string {
	s := fmt.Sprintf("%d, %d, kernel_size=%s, stride=%s", m.InChannels, m.OutChannels, pySize(m.KernelSize[:]), pySize(m.Stride[:]))
	if m.Padding != [2]int64{} {
		s += ", padding=" + pySize(m.Padding[:])
	}
	if m.Dilation != [2]int64{1, 1} {
		s += ", dilation=" + pySize(m.Dilation[:])
	}
	if m.Groups != 1 {
		s += fmt.Sprintf(", groups=%d", m.Groups)
	}
	if m.Bias.T == nil {
		s += ", bias=False"
	}
	return s
}
