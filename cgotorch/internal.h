// How C arguments become ATen's and back. Every generated function is written with these.
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/Scalar.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "cgotorch.h"

namespace cgotorch {

// A handle is the bits of an at::Tensor, so a borrowed argument costs nothing to pass on. The
// library is compiled with -fno-strict-aliasing because of this.
static_assert(sizeof(at::Tensor) == sizeof(Tensor), "at::Tensor is one intrusive pointer");

// What this library itself throws: cheaper than c10::Error, which collects a backtrace.
struct Failure {
  const char *kind;  // "TypeError"
  std::string message;
};

// What the library keeps per OS thread. Plain data in initial-exec TLS: reading it costs one
// instruction, and there is no constructor to guard.
struct ThreadState {
  int64_t scope;  // the caller's current scope, an opaque word
  int64_t word;   // the caller's, see cgotorch_swap_word
  int64_t made;   // handles given out and freed by this thread: others read them
  int64_t freed;
  int64_t settings;  // the generation of process-wide settings that this thread has applied
  // The words that calls use, see words.h: up to uses, in memory from uses_first to uses_end.
  const Tensor **uses, **uses_end, **uses_first;
  struct ClosedByThread *closed;
  int64_t own;         // threads per op of this thread alone; 0: as many as for the others
  int64_t before;      // while own is applied: what was so before
  uint64_t *sequence;  // see Sequenced; set before anything else is applied
};
extern __thread ThreadState tls __attribute__((tls_model("initial-exec"), visibility("hidden")));

// Counts in one of this thread's numbers that others read.
inline void count_up(int64_t &number, int64_t n = 1) {
  __atomic_store_n(&number, number + n, __ATOMIC_RELAXED);
}

// Bumped when a process-wide setting changes that each thread must apply itself. A new thread is at
// 0, the process at 1 or more, so that the same comparison also notices new threads. One at -1 has
// applied them all and is late with its own alone.
extern int64_t settings_generation __attribute__((visibility("hidden")));
void apply_settings(ThreadState &s) noexcept;

inline bool thread_is_late() {
  return tls.settings != __atomic_load_n(&settings_generation, __ATOMIC_RELAXED);
}
inline void enter_thread() {
  if (__builtin_expect(thread_is_late(), 0)) apply_settings(tls);
}
// The same where a result is given out: apply_settings, and if the call has warned and its caller
// gathers warnings, the result is noted, because the caller may refuse it then.
void entered_with(Tensor result) noexcept;
void entered_with_array(void *array) noexcept;
// Whether the calling thread gathers warnings and there have been some. It stays late then, also
// after calls that give out no result.
bool gathered_some() noexcept;
// Has the calling thread's warnings go to the handler, if one was set.
void forward_warnings() noexcept;

// The order of autograd's nodes. A backward pass takes nodes by their sequence numbers, the latest
// first, and sums up gradients in that order. libtorch counts on each OS thread for itself, and Go
// moves goroutines between threads: the nodes of one forward pass would have numbers of several
// counts, and the sums other bits in each run. So whoever enters raises its thread's number to the
// highest that any thread has had, and publishes its own when it leaves. In a program where only
// one goroutine at a time records, each node has the number that it has in Python. The threads that
// libtorch's engine starts for devices keep counts of their own there, and here.
extern uint64_t sequence_reached __attribute__((visibility("hidden")));
// The calling thread's number.
uint64_t *sequence_of_thread() noexcept;
// Whether libtorch's variable was found; without it raising takes as long as counting.
bool sequence_found() noexcept;
void raise_sequence(uint64_t reached) noexcept;
void publish_sequence(uint64_t number, uint64_t reached) noexcept;

class Sequenced {
 public:
  Sequenced() {
    const uint64_t reached = __atomic_load_n(&sequence_reached, __ATOMIC_RELAXED);
    if (__builtin_expect(*tls.sequence != reached, 0)) raise_sequence(reached);
  }
  ~Sequenced() {
    const uint64_t reached = __atomic_load_n(&sequence_reached, __ATOMIC_RELAXED);
    const uint64_t number = *tls.sequence;
    if (number > reached) publish_sequence(number, reached);
  }
  Sequenced(const Sequenced &) = delete;
  Sequenced &operator=(const Sequenced &) = delete;
};

// Turns the exception in flight into the malloc'ed message of the C ABI. Call in a catch block.
const char *current_error() noexcept;

template <class F>
inline const char *guard(F &&f) noexcept {
  try {
    enter_thread();
    const Sequenced sequenced;
    f();
    return nullptr;
  } catch (...) {
    return current_error();
  }
}

// A malloc'ed "kind: first line of message", for FreeString.
const char *make_error(const char *kind, std::string_view message) noexcept;

// A message of libtorch's as Python words it: with torch.FloatTensor where ATen says CPUFloatType.
std::string python_message(std::string_view message);

// TypeError: a required argument is none. ValueError with what as its text.
[[noreturn]] void throw_null(const char *name);
[[noreturn]] void throw_value(const char *what);
// `NotImplementedError: op needs torch >= version` of functions that the installed torch lacks.
const char *needs_torch(const char *op, const char *version) noexcept;
const char *argument_needs_torch(const char *op, const char *argument,
                                 const char *version) noexcept;

// Tensors that function transforms have wrapped: what is within may have a part in a graph.
constexpr c10::DispatchKeySet kWrapped({c10::DispatchKey::FuncTorchBatched,
                                        c10::DispatchKey::BatchedNestedTensor,
                                        c10::DispatchKey::FuncTorchGradWrapper});

// What is within the wrappers of gradients that are being taken of t: its elements are there.
at::Tensor without_grad_wrappers(at::Tensor t);

// Whether autograd has nothing to do with a tensor: it requires no gradient, is no view that could
// come to require one, and has no tangent.
inline bool unrecorded(Tensor t) {
  if (t == nullptr) return true;
  const auto *impl = reinterpret_cast<c10::TensorImpl *>(t);
  return impl->autograd_meta() == nullptr && !impl->key_set().has_any(kWrapped);
}
inline bool unrecorded(const Tensor *t, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (!unrecorded(t[i])) return false;
  return true;
}

// Whether autograd has nothing to do with what linear returns: as unrecorded(), and besides while
// it records nothing and no tensor is a view or has a tangent. linear has no kernel of autograd,
// but what it is made of has, a view of the weight among that. With two dimensions its result is a
// new tensor, so that nothing has to be tracked either. For a batch of one it takes a twentieth
// less then.
bool unrecorded_linear(Tensor input, Tensor weight, Tensor bias) noexcept;

// Calls in its lifetime go past autograd's kernels, if `unrecorded`: those would only find out that
// there is nothing to record, and go past what is excluded here themselves; it takes 30 ns, a
// twentieth of a small op. Functions that make views or change their arguments exclude autograd
// only, and not the layer beneath, which tracks both.
class BelowAutograd {
 public:
  explicit BelowAutograd(bool unrecorded, c10::DispatchKeySet keys =
                                              c10::autograd_dispatch_keyset_with_ADInplaceOrView) {
    if (!unrecorded) return;
    // What ExcludeDispatchKeyGuard does, without its calls.
    keys_ = &c10::impl::raw_local_dispatch_key_set;
    excluded_ = keys_->excluded();
    keys_->set_excluded(excluded_ | keys);
  }
  ~BelowAutograd() {
    if (keys_ != nullptr) keys_->set_excluded(excluded_);
  }
  BelowAutograd(const BelowAutograd &) = delete;
  BelowAutograd &operator=(const BelowAutograd &) = delete;

