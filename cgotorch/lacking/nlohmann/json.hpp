// A stand-in for a header that ATen/functorch/Interpreter.h includes from torch 2.15 on and that
// does not come with torch. functorch.cc calls nothing of it; it is found where the real one is
// not.
#pragma once

#include <string>

namespace nlohmann {

struct json {
  json();
  template <class T>
  json(const T &value);
  static json parse(const std::string &text);
  std::string dump() const;
  template <class T>
  T get() const;
};

}  // namespace nlohmann
