package distributed

import (
	"unsafe"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/internal/native"
)

// The functions of distributed.h and reducer.h. Calls that wait for other processes hold no place among those that compute.
// Strings must be without NUL bytes. Errors are *gotorch.Error; what returns none panics with them. A handle must be freed once,
// and nothing be done with it during or after that.

func c10dSelfTest() error { return native.Error("distributed.Init", ctorch.DistSelfTest()) }

func c10dSetDebugLevel(level int) error {
	return native.Error("distributed.SetDebugLevel", ctorch.DistSetDebugLevel(int64(level)))
}

func c10dDebugLevel() int { return int(ctorch.DistDebugLevel()) }

// Stores ----------------------------------------------------------------------------------------------

// tcpOptions are DistTCPOptions.
type tcpOptions struct {
	Host                                         string
	Port, WorldSize                              int
	Server, WaitForWorkers, MultiTenant, NoLibUV bool
	TimeoutMS                                    int64
}

func c10dTCPStore(o tcpOptions) (s ctorch.DistStore, err error) {
	host := ctorch.CString(o.Host)
	defer ctorch.CFree(unsafe.Pointer(host))
	options := ctorch.DistTCPOptions{
		Host: host, Port: int64(o.Port), WorldSize: int64(o.WorldSize), Server: o.Server,
		WaitForWorkers: o.WaitForWorkers, MultiTenant: o.MultiTenant, NoLibuv: o.NoLibUV, TimeoutMs: o.TimeoutMS,
	}
	m := ctorch.DistTCPStore(&options, &s)
	return s, native.Error("TCPStore", m)
}

func c10dFileStore(path string, worldSize int) (s ctorch.DistStore, err error) {
	p := ctorch.CString(path)
	defer ctorch.CFree(unsafe.Pointer(p))
	m := ctorch.DistFileStore(p, int64(worldSize), &s)
	return s, native.Error("FileStore", m)
}

func c10dHashStore() (s ctorch.DistStore, err error) {
	m := ctorch.DistHashStore(&s)
	return s, native.Error("HashStore", m)
}

func c10dPrefixStore(prefix string, of ctorch.DistStore) (s ctorch.DistStore, err error) {
	p := ctorch.CString(prefix)
	defer ctorch.CFree(unsafe.Pointer(p))
	m := ctorch.DistPrefixStore(p, of, &s)
	return s, native.Error("PrefixStore", m)
}

func c10dClone(of ctorch.DistStore) (s ctorch.DistStore, err error) {
	m := ctorch.DistStoreClone(of, &s)
	return s, native.Error("Store.Clone", m)
}

func c10dPort(s ctorch.DistStore) (int, error) {
	var n int64
	m := ctorch.DistStorePort(s, &n)
	return int(n), native.Error("Store.Port", m)
}

func c10dSetTimeout(s ctorch.DistStore, ms int64) error {
	return native.Error("Store.SetTimeout", ctorch.DistStoreSetTimeout(s, ms))
}

func c10dTimeout(s ctorch.DistStore) (ms int64, err error) {
	m := ctorch.DistStoreGetTimeout(s, &ms)
	return ms, native.Error("Store.Timeout", m)
}

// bytesOf returns where bytes are, and how many.
func bytesOf(b []byte) (unsafe.Pointer, int64) {
	return unsafe.Pointer(unsafe.SliceData(b)), int64(len(b))
}

func c10dSet(s ctorch.DistStore, key string, value []byte) error {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	p, n := bytesOf(value)
	return native.Error("Store.Set", ctorch.DistStoreSet(s, k, p, n))
}

func c10dGet(s ctorch.DistStore, key string) ([]byte, error) {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	var p unsafe.Pointer
	var n int64
	if m := ctorch.DistStoreGet(s, k, &p, &n); m != nil {
		return nil, native.Error("Store.Get", m)
	}
	return ctorch.TakeArray[byte](p, n), nil
}

