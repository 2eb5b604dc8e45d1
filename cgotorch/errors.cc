// errors.cc: how C++ exceptions become the C ABI's messages.
#include <c10/util/Exception.h>
#include <gloo/common/error.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <stdexcept>

#include "internal.h"

namespace cgotorch {
namespace {

// What a caller gets when there is no memory for a message. FreeString knows it. Aligned like what
// malloc returns, see cgotorch_run.
alignas(16) constexpr char kOutOfMemory[] = "MemoryError: out of memory";

// The name that Python has for the ATen type whose name ends where `text` does, "torch.FloatTensor"
// for "CPUFloatType", and that name's length in `text`; 0 where there is none.
size_t python_type(std::string_view text, std::string &name) {
  constexpr std::string_view kElements[] = {"Byte", "Char", "Double", "Float",
                                            "Int",  "Long", "Short",  "Half"};
  const size_t length = text.size();
  const auto drop = [&text](std::string_view end) {
    const bool has = text.ends_with(end);
    if (has) text.remove_suffix(end.size());
    return has;
  };
  if (!drop("Type")) return 0;
  const auto *element = std::find_if(std::begin(kElements), std::end(kElements), drop);
  if (element == std::end(kElements)) return 0;
  const bool cuda = drop("CUDA");
  if (!cuda && !drop("CPU")) return 0;
  const bool sparse = drop("Sparse");
  name = cuda ? "torch.cuda." : "torch.";
  name.append(sparse ? "sparse." : "").append(*element).append("Tensor");
  return length - text.size();
}

}  // namespace

std::string python_message(std::string_view message) {
  std::string out, name;
  for (size_t end; (end = message.find("Type")) != std::string_view::npos;) {
    const std::string_view head = message.substr(0, end + 4);
    const size_t length = python_type(head, name);
    out.append(head.substr(0, head.size() - length));
    if (length > 0) out.append(name);
    message.remove_prefix(head.size());
  }
  return out.append(message);
}

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

namespace {

const char *libtorch_error(const char *kind, const char *message) noexcept {
  try {
    return make_error(kind, python_message(message));
  } catch (...) {  // out of memory
    return make_error(kind, message);
  }
}

}  // namespace

// The names are those under which Python shows each class, which is how users know them.
const char *current_error() noexcept {
#define CGOTORCH_CATCH(Class, kind)                          \
  catch (const Class &e) {                                   \
    return libtorch_error(kind, e.what_without_backtrace()); \
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
  // gloo has classes of its own, of which c10 knows nothing. What a collective throws comes out
  // wherever it is waited for: of a call of DataParallel's, or of a gradient.
  catch (const gloo::TimeoutException &e) {
    return libtorch_error("DistTimeoutError", e.what());
  }
  catch (const gloo::IoException &e) {
    return libtorch_error("DistNetworkError", e.what());
  }
  catch (const std::bad_alloc &) {
    return make_error("MemoryError", "out of memory");
  }
  catch (const std::out_of_range &e) {
    return libtorch_error("IndexError", e.what());
  }
  catch (const std::exception &e) {
    return libtorch_error("RuntimeError", e.what());
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
