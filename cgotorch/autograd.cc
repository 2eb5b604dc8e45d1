// autograd.cc: gradients, hooks, and nodes of the graph whose backward is a callback. Everything
// that needs the engine's headers is in this file, because they take seconds to compile.
//
// Nodes are held in two ways (nodes.h), and from torch to torch a few functions have one argument
// more or less. The code asks for what there is with `requires`.
#include <ATen/FuncTorchTLS.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/is_same_size.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "callback_error.h"
#include "checkpoints.h"
#include "dtype_name.h"
#include "internal.h"
#include "late_devices.h"
#include "nodes.h"

namespace cgotorch {
namespace {

namespace ag = torch::autograd;

void check(const char *err) {
  if (err != nullptr) throw CallbackError(err);
}

ag::variable_list list(const Tensor *t, int64_t n, const char *name) {
  return in_list(t, n, name).vec();
}

ag::variable_list list_or_undefined(const Tensor *t, int64_t n) {
  ag::variable_list out(static_cast<size_t>(n));
  if (t == nullptr) return out;
  for (int64_t i = 0; i < n; i++)
    if (t[i] != nullptr) out[i] = in(t[i], "");
  return out;
}

// The engine would sum a gradient up that only can be broadcast.
void check_gradients(const ag::variable_list &of, const ag::variable_list &grads) {
  for (size_t i = 0; i < grads.size(); i++) {
    const at::Tensor &t = of.at(i), &grad = grads[i];
    if (!grad.defined()) continue;
    const std::string gradient = "grad_output[" + std::to_string(i) + "] has a ",
                      output = "output[" + std::to_string(i) + "] has a ";
    std::ostringstream message;
    if (t.is_nested() || grad.is_nested() ? !at::is_same_size(t, grad)
                                          : t.sizes() != grad.sizes()) {
      message << "Mismatch in shape: " << gradient;
      if (t.is_nested() || grad.is_nested())
        message << "shape that differs from that of output[" << i << "].";
      else
        message << "shape of torch.Size(" << grad.sizes() << ") and " << output
                << "shape of torch.Size(" << t.sizes() << ").";
      throw Failure{"RuntimeError", message.str()};
    }
    if (t.is_complex() != grad.is_complex()) {
      message << "For complex Tensors, both grad_output and output are required to have the same "
                 "dtype. Mismatch in dtype: "
              << gradient << "dtype of " << dtype_name(grad.scalar_type()) << " and " << output
              << "dtype of " << dtype_name(t.scalar_type()) << ".";
      throw Failure{"RuntimeError", message.str()};
    }
  }
}

Tensor borrow(const at::Tensor &t) {
  return t.defined() ? reinterpret_cast<Tensor>(t.unsafeGetTensorImpl()) : nullptr;
}

// Hooks ----------------------------------------------------------------------------------------

// A callback and its context; releases the context with the last reference, so never while the
// callback runs.
template <class F>
struct Callback {
  F fn;
  void *data;
  void (*release)(void *) = nullptr;

  Callback(F f, void *d) : fn(f), data(d) {}
  Callback(const Callback &) = delete;
  Callback &operator=(const Callback &) = delete;
  ~Callback() {
    if (release != nullptr) release(data);
  }
};

class HooksBase {
 public:
  virtual ~HooksBase() = default;
  virtual void remove(uint64_t id) = 0;
};

// The hooks of one kind on one tensor. libtorch sees a single hook that runs these, because its own
// lists either cannot shrink or only hold Python's.
template <class F>
class Hooks : public HooksBase {
 public:
  using Ptr = std::shared_ptr<Callback<F>>;

  uint64_t add(Ptr callback) {
    const std::lock_guard<std::mutex> lock(mutex_);
    hooks_.emplace_back(++last_, std::move(callback));
    return last_;
  }
  void remove(uint64_t id) override {
    Ptr removed;  // released after the lock is
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto it = std::find_if(hooks_.begin(), hooks_.end(),
                                 [id](const auto &hook) { return hook.first == id; });
    if (it == hooks_.end()) return;
    removed = std::move(it->second);
    hooks_.erase(it);
  }
  // A copy, so that a hook may add and remove hooks.
  std::vector<Ptr> snapshot() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<Ptr> out;
    out.reserve(hooks_.size());
    for (const auto &hook : hooks_) out.push_back(hook.second);
    return out;
  }

