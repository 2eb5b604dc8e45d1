// Serve runs models for tests/serve/test_clients.py, over REST and gRPC, until its standard input ends. It prints
// the two addresses. With an argument it serves the folder of models, too, that it names (test_repository.py).
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/serve"
)

var types = []serve.DataType{serve.BOOL, serve.UINT8, serve.UINT16, serve.UINT32, serve.UINT64, serve.INT8, serve.INT16,
	serve.INT32, serve.INT64, serve.FP16, serve.BF16, serve.FP32, serve.FP64, serve.BYTES}

// upper is bytes.ToUpper for ASCII, and leaves what is no UTF-8 as it is.
func upper(text []byte) []byte {
	text = bytes.Clone(text)
	for i, c := range text {
		if 'a' <= c && c <= 'z' {
			text[i] = c - 'a' + 'A'
		}
	}
	return text
}

func main() {
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	registry := prometheus.NewRegistry()
	srv := serve.New(serve.Options{Name: "tested", Version: "7", Control: true, Metrics: registry, MaxQueue: 4, MaxRequestBytes: 8 << 20})
	add := func(name string, m serve.Model, opts ...serve.ModelOption) {
		if err := srv.Add(name, m, opts...); err != nil {
			log.Fatal(err)
		}
	}
	if len(os.Args) > 1 {
		err := srv.AddRepository(context.Background(), os.Args[1], serve.RepositoryOptions{Poll: 50 * time.Millisecond})
		if err != nil {
			log.Fatal(err)
		}
	}
	for _, t := range types {
		s := serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: t}}, Outputs: []serve.Spec{{Name: "y", Type: t}}}
		echo := func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			y := in.Inputs[0]
			y.Name = "y"
			return []serve.Value{y}, nil
		}
		add("echo_"+string(t), serve.NewModel(s, echo))
		s.Inputs[0].Shape, s.Outputs[0].Shape = nil, nil
		add("joined_"+string(t), serve.NewModel(s, echo), serve.Batching{Max: 16, Delay: 5 * time.Millisecond}, serve.Queue{Max: 64})
	}
	w, bias := gotorch.Linspace(-1, 1, 12).Reshape([]int64{4, 3}), gotorch.Linspace(0, 1, 3)
	add("net", serve.FromModel(func(x gotorch.Tensor) (p, h gotorch.Tensor) {
		h = x.MM(w).Add(bias).ReLU()
		return h.Softmax(1), h
	}, serve.Signature{
		Inputs: []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1, 4}}},
		Outputs: []serve.Spec{{Name: "p", Type: serve.FP32, Shape: []int64{-1, 3}},
			{Name: "h", Type: serve.FP32, Shape: []int64{-1, 3}}},
	}), serve.Batching{Max: 8, Delay: time.Millisecond, Preferred: []int{4}}, serve.Queue{Max: 64, Levels: 3})
	for _, version := range []string{"1", "2"} {
		add("upper", serve.NewModel(serve.Signature{
			Inputs:  []serve.Spec{{Name: "texts", Type: serve.BYTES, Shape: []int64{-1}}},
			Outputs: []serve.Spec{{Name: "texts", Type: serve.BYTES, Shape: []int64{-1}}, {Name: "lengths", Type: serve.INT64, Shape: []int64{-1}}},
		}, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
			texts := in.Input("texts")
			lengths := make([]int64, len(texts.Bytes))
			for i, b := range texts.Bytes {
				lengths[i] = int64(len(b))
				texts.Bytes[i] = upper(b)
				if suffix, ok := in.Parameters["suffix"].(string); ok {
					texts.Bytes[i] = append(bytes.Clone(texts.Bytes[i]), suffix...)
				}
			}
			return []serve.Value{texts, {Tensor: gotorch.FromSlice(lengths)}}, nil
		}), serve.Version(version), serve.Batching{Max: 8})
	}
	one := serve.Signature{Inputs: []serve.Spec{{Name: "x", Type: serve.FP32}}, Outputs: []serve.Spec{{Name: "y", Type: serve.FP32}}}
	add("fails", serve.NewModel(one, func(_ context.Context, in *serve.Request) ([]serve.Value, error) {
		switch in.Parameters["how"] {
		case "error":
			return nil, errors.New("no luck")
		case "argument":
			return nil, &serve.Error{Code: serve.InvalidArgument, Msg: "not this one"}
		case "torch":
			in.Inputs[0].Tensor.View([]int64{77})
		case "panic":
			panic("at the disco")
		case "exit":
			runtime.Goexit()
		}
		return []serve.Value{{Tensor: in.Inputs[0].Tensor}}, nil
	}))
	add("slow", serve.NewModel(one, func(ctx context.Context, in *serve.Request) ([]serve.Value, error) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Duration(gotorch.Item[float32](in.Inputs[0].Tensor) * float32(time.Second))):
		}
		return []serve.Value{{Tensor: in.Inputs[0].Tensor}}, nil
	}))

	mux := http.NewServeMux()
	mux.Handle("/", srv.HTTP())
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/left", func(w http.ResponseWriter, _ *http.Request) {
		json.NewEncoder(w).Encode(map[string]int64{"handles": gotorch.MemoryStats().LiveHandles, "goroutines": int64(runtime.NumGoroutine())})
	})
	rest, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(8 << 20))
	serve.RegisterGRPC(g, srv)
	h := &http.Server{Handler: mux}
	go g.Serve(listener)
	go h.Serve(rest)
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"rest": rest.Addr().String(), "grpc": listener.Addr().String()}); err != nil {
		log.Fatal(err)
	}
	io.Copy(io.Discard, os.Stdin)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	g.Stop()
	h.Close()
	if err := srv.Close(ctx); err != nil {
		log.Fatal(err)
	}
}
