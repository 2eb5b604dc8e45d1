package functional

import (
	"gotorch.dev/gotorch"
	"gotorch.dev/gotorch/internal/args"
)

// ScalingType is what one scale of a matrix of float8 or float4 numbers is for.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.ScalingType.html.
type ScalingType int64

// PyTorch's scalings.
const (
	ScalingTensorWise       ScalingType = iota // one scale for the matrix
	ScalingRowWise                             // one for each row of the first matrix, or column of the second
	ScalingBlockWise1x16                       // one for 16 neighbours in a row
	ScalingBlockWise1x32                       // one for 32 neighbours in a row
	ScalingBlockWise1x128                      // one for 128 neighbours in a row
	ScalingBlockWise128x128                    // one for each square of 128 by 128
)

// SwizzleType is the order in which scales lie in memory, which some GPUs want to be one of their own.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.SwizzleType.html.
type SwizzleType int64

// PyTorch's orders.
const (
	SwizzleNone   SwizzleType = iota // that of the matrix, NO_SWIZZLE
	Swizzle32x4x4                    // SWIZZLE_32_4_4
	Swizzle32x8                      // SWIZZLE_32_8
)

// GroupedMMOptions are the arguments of [GroupedMM] that have defaults.
type GroupedMMOptions struct {
	Offs     gotorch.Tensor // (G) of int32: where each group ends in the dimension that has all of them; default: none
	Bias     gotorch.Tensor // to be added to each group's product; libtorch 2.15 refuses one; default: none
	OutDType gotorch.DType  // default: that of matA
}

// GroupedMM multiplies the matrices of G groups, as layers with many experts do. With both in three dimensions it
// is (G, M, K) and (G, K, N) → (G, M, N), a product for each group. An operand in two dimensions has the groups one
// behind the other, and Offs says where each ends:
//
//	(M, K), (G, K, N) → (M, N)      rows of matA belong to a group
//	(G, M, K), (K, N) → (M, N)      columns of matB belong to a group
//	(M, K), (K, N)    → (G, M, N)   the sums are over parts of K
//
// Both are float32, float16 or bfloat16. In each, one of the last two dimensions has stride 1, and the stride of the
// other is a multiple of 16 bytes. What is behind the last offset of rows or columns is not computed: the result and the
// gradients have any numbers there. It panics with a RuntimeError for anything else.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grouped_mm.html.
func GroupedMM(matA, matB gotorch.Tensor, opts ...GroupedMMOptions) gotorch.Tensor {
	opt := args.Option(opts)
	return product("_grouped_mm", matA, matB, opt.Offs, opt.Bias, opt.OutDType)
}

// ScaledMMOptions are the arguments of [ScaledMM] that have defaults.
type ScaledMMOptions struct {
	SwizzleA, SwizzleB []SwizzleType  // one for each scale; default: none
	Bias               gotorch.Tensor // (N), to be added to each row; default: none
	OutputDType        gotorch.DType  // default: BFloat16; Python's None is the dtype of matA
	ContractionDim     []int64        // of matA and of matB: nothing, or 1 and 0, which is the same
	UseFastAccum       bool           // add up with less precision, where a GPU can
}

// ScaledMM multiplies matrices of float8 or float4 numbers that were divided by scales: (M, K) and (K, N) → (M, N),
// of OutputDType. The numbers are multiplied by their scales again, which are float32: for [ScalingTensorWise] one
// element, for [ScalingRowWise] (M, 1) and (1, N). There may be several scales and recipes, of which each is within
// the next. What a device has kernels for differs: the processor multiplies float8 with the first two recipes and
// takes no order of scales; float4 and the scales of blocks are for recent GPUs. It panics with libtorch's error, most
// often a ValueError, where there is no kernel, and with a ValueError for a recipe that is none of PyTorch's.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_mm.html.
func ScaledMM(matA, matB gotorch.Tensor, scaleA []gotorch.Tensor, scaleRecipeA []ScalingType,
	scaleB []gotorch.Tensor, scaleRecipeB []ScalingType, opts ...ScaledMMOptions) gotorch.Tensor {
	const op = "functional.ScaledMM"
	opt := args.Option(opts)
	return product("_scaled_mm_v2", matA, matB, scaleA, recipes(op, scaleRecipeA), swizzles(op, opt.SwizzleA),
		scaleB, recipes(op, scaleRecipeB), swizzles(op, opt.SwizzleB),
		opt.Bias, orBFloat16(opt.OutputDType), opt.ContractionDim, opt.UseFastAccum)
}

// ScaledGroupedMMOptions are the arguments of [ScaledGroupedMM] that have defaults.
type ScaledGroupedMMOptions struct {
	SwizzleA, SwizzleB []SwizzleType  // one for each scale; default: none
	Bias               gotorch.Tensor // to be added to each group's product; default: none
	Offs               gotorch.Tensor // (G) of int32, as for [GroupedMM]; default: none
	OutputDType        gotorch.DType  // default: BFloat16; Python's None is the dtype of matA
	ContractionDim     []int64        // the dimensions of matA and of matB that are summed over; default: the usual ones
	UseFastAccum       bool           // add up with less precision, where a GPU can
}

