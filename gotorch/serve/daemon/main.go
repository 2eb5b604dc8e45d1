package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"gotorch.dev/gotorch/serve/middleware"
)

// The exit codes of [Main].
const (
	ExitDone     = 0 // it was told to end, and all requests were answered
	ExitFailed   = 1 // it could not start, or not go on
	ExitUsage    = 2 // the flags or the configuration are wrong; nothing was started
	ExitCutShort = 3 // it was told to end, and requests were cut short
)

// Main is a program: it reads the command line, the environment and the file that --config names, serves until SIGTERM,
// SIGINT or SIGHUP, and returns the exit code. A second signal ends it at once.
func Main(opts ...Options) int {
	return start(os.Args[1:], os.Environ(), os.Stdout, os.Stderr, one(opts))
}

func start(args, environment []string, stdout, stderr io.Writer, o Options) int {
	c, err := parse(o.Name, args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return ExitDone
	case err != nil:
		return ExitUsage
	case c.version:
		fmt.Fprintln(stdout, o.Name, version(o.Version))
		return ExitDone
	}
	config, err := Load(c.config, environment, c.flags)
	if err != nil {
		fmt.Fprintf(stderr, "%s: the configuration is wrong:\n%v\n", o.Name, err)
		return ExitUsage
	}
	if c.check {
		fmt.Fprintln(stdout, "the configuration is right")
		return ExitDone
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	abort, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	go func() {
		for i := range 2 {
			select {
			case <-signals:
			case <-ended:
				return
			}
			if i == 0 {
				cancel()
			} else {
				close(abort)
			}
		}
		// A model that is being loaded, or a client that reads nothing, must not hold up who asks twice.
		select {
		case <-time.After(2 * time.Second):
			os.Exit(ExitCutShort)
		case <-ended:
		}
	}()
	if o.Log == nil {
		o.Log = newLog(config.Log, stderr)
	}
	logLibraries(o.Log)
	limitMemory(o.Log)
	ready := o.Ready
	o.Ready = func(at Addresses) {
		limitMemory(o.Log) // beside the models that have been loaded
		if ready != nil {
			ready(at)
		}
	}
	err = run(ctx, abort, config, o)
	var wrong *ConfigError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "%s: the configuration is wrong:\n%v\n", o.Name, err)
		return ExitUsage
	case errors.Is(err, ErrCutShort) && ctx.Err() != nil:
		return ExitCutShort
	}
	if config.Log.Format == "json" { // whose readers want nothing else
		o.Log.Error("daemon: failed", "error", err)
	} else {
		fmt.Fprintf(stderr, "%s: %v\n", o.Name, err)
	}
	return ExitFailed
}

func version(v string) string {
	if v == "" {
		return "(no version)"
	}
	return v
}

// security opens what Config.TLS and Config.Auth name.
func (s *server) security() (*tls.Config, error) {
	var config *tls.Config
	var err error
	if t := s.config.TLS; t.Cert != "" {
		config, err = middleware.TLS(t.Cert, t.Key, middleware.TLSOptions{ClientCA: t.ClientCA, MinVersion: tlsVersions[t.MinVersion], Log: s.log})
		if err != nil {
			return nil, err
		}
	}
	if a := s.config.Auth; a.Tokens != "" {
		s.tokens, err = middleware.OpenTokens(a.Tokens, middleware.TokensOptions{CloseHealth: a.CloseHealth, Log: s.log})
		if err != nil {
			return nil, err
		}
		if config == nil {
			s.log.Warn("daemon: tokens are sent without TLS: who is on the way reads them")
		}
	}
	return config, nil
}
