// Package rnn packs sequences of different lengths for the recurrent layers, as torch.nn.utils.rnn does.
//
//	packed := rnn.PackSequence(sequences, rnn.PackSequenceOptions{NoEnforceSorted: true})
//	out, h, c := lstm.ForwardPacked(packed)
//	padded, lengths := rnn.PadPackedSequence(out)
package rnn

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// PackedSequence is sequences of different lengths, one step after the other. The functions of this package
// make them.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.PackedSequence.html.
type PackedSequence struct {
	Data       gotorch.Tensor // (sum of lengths, *)
	BatchSizes gotorch.Tensor // how many sequences each step has, int64 on the CPU
	// How the sequences were sorted by length, and the inverse; none if they came sorted.
	SortedIndices, UnsortedIndices gotorch.Tensor
}

// To returns the sequences on another device or of another dtype.
func (p PackedSequence) To(to ...gotorch.ToArg) PackedSequence {
	p.Data = p.Data.To(to...)
	for _, t := range []*gotorch.Tensor{&p.SortedIndices, &p.UnsortedIndices} {
		if t.T != nil {
			*t = t.To(p.Data.Device())
		}
	}
	return p
}

// InvertPermutation returns the inverse of a permutation of int64; of none, none.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.invert_permutation.html.
func InvertPermutation(permutation gotorch.Tensor) gotorch.Tensor {
	if permutation.T == nil {
		return permutation
	}
	inverse := gotorch.EmptyLike(permutation, gotorch.TensorOptions{MemoryFormat: gotorch.ContiguousFormat})
	return inverse.Scatter_(0, permutation, gotorch.Arange(permutation.Numel(), gotorch.TensorOptions{Device: permutation.Device()}))
}

// PackPaddedSequenceOptions are the arguments of [PackPaddedSequence] that have defaults.
type PackPaddedSequenceOptions struct {
	BatchFirst      bool // input is (N, T, *) rather than (T, N, *)
	NoEnforceSorted bool // sort the sequences; otherwise they must come by length, the longest first
}

// PackPaddedSequence packs sequences that were padded to one length: input is (T, N, *), lengths an int64 of
// (N) on the CPU. It panics with a RuntimeError if the lengths do not fit.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_padded_sequence.html.
func PackPaddedSequence(input, lengths gotorch.Tensor, opts ...PackPaddedSequenceOptions) PackedSequence {
	opt := args.Option(opts)
	lengths = lengths.To(gotorch.Int64)
	var packed PackedSequence
	if opt.NoEnforceSorted {
		lengths, packed.SortedIndices = lengths.Sort(gotorch.SortOptions{Descending: true})
		packed.SortedIndices = packed.SortedIndices.To(input.Device())
		input = input.IndexSelect(batchDim(opt.BatchFirst), packed.SortedIndices)
	}
	packed.Data, packed.BatchSizes = gotorch.PackPaddedSequence(input, lengths, opt.BatchFirst)
	packed.UnsortedIndices = InvertPermutation(packed.SortedIndices)
	return packed
}

func batchDim(first bool) int64 {
	if first {
		return 0
	}
	return 1
}

// PadPackedSequenceOptions are the arguments of [PadPackedSequence] that have defaults.
type PadPackedSequenceOptions struct {
	BatchFirst   bool // the result is (N, T, *) rather than (T, N, *)
	PaddingValue float64
	TotalLength  gotorch.Scalar // of the result; default: that of the longest sequence
}

// PadPackedSequence is the inverse of [PackPaddedSequence]: it returns (T, N, *) and the lengths. It panics
// with a ValueError if a sequence is longer than TotalLength.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_packed_sequence.html.
func PadPackedSequence(sequence PackedSequence, opts ...PadPackedSequenceOptions) (padded, lengths gotorch.Tensor) {
	const op = "rnn.PadPackedSequence"
	opt := args.Option(opts)
	longest := sequence.BatchSizes.Size(0)
	total := args.Int(op, "TotalLength", opt.TotalLength, longest)
	if total < longest {
		panic(args.ValueError(op, "expected TotalLength to be at least the length of the longest sequence in input, but got %d and %d", total, longest))
	}
	padded, lengths = gotorch.PadPackedSequence(sequence.Data, sequence.BatchSizes, opt.BatchFirst, opt.PaddingValue, total)
	if unsorted := sequence.UnsortedIndices; unsorted.T != nil {
		padded = padded.IndexSelect(batchDim(opt.BatchFirst), unsorted)
		lengths = lengths.IndexSelect(0, unsorted.To(gotorch.CPU))
	}
	return padded, lengths
}

// PadSequenceOptions are the arguments of [PadSequence] that have defaults.
type PadSequenceOptions struct {
	BatchFirst   bool // the result is (N, T, *) rather than (T, N, *)
	PaddingValue float64
	PaddingSide  string // "right" or "left"; default: "right"
}

// PadSequence makes one tensor of sequences of (T, *), as long as the longest: (T, N, *).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html.
func PadSequence(sequences []gotorch.Tensor, opts ...PadSequenceOptions) gotorch.Tensor {
	return gotorch.PadSequence(sequences, gotorch.PadSequenceOptions(args.Option(opts)))
}

// UnpadSequenceOptions are the arguments of [UnpadSequence] that have defaults.
type UnpadSequenceOptions struct {
	BatchFirst bool // the sequences are (N, T, *) rather than (T, N, *)
}

// UnpadSequence returns the sequences that [PadSequence] has put together: padded is (T, N, *), lengths (N).
// It panics with a ValueError if there are not as many lengths as sequences.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.unpad_sequence.html.
func UnpadSequence(padded, lengths gotorch.Tensor, opts ...UnpadSequenceOptions) []gotorch.Tensor {
	if !args.Option(opts).BatchFirst {
		padded = padded.Transpose(0, 1)
	}
	all := gotorch.ToSlice[int64](lengths)
	if n := padded.Size(0); int64(len(all)) != n {
		panic(args.ValueError("rnn.UnpadSequence", "there are %d sequences and %d lengths", n, len(all)))
	}
	var sequences []gotorch.Tensor
	for i, n := range all {
		sequences = append(sequences, padded.Select(0, int64(i)).Narrow(0, 0, max(0, min(n, padded.Size(1)))).Clone())
	}
	return sequences
}

// PackSequenceOptions are the arguments of [PackSequence] that have defaults.
type PackSequenceOptions struct {
	NoEnforceSorted bool // sort the sequences; otherwise they must come by length, the longest first
}

// PackSequence packs sequences of (T, *).
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pack_sequence.html.
func PackSequence(sequences []gotorch.Tensor, opts ...PackSequenceOptions) PackedSequence {
	lengths := make([]int64, len(sequences))
	for i, s := range sequences {
		lengths[i] = s.Size(0)
	}
	return PackPaddedSequence(PadSequence(sequences), gotorch.FromSlice(lengths), PackPaddedSequenceOptions{NoEnforceSorted: args.Option(opts).NoEnforceSorted})
}

// UnpackSequence is the inverse of [PackSequence].
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.unpack_sequence.html.
func UnpackSequence(packed PackedSequence) []gotorch.Tensor {
	padded, lengths := PadPackedSequence(packed, PadPackedSequenceOptions{BatchFirst: true})
	return UnpadSequence(padded, lengths, UnpadSequenceOptions{BatchFirst: true})
}
