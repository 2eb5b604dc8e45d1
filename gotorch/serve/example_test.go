package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/nn"
	"gotorch.dev/gotorch/serve"
)

func Example() {
	net := nn.Linear(2, 1)
	gotorch.NoGrad(func() {
		net.Weight.Fill_(2)
		net.Bias.Fill_(1)
	})

	srv := serve.New(serve.Options{MaxQueue: 256})
	err := srv.Add("line", serve.FromModel(net.Forward, serve.Signature{
		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 2}}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{-1, 1}}},
	}), serve.Batching{Max: 64, Delay: 2 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	web := httptest.NewServer(srv.HTTP())
	defer web.Close()

	res, err := http.Post(web.URL+"/v2/models/line/infer", "application/json",
		strings.NewReader(`{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [3, 4]}]}`))
	if err != nil {
		log.Fatal(err)
	}
	defer res.Body.Close()
	answer, _ := io.ReadAll(res.Body)
	fmt.Println(string(answer))
	fmt.Println(srv.Close(context.Background()))
	// Output:
	// {"model_name":"line","model_version":"1","outputs":[{"name":"y","datatype":"FP32","shape":[1,1],"data":[15.0]}]}
	// <nil>
}

// A model with pre- and post-processing in Go: it takes texts, and sees the whole batch.
func ExampleNewModel() {
	embedding := gotorch.Arange(128).To(gotorch.Float32) // of each letter
	model := serve.NewModel(serve.Signature{
		Inputs:  []serve.Spec{{Name: "texts", Type: serve.BYTES, Shape: []int64{-1}}},
		Outputs: []serve.Spec{{Name: "score", Type: serve.FP32, Shape: []int64{-1}}},
	}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		texts := in.Input("texts").Texts()
		scores := make([]gotorch.Tensor, len(texts))
		for i, text := range texts {
			letters := make([]int64, len(text))
			for j, b := range []byte(text) {
				if b >= 128 {
					return nil, &serve.Error{Code: serve.InvalidArgument, Msg: "a text has letters that are not ASCII"}
				}
				letters[j] = int64(b)
			}
			scores[i] = embedding.IndexSelect(0, gotorch.FromSlice(letters)).Sum()
		}
		return []serve.Value{{Tensor: gotorch.Stack(scores)}}, nil
	})

	srv := serve.New()
	defer srv.Close(context.Background())
	if err := srv.Add("score", model, serve.Batching{Max: 32}); err != nil {
		log.Fatal(err)
	}
	out, err := srv.Infer(context.Background(), serve.InferRequest{
		Model: "score", Inputs: []serve.Value{serve.NewTexts("texts", []string{"a", "bc"})},
	})
	fmt.Println(out[0].Tensor, err)
	_, err = srv.Infer(context.Background(), serve.InferRequest{
		Model: "score", Inputs: []serve.Value{serve.NewTexts("texts", []string{"ä"})},
	})
	fmt.Println(err)
	// Output:
	// tensor([ 97., 197.]) <nil>
	// serve: model score, version 1: INVALID_ARGUMENT: a text has letters that are not ASCII
}

func ExampleServer_Unload() {
	srv := serve.New()
	defer srv.Close(context.Background())
	twice := serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) })
	for _, version := range []serve.Version{"1", "2"} {
		if err := srv.Add("twice", twice, version); err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	fmt.Println(srv.Unload(ctx, "twice", "2"), srv.Ready("twice", "2"), srv.Ready("twice", ""))
	fmt.Println(srv.Unload(ctx, "thrice", ""))
	err := srv.Unload(ctx, "twice", "")
	_, inferErr := srv.Infer(ctx, serve.InferRequest{Model: "twice"})
	fmt.Println(err, errors.Is(inferErr, serve.Unavailable))
	// Output:
	// <nil> false true
	// serve: NOT_FOUND: there is no model "thrice"
	// <nil> true
}

func ExampleRegisterGRPC() {
	srv := serve.New()
	defer srv.Close(context.Background())
	g := grpc.NewServer(serve.GRPCOptions(srv)...)
	serve.RegisterGRPC(g, srv)
	for name := range g.GetServiceInfo() {
		fmt.Println(name)
	}
	// Output: inference.GRPCInferenceService
}

// A folder of models: what does not load is in the index of models, with the reason, and harms nothing else.
func ExampleServer_AddRepository() {
	dir, err := os.MkdirTemp("", "models-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	srv := serve.New(serve.Options{Log: slog.New(slog.DiscardHandler)})
	err = srv.AddRepository(ctx, dir, serve.RepositoryOptions{Poll: 5 * time.Second})
	fmt.Println(err, srv.Ready("digits", ""))
	fmt.Println(srv.Close(ctx))
	// Output:
	// <nil> false
	// <nil>
}

// A model in Go that counts, for each sequence of requests, how many there were.
func ExampleSequences() {
	count := serve.NewModel(serve.Signature{
		Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{1}}},
		Outputs: []serve.Spec{{Name: "n", Type: serve.INT64, Shape: []int64{1}}},
	}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		s := in.Sequences[0]
		n, _ := s.State.(int64)
		s.State = n + 1
		return []serve.Value{{Tensor: gotorch.FromSlice([]int64{n + 1})}}, nil
	})
	srv := serve.New()
	if err := srv.Add("count", count, serve.Sequences{Max: 100}); err != nil {
		fmt.Println(err)
		return
	}
	for i := range 3 {
		out, err := srv.Infer(context.Background(), serve.InferRequest{Model: "count",
			Inputs:     []serve.Value{{Name: "x", Tensor: gotorch.Zeros([]int64{1})}},
			Parameters: serve.Parameters{"sequence_id": "mine", "sequence_start": i == 0, "sequence_end": i == 2}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(gotorch.Item[int64](out[0].Tensor))
	}
	fmt.Println(srv.Close(context.Background()))
	// Output:
	// 1
	// 2
	// 3
	// <nil>
}
