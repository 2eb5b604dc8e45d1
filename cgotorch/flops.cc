// flops.cc: counts floating point operations, by observing calls of ATen's functions.
#include <ATen/SequenceNumber.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "fork.h"
#include "internal.h"

namespace cgotorch {
namespace {

using Sizes = std::vector<int64_t>;
using Inputs = c10::ArrayRef<const c10::IValue>;

// Formulas ---------------------------------------------------------------------------------------

// Where a formula does not fit its arguments, Python fails; here the call counts for nothing, and
// fails by itself or not.
struct Unknown {};

void require(bool holds) {
  if (!holds) throw Unknown{};
}

int64_t product(c10::IntArrayRef sizes) {
  int64_t p = 1;
  for (const int64_t n : sizes) p *= n;
  return p;
}

Sizes sizes_of(const c10::IValue &v) {
  require(v.isTensor() && v.toTensor().defined());
  return v.toTensor().sizes().vec();
}

Sizes sizes_at(Inputs in, size_t i) {
  require(i < in.size());
  return sizes_of(in[i]);
}

int64_t mm(const Sizes &a, const Sizes &b) {
  require(a.size() == 2 && b.size() == 2 && a[1] == b[0]);
  return a[0] * b[1] * 2 * a[1];
}

int64_t bmm(const Sizes &a, const Sizes &b) {
  require(a.size() == 3 && b.size() == 3 && a[0] == b[0] && a[2] == b[1]);
  return a[0] * a[1] * b[2] * 2 * a[2];
}

int64_t convolution(const Sizes &x, const Sizes &w, const Sizes &out, bool transposed) {
  require(x.size() > 1 && w.size() > 1 && out.size() > 1);
  const c10::IntArrayRef places(transposed ? x : out);
  return product(places.slice(2)) * product(w) * x[0] * 2;
}

// With the first two dimensions exchanged.
Sizes exchanged(Sizes s) {
  require(s.size() > 1);
  std::swap(s[0], s[1]);
  return s;
}

int64_t attention(const Sizes &q, const Sizes &k, const Sizes &v) {
  require(q.size() == 4 && k.size() == 4 && v.size() == 4);
  require(q[0] == k[0] && k[0] == v[0] && k[1] == v[1] && q[3] == k[3] && k[2] == v[2]);
  require(k[1] > 0 && q[1] >= k[1] && q[1] % k[1] == 0);
  return q[0] * q[1] * q[2] * k[2] * 2 * (q[3] + v[3]);
}

int64_t attention_backward(const Sizes &grad, const Sizes &q, const Sizes &k, const Sizes &v) {
  require(q.size() == 4 && k.size() == 4 && v.size() == 4 && grad.size() == 4);
  require(q[0] == k[0] && k[0] == v[0] && v[0] == grad[0] && k[1] == v[1] && q[1] == grad[1]);
  require(k[1] > 0 && q[1] >= k[1] && q[1] % k[1] == 0);
  require(q[3] == k[3] && v[3] == grad[3] && k[2] == v[2] && q[2] == grad[2]);
  // The scores again, and the gradients of queries and keys; those of scores and values.
  return q[0] * q[1] * q[2] * k[2] * 2 * (3 * q[3] + 2 * v[3]);
}

// The lengths of sequences that lie behind each other, by their offsets.
Sizes lengths(const at::Tensor &offsets, int64_t longest) {
  const int64_t n = offsets.numel() - 1;
  require(n >= 0);
  if (offsets.is_meta()) return Sizes(static_cast<size_t>(n), longest);
  const at::Tensor on_cpu = offsets.to(at::kCPU, at::kLong).contiguous();
  const int64_t *at = on_cpu.const_data_ptr<int64_t>();
  Sizes result;
  for (int64_t i = 0; i < n; i++) result.push_back(at[i + 1] - at[i]);
  return result;
}

// Attention over sequences of different lengths behind each other, in tensors of `dims` dimensions
// whose last two are heads and features; grad is empty in the forward pass.
int64_t packed_attention(Sizes grad, Sizes q, Sizes k, Sizes v, size_t dims,
                         const at::Tensor &q_offsets, const at::Tensor &k_offsets, int64_t max_q,
                         int64_t max_k) {
  require(q.size() == dims && k.size() == dims && v.size() == dims);
  const Sizes nq = lengths(q_offsets, max_q), nk = lengths(k_offsets, max_k);
  require(nq.size() == nk.size());
  const size_t h = dims - 2, d = dims - 1;
  int64_t flops = 0;
  for (size_t i = 0; i < nq.size(); i++) {
    const Sizes q1{1, q[h], nq[i], q[d]}, k1{1, k[h], nk[i], k[d]}, v1{1, v[h], nk[i], v[d]};
    flops += grad.empty() ? attention(q1, k1, v1)
                          : attention_backward({1, q[h], nq[i], v[d]}, q1, k1, v1);
  }
  return flops;
}

const at::Tensor *optional_tensor(Inputs in, size_t i) {
  require(i < in.size());
  if (!in[i].isTensor() || !in[i].toTensor().defined()) return nullptr;
  return &in[i].toTensor();
}

int64_t int_at(Inputs in, size_t i) {
  require(i < in.size() && in[i].isInt());
  return in[i].toInt();
}

// The functions with offsets have them behind `offsets` arguments, with the longest lengths.
int64_t sequences(Inputs in, bool backward, size_t dims, size_t offsets, bool heads_last) {
  const size_t first = backward ? 1 : 0;
  Sizes grad = backward ? sizes_at(in, 0) : Sizes{};
  Sizes q = sizes_at(in, first), k = sizes_at(in, first + 1), v = sizes_at(in, first + 2);
  const at::Tensor *q_offsets = optional_tensor(in, offsets);
  const at::Tensor *k_offsets = optional_tensor(in, offsets + 1);
  if (q_offsets != nullptr) {
    require(k_offsets != nullptr);
    return packed_attention(std::move(grad), std::move(q), std::move(k), std::move(v), dims,
                            *q_offsets, *k_offsets, int_at(in, offsets + 2),
                            int_at(in, offsets + 3));
  }
  if (heads_last && q.size() == 4) {
    for (Sizes *s : {&grad, &q, &k, &v})
      if (s->size() == 4) std::swap((*s)[1], (*s)[2]);
  }
  return backward ? attention_backward(grad, q, k, v) : attention(q, k, v);
}

// What is needed of a call before it, and the rest when its results are there.
struct Call {
  Sizes a, b, c;
  bool transposed = false;
  std::array<bool, 3> mask{};
  int64_t flops = 0;
};
struct Formula {
  const char *op;
  void (*before)(Inputs, Call &);
  void (*after)(const Call &, const std::vector<c10::IValue> &outputs, int64_t *flops);
};

void before_convolution(Inputs in, Call &c) {
  c.a = sizes_at(in, 0);
  c.b = sizes_at(in, 1);
  c.transposed = in.size() > 6 && in[6].isBool() && in[6].toBool();
}
void after_convolution(const Call &c, const std::vector<c10::IValue> &outputs, int64_t *flops) {
  require(!outputs.empty());
  *flops = convolution(c.a, c.b, sizes_of(outputs[0]), c.transposed);
}

void before_convolution_backward(Inputs in, Call &c) {
  c.a = sizes_at(in, 0);
  c.b = sizes_at(in, 1);
  c.c = sizes_at(in, 2);
  require(in.size() > 10 && in[7].isBool() && in[10].isBoolList());
  c.transposed = in[7].toBool();
  const auto mask = in[10].toBoolList();
  require(mask.size() == 3);
  for (size_t i = 0; i < 3; i++) c.mask[i] = mask.get(i);
}
void after_convolution_backward(const Call &c, const std::vector<c10::IValue> &outputs,
                                int64_t *flops) {
  require(outputs.size() > 1);
  int64_t sum = 0;
  if (c.mask[0]) sum += convolution(c.a, c.c, sizes_of(outputs[0]), !c.transposed);
  if (c.mask[1]) {
    const Sizes weight = exchanged(sizes_of(outputs[1]));
    sum += c.transposed ? convolution(exchanged(c.a), exchanged(c.b), weight, false)
                        : convolution(exchanged(c.b), exchanged(c.a), weight, false);
  }
  *flops = sum;
}

void product_of_01(Inputs in, Call &c) { c.flops = mm(sizes_at(in, 0), sizes_at(in, 1)); }
void product_of_12(Inputs in, Call &c) { c.flops = mm(sizes_at(in, 1), sizes_at(in, 2)); }
void products_of_01(Inputs in, Call &c) { c.flops = bmm(sizes_at(in, 0), sizes_at(in, 1)); }
void products_of_12(Inputs in, Call &c) { c.flops = bmm(sizes_at(in, 1), sizes_at(in, 2)); }
void sdpa(Inputs in, Call &c) {
  c.flops = attention(sizes_at(in, 0), sizes_at(in, 1), sizes_at(in, 2));
}
void sdpa_backward(Inputs in, Call &c) {
  c.flops = attention_backward(sizes_at(in, 0), sizes_at(in, 1), sizes_at(in, 2), sizes_at(in, 3));
}

// A function with a formula is a line here; tests/test_flops.py holds the list to
// torch.utils.flop_counter.flop_registry.
const Formula kFormulas[] = {
    {"aten::mm", product_of_01, nullptr},
    {"aten::addmm", product_of_12, nullptr},
    {"aten::bmm", products_of_01, nullptr},
    {"aten::baddbmm", products_of_12, nullptr},
    {"aten::_scaled_mm", product_of_01, nullptr},
    {"aten::convolution", before_convolution, after_convolution},
    {"aten::_convolution", before_convolution, after_convolution},
    {"aten::cudnn_convolution", before_convolution, after_convolution},
    {"aten::convolution_overrideable", before_convolution, after_convolution},
    {"aten::_slow_conv2d_forward", before_convolution, after_convolution},
    {"aten::convolution_backward", before_convolution_backward, after_convolution_backward},
    {"aten::_scaled_dot_product_efficient_attention", sdpa, nullptr},
    {"aten::_scaled_dot_product_flash_attention", sdpa, nullptr},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", sdpa, nullptr},
    {"aten::_scaled_dot_product_cudnn_attention", sdpa, nullptr},
    {"aten::_scaled_dot_product_efficient_attention_backward", sdpa_backward, nullptr},
    {"aten::_scaled_dot_product_flash_attention_backward", sdpa_backward, nullptr},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", sdpa_backward, nullptr},
    {"aten::_scaled_dot_product_cudnn_attention_backward", sdpa_backward, nullptr},
    {"aten::_flash_attention_forward",
     [](Inputs in, Call &c) { c.flops = sequences(in, false, 3, 3, true); }, nullptr},
    {"aten::_efficient_attention_forward",
     [](Inputs in, Call &c) { c.flops = sequences(in, false, 4, 4, false); }, nullptr},
    {"aten::_flash_attention_backward",
     [](Inputs in, Call &c) { c.flops = sequences(in, true, 3, 6, true); }, nullptr},
    {"aten::_efficient_attention_backward",
     [](Inputs in, Call &c) { c.flops = sequences(in, true, 4, 6, false); }, nullptr},
};

// What is to be known of a function: whether it is made of others, and its formula if it has one.
struct Known {
  bool composite = false;
  const Formula *formula = nullptr;
};

Known look_up(const c10::OperatorName &name) {
  Known k;
  const auto handle = c10::Dispatcher::singleton().findOp(name);
  k.composite =
      handle && handle->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  for (const Formula &f : kFormulas)
    if (name.name == f.op) k.formula = &f;
  return k;
}

const Known &known(const c10::OperatorName &name) {
  static auto *const all = new std::map<std::pair<std::string, std::string>, Known>;
  const std::lock_guard<std::mutex> lock(fork_mutexes.formulas);
  auto at = all->find({name.name, name.overload_name});
  if (at == all->end())
    at = all->emplace(std::make_pair(name.name, name.overload_name), look_up(name)).first;
  return at->second;
}

// Observing --------------------------------------------------------------------------------------

// What a thread counts, and the threads of libtorch that compute for it.
struct Counter {
  std::mutex mutex;
  std::vector<FlopEvent> events;
  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  size_t slot = 0;
  int64_t depth = 0;  // how many counters are entered
};

// Callbacks are functions without data, and libtorch hands them on to other threads by themselves.
// So there is one for each thread that counts.
constexpr size_t kSlots = 64;
std::atomic<Counter *> slots[kSlots];

__thread Counter *counting __attribute__((tls_model("initial-exec"))) = nullptr;
__thread int64_t inside __attribute__((tls_model("initial-exec"))) = 0;  // of a counted function
__thread bool backward __attribute__((tls_model("initial-exec"))) = false;
__thread int64_t sequence __attribute__((tls_model("initial-exec"))) = -1;

struct Context final : at::ObserverContext {
  bool entered = false;  // inside was increased
  bool node = false;     // backward and sequence were set
  bool backward_before = false;
  int64_t sequence_before = -1;
  const Formula *formula = nullptr;
  Call call;
};

// Whether a transform of functorch is still to see the call. What it makes of the call is seen
// again.
bool within_transform() {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet transforms{c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                       c10::DispatchKey::FuncTorchDynamicLayerBackMode};
  return (local.included_ - local.excluded_).has_any(transforms);
}

std::unique_ptr<at::ObserverContext> begin_call(const at::RecordFunction &fn) {
  if (fn.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    auto c = std::make_unique<Context>();
    c->node = true;
    c->backward_before = std::exchange(backward, true);
    c->sequence_before = std::exchange(sequence, fn.seqNr());
    return c;
  }
  if (inside > 0 || within_transform()) return nullptr;
  const auto name = fn.operator_name();
  if (!name) return nullptr;
  const Known &k = known(*name);
  if (k.composite && k.formula == nullptr) return nullptr;
  auto c = std::make_unique<Context>();
  c->entered = true;
  inside++;
  if (k.formula == nullptr) return c;
  try {
    k.formula->before(fn.inputs(), c->call);
    c->formula = k.formula;
  } catch (...) {
  }
  return c;
}

void end_call(Counter *counter, const at::RecordFunction &fn, at::ObserverContext *context) {
  auto *c = static_cast<Context *>(context);
  if (c == nullptr) return;
  if (c->node) {
    backward = c->backward_before;
    sequence = c->sequence_before;
  }
  if (!c->entered) return;
  inside--;
  // A call that failed has no results.
  if (c->formula == nullptr || counter == nullptr || fn.outputs().empty()) return;
  try {
    int64_t flops = c->call.flops;
    if (c->formula->after != nullptr) c->formula->after(c->call, fn.outputs(), &flops);
    const std::lock_guard<std::mutex> lock(counter->mutex);
    counter->events.push_back({c->formula->op, flops, backward, backward ? sequence : -1});
  } catch (...) {
  }
}

template <size_t N>
void end_of(const at::RecordFunction &fn, at::ObserverContext *c) {
  end_call(slots[N].load(), fn, c);
}

template <size_t... N>
constexpr std::array<at::RecordFunctionCallback::EndCallback, sizeof...(N)> ends(
    std::index_sequence<N...>) {
  return {end_of<N>...};
}
constexpr auto kEnds = ends(std::make_index_sequence<kSlots>());

Counter *new_counter() {
  auto counter = std::make_unique<Counter>();
  for (size_t i = 0; i < kSlots; i++) {
    Counter *none = nullptr;
    if (!slots[i].compare_exchange_strong(none, counter.get())) continue;
    counter->slot = i;
    try {
      counter->handle = at::addThreadLocalCallback(
          at::RecordFunctionCallback(begin_call, kEnds[i])
              .needsInputs(true)
              .needsOutputs(true)
              .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    } catch (...) {
      slots[i].store(nullptr);
      throw;
    }
    return counter.release();
  }
  throw Failure{"RuntimeError", std::to_string(kSlots) + " threads count FLOPs at a time at most"};
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *EnterFlopCounter(int64_t *place) {
  return guard([&] {
    if (counting == nullptr) counting = new_counter();
    counting->depth++;
    const std::lock_guard<std::mutex> lock(counting->mutex);
    *place = static_cast<int64_t>(counting->events.size());
  });
}

void FlopCounterPlace(int64_t *events, int64_t *next) {
  *next = static_cast<int64_t>(at::sequence_number::peek());
  *events = 0;
  if (counting == nullptr) return;
  const std::lock_guard<std::mutex> lock(counting->mutex);
  *events = static_cast<int64_t>(counting->events.size());
}

const char *LeaveFlopCounter(int64_t place, FlopEvent **events, int64_t *n) {
  return guard([&] {
    Counter *counter = counting;
    if (counter == nullptr) throw_value("this thread counts no FLOPs");
    std::unique_ptr<Counter> last;
    if (--counter->depth == 0) {
      counting = nullptr;
      at::removeCallback(counter->handle);
      slots[counter->slot].store(nullptr);
      last.reset(counter);
    }
    std::vector<FlopEvent> since;
    {
      const std::lock_guard<std::mutex> lock(counter->mutex);
      if (place < 0 || place > static_cast<int64_t>(counter->events.size()))
        throw_value("the place is none of this counter's");
      since.assign(counter->events.begin() + place, counter->events.end());
    }
    auto *array = static_cast<FlopEvent *>(std::malloc((since.size() + 1) * sizeof(FlopEvent)));
    if (array == nullptr) throw std::bad_alloc();
    if (!since.empty()) std::memcpy(array, since.data(), since.size() * sizeof(FlopEvent));
    *events = array;
    *n = static_cast<int64_t>(since.size());
  });
}

}  // extern "C"