func c10dAdd(s ctorch.DistStore, key string, n int64) (sum int64, err error) {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	m := ctorch.DistStoreAdd(s, k, n, &sum)
	return sum, native.Error("Store.Add", m)
}

func c10dAppend(s ctorch.DistStore, key string, value []byte) error {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	p, n := bytesOf(value)
	return native.Error("Store.Append", ctorch.DistStoreAppend(s, k, p, n))
}

func c10dCompareSet(s ctorch.DistStore, key string, expected, desired []byte) ([]byte, error) {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	e, nExpected := bytesOf(expected)
	d, nDesired := bytesOf(desired)
	var p unsafe.Pointer
	var n int64
	if m := ctorch.DistStoreCompareSet(s, k, e, nExpected, d, nDesired, &p, &n); m != nil {
		return nil, native.Error("Store.CompareSet", m)
	}
	return ctorch.TakeArray[byte](p, n), nil
}

func c10dDelete(s ctorch.DistStore, key string) (there bool, err error) {
	k := ctorch.CString(key)
	defer ctorch.CFree(unsafe.Pointer(k))
	m := ctorch.DistStoreDelete(s, k, &there)
	return there, native.Error("Store.Delete", m)
}

func c10dCheck(s ctorch.DistStore, keys []string) (there bool, err error) {
	ks := ctorch.CStrings(keys)
	defer ctorch.FreeStrings(ks)
	m := ctorch.DistStoreCheck(s, unsafe.SliceData(ks), int64(len(ks)), &there)
	return there, native.Error("Store.Check", m)
}

func c10dWait(s ctorch.DistStore, keys []string, ms int64) error {
	ks := ctorch.CStrings(keys)
	defer ctorch.FreeStrings(ks)
	return native.Error("Store.Wait", ctorch.DistStoreWait(s, unsafe.SliceData(ks), int64(len(ks)), ms))
}

func c10dNumKeys(s ctorch.DistStore) (n int64, err error) {
	m := ctorch.DistStoreNumKeys(s, &n)
	return n, native.Error("Store.NumKeys", m)
}

// Groups ----------------------------------------------------------------------------------------------

// groupOptions are DistGroupOptions.
type groupOptions struct {
	Backend, Name, Description string
	TimeoutMS                  int64
	Ranks                      []int64
}

func c10dNewGroup(s ctorch.DistStore, rank, size int, o groupOptions) (g ctorch.DistGroup, err error) {
	texts := ctorch.CStrings([]string{o.Backend, o.Name, o.Description})
	defer ctorch.FreeStrings(texts)
	ranks := ctorch.CArray(o.Ranks)
	defer ctorch.CFree(unsafe.Pointer(ranks))
	options := ctorch.DistGroupOptions{
		Backend: texts[0], Name: texts[1], Description: texts[2], TimeoutMs: o.TimeoutMS,
		Ranks: ranks, NRanks: int64(len(o.Ranks)),
	}
	m := ctorch.DistNewGroup(s, int64(rank), int64(size), &options, &g)
	return g, native.Error("distributed.Group", m)
}

func c10dSetGroupTimeout(g ctorch.DistGroup, ms int64) error {
	return native.Error("Group.SetTimeout", ctorch.DistGroupSetTimeout(g, ms))
}

func c10dMonitoredBarrier(g ctorch.DistGroup, ms int64, all bool) error {
	options := ctorch.DistOptions{TimeoutMs: ms}
	return native.Error("MonitoredBarrier", ctorch.DistMonitoredBarrier(g, &options, all))
}

// call is what a collective is called with. What it does not take stays zero.
type call struct {
	Op                        string // of errors
	Outputs, Inputs           []gotorch.Tensor
	OutputCounts, InputCounts []int64
	Reduce                    int
	Root, Tag                 int
	TimeoutMS                 int64 // 0: the group's
}

