package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"

	"gotorch.dev/gotorch"
)

// The floor answers a request with the bytes that package serve answers it with; without a model they are as many.
func TestTheFloorAnswersAsPackageServeDoes(t *testing.T) {
	spec := Spec{Input: "x", Type: "FP32", Shape: []int64{2, 3}, Out: []int64{3}, Batch: 4}
	forward := func(x gotorch.Tensor) gotorch.Tensor {
		return x.SumDim([]int64{1}).MulScalar(-2)
	}
	var row []byte
	for i := range 6 {
		row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(i)))
	}
	field := func(to []byte, n protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, n, protowire.BytesType), value)
	}
	input := field(field(field(nil, 1, []byte("x")), 2, []byte("FP32")), 3, []byte{1, 2, 3})
	message := field(field(field(nil, 1, []byte("sums")), 5, input), 7, row)
	head := `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2,3],"parameters":{"binary_data_size":24}}],"parameters":{"binary_data_output":true}}`

	type answer struct {
		rest, length string
		grpc         []byte
	}
	ask := func(least string) answer {
		var listeners [2]net.Listener
		for i := range listeners {
			var err error
			if listeners[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
				t.Fatal(err)
			}
		}
		stop, err := begin("sums", spec, forward, spec.Batch, least, listeners[0], listeners[1])
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		r, err := http.NewRequest("POST", fmt.Sprintf("http://%s/v2/models/sums/infer", listeners[0].Addr()), bytes.NewReader(append([]byte(head), row...)))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(head)))
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != 200 {
			t.Fatalf("floor %q: status %d, %v: %s", least, res.StatusCode, err, body)
		}
		conn, err := grpc.NewClient("passthrough:///"+listeners[1].Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		a := answer{rest: string(body), length: res.Header.Get("Inference-Header-Content-Length")}
		if err := conn.Invoke(context.Background(), "/inference.GRPCInferenceService/ModelInfer", message, &a.grpc); err != nil {
			t.Fatalf("floor %q: %v", least, err)
		}
		return a
	}
	served, called, wired := ask(""), ask("call"), ask("wire")
	var want []byte
	for _, sum := range []float32{-6, -10, -14} { // -2 times 0+3, 1+4, 2+5
		want = binary.LittleEndian.AppendUint32(want, math.Float32bits(sum))
	}
	if !bytes.HasSuffix([]byte(served.rest), want) || !bytes.HasSuffix(served.grpc, want) {
		t.Fatalf("package serve answers %q and %q, without %q", served.rest, served.grpc, want)
	}
	if called.rest != served.rest || called.length != served.length || !bytes.Equal(called.grpc, served.grpc) {
		t.Errorf("package serve answers %q and %q, and the floor %q and %q", served.rest, served.grpc, called.rest, called.grpc)
	}
	if len(wired.rest) != len(served.rest) || wired.length != served.length || len(wired.grpc) != len(served.grpc) {
		t.Errorf("package serve answers with %d and %d bytes, and the floor without a model with %d and %d",
			len(served.rest), len(served.grpc), len(wired.rest), len(wired.grpc))
	}
	if _, err := begin("sums", spec, forward, 0, "none", nil, nil); err == nil {
		t.Error("a floor of another name is taken")
	}
}
