/* loops.h: one loop over the elements of several tensors, for elementwise ops that were fused.
 * Included by cgotorch.h, inside its extern "C".
 *
 * PyTorch's kernels give an element's result by where it stands: most of a row goes through
 * vectors, the rest of it through the scalar functions of libm, which round differently. A loop
 * here splits its elements between threads and into blocks so that a kernel of PyTorch that is
 * called for a block finds every element where it stood in the whole tensor. */
#ifndef CGOTORCH_LOOPS_H
#define CGOTORCH_LOOPS_H

/* Some elements in a row: what a loop's code works on. */
typedef struct {
  int64_t n;                 /* how many */
  const void *const *inputs; /* n elements of each input; one of those that are `single` */
  void *const *outputs;      /* memory for n elements of each output */
  void *const *scratch;      /* memory for n elements of each intermediate result */
  const Tensor *tensors;     /* the same memory as tensors of n elements; borrowed */
} cgotorch_loop_block;

/* A loop's code. An error as everywhere; several threads run it at once. */
typedef const char *(*cgotorch_loop_code)(const cgotorch_loop_block *block);

/* What a loop reads and writes. Inputs are counted by bits, so there are 64 at most. */
typedef struct {
  int32_t n_inputs;
  int32_t n_outputs;
  int32_t n_scratch; /* 0: the code calls no kernel, and blocks may have any size */
  int32_t n_shapes;
  const ScalarType *types; /* of the inputs, then the outputs, then the scratch */
  const uint64_t *shapes;  /* sets of inputs whose shapes must broadcast to that of all */
  const int32_t *in_place; /* for each output the input whose memory it takes, or -1; or NULL */
  bool contiguous;         /* a kernel takes another way for results that are not contiguous */
  uint64_t single;         /* the inputs that have one element */
  uint64_t direct;         /* the inputs that a kernel reads without a loop before it */
  cgotorch_loop_code code;
} cgotorch_loop;

/* Runs the loop over tensors that broadcast. *done says whether: it is false, and no output is set,
 * where the loop would not give what PyTorch's functions give one after the other, to the last bit
 * and in the strides of the results: other devices and layouts, memory that overlaps, no elements,
 * shapes that do not broadcast. */
CGOTORCH_API const char *cgotorch_run_loop(const cgotorch_loop *loop, const Tensor *inputs,
                                           Tensor *outputs, bool *done);

/* Makes an op in place of what PyTorch's functions have computed: a *result that has the input's
 * sizes and strides is written into the input, and *result becomes the input. */
CGOTORCH_API const char *cgotorch_write_back(Tensor input, Tensor *result);

#endif
