// Package server is the server of package serve that `make bench-serve` measures: what docs/serving.md says, and no more.
package server

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof" // at -pprof
	"os"
	"slices"
	"time"

	"google.golang.org/grpc"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/serve"
)

// Spec is what a model takes and returns, as bench/serving/models.py has it.
type Spec struct {
	Input string
	Type  serve.DataType
	Shape []int64 // without the batch
	Out   []int64
	Batch int // the most rows in a batch; 0 for none
}

// Main serves the models of a folder that bench/serving/models.py has written until its input ends. It prints where.
// make is given the folder of the model with the weights; nil is for a model that it does not have.
func Main(make func(name, dir string) func(gotorch.Tensor) gotorch.Tensor) {
	name := flag.String("model", "mlp", "the model's name")
	pkg := flag.String("package", "", "another package of the model; by default that of its name")
	dir := flag.String("dir", "", "the folder with the models")
	batch := flag.Int("batch", -1, "the most rows in a batch; by default what the model's spec says")
	profile := flag.String("pprof", "", "address to profile at")
	direct := flag.Int("direct", 0, "call the model so often instead of serving it, and print what a call takes, in ns")
	least := flag.String("floor", "", "leave package serve out: wire is a server without a model, and call one that calls it at once")
	flag.Parse()
	of := make
	make = func(name, dir string) func(gotorch.Tensor) gotorch.Tensor { return of(cmp.Or(*pkg, name), dir) }
	if err := run(*name, *dir+"/"+*name, *batch, *profile, *direct, *least, make); err != nil {
		log.Fatal(err)
	}
}

func run(name, dir string, batch int, profile string, direct int, least string, make func(name, dir string) func(gotorch.Tensor) gotorch.Tensor) error {
	gotorch.SetNumThreads(1)
	text, err := os.ReadFile(dir + "/spec.json")
	if err != nil {
		return err
	}
	var spec Spec
	if err := json.Unmarshal(text, &spec); err != nil {
		return err
	}
	if batch < 0 {
		batch = spec.Batch
	}
	forward := make(name, dir)
	if direct > 0 {
		return json.NewEncoder(os.Stdout).Encode(call(forward, spec, direct))
	}
	rest, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	stop, err := begin(name, spec, forward, batch, least, rest, listener)
	if err != nil {
		return err
	}
	if profile != "" {
		go func() { log.Print(http.ListenAndServe(profile, nil)) }()
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"rest": rest.Addr().String(), "grpc": listener.Addr().String()}); err != nil {
		return err
	}
	io.Copy(io.Discard, os.Stdin)
	return stop()
}

// begin serves at two listeners.
func begin(name string, spec Spec, forward func(gotorch.Tensor) gotorch.Tensor, batch int, least string, rest, listener net.Listener) (stop func() error, err error) {
	switch least {
	case "":
	case "wire":
		return newFloor(name, spec, nil).serve(rest, listener), nil
	case "call":
		return newFloor(name, spec, forward).serve(rest, listener), nil
	default:
		return nil, fmt.Errorf("-floor is %q, and must be wire or call", least)
	}
	srv := serve.New(serve.Options{MaxQueue: 1024})
	err = srv.Add(name, serve.FromModel(forward, serve.Signature{
		Inputs:  []serve.Spec{{Name: spec.Input, Type: spec.Type, Shape: append([]int64{-1}, spec.Shape...)}},
		Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: append([]int64{-1}, spec.Out...)}},
	}), serve.Batching{Max: batch})
	if err != nil {
		return nil, err
	}
	web := &http.Server{Handler: srv.HTTP(), ReadTimeout: time.Minute}
	g := grpc.NewServer(serve.GRPCOptions(srv)...)
	serve.RegisterGRPC(g, srv)
	go web.Serve(rest)
	go g.Serve(listener)
	return func() error {
		g.Stop()
		web.Close()
		return srv.Close(context.Background())
	}, nil
}

// call measures a call of the model without a server: nanoseconds, the median.
func call(forward func(gotorch.Tensor) gotorch.Tensor, spec Spec, times int) float64 {
	shape := append([]int64{1}, spec.Shape...)
	size := spec.Type.Size()
	for _, n := range shape {
		size *= int(n)
	}
	data := make([]byte, size)
	once := func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			gotorch.InferenceMode(func() { gotorch.RawData(forward(gotorch.FromRaw(data, spec.Type.DType(), shape...))) })
		})
	}
	for range times/10 + 1 {
		once()
	}
	all := make([]time.Duration, times)
	for i := range all {
		begin := time.Now()
		once()
		all[i] = time.Since(begin)
	}
	slices.Sort(all)
	return float64(all[times/2])
}
