package door

import "unsafe"

// A collective of cgotorch's distributed.h, by its function there.
type Collective int

// The order is that of the switch in gotorch's distributed.go.
const (
	Broadcast Collective = iota
	AllReduce
	AllReduceCoalesced
	Reduce
	AllGather
	AllGatherSingle
	AllGatherSingleCoalesced
	Gather
	Scatter
	ReduceScatter
	ReduceScatterSingle
	ReduceScatterSingleCoalesced
	AllToAll
	AllToAllSingle
	Send
	Recv
	Barrier
)

// CollectiveCall is what a collective is called with. What it does not take stays zero.
type CollectiveCall[Tensor any] struct {
	Op                        string // of errors
	Outputs, Inputs           []Tensor
	OutputCounts, InputCounts []int64
	Reduce                    int
	Root, Tag                 int
	TimeoutMS                 int64 // 0: the group's
}

// TCPOptions are DistTCPOptions.
type TCPOptions struct {
	Host                                         string
	Port, WorldSize                              int
	Server, WaitForWorkers, MultiTenant, NoLibUV bool
	TimeoutMS                                    int64
}

// GroupOptions are DistGroupOptions.
type GroupOptions struct {
	Backend, Name, Description string
	TimeoutMS                  int64
	Ranks                      []int64
}

// ReducerOptions are DistReducerOptions. Sparse is as long as Names.
type ReducerOptions struct {
	BucketBytes                                             int64
	FindUnusedParameters, GradientAsBucketView, StaticGraph bool
	Compression                                             int
	Names                                                   []string
	Sparse                                                  []bool
}

// A Store, Group, Work, Reducer or Bucket is a handle of cgotorch's distributed.h. Free must be called once, and nothing
// during or after it.
type (
	Store unsafe.Pointer
	Group unsafe.Pointer
	Work  unsafe.Pointer

	Reducer unsafe.Pointer
	Bucket  unsafe.Pointer
)

// Distributed is distributed.h. Strings must be without NUL bytes. Errors are *gotorch.Error; what returns none panics with them.
type Distributed[Tensor any] struct {
	SelfTest      func() error
	SetDebugLevel func(level int) error
	DebugLevel    func() int

	TCPStore    func(opts TCPOptions) (Store, error)
	FileStore   func(path string, worldSize int) (Store, error)
	HashStore   func() (Store, error)
	PrefixStore func(prefix string, s Store) (Store, error)
	Clone       func(s Store) (Store, error)
	FreeStore   func(s Store)
	Port        func(s Store) (int, error)
	SetTimeout  func(s Store, ms int64) error
	Timeout     func(s Store) (ms int64, err error)
	Set         func(s Store, key string, value []byte) error
	Get         func(s Store, key string) ([]byte, error)
	Add         func(s Store, key string, n int64) (int64, error)
	Append      func(s Store, key string, value []byte) error
	CompareSet  func(s Store, key string, expected, desired []byte) ([]byte, error)
	Delete      func(s Store, key string) (bool, error)
	Check       func(s Store, keys []string) (bool, error)
	Wait        func(s Store, keys []string, ms int64) error
	NumKeys     func(s Store) (int64, error)

	NewGroup         func(s Store, rank, size int, opts GroupOptions) (Group, error)
	FreeGroup        func(g Group)
	SetGroupTimeout  func(g Group, ms int64) error
	Begin            func(g Group, c Collective, call CollectiveCall[Tensor]) Work
	MonitoredBarrier func(g Group, ms int64, all bool) error

	NewReducer      func(g Group, parameters []Tensor, opts ReducerOptions) Reducer
	ReducerForward  func(r Reducer, reduced bool)
	ReducerBackward func(r Reducer, outputs []Tensor) []Tensor
	// ReducerBuckets returns nil before they are laid out; n is the number of parameters.
	ReducerBuckets     func(r Reducer, n int) [][]int
	SetReducerBuckets  func(r Reducer, buckets [][]int)
	FreeReducer        func(r Reducer)
	BroadcastCoalesced func(g Group, tensors []Tensor, bufferBytes int64, root int)

	// RegisterCommHook has begin called for each bucket, which becomes begin's, and what that returns when all have begun: nil
	// where nothing is left to do.
	RegisterCommHook func(r Reducer, begin func(Bucket) (finish func()))
	BucketIndex      func(b Bucket) (index int, last bool)
	BucketBuffer     func(b Bucket) Tensor
	BucketSetBuffer  func(b Bucket, t Tensor)
	BucketTensors    func(b Bucket, parameters bool) []Tensor // gradients or parameters
	FreeBucket       func(b Bucket)
	SetForwardWork   func(r Reducer, w Work, divideByAll bool)
	Shadow           func(r Reducer)

	WaitWork   func(op string, w Work, ms int64) error
	WorkDone   func(w Work) (bool, error)
	WorkSource func(w Work) (int, error)
	AbortWork  func(w Work) error
	FreeWork   func(w Work)
}

// CallDistributed is a Distributed[gotorch.Tensor].
var CallDistributed any