 private:
  std::mutex mutex_;
  uint64_t last_ = 0;
  std::vector<std::pair<uint64_t, Ptr>> hooks_;
};

class PreHook : public ag::FunctionPreHook {
 public:
  explicit PreHook(uint32_t output) : output(output) {}

  ag::variable_list operator()(const ag::variable_list &grads) override {
    ag::variable_list out = grads;
    at::Tensor &grad = out.at(output);
    for (const auto &hook : hooks->snapshot()) {
      Tensor result = nullptr;
      check(call_back(hook->fn, hook->data, borrow(grad), &result));
      if (result == nullptr) continue;
      at::Tensor replacement = take(result);
      if (!grad.defined())
        check(make_error("RuntimeError", "can't replace a None gradient with a non-None value"));
      ag::check_variable_result(grad, replacement, "");
      grad = std::move(replacement);
    }
    return out;
  }

  const uint32_t output;
  const std::shared_ptr<Hooks<GradHook>> hooks = std::make_shared<Hooks<GradHook>>();
};

class PostHook : public ag::PostAccumulateGradHook {
 public:
  void operator()(const at::Tensor &leaf) override {
    for (const auto &hook : hooks->snapshot()) check(call_back(hook->fn, hook->data, borrow(leaf)));
  }

  const std::shared_ptr<Hooks<::PostAccumulateGradHook>> hooks =
      std::make_shared<Hooks<::PostAccumulateGradHook>>();
};

struct HookHandle {
  std::weak_ptr<HooksBase> hooks;
  uint64_t id;
};

template <class F>
void add_hook(const std::shared_ptr<Hooks<F>> &hooks, F fn, void *data, void (*release)(void *),
              Hook *handle) {
  auto callback = std::make_shared<Callback<F>>(fn, data);
  auto made = std::make_unique<HookHandle>(HookHandle{hooks, 0});
  made->id = hooks->add(callback);
  callback->release = release;
  if (handle != nullptr) *handle = reinterpret_cast<Hook>(made.release());
}

// Functions ------------------------------------------------------------------------------------

template <class Base>
class FunctionNode : public Base {
 public:
  FunctionNode(const Function &f, size_t n_inputs)
      : callback(f.backward, f.data),
        name_(f.name == nullptr ? "FunctionBackward" : f.name),
        materialize_(f.materialize_grads),
        edges_(n_inputs, -1) {}

  std::string name() const override { return name_; }

  // Input number `input` of the function is edge number `edge` of the node.
  void set_edge(size_t input, int64_t edge) { edges_[input] = edge; }

  void save(const ag::variable_list &saved) {
    saved_.reserve(saved.size());
    count_ = static_cast<int64_t>(saved.size());
    for (const at::Tensor &t : saved) {
      if (!t.defined()) {
        saved_.emplace_back();
      } else {
        // An output holds this node, so the node must not hold the output.
        saved_.emplace_back(t, /*is_output=*/t.grad_fn().get() == this);
      }
    }
  }
  void set_outputs(const std::vector<std::optional<at::Tensor>> &outputs) {
    for (const auto &output : outputs) outputs_.emplace_back(*output);
  }
  void complete() { complete_ = true; }

  int64_t saved_count() const { return count_; }
  ag::variable_list saved() {
    const std::lock_guard<std::mutex> lock(this->mutex_);
    if (freed_) throw Failure{"RuntimeError", ag::ERR_BACKWARD_TWICE};
    ag::variable_list out;
    out.reserve(saved_.size());
    for (const auto &s : saved_) out.push_back(s.unpack(this->getptr()));
    return out;
  }
  bool needs(int64_t input) const {
    if (input < 0 || input >= static_cast<int64_t>(edges_.size()) || edges_[input] < 0)
      return false;
    return this->task_should_compute_output(static_cast<size_t>(edges_[input]));
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(this->mutex_);
    saved_.clear();
    freed_ = true;
  }
  // Overrides Node's where nodes are intrusive pointers.
  void release_resources() {
    if constexpr (requires(Base &base) { base.release_resources(); }) Base::release_resources();
    saved_.clear();
  }

