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

#ifdef __cplusplus
}
#endif

#endif /* CGOTORCH_FILES_H */
