/* functorch.h: the levels of function transforms, as torch.func has them. Included by cgotorch.h,
 * inside its extern "C".
 *
 * A transform enters a level, wraps what it gives to the function, runs it, unwraps what comes out,
 * and leaves the level. Levels are the calling thread's and nest: the last that was entered is the
 * first to leave. */
#ifndef CGOTORCH_FUNCTORCH_H
#define CGOTORCH_FUNCTORCH_H

enum {
  TransformNone = 0,
  TransformVMap = 1,
  TransformGrad = 2, /* reverse mode */
  TransformJVP = 3   /* forward mode */
};

/* What random functions do inside of a vmap. */
enum { RandomnessError = 0, RandomnessSame = 1, RandomnessDifferent = 2 };

/* Enters a level, numbered from 1. batch_size and randomness are for TransformVMap. Grad mode, or
 * forward grad mode under TransformJVP, is on from then on, and inference mode is off. */
CGOTORCH_API const char *EnterTransform(int32_t kind, int64_t batch_size, int32_t randomness,
                                        int64_t *level) CGOTORCH_SYMBOL(EnterTransform);
/* Leaves the level, with those above it that were not left, and restores the modes. Tensors that
 * were wrapped in it, and results computed from them, must be used no more; unwrapped ones may. */
CGOTORCH_API const char *LeaveTransform(int64_t level) CGOTORCH_SYMBOL(LeaveTransform);
/* How many levels the calling thread is in. */
CGOTORCH_API int64_t TransformDepth(void) CGOTORCH_SYMBOL(TransformDepth);

/* t as the function sees it in a level of TransformGrad or TransformJVP. Under TransformGrad
 * requires_grad makes it a leaf whose gradient can be asked for. */
CGOTORCH_API const char *WrapForGrad(Tensor t, int64_t level, bool requires_grad, Tensor *result)
    CGOTORCH_SYMBOL(WrapForGrad);
/* The tensor within, where t was wrapped in that level; else a further handle to t. */
CGOTORCH_API const char *UnwrapForGrad(Tensor t, int64_t level, Tensor *result)
    CGOTORCH_SYMBOL(UnwrapForGrad);

/* The primal with its tangent, in the TransformJVP that was entered last. */
CGOTORCH_API const char *MakeDual(Tensor primal, Tensor tangent, Tensor *result)
    CGOTORCH_SYMBOL(MakeDual);
/* *tangent is NULL where there is none. */
CGOTORCH_API const char *UnpackDual(Tensor dual, Tensor *primal, Tensor *tangent)
    CGOTORCH_SYMBOL(UnpackDual);

/* Hides dimension dim of t, along which the level of TransformVMap maps. */
CGOTORCH_API const char *AddBatchDim(Tensor t, int64_t dim, int64_t level, Tensor *result)
    CGOTORCH_SYMBOL(AddBatchDim);
/* The opposite; dim is where the dimension comes to lie. A tensor that the level did not map is
 * expanded. */
CGOTORCH_API const char *RemoveBatchDim(Tensor t, int64_t level, int64_t batch_size, int64_t dim,
                                        Tensor *result) CGOTORCH_SYMBOL(RemoveBatchDim);

/* What a tensor is to transforms. */
typedef struct {
  int32_t kind;  /* TransformVMap, TransformGrad for both modes, or TransformNone */
  int64_t level; /* in which it was wrapped; -2 where that has been left */
  int64_t dim;   /* that a vmap hides; -1 */
} TransformInfo;
/* *value is the tensor within; NULL for TransformNone. */
CGOTORCH_API const char *GetTransformInfo(Tensor t, TransformInfo *info, Tensor *value)
    CGOTORCH_SYMBOL(GetTransformInfo);

#endif
