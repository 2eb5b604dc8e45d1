package gotorch

/*
#include <cgotorch.h>
#include <stdlib.h>

// One function for all: each that Go names costs time when this package is compiled.
static const char *gotorch_collective(int which, DistGroup g, const Tensor *out, int64_t n_out, const Tensor *in,
                                      int64_t n_in, const int64_t *out_counts, int64_t n_out_counts,
                                      const int64_t *in_counts, int64_t n_in_counts, int64_t tag,
                                      const DistOptions *o, DistWork *w) {
  switch (which) {
    case 0: return DistBroadcast(g, in[0], o, w);
    case 1: return DistAllReduce(g, in[0], o, w);
    case 2: return DistAllReduceCoalesced(g, in, n_in, o, w);
    case 3: return DistReduce(g, in[0], o, w);
    case 4: return DistAllGather(g, out, n_out, in[0], o, w);
    case 5: return DistAllGatherSingle(g, out[0], in[0], o, w);
    case 6: return DistAllGatherSingleCoalesced(g, out, in, n_in, o, w);
    case 7: return DistGather(g, out, n_out, in[0], o, w);
    case 8: return DistScatter(g, out[0], in, n_in, o, w);
    case 9: return DistReduceScatter(g, out[0], in, n_in, o, w);
    case 10: return DistReduceScatterSingle(g, out[0], in[0], o, w);
    case 11: return DistReduceScatterSingleCoalesced(g, out, in, n_in, o, w);
    case 12: return DistAllToAll(g, out, n_out, in, n_in, o, w);
    case 13: return DistAllToAllSingle(g, out[0], in[0], out_counts, n_out_counts, in_counts, n_in_counts, o, w);
    case 14: return DistSend(g, in[0], tag, o, w);
    case 15: return DistRecv(g, in[0], tag, o, w);
    default: return DistBarrier(g, o, w);
  }
}
*/
import "C"

import (
	"unsafe"

	"gotorch.dev/gotorch/internal/door"
)

// What package distributed needs. Calls that wait for other processes hold no place among those that compute.

