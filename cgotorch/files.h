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

#ifdef __cplusplus
}
#endif

#endif /* CGOTORCH_FILES_H */