func c10dBegin(g ctorch.DistGroup, which ctorch.Collective, c call) ctorch.DistWork {
	var held native.Holder
	defer held.Free()
	outputs := held.All(c.Op, "output", c.Outputs)
	inputs := held.All(c.Op, "input", c.Inputs)
	options := ctorch.DistOptions{Op: int32(c.Reduce), Root: int64(c.Root), TimeoutMs: c.TimeoutMS}
	slow := ctorch.BeforeCall()
	work, m := ctorch.DistBegin(which, g, outputs, inputs, c.OutputCounts, c.InputCounts, int64(c.Tag), &options)
	warnings := slow.After()
	defer warnings.HandOn(true)
	native.Must(c.Op, m)
	return work
}

func c10dWaitWork(op string, w ctorch.DistWork, ms int64) error {
	return native.Error(op, ctorch.DistWorkWait(w, ms))
}

func c10dWorkDone(w ctorch.DistWork) (done bool, err error) {
	m := ctorch.DistWorkDone(w, &done)
	return done, native.Error("Work.Done", m)
}

func c10dWorkSource(w ctorch.DistWork) (int, error) {
	var n int64
	m := ctorch.DistWorkSource(w, &n)
	return int(n), native.Error("Work.Source", m)
}

func c10dAbortWork(w ctorch.DistWork) error {
	return native.Error("Work.Abort", ctorch.DistWorkAbort(w))
}

// Reducers --------------------------------------------------------------------------------------------

// reducerOptions are DistReducerOptions. Sparse is as long as Names.
type reducerOptions struct {
	BucketBytes                                             int64
	FindUnusedParameters, GradientAsBucketView, StaticGraph bool
	Compression                                             int
	Names                                                   []string
	Sparse                                                  []bool
}

func c10dNewReducer(g ctorch.DistGroup, parameters []gotorch.Tensor, o reducerOptions) (r ctorch.DistReducer) {
	var held native.Holder
	defer held.Free()
	hs := held.All("DataParallel", "parameters", parameters)
	names := ctorch.CStrings(o.Names)
	defer ctorch.FreeStrings(names)
	// What C reads through a pointer in a struct lies in C's memory.
	list := ctorch.CArray(names)
	defer ctorch.CFree(unsafe.Pointer(list))
	sparse := ctorch.CArray(o.Sparse)
	defer ctorch.CFree(unsafe.Pointer(sparse))
	options := ctorch.DistReducerOptions{
		BucketBytes: o.BucketBytes, FindUnusedParameters: o.FindUnusedParameters,
		GradientAsBucketView: o.GradientAsBucketView, StaticGraph: o.StaticGraph,
		Compression: int32(o.Compression), Names: list, Sparse: sparse,
	}
	native.Must("DataParallel", ctorch.DistNewReducer(g, unsafe.SliceData(hs), int64(len(hs)), &options, &r))
	return r
}

func c10dReducerForward(r ctorch.DistReducer, reduced bool) {
	state := ctorch.EnterBack()
	m := ctorch.DistReducerForward(r, reduced)
	native.Check("DataParallel", m, ctorch.LeaveBack(state))
}

func c10dReducerBackward(r ctorch.DistReducer, outputs []gotorch.Tensor) []gotorch.Tensor {
	var held native.Holder
	defer held.Free()
	hs := held.All("DataParallel", "outputs", outputs)
	results := make([]ctorch.Tensor, len(hs))
	state := ctorch.EnterBack()
	m := ctorch.DistReducerBackward(r, unsafe.SliceData(hs), int64(len(hs)), unsafe.SliceData(results))
	native.Check("DataParallel", m, ctorch.LeaveBack(state))
	return native.Tensors(results)
}