 private:
  c10::impl::PODLocalDispatchKeySet *keys_ = nullptr;
  c10::DispatchKeySet excluded_;
};

// Inputs ---------------------------------------------------------------------------------------

inline const at::Tensor &in(const Tensor &t, const char *name) {
  if (__builtin_expect(t == nullptr, 0)) throw_null(name);
  return reinterpret_cast<const at::Tensor &>(t);
}

inline at::Tensor &in_mut(Tensor &t, const char *name) {
  if (__builtin_expect(t == nullptr, 0)) throw_null(name);
  return reinterpret_cast<at::Tensor &>(t);
}

inline std::optional<at::Tensor> in_opt(const Tensor &t) {
  if (t == nullptr) return std::nullopt;
  return reinterpret_cast<const at::Tensor &>(t);
}

inline at::TensorList in_list(const Tensor *t, int64_t n, const char *name) {
  for (int64_t i = 0; i < n; i++)
    if (t[i] == nullptr) throw_null(name);
  return at::TensorList(reinterpret_cast<const at::Tensor *>(t), static_cast<size_t>(n));
}

inline at::IntArrayRef ints(const int64_t *p, int64_t n) {
  return at::IntArrayRef(p, static_cast<size_t>(n));
}
// In place, because the constructor from a value is declared to refer to that value: it is meant
// for vectors, and an ArrayRef refers to what it was made of.
inline at::OptionalIntArrayRef ints_opt(const int64_t *p, int64_t n) {
  if (p == nullptr) return std::nullopt;
  return at::OptionalIntArrayRef(std::in_place, ints(p, n));
}
// Checked: the bits of a negative SymInt may stand for a symbolic node.
c10::SymIntArrayRef symints(const int64_t *p, int64_t n);
inline at::OptionalSymIntArrayRef symints_opt(const int64_t *p, int64_t n) {
  if (p == nullptr) return std::nullopt;
  return at::OptionalSymIntArrayRef(std::in_place, symints(p, n));
}
inline std::optional<c10::ArrayRef<double>> floats_opt(const double *p, int64_t n) {
  if (p == nullptr) return std::nullopt;
  return c10::ArrayRef<double>(p, static_cast<size_t>(n));
}

template <class T>
inline std::optional<T> opt(const T *p) {
  if (p == nullptr) return std::nullopt;
  return *p;
}
inline std::optional<c10::SymInt> symint_opt(const int64_t *p) {
  if (p == nullptr) return std::nullopt;
  return c10::SymInt(*p);
}

at::Scalar scalar(const Scalar &s);
inline std::optional<at::Scalar> scalar_opt(const Scalar *s) {
  if (s == nullptr || s->kind == ScalarNone) return std::nullopt;
  return scalar(*s);
}
std::vector<at::Scalar> scalars(const Scalar *p, int64_t n);
Scalar from_scalar(const at::Scalar &s);

// These check their range: a number from outside must not become an enum that ATen has no case for.
at::ScalarType dtype(ScalarType t);
at::Layout layout(Layout l);
at::MemoryFormat memory_format(MemoryFormat f);
at::Device device(Device d);
inline std::optional<at::ScalarType> dtype_opt(const ScalarType *t) {
  if (t == nullptr) return std::nullopt;
  return dtype(*t);
}
inline std::optional<at::Layout> layout_opt(const Layout *l) {
  if (l == nullptr) return std::nullopt;
  return layout(*l);
}
inline std::optional<at::MemoryFormat> memory_format_opt(const MemoryFormat *f) {
  if (f == nullptr) return std::nullopt;
  return memory_format(*f);
}
inline std::optional<at::Device> device_opt(const Device *d) {
  if (d == nullptr) return std::nullopt;
  return device(*d);
}
at::Stream stream(const Stream &s);

inline std::string_view str(const char *s, const char *name) {
  if (s == nullptr) throw_null(name);
  return s;
}
inline std::optional<std::string_view> str_opt(const char *s) {
  if (s == nullptr) return std::nullopt;
  return std::string_view(s);
}

template <size_t N>
inline std::array<bool, N> bools(const bool *p, const char *name) {
  if (p == nullptr) throw_null(name);
  std::array<bool, N> out;
  for (size_t i = 0; i < N; i++) out[i] = p[i];
  return out;
}

// A Generator handle is the bits of an at::Generator, like a Tensor's.
static_assert(sizeof(at::Generator) == sizeof(Generator), "at::Generator is one pointer");
inline std::optional<at::Generator> generator_opt(const Generator &g) {
  if (g == nullptr) return std::nullopt;
  return reinterpret_cast<const at::Generator &>(g);
}
static_assert(sizeof(at::Storage) == sizeof(Storage), "c10::Storage is one pointer");
inline const at::Storage &storage(const Storage &s, const char *name) {
  if (s == nullptr) throw_null(name);
  return reinterpret_cast<const at::Storage &>(s);
}

// A device index; its range is checked as the device it belongs to is used.
c10::DeviceIndex device_index(int64_t i);

// Outputs --------------------------------------------------------------------------------------

inline Tensor release(at::Tensor &&t) {
  if (!t.defined()) return nullptr;
  const auto handle = reinterpret_cast<Tensor>(t.unsafeReleaseTensorImpl());
  if (__builtin_expect(thread_is_late(), 0)) entered_with(handle);
  count_up(tls.made);
  return handle;
}

inline void out(Tensor *result, at::Tensor &&t) { *result = release(std::move(t)); }

// The tensor of a handle that a callback gives away.
inline at::Tensor take(Tensor t) {
  if (t == nullptr) return {};
  count_up(tls.freed);
  return at::Tensor(c10::intrusive_ptr<at::TensorImpl, at::UndefinedTensorImpl>::reclaim(
      reinterpret_cast<at::TensorImpl *>(t)));
}

// A result that is one of the arguments: a further handle to it, if wanted.
inline void out_same(Tensor *result, const at::Tensor &t) {
  if (result != nullptr) *result = release(at::Tensor(t));
}

void out_list(Tensor **result, int64_t *result_len, std::vector<at::Tensor> &&t);

// Loads libtorch_cuda.so once; throws a RuntimeError that says what is missing.
void need_cuda();

}  // namespace cgotorch
