// checkpoint.cc: saved tensors that are computed anew, or fetched.
//
// While a checkpoint is open each op that saves a tensor gets hooks from the engine (autograd.cc),
// and with them a place: a number. The first time nothing is kept at it but what the tensor is
// like. When a node asks for the tensor, the whole is computed again, which fills the places, and
// the node's is given out. Filled places are for one backward pass; each is emptied when it was
// asked for.
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "callback_error.h"
#include "checkpoints.h"
#include "dtype_name.h"
#include "internal.h"

namespace cgotorch {
namespace {

namespace ag = torch::autograd;

// What is remembered of a tensor that was not kept.
struct Likeness {
  std::vector<int64_t> sizes;
  at::ScalarType dtype;
  at::Device device;

  explicit Likeness(const at::Tensor &t)
      : sizes(t.is_nested() ? std::vector<int64_t>() : t.sizes().vec()),
        dtype(t.scalar_type()),
        device(t.device()) {}
  bool operator==(const Likeness &) const = default;

  std::string text() const {
    std::ostringstream out;
    out << "shape " << at::IntArrayRef(sizes) << ", " << dtype_name(dtype) << " on " << device;
    return out.str();
  }
};

// A tensor that was computed again. The engine does not look for changes in place where it has
// hooks, so it is done here.
struct Saved {
  at::Tensor value;
  uint32_t version = 0;

  Saved() = default;
  explicit Saved(at::Tensor t)
      : value(std::move(t)),
        version(torch::autograd::impl::version_counter(value).current_version()) {}

  const at::Tensor &unchanged() const {
    const uint32_t now = torch::autograd::impl::version_counter(value).current_version();
    if (now == version) return value;
    throw Failure{"RuntimeError",
                  "one of the variables needed for gradient computation has been "
                  "modified by an inplace operation: a tensor of " +
                      Likeness(value).text() + " is at version " + std::to_string(now) +
                      "; expected version " + std::to_string(version) + " instead"};
  }
};

struct Frame : std::enable_shared_from_this<Frame> {
  Frame(RecomputeFunction f, void *d) : recompute(f), data(d) {}
  Frame(const Frame &) = delete;
  Frame &operator=(const Frame &) = delete;
  ~Frame() {
    if (release != nullptr) release(data);
  }

  RecomputeFunction recompute;
  void *data;
  void (*release)(void *) = nullptr;
  std::vector<ag::SavedVariable> inputs;
  bool check = true;
  bool complete = false;  // the function has returned

  std::mutex mutex;                          // for what follows
  std::vector<Likeness> places;              // as they were the first time
  std::map<int, std::vector<Saved>> values;  // of the places, by backward pass
};

using FramePtr = std::shared_ptr<Frame>;

// A backward pass with filled places. The engine owns it, and drops it when the pass is over,
// however that ends.
struct Pass {
  Pass(const FramePtr &f, int n) : frame(f), id(n) {}
  Pass(const Pass &) = delete;
  Pass &operator=(const Pass &) = delete;
  ~Pass() {
    const FramePtr f = frame.lock();
    if (f == nullptr) return;
    std::vector<Saved> unused;  // freed after the lock is
    const std::lock_guard<std::mutex> lock(f->mutex);
    const auto at = f->values.find(id);
    if (at == f->values.end()) return;
    unused = std::move(at->second);
    f->values.erase(at);
  }

  const std::weak_ptr<Frame> frame;
  const int id;
};

// Where what is in a storage can be had again.
struct Source {
  Source(const at::Tensor &whole, FetchFunction f, void *d)
      : dtype(whole.scalar_type()), fetch(f), data(d) {}
  Source(const Source &) = delete;
  Source &operator=(const Source &) = delete;
  ~Source() {
    if (release != nullptr) release(data);
  }

  const at::ScalarType dtype;
  FetchFunction fetch;
  void *data;
  void (*release)(void *) = nullptr;
};

// Hooks of the caller's for what ops save.
struct CallersHooks {
  CallersHooks(UnpackFunction f, void *d) : unpack(f), data(d) {}
  CallersHooks(const CallersHooks &) = delete;
  CallersHooks &operator=(const CallersHooks &) = delete;
  ~CallersHooks() {
    if (release != nullptr) release(data);
  }

  UnpackFunction unpack;
  void *data;
  void (*release)(void *) = nullptr;
};

// A checkpoint that is open on a thread, a source, or hooks.
struct Open {
  FramePtr frame;             // null for a source
  bool again = false;         // it is recomputed
  std::vector<Saved> values;  // of the places, when it is

