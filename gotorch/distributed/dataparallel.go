package distributed

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
	"gotorch.dev/gotorch/internal/ctorch"
	"gotorch.dev/gotorch/nn"
)

// Compression is what of gradients crosses the network.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
type Compression int

// The names are those of Python's hooks fp16_compress_hook and bf16_compress_hook.
//
// See https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html
const (
	NoCompression Compression = iota
	FP16Compress              // half of the bytes, rounded to float16
	BF16Compress              // half of the bytes, rounded to bfloat16
)

// DataParallelOptions are the arguments of [DataParallel] that have defaults, with PyTorch's names.
type DataParallelOptions struct {
	// Group is the ranks that train together. It must be given.
	Group *Group
	// BucketCapMB is how many MiB of gradients are reduced together. Default: 25, and 1 for what comes first.
	BucketCapMB gotorch.Scalar
	// FindUnusedParameters looks in each forward pass which parameters have a part in its result; the others' gradients
	// stay as they are, if no rank has used them. Without it all parameters must be used in each pass.
	FindUnusedParameters bool
	// GradientAsBucketView has gradients be views of what is reduced, which saves a copy and as much memory as they
	// take.
	GradientAsBucketView bool
	// StaticGraph says that every pass uses the same parameters, in the same way.
	StaticGraph bool
	// NoBroadcastBuffers leaves out that rank 0's buffers are copied to the others before each forward pass.
	NoBroadcastBuffers bool
	// NoInitSync leaves out that rank 0's parameters and buffers are copied to the others at the beginning.
	NoInitSync bool
	// Compression: default [NoCompression]. See [DistributedDataParallel.RegisterCommHook] for other ways to reduce gradients.
	Compression Compression
}

// DistributedDataParallel is what [DataParallel] makes: the module, trained by several ranks as one.
type DistributedDataParallel struct {
	nn.Module
	Net nn.Modular `nn:"module"` // as Python saves it

	group   *Group
	reducer ctorch.DistReducer
	options DataParallelOptions
	trained []string // the parameters of the reducer
	noSync  bool
	synced  bool          // whether the buffers are to be copied before the next forward pass
	inHook  *atomic.Int32 // how many calls of its communication hook run
	closing *sync.Once
	remove  []func() // what net has of this
	cleanup runtime.Cleanup
}

// broadcastBytes is how much is copied together at the beginning, and before a forward pass.
const broadcastBytes = 250 << 20

// DataParallel makes a module of net that all ranks of a group train as one: each has its own copy and its own samples, and
// the backward pass averages the gradients over the ranks while it goes on. It is c10d's Reducer, so ranks in Go and in
// Python may train one model.
//
// An nn.SyncBatchNorm in net goes by the batches of all ranks until Close, also in the computer's memory, where Python refuses
// it.
//
// All ranks must call it, with the same options and a net of the same parameters. It panics with an *gotorch.Error: a
// ValueError where no parameter requires a gradient or there is no group, a RuntimeError where the ranks' models or options
// differ, which all ranks get and which says which rank's, and in which parameter. In a job with ranks of Python c10d alone
// compares: how many parameters there are, and their shapes.
//
// The optimizer may have net's parameters or those of the result, which are the same. Do not change which of them require
// gradients afterwards.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html.
func DataParallel(net nn.Modular, opts ...DataParallelOptions) *DistributedDataParallel {
	const op = "distributed.DataParallel"
	opt := args.Option(opts)
	if opt.Group == nil {
		panic(args.ValueError(op, "Group is not given: it is what distributed.Init returns"))
	}
	megabytes := args.Float(op, "BucketCapMB", opt.BucketCapMB, 0)
	if megabytes < 0 || args.Given(opt.BucketCapMB) && megabytes == 0 {
		panic(args.ValueError(op, "BucketCapMB is %v, and must be positive", megabytes))
	}
	sparse := map[string]bool{}
	for name, m := range net.NamedModules() {
		switch e := m.(type) {
		case *nn.EmbeddingModule:
			sparse[name] = e.Sparse
		case *nn.EmbeddingBagModule:
			sparse[name] = e.Sparse
		}
	}
	of := reducerOptions{
		BucketBytes: int64(megabytes * (1 << 20)), FindUnusedParameters: opt.FindUnusedParameters,
		GradientAsBucketView: opt.GradientAsBucketView, StaticGraph: opt.StaticGraph, Compression: int(opt.Compression),
	}
	var trained []gotorch.Tensor
	for name, p := range net.NamedParameters() {
		if p.RequiresGrad() {
			trained = append(trained, p)
			of.Names = append(of.Names, name)
			of.Sparse = append(of.Sparse, sparse[parent(name)])
		}
	}
	if len(trained) == 0 {
		panic(args.ValueError(op, "the module has no parameter that requires a gradient: there is nothing to train"))
	}
	g := opt.Group
	g.checkSameModel(op, outlineOf(net, opt, megabytes))
	if err := g.enter(op); err != nil {
		panic(err)
	}
	defer g.inUse.RUnlock()
	g.mutex.Lock()
	defer g.mutex.Unlock()
	d := nn.Init(&DistributedDataParallel{Net: net, group: g, options: opt, trained: of.Names, synced: true, inHook: new(atomic.Int32), closing: new(sync.Once)})
	d.reducer = c10dNewReducer(g.handle, trained, of)
	d.remove = g.joinBatchNorms(net)
	d.cleanup = runtime.AddCleanup(d, func(r ctorch.DistReducer) { ctorch.DistReducerFree(r) }, d.reducer)
	if !opt.NoInitSync {
		c10dBroadcastCoalesced(g.handle, d.states(), broadcastBytes, 0)
	}
	return d
}

