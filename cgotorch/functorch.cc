// functorch.cc: levels of function transforms, and what is wrapped in them.
//
// libtorch has the interpreters; Python's bindings to them are not in it, so this is their like.
#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/functorch/TensorWrapper.h>
#include <ATen/ops/_make_dual_ops.h>
#include <ATen/ops/_unpack_dual_ops.h>
#include <c10/core/AutogradState.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <memory>
#include <mutex>
#include <vector>

#include "batching.h"
#include "checkpoints.h"
#include "dtype_name.h"
#include "fork.h"
#include "forward.h"
#include "internal.h"

namespace cgotorch {
namespace {

namespace fn = at::functorch;
using ForwardADLevel = torch::autograd::ForwardADLevel;

// libtorch has one level of forward mode, the process's: levels of TransformJVP, which keep their
// tangents on wrappers of their own, share it. It ends with the last of them on any thread.
int64_t dual_uses = 0;  // under fork_mutexes.dual

void enter_dual_level() {
  const std::lock_guard<std::mutex> lock(fork_mutexes.dual);
  if (dual_uses == 0) ForwardADLevel::get_next_idx();
  dual_uses++;
}

void leave_dual_level() {
  const std::lock_guard<std::mutex> lock(fork_mutexes.dual);
  if (--dual_uses == 0) ForwardADLevel::release_idx(0);
}

bool forward_grad_mode() { return c10::AutogradState::get_tls_state().get_fw_grad_mode(); }
void set_forward_grad_mode(bool on) { c10::AutogradState::get_tls_state().set_fw_grad_mode(on); }

// A level that was entered, and the modes that were in force before.
struct Level {
  int64_t number;
  int32_t kind;
  bool grad_mode;
  bool forward_grad_mode;
  std::unique_ptr<c10::InferenceMode> no_inference;  // where inference mode was on
};

std::vector<Level> &levels() {
  static thread_local std::vector<Level> of_thread;
  return of_thread;
}

void leave_last() {
  Level last = std::move(levels().back());
  levels().pop_back();
  if (last.kind == TransformJVP) leave_dual_level();
  fn::popDynamicLayerAndDeleteMetadata();
  last.no_inference.reset();
  c10::GradMode::set_enabled(last.grad_mode);
  set_forward_grad_mode(last.forward_grad_mode);
}

fn::RandomnessType randomness_of(int32_t randomness) {
  switch (randomness) {
    case RandomnessError:
      return fn::RandomnessType::Error;
    case RandomnessSame:
      return fn::RandomnessType::Same;
    case RandomnessDifferent:
      return fn::RandomnessType::Different;
    default:
      throw Failure{"ValueError", "there is no randomness " + std::to_string(randomness)};
  }
}

// torch before 2.15 does not know of inference mode.
template <class T>
int64_t push_differentiating(T type, std::optional<bool> grad_mode,
                             std::optional<bool> forward_grad_mode, bool inference) {
  const std::optional<bool> none;
  if constexpr (requires {
                  fn::initAndPushDynamicLayer(type, std::nullopt, std::nullopt, grad_mode,
                                              forward_grad_mode, none, inference);
                }) {
    return fn::initAndPushDynamicLayer(type, std::nullopt, std::nullopt, grad_mode,
                                       forward_grad_mode, none, inference);
  } else {
    return fn::initAndPushDynamicLayer(type, std::nullopt, std::nullopt, grad_mode,
                                       forward_grad_mode);
  }
}

int64_t push(int32_t kind, int64_t batch_size, int32_t randomness, const Level &before) {
  switch (kind) {
    case TransformVMap:
      return fn::initAndPushDynamicLayer(fn::TransformType::Vmap, c10::SymInt(batch_size),
                                         randomness_of(randomness));
    case TransformGrad:
      return push_differentiating(fn::TransformType::Grad, before.grad_mode, std::nullopt,
                                  before.no_inference != nullptr);
    case TransformJVP:
      return push_differentiating(fn::TransformType::Jvp, std::nullopt, before.forward_grad_mode,
                                  before.no_inference != nullptr);
    default:
      throw Failure{"ValueError", "there is no transform " + std::to_string(kind)};
  }
}

}  // namespace

at::Tensor without_grad_wrappers(at::Tensor t) {
  while (const auto *wrapper = fn::maybeGetTensorWrapper(t)) t = at::Tensor(wrapper->value());
  return t;
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *EnterTransform(int32_t kind, int64_t batch_size, int32_t randomness, int64_t *level) {
  return guard([&] {
    if (kind == TransformGrad && saves_elsewhere())
      throw Failure{"RuntimeError",
                    "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks: "
                    "call them outside of a checkpoint or a sharded module"};
    Level entered{0, kind, c10::GradMode::is_enabled(), forward_grad_mode(), nullptr};
    levels().reserve(levels().size() + 1);
    // What is computed must be able to have a gradient. A vmap keeps the modes as they are.
    if (kind != TransformVMap && c10::InferenceMode::is_enabled()) {
      entered.no_inference = std::make_unique<c10::InferenceMode>(false);
      c10::GradMode::set_enabled(entered.grad_mode);
      set_forward_grad_mode(entered.forward_grad_mode);
    }
    if (kind == TransformVMap) register_batching();
    if (kind == TransformJVP) {
      register_forward();
      enter_dual_level();
    }
    try {
      entered.number = push(kind, batch_size, randomness, entered);
    } catch (...) {
      if (kind == TransformJVP) leave_dual_level();
      throw;
    }
    if (kind == TransformGrad) c10::GradMode::set_enabled(true);
    if (kind == TransformJVP) set_forward_grad_mode(true);
    *level = entered.number;
    levels().push_back(std::move(entered));
  });
}

const char *LeaveTransform(int64_t level) {
  return guard([&] {
    while (!levels().empty() && levels().back().number >= level) leave_last();
  });
}

int64_t TransformDepth(void) { return static_cast<int64_t>(fn::getDynamicLayerStack().size()); }

const char *WrapForGrad(Tensor t, int64_t level, bool requires_grad, Tensor *result) {
  return guard([&] {
    at::Tensor wrapped = fn::makeTensorWrapper(in(t, "t"), level);
    // Not requires_grad_, which functions may not call inside of a transform.
    if (requires_grad) wrapped.set_requires_grad(true);
    out(result, std::move(wrapped));
  });
}

const char *UnwrapForGrad(Tensor t, int64_t level, Tensor *result) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    const auto *wrapper = fn::maybeGetTensorWrapper(self);
    const bool ours = wrapper != nullptr && wrapper->level() == level;
    out(result, at::Tensor(ours ? wrapper->value() : self));
  });
}