  Callback<BackwardFunction> callback;

 protected:
  // The lock is not held while the callback runs: it may run other graphs, and take its time.
  ag::variable_list apply(ag::variable_list &&grads) override {
    if (!complete_) throw Failure{"RuntimeError", name_ + " belongs to a call that failed"};
    at::OptionalDeviceGuard guard;
    std::vector<Tensor> in;
    in.reserve(grads.size());
    for (size_t i = 0; i < grads.size(); i++) {
      if (!grads[i].defined() && materialize_) grads[i] = outputs_.at(i).zeros(guard);
      in.push_back(borrow(grads[i]));
    }
    std::vector<Tensor> out(edges_.size(), nullptr);
    const char *err =
        call_back(callback.fn, callback.data, reinterpret_cast<FunctionContext>(this), in.data(),
                  static_cast<int64_t>(in.size()), out.data(), static_cast<int64_t>(out.size()));
    ag::variable_list results(this->num_outputs());
    for (size_t i = 0; i < out.size(); i++) {
      at::Tensor t = take(out[i]);
      if (edges_[i] >= 0 && this->should_compute_output(static_cast<size_t>(edges_[i])))
        results[static_cast<size_t>(edges_[i])] = std::move(t);
    }
    check(err);
    return results;
  }

 private:
  std::string name_;
  bool materialize_;
  bool complete_ = false;
  bool freed_ = false;
  std::vector<int64_t> edges_;
  std::vector<ag::VariableInfo> outputs_;
  std::vector<ag::SavedVariable> saved_;
  int64_t count_ = 0;  // of them, also after they are freed
};

using FunctionNodeOf = FunctionNode<ag::Node>;

template <class T, class Ptr, class... Args>
std::pair<T *, Ptr> make_node(Args &&...args) {
  if constexpr (requires(T *n) { deleteNode(n); }) {
    auto *node = new T(std::forward<Args>(args)...);
    return {node, Ptr(node, [](T *n) { deleteNode(n); })};
  } else {
    auto ptr = c10::make_intrusive<T>(std::forward<Args>(args)...);
    T *node = ptr.get();
    return {node, Ptr(std::move(ptr))};
  }
}

using Impls = std::unordered_set<at::TensorImpl *>;

template <class Ptr>
std::vector<std::optional<at::Tensor>> wrap_outputs(
    const ag::variable_list &inputs, const Impls &non_differentiable, const Impls &dirty,
    const std::vector<std::optional<at::Tensor>> &outputs, const Ptr &node, Ptr &attached) {
  const ag::_jvp_fn_t jvp = [](const ag::variable_list &,
                               const ag::variable_list &) -> ag::variable_list {
    throw Failure{"NotImplementedError", "forward-mode gradients of custom functions"};
  };
  const auto view_as_self = [](const at::Tensor &x) { return x.view_as(x); };
  const at::ArrayRef<std::optional<at::Tensor>> raw(outputs);
  if constexpr (requires {
                  ag::_wrap_outputs(inputs, non_differentiable, dirty, raw, node, jvp, Impls{},
                                    view_as_self, false, attached);
                }) {
    return ag::_wrap_outputs(inputs, non_differentiable, dirty, raw, node, jvp, Impls{},
                             view_as_self, false, attached);
  } else {
    return ag::_wrap_outputs(inputs, non_differentiable, dirty, raw, node, jvp, Impls{},
                             view_as_self, false);
  }
}

// Python's torch.autograd.graph.node_creation_hook, where Go is loaded into Python.
template <class Ptr>
void announce(const Ptr &attached) {
  if constexpr (requires { fire_node_creation_hooks(attached); }) {
    if (attached) fire_node_creation_hooks(attached);
  }
}

Impls impls(const Tensor *t, int64_t n, const char *name) {
  Impls out;
  for (const at::Tensor &x : in_list(t, n, name)) out.insert(x.unsafeGetTensorImpl());
  return out;
}

// The tensor that takes output's place in the graph: another one on the same memory, so that
// handles which the caller made while computing never become part of the graph, and with it of
// reference cycles that no garbage collector sees. Inputs and views have a place in the graph
// already.
const at::Tensor &output_alias(const at::Tensor &output, const ag::variable_list &inputs,
                               std::unordered_map<at::TensorImpl *, at::Tensor> &aliases) {
  at::TensorImpl *impl = output.unsafeGetTensorImpl();
  if (const auto known = aliases.find(impl); known != aliases.end()) return known->second;
  const bool input = std::any_of(inputs.begin(), inputs.end(),
                                 [&](const at::Tensor &t) { return t.is_same(output); });
  if (input || output.is_view() || output.is_inference() || output.requires_grad()) return output;
  auto copy = impl->shallow_copy_and_detach(c10::VariableVersion(0),
                                            /*allow_tensor_metadata_change=*/true);
  return aliases.emplace(impl, at::Tensor(std::move(copy))).first->second;
}

FunctionNodeOf *function(FunctionContext context) {
  return reinterpret_cast<FunctionNodeOf *>(context);
}

// Anomaly detection ----------------------------------------------------------------------------

__thread const char *trace = nullptr;

// What a node remembers of the call that made it. libtorch's own remembers the C++ stack, which
// ends where the caller's language begins.
class Trace : public ag::AnomalyMetadata {
 public:
  void store_stack() override { text_ = trace == nullptr ? "" : trace; }
  void assign_parent(const NodePtr &parent) override { parent_ = parent; }
  void print_stack(const std::string &name) override {
    TORCH_WARN("Error detected in ", name, ". ",
               text_.empty() ? "No forward pass information is available: detect anomalies during "
                               "the forward pass as well."
                             : "The forward call that made it:\n" + text_);
    NodePtr node = parent_;
    while (node) {
      const auto *of = dynamic_cast<const Trace *>(node->metadata());
      if (of == nullptr) return;
      TORCH_WARN("\n\nIt was made by the backward pass of ", node->name(), ". ",
                 of->text_.empty() ? "" : "The forward call that made that:\n" + of->text_);
      node = of->parent_;
    }
  }

