package serve

import "slices"

// Raw binary requests: the header Inference-Header-Content-Length is 0, there is no JSON, and the body is the data of the
// model's one input. All outputs are wanted, as binary data.

// raw reads a body that is an input. describe says which one, by the body's size.
func (b *body) raw(req *request, describe func(size int64) (input, error)) error {
	const what = "the data of the input"
	if b.whole >= largeInput {
		in, err := describe(b.whole)
		if err != nil {
			return err
		}
		if in.typ != BYTES {
			req.inputs = []input{in}
			return b.binary(&req.inputs[0], b.whole)
		}
	}
	data, err := b.upTo(b.arena(int(min(max(b.whole, 512), firstPiece))), b.whole, what)
	if err != nil {
		return err
	}
	in, err := describe(int64(len(data)))
	if err != nil {
		return err
	}
	if in.typ == BYTES { // the body is the one text, without its length
		if err := b.take(textHeader); err != nil {
			return err
		}
		in.bytes = [][]byte{data}
	} else {
		n, _ := elements(in.shape)
		if err := checkRaw(in.name, in.typ, n, data); err != nil {
			return err
		}
		in.raw = data
	}
	req.inputs = []input{in}
	return nil
}

// rawShape returns the input that so many bytes are, without its data. With batching that is one row, unless the rows are all
// that is open.
func (v *version) rawShape(size int64) (input, error) {
	wrong := func(format string, values ...any) (input, error) {
		return input{}, newError(InvalidArgument, "a request without JSON (Inference-Header-Content-Length is 0) "+format, values...)
	}
	if n := len(v.signature.Inputs); n != 1 {
		return wrong("is for models with one input, and this one has %d", n)
	}
	spec := v.signature.Inputs[0]
	in := input{name: spec.Name, typ: spec.Type, shape: slices.Clone(spec.Shape)}
	if spec.Shape == nil {
		in.shape = []int64{-1}
	}
	if spec.Type == BYTES {
		for i, n := range in.shape {
			if n != -1 && n != 1 {
				return wrong("has one text, and input %v has more", spec)
			}
			in.shape[i] = 1
		}
		return in, nil
	}
	open := -1
	for i, n := range slices.Backward(in.shape) {
		switch {
		case n != -1:
		case open < 0:
			open = i
		case i == 0 && v.options.batching.Max > 0:
			in.shape[0] = 1
		default:
			return wrong("has no sizes, and more than one of input %v is open", spec)
		}
	}
	if open < 0 {
		return in, nil // whether the size is the shape's is looked at with the data
	}
	in.shape[open] = 1
	each, ok := elements(in.shape)
	if ok {
		each *= spec.Type.Size()
	}
	if each == 0 || size%int64(each) != 0 {
		return wrong("has %d bytes, which are no multiple of %d, as input %v would have", size, each, spec)
	}
	in.shape[open] = size / int64(each)
	return in, nil
}
