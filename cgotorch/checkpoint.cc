// checkpoint.cc: saved tensors that are computed anew.
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

#include <map>
#include <memory>
#include <mutex>
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
                  "checkpoint: one of the variables needed for gradient computation has been "
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

// A checkpoint that is open on a thread.
struct Open {
  FramePtr frame;
  bool again;                 // it is recomputed
  std::vector<Saved> values;  // of the places, when it is
};

std::vector<Open> &open_checkpoints() {
  static thread_local std::vector<Open> of_thread;
  return of_thread;
}

[[noreturn]] void changed(const std::string &how) {
  throw Failure{"RuntimeError", "checkpoint: " + how +
                                    " the function must compute the same, with tensors of the same "
                                    "shapes and dtypes, each time it is called"};
}

class Hooks : public ag::SavedVariableHooks {
 public:
  void call_pack_hook(const at::Tensor &t) override {
    auto &open = open_checkpoints();
    if (open.empty()) throw Failure{"RuntimeError", "checkpoint: it was left while an op saved"};
    Open &last = open.back();
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
    const int pass = ag::get_current_graph_task_id();
    for (bool again = false;; again = true) {
      at::Tensor value = take(pass);
      if (value.defined()) return value;
      if (again) changed("fewer tensors were saved when it was computed again;");
      if (const char *err =
              frame_->recompute(frame_->data, reinterpret_cast<Checkpoint>(frame_.get())))
        throw CallbackError(err);
    }
  }

 private:
  at::Tensor take(int pass) {
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

}  // namespace

bool checkpoint_is_open() { return !open_checkpoints().empty(); }

std::unique_ptr<ag::SavedVariableHooks> checkpoint_hooks() {
  if (!checkpoint_is_open()) return nullptr;
  return std::make_unique<Hooks>();
}

}  // namespace cgotorch

using namespace cgotorch;

namespace {

Frame *frame_of(Checkpoint c) { return reinterpret_cast<Frame *>(c); }

}  // namespace

extern "C" {

const char *EnterCheckpoint(const Tensor *inputs, int64_t n, RecomputeFunction recompute,
                            void *data, void (*release)(void *data)) {
  return guard([&] {
    if (cgotorch_in_python())
      throw Failure{"NotImplementedError",
                    "checkpoints in a program that lives in Python, where Python's hooks for saved "
                    "tensors are in their place: use torch.utils.checkpoint around the call"};
    if (TransformDepth() > 0)
      throw Failure{"RuntimeError",
                    "torch.func.{grad, vjp, jacrev, hessian} don't yet support saved tensor hooks: "
                    "a checkpoint cannot be transformed"};
    auto frame = std::make_shared<Frame>(recompute, data);
    for (const at::Tensor &t : in_list(inputs, n, "inputs"))
      frame->inputs.emplace_back(t, /*is_output=*/false);
    open_checkpoints().push_back(Open{frame, false, {}});
    frame->release = release;
  });
}

void LeaveCheckpoint(void) {
  open_checkpoints().back().frame->complete = true;
  open_checkpoints().pop_back();
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
  open_checkpoints().push_back(Open{frame_of(frame)->shared_from_this(), true, {}});
}

const char *LeaveRecompute(bool check) {
  Open last = std::move(open_checkpoints().back());
  open_checkpoints().pop_back();
  return guard([&] {
    Frame &frame = *last.frame;
    const int pass = ag::get_current_graph_task_id();
    const std::lock_guard<std::mutex> lock(frame.mutex);
    if (check && frame.complete && last.values.size() != frame.places.size())
      changed("the function saved " + std::to_string(frame.places.size()) +
              " tensors for the backward pass, and " + std::to_string(last.values.size()) +
              " when it was computed again;");
    frame.check = check;
    const bool first = frame.values.count(pass) == 0;
    frame.values[pass].swap(last.values);
    if (first) {
      auto ends = std::make_shared<Pass>(last.frame, pass);
      ag::Engine::get_default_engine().queue_callback([ends = std::move(ends)] {});
    }
  });
}

}  // extern "C"
