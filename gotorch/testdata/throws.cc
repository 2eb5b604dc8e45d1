// An operator library as third parties write them, whose operator fails in many ways.
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <new>
#include <stdexcept>
#include <string>

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
  TORCH_CHECK(false, "unknown");
}

}  // namespace

TORCH_LIBRARY(gotorch_test, m) { m.def("throws(str what) -> int", throws); }