const char *MakeDual(Tensor primal, Tensor tangent, Tensor *result) {
  return guard([&] {
    const at::Tensor &p = in(primal, "primal"), &t = in(tangent, "tangent");
    for (const auto &[of, name] : {std::pair{&p, "primal"}, std::pair{&t, "tangent"}}) {
      if (!of->is_floating_point() && !of->is_complex())
        throw Failure{"ValueError", std::string("Expected ") + name +
                                        " to be floating point or complex, but got: " +
                                        dtype_name(of->scalar_type())};
    }
    out(result, at::_ops::_make_dual::call(p, t, 0));
  });
}

const char *UnpackDual(Tensor dual, Tensor *primal, Tensor *tangent) {
  return guard([&] {
    auto [p, t] = at::_ops::_unpack_dual::call(in(dual, "dual"), 0);
    out(primal, std::move(p));
    out(tangent, std::move(t));
  });
}

const char *AddBatchDim(Tensor t, int64_t dim, int64_t level, Tensor *result) {
  return guard([&] { out(result, fn::addBatchDim(in(t, "t"), dim, level)); });
}

const char *RemoveBatchDim(Tensor t, int64_t level, int64_t batch_size, int64_t dim,
                           Tensor *result) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    const auto *batched = fn::maybeGetBatchedImpl(self);
    if (batched == nullptr || batched->level() < level) {
      const int64_t at = at::maybe_wrap_dim(dim, self.dim() + 1);
      std::vector<int64_t> sizes = self.sizes().vec();
      sizes.insert(sizes.begin() + at, batch_size);
      return out(result, self.unsqueeze(at).expand(sizes));
    }
    if (batched->level() > level)
      throw Failure{"RuntimeError",
                    "a tensor has escaped from the function of an inner vmap; return it there"};
    // The name that movedim has in a graph would differ from Python's, which permutes.
    const at::Tensor &value = batched->value();
    const int64_t from = batched->bdim(), to = at::maybe_wrap_dim(dim, value.dim());
    if (from == to) return out(result, at::Tensor(value));
    std::vector<int64_t> order;
    for (int64_t i = 0; i < value.dim(); i++)
      if (i != from) order.push_back(i);
    order.insert(order.begin() + to, from);
    out(result, value.permute(order));
  });
}

const char *GetTransformInfo(Tensor t, TransformInfo *info, Tensor *value) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    TransformInfo found{TransformNone, 0, -1};
    at::Tensor within;
    if (const auto *batched = fn::maybeGetBatchedImpl(self)) {
      found = {TransformVMap, batched->level(), batched->bdim()};
      within = batched->value();
    } else if (const auto *wrapper = fn::maybeGetTensorWrapper(self)) {
      found = {TransformGrad, wrapper->level().value_or(-2), -1};
      within = wrapper->value();
    }
    out(value, std::move(within));
    *info = found;
  });
}

}  // extern "C"
