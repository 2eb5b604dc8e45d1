package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
)

// Floor is the least that a server in Go can do, beside which `make bench-serve` puts package serve: net/http and grpc-go as
// they are, which read a request to its end, and answer with what package serve would answer to it. There is no queue, and
// nothing of a request is looked at: it has a row, of which the bytes are its last.
type floor struct {
	forward    func(gotorch.Tensor) gotorch.Tensor // nil: the answer is zeros
	spec       Spec
	shape      []int64
	rest, grpc []byte // an answer, of which the numbers are the last bytes
	head       string // how long the JSON of rest is
	in, out    int    // bytes of a row
}

func newFloor(name string, spec Spec, forward func(gotorch.Tensor) gotorch.Tensor) *floor {
	f := &floor{forward: forward, spec: spec, shape: append([]int64{1}, spec.Shape...), in: spec.Type.Size(), out: 4}
	for _, n := range spec.Shape {
		f.in *= int(n)
	}
	shape, packed := "1", protowire.AppendVarint(nil, 1)
	for _, n := range spec.Out {
		f.out *= int(n)
		shape += "," + strconv.FormatInt(n, 10)
		packed = protowire.AppendVarint(packed, uint64(n))
	}
	numbers := make([]byte, f.out)
	head := fmt.Sprintf(`{"model_name":%q,"model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[%s],`+
		`"parameters":{"binary_data_size":%d}}]}`, name, shape, f.out)
	f.head, f.rest = strconv.Itoa(len(head)), append([]byte(head), numbers...)
	field := func(to []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), value)
	}
	// ModelInferResponse has 1 model_name, 2 model_version, 5 outputs, with 1 name, 2 datatype, 3 shape, and 6 raw_output_contents.
	message := field(field(nil, 1, []byte(name)), 2, []byte("1"))
	message = field(message, 5, field(field(field(nil, 1, []byte("y")), 2, []byte("FP32")), 3, packed))
	f.grpc = field(message, 6, numbers)
	return f
}

// answer is like, with the model's numbers for a request.
func (f *floor) answer(like, request []byte) ([]byte, error) {
	if f.forward == nil {
		return like, nil
	}
	if len(request) < f.in {
		return nil, fmt.Errorf("a request of %d bytes has no row", len(request))
	}
	out := append([]byte(nil), like...)
	gotorch.Scope0(func(*gotorch.ScopeHandle) {
		gotorch.InferenceMode(func() {
			y := f.forward(gotorch.FromRaw(request[len(request)-f.in:], f.spec.Type.DType(), f.shape...))
			copy(out[len(out)-f.out:], gotorch.RawData(y))
		})
	})
	return out, nil
}

func (f *floor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	request := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, request)
	var out []byte
	if err == nil {
		out, err = f.answer(f.rest, request)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Inference-Header-Content-Length", f.head)
	h.Set("Content-Length", strconv.Itoa(len(out)))
	w.Write(out)
}

// bytesCodec leaves messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (f *floor) serve(rest, overGRPC net.Listener) (stop func() error) {
	web := &http.Server{Handler: f, ReadTimeout: time.Minute}
	g := grpc.NewServer(grpc.ForceServerCodecV2(bytesCodec{}), grpc.MaxRecvMsgSize(64<<20),
		grpc.NumStreamWorkers(uint32(4*runtime.GOMAXPROCS(0))))
	infer := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var request []byte
		if err := decode(&request); err != nil {
			return nil, err
		}
		return f.answer(f.grpc, request)
	}
	g.RegisterService(&grpc.ServiceDesc{ServiceName: "inference.GRPCInferenceService", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "ModelInfer", Handler: infer}}}, nil)
	go web.Serve(rest)
	go g.Serve(overGRPC)
	return func() error {
		g.Stop()
		return web.Close()
	}
}