func init() {
	calls := door.Distributed[Tensor]{
		SelfTest: func() error { return distFailure("distributed.Init", C.DistSelfTest()) },
		SetDebugLevel: func(level int) error {
			return distFailure("distributed.SetDebugLevel", C.DistSetDebugLevel(C.int64_t(level)))
		},
		DebugLevel: func() int { return int(C.DistDebugLevel()) },

		TCPStore: func(o door.TCPOptions) (s door.Store, err error) {
			host := C.CString(o.Host)
			defer C.free(unsafe.Pointer(host))
			options := C.DistTCPOptions{
				host: host, port: C.int64_t(o.Port), world_size: C.int64_t(o.WorldSize), server: C.bool(o.Server),
				wait_for_workers: C.bool(o.WaitForWorkers), multi_tenant: C.bool(o.MultiTenant), no_libuv: C.bool(o.NoLibUV),
				timeout_ms: C.int64_t(o.TimeoutMS),
			}
			return newStore("TCPStore", func(h *C.DistStore) *C.char { return C.DistTCPStore(&options, h) })
		},
		FileStore: func(path string, worldSize int) (door.Store, error) {
			p := C.CString(path)
			defer C.free(unsafe.Pointer(p))
			return newStore("FileStore", func(h *C.DistStore) *C.char { return C.DistFileStore(p, C.int64_t(worldSize), h) })
		},
		HashStore: func() (door.Store, error) {
			return newStore("HashStore", func(h *C.DistStore) *C.char { return C.DistHashStore(h) })
		},
		PrefixStore: func(prefix string, s door.Store) (door.Store, error) {
			p := C.CString(prefix)
			defer C.free(unsafe.Pointer(p))
			return newStore("PrefixStore", func(h *C.DistStore) *C.char { return C.DistPrefixStore(p, storeOf(s), h) })
		},
		Clone: func(s door.Store) (door.Store, error) {
			return newStore("Store.Clone", func(h *C.DistStore) *C.char { return C.DistStoreClone(storeOf(s), h) })
		},
		FreeStore: func(s door.Store) { C.DistStoreFree(storeOf(s)) },
		Port: func(s door.Store) (int, error) {
			var n C.int64_t
			err := C.DistStorePort(storeOf(s), &n)
			return int(n), distFailure("Store.Port", err)
		},
		SetTimeout: func(s door.Store, ms int64) error {
			return distFailure("Store.SetTimeout", C.DistStoreSetTimeout(storeOf(s), C.int64_t(ms)))
		},
		Timeout: func(s door.Store) (int64, error) {
			var n C.int64_t
			err := C.DistStoreGetTimeout(storeOf(s), &n)
			return int64(n), distFailure("Store.Timeout", err)
		},
		Set: func(s door.Store, key string, value []byte) error {
			return withKey(key, func(k *C.char) error {
				return distFailure("Store.Set", C.DistStoreSet(storeOf(s), k, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value))))
			})
		},
		Get: func(s door.Store, key string) (value []byte, err error) {
			err = withKey(key, func(k *C.char) error {
				var p unsafe.Pointer
				var n C.int64_t
				if err := distFailure("Store.Get", C.DistStoreGet(storeOf(s), k, &p, &n)); err != nil {
					return err
				}
				value = takeArray[byte](uintptr(p), int64(n))
				return nil
			})
			return value, err
		},
		Add: func(s door.Store, key string, n int64) (sum int64, err error) {
			err = withKey(key, func(k *C.char) error {
				var result C.int64_t
				err := C.DistStoreAdd(storeOf(s), k, C.int64_t(n), &result)
				sum = int64(result)
				return distFailure("Store.Add", err)
			})
			return sum, err
		},
		Append: func(s door.Store, key string, value []byte) error {
			return withKey(key, func(k *C.char) error {
				return distFailure("Store.Append", C.DistStoreAppend(storeOf(s), k, unsafe.Pointer(unsafe.SliceData(value)), C.int64_t(len(value))))
			})
		},
		CompareSet: func(s door.Store, key string, expected, desired []byte) (value []byte, err error) {
			err = withKey(key, func(k *C.char) error {
				var p unsafe.Pointer
				var n C.int64_t
				if err := distFailure("Store.CompareSet", C.DistStoreCompareSet(storeOf(s), k, unsafe.Pointer(unsafe.SliceData(expected)), C.int64_t(len(expected)),
					unsafe.Pointer(unsafe.SliceData(desired)), C.int64_t(len(desired)), &p, &n)); err != nil {
					return err
				}
				value = takeArray[byte](uintptr(p), int64(n))
				return nil
			})
			return value, err
		},
		Delete: func(s door.Store, key string) (there bool, err error) {
			err = withKey(key, func(k *C.char) error {
				var result C.bool
				err := C.DistStoreDelete(storeOf(s), k, &result)
				there = bool(result)
				return distFailure("Store.Delete", err)
			})
			return there, err
		},
		Check: func(s door.Store, keys []string) (bool, error) {
			ks := cStrings(keys)
			defer freeStrings(ks)
			var result C.bool
			err := C.DistStoreCheck(storeOf(s), unsafe.SliceData(ks), C.int64_t(len(ks)), &result)
			return bool(result), distFailure("Store.Check", err)
		},
		Wait: func(s door.Store, keys []string, ms int64) error {
			ks := cStrings(keys)
			defer freeStrings(ks)
			return distFailure("Store.Wait", C.DistStoreWait(storeOf(s), unsafe.SliceData(ks), C.int64_t(len(ks)), C.int64_t(ms)))
		},
		NumKeys: func(s door.Store) (int64, error) {
			var n C.int64_t
			err := C.DistStoreNumKeys(storeOf(s), &n)
			return int64(n), distFailure("Store.NumKeys", err)
		},

		NewGroup: func(s door.Store, rank, size int, o door.GroupOptions) (door.Group, error) {
			texts := cStrings([]string{o.Backend, o.Name, o.Description})
			defer freeStrings(texts)
			ranks := cArray(o.Ranks)
			defer C.free(unsafe.Pointer(ranks))
			options := C.DistGroupOptions{
				backend: texts[0], name: texts[1], description: texts[2], timeout_ms: C.int64_t(o.TimeoutMS),
				ranks: ranks, n_ranks: C.int64_t(len(o.Ranks)),
			}
			var g C.DistGroup
			err := C.DistNewGroup(storeOf(s), C.int64_t(rank), C.int64_t(size), &options, &g)
			return door.Group(unsafe.Pointer(g)), distFailure("distributed.Group", err)
		},
		FreeGroup: func(g door.Group) { C.DistGroupFree(groupOf(g)) },
		SetGroupTimeout: func(g door.Group, ms int64) error {
			return distFailure("Group.SetTimeout", C.DistGroupSetTimeout(groupOf(g), C.int64_t(ms)))
		},
		Begin: beginCollective,
		MonitoredBarrier: func(g door.Group, ms int64, all bool) error {
			options := C.DistOptions{timeout_ms: C.int64_t(ms)}
			return distFailure("MonitoredBarrier", C.DistMonitoredBarrier(groupOf(g), &options, C.bool(all)))
		},

		NewReducer: newReducer,
		ReducerForward: func(r door.Reducer, reduced bool) {
			state := enterBack()
			err := C.DistReducerForward(reducerOf(r), C.bool(reduced))
			checkBack("DataParallel", unsafe.Pointer(err), leaveBack(state))
		},
		ReducerBackward: func(r door.Reducer, outputs []Tensor) []Tensor {
			var held holder
			defer held.free()
			hs := held.all("DataParallel", "outputs", outputs)
			results := make([]C.Tensor, len(hs))
			state := enterBack()
			err := C.DistReducerBackward(reducerOf(r), unsafe.SliceData(hs), C.int64_t(len(hs)), unsafe.SliceData(results))
			checkBack("DataParallel", unsafe.Pointer(err), leaveBack(state))
			return wrapHandles(results)
		},
		ReducerBuckets: func(r door.Reducer, n int) [][]int {
			params, buckets := make([]C.int64_t, n), make([]C.int64_t, n)
			var laidOut C.bool
			if err := C.DistReducerBuckets(reducerOf(r), unsafe.SliceData(params), unsafe.SliceData(buckets), C.int64_t(n), &laidOut); err != nil {
				panicC("DataParallel.Buckets", unsafe.Pointer(err))
			}
			if !laidOut {
				return nil
			}
			var all [][]int
			for i, p := range params {
				if int(buckets[i]) == len(all) {
					all = append(all, nil)
				}
				all[buckets[i]] = append(all[buckets[i]], int(p))
			}
			return all
		},
		SetReducerBuckets: func(r door.Reducer, all [][]int) {
			var params, buckets []C.int64_t
			for b, bucket := range all {
				for _, p := range bucket {
					params, buckets = append(params, C.int64_t(p)), append(buckets, C.int64_t(b))
				}
			}
			if err := C.DistReducerSetBuckets(reducerOf(r), unsafe.SliceData(params), unsafe.SliceData(buckets), C.int64_t(len(params))); err != nil {
				panicC("DataParallel.SetBuckets", unsafe.Pointer(err))
			}
		},
		FreeReducer: func(r door.Reducer) { C.DistReducerFree(reducerOf(r)) },
		BroadcastCoalesced: func(g door.Group, tensors []Tensor, bytes int64, root int) {
			var held holder
			defer held.free()
			hs := held.all("DataParallel", "tensors", tensors)
			err := C.DistBroadcastCoalesced(groupOf(g), unsafe.SliceData(hs), C.int64_t(len(hs)), C.int64_t(bytes), C.int64_t(root))
			if err != nil {
				panicC("DataParallel", unsafe.Pointer(err))
			}
		},

		WaitWork: func(op string, w door.Work, ms int64) error {
			return distFailure(op, C.DistWorkWait(workOf(w), C.int64_t(ms)))
		},
		WorkDone: func(w door.Work) (bool, error) {
			var done C.bool
			err := C.DistWorkDone(workOf(w), &done)
			return bool(done), distFailure("Work.Done", err)
		},
		WorkSource: func(w door.Work) (int, error) {
			var n C.int64_t
			err := C.DistWorkSource(workOf(w), &n)
			return int(n), distFailure("Work.Source", err)
		},
		AbortWork: func(w door.Work) error { return distFailure("Work.Abort", C.DistWorkAbort(workOf(w))) },
		FreeWork:  func(w door.Work) { C.DistWorkFree(workOf(w)) },
	}
	addCommHooks(&calls)
	door.CallDistributed = calls
}

