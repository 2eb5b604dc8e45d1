// How a vmap computes functions that libtorch itself only has in a loop over the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

namespace cgotorch {

// Registers them, where nobody has. May be called many times.
void register_batching();

// Made of functions that have derivatives of every kind.
at::Tensor nll_loss_backward(const at::Tensor &grad, const at::Tensor &self,
                             const at::Tensor &target, const std::optional<at::Tensor> &weight,
                             int64_t reduction, c10::SymInt ignore_index, const at::Tensor &total);
at::Tensor nll_loss2d_backward(const at::Tensor &grad, const at::Tensor &self,
                               const at::Tensor &target, const std::optional<at::Tensor> &weight,
                               int64_t reduction, c10::SymInt ignore_index,
                               const at::Tensor &total);

}  // namespace cgotorch
