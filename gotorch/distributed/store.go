package distributed

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"time"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
)

// Store is keys and values that the processes of a job share: how they find each other. Its methods may be called from
// several goroutines, which take turns while one waits; [Store.Clone] is another connection to the same keys.
//
// Python's: https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.Store
type Store struct {
	mutex   sync.Mutex // for closed and users
	handle  ctorch.DistStore
	closed  bool
	users   int // calls that use the handle: the last one frees it, if the store was closed meanwhile
	port    int // of a server elsewhere, which may not answer; 0: there is none
	cleanup runtime.Cleanup
}

func newStore(handle ctorch.DistStore, err error) (*Store, error) {
	if err != nil {
		return nil, err
	}
	s := &Store{handle: handle}
	s.cleanup = runtime.AddCleanup(s, func(h ctorch.DistStore) { ctorch.DistStoreFree(h) }, handle)
	return s, nil
}

// TCPStoreOptions are the arguments of [NewTCPStore] that have defaults.
type TCPStoreOptions struct {
	// WorldSize is how many processes use the store, the server among them. Default: not known.
	WorldSize gotorch.Scalar
	// Server says that this process holds the keys. There must be one, and it must outlive the others' use.
	Server bool
	// Timeout is how long the store waits for others and for keys. Default: 5 minutes.
	Timeout time.Duration
	// NoWaitForWorkers has the server not wait for WorldSize processes.
	NoWaitForWorkers bool
	// MultiTenant makes servers of one process at one port the same server.
	MultiTenant bool
}

const defaultStoreTimeout = 5 * time.Minute

// NewTCPStore makes a store that a server on host holds. Port 0 has the server take a free one: see [Store.Port].
//
// The error is a [NetworkError] where the server does not answer in time, or the port is taken. A server that does not answer
// within Timeout later on, as where the network is cut, is a NetworkError of what was asked, and the connection is ended then (on
// Linux; elsewhere the system gives it up, which may take many minutes).
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.TCPStore
func NewTCPStore(host string, port int, opts ...TCPStoreOptions) (*Store, error) {
	const op = "distributed.NewTCPStore"
	opt := args.Option(opts)
	size := args.Int(op, "WorldSize", opt.WorldSize, -1)
	if args.Given(opt.WorldSize) && size < 1 {
		return nil, args.ValueError(op, "WorldSize is %d, and must be positive", size)
	}
	ms, err := milliseconds(op, opt.Timeout, defaultStoreTimeout)
	if err != nil {
		return nil, err
	}
	if err := noNUL(op, host); err != nil {
		return nil, err
	}
	s, err := newStore(c10dTCPStore(tcpOptions{
		Host: host, Port: port, WorldSize: int(size), Server: opt.Server,
		WaitForWorkers: !opt.NoWaitForWorkers, MultiTenant: opt.MultiTenant, TimeoutMS: ms,
	}))
	if err != nil {
		return nil, err
	}
	if s.port, err = s.Port(); err != nil {
		s.Close()
		return nil, err
	}
	limitAnswers(s.port, time.Duration(ms)*time.Millisecond)
	return s, nil
}

// NewFileStore makes a store in a file that all processes see, on a file system that can lock. The file must not be
// there before; the last of worldSize processes that closes its store removes it. worldSize 0 is: not known.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.FileStore
func NewFileStore(path string, worldSize int) (*Store, error) {
	const op = "distributed.NewFileStore"
	if err := noNUL(op, path); err != nil {
		return nil, err
	}
	if path == "" || worldSize < 0 {
		return nil, args.ValueError(op, "path %q with a world size of %d", path, worldSize)
	}
	if worldSize == 0 {
		worldSize = -1
	}
	return newStore(c10dFileStore(path, worldSize))
}

// NewHashStore makes a store within this process, for tests and for jobs of one.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.HashStore
func NewHashStore() (*Store, error) { return newStore(c10dHashStore()) }

// Prefix returns a store that puts prefix and a slash in front of keys.
func (s *Store) Prefix(prefix string) (*Store, error) {
	if err := noNUL("Store.Prefix", prefix); err != nil {
		return nil, err
	}
	return use(s, "Store.Prefix", func(h ctorch.DistStore) (*Store, error) { return s.child(c10dPrefixStore(prefix, h)) })
}

// child is a store at the same server.
func (s *Store) child(handle ctorch.DistStore, err error) (*Store, error) {
	c, err := newStore(handle, err)
	if err == nil {
		c.port = s.port
	}
	return c, err
}

// Clone returns another connection to the same keys.
func (s *Store) Clone() (*Store, error) {
	return use(s, "Store.Clone", func(h ctorch.DistStore) (*Store, error) {
		c, err := s.child(c10dClone(h))
		if err == nil && c.port != 0 {
			ms, err := c10dTimeout(h)
			if err != nil {
				c.Close()
				return nil, err
			}
			limitAnswers(c.port, time.Duration(ms)*time.Millisecond)
		}
		return c, err
	})
}

// Close gives back the store. Those with a prefix, and groups, go on using what they were made of, and calls that wait go on
// waiting: Close does not wait for them.
func (s *Store) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.closed = true
		s.cleanup.Stop()
		s.freeUnused()
	}
	return nil
}

// freeUnused frees what a closed store has, unless a call uses it. The mutex is locked.
func (s *Store) freeUnused() {
	if s.closed && s.users == 0 {
		ctorch.DistStoreFree(s.handle)
	}
}

