/* cgotorch.h: PyTorch's native functions in C.
 *
 * Every function returns NULL on success. On failure it returns a message that starts with
 * PyTorch's error class, "IndexError: index 7 is out of bounds ...", writes no output, and leaks
 * nothing; give the message to FreeString. No C++ exception leaves the library.
 *
 *     Tensor c;
 *     const char *err = MM(a, b, &c);
 *     if (err) { fprintf(stderr, "%s\n", err); FreeString(err); return 1; }
 *     FreeTensor(c);
 *
 * Handles (Tensor, Generator, Storage) own one reference to their object and never copy data.
 * Inputs are borrowed: the caller keeps them, and may free them as soon as the call returns.
 * Outputs are owned by the caller, who frees each exactly once. Freeing NULL does nothing.
 *
 * Argument forms, by schema type:
 *
 *     Tensor                       Tensor; NULL is an error
 *     Tensor?                      Tensor; NULL is none
 *     Tensor[], Tensor?[]          pointer and count
 *     int, SymInt, DeviceIndex     int64_t
 *     int[], SymInt[], float[]     pointer and count; where optional, a NULL pointer is none
 *     float, bool                  double, bool
 *     bool[N]                      pointer to N bools
 *     Scalar                       Scalar, by value
 *     ScalarType, Layout, MemoryFormat, Device, Stream   by value
 *     str                          NUL-terminated UTF-8
 *     T? of any scalar T           const T *; NULL is none
 *     Generator?                   Generator; NULL is the default generator
 *
 * A result that the schema marks as being one of the arguments (in-place and out= forms) may be
 * asked for with a NULL pointer when it is not wanted; otherwise it is a new handle to the same
 * tensor. A Tensor[] result is an array that the caller frees with FreeTensors (its elements) and
 * FreeArray (itself).
 *
 * The functions of PyTorch's native_functions.yaml are declared in ops_gen.h, included below.
 */
#ifndef CGOTORCH_H
#define CGOTORCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* MM in C is the symbol cgotorch_MM to the linker: a program may have an Add or a Max of its own,
 * or be linked with a library that has. Functions whose names begin with cgotorch_ need no label.
 */
#if !defined(__GNUC__)
#error "cgotorch.h names its symbols by __asm__ labels, as gcc and clang know them"
#endif
#define CGOTORCH_API __attribute__((visibility("default")))
#define CGOTORCH_SYMBOL(name) __asm__("cgotorch_" #name)

/* Types ------------------------------------------------------------------------------------- */

typedef struct cgotorch_tensor *Tensor;
typedef struct cgotorch_generator *Generator;
typedef struct cgotorch_storage *Storage;

/* A dtype, with c10::ScalarType's numbers. */
typedef int32_t ScalarType;
/* A layout, with c10::Layout's numbers: 0 strided, 1 sparse_coo, 2 sparse_csr, ... */
typedef int32_t Layout;
/* 0 contiguous, 1 preserve, 2 channels_last, 3 channels_last_3d. */
typedef int32_t MemoryFormat;

/* A device: c10::DeviceType's number (0 CPU, 1 CUDA, ...) and an index, -1 for the current one. */
typedef struct {
  int32_t type;
  int32_t index;
} Device;

typedef struct {
  int64_t id;
  int64_t device_index;
  int64_t device_type;
} Stream;

enum {
  ScalarNone = 0,
  ScalarBool = 1,
  ScalarInt = 2,
  ScalarFloat = 3,
  ScalarComplex = 4,
  ScalarUInt = 5
};

/* A Python number: bool, int, float or complex, which PyTorch's type promotion tells apart.
 * ScalarUInt is for values above INT64_MAX (v.i holds the bits). */
typedef struct {
  int64_t kind;
  union {
    int64_t i;
    double f;
    double c[2];
  } v;
} Scalar;

/* Memory ------------------------------------------------------------------------------------ */

CGOTORCH_API void FreeString(const char *s) CGOTORCH_SYMBOL(FreeString);
CGOTORCH_API void FreeTensor(Tensor t) CGOTORCH_SYMBOL(FreeTensor);
/* Frees n handles; NULLs are skipped. The array stays the caller's. */
CGOTORCH_API void FreeTensors(const Tensor *t, int64_t n) CGOTORCH_SYMBOL(FreeTensors);
/* Frees an array that a function returned, not what is in it. */
CGOTORCH_API void FreeArray(void *array) CGOTORCH_SYMBOL(FreeArray);
CGOTORCH_API void FreeGenerator(Generator g) CGOTORCH_SYMBOL(FreeGenerator);
CGOTORCH_API void FreeStorage(Storage s) CGOTORCH_SYMBOL(FreeStorage);

/* A second handle to the same tensor (not a view: the very same object). */
CGOTORCH_API Tensor RetainTensor(Tensor t) CGOTORCH_SYMBOL(RetainTensor);

#include "core.h"
/* For who needs none of the native functions by name: three thousand declarations are much to read
 * for each source of Go's package. */
#ifndef CGOTORCH_WITHOUT_OPS
#include "ops_gen.h"
#endif

#ifdef __cplusplus
}
#endif

#endif /* CGOTORCH_H */
