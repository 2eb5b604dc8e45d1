// reducer.cc: c10d's Reducer for C, and what torch.nn.parallel.DistributedDataParallel does around
// it in Python.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <ATen/core/ivalue_inl.h>
#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <type_traits>

#include "callback_error.h"
#include "internal.h"

namespace cgotorch {
namespace {

using Tensors = std::vector<at::Tensor>;
using Group = c10::intrusive_ptr<c10d::ProcessGroup>;

Group shared(DistGroup g) {
  return Group::unsafe_reclaim_from_nonowning(reinterpret_cast<c10d::ProcessGroup *>(g));
}

// A bucket for a hook, which may keep it for longer than the reducer does.
struct Held {
  std::mutex mutex;
  c10d::GradBucket bucket;
  const int64_t numel;
  const c10::Layout layout;

  explicit Held(const c10d::GradBucket &b)
      : bucket(b), numel(b.getBuffer().numel()), layout(b.getBuffer().layout()) {}
};
using HeldPtr = std::shared_ptr<Held>;

// What a hook has begun.
class Begun : public torch::CustomClassHolder {
 public:
  Begun(HeldPtr held, const DistCommHook &hook, void *pending)
      : held_(std::move(held)), hook_(hook), pending_(pending) {}
  ~Begun() override {
    if (pending_ != nullptr && hook_.drop != nullptr) hook_.drop(pending_);
  }

  at::Tensor finish() {
    if (pending_ != nullptr)
      if (const char *error = hook_.finish(pending_)) throw CallbackError(error);
    at::Tensor result;
    {
      const std::lock_guard<std::mutex> lock(held_->mutex);
      result = held_->bucket.getBuffer();
    }
    if (result.layout() != held_->layout || result.numel() != held_->numel ||
        (held_->layout == c10::kStrided && result.dim() != 1))
      throw CallbackError(make_error(
          "ValueError", "the hook has left a tensor of shape " + c10::str(result.sizes()) +
                            " in the bucket, whose gradients are " + std::to_string(held_->numel) +
                            " elements in a row"));
    // The reducer takes it for a storage from its beginning on, whatever it is a view of.
    if (held_->layout == c10::kStrided && (result.storage_offset() != 0 || !result.is_contiguous()))
      result = result.clone(at::MemoryFormat::Contiguous);
    return result;
  }

 private:
  HeldPtr held_;
  const DistCommHook hook_;
  void *const pending_;
};

// A hook of the caller's.
class BucketHook : public c10d::CommHookInterface {
  template <class F>
  auto noted(F &&f) {
    try {
      return f();
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

 public:
  explicit BucketHook(const DistCommHook &hook) : hook_(hook) {}
  ~BucketHook() override {
    if (registered && hook_.release != nullptr) hook_.release(hook_.data);
  }

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket &bucket) override {
    const at::NoGradGuard no_grad;
    return noted([&] {
      auto held = std::make_shared<Held>(bucket);
      void *pending = nullptr;
      const auto handle = reinterpret_cast<DistBucket>(new HeldPtr(held));
      if (const char *error = hook_.begin(hook_.data, handle, &pending)) throw CallbackError(error);
      auto begun = c10::make_intrusive<Begun>(std::move(held), hook_, pending);
      // It has a value from the beginning: what remains is done where the reducer asks what it is,
      // which it does for one bucket after the other, so that all ranks go on in the same order.
      auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
      future->markCompleted(c10::IValue::make_capsule(std::move(begun)),
                            std::vector<c10::ivalue::Future::WeakStorage>());
      return future;
    });
  }

  at::Tensor parseHookResult(const c10::IValue &result) override {
    const at::NoGradGuard no_grad;
    return noted(
        [&] { return c10::static_intrusive_pointer_cast<Begun>(result.toCapsule())->finish(); });
  }

  // After a failure ranks have called different collectives, and the reducer is in the middle of a
  // pass.
  void check() const {
    if (failed_)
      throw Failure{"RuntimeError",
                    "its communication hook has failed before: make a new one for the module, on "
                    "all ranks"};
  }

  bool registered = false;  // until then the caller's data is the caller's

 private:
  const DistCommHook hook_;
  std::atomic<bool> failed_ = false;
};

using Buckets = std::vector<std::vector<size_t>>;

// c10d's, which has no functions for the layout of its buckets.
class Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;

  bool laid_out() const { return has_rebuilt_bucket_; }

