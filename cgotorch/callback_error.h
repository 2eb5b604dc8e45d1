// Errors of callbacks.
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

}  // namespace cgotorch