// use calls fn with s's handle, unless s was closed.
func use[T any](s *Store, op string, fn func(ctorch.DistStore) (T, error)) (T, error) {
	s.mutex.Lock()
	if s.closed {
		s.mutex.Unlock()
		var none T
		return none, args.ValueError(op, "the store was used after Close")
	}
	s.users++
	s.mutex.Unlock()
	defer func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		s.users--
		s.freeUnused()
	}()
	value, err := fn(s.handle)
	if s.port != 0 && errors.Is(err, NetworkError) && strings.Contains(err.Error(), "Socket Timeout") {
		breakOff(s.port)
	}
	return value, err
}

func useOnly(s *Store, op string, fn func(ctorch.DistStore) error) error {
	_, err := use(s, op, func(h ctorch.DistStore) (struct{}, error) { return struct{}{}, fn(h) })
	return err
}

// Port returns the port of a TCP store's server; a ValueError for other stores.
func (s *Store) Port() (int, error) { return use(s, "Store.Port", c10dPort) }

// Timeout returns how long Get and Wait wait.
func (s *Store) Timeout() (time.Duration, error) {
	return use(s, "Store.Timeout", func(h ctorch.DistStore) (time.Duration, error) {
		ms, err := c10dTimeout(h)
		return time.Duration(ms) * time.Millisecond, err
	})
}

// SetTimeout sets how long Get and Wait wait, and how long a server may take to answer. Stores with a prefix have that of what they were made of.
func (s *Store) SetTimeout(d time.Duration) error {
	const op = "Store.SetTimeout"
	ms, err := milliseconds(op, d, 0)
	if err != nil {
		return err
	}
	return useOnly(s, op, func(h ctorch.DistStore) error {
		err := c10dSetTimeout(h, ms)
		if err == nil && s.port != 0 {
			limitAnswers(s.port, time.Duration(ms)*time.Millisecond)
		}
		return err
	})
}

// Set sets the value of a key.
func (s *Store) Set(key string, value []byte) error {
	if err := noNUL("Store.Set", key); err != nil {
		return err
	}
	return useOnly(s, "Store.Set", func(h ctorch.DistStore) error { return c10dSet(h, key, value) })
}

// Get waits for a key and returns its value. The error is ctx's where that ends before, and a [StoreError] where the
// store's time limit passes.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	if err := s.Wait(ctx, key); err != nil {
		return nil, err
	}
	return use(s, "Store.Get", func(h ctorch.DistStore) ([]byte, error) { return c10dGet(h, key) })
}

// Add adds n to the number that a key has, 0 where it is not there, and returns the sum.
func (s *Store) Add(key string, n int64) (int64, error) {
	if err := noNUL("Store.Add", key); err != nil {
		return 0, err
	}
	return use(s, "Store.Add", func(h ctorch.DistStore) (int64, error) { return c10dAdd(h, key, n) })
}

// Append adds value at the end of what a key has.
func (s *Store) Append(key string, value []byte) error {
	if err := noNUL("Store.Append", key); err != nil {
		return err
	}
	return useOnly(s, "Store.Append", func(h ctorch.DistStore) error { return c10dAppend(h, key, value) })
}

// CompareSet sets a key to desired if it has the value expected, or if it is not there and expected is empty. It returns
// what the key has then, and expected where the key is not there.
func (s *Store) CompareSet(key string, expected, desired []byte) ([]byte, error) {
	if err := noNUL("Store.CompareSet", key); err != nil {
		return nil, err
	}
	return use(s, "Store.CompareSet", func(h ctorch.DistStore) ([]byte, error) { return c10dCompareSet(h, key, expected, desired) })
}

// Delete removes a key, and reports whether it was there. A file store keeps it, and its space.
func (s *Store) Delete(key string) (bool, error) {
	if err := noNUL("Store.Delete", key); err != nil {
		return false, err
	}
	return use(s, "Store.Delete", func(h ctorch.DistStore) (bool, error) { return c10dDelete(h, key) })
}

// Check reports whether all of the keys are there.
func (s *Store) Check(keys ...string) (bool, error) {
	if err := noNUL("Store.Check", keys...); err != nil {
		return false, err
	}
	return use(s, "Store.Check", func(h ctorch.DistStore) (bool, error) { return c10dCheck(h, keys) })
}

// NumKeys returns how many keys there are; of a TCP store one more, which is its own.
func (s *Store) NumKeys() (int64, error) { return use(s, "Store.NumKeys", c10dNumKeys) }

// A wait that its context may end looks for the keys itself, first after the shorter of these.
const soon, rarely = time.Millisecond, 20 * time.Millisecond

// Wait waits until all of the keys are there. Errors are those of [Store.Get].
func (s *Store) Wait(ctx context.Context, keys ...string) error {
	const op = "Store.Wait"
	if err := noNUL(op, keys...); err != nil {
		return err
	}
	if ctx.Done() == nil {
		return useOnly(s, op, func(h ctorch.DistStore) error { return c10dWait(h, keys, -1) })
	}
	limit, err := s.Timeout()
	if err != nil {
		return err
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	for pause := soon; ; pause = min(2*pause, rarely) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if there, err := s.Check(keys...); there || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-late.C:
			return args.Errorf(op, StoreError, "keys %q did not come within %v", keys, limit)
		case <-time.After(pause):
		}
	}
}

// milliseconds returns a time limit for C: otherwise where it is zero.
func milliseconds(op string, d, otherwise time.Duration) (int64, error) {
	if d == 0 {
		d = otherwise
	}
	if d <= 0 {
		return 0, args.ValueError(op, "the time limit is %v, and must be positive", d)
	}
	return max(d.Milliseconds(), 1), nil
}

func noNUL(op string, texts ...string) error {
	for _, text := range texts {
		if strings.ContainsRune(text, 0) {
			return args.ValueError(op, "%q contains a NUL byte", text)
		}
	}
	return nil
}