  void lay_out(const Buckets &buckets, const Buckets &otherwise) {
    try {
      initialize_buckets(buckets);
    } catch (...) {
      initialize_buckets(otherwise);
      throw;
    }
    has_rebuilt_bucket_ = true;
    rebuilt_params_.clear();
    rebuilt_param_indices_.clear();
  }
};

struct State {
  Group group;
  std::shared_ptr<Reducer> reducer;
  std::unordered_map<const c10::TensorImpl *, size_t> indices;  // of the parameters
  BucketHook *hook = nullptr;                                   // the reducer's, if there is one
  bool compressed = false;
  std::shared_ptr<c10d::Logger>
      logger;  // which the reducer asks without looking whether it is there
  bool find_unused;
  bool static_graph;
  // Whether the first backward pass of a static graph has been told to reduce at its end.
  std::atomic<bool> delayed = false;
};
using StatePtr = std::shared_ptr<State>;

// As Python's fp16_compress_hook and bf16_compress_hook.
class Compressed : public c10d::CppCommHookInterface<Group> {
 public:
  Compressed(Group group, at::ScalarType dtype)
      : CppCommHookInterface(std::move(group)), dtype_(dtype) {}

  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket &bucket) override {
    at::Tensor buffer = bucket.getBufferRef();
    Tensors small = {buffer.to(dtype_).div_(state_->getSize())};
    return state_->allreduce(small)->getFuture()->then(
        [buffer](c10::ivalue::Future &reduced) {
          buffer.copy_(reduced.value().toTensorVector()[0]);
          return c10::IValue(buffer);
        },
        c10::TensorType::get());
  }

 private:
  at::ScalarType dtype_;
};

// What a forward pass returned goes through here, so that gradients that do not come are none, and
// not zeros, and so that the first backward pass of a static graph reduces when it is over.
class Sink : public torch::autograd::Function<Sink> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext *context,
                                                at::TensorList inputs, StatePtr *state) {
    context->set_materialize_grads(false);
    context->saved_data["state"] = c10::IValue::make_capsule(c10::make_intrusive<Kept>(*state));
    torch::autograd::variable_list copies;
    for (const at::Tensor &t : inputs) copies.push_back(t.clone());
    return copies;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *context,
                                                 torch::autograd::variable_list gradients) {
    const auto kept =
        c10::static_intrusive_pointer_cast<Kept>(context->saved_data["state"].toCapsule());
    State &state = *kept->state;
    if (state.static_graph && !state.delayed.exchange(true))
      torch::autograd::Engine::get_default_engine().queue_callback(
          [reducer = state.reducer] { reducer->delay_all_reduce(); });
    gradients.emplace_back();  // of the state
    return gradients;
  }

 private:
  struct Kept : torch::CustomClassHolder {
    explicit Kept(StatePtr s) : state(std::move(s)) {}
    StatePtr state;
  };
};

// The constructor has grown from one release of torch to the next.
template <class T, class... Args>
std::shared_ptr<T> make(Args &&...args) {
  using Limits = std::vector<int64_t>;
  if constexpr (std::is_constructible_v<T, Args..., bool, bool, Limits>)
    return std::make_shared<T>(std::forward<Args>(args)..., false, false, Limits());
  else if constexpr (std::is_constructible_v<T, Args..., bool, bool>)
    return std::make_shared<T>(std::forward<Args>(args)..., false, false);
  else
    return std::make_shared<T>(std::forward<Args>(args)...);
}

Buckets buckets_of(State &state) {
  Buckets buckets;
  for (c10d::GradBucket &bucket : state.reducer->get_grad_buckets(false)) {
    buckets.emplace_back();
    for (const at::Tensor &parameter : bucket.getParameters())
      buckets.back().push_back(state.indices.at(parameter.unsafeGetTensorImpl()));
  }
  return buckets;
}

StatePtr new_reducer(const Group &group, const Tensors &parameters, const DistReducerOptions &o) {
  const size_t n = parameters.size();
  std::vector<bool> sparse(n);
  std::unordered_map<size_t, std::string> names;
  for (size_t i = 0; i < n; i++) {
    if (o.sparse != nullptr) sparse[i] = o.sparse[i];
    if (o.names != nullptr) names[i] = o.names[i];
  }
  c10d::verify_params_across_processes(group, parameters, {});
  const int64_t first = o.bucket_bytes > 0 ? o.bucket_bytes : c10d::kDefaultFirstBucketBytes;
  const int64_t most = o.bucket_bytes > 0 ? o.bucket_bytes : c10d::kDefaultBucketBytesCap;
  // In one bucket until the order in which gradients come is known: then the reducer makes its own.
  std::vector<size_t> limits = {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  if (o.find_unused_parameters && !o.static_graph) {
    limits = {static_cast<size_t>(first)};
    if (first < most) limits.push_back(static_cast<size_t>(most));
  }
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, limits, sparse));
  std::reverse(buckets.begin(), buckets.end());
  auto state = std::make_shared<State>();
  state->group = group;
  state->find_unused = o.find_unused_parameters;
  state->static_graph = o.static_graph;
  for (size_t i = 0; i < n; i++) state->indices[parameters[i].unsafeGetTensorImpl()] = i;
  state->reducer = make<Reducer>(parameters, buckets, group, sparse, most, o.find_unused_parameters,
                                 o.gradient_as_bucket_view, names, first);
  state->logger = std::make_shared<c10d::Logger>(state->reducer);
  state->reducer->set_logger(state->logger);
  state->logger->set_construction_data_and_log("gotorch", {}, -1, false, false, o.static_graph);
  if (o.static_graph) state->reducer->set_static_graph();
  if (o.compression != DistNoCompression) {
    const auto dtype = o.compression == DistFloat16 ? at::kHalf : at::kBFloat16;
    state->reducer->register_comm_hook(std::make_unique<Compressed>(group, dtype));
    state->compressed = true;
  }
  return state;
}

