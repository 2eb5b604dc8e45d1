// forward.cc: derivatives in forward mode of functions for which libtorch has no formula. It asks
// then for what computes the same of functions that have one; PyTorch registers such from Python
// when forward mode is first used. These compute the same, to the last bit, where there is no
// Python: most are backward passes, so second derivatives need them.
#include "forward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/diag.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log1p.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/jit_decomp_interface.h>

#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>

#include "batching.h"

namespace cgotorch {
namespace {

using at::Tensor;
using OptTensor = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;
using Dims = std::vector<int64_t>;

bool given(const OptTensor &t) { return t.has_value() && t->defined(); }

Tensor trace(const Tensor &self) { return at::sum(at::diag(self)); }

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor &self) {
  const Tensor least = at::minimum(self.new_zeros({}), self);
  const Tensor z = at::exp(-at::abs(self));
  return {least - at::log1p(z), self.is_cuda() || self.is_xpu() ? self.new_zeros({0}) : z};
}

Tensor softmax_backward(const Tensor &grad, const Tensor &output, int64_t dim,
                        at::ScalarType type) {
  const Tensor scaled = grad * output;
  const Tensor result = scaled - output * at::sum(scaled, dim, /*keepdim=*/true);
  return (grad.scalar_type() == type ? result : result.to(type)).contiguous();
}

Tensor log_softmax_backward(const Tensor &grad, const Tensor &output, int64_t dim,
                            at::ScalarType type) {
  const Tensor result = grad - at::exp(output) * at::sum(grad, dim, /*keepdim=*/true);
  return grad.scalar_type() == type ? result : result.to(type);
}

// The statistics anew, because those that were saved do not depend on the input.
std::pair<Tensor, Tensor> mean_and_rstd(const Tensor &input, const Tensor &rstd, const Dims &dims,
                                        bool keepdim) {
  const auto [var, mean] = at::var_mean(input, dims, at::Scalar(0), keepdim);
  const Tensor eps = (rstd.reciprocal().pow(2) - var).detach();
  return {mean, at::rsqrt(var + eps)};
}

// Where a gradient is not asked for, zeros stand in its place: none would have no tangent.
Tensor zeros_for(const OptTensor &t) { return given(t) ? at::zeros_like(*t) : at::zeros({}); }

Three layer_norm_backward(const Tensor &grad, const Tensor &input,
                          c10::SymIntArrayRef normalized_shape, const Tensor & /*mean*/,
                          const Tensor &rstd, const OptTensor &weight, const OptTensor &bias,
                          std::array<bool, 3> mask) {
  const int64_t axis = input.dim() - static_cast<int64_t>(normalized_shape.size());
  const auto inner_sizes = input.sizes().slice(static_cast<size_t>(axis));
  if (input.numel() == 0)
    return {input.new_zeros(input.sizes()), input.new_zeros(inner_sizes),
            input.new_zeros(inner_sizes)};
  Dims outer(static_cast<size_t>(axis)), inner(normalized_shape.size());
  std::iota(outer.begin(), outer.end(), 0);
  std::iota(inner.begin(), inner.end(), axis);
  const int64_t n = c10::multiply_integers(inner_sizes);

  const auto [mean, scale] = mean_and_rstd(input, rstd, inner, /*keepdim=*/true);
  const Tensor normal = (input - mean) * scale;
  const Tensor of_normal = given(weight) ? grad * *weight : grad;
  const Tensor sum = at::sum(of_normal, inner, true);
  const Tensor along = normal * at::sum(of_normal * normal, inner, true);
  const auto over_outer = [&](const Tensor &t) { return outer.empty() ? t : at::sum(t, outer); };
  return {
      mask[0] ? (scale / n) * (of_normal * n - sum - along) : at::zeros_like(input),
      mask[1] && given(weight) ? over_outer(grad * normal) : zeros_for(weight),
      mask[2] && given(bias) ? over_outer(outer.empty() ? grad.clone() : grad) : zeros_for(bias)};
}

Three batch_norm_backward(const Tensor &grad, const Tensor &input, const OptTensor &weight,
                          const OptTensor &running_mean, const OptTensor &running_var,
                          const OptTensor & /*save_mean*/, const OptTensor &save_invstd, bool train,
                          double eps, std::array<bool, 3> mask) {
  TORCH_CHECK(input.dim() >= 2, "rank of the input must be at least 2, got ", input.dim());
  TORCH_CHECK(train ? given(save_invstd) : given(running_mean) && given(running_var),
              "batch norm has no statistics to differentiate with");
  Dims dims, broadcast(static_cast<size_t>(input.dim()), 1);
  for (int64_t i = 0; i < input.dim(); i++)
    if (i != 1) dims.push_back(i);
  broadcast[1] = input.size(1);
  const auto spread = [&](const Tensor &t) { return t.reshape(broadcast); };
  const double per =
      1.0 / (static_cast<double>(input.numel()) / static_cast<double>(input.size(1)));

  Tensor mean, invstd;
  if (train) {
    std::tie(mean, invstd) = mean_and_rstd(input, *save_invstd, dims, /*keepdim=*/false);
  } else {
    mean = *running_mean;
    invstd = at::rsqrt(*running_var + eps);
  }
  mean = spread(mean);
  const Tensor sum = at::sum(grad, dims);
  const Tensor dot = at::sum(grad * (input - mean), dims);
  const Tensor scale = given(weight) ? spread(invstd * *weight) : spread(invstd);
  Tensor of_input;
  if (train) {
    const Tensor along = (input - mean) * spread((dot * per) * (invstd * invstd));
    of_input = (grad - along - spread(sum * per)) * scale;
  } else {
    of_input = grad * scale;
  }
  return {of_input, mask[1] ? dot * invstd : zeros_for(weight),
          mask[2] ? sum : at::zeros_like(sum)};
}

Three batch_norm_backward_reserved(const Tensor &grad, const Tensor &input, const Tensor &weight,
                                   const OptTensor &running_mean, const OptTensor &running_var,
                                   const OptTensor &save_mean, const OptTensor &save_var,
                                   bool update, double eps, std::array<bool, 3> mask,
                                   const Tensor & /*reserve*/) {
  return batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_var,
                             update, eps, mask);
}

