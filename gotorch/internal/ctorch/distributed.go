package ctorch

/*
#include <cgotorch.h>

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

import "unsafe"

// A Collective is one of distributed.h, by its function there.
type Collective int32

// The order is that of the switch above.
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

// DistBegin begins a collective.
func DistBegin(which Collective, g DistGroup, outputs, inputs []Tensor, outputCounts, inputCounts []int64, tag int64, o *DistOptions) (work DistWork, m Message) {
	m = C.gotorch_collective(C.int(which), g, first(outputs), C.int64_t(len(outputs)), first(inputs), C.int64_t(len(inputs)),
		(*C.int64_t)(first(outputCounts)), C.int64_t(len(outputCounts)), (*C.int64_t)(first(inputCounts)), C.int64_t(len(inputCounts)),
		C.int64_t(tag), (*C.DistOptions)(unsafe.Pointer(o)), &work)
	return work, m
}
