package serve_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/testhelp"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/serve"
	pb "gotorch.dev/gotorch/serve/internal/inferencepb"
)

// BenchmarkOverhead is one client that asks for one row at a time: the model alone, in the server's queue, and over the
// wire. alive is a call of gRPC that does nothing.
//
//	go test ./gotorch/serve -run '^$' -bench Overhead -count 5
func BenchmarkOverhead(b *testing.B) {
	net_ := nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
	srv := newServer(b)
	testhelp.Must(b, srv.Add("mlp", serve.FromModel(net_.Forward, serve.Signature{
		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 64}}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{-1, 10}}},
	}), serve.Batching{Max: 64}))
	x := gotorch.Randn([]int64{1, 64})
	raw := bytes.Clone(gotorch.RawData(x))
	ctx := context.Background()

	b.Run("direct", func(b *testing.B) {
		for b.Loop() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) { gotorch.InferenceMode(func() { net_.Forward(x) }) })
		}
	})
	b.Run("queue", func(b *testing.B) {
		for b.Loop() {
			gotorch.Scope0(func(*gotorch.ScopeHandle) {
				_, err := srv.Infer(ctx, serve.InferRequest{Model: "mlp", Inputs: []serve.Value{{Name: "x", Tensor: x}}})
				testhelp.Must(b, err)
			})
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(b, err)
	web := &http.Server{Handler: srv.HTTP()}
	go web.Serve(l)
	defer web.Close()
	b.Run("REST", func(b *testing.B) {
		head := `{"inputs":[{"name":"x","datatype":"FP32","shape":[1,64],"parameters":{"binary_data_size":256}}],"parameters":{"binary_data_output":true}}`
		for b.Loop() {
			r, err := http.NewRequest("POST", "http://"+l.Addr().String()+"/v2/models/mlp/infer", bytes.NewReader(append([]byte(head), raw...)))
			testhelp.Must(b, err)
			r.Header.Set("Inference-Header-Content-Length", fmt.Sprint(len(head)))
			res, err := http.DefaultClient.Do(r)
			testhelp.Must(b, err)
			if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != 200 {
				b.Fatal(res.StatusCode, err)
			}
			res.Body.Close()
		}
	})
	l2, err := net.Listen("tcp", "127.0.0.1:0")
	testhelp.Must(b, err)
	g := grpc.NewServer()
	serve.RegisterGRPC(g, srv)
	go g.Serve(l2)
	defer g.Stop()
	conn, err := grpc.NewClient(l2.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	testhelp.Must(b, err)
	defer conn.Close()
	client := pb.NewGRPCInferenceServiceClient(conn)
	b.Run("gRPC", func(b *testing.B) {
		request := &pb.ModelInferRequest{ModelName: "mlp", RawInputContents: [][]byte{raw},
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "FP32", Shape: []int64{1, 64}}}}
		for b.Loop() {
			_, err := client.ModelInfer(ctx, request)
			testhelp.Must(b, err)
		}
	})
	b.Run("alive", func(b *testing.B) {
		for b.Loop() {
			_, err := client.ServerLive(ctx, &pb.ServerLiveRequest{})
			testhelp.Must(b, err)
		}
	})
}