// ScaledGroupedMM is [GroupedMM] of matrices of float8 or float4 numbers that were divided by scales, as for
// [ScaledMM]. libtorch 2.15 has kernels for recent GPUs only: elsewhere it panics with libtorch's error, a
// NotImplementedError or, where the arguments would not do on a GPU either, a ValueError.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_grouped_mm.html.
func ScaledGroupedMM(matA, matB gotorch.Tensor, scaleA []gotorch.Tensor, scaleRecipeA []ScalingType,
	scaleB []gotorch.Tensor, scaleRecipeB []ScalingType, opts ...ScaledGroupedMMOptions) gotorch.Tensor {
	const op = "functional.ScaledGroupedMM"
	opt := args.Option(opts)
	return product("_scaled_grouped_mm_v2", matA, matB, scaleA, recipes(op, scaleRecipeA), swizzles(op, opt.SwizzleA),
		scaleB, recipes(op, scaleRecipeB), swizzles(op, opt.SwizzleB),
		opt.Offs, opt.Bias, orBFloat16(opt.OutputDType), opt.ContractionDim, opt.UseFastAccum)
}

// ScaledAddMMOptions are the arguments of [ScaledAddMM] that have defaults.
type ScaledAddMMOptions struct {
	SwizzleA, SwizzleB []SwizzleType  // one for each scale; default: none
	ContractionDim     []int64        // of mat1 and of mat2: nothing, or 1 and 0, which is the same
	UseFastAccum       bool           // add up with less precision, where a GPU can
	Beta               gotorch.Scalar // what the input is multiplied by; default: 1.0
	Alpha              gotorch.Scalar // what the product is multiplied by; default: 1.0
}

// ScaledAddMM returns Beta·input + Alpha·(mat1·mat2) for matrices of float8 or float4 numbers that were divided by
// scales, as for [ScaledMM], without rounding the product in between: (M, N), (M, K) and (K, N) → (M, N). The input
// is contiguous and of float16, bfloat16 or float32, as the result is. libtorch 2.15 has kernels for recent GPUs only:
// elsewhere it panics with libtorch's NotImplementedError.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_addmm.html.
func ScaledAddMM(input, mat1, mat2 gotorch.Tensor, scaleA []gotorch.Tensor, scaleRecipeA []ScalingType,
	scaleB []gotorch.Tensor, scaleRecipeB []ScalingType, opts ...ScaledAddMMOptions) gotorch.Tensor {
	return scaledAddMM("functional.ScaledAddMM", "_scaled_addmm", input, mat1, mat2, scaleA, scaleRecipeA, scaleB, scaleRecipeB, opts)
}

// ScaledAddMM_ is [ScaledAddMM] that overwrites the input, which it returns. Who adds to one tensor from several
// goroutines has them take turns.
//
// See https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_addmm_.html.
func ScaledAddMM_(input, mat1, mat2 gotorch.Tensor, scaleA []gotorch.Tensor, scaleRecipeA []ScalingType,
	scaleB []gotorch.Tensor, scaleRecipeB []ScalingType, opts ...ScaledAddMMOptions) gotorch.Tensor {
	same := scaledAddMM("functional.ScaledAddMM_", "_scaled_addmm_", input, mat1, mat2, scaleA, scaleRecipeA, scaleB, scaleRecipeB, opts)
	same.Close()
	return input
}

func scaledAddMM(op, native string, input, mat1, mat2 gotorch.Tensor, scaleA []gotorch.Tensor, recipeA []ScalingType,
	scaleB []gotorch.Tensor, recipeB []ScalingType, opts []ScaledAddMMOptions) gotorch.Tensor {
	opt := args.Option(opts)
	return product(native, input, mat1, mat2, scaleA, recipes(op, recipeA), swizzles(op, opt.SwizzleA),
		scaleB, recipes(op, recipeB), swizzles(op, opt.SwizzleB), opt.ContractionDim,
		gotorch.Named("beta", args.Float(op, "Beta", opt.Beta, 1)), gotorch.Named("alpha", args.Float(op, "Alpha", opt.Alpha, 1)),
		gotorch.Named("use_fast_accum", opt.UseFastAccum))
}

// product calls an operator that package gotorch has no function for, because PyTorch has it for these alone.
func product(native string, arguments ...any) gotorch.Tensor {
	return gotorch.Call("aten::"+native, "", arguments...)[0].(gotorch.Tensor)
}

func orBFloat16(d gotorch.DType) gotorch.DType {
	if d == 0 {
		return gotorch.BFloat16
	}
	return d
}

// recipes returns PyTorch's numbers for scalings, which are not its to check: from Python, there are no others.
func recipes(op string, given []ScalingType) []int64 {
	return known(op, "ScalingType", given, ScalingBlockWise128x128)
}

func swizzles(op string, given []SwizzleType) []int64 {
	return known(op, "SwizzleType", given, Swizzle32x8)
}

func known[E ~int64](op, name string, given []E, last E) []int64 {
	found := make([]int64, len(given))
	for i, e := range given {
		if e < 0 || e > last {
			panic(args.ValueError(op, "%d is no %s: they go from 0 to %d", e, name, last))
		}
		found[i] = int64(e)
	}
	return found
}
