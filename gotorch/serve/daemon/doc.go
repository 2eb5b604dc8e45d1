// Package daemon is the command gotorch-serve as a library: a model server as a process of its own, with listeners,
// certificates, tokens, limits, logs, metrics, traces, a page to try models out, and an orderly end. A program with models of
// its own, written in Go, gets all of that with
//
//	func main() {
//		os.Exit(daemon.Main(daemon.Options{
//			Name:    "shop",
//			Version: "1.4.0",
//			Setup: func(ctx context.Context, srv *serve.Server) error {
//				return srv.Add("digits", serve.FromModel(net.Forward, signature), serve.Batching{Max: 64})
//			},
//		}))
//	}
//
// [Main] reads flags, the environment and a file (shop --help lists what can be set), says everything that is wrong with
// them at once, and handles signals. [Run] is the part of it for programs that make their [Config] themselves, and
// [Load] the one that reads it.
//
// While models are loaded the server is alive and not ready. When it is told to end (SIGTERM) it says at once that it is
// not ready, goes on serving for Config.Drain, so that balancers notice, then takes nothing new, answers what it has
// taken, and returns. What is not done after Config.Shutdown is cut short, and so is everything at a second signal.
package daemon