func storeOf(s door.Store) C.DistStore { return C.DistStore(unsafe.Pointer(s)) }
func groupOf(g door.Group) C.DistGroup { return C.DistGroup(unsafe.Pointer(g)) }
func workOf(w door.Work) C.DistWork    { return C.DistWork(unsafe.Pointer(w)) }

func reducerOf(r door.Reducer) C.DistReducer { return C.DistReducer(unsafe.Pointer(r)) }

func newReducer(g door.Group, parameters []Tensor, o door.ReducerOptions) door.Reducer {
	var held holder
	defer held.free()
	hs := held.all("DataParallel", "parameters", parameters)
	names := cStrings(o.Names)
	defer freeStrings(names)
	// What C reads through a pointer in a struct lies in C's memory.
	list := (**C.char)(C.malloc(C.size_t(len(names)+1) * C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	defer C.free(unsafe.Pointer(list))
	copy(unsafe.Slice(list, len(names)), names)
	sparse := (*C.bool)(C.malloc(C.size_t(len(o.Sparse) + 1)))
	defer C.free(unsafe.Pointer(sparse))
	copy(unsafe.Slice((*bool)(sparse), len(o.Sparse)), o.Sparse)
	options := C.DistReducerOptions{
		bucket_bytes: C.int64_t(o.BucketBytes), find_unused_parameters: C.bool(o.FindUnusedParameters),
		gradient_as_bucket_view: C.bool(o.GradientAsBucketView), static_graph: C.bool(o.StaticGraph),
		compression: C.int32_t(o.Compression), names: list, sparse: sparse,
	}
	var r C.DistReducer
	err := C.DistNewReducer(groupOf(g), unsafe.SliceData(hs), C.int64_t(len(hs)), &options, &r)
	if err != nil {
		panicC("DataParallel", unsafe.Pointer(err))
	}
	return door.Reducer(unsafe.Pointer(r))
}

func newStore(op string, make func(*C.DistStore) *C.char) (door.Store, error) {
	var s C.DistStore
	err := make(&s)
	return door.Store(unsafe.Pointer(s)), distFailure(op, err)
}

// distFailure is the error of a message from C, and nil for none.
func distFailure(op string, message *C.char) error {
	if message == nil {
		return nil
	}
	return takeError(op, unsafe.Pointer(message))
}

func withKey(key string, fn func(*C.char) error) error {
	k := C.CString(key)
	defer C.free(unsafe.Pointer(k))
	return fn(k)
}

// cArray copies numbers to where C may keep a pointer to them while it is called: for C.free.
func cArray(values []int64) *C.int64_t {
	if len(values) == 0 {
		return nil
	}
	p := (*C.int64_t)(C.malloc(C.size_t(len(values)) * C.size_t(unsafe.Sizeof(values[0]))))
	copy(unsafe.Slice((*int64)(unsafe.Pointer(p)), len(values)), values)
	return p
}

func beginCollective(g door.Group, which door.Collective, c door.CollectiveCall[Tensor]) door.Work {
	var held holder
	defer held.free()
	outputs := held.all(c.Op, "output", c.Outputs)
	inputs := held.all(c.Op, "input", c.Inputs)
	options := C.DistOptions{op: C.int32_t(c.Reduce), root: C.int64_t(c.Root), timeout_ms: C.int64_t(c.TimeoutMS)}
	var work C.DistWork
	slow := beforeCall()
	err := C.gotorch_collective(C.int(which), groupOf(g), unsafe.SliceData(outputs), C.int64_t(len(outputs)),
		unsafe.SliceData(inputs), C.int64_t(len(inputs)),
		(*C.int64_t)(unsafe.SliceData(c.OutputCounts)), C.int64_t(len(c.OutputCounts)),
		(*C.int64_t)(unsafe.SliceData(c.InputCounts)), C.int64_t(len(c.InputCounts)), C.int64_t(c.Tag), &options, &work)
	warnings := slow.after()
	defer warnings.handOn(true)
	if err != nil {
		panicC(c.Op, unsafe.Pointer(err))
	}
	return door.Work(unsafe.Pointer(work))
}