  std::shared_ptr<Source> source = nullptr;
  c10::Storage storage = {};  // that of the source

  std::shared_ptr<CallersHooks> hooks = nullptr;
};

std::vector<Open> &open_on_thread() {
  static thread_local std::vector<Open> of_thread;
  return of_thread;
}

// The innermost checkpoint, null where none is open. It saves nothing, whatever is open within it.
Open *checkpoint_on_thread() {
  auto &open = open_on_thread();
  const auto at = std::find_if(open.rbegin(), open.rend(), [](const Open &o) { return o.frame; });
  return at == open.rend() ? nullptr : &*at;
}

[[noreturn]] void changed(const std::string &how) {
  throw Failure{"RuntimeError", "checkpoint: " + how +
                                    " the function must compute the same, with tensors of the same "
                                    "shapes and dtypes, each time it is called"};
}

// The number of a request for saved tensors outside of any backward pass, below -1: each
// recomputes.
thread_local int asking_outside = 0;

// The number of the backward pass that the thread is in; outside of all a negative one.
int pass_of_thread() {
  const int pass = ag::get_current_graph_task_id();
  return pass < 0 ? asking_outside : pass;
}

class Asking {
 public:
  Asking() : before_(asking_outside) {
    static std::atomic<int> last{0};
    asking_outside = -2 - (last.fetch_add(1, std::memory_order_relaxed) & 0x3fffffff);
  }
  ~Asking() { asking_outside = before_; }
  Asking(const Asking &) = delete;
  Asking &operator=(const Asking &) = delete;

 private:
  const int before_;
};

class Hooks : public ag::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor &t) override {
    Open *open = checkpoint_on_thread();
    if (open == nullptr) throw Failure{"RuntimeError", "checkpoint: it was left while an op saved"};
    Open &last = *open;
    frame_ = last.frame;
    if (last.again) {
      // Kept, so that a backward pass within the function does not begin all over.
      kept_ = Saved(t.detach());
      last.values.push_back(kept_);
      return;
    }
    const std::lock_guard<std::mutex> lock(frame_->mutex);
    place_ = frame_->places.size();
    frame_->places.emplace_back(t);
  }

  at::Tensor call_unpack_hook() override {
    if (kept_.value.defined()) return kept_.unchanged();
    const Asking asking;
    const int pass = pass_of_thread();
    // The engine drops what a backward pass has left, nobody what is left outside of one.
    const std::optional<Pass> once =
        pass < 0 ? std::optional<Pass>(std::in_place, frame_, pass) : std::nullopt;
    for (bool again = false;; again = true) {
      at::Tensor value = computed(pass);
      if (value.defined()) return value;
      if (again) changed("fewer tensors were saved when it was computed again;");
      if (const char *err =
              frame_->recompute(frame_->data, reinterpret_cast<Checkpoint>(frame_.get())))
        throw CallbackError(err);
    }
  }

 private:
  at::Tensor computed(int pass) {
    const std::lock_guard<std::mutex> lock(frame_->mutex);
    const auto filled = frame_->values.find(pass);
    if (filled == frame_->values.end() || place_ >= filled->second.size()) return {};
    const Saved saved = std::exchange(filled->second[place_], {});
    if (!saved.value.defined()) return {};
    const at::Tensor &value = saved.unchanged();
    if (frame_->check) {
      const Likeness is(value);
      const Likeness &was = frame_->places[place_];
      if (!(is == was))
        changed("a saved tensor had " + was.text() + ", and computed again it has " + is.text() +
                ";");
    }
    return value;
  }

  FramePtr frame_;
  size_t place_ = 0;
  Saved kept_;
};

// A tensor that was saved where the caller has hooks: kept until it is packed.
struct Slot {
  explicit Slot(std::shared_ptr<CallersHooks> h) : hooks(std::move(h)) {}
  Slot(const Slot &) = delete;
  Slot &operator=(const Slot &) = delete;
  ~Slot() {
    if (packed != nullptr && hooks->release != nullptr) hooks->release(packed);
  }

  const std::shared_ptr<CallersHooks> hooks;
  std::mutex mutex;  // for what follows
  Saved kept;
  std::optional<Likeness> like;  // when it is packed
  void *packed = nullptr;
};

// Tensors that ops of this thread have saved and that are not yet packed.
std::vector<std::weak_ptr<Slot>> &to_pack() {
  static thread_local std::vector<std::weak_ptr<Slot>> of_thread;
  return of_thread;
}