 private:
  std::string text_;
  NodePtr parent_;
};

// The engine, with records as above. There must never be two in a process: libtorch starts the
// threads of the first that runs, and in any other a pass that is nested deeper than 60 times looks
// for threads that are not there, and crashes. So it is put in place when this library is loaded,
// before the first pass.
class TracingEngine : public ag::Engine {
 public:
  static ag::Engine &get() {
    // Never destroyed: its threads may run until the process ends.
    static auto *engine = new TracingEngine();
    return *engine;
  }
  std::unique_ptr<ag::AnomalyMetadata> make_anomaly_metadata() override {
    return std::make_unique<Trace>();
  }
  std::unique_ptr<ag::SavedVariableHooks> get_default_saved_variable_hooks() override {
    return saving_hooks();
  }
  // Of Python's engine the threads of devices count nodes for themselves, too.
  void thread_init(int device, const std::shared_ptr<ag::ReadyQueue> &queue,
                   bool should_increment = true) override {
    tls.sequence = &sequence_reached;
    Engine::thread_init(device, queue, should_increment);
  }
  ag::variable_list execute(const ag::edge_list &roots, const ag::variable_list &inputs,
                            bool keep_graph, bool create_graph, bool accumulate_grad,
                            const ag::edge_list &outputs = {}) override {
    // There may be a backend that the program has loaded without this library.
    if (backends() != known_) devices_added();
    return Engine::execute(roots, inputs, keep_graph, create_graph, accumulate_grad, outputs);
  }
  // Starts the threads of devices that were not there when the engine's threads were started. Not
  // by start_device_threads again: that also exchanges the pool of threads for deep recursion,
  // which passes of other threads may be using.
  void devices_added() {
    make_queues();
    const uint32_t now = backends();
    // Devices of all types share them: number 0 is the first of each.
    size_t devices = 0;
    for_each_backend([&](at::DeviceType type) {
      devices = std::max<size_t>(devices, c10::impl::VirtualGuardImpl(type).deviceCount());
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    known_ = now;
    for (; started_ < devices; started_++) {
      const auto i = static_cast<int>(started_);
      std::thread([this, i, queue = device_ready_queues_[started_]] {
        thread_init(i, queue);
      }).detach();
    }
  }

 private:
  static uint32_t backends() {
    uint32_t found = 1;
    for_each_backend([&](at::DeviceType type) { found |= 2u << static_cast<int>(type); });
    return found;
  }

  // Passes read the list of queues without a lock, so it has one for each device that there ever
  // may be before the first pass.
  void make_queues() {
    // libtorch converts the length to a DeviceIndex.
    constexpr size_t kMostDevices = std::numeric_limits<c10::DeviceIndex>::max();
    std::call_once(made_, [this] {
      initialize_device_threads_pool();
      started_ = device_ready_queues_.size();
      while (device_ready_queues_.size() < kMostDevices)
        device_ready_queues_.push_back(std::make_shared<ag::ReadyQueue>());
    });
  }

  std::once_flag made_;
  std::mutex mutex_;
  size_t started_ = 0;  // of the threads; under mutex_ once the queues are made
  std::atomic<uint32_t> known_ = 0;
};

// Python has an engine of its own, with its own records.
[[maybe_unused]] const bool installed = [] {
  if (!cgotorch_in_python()) ag::set_default_engine_stub(&TracingEngine::get);
  return true;
}();

// Whether a call that records nothing may pass autograd by.
bool idle(Tensor t) noexcept {
  if (unrecorded(t)) return true;
  const auto *meta = ag::impl::get_autograd_meta(reinterpret_cast<const at::Tensor &>(t));
  return !meta->is_view_ && meta->fw_grad_ == nullptr;
}

}  // namespace

bool unrecorded_linear(Tensor input, Tensor weight, Tensor bias) noexcept {
  const auto *x = reinterpret_cast<const c10::TensorImpl *>(input);
  if (x == nullptr || x->is_nested() || x->layout() != c10::kStrided || x->dim() != 2) return false;
  if (unrecorded(input) && unrecorded(weight) && unrecorded(bias)) return true;
  return !c10::GradMode::is_enabled() && idle(input) && idle(weight) && idle(bias);
}

void start_device_threads() {
  // Python's engine comes with CUDA.
  if (auto *engine = dynamic_cast<TracingEngine *>(&ag::Engine::get_default_engine()))
    engine->devices_added();
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *Backward(const Tensor *tensors, int64_t n, const Tensor *grad_tensors,
                     const bool *retain_graph, bool create_graph, const Tensor *inputs,
                     int64_t n_inputs) {
  return guard([&] {
    if (TransformDepth() > 0)
      throw Failure{"RuntimeError",
                    "backward() called inside a functorch transform. This is not supported, please "
                    "use functorch.grad or functorch.vjp instead or call backward() outside of "
                    "functorch transforms."};
    // To libtorch an empty list means all leaves, which nobody means who passes one.
    if (inputs != nullptr && n_inputs == 0)
      throw Failure{"RuntimeError", "'inputs' argument to backward() cannot be empty."};
    ag::variable_list only;
    if (inputs != nullptr) only = list(inputs, n_inputs, "inputs");
    const ag::variable_list of = list(tensors, n, "tensors"),
                            grads = list_or_undefined(grad_tensors, n);
    check_gradients(of, grads);
    ag::backward(of, grads, opt(retain_graph), create_graph, only);
  });
}

const char *Grad(const Tensor *outputs, int64_t n_outputs, const Tensor *inputs, int64_t n_inputs,
                 const Tensor *grad_outputs, const bool *retain_graph, bool create_graph,
                 bool allow_unused, bool materialize_grads, Tensor *results) {
  return guard([&] {
    const ag::variable_list of = list(inputs, n_inputs, "inputs");
    const ag::variable_list roots = list(outputs, n_outputs, "outputs"),
                            with = list_or_undefined(grad_outputs, n_outputs);
    check_gradients(roots, with);
    ag::variable_list grads = ag::grad(roots, of, with, opt(retain_graph), create_graph,
                                       allow_unused || materialize_grads);
    if (materialize_grads) {
      for (size_t i = 0; i < grads.size(); i++)
        if (!grads[i].defined()) grads[i] = at::zeros_like(of[i]).set_requires_grad(create_graph);
    }
    for (int64_t i = 0; i < n_inputs; i++) results[i] = release(std::move(grads[i]));
  });
}

const char *TensorGrad(Tensor t, Tensor *result) {
  return guard([&] { out(result, at::Tensor(in(t, "t").grad())); });
}

const char *TensorSetGrad(Tensor t, Tensor grad) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    if (grad == nullptr) {
      self.mutable_grad().reset();
      return;
    }
    const at::Tensor &g = in(grad, "grad");
    if (g.is_same(self)) throw Failure{"RuntimeError", "can't assign a tensor as its own grad"};
    const auto refuse = [](const char *what, const auto &of, const auto &to) {
      std::ostringstream message;
      message << "attempting to assign a gradient of " << what << " '" << of << "' to a tensor of "
              << what << " '" << to << "'";
      throw Failure{"RuntimeError", message.str()};
    };
    if (g.sizes() != self.sizes()) refuse("size", g.sizes(), self.sizes());
    if (g.scalar_type() != self.scalar_type()) refuse("dtype", g.scalar_type(), self.scalar_type());
    if (g.device() != self.device()) refuse("device", g.device(), self.device());
    // The gradient of an embedding may be sparse.
    if (g.layout() != at::kSparse && g.layout() != self.layout())
      refuse("layout", g.layout(), self.layout());
    self.mutable_grad() = g;
  });
}

