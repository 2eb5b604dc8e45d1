// Package middleware has what stands in front of a model server that others can reach: certificates, tokens, a limit for
// connections, and a log of requests. Each part goes alone into an http.Server or a grpc.Server of your own; the command
// gotorch-serve and package daemon use all of them.
//
//	tokens, err := middleware.OpenTokens("tokens")   // lines of: NAME ROLES TOKEN [EXPIRES]
//	config, err := middleware.TLS("cert.pem", "key.pem", middleware.TLSOptions{ClientCA: "clients.pem"})
//	logged := middleware.Log(slog.Default())
//	web := &http.Server{
//		Handler:   logged.HTTP(tokens.HTTP(srv.HTTP())),
//		TLSConfig: config.Clone(), // net/http changes it
//	}
//	middleware.LimitConnections(web, 1000)
//	go web.ServeTLS(listener, "", "")
//	g := grpc.NewServer(append(serve.GRPCOptions(srv, serve.GRPCLimits{
//		Credentials: credentials.NewTLS(config),
//		Connections: 1000,
//		Admit:       tokens.Admit,
//	}),
//		grpc.ChainUnaryInterceptor(logged.Unary, tokens.Unary),
//		grpc.ChainStreamInterceptor(logged.Stream, tokens.Stream),
//	)...)
//	serve.RegisterGRPC(g, srv)
//
// The files of certificates and tokens are looked at again when they are used, at most once a second, and read when they
// have changed. A new file that is wrong changes nothing, and is logged. There is no goroutine, and nothing to close.
package middleware
