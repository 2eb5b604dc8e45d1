package distributed

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"slices"

	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// Codec makes bytes of values and values of bytes.
type Codec interface {
	Encode(value any) ([]byte, error)
	Decode(encoded []byte, value any) error
}

// Gob and JSON are codecs of the standard library. Values may come from other ranks: neither runs code of theirs.
var (
	Gob  Codec = gobCodec{}
	JSON Codec = jsonCodec{}
)

type gobCodec struct{}

func (gobCodec) Encode(value any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(value)
	return b.Bytes(), err
}

func (gobCodec) Decode(encoded []byte, value any) error {
	return gob.NewDecoder(bytes.NewReader(encoded)).Decode(value)
}

type jsonCodec struct{}

func (jsonCodec) Encode(value any) ([]byte, error)       { return json.Marshal(value) }
func (jsonCodec) Decode(encoded []byte, value any) error { return json.Unmarshal(encoded, value) }

// ObjectOptions are the arguments of collectives of Go values that have defaults.
type ObjectOptions struct {
	// Codec: default [Gob].
	Codec Codec
}

func (o ObjectOptions) codec() Codec {
	if o.Codec == nil {
		return Gob
	}
	return o.Codec
}

// Collectives of Go values are made of collectives of tensors: first the ranks tell each other how long their bytes
// are. A rank that cannot encode its value says -1, so that all fail, and none waits.

const failedToEncode = -1

// AllGatherObject returns the values of all ranks, by rank. All must call it with the same type and codec. The error is
// of this rank's codec, or of a rank that could not encode its value, or the collective's.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather_object
func AllGatherObject[T any](g *Group, value T, opts ...ObjectOptions) ([]T, error) {
	const op = "AllGatherObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return nil, g.enter(op)
	}
	encoded, failed := codec.Encode(value)
	var parts [][]byte
	err := gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			lengths := gather(g, length(encoded, failed))
			checkLengths(op, lengths, failed)
			parts = g.gatherBytes(encoded, lengths)
		})
	})
	if err != nil {
		return nil, err
	}
	return decodeAll[T](op, codec, parts)
}

// BroadcastObject returns src's value on all ranks; those of the others are not looked at. Errors are those of
// [AllGatherObject].
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast_object_list
func BroadcastObject[T any](g *Group, value T, src int, opts ...ObjectOptions) (result T, err error) {
	const op = "BroadcastObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return result, g.enter(op)
	}
	var encoded []byte
	var failed error
	if g.rank == src {
		encoded, failed = codec.Encode(value)
	}
	err = gotorch.Try0(func() {
		g.checkRank(op, "src", src)
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			n := gotorch.FromSlice([]int64{length(encoded, failed)})
			g.Broadcast(n, src)
			lengths := gotorch.ToSlice[int64](n)
			if lengths[0] == failedToEncode {
				panic(notEncoded(op, src, failed))
			}
			t := padded(encoded, lengths[0])
			g.Broadcast(t, src)
			encoded = gotorch.ToSlice[uint8](t)
		})
	})
	if err != nil {
		return result, err
	}
	err = decode(op, codec, encoded, src, &result)
	return result, err
}

// GatherObject returns the values of all ranks, by rank, on dst, and nil on the others. Errors are those of
// [AllGatherObject].
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.gather_object
func GatherObject[T any](g *Group, value T, dst int, opts ...ObjectOptions) ([]T, error) {
	const op = "GatherObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return nil, g.enter(op)
	}
	encoded, failed := codec.Encode(value)
	var parts [][]byte
	err := gotorch.Try0(func() {
		g.checkRank(op, "dst", dst)
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			lengths := gather(g, length(encoded, failed))
			checkLengths(op, lengths, failed)
			longest := slices.Max(lengths)
			var padding []gotorch.Tensor
			if g.rank == dst {
				for range lengths {
					padding = append(padding, gotorch.Empty([]int64{longest}, gotorch.TensorOptions{DType: gotorch.Uint8}))
				}
			}
			g.Gather(padded(encoded, longest), padding, dst)
			for rank, t := range padding {
				parts = append(parts, gotorch.ToSlice[uint8](t)[:lengths[rank]])
			}
		})
	})
	if err != nil || g.rank != dst {
		return nil, err
	}
	return decodeAll[T](op, codec, parts)
}