const char *TensorSetRequiresGrad(Tensor t, bool requires_grad) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    if (!self.is_leaf()) {
      std::string message = "you can only change requires_grad flags of leaf variables.";
      if (!requires_grad)
        message +=
            " If you want to use a computed variable in a subgraph that doesn't require "
            "differentiation use var_no_grad = var.detach().";
      throw Failure{"RuntimeError", std::move(message)};
    }
    if (const auto &transforms = at::functorch::functorchTLSAccessor(); requires_grad && transforms)
      transforms->checkSupportsInplaceRequiresGrad();
    self.set_requires_grad(requires_grad);
  });
}

const char *RegisterHook(Tensor t, GradHook fn, void *data, void (*release)(void *data),
                         Hook *handle) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    if (!self.requires_grad())
      throw Failure{"RuntimeError",
                    "cannot register a hook on a tensor that doesn't require gradient"};
    const NodePtr fn_node = self.grad_fn();
    auto &hooks =
        fn_node ? fn_node->tensor_pre_hooks() : ag::impl::materialize_autograd_meta(self)->hooks_;
    const auto output = static_cast<uint32_t>(fn_node ? self.output_nr() : 0);
    for (const auto &hook : hooks) {
      auto *mine = dynamic_cast<PreHook *>(hook.get());
      if (mine != nullptr && mine->output == output)
        return add_hook(mine->hooks, fn, data, release, handle);
    }
    auto made = std::make_unique<PreHook>(output);
    const auto list = made->hooks;
    hooks.push_back(std::move(made));
    add_hook(list, fn, data, release, handle);
  });
}

