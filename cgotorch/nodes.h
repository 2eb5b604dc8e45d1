// How libtorch holds a node of the autograd graph: before torch 2.14 by std::shared_ptr, later by
// intrusive_ptr.
#pragma once

#include <ATen/core/Tensor.h>

#include <type_traits>
#include <utility>

namespace cgotorch {

using NodePtr = std::decay_t<decltype(std::declval<const at::Tensor &>().grad_fn())>;

}  // namespace cgotorch
