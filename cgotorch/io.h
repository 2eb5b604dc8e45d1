/* io.h: tensors in files, in the safetensors format, which Python's safetensors package reads and
 * writes too. Included by cgotorch.h, inside its extern "C". */
#ifndef CGOTORCH_IO_H
#define CGOTORCH_IO_H

/* Writes tensors under their names, and metadata, which is n_metadata pairs of key and value. Any
 * device, any strides. The file is complete or not there at all: it is written beside path under
 * another name, synced and renamed, and a file that was at path before stays until then.
 * OSError where the file cannot be written; ValueError for a name given twice or named
 * "__metadata__"; NotImplementedError for sparse, quantised and other tensors that have no plain
 * memory, and for dtypes that the format lacks. */
CGOTORCH_API const char *SaveTensors(const char *path, const char *const *names,
                                     const Tensor *tensors, int64_t n, const char *const *metadata,
                                     int64_t n_metadata) CGOTORCH_SYMBOL(SaveTensors);

/* What a file holds, in the order of its data. */
typedef struct {
  int64_t n;
  const char **names;
  Tensor *tensors;
  int64_t n_metadata;
  const char **metadata; /* n_metadata pairs of key and value */
} TensorFile;

/* Reads all tensors of a file into CPU memory. With map, they are windows on the file instead, read
 * when first used: writing to them does not change the file, and the file must not be changed in
 * place meanwhile. FileNotFoundError or OSError where the file cannot be read; ValueError where it
 * is truncated or no safetensors file. *result is given to FreeTensorFile. */
CGOTORCH_API const char *LoadTensors(const char *path, bool map, TensorFile *result)
    CGOTORCH_SYMBOL(LoadTensors);
/* The same from n bytes in memory, which are copied. */
CGOTORCH_API const char *ParseTensors(const void *data, int64_t n, TensorFile *result)
    CGOTORCH_SYMBOL(ParseTensors);
/* Frees the arrays and names, and where handles is true also the tensors. */
CGOTORCH_API void FreeTensorFile(TensorFile *file, bool handles) CGOTORCH_SYMBOL(FreeTensorFile);

/* n bytes of a file from offset on as a storage: a private window, read when first used. Writing to
 * it does not change the file. */
CGOTORCH_API const char *MapFile(const char *path, int64_t offset, int64_t n, Storage *result)
    CGOTORCH_SYMBOL(MapFile);

/* A tensor on a storage, from which offset (in elements) and strides must not lead outside:
 * ValueError if they do. The device is the storage's. */
CGOTORCH_API const char *TensorFromStorage(Storage s, ScalarType dtype, int64_t offset,
                                           const int64_t *sizes, const int64_t *strides,
                                           int64_t ndim, Tensor *result)
    CGOTORCH_SYMBOL(TensorFromStorage);

#endif
