// libtorch's own kinds of lists: of tensors that may be none, and ITensorListRef. Apart from
// internal.h, because they take as long to compile as everything there.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>

#include "internal.h"

namespace cgotorch {

inline c10::List<std::optional<at::Tensor>> in_opt_list(const Tensor *t, int64_t n) {
  c10::List<std::optional<at::Tensor>> out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) out.push_back(in_opt(t[i]));
  return out;
}

}  // namespace cgotorch