class PackedHooks : public ag::SavedVariableHooks {
 public:
  explicit PackedHooks(std::shared_ptr<CallersHooks> hooks)
      : slot_(std::make_shared<Slot>(std::move(hooks))) {}

  void call_pack_hook(const at::Tensor &t) override {
    slot_->kept = Saved(t.detach());
    to_pack().push_back(slot_);
  }

  at::Tensor call_unpack_hook() override {
    {
      const std::lock_guard<std::mutex> lock(slot_->mutex);
      if (!slot_->like) return slot_->kept.unchanged();
    }
    const CallersHooks &hooks = *slot_->hooks;
    Tensor handle = nullptr;
    if (const char *err = hooks.unpack(hooks.data, slot_->packed, &handle))
      throw CallbackError(err);
    const at::Tensor value = take(handle);
    if (!value.defined()) throw Failure{"TypeError", "saved tensor hooks: unpack returned none"};
    if (const Likeness is(value); !(is == *slot_->like))
      throw Failure{"RuntimeError", "saved tensor hooks: unpack returned a tensor of " + is.text() +
                                        ", where one of " + slot_->like->text() + " was packed"};
    return value.detach();
  }

 private:
  const std::shared_ptr<Slot> slot_;
};

class FetchedHooks : public ag::SavedVariableHooks {
 public:
  explicit FetchedHooks(std::unique_ptr<ag::SavedVariableHooks> others)
      : others_(std::move(others)) {}

  void call_pack_hook(const at::Tensor &t) override {
    source_ = source_of(t);
    if (source_ == nullptr) {
      if (others_ != nullptr) return others_->call_pack_hook(t);
      kept_ = Saved(t.detach());
      return;
    }
    sizes_ = t.sizes().vec();
    strides_ = t.strides().vec();
    offset_ = t.storage_offset();
  }

  at::Tensor call_unpack_hook() override {
    if (source_ == nullptr)
      return others_ != nullptr ? others_->call_unpack_hook() : kept_.unchanged();
    Tensor handle = nullptr;
    if (const char *err = source_->fetch(source_->data, &handle)) throw CallbackError(err);
    const at::Tensor whole = take(handle);
    if (!whole.defined() || whole.scalar_type() != source_->dtype)
      throw Failure{"RuntimeError", "a tensor of another dtype was fetched"};
    const at::NoGradGuard no_grad;
    return whole.detach().as_strided(sizes_, strides_, offset_);
  }

 private:
  // Where what is in t can be had again; null where it must be kept.
  static std::shared_ptr<Source> source_of(const at::Tensor &t) {
    if (t.layout() != at::kStrided || !t.has_storage() || t.is_conj() || t.is_neg() ||
        ag::impl::version_counter(t).current_version() != 0)
      return nullptr;
    for (const Open &o : open_on_thread())
      if (o.source != nullptr && o.source->dtype == t.scalar_type() &&
          o.storage.unsafeGetStorageImpl() == t.storage().unsafeGetStorageImpl())
        return o.source;
    return nullptr;
  }

  const std::unique_ptr<ag::SavedVariableHooks> others_;  // for what is not fetched; may be null
  std::shared_ptr<Source> source_;
  std::vector<int64_t> sizes_, strides_;
  int64_t offset_ = 0;
  Saved kept_;
};

}  // namespace

bool saves_elsewhere() { return !open_on_thread().empty(); }

std::unique_ptr<ag::SavedVariableHooks> saving_hooks() {
  if (!saves_elsewhere()) return nullptr;
  const auto &open = open_on_thread();
  // The innermost checkpoint or hooks; what is fetched is so wherever that is open.
  const auto last =
      std::find_if(open.rbegin(), open.rend(), [](const Open &o) { return o.frame || o.hooks; });
  if (last != open.rend() && last->frame) return std::make_unique<Hooks>();
  std::unique_ptr<ag::SavedVariableHooks> packed;
  if (last != open.rend()) packed = std::make_unique<PackedHooks>(last->hooks);
  if (std::none_of(open.begin(), open.end(), [](const Open &o) { return o.source != nullptr; }))
    return packed;
  return std::make_unique<FetchedHooks>(std::move(packed));
}

}  // namespace cgotorch

using namespace cgotorch;

