package distributed

import (
	"context"
	"net/url"
	"os"
	"strconv"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Backend is what moves tensors between processes.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Backend
type Backend string

const (
	// Gloo moves tensors in the computer's memory over TCP, and copies a GPU's there and back.
	Gloo Backend = "gloo"
	// NCCL moves tensors from GPU to GPU, and has Gloo for those in the computer's memory: Python's ranks of the same job say
	// backend="cpu:gloo,cuda:nccl". Each rank has a GPU of its own, and computes within [gotorch.OnDevice] of it. It needs a
	// CUDA build of torch and as many GPUs.
	//
	// A wait for one of its collectives ends when the GPU has it, or with a [BackendError] when its time limit has passed; what
	// it was to fill is undefined then, and the group can only be closed. With the variable TORCH_NCCL_BLOCKING_WAIT=0 it is as in
	// Python: nobody waits on the computer, and NCCL ends the process where a rank is late or gone.
	NCCL Backend = "cpu:gloo,cuda:nccl"
)

// DefaultTimeout is how long a collective waits for other ranks where nothing else was said.
const DefaultTimeout = 30 * time.Minute

// Options are the arguments of [Init] that have defaults.
type Options struct {
	// Backend: default [Gloo].
	Backend Backend
	// InitMethod says how the ranks find each other. Default: "env://", as torchrun starts programs, with the variables
	// RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. "tcp://host:port" is the address at which rank 0 serves,
	// "file:///path" a file that all see and that is not there before.
	InitMethod string
	// Store is used instead of InitMethod, with Rank and WorldSize. Init does not close it.
	Store *Store
	// Rank is this process's, from 0, and WorldSize how many there are. Default: what InitMethod says.
	Rank, WorldSize gotorch.Scalar
	// Timeout is how long Init, and then each collective, waits for other ranks. Default: [DefaultTimeout].
	Timeout time.Duration
}

// Init joins the processes of a job, and returns the group of all of them. It waits for all, until ctx ends or the time
// limit passes. Processes of Python that call torch.distributed.init_process_group in the same way are ranks like
// others.
//
// The error is ctx's where that has ended; a ValueError for what is missing or wrong in the options and the environment,
// a [NetworkError], [TimeoutError] or [StoreError] where others did not come, and a RuntimeError where this libtorch
// has no Gloo that gotorch can use, or NCCL was asked for and there is no GPU.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group
func Init(ctx context.Context, opts ...Options) (*Group, error) {
	const op = "distributed.Init"
	opt := args.Option(opts)
	switch opt.Backend {
	case "":
		opt.Backend = Gloo
	case Gloo, NCCL:
	default:
		return nil, args.Errorf(op, gotorch.NotImplementedError, "there is no backend %q, but %q and %q", opt.Backend, Gloo, NCCL)
	}
	ms, err := milliseconds(op, opt.Timeout, DefaultTimeout)
	if err != nil {
		return nil, err
	}
	if err := c10d.SelfTest(); err != nil {
		return nil, err
	}
	if err := debugFromEnvironment(); err != nil {
		return nil, err
	}
	place, err := placeOf(op, opt)
	if err != nil {
		return nil, err
	}
	type made struct {
		group *Group
		err   error
	}
	result := make(chan made, 1)
	go func() {
		g, err := join(op, place, opt.Store, opt.Backend, ms)
		result <- made{g, err}
	}()
	select {
	case m := <-result:
		return m.group, m.err
	case <-ctx.Done():
		// What comes of it all the same is not needed any more.
		go func() {
			if m := <-result; m.group != nil {
				m.group.Close()
			}
		}()
		return nil, ctx.Err()
	}
}

// place is where a process meets the others, and which one it is.
type place struct {
	rank, size int
	scheme     string
	host       string
	port       int
	path       string
	agent      bool   // torchrun holds the store, and not rank 0
	attempt    string // which start of the job it is, where torchrun has started it before
}

func placeOf(op string, opt Options) (p place, err error) {
	p.rank = int(args.Int(op, "Rank", opt.Rank, -1))
	p.size = int(args.Int(op, "WorldSize", opt.WorldSize, -1))
	if opt.Store != nil {
		if opt.InitMethod != "" {
			return p, args.ValueError(op, "InitMethod and Store are both given: leave out one")
		}
		p.scheme = "store"
		return p, p.check(op)
	}
	method := opt.InitMethod
	if method == "" {
		method = "env://"
	}
	u, err := url.Parse(method)
	if err != nil {
		return p, args.ValueError(op, "InitMethod: %v", err)
	}
	query := u.Query()
	for _, of := range []struct {
		name, variable string
		value          *int
	}{{"rank", "RANK", &p.rank}, {"world_size", "WORLD_SIZE", &p.size}} {
		said := query.Get(of.name)
		switch {
		case said != "" && *of.value >= 0:
			return p, args.ValueError(op, "%s is in the options and in %s: leave out one", of.name, method)
		case said == "" && *of.value < 0 && u.Scheme == "env":
			if said = os.Getenv(of.variable); said == "" {
				return p, missing(op, of.variable)
			}
		}
		if said != "" {
			if *of.value, err = strconv.Atoi(said); err != nil {
				return p, args.ValueError(op, "%s is %q, and must be a number", of.name, said)
			}
		}
	}
	p.scheme = u.Scheme
	switch u.Scheme {
	case "env":
		port := os.Getenv("MASTER_PORT")
		p.host = os.Getenv("MASTER_ADDR")
		if p.host == "" {
			return p, missing(op, "MASTER_ADDR")
		}
		if port == "" {
			return p, missing(op, "MASTER_PORT")
		}
		p.agent = os.Getenv("TORCHELASTIC_USE_AGENT_STORE") == "True"
		if n := os.Getenv("TORCHELASTIC_RESTART_COUNT"); p.agent && n != "0" {
			p.attempt = n
		}
		if p.port, err = strconv.Atoi(port); err != nil || p.port < 0 || p.port > 65535 {
			return p, args.ValueError(op, "MASTER_PORT is %q, and must be a number from 0 to 65535", port)
		}
	case "tcp":
		if p.port, err = strconv.Atoi(u.Port()); err != nil || u.Hostname() == "" {
			return p, args.ValueError(op, "InitMethod is %q, and must be tcp://host:port", method)
		}
		p.host = u.Hostname()
	case "file":
		if p.path = u.Path; p.path == "" {
			return p, args.ValueError(op, "InitMethod is %q, and must be file:///path", method)
		}
	default:
		return p, args.ValueError(op, "InitMethod is %q, and must begin with env://, tcp:// or file://", method)
	}
	if err := noNUL(op, p.host, p.path); err != nil {
		return p, err
	}
	return p, p.check(op)
}

func (p place) check(op string) error {
	if p.rank < 0 || p.size < 1 || p.rank >= p.size {
		return args.ValueError(op, "rank %d of %d: give Rank, from 0, and WorldSize, which is greater", p.rank, p.size)
	}
	return nil
}

func missing(op, variable string) error {
	return args.ValueError(op, "the variable %s is not set: torchrun sets it, or give InitMethod, Rank and WorldSize", variable)
}

// join makes the group of all. store is the caller's, or nil.
func join(op string, p place, store *Store, backend Backend, ms int64) (*Group, error) {
	if store == nil {
		var err error
		limit := time.Duration(ms) * time.Millisecond
		switch p.scheme {
		case "file":
			store, err = NewFileStore(p.path, p.size)
		default:
			store, err = NewTCPStore(p.host, p.port, TCPStoreOptions{
				WorldSize: p.size, Server: p.rank == 0 && !p.agent, MultiTenant: !p.agent, Timeout: limit,
			})
		}
		if err != nil {
			return nil, err
		}
		defer store.Close() // the group has it, too
		if err := store.SetTimeout(limit); err != nil {
			return nil, err
		}
	}
	if p.attempt != "" {
		// torchrun's store has the keys of those that died, at whose addresses nobody answers. Python's ranks wait for them
		// in torch 2.15, so that a job with ranks in both goes on only where all are started anew.
		fresh, err := store.Prefix("/worker/attempt_" + p.attempt)
		if err != nil {
			return nil, err
		}
		defer fresh.Close()
		store = fresh
	}
	// As in Python: other users of the store have other keys, and the groups of some are within that of all.
	of, err := store.Prefix("default_pg")
	if err != nil {
		return nil, err
	}
	defer of.Close()
	languages, err := of.Prefix("go")
	if err != nil {
		return nil, err
	}
	w := &world{backend: backend, store: of, languages: languages, rank: p.rank, size: p.size, timeoutMS: ms}
	if err := languages.Set(keyOfGo(p.rank), []byte{1}); err != nil {
		languages.Close()
		return nil, err
	}
	g, err := w.newGroup(op, everyone(p.size), ms, "default_pg")
	if err != nil {
		languages.Close()
		return nil, err
	}
	if w.store, err = of.Prefix(g.name + "/"); err != nil {
		w.store = of
		g.Close()
		return nil, err
	}
	return g, nil
}

func everyone(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}
