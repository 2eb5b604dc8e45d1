package serve

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"gotorch.dev/gotorch"
)

// InferRequest is a request from the server's own program.
type InferRequest struct {
	Model   string
	Version string // default: the highest
	Inputs  []Value
	// Outputs are the names of those that are wanted. Default: all.
	Outputs    []string
	Parameters Parameters
	Priority   int           // see Queue.Levels
	Timeout    time.Duration // how long it may wait until it runs; default: as long as ctx lasts
}

// Infer runs a model as a client's request would be run: in its queue, joined with others, counted. Inputs are copied
// before it returns or waits, so they may be closed; outputs belong to the [gotorch.Scope] of the caller, or to the
// collector. The error is an [*Error].
func (s *Server) Infer(ctx context.Context, r InferRequest) (outputs []Value, err error) {
	in := request{model: r.Model, version: r.Version, params: r.Parameters, outputs: r.Outputs, priority: int64(r.Priority),
		timeout: r.Timeout, free: func() {}}
	if err := checkParameters(r.Parameters); err != nil {
		return nil, err
	}
	in.params = maps.Clone(r.Parameters)
	if err := in.takeTriton(); err != nil {
		return nil, err
	}
	if err := in.takeSequence(); err != nil {
		return nil, err
	}
	err = gotorch.Try0(func() {
		for _, v := range r.Inputs {
			one := input{name: v.Name, typ: BYTES, shape: slices.Clone(v.Shape), bytes: v.Bytes}
			if v.Tensor.Defined() {
				gotorch.Scope0(func(*gotorch.ScopeHandle) {
					t := dense(v.Tensor)
					one = input{name: v.Name, typ: TypeOf(t.DType()), shape: t.Shape(), raw: bytes.Clone(gotorch.RawData(t))}
				})
			} else {
				one.bytes = make([][]byte, len(v.Bytes))
				for i, b := range v.Bytes {
					one.bytes[i] = bytes.Clone(b)
				}
			}
			in.inputs = append(in.inputs, one)
		}
	})
	if err != nil {
		return nil, &Error{Code: InvalidArgument, Model: r.Model, Msg: err.Error(), cause: err}
	}
	for _, one := range in.inputs {
		if n, ok := elements(one.shape); one.typ == BYTES && (!ok || n != len(one.bytes)) {
			return nil, newError(InvalidArgument, "input %q has %d elements, which are none of shape %v", one.name, len(one.bytes), one.shape)
		}
	}
	out, err := s.infer(ctx, &in)
	if err != nil {
		return nil, err
	}
	defer out.release()
	for _, o := range out.job.out {
		v := Value{Name: o.name, Shape: o.shape}
		if o.typ == BYTES {
			v.Bytes = make([][]byte, len(o.bytes))
			for i, b := range o.bytes {
				v.Bytes[i] = bytes.Clone(b)
			}
		} else {
			v.Tensor = gotorch.FromRaw(o.raw, o.typ.DType(), append([]int64{}, o.shape...)...)
		}
		outputs = append(outputs, v)
	}
	return outputs, nil
}

// checkParameters refuses what no client could send.
func checkParameters(p Parameters) error {
	for name, value := range p {
		switch value.(type) {
		case bool, int64, uint64, float64, string:
		default:
			return newError(InvalidArgument, "parameter %q is %s, where one is a bool, int64, uint64, float64 or string", name, fmt.Sprintf("%T", value))
		}
	}
	return nil
}
