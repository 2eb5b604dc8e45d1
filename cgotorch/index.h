/* index.h: a[...] as in Python. Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_INDEX_H
#define CGOTORCH_INDEX_H

/* What an IndexTerm is. */
enum {
  IndexAt = 1,   /* 3: start */
  IndexSlice,    /* 1:5:2: start, stop, step; an open start is 0, an open stop INT64_MAX */
  IndexEllipsis, /* ... */
  IndexNewAxis,  /* None */
  IndexBool,     /* True or False: start is 1 or 0 */
  IndexTensor,   /* of integers, or a mask of bool or uint8: of.tensor */
  IndexMask,     /* of.tensor, which must be of bool or uint8 */
  IndexInts,     /* [0, 2]: start of them at of.ints */
  IndexBools     /* [True, False]: start of them at of.bools */
};

/* One term of an index: each but IndexNewAxis and IndexBool consumes dimensions of the tensor. */
typedef struct {
  int64_t kind;
  int64_t start;
  int64_t stop;
  int64_t step;
  union {
    Tensor tensor; /* borrowed, as all of these */
    const int64_t *ints;
    const bool *bools;
  } of;
} IndexTerm;

/* self[terms]. Integers, slices, IndexEllipsis and IndexNewAxis alone give a view of self; with any
 * other term the result is a copy. IndexError for an index out of range, too many terms, and masks
 * that do not fit. */
CGOTORCH_API const char *GetItem(Tensor self, const IndexTerm *terms, int64_t n, Tensor *result)
    CGOTORCH_SYMBOL(GetItem);

/* self[terms] = value: value is broadcast, and converted to self's dtype where no term is a tensor,
 * a list or a bool; with those the dtypes must match. With accumulate it is added, as often as an
 * element is named. */
CGOTORCH_API const char *SetItem(Tensor self, const IndexTerm *terms, int64_t n, Tensor value,
                                 bool accumulate) CGOTORCH_SYMBOL(SetItem);

/* self[terms] = value for a number, which takes self's dtype. */
CGOTORCH_API const char *SetItemScalar(Tensor self, const IndexTerm *terms, int64_t n, Scalar value,
                                       bool accumulate) CGOTORCH_SYMBOL(SetItemScalar);

/* For callers that use cgotorch_call: self, the value and the tensors of terms are words
 * (runtime.h), those of terms in start. block is the reserved word and the result. */
CGOTORCH_API const char *cgotorch_get_item(int64_t self, const IndexTerm *terms, int64_t n,
                                           struct cgotorch_block *block);

typedef struct {
  int64_t word;  /* of a tensor; or 0, */
  Scalar scalar; /* and then this */
  int64_t accumulate;
} ItemValue;
/* SetItem or SetItemScalar. */
CGOTORCH_API const char *cgotorch_set_item(int64_t self, const IndexTerm *terms, int64_t n,
                                           const ItemValue *value);

#endif