Three miopen_batch_norm_backward(const Tensor &input, const Tensor &grad, const Tensor &weight,
                                 const OptTensor &running_mean, const OptTensor &running_var,
                                 const OptTensor &save_mean, const OptTensor &save_var,
                                 double eps) {
  return at::native_batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean,
                                        save_var, /*train=*/true, eps, {true, true, true});
}

Three cudnn_batch_norm_backward(const Tensor &input, const Tensor &grad, const Tensor &weight,
                                const OptTensor &running_mean, const OptTensor &running_var,
                                const OptTensor &save_mean, const OptTensor &save_var, double eps,
                                const Tensor & /*reserve*/) {
  return miopen_batch_norm_backward(input, grad, weight, running_mean, running_var, save_mean,
                                    save_var, eps);
}

template <class F>
c10::KernelFunction rule(F *f) {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(f);
}

// A function that PyTorch has a rule for is a line here; tests/test_batching.py holds the list
// to torch._decomp.decompositions_for_jvp.
using Rules = std::map<std::string, c10::KernelFunction>;
const Rules &rules() {
  static const auto *const all = new Rules{
      {"aten::trace", rule(&trace)},
      {"aten::nll_loss_backward", rule(&nll_loss_backward)},
      {"aten::nll_loss2d_backward", rule(&nll_loss2d_backward)},
      {"aten::_log_softmax_backward_data", rule(&log_softmax_backward)},
      {"aten::_softmax_backward_data", rule(&softmax_backward)},
      {"aten::log_sigmoid_forward", rule(&log_sigmoid_forward)},
      {"aten::native_layer_norm_backward", rule(&layer_norm_backward)},
      {"aten::native_batch_norm_backward", rule(&batch_norm_backward)},
      {"aten::cudnn_batch_norm_backward", rule(&cudnn_batch_norm_backward)},
      {"aten::batch_norm_backward", rule(&batch_norm_backward_reserved)},
      {"aten::miopen_batch_norm_backward", rule(&miopen_batch_norm_backward)},
  };
  return *all;
}

using Interface = torch::autograd::impl::JitDecompInterface;

// What libtorch asks. What others have registered, as Python does, comes first.
class Decompositions final : public Interface {
 public:
  explicit Decompositions(const Interface *others) : others_(others) {}
  bool has_jit_decomposition(const c10::FunctionSchema &schema) const override {
    return others_has(schema) ||
           (schema.overload_name().empty() && rules().count(schema.name()) > 0);
  }
  void run_jit_decomposition(const c10::OperatorHandle &op,
                             torch::jit::Stack *stack) const override {
    if (others_has(op.schema())) return others_->run_jit_decomposition(op, stack);
    rules().at(op.schema().name()).callBoxed(op, c10::DispatchKeySet(), stack);
  }

 private:
  bool others_has(const c10::FunctionSchema &schema) const {
    return others_ != nullptr && others_->has_jit_decomposition(schema);
  }
  const Interface *const others_;
};

}  // namespace

void register_forward() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: libtorch may ask until the process ends.
    torch::autograd::impl::setJitDecompImpl(
        new Decompositions(torch::autograd::impl::getJitDecompImpl()));
  });
}

}  // namespace cgotorch
