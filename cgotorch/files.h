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