// outlineOf is what all ranks must have alike.
func outlineOf(net nn.Modular, opt DataParallelOptions, megabytes float64) outline {
	of := outline{Call: fmt.Sprintf("DataParallel with BucketCapMB %v, FindUnusedParameters %v, StaticGraph %v, NoBroadcastBuffers %v, NoInitSync %v",
		megabytes, opt.FindUnusedParameters, opt.StaticGraph, opt.NoBroadcastBuffers, opt.NoInitSync)}
	for name, p := range net.NamedParameters() {
		of.add("parameter", name, p, 0)
	}
	if !opt.NoBroadcastBuffers {
		of.addBuffers(net)
	}
	of.addSynced(net)
	return of
}

// joinBatchNorms has each SyncBatchNorm of net go by the batches of all ranks. remove ends that.
func (g *Group) joinBatchNorms(net nn.Modular) (remove []func()) {
	if g.Size() == 1 {
		return nil
	}
	for _, m := range net.NamedModules() {
		if synced, is := m.(*nn.SyncBatchNormModule); is {
			remove = append(remove, synced.ReduceWith(func(t gotorch.Tensor) { g.AllReduce(t, Sum) }))
		}
	}
	return remove
}

func parent(name string) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '.' {
			return name[:i]
		}
	}
	return ""
}

func (d *DistributedDataParallel) buffers() (ts []gotorch.Tensor) {
	for _, b := range d.Net.NamedBuffers() {
		ts = append(ts, b)
	}
	return ts
}

// states returns what ranks have in common: all parameters, and the buffers where they are.
func (d *DistributedDataParallel) states() []gotorch.Tensor {
	all := d.Net.Parameters()
	if !d.options.NoBroadcastBuffers {
		all = append(all, d.buffers()...)
	}
	return all
}

// syncedBuffers returns those that are to be copied before the next forward pass.
func (d *DistributedDataParallel) syncedBuffers() []gotorch.Tensor {
	if !d.synced || d.options.NoBroadcastBuffers {
		return nil
	}
	return d.buffers()
}

// Forward is the module's, whose gradients are averaged in the backward pass. It panics with a TypeError for a module whose
// Forward takes something else than one tensor: see [DistributedDataParallel.Around].
func (d *DistributedDataParallel) Forward(x gotorch.Tensor) gotorch.Tensor {
	layer, ok := d.Net.(nn.Layer)
	if !ok {
		panic(args.TypeError("distributed.DataParallel", "%T has no Forward of one tensor: call it within Around", d.Net))
	}
	return d.Around(func() []gotorch.Tensor { return []gotorch.Tensor{layer.Forward(x)} })[0]
}

// Around is Forward for a module of any other signature: forward calls it, and returns the tensors that losses are
// computed from. Use those that Around returns in their place.
//
//	out := model.Around(func() []gotorch.Tensor {
//		logits, hidden := net.Forward(tokens, mask)
//		return []gotorch.Tensor{logits, hidden}
//	})
func (d *DistributedDataParallel) Around(forward func() []gotorch.Tensor) []gotorch.Tensor {
	const op = "distributed.DataParallel"
	if d.reducer == nil {
		panic(args.ValueError(op, "the module was used after Close"))
	}
	if d.inHook.Load() > 0 { // where the reducer is locked
		panic(args.Errorf(op, gotorch.RuntimeError, "its communication hook runs: call the model before or after Backward"))
	}
	recorded := gotorch.GradEnabled()
	d.before(op, recorded)
	outputs := forward()
	d.synced = recorded && !d.noSync
	if d.synced {
		outputs = c10dReducerBackward(d.reducer, outputs)
		for _, t := range outputs {
			if !t.IsLeaf() {
				// The graph keeps what averages its gradients: the caller may have nothing else when it goes backward.
				t.RegisterHook(func(gotorch.Tensor) gotorch.Tensor {
					runtime.KeepAlive(d)
					return gotorch.Tensor{}
				})
			}
		}
	}
	return outputs
}

func (d *DistributedDataParallel) before(op string, recorded bool) {
	if err := d.group.enter(op); err != nil {
		panic(err)
	}
	defer d.group.inUse.RUnlock()
	d.group.mutex.Lock()
	defer d.group.mutex.Unlock()
	join := d.joinedLocked()
	if join != nil && join.joinables[0] == Joinable(d) {
		work := join.notifyLocked(op, d.group)
		c10dSetForwardWork(d.reducer, work.handle, !join.options.NoDivideByInitialWorldSize)
	}
	if recorded {
		// Where all ranks agree on new buckets, which is a collective: not only where gradients are reduced.
		c10dReducerForward(d.reducer, !d.noSync)
	}
	if buffers := d.syncedBuffers(); len(buffers) > 0 {
		root := 0
		if join != nil {
			root = d.group.largestLocked(op, d.group.rank) // of those that have not come to the end
		}
		c10dBroadcastCoalesced(d.group.handle, buffers, broadcastBytes, root)
	}
	if join != nil {
		average := float32(0)
		if recorded && !d.noSync {
			average = 1
		}
		d.group.countLocked(op, average)
	}
}

