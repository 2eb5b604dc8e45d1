package middleware

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
)

// TLSOptions are the arguments of [TLS] that have defaults.
type TLSOptions struct {
	// ClientCA is a file of certificates in PEM. Clients must then show a certificate that one of them has signed:
	// mutual TLS. Default: clients need none.
	ClientCA string
	// MinVersion is the oldest version of TLS that is spoken. Default: tls.VersionTLS12.
	MinVersion uint16
	// Log is told of new files that are wrong. Default: slog.Default().
	Log *slog.Logger
}

// TLS returns a configuration for servers, of HTTP and of gRPC, with a certificate (its chain, in PEM) and its key from
// files. When a file changes the next connection gets what is in it; those that are there stay.
//
// Each http.Server needs a Clone of its own: net/http changes its configuration when it begins to serve.
//
// The error says which file cannot be read, or is no certificate, or does not go with the key.
func TLS(cert, key string, opts ...TLSOptions) (*tls.Config, error) {
	var o TLSOptions
	if len(opts) > 0 {
		o = opts[0]
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.MinVersion == 0 {
		o.MinVersion = tls.VersionTLS12
	}
	if o.MinVersion < tls.VersionTLS12 || o.MinVersion > tls.VersionTLS13 {
		return nil, fmt.Errorf("middleware: TLSOptions.MinVersion is %#x, and must be tls.VersionTLS12 or tls.VersionTLS13: older ones are broken", o.MinVersion)
	}
	paths := []string{cert, key}
	if o.ClientCA != "" {
		paths = append(paths, o.ClientCA)
	}
	load := func() (*tls.Config, error) {
		config := &tls.Config{MinVersion: o.MinVersion, NextProtos: []string{"h2", "http/1.1"}}
		certPEM, err := read(cert)
		if err != nil {
			return nil, fmt.Errorf("middleware: the certificate: %w", err)
		}
		keyPEM, err := read(key)
		if err != nil {
			return nil, fmt.Errorf("middleware: the certificate's key: %w", err)
		}
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			return nil, fmt.Errorf("middleware: %s and %s are no certificate and its key: %w", cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
		if o.ClientCA != "" {
			pem, err := read(o.ClientCA)
			if err != nil {
				return nil, fmt.Errorf("middleware: the certificates that sign clients': %w", err)
			}
			config.ClientCAs = x509.NewCertPool()
			if !config.ClientCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("middleware: %s has no certificate in PEM", o.ClientCA)
			}
			config.ClientAuth = tls.RequireAndVerifyClientCert
		}
		return config, nil
	}
	files, err := watch(paths, load, func(err error) {
		o.Log.Error("middleware: new certificates are wrong, and the old ones stay", "error", err)
	})
	if err != nil {
		return nil, err
	}
	config := files.get().Clone()
	config.Certificates = nil // so that nobody takes these by mistake: they may be old
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &files.get().Certificates[0], nil
	}
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return files.get(), nil }
	return config, nil
}
