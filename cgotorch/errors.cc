// errors.cc: how C++ exceptions become the C ABI's messages.
#include <c10/util/Exception.h>

#include <cstring>
#include <new>
#include <stdexcept>

#include "internal.h"

namespace cgotorch {
namespace {

// What a caller gets when there is no memory for a message. FreeString knows it. Aligned like what
// malloc returns, see cgotorch_run.
alignas(16) constexpr char kOutOfMemory[] = "MemoryError: out of memory";

}  // namespace

const char *make_error(const char *kind, std::string_view message) noexcept {
  message = message.substr(0, message.find('\n'));
  const size_t k = std::strlen(kind);
  char *s = static_cast<char *>(std::malloc(k + 2 + message.size() + 1));
  if (s == nullptr) return kOutOfMemory;
  std::memcpy(s, kind, k);
  std::memcpy(s + k, ": ", 2);
  std::memcpy(s + k + 2, message.data(), message.size());
  s[k + 2 + message.size()] = '\0';
  return s;
}

// The names are those under which Python shows each class, which is how users know them.
const char *current_error() noexcept {
#define CGOTORCH_CATCH(Class, kind)                      \
  catch (const Class &e) {                               \
    return make_error(kind, e.what_without_backtrace()); \
  }
  try {
    throw;
  } catch (const Failure &e) {
    return make_error(e.kind, e.message);
  }
  CGOTORCH_CATCH(c10::IndexError, "IndexError")
  CGOTORCH_CATCH(c10::ValueError, "ValueError")
  CGOTORCH_CATCH(c10::TypeError, "TypeError")
  CGOTORCH_CATCH(c10::NotImplementedError, "NotImplementedError")
  CGOTORCH_CATCH(c10::BufferError, "BufferError")
  CGOTORCH_CATCH(c10::SyntaxError, "SyntaxError")
  CGOTORCH_CATCH(c10::LinAlgError, "LinAlgError")
  CGOTORCH_CATCH(c10::OutOfMemoryError, "OutOfMemoryError")
  CGOTORCH_CATCH(c10::AcceleratorError, "AcceleratorError")
  CGOTORCH_CATCH(c10::DistBackendError, "DistBackendError")
  CGOTORCH_CATCH(c10::DistNetworkError, "DistNetworkError")
  CGOTORCH_CATCH(c10::DistStoreError, "DistStoreError")
  CGOTORCH_CATCH(c10::DistError, "DistError")
  CGOTORCH_CATCH(c10::Error, "RuntimeError")
  catch (const std::bad_alloc &) {
    return make_error("MemoryError", "out of memory");
  }
  catch (const std::out_of_range &e) {
    return make_error("IndexError", e.what());
  }
  catch (const std::exception &e) {
    return make_error("RuntimeError", e.what());
  }
  catch (...) {
    return make_error("RuntimeError", "a C++ exception that is no std::exception was thrown");
  }
#undef CGOTORCH_CATCH
}

void throw_null(const char *name) {
  throw Failure{"TypeError", std::string("argument '") + name + "' must be a tensor, not none"};
}

void throw_value(const char *what) { throw Failure{"ValueError", what}; }

const char *needs_torch(const char *op, const char *version) noexcept {
  return guard([&] {
    throw Failure{"NotImplementedError", std::string(op) + " needs torch >= " + version +
                                             ", this is " + cgotorch_torch_loaded()};
  });
}

const char *argument_needs_torch(const char *op, const char *argument,
                                 const char *version) noexcept {
  return guard([&] {
    throw Failure{"NotImplementedError", std::string("argument '") + argument + "' of " + op +
                                             " needs torch >= " + version + ", this is " +
                                             cgotorch_torch_loaded()};
  });
}

}  // namespace cgotorch

extern "C" void FreeString(const char *s) {
  if (s != cgotorch::kOutOfMemory) std::free(const_cast<char *>(s));
}