const char *RegisterPostAccumulateGradHook(Tensor t, PostAccumulateGradHook fn, void *data,
                                           void (*release)(void *data), Hook *handle) {
  return guard([&] {
    const at::Tensor &self = in(t, "t");
    if (!self.requires_grad())
      throw Failure{"RuntimeError",
                    "cannot register a hook on a tensor that doesn't require gradient"};
    if (self.grad_fn())
      throw Failure{"RuntimeError",
                    "post accumulate grad hooks cannot be registered on non-leaf tensors"};
    auto &hook = ag::impl::materialize_autograd_meta(self)->post_acc_grad_hooks_;
    if (!hook) hook = std::make_unique<PostHook>();
    auto *mine = dynamic_cast<PostHook *>(hook.get());
    if (mine == nullptr)
      throw Failure{"RuntimeError", "the tensor has a post accumulate grad hook of Python's"};
    add_hook(mine->hooks, fn, data, release, handle);
  });
}

void RemoveHook(Hook handle) {
  if (handle == nullptr) return;
  auto *h = reinterpret_cast<HookHandle *>(handle);
  if (const auto hooks = h->hooks.lock()) hooks->remove(h->id);
}

void FreeHook(Hook handle) { delete reinterpret_cast<HookHandle *>(handle); }

const char *ApplyFunction(const Function *f, const Tensor *inputs, int64_t n_inputs,
                          const Tensor *outputs, int64_t n_outputs, const Tensor *saved,
                          int64_t n_saved, const Tensor *dirty, int64_t n_dirty,
                          const Tensor *non_differentiable, int64_t n_non_differentiable,
                          Tensor *results) {
  return guard([&] {
    if (TransformDepth() > 0)
      throw Failure{
          "RuntimeError",
          "a Function written in Go cannot be transformed by functorch: call it outside of "
          "the function that is transformed, or write it with PyTorch's own functions"};
    ag::variable_list vars;
    for (const at::Tensor &t : list_or_undefined(inputs, n_inputs))
      if (t.defined()) vars.push_back(t);
    const Impls changed = impls(dirty, n_dirty, "dirty");
    Impls constant = impls(non_differentiable, n_non_differentiable, "non_differentiable");

    FunctionNodeOf *node = nullptr;
    NodePtr owner;
    if (c10::GradMode::is_enabled() && ag::any_variable_requires_grad(vars)) {
      std::tie(node, owner) = make_node<FunctionNodeOf, NodePtr>(*f, static_cast<size_t>(n_inputs));
      int64_t edge = 0;
      for (int64_t i = 0; i < n_inputs; i++)
        if (inputs[i] != nullptr) node->set_edge(static_cast<size_t>(i), edge++);
      node->set_next_edges(ag::collect_next_edges(vars));
      node->clear_input_metadata();
    }
    for (at::TensorImpl *t : changed)
      if (!t->is_inference()) t->bump_version();
    std::vector<std::optional<at::Tensor>> raw;
    std::unordered_map<at::TensorImpl *, at::Tensor> aliases;
    for (const at::Tensor &t : in_list(outputs, n_outputs, "outputs")) {
      raw.emplace_back(node == nullptr ? t : output_alias(t, vars, aliases));
      if (constant.count(t.unsafeGetTensorImpl()) > 0)
        constant.insert(raw.back()->unsafeGetTensorImpl());
    }
    NodePtr attached;
    auto wrapped = wrap_outputs(vars, constant, changed, raw, owner, attached);
    if (node != nullptr) {
      node->set_outputs(wrapped);
      ag::variable_list to_save = list_or_undefined(saved, n_saved);
      for (at::Tensor &t : to_save) {
        const auto alias = aliases.find(t.unsafeGetTensorImpl());
        if (alias != aliases.end()) t = alias->second;
      }
      node->save(to_save);
      announce(attached);
      node->complete();
      node->callback.release = f->release;
    }
    for (int64_t i = 0; i < n_outputs; i++) results[i] = release(std::move(*wrapped[i]));
    if (node == nullptr && f->release != nullptr) f->release(f->data);
  });
}

