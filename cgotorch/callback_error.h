// Callbacks and their errors.
#pragma once

#include <exception>
#include <memory>
#include <string>

#include "internal.h"

namespace cgotorch {

// An error from a callback, on its way through the engine. It must be a std::exception, because the
// engine's threads catch nothing else; as a Failure it comes out with its own kind and message.
class CallbackError : public std::exception, public Failure {
 public:
  // Takes over err.
  explicit CallbackError(const char *err) : text_(std::make_shared<std::string>(err)) {
    FreeString(err);
    const size_t colon = text_->find(": ");
    if (colon == std::string::npos) {
      kind = "RuntimeError";
      message = *text_;
    } else {
      message = text_->substr(colon + 2);
      (*text_)[colon] = '\0';
      kind = text_->c_str();
    }
  }
  const char *what() const noexcept override { return message.c_str(); }

 private:
  std::shared_ptr<std::string> text_;  // what kind points into; copies of the exception share it
};

// Calls a callback in the middle of a backward pass, which may record on this thread, and returns
// its error. The callback may have other threads record, too: after what this one has recorded so
// far, and before what it records next.
template <class F, class... Args>
[[nodiscard]] const char *call_back(F fn, Args... args) {
  enter_thread();  // a thread of the engine's may not have called the library before
  {
    const Sequenced published;
  }
  const char *err = fn(args...);
  {
    const Sequenced raised;
  }
  return err;
}

}  // namespace cgotorch
