package daemon_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/serve"
	"gotorch.dev/gotorch/serve/daemon"
)

// A server with a model of its own, which is told to end as soon as it is ready.
func ExampleRun() {
	config := daemon.Default()
	config.HTTP, config.GRPC, config.Metrics = "127.0.0.1:0", "", ""
	config.Drain = 0

	ctx, end := context.WithCancel(context.Background())
	err := daemon.Run(ctx, config, daemon.Options{
		Log: slog.New(slog.DiscardHandler),
		Setup: func(_ context.Context, srv *serve.Server) error {
			return srv.Add("double", serve.FromModel(func(x gotorch.Tensor) gotorch.Tensor { return x.MulScalar(2) }, serve.Signature{
				Inputs:  []serve.Spec{{Name: "x", Type: serve.FP32, Shape: []int64{-1}}},
				Outputs: []serve.Spec{{Name: "y", Type: serve.FP32, Shape: []int64{-1}}},
			}))
		},
		Ready: func(at daemon.Addresses) {
			defer end()
			res, err := http.Get("http://" + at.HTTP.String() + "/v2/models/double/ready")
			if err != nil {
				fmt.Println(err)
				return
			}
			res.Body.Close()
			fmt.Println(res.StatusCode)
		},
	})
	fmt.Println(err)
	// Output:
	// 200
	// <nil>
}

// Everything that is wrong is said at once.
func ExampleLoad() {
	_, err := daemon.Load("", []string{"GOTORCH_SERVE_DRAIN=soon"}, [][2]string{{"http", "8000"}, {"log.level", "loud"}})
	var wrong *daemon.ConfigError
	fmt.Println(errors.As(err, &wrong))
	fmt.Println(err)
	// Output:
	// true
	// GOTORCH_SERVE_DRAIN: drain is "soon": it must be a duration, such as 30s or 1m30s
	// --http: http is "8000": it must be an address such as :8000 or 127.0.0.1:8000
	// --log.level: log.level is "loud": it must be debug, info, warn or error
}