int64_t FunctionSavedCount(FunctionContext context) { return function(context)->saved_count(); }

const char *FunctionSavedTensors(FunctionContext context, Tensor *results) {
  return guard([&] {
    ag::variable_list saved = function(context)->saved();
    for (size_t i = 0; i < saved.size(); i++) results[i] = release(std::move(saved[i]));
  });
}

bool FunctionNeedsInputGrad(FunctionContext context, int64_t i) {
  return function(context)->needs(i);
}

const char *GradFnName(Tensor t, const char **result) {
  return guard([&] {
    const auto &node = in(t, "t").grad_fn();
    const std::string name = node ? node->name() : std::string();
    char *copy = strdup(name.c_str());
    if (copy == nullptr) throw std::bad_alloc();
    *result = copy;
  });
}

void SetAnomalyMode(bool enabled, bool check_nan) {
  ag::AnomalyMode::set_enabled(enabled, check_nan);
}

void GetAnomalyMode(bool *enabled, bool *check_nan) {
  *enabled = ag::AnomalyMode::is_enabled();
  *check_nan = ag::AnomalyMode::should_check_nan();
}

void cgotorch_run_traced(int64_t i, struct cgotorch_block *block, const char *text) {
  const char *outer = trace;
  trace = text;
  cgotorch_run(i, block);
  trace = outer;
}

}  // extern "C"
