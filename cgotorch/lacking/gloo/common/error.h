// A stand-in for a header of gloo, see context.h. These are thrown inside of libtorch, and caught
// by name.
#pragma once

#include <stdexcept>
#include <string>

namespace gloo {

struct Exception : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A connection that broke.
struct IoException : public Exception {
  using Exception::Exception;
};

struct TimeoutException : public IoException {
  using IoException::IoException;
};

}  // namespace gloo
