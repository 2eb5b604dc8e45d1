// batching.cc: functions under a vmap. libtorch has no rule for a few losses, computes them one
// element at a time then, and warns; PyTorch registers decompositions of them from Python when vmap
// is first called. These compute the same, to the last bit, where there is no Python.
#include "batching.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <tuple>

namespace cgotorch {
namespace {

using at::Scalar;
using at::Tensor;
using OptTensor = std::optional<Tensor>;

double mean_factor(const Tensor &t, int64_t reduction) {
  return reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(t.numel()) : 1.0;
}

// Computes pointwise losses of half precision in single, as their kernels do.
template <class F>
Tensor in_full(const Tensor &grad, const Tensor &self, const Tensor &target, F compute) {
  const at::ScalarType type = at::result_type(self, target);
  if (type != at::kHalf && type != at::kBFloat16) return compute(grad, self, target);
  return compute(grad.to(at::kFloat), self.to(at::kFloat), target.to(at::kFloat)).to(type);
}

Tensor mse_loss_backward(const Tensor &grad, const Tensor &self, const Tensor &target,
                         int64_t reduction) {
  return in_full(
      grad, self, target, [=](const Tensor &grad, const Tensor &self, const Tensor &target) {
        const double factor =
            reduction == at::Reduction::Mean ? 2.0 / static_cast<double>(self.numel()) : 2.0;
        return (self - target).mul(factor).mul(grad);
      });
}

Tensor smooth_l1_loss_backward(const Tensor &grad, const Tensor &self, const Tensor &target,
                               int64_t reduction, double beta) {
  return in_full(
      grad, self, target, [=](const Tensor &grad, const Tensor &self, const Tensor &target) {
        const Tensor x = self - target;
        const Tensor scaled = grad.mul(mean_factor(self, reduction));
        return at::where(at::abs(x).lt(beta), scaled.mul(x).div(beta), scaled.mul(at::sign(x)));
      });
}

Tensor huber_loss_backward(const Tensor &grad, const Tensor &self, const Tensor &target,
                           int64_t reduction, double delta) {
  return in_full(
      grad, self, target, [=](const Tensor &grad, const Tensor &self, const Tensor &target) {
        const double factor = mean_factor(self, reduction);
        const Tensor x = self - target;
        return at::where(
            x.lt(-delta), grad.mul(-factor).mul(delta),
            at::where(x.gt(delta), grad.mul(factor).mul(delta), x.mul(factor).mul(grad)));
      });
}

int64_t channel_of(const Tensor &self) { return self.dim() < 2 ? 0 : 1; }

// The weight of each class, along the classes of self.
Tensor along_classes(const Tensor &weight, const Tensor &self) {
  std::vector<int64_t> shape(static_cast<size_t>(self.dim()), 1);
  shape[static_cast<size_t>(channel_of(self))] = weight.size(0);
  return weight.reshape(shape);
}

bool given(const OptTensor &t) { return t.has_value() && t->defined(); }

std::tuple<Tensor, Tensor> class_loss(const Tensor &self, const Tensor &target,
                                      const OptTensor &weight, int64_t reduction,
                                      int64_t ignore_index) {
  const int64_t channel = channel_of(self);
  const Tensor counts = target.ne(ignore_index);
  const Tensor index = at::where(counts, target, 0).unsqueeze(channel);
  const auto chosen = [&](const Tensor &of) { return at::gather(of, channel, index); };
  Tensor weights;
  if (given(weight)) weights = self.dim() > 1 ? along_classes(*weight, self) : *weight;
  const Tensor scores = weights.defined() ? self * weights : self;
  Tensor loss = at::where(counts, chosen(scores).neg().squeeze(channel), 0);
  if (reduction == at::Reduction::None && self.dim() > 1) return {loss, scores.new_full({}, 0.0)};
  const Tensor total =
      weights.defined()
          ? at::where(counts, chosen(weights.expand(scores.sizes())).squeeze(channel), 0).sum()
          : counts.sum().to(scores.options());
  if (reduction == at::Reduction::Sum) loss = loss.sum();
  if (reduction == at::Reduction::Mean) loss = loss.sum() / total;
  return {loss, total};
}

Tensor class_loss_backward(const Tensor &of, const Tensor &self, const Tensor &classes,
                           const OptTensor &weight, int64_t reduction, int64_t ignore_index,
                           const Tensor &total) {
  const int64_t channel = channel_of(self);
  Tensor grad = reduction == at::Reduction::Mean ? of / total : of;
  Tensor target = self.dim() == 1 && classes.dim() > 0 ? classes.select(0, 0) : classes;
  target = target.unsqueeze(channel);
  const Tensor counts = target.ne(ignore_index);
  const Tensor hot = at::scatter(at::zeros_like(self), channel, at::where(counts, target, 0), -1.0);
  if (hot.dim() > grad.dim() && grad.dim() > 0) grad = grad.unsqueeze(channel);
  if (given(weight)) grad = grad * along_classes(*weight, self);
  return hot * at::where(counts, grad, 0);
}

void check_classes(const Tensor &self, const Tensor &target, const OptTensor &weight) {
  TORCH_CHECK(self.dim() == 1 || self.dim() == 2, "input tensor should be 1D or 2D");
  TORCH_CHECK(target.dim() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  TORCH_CHECK((self.dim() == 1 && target.dim() == 0) ||
                  (target.dim() == 1 && self.size(0) == target.size(0)),
              "size mismatch (got input: ", self.sizes(), ", target: ", target.sizes(), ")");
  TORCH_CHECK(!given(weight) || (weight->dim() == 1 && weight->numel() == self.size(-1)),
              "weight tensor should be defined either for all ", self.size(-1),
              " classes or no classes");
}

void check_classes_2d(const Tensor &self, const Tensor &target) {
  TORCH_CHECK(self.dim() == 4 && target.dim() == 3,
              "only batches of spatial inputs and targets supported (4D and 3D tensors)");
  TORCH_CHECK(self.size(0) == target.size(0) && self.size(2) == target.size(1) &&
                  self.size(3) == target.size(2),
              "size mismatch (got input: ", self.sizes(), ", target: ", target.sizes(), ")");
}

std::tuple<Tensor, Tensor> nll_loss_forward(const Tensor &self, const Tensor &target,
                                            const OptTensor &weight, int64_t reduction,
                                            c10::SymInt ignore_index) {
  check_classes(self, target, weight);
  return class_loss(self, target, weight, reduction, ignore_index.expect_int());
}

std::tuple<Tensor, Tensor> nll_loss2d_forward(const Tensor &self, const Tensor &target,
                                              const OptTensor &weight, int64_t reduction,
                                              c10::SymInt ignore_index) {
  check_classes_2d(self, target);
  return class_loss(self, target, weight, reduction, ignore_index.expect_int());
}

}  // namespace

Tensor nll_loss_backward(const Tensor &grad, const Tensor &self, const Tensor &target,
                         const OptTensor &weight, int64_t reduction, c10::SymInt ignore_index,
                         const Tensor &total) {
  check_classes(self, target, weight);
  return class_loss_backward(grad, self, target, weight, reduction, ignore_index.expect_int(),
                             total);
}

Tensor nll_loss2d_backward(const Tensor &grad, const Tensor &self, const Tensor &target,
                           const OptTensor &weight, int64_t reduction, c10::SymInt ignore_index,
                           const Tensor &total) {
  check_classes_2d(self, target);
  return class_loss_backward(grad, self, target, weight, reduction, ignore_index.expect_int(),
                             total);
}

namespace {

Tensor addr(const Tensor &self, const Tensor &vec1, const Tensor &vec2, const Scalar &beta,
            const Scalar &alpha) {
  TORCH_CHECK(vec1.dim() == 1, "addr: Expected 1-D argument vec1, but got ", vec1.dim(), "-D");
  TORCH_CHECK(vec2.dim() == 1, "addr: Expected 1-D argument vec2, but got ", vec2.dim(), "-D");
  const at::ScalarType type = c10::promoteTypes(self.scalar_type(), at::result_type(vec1, vec2));
  const Tensor base = self.to(type).expand({vec1.size(0), vec2.size(0)});
  const Tensor product = at::outer(vec1.to(type), vec2.to(type));
  if (type == at::kBool) {
    const Tensor scaled = alpha.toBool() ? product : at::zeros_like(base);
    return beta.toBool() ? base.logical_or(scaled) : scaled;
  }
  // NaNs of self do not count where beta is zero.
  if (beta.equal(0)) return product.mul(alpha);
  return base.mul(beta) + product.mul(alpha);
}

bool is_floating_point(const Tensor &t) { return c10::isFloatingType(t.scalar_type()); }
bool is_complex(const Tensor &t) { return c10::isComplexType(t.scalar_type()); }
bool is_signed(const Tensor &t) { return c10::isSignedType(t.scalar_type()); }
bool is_conj(const Tensor &t) { return t.key_set().has(c10::DispatchKey::Conjugate); }
bool is_neg(const Tensor &t) { return t.key_set().has(c10::DispatchKey::Negative); }

template <class F>
void register_rule(torch::Library &library, const char *name, F *rule) {
  const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + name, ""});
  if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::FuncTorchBatched)) return;
  library.impl(name, rule);
}

}  // namespace

void register_batching() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never destroyed: what it registers stays for the life of the process.
    auto &library = *new torch::Library(torch::Library::IMPL, "aten",
                                        c10::DispatchKey::FuncTorchBatched, __FILE__, __LINE__);
    // Questions that are answered without the dispatcher in Python.
    register_rule(library, "is_floating_point", &is_floating_point);
    register_rule(library, "is_complex", &is_complex);
    register_rule(library, "is_signed", &is_signed);
    register_rule(library, "is_conj", &is_conj);
    register_rule(library, "is_neg", &is_neg);
    register_rule(library, "mse_loss_backward", &mse_loss_backward);
    register_rule(library, "smooth_l1_loss_backward", &smooth_l1_loss_backward);
    register_rule(library, "huber_loss_backward", &huber_loss_backward);
    register_rule(library, "nll_loss_forward", &nll_loss_forward);
    register_rule(library, "nll_loss2d_forward", &nll_loss2d_forward);
    register_rule(library, "nll_loss_backward", &nll_loss_backward);
    register_rule(library, "nll_loss2d_backward", &nll_loss2d_backward);
    register_rule(library, "addr", &addr);
  });
}

}  // namespace cgotorch
