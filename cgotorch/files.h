/* files.h: files that gotorch has open. Not included by cgotorch.h. */
#ifndef CGOTORCH_FILES_H
#define CGOTORCH_FILES_H

#include "cgotorch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LoadTensors and MapFile for a caller that has opened the file, and looked into it: by now its
 * name may lead to another. fd stays the caller's, who may close it; path is for error messages. */
CGOTORCH_API const char *cgotorch_load_open_tensors(int fd, const char *path, bool map,
                                                    TensorFile *result);
CGOTORCH_API const char *cgotorch_map_open_file(int fd, const char *path, int64_t offset, int64_t n,
                                                Storage *result);

/* How a safetensors file of these tensors begins, for a caller that writes it himself: the header,
 * and in order the numbers of the tensors, as their elements follow it. Errors are those of
 * SaveTensors. head is the caller's, who gives it to FreeString; order has room for n. */
CGOTORCH_API const char *cgotorch_tensors_header(const char *const *names, const Tensor *tensors,
                                                 int64_t n, const char *const *metadata,
                                                 int64_t n_metadata, char **head,
                                                 int64_t *head_size, int64_t *order);

/* What the header of a safetensors file says of a tensor. */
typedef struct {
  const char *name;
  const char *format; /* the dtype as the file has it, "BF16" */
  bool known;         /* whether this torch has the dtype; sizes are the file's where it has not */
  ScalarType dtype;
  int64_t ndim;
  const int64_t *sizes;
  int64_t offset, nbytes; /* of its elements, in the file */
} TensorEntry;

/* In the order of the data. */
typedef struct {
  int64_t n;
  TensorEntry *entries;
  int64_t n_metadata;
  const char **metadata; /* n_metadata pairs of key and value */
} TensorIndex;

/* Reads the header of a safetensors file, and nothing of its data. Errors are those of LoadTensors,
 * but for a dtype that this torch lacks. *result is given to cgotorch_free_tensor_index. */
CGOTORCH_API const char *cgotorch_index_open_tensors(int fd, const char *path, TensorIndex *result);
CGOTORCH_API void cgotorch_free_tensor_index(TensorIndex *index);

#ifdef __cplusplus
}

#include <string>

namespace cgotorch {

/* The OSError, or the kind of it, of what errno says: "what path: ...". */
[[noreturn]] void throw_errno(const std::string &path, const char *what);

/* A file that is open to be read by place, which a device and a pipe cannot be. */
struct RegularFile {
  int fd;
  uint64_t size;
};

/* Opens one, without waiting for who would write into a pipe. Throws where it is none. */
RegularFile open_regular(const std::string &path);

/* The size of what is open already. Throws where it is none. */
uint64_t regular_size(int fd, const std::string &path);

} /* namespace cgotorch */
#endif

#endif /* CGOTORCH_FILES_H */