// c10dReducerBuckets returns nil before they are laid out; n is the number of parameters.
func c10dReducerBuckets(r ctorch.DistReducer, n int) (all [][]int) {
	params, buckets := make([]int64, n), make([]int64, n)
	var laidOut bool
	native.Must("DataParallel.Buckets", ctorch.DistReducerBuckets(r, unsafe.SliceData(params), unsafe.SliceData(buckets), int64(n), &laidOut))
	if !laidOut {
		return nil
	}
	for i, p := range params {
		if int(buckets[i]) == len(all) {
			all = append(all, nil)
		}
		all[buckets[i]] = append(all[buckets[i]], int(p))
	}
	return all
}

func c10dSetReducerBuckets(r ctorch.DistReducer, all [][]int) {
	var params, buckets []int64
	for b, bucket := range all {
		for _, p := range bucket {
			params, buckets = append(params, int64(p)), append(buckets, int64(b))
		}
	}
	native.Must("DataParallel.SetBuckets", ctorch.DistReducerSetBuckets(r, unsafe.SliceData(params), unsafe.SliceData(buckets), int64(len(params))))
}

func c10dBroadcastCoalesced(g ctorch.DistGroup, tensors []gotorch.Tensor, bytes int64, root int) {
	var held native.Holder
	defer held.Free()
	hs := held.All("DataParallel", "tensors", tensors)
	native.Must("DataParallel", ctorch.DistBroadcastCoalesced(g, unsafe.SliceData(hs), int64(len(hs)), bytes, int64(root)))
}

func c10dSetForwardWork(r ctorch.DistReducer, w ctorch.DistWork, divideByAll bool) {
	native.Must("DataParallel", ctorch.DistReducerSetForwardWork(r, w, divideByAll))
}

func c10dShadow(r ctorch.DistReducer) {
	state := ctorch.EnterBack()
	m := ctorch.DistReducerShadow(r)
	native.Check("Join", m, ctorch.LeaveBack(state))
}

// c10dRegisterCommHook has begin called for each bucket, which becomes begin's, and what that returns when all have begun: nil
// where nothing is left to do.
func c10dRegisterCommHook(r ctorch.DistReducer, begin func(ctorch.DistBucket) (finish func())) {
	const where = "in a communication hook"
	hook := &ctorch.Callback{Begin: func(bucket ctorch.DistBucket) (token int64, m ctorch.Message) {
		m = ctorch.Message(gotorch.CallbackFromC(where, func() {
			finish := begin(bucket)
			if finish == nil {
				return
			}
			token = (&ctorch.Callback{Finish: func() ctorch.Message {
				return ctorch.Message(gotorch.CallbackFromC(where, finish))
			}}).Lend()
		}))
		return token, m
	}}
	token := hook.Lend()
	if m := ctorch.RegisterCommHook(r, token); m != nil {
		ctorch.TakeBack(token)
		native.Must("RegisterCommHook", m)
	}
}

func c10dBucketIndex(b ctorch.DistBucket) (index int, last bool) {
	return int(ctorch.DistBucketIndex(b)), ctorch.DistBucketIsLast(b)
}

func c10dBucketBuffer(b ctorch.DistBucket) gotorch.Tensor {
	var t ctorch.Tensor
	native.Must("GradBucket.Buffer", ctorch.DistBucketBuffer(b, &t))
	return native.Tensor(t)
}

func c10dBucketSetBuffer(b ctorch.DistBucket, t gotorch.Tensor) {
	const op = "GradBucket.SetBuffer"
	var held native.Holder
	defer held.Free()
	native.Must(op, ctorch.DistBucketSetBuffer(b, held.One(op, "buffer", t)))
}

// c10dBucketTensors returns gradients or parameters.
func c10dBucketTensors(b ctorch.DistBucket, parameters bool) []gotorch.Tensor {
	of := ctorch.DistBucketGradients
	if parameters {
		of = ctorch.DistBucketParameters
	}
	var ts *ctorch.Tensor
	var n int64
	native.Must("GradBucket", of(b, &ts, &n))
	defer ctorch.FreeArray(unsafe.Pointer(ts))
	return native.Tensors(unsafe.Slice(ts, n))
}
