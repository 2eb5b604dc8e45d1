/* aoti.h: models that Python compiled with torch._inductor.aoti_compile_and_package. Included by
 * cgotorch.h, inside its extern "C".
 *
 * A package holds machine code, which runs when the package is loaded: load only what you trust, as
 * with any shared library. Python is not needed. */
#ifndef CGOTORCH_AOTI_H
#define CGOTORCH_AOTI_H

typedef struct cgotorch_aoti *AOTIModel;

typedef struct {
  const char *model_name; /* NULL: the only one of the package, or the one named "model" */
  int64_t num_runners;    /* runs that may go on at once; 0: one per processor, or 1 on a GPU */
  bool single_threaded;   /* no locks: the caller never runs or changes the model twice at once */
  bool unchecked;         /* inputs go to the compiled code as they are: a wrong one can crash it */
  bool ignore_checksums;  /* of the archive: Python can be told to write it without */
  int64_t device_index;   /* for CUDA packages; -1 is the current device */
} AOTIOptions;

/* What the compiled code expects of an input, or what a constant is. */
typedef struct {
  const char *name;     /* of a constant: its name in the model, "layers.0.weight" */
  ScalarType dtype;     /* -1 where the package does not say */
  int32_t device_type;  /* the number of a c10::DeviceType; -1 where the package does not say */
  int64_t ndim;         /* -1 where the package does not say */
  const int64_t *sizes; /* ndim of them; -1 where any size within min and max will do */
  const int64_t *min;   /* the smallest and largest sizes that will do; NULL for constants */
  const int64_t *max;
} AOTITensorInfo;

/* All of it is borrowed: it is valid until the model is freed. */
typedef struct {
  const char *model_name;
  Device device;
  int64_t num_runners;
  int64_t n_inputs;
  const AOTITensorInfo *inputs;
  int64_t n_outputs;
  int64_t n_constants;
  const AOTITensorInfo *constants;
  int64_t n_metadata;
  const char *const *metadata; /* n_metadata pairs of key and value */
  /* How the arguments and results of the Python function are made up of inputs and outputs: a
   * TreeSpec of torch.utils._pytree, as JSON. */
  const char *in_spec;
  const char *out_spec;
} AOTIInfo;

/* Loads a model of a package; options may be NULL. The model's code is written to a folder under
 * $TMPDIR or /tmp, which is removed before this returns, or with the model where it runs on a GPU.
 *
 * FileNotFoundError or OSError where the file cannot be read; ValueError where it is truncated, no
 * package, or one that says nothing of its inputs, unless unchecked; KeyError where it has no model
 * of that name; RuntimeError where this machine lacks what the code needs: the processor, its
 * vector instructions, CUDA. The result is given to AOTIFree. */
CGOTORCH_API const char *AOTILoad(const char *path, const AOTIOptions *options, AOTIModel *result)
    CGOTORCH_SYMBOL(AOTILoad);

/* Runs the model. Any number of threads may; those beyond num_runners wait. Inputs whose strides
 * are not those that the model was compiled for are copied. The results are an array of n_outputs
 * tensors, for FreeTensors and FreeArray.
 *
 * TypeError for a wrong number of inputs or a wrong dtype; ValueError for wrong sizes, devices and
 * layouts; RuntimeError where an input requires a gradient and grad mode is on, because the
 * compiled code computes none. */
CGOTORCH_API const char *AOTIRun(AOTIModel m, const Tensor *inputs, int64_t n_inputs,
                                 Tensor **results, int64_t *n_results) CGOTORCH_SYMBOL(AOTIRun);

/* Sets constants, which are the parameters and buffers, by their names in the model; the others
 * keep their values. The tensors are copied, from any device. A run that goes on meanwhile sees
 * either all of the old values or all of the new ones. On failure nothing has changed.
 *
 * KeyError for a name that the model has not, and with all also where one of the model's is missing
 * here; TypeError for another dtype, ValueError for other sizes. */
CGOTORCH_API const char *AOTISetConstants(AOTIModel m, const char *const *names,
                                          const Tensor *tensors, int64_t n, bool all)
    CGOTORCH_SYMBOL(AOTISetConstants);
/* Copies of the constants, in the order of AOTIInfo.constants, as an array for FreeTensors and
 * FreeArray; NULL for those that the package came without and that are not set. */
CGOTORCH_API const char *AOTIConstants(AOTIModel m, Tensor **results, int64_t *n_results)
    CGOTORCH_SYMBOL(AOTIConstants);

CGOTORCH_API void AOTIGetInfo(AOTIModel m, AOTIInfo *info) CGOTORCH_SYMBOL(AOTIGetInfo);

/* Not while another thread uses the model. Results of runs stay valid. */
CGOTORCH_API void AOTIFree(AOTIModel m) CGOTORCH_SYMBOL(AOTIFree);

#endif
