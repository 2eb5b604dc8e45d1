package distributed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	if err := checkInterfaces(op); err != nil {
		return nil, err
	}
	if err := c10dSelfTest(); err != nil {
		return nil, err
	}
	if err := debugFromEnvironment(); err != nil {
		return nil, err
	}
	place, err := placeOf(op, opt)
	if err != nil {
		return nil, err
	}
	if place.host != "" {
		if _, err := net.DefaultResolver.LookupHost(ctx, place.host); err != nil && ctx.Err() == nil {
			return nil, args.Errorf(op, NetworkError, "the address of rank 0 does not resolve: %v: set MASTER_ADDR or InitMethod to a host that all ranks can resolve", err)
		}
	}
	j := &initializing{op: op, place: place, backend: opt.Backend, ms: ms, refused: make(chan error, 1)}
	j.doing.Store(fmt.Sprintf("connecting to the store of rank 0 at %s", place))
	return within(ctx, op, time.Duration(ms)*time.Millisecond, j.refused, func() string {
		return fmt.Sprintf("rank %d of %d was still %s", place.rank, place.size, j.doing.Load())
	}, func() (*Group, error) { return j.join(opt.Store) })
}

// within returns the group that is made, or an error when ctx ends, the limit passes or a rank is refused. libtorch's own limits are of
// single steps, and some are fixed: a server that accepts and does not answer holds it for longer. A group that comes later is closed.
func within(ctx context.Context, op string, limit time.Duration, refused <-chan error, doing func() string, create func() (*Group, error)) (_ *Group, err error) {
	late := time.NewTimer(limit + max(limit/20, 50*time.Millisecond))
	defer late.Stop()
	type made struct {
		group *Group
		err   error
	}
	result := make(chan made, 1)
	go func() {
		g, err := create()
		result <- made{g, err}
	}()
	select {
	case m := <-result:
		return m.group, m.err
	case <-ctx.Done():
		err = ctx.Err()
	case err = <-refused:
	case <-late.C:
		err = args.Errorf(op, TimeoutError, "%s after %v", doing(), limit)
	}
	go func() {
		if m := <-result; m.group != nil {
			m.group.Close()
		}
	}()
	return nil, err
}

// watch looks for a key that says why a rank is refused, until end is called, and tells the error.
func watch(op string, store *Store, key string, tell func(error)) (end func(), err error) {
	watched, err := store.Clone() // the group waits with the other
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer watched.Close()
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			is, err := watched.Check(key)
			if err != nil {
				return
			}
			if is {
				if text, err := watched.Get(context.Background(), key); err == nil {
					tell(args.ValueError(op, "%s", text))
				}
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) }), nil
}

// checkInterfaces refuses a variable with a network interface that is not there: Gloo's own error does not name it.
func checkInterfaces(op string) error {
	const variable = "GLOO_SOCKET_IFNAME"
	names := os.Getenv(variable)
	if names == "" {
		return nil
	}
	all, err := net.Interfaces()
	if err != nil {
		return nil // unknown: Gloo has the last word
	}
	var known []string
	for _, one := range all {
		known = append(known, one.Name)
	}
	for name := range strings.SplitSeq(names, ",") {
		if !slices.Contains(known, name) {
			return args.ValueError(op, "the variable %s is %q, and this machine has no network interface %q: it has %s", variable, names, name, strings.Join(known, ", "))
		}
	}
	return nil
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

func (p place) String() string {
	switch p.scheme {
	case "file":
		return p.path
	case "store":
		return "the store in the options"
	}
	return net.JoinHostPort(p.host, strconv.Itoa(p.port))
}

// initializing is a call of Init.
type initializing struct {
	op      string
	place   place
	backend Backend
	ms      int64
	doing   atomic.Value // a string: the step that it is at
	refused chan error   // that ranks contradict each other
}

// join makes the group of all. store is the caller's, or nil.
func (j *initializing) join(store *Store) (*Group, error) {
	op, p, ms := j.op, j.place, j.ms
	limit := time.Duration(ms) * time.Millisecond
	if store == nil {
		var err error
		switch p.scheme {
		case "file":
			store, err = NewFileStore(p.path, p.size)
		default:
			store, err = NewTCPStore(p.host, p.port, TCPStoreOptions{
				WorldSize: p.size, Server: p.rank == 0 && !p.agent, MultiTenant: !p.agent, Timeout: limit,
				// The others may be waiting because they say another size. A server of Python counts those that connect.
				NoWaitForWorkers: p.rank == 0,
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
	end, err := j.compare(languages)
	if err != nil {
		languages.Close()
		return nil, err
	}
	defer end()
	j.doing.Store(fmt.Sprintf("waiting for the other ranks, which meet at %s", p))
	w := &world{backend: j.backend, store: of, languages: languages, rank: p.rank, size: p.size, timeoutMS: ms}
	if err := languages.Set(keyOfGo(p.rank), []byte{1}); err != nil {
		languages.Close()
		return nil, err
	}
	g, err := w.newGroup(op, w.nextName(), everyone(p.size), ms, "default_pg")
	if err != nil {
		came := j.came(languages)
		languages.Close()
		if of, is := errors.AsType[*gotorch.Error](err); is && of.Kind == NetworkError {
			of.Msg += came
		}
		return nil, err
	}
	if w.store, err = of.Prefix(g.name + "/"); err != nil {
		w.store = of
		g.Close()
		return nil, err
	}
	return g, nil
}

// linger has a rank that is refused leave its store there for the others to read why.
func (j *initializing) linger() {
	if j.place.rank == 0 {
		time.Sleep(time.Second)
	}
}

// compare tells the other ranks of Go which rank this is, and refuses a second process of one rank, or one that says another size. It
// watches for a rank that is refused until end is called.
func (j *initializing) compare(store *Store) (end func(), err error) {
	const refused = "refused"
	if j.place.agent { // torchrun decides on the ranks, and may start one again
		return func() {}, nil
	}
	refuse := func(format string, values ...any) error {
		text := fmt.Sprintf(format, values...)
		_ = store.Set(refused, []byte(text))
		j.linger()
		return args.ValueError(j.op, "%s", text)
	}
	rank, size := j.place.rank, strconv.Itoa(j.place.size)
	said, err := store.CompareSet("size", nil, []byte(size))
	if err != nil {
		return nil, err
	}
	if string(said) != size {
		return nil, refuse("rank %d says that the job has %s ranks, and another one %s: give all the same WORLD_SIZE", rank, size, said)
	}
	claims, err := store.Add(fmt.Sprintf("claims of %d", rank), 1)
	if err != nil {
		return nil, err
	}
	if claims > 1 {
		return nil, refuse("two processes say that they are rank %d of %s: give each its own RANK, and each job a port, file or store of its own", rank, size)
	}
	return watch(j.op, store, refused, func(err error) {
		j.linger()
		j.refused <- err
	})
}

// came says which ranks of Go have come, for an error.
func (j *initializing) came(store *Store) string {
	var there []int
	for rank := range j.place.size {
		if is, err := store.Check(keyOfGo(rank)); err != nil {
			return ""
		} else if is {
			there = append(there, rank)
		}
	}
	return fmt.Sprintf(" (of %d ranks, these have reached the store as processes of Go: %v)", j.place.size, there)
}

func everyone(n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = i
	}
	return ranks
}