// ScatterObject returns src's values[i] on rank i. values are as many as the group has ranks; those of the others are not
// looked at. Errors are those of [AllGatherObject].
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.scatter_object_list
func ScatterObject[T any](g *Group, values []T, src int, opts ...ObjectOptions) (result T, err error) {
	const op = "ScatterObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return result, g.enter(op)
	}
	var encoded [][]byte
	var failed error
	var mine []byte
	if g.rank == src {
		if len(values) != g.Size() {
			failed = fmt.Errorf("%d values, which must be as many as the group has ranks: %d", len(values), g.Size())
		}
		for _, v := range values {
			if failed == nil {
				var b []byte
				b, failed = codec.Encode(v)
				encoded = append(encoded, b)
			}
		}
	}
	err = gotorch.Try0(func() {
		g.checkRank(op, "src", src)
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			lengths := make([]int64, g.Size())
			for rank := range lengths {
				if failed != nil {
					lengths[rank] = failedToEncode
				} else if g.rank == src {
					lengths[rank] = int64(len(encoded[rank]))
				}
			}
			n := gotorch.FromSlice(lengths)
			g.Broadcast(n, src)
			lengths = gotorch.ToSlice[int64](n)
			if lengths[0] == failedToEncode {
				panic(notEncoded(op, src, failed))
			}
			longest := slices.Max(lengths)
			var parts []gotorch.Tensor
			for _, b := range encoded {
				parts = append(parts, padded(b, longest))
			}
			t := gotorch.Empty([]int64{longest}, gotorch.TensorOptions{DType: gotorch.Uint8})
			g.Scatter(t, parts, src)
			mine = gotorch.ToSlice[uint8](t)[:lengths[g.rank]]
		})
	})
	if err != nil {
		return result, err
	}
	err = decode(op, codec, mine, src, &result)
	return result, err
}

// SendObject sends a value to dst, which receives it with [RecvObject] of the same type and codec. A value that cannot be
// encoded is an error here and there.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.send_object_list
func SendObject[T any](g *Group, value T, dst int, opts ...ObjectOptions) error {
	const op = "SendObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return g.enter(op)
	}
	encoded, failed := codec.Encode(value)
	return gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			g.Send(gotorch.FromSlice([]int64{length(encoded, failed)}), dst)
			if failed != nil {
				panic(notEncoded(op, g.rank, failed))
			}
			if len(encoded) > 0 { // of nothing Gloo's receiver hears nothing
				g.Send(gotorch.FromSlice(encoded), dst)
			}
		})
	})
}

// RecvObject receives what src has sent with [SendObject], or whoever sends first where src is [AnyRank], and returns who
// it was, too.
//
// See https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.recv_object_list
func RecvObject[T any](g *Group, src int, opts ...ObjectOptions) (result T, from int, err error) {
	const op = "RecvObject"
	codec := args.Option(opts).codec()
	if g == nil {
		return result, src, g.enter(op)
	}
	var encoded []byte
	from = src
	err = gotorch.Try0(func() {
		gotorch.Scope0(func(*gotorch.ScopeHandle) {
			n := gotorch.FromSlice([]int64{0})
			from = g.Recv(n, src)
			size := gotorch.Item[int64](n)
			if size == failedToEncode {
				panic(notEncoded(op, from, nil))
			}
			t := gotorch.Empty([]int64{size}, gotorch.TensorOptions{DType: gotorch.Uint8})
			if size > 0 {
				g.Recv(t, from)
			}
			encoded = gotorch.ToSlice[uint8](t)
		})
	})
	if err != nil {
		return result, from, err
	}
	err = decode(op, codec, encoded, from, &result)
	return result, from, err
}

func decodeAll[T any](op string, codec Codec, parts [][]byte) ([]T, error) {
	values := make([]T, len(parts))
	for rank, part := range parts {
		if err := decode(op, codec, part, rank, &values[rank]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func decode(op string, codec Codec, encoded []byte, rank int, value any) error {
	if err := codec.Decode(encoded, value); err != nil {
		return fmt.Errorf("%s: the value of rank %d: %w", op, rank, err)
	}
	return nil
}

func length(encoded []byte, failed error) int64 {
	if failed != nil {
		return failedToEncode
	}
	return int64(len(encoded))
}

// gather returns the number of each rank.
func gather(g *Group, n int64) []int64 {
	all := gotorch.Zeros([]int64{int64(g.Size())}, gotorch.TensorOptions{DType: gotorch.Int64})
	g.AllGatherIntoTensor(all, gotorch.FromSlice([]int64{n}))
	return gotorch.ToSlice[int64](all)
}

func checkLengths(op string, lengths []int64, failed error) {
	for rank, n := range lengths {
		if n == failedToEncode {
			panic(notEncoded(op, rank, failed))
		}
	}
}

func notEncoded(op string, rank int, failed error) error {
	if failed != nil {
		return args.ValueError(op, "the value of this rank cannot be encoded: %v", failed)
	}
	return args.ValueError(op, "rank %d could not encode its value", rank)
}

// padded is bytes as a tensor of n.
func padded(encoded []byte, n int64) gotorch.Tensor {
	b := make([]byte, n)
	copy(b, encoded)
	return gotorch.FromSlice(b)
}

// gatherBytes returns the bytes of each rank, of the lengths that all know.
func (g *Group) gatherBytes(mine []byte, lengths []int64) [][]byte {
	var longest int64
	for _, n := range lengths {
		longest = max(longest, n)
	}
	all := gotorch.Empty([]int64{longest * int64(g.Size())}, gotorch.TensorOptions{DType: gotorch.Uint8})
	g.AllGatherIntoTensor(all, padded(mine, longest))
	bytes := gotorch.ToSlice[uint8](all)
	parts := make([][]byte, len(lengths))
	for rank, n := range lengths {
		at := int64(rank) * longest
		parts[rank] = bytes[at : at+n]
	}
	return parts
}