StatePtr &of(DistReducer r) { return *reinterpret_cast<StatePtr *>(r); }
Held &of(DistBucket b) { return **reinterpret_cast<HeldPtr *>(b); }

void check(const State &state) {
  if (state.hook != nullptr) state.hook->check();
}

// What a backward pass of the others does, with zeros.
void shadow(State &state) {
  const at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> begun;
  for (c10d::GradBucket &bucket : state.reducer->get_grad_buckets(true))
    begun.push_back(state.reducer->run_comm_hook(bucket));
  c10::intrusive_ptr<c10d::Work> used;
  if (state.find_unused && !state.static_graph) {
    Tensors map = {state.reducer->get_local_used_map_on_device()};
    used = state.group->allreduce(map);
  }
  for (const auto &future : begun) {
    future->wait();
    const c10::IValue result = future->value();  // or its error
    if (state.hook != nullptr) state.hook->parseHookResult(result);
  }
  if (used != nullptr) used->wait();
  state.reducer->push_rebuilt_params_for_all_indices();
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

const char *DistNewReducer(DistGroup group, const Tensor *parameters, int64_t n,
                           const DistReducerOptions *options, DistReducer *result) {
  return guard([&] {
    if (options->compression < 0 || options->compression > DistBFloat16)
      throw_value("there is no such compression");
    auto state = std::make_unique<StatePtr>(
        new_reducer(shared(group), in_list(parameters, n, "parameters").vec(), *options));
    *result = reinterpret_cast<DistReducer>(state.release());
  });
}

const char *DistReducerForward(DistReducer reducer, bool reduced) {
  return guard([&] {
    check(*of(reducer));
    if (reduced) of(reducer)->reducer->prepare_for_forward();
    of(reducer)->reducer->rebuild_buckets();
  });
}

const char *DistReducerBackward(DistReducer reducer, const Tensor *outputs, int64_t n,
                                Tensor *results) {
  return guard([&] {
    StatePtr &state = of(reducer);
    check(*state);
    Tensors tensors = in_list(outputs, n, "outputs").vec();
    const bool looks = state->find_unused && !state->static_graph;
    state->reducer->prepare_for_backward(looks ? tensors : Tensors());
    if (looks || (state->static_graph && !state->delayed)) {
      Tensors recorded;
      for (const at::Tensor &t : tensors)
        if (t.grad_fn() != nullptr) recorded.push_back(t);
      if (!recorded.empty()) recorded = Sink::apply(at::TensorList(recorded), &state);
      size_t next = 0;
      for (at::Tensor &t : tensors)
        if (t.grad_fn() != nullptr) t = recorded[next++];
    }
    for (int64_t i = 0; i < n; i++) out(results + i, std::move(tensors[i]));
  });
}

const char *DistReducerBuckets(DistReducer reducer, int64_t *parameters, int64_t *buckets,
                               int64_t n, bool *laid_out) {
  return guard([&] {
    State &state = *of(reducer);
    check(state);
    if (static_cast<size_t>(n) != state.indices.size())
      throw_value("there is another number of parameters");
    // A static graph's first pass notes no order. Who saves after it needs one that a resumed job
    // has, too.
    if (state.delayed) state.reducer->push_rebuilt_params_for_all_indices();
    state.reducer->rebuild_buckets();  // if it knows the order by now
    *laid_out = state.reducer->laid_out();
    if (!*laid_out) return;
    int64_t next = 0, bucket = 0;
    for (const auto &indices : buckets_of(state)) {
      for (const size_t index : indices) {
        parameters[next] = static_cast<int64_t>(index);
        buckets[next++] = bucket;
      }
      bucket++;
    }
  });
}

const char *DistReducerSetBuckets(DistReducer reducer, const int64_t *parameters,
                                  const int64_t *buckets, int64_t n) {
  return guard([&] {
    State &state = *of(reducer);
    check(state);
    std::vector<bool> seen(state.indices.size());
    Buckets made;
    for (int64_t i = 0; i < n; i++) {
      const auto index = static_cast<size_t>(parameters[i]);
      const auto known = static_cast<int64_t>(made.size());
      if (parameters[i] < 0 || index >= seen.size() || seen[index])
        throw_value("there is no such parameter, or it is there twice");
      seen[index] = true;
      if (buckets[i] == known)
        made.emplace_back();
      else if (known == 0 || buckets[i] != known - 1)
        throw_value("buckets must be numbered from 0, one after the other");
      made.back().push_back(index);
    }
    if (static_cast<size_t>(n) != seen.size()) throw_value("a parameter is in no bucket");
    state.reducer->lay_out(made, buckets_of(state));
  });
}

void DistReducerFree(DistReducer reducer) { delete reinterpret_cast<StatePtr *>(reducer); }

// Hooks ------------------------------------------------------------------------------------------

const char *DistReducerRegisterHook(DistReducer reducer, const DistCommHook *hook) {
  return guard([&] {
    State &state = *of(reducer);
    if (state.hook != nullptr || state.compressed)
      throw Failure{"RuntimeError", state.compressed ? "gradients are compressed already"
                                                     : "there is a communication hook already"};
    auto made = std::make_unique<BucketHook>(*hook);
    BucketHook *kept = made.get();
    state.reducer->register_comm_hook(std::move(made));
    kept->registered = true;
    state.hook = kept;
  });
}

int64_t DistBucketIndex(DistBucket bucket) {
  return static_cast<int64_t>(of(bucket).bucket.getIndex());
}

bool DistBucketIsLast(DistBucket bucket) { return of(bucket).bucket.isLast(); }

const char *DistBucketBuffer(DistBucket bucket, Tensor *result) {
  return guard([&] {
    const std::lock_guard<std::mutex> lock(of(bucket).mutex);
    out(result, at::Tensor(of(bucket).bucket.getBuffer()));
  });
}

const char *DistBucketSetBuffer(DistBucket bucket, Tensor buffer) {
  return guard([&] {
    at::Tensor t = in(buffer, "buffer");
    const std::lock_guard<std::mutex> lock(of(bucket).mutex);
    of(bucket).bucket.setBuffer(t);
  });
}

const char *DistBucketGradients(DistBucket bucket, Tensor **result, int64_t *result_len) {
  return guard([&] {
    const std::lock_guard<std::mutex> lock(of(bucket).mutex);
    const bool sparse = of(bucket).layout != c10::kStrided;
    out_list(result, result_len, sparse ? Tensors() : of(bucket).bucket.getGradients());
  });
}

const char *DistBucketParameters(DistBucket bucket, Tensor **result, int64_t *result_len) {
  return guard([&] { out_list(result, result_len, Tensors(of(bucket).bucket.getParameters())); });
}

void DistBucketFree(DistBucket bucket) { delete reinterpret_cast<HeldPtr *>(bucket); }

// Ranks that have run out of batches -------------------------------------------------------------

const char *DistReducerSetForwardWork(DistReducer reducer, DistWork work, bool divide_by_all) {
  return guard([&] {
    of(reducer)->reducer->set_forward_pass_work_handle(
        c10::intrusive_ptr<c10d::Work>::unsafe_reclaim_from_nonowning(
            reinterpret_cast<c10d::Work *>(work)),
        divide_by_all);
  });
}

const char *DistReducerShadow(DistReducer reducer) {
  return guard([&] {
    check(*of(reducer));
    shadow(*of(reducer));
  });
}

const char *DistBroadcastCoalesced(DistGroup group, const Tensor *tensors, int64_t n,
                                   int64_t buffer_bytes, int64_t root) {
  return guard([&] {
    const at::NoGradGuard no_grad;
    const Tensors ts = in_list(tensors, n, "tensors").vec();
    std::vector<uint32_t> versions;
    for (const at::Tensor &t : ts) versions.push_back(t.is_inference() ? 0 : t._version());
    c10d::broadcast_coalesced(shared(group), ts, static_cast<size_t>(buffer_bytes),
                              static_cast<int>(root));
    for (size_t i = 0; i < ts.size(); i++)
      if (!ts[i].is_inference()) {
        c10::VariableVersion version = torch::autograd::impl::version_counter(ts[i]);
        version.set_version(versions[i]);
      }
  });
}