namespace {

Frame *frame_of(Checkpoint c) { return reinterpret_cast<Frame *>(c); }

// Throws where the engine would not ask the hooks of this file.
void check_hooks(const char *what) {
  if (cgotorch_in_python())
    throw Failure{"NotImplementedError",
                  std::string(what) +
                      " in a program that lives in Python, where Python's hooks for saved tensors "
                      "are in their place"};
  if (TransformDepth() > 0)
    throw Failure{"RuntimeError",
                  "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks: " +
                      std::string(what) + " cannot be transformed"};
}

}  // namespace

extern "C" {

const char *EnterCheckpoint(const Tensor *inputs, int64_t n, RecomputeFunction recompute,
                            void *data, void (*release)(void *data)) {
  return guard([&] {
    check_hooks("checkpoints");
    auto frame = std::make_shared<Frame>(recompute, data);
    for (const at::Tensor &t : in_list(inputs, n, "inputs"))
      frame->inputs.emplace_back(t, /*is_output=*/false);
    open_on_thread().push_back(Open{.frame = frame});
    frame->release = release;
  });
}

void LeaveCheckpoint(void) {
  open_on_thread().back().frame->complete = true;
  open_on_thread().pop_back();
}

const char *CheckpointInputs(Checkpoint frame, Tensor *results) {
  return guard([&] {
    std::vector<at::Tensor> unpacked;
    for (const ag::SavedVariable &input : frame_of(frame)->inputs)
      unpacked.push_back(input.unpack());
    for (size_t i = 0; i < unpacked.size(); i++) results[i] = release(std::move(unpacked[i]));
  });
}

void EnterRecompute(Checkpoint frame) {
  open_on_thread().push_back(Open{.frame = frame_of(frame)->shared_from_this(), .again = true});
}

const char *LeaveRecompute(bool check) {
  Open last = std::move(open_on_thread().back());
  open_on_thread().pop_back();
  return guard([&] {
    Frame &frame = *last.frame;
    const int pass = pass_of_thread();
    bool first = false;
    {
      const std::lock_guard<std::mutex> lock(frame.mutex);
      if (check && frame.complete && last.values.size() != frame.places.size())
        changed("the function saved " + std::to_string(frame.places.size()) +
                " tensors for the backward pass, and " + std::to_string(last.values.size()) +
                " when it was computed again;");
      frame.check = check;
      first = frame.values.count(pass) == 0;
      frame.values[pass].swap(last.values);
    }
    // Not with the mutex, which the pass locks when it ends: here, if nothing can be queued.
    if (first && pass >= 0) {
      auto ends = std::make_shared<Pass>(last.frame, pass);
      ag::Engine::get_default_engine().queue_callback([ends = std::move(ends)] {});
    }
  });
}

const char *EnterFetched(Tensor whole, FetchFunction fetch, void *data,
                         void (*release)(void *data)) {
  return guard([&] {
    check_hooks("sharded modules");
    const at::Tensor &t = in(whole, "whole");
    auto source = std::make_shared<Source>(t, fetch, data);
    open_on_thread().push_back(Open{.frame = nullptr, .source = source, .storage = t.storage()});
    source->release = release;
  });
}

void LeaveFetched(void) { open_on_thread().pop_back(); }

const char *EnterSavedHooks(UnpackFunction unpack, void *data, void (*release)(void *data)) {
  return guard([&] {
    check_hooks("saved tensor hooks");
    auto hooks = std::make_shared<CallersHooks>(unpack, data);
    open_on_thread().push_back(Open{.frame = nullptr, .hooks = hooks});
    hooks->release = release;
  });
}

void LeaveSavedHooks(void) { open_on_thread().pop_back(); }

SavedTensor NextSaved(Tensor *result, void **data) {
  auto &pending = to_pack();
  while (!pending.empty()) {
    auto slot = pending.front().lock();
    pending.erase(pending.begin());
    if (slot == nullptr) continue;
    *result = release(at::Tensor(slot->kept.value));
    *data = slot->hooks->data;
    return reinterpret_cast<SavedTensor>(new std::shared_ptr<Slot>(std::move(slot)));
  }
  return nullptr;
}

void SetSaved(SavedTensor saved, void *packed) {
  const std::unique_ptr<std::shared_ptr<Slot>> slot(
      reinterpret_cast<std::shared_ptr<Slot> *>(saved));
  if (packed == nullptr) return;
  const std::lock_guard<std::mutex> lock((*slot)->mutex);
  (*slot)->like.emplace((*slot)->kept.value);
  (*slot)->packed = packed;
  (*slot)->kept = {};
}

}  // extern "C"
