// Package serve is a model server as a library: it takes requests of the Open Inference Protocol (KServe v2),
// which Triton, KServe and their clients speak, over REST and gRPC, joins those that fit together into batches,
// and runs models on them.
//
//	srv := serve.New(serve.Options{Metrics: prometheus.DefaultRegisterer, MaxQueue: 256})
//	err := srv.Add("digits", serve.FromModel(net.Forward), serve.Batching{Max: 64, Delay: 2 * time.Millisecond})
//	http.Handle("/", srv.HTTP())    // REST, in your own server with your own middleware
//	serve.RegisterGRPC(g, srv)      // gRPC, on your own grpc.Server
//	defer srv.Close(ctx)            // waits for the requests that are there
//
// A [Model] is anything with a [Signature] and a method Run. [FromModel] makes one of a function of tensors, such as
// the Forward of a module or of a package that export_go wrote; [FromAOTI] of an AOTInductor package;
// [FromTorchScript] of a TorchScript module; [NewModel] of a function that sees the whole request, for pre- and post-processing, texts among the inputs, parameters; [FromGraph] of
// a folder that pb.export_model wrote. [Server.AddRepository] serves a whole folder of these, and follows it as it
// changes. With [Sequences] a model keeps state between requests that belong together.
//
// A request waits in its model's queue until an instance is free and its batch is full, or has waited for
// Batching.Delay. A full queue refuses: 429 over REST, RESOURCE_EXHAUSTED over gRPC. A client that goes away takes
// its request out of the queue, and leaves one that runs at once.
//
// Run is called within a [gotorch.Scope] and in inference mode: the tensors of a request are freed when its batch has
// run, and nothing is left to the collector. A model that panics, or ends its goroutine, fails the requests that it was
// run for, and no others.
//
// Errors are [*Error] with a [Code], which decides the status that a client sees.
package serve