// SyncBuffers copies rank 0's buffers to the others, as each forward pass does after one whose gradients were averaged. All
// ranks must call it.
func (d *DistributedDataParallel) SyncBuffers() {
	const op = "distributed.DataParallel"
	if err := d.group.enter(op); err != nil {
		panic(err)
	}
	defer d.group.inUse.RUnlock()
	d.group.mutex.Lock()
	defer d.group.mutex.Unlock()
	if buffers := d.buffers(); len(buffers) > 0 {
		c10dBroadcastCoalesced(d.group.handle, buffers, broadcastBytes, 0)
	}
}

// NoSync runs fn without averaging: gradients add up on each rank, and the first backward pass of a forward pass after it
// averages them all.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html#torch.nn.parallel.DistributedDataParallel.no_sync.
func (d *DistributedDataParallel) NoSync(fn func()) {
	before := d.noSync
	d.noSync = true
	defer func() { d.noSync = before }()
	fn()
}

// Buckets returns the names of the parameters in each bucket, in the order in which buckets are reduced, or nil if the buckets are not
// laid out yet: the first backward pass with averaging decides on them, by the order in which gradients come. A sum of three or more
// ranks depends on them in its last bits, so a job that is resumed to the same bits saves them, and calls
// [DistributedDataParallel.SetBuckets] before its first pass. A train.Loop does both. With StaticGraph the second pass decides; a call
// between the first two lays them out in the order of parameters.
//
// All ranks must call it.
func (d *DistributedDataParallel) Buckets() (buckets [][]string) {
	d.between("DataParallel.Buckets", func() {
		for _, bucket := range c10dReducerBuckets(d.reducer, len(d.trained)) {
			var names []string
			for _, i := range bucket {
				names = append(names, d.trained[i])
			}
			buckets = append(buckets, names)
		}
	})
	return buckets
}

// SetBuckets reduces gradients in these buckets from now on; nil changes nothing. All ranks must call it with the same buckets, between two
// passes, and all must be ranks of Go. It panics with a ValueError, and changes nothing, unless each parameter that requires a gradient
// is in one bucket.
func (d *DistributedDataParallel) SetBuckets(buckets [][]string) {
	const op = "DataParallel.SetBuckets"
	if !d.group.allGo {
		panic(args.Errorf(op, gotorch.NotImplementedError, "there are ranks of Python in %v, whose buckets cannot be set", d.group))
	}
	d.group.checkSameModel(op, outline{Call: fmt.Sprintf("DataParallel.SetBuckets(%q)", buckets)})
	if buckets == nil {
		return
	}
	indices := map[string]int{}
	for i, name := range d.trained {
		indices[name] = i
	}
	var all [][]int
	for _, names := range buckets {
		if len(names) == 0 {
			panic(args.ValueError(op, "a bucket is empty"))
		}
		var bucket []int
		for _, name := range names {
			i, is := indices[name]
			if !is {
				panic(args.ValueError(op, "%q is no parameter that requires a gradient, or is in two buckets", name))
			}
			delete(indices, name)
			bucket = append(bucket, i)
		}
		all = append(all, bucket)
	}
	for _, name := range d.trained {
		if _, missing := indices[name]; missing {
			panic(args.ValueError(op, "the parameter %q is in no bucket", name))
		}
	}
	d.between(op, func() { c10dSetReducerBuckets(d.reducer, all) })
}

// between runs fn between two passes.
func (d *DistributedDataParallel) between(op string, fn func()) {
	if d.reducer == nil {
		panic(args.ValueError(op, "the module was used after Close"))
	}
	if d.inHook.Load() > 0 {
		panic(args.Errorf(op, gotorch.RuntimeError, "its communication hook runs: call it before or after Backward"))
	}
	if err := d.group.enter(op); err != nil {
		panic(err)
	}
	defer d.group.inUse.RUnlock()
	d.group.mutex.Lock()
	defer d.group.mutex.Unlock()
	fn()
}

// Close ends the averaging; the module within can be used on. The error is a RuntimeError within its communication hook, and nil
// else.
func (d *DistributedDataParallel) Close() error {
	if d.inHook.Load() > 0 {
		return args.Errorf("DataParallel.Close", gotorch.RuntimeError, "its communication hook runs: call it after Backward")
	}
	d.closing.Do(func() {
		d.cleanup.Stop()
		ctorch.DistReducerFree(d.reducer)
		d.reducer = nil
		for _, remove := range d.remove {
			remove()
		}
	})
	return nil
}

// ExtraRepr returns which rank it is.
func (d *DistributedDataParallel) ExtraRepr() string { return fmt.Sprint(d.group) }
