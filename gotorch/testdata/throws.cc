// An operator library as third parties write them, whose operators fail and warn in many ways.
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

int64_t throws(const std::string &what) {
  if (what == "int") throw 1;
  if (what == "runtime") throw std::runtime_error("of the standard library");
  if (what == "range") throw std::out_of_range("past the end");
  if (what == "memory") throw std::bad_alloc();
  if (what == "lines") throw std::runtime_error("first line\nsecond line");
  if (what == "empty") throw std::runtime_error("");
  if (what == "nonascii") throw std::runtime_error("größer");
  if (what == "index") TORCH_CHECK_INDEX(false, "from c10");
  if (what == "value") TORCH_CHECK_VALUE(false, "from c10");
  if (what == "type") TORCH_CHECK_TYPE(false, "from c10");
  if (what == "none") TORCH_CHECK_NOT_IMPLEMENTED(false, "from c10");
  if (what == "oom") TORCH_CHECK_WITH(OutOfMemoryError, false, "from c10");
  if (what.rfind("c10:", 0) == 0) TORCH_CHECK(false, what.substr(4));
  if (what.rfind("std:", 0) == 0) throw std::runtime_error(what.substr(4));
  TORCH_CHECK(false, "unknown");
}

// Warns as many times as it returns tensors, and fails in the end if it is told to.
std::vector<at::Tensor> warns(const std::string &what, const at::Tensor &t, int64_t n, bool fail) {
  std::vector<at::Tensor> out;
  for (int64_t i = 0; i < n; i++) {
    TORCH_WARN(what, i);
    out.push_back(t.alias());
  }
  TORCH_CHECK(!fail, "it was told to fail");
  return out;
}

void deprecated(const std::string &what) { TORCH_WARN_DEPRECATION(what); }

}  // namespace

TORCH_LIBRARY(gotorch_test, m) {
  m.def("throws(str what) -> int", throws);
  m.def("warns(str what, Tensor t, int n, bool fail) -> Tensor[]", warns);
  m.def("deprecated(str what) -> ()", deprecated);
}
