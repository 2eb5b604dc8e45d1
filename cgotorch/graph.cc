// graph.cc: see graph.h.
#include <ATen/ScalarOps.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstring>
#include <new>
#include <string>

#include "internal.h"

namespace cgotorch {
namespace {

std::string shape(const int64_t *sizes, int64_t ndim) {
  std::string text = "(";
  for (int64_t i = 0; i < ndim; i++) {
    if (i > 0) text += ", ";
    text += sizes[i] < 0 ? "?" : std::to_string(sizes[i]);
  }
  return text + (ndim == 1 ? ",)" : ")");
}

std::string device_name(int32_t type, int32_t index) {
  std::string name = c10::DeviceTypeName(static_cast<c10::DeviceType>(type), /*lower_case=*/true);
  return index < 0 ? name : name + ":" + std::to_string(index);
}

// As Python writes it: "float32", not "Float".
std::string dtype_name(at::ScalarType type) { return std::string(c10::getDtypeNames(type).first); }

[[noreturn]] void mismatch(const at::Tensor &t, const cgotorch_tensor_type &type) {
  std::string expected = "expected a tensor";
  const bool strided = !t.is_nested();
  if (type.dtype >= 0) expected += " of dtype " + dtype_name(dtype(type.dtype));
  if (type.ndim >= 0) expected += " of shape " + shape(type.sizes, type.ndim);
  if (type.device_type >= 0) expected += " on " + device_name(type.device_type, type.device_index);
  std::string which;
  if (strided && type.ndim == t.dim()) {
    for (int32_t i = 0; i < type.ndim && which.empty(); i++) {
      const int64_t wanted = type.sizes[i], size = t.size(i);
      if (wanted >= 0 && wanted != size)
        which = ": dimension " + std::to_string(i) + " must be " + std::to_string(wanted) +
                ", got " + std::to_string(size);
    }
  }
  throw Failure{
      "TypeError",
      expected + ", got one of dtype " + dtype_name(t.scalar_type()) +
          (strided ? " of shape " + shape(t.sizes().data(), t.dim()) : ", nested,") + " on " +
          device_name(static_cast<int32_t>(t.device().type()), t.device().index()) + which};
}

void force(c10::DispatchKeySet included, c10::DispatchKeySet excluded) {
  c10::impl::PODLocalDispatchKeySet keys;
  keys.set_included(included);
  keys.set_excluded(excluded);
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

bool fits(const at::Tensor &t, const cgotorch_tensor_type &type) {
  if (type.dtype >= 0 && static_cast<int32_t>(t.scalar_type()) != type.dtype) return false;
  if (type.device_type >= 0) {
    const c10::Device device = t.device();
    if (static_cast<int32_t>(device.type()) != type.device_type) return false;
    if (type.device_index >= 0 && device.index() != type.device_index) return false;
  }
  if (type.ndim < 0) return true;
  if (t.is_nested()) return false;
  const at::IntArrayRef sizes = t.sizes();
  if (static_cast<int64_t>(sizes.size()) != type.ndim) return false;
  for (int32_t i = 0; i < type.ndim; i++)
    if (type.sizes[i] >= 0 && type.sizes[i] != sizes[i]) return false;
  return true;
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

void cgotorch_graph_enter(cgotorch_graph_state *state) {
  const c10::impl::LocalDispatchKeySet now = c10::impl::tls_local_dispatch_key_set();
  state->included = now.included_.raw_repr();
  state->excluded = now.excluded_.raw_repr();
  state->grad_mode = c10::GradMode::is_enabled() ? 1 : 0;
  c10::GradMode::set_enabled(false);
  // ADInplaceOrView stays: it counts the versions that autograd outside of the graph relies on.
  force(now.included_,
        now.excluded_ | c10::autograd_dispatch_keyset | c10::autocast_dispatch_keyset);
}

void cgotorch_graph_leave(const cgotorch_graph_state *state) {
  using c10::DispatchKeySet;
  force(DispatchKeySet(DispatchKeySet::RAW, state->included),
        DispatchKeySet(DispatchKeySet::RAW, state->excluded));
  c10::GradMode::set_enabled(state->grad_mode != 0);
}

const char *cgotorch_make_error(const char *kind, const char *message) {
  return make_error(kind, message);
}

const char *cgotorch_error_at(const char *error, const char *place) {
  const char *text = error != nullptr ? error : "RuntimeError: C code failed without an error";
  const size_t n = std::strlen(text), m = std::strlen(place);
  char *both = static_cast<char *>(std::malloc(n + m + 4));
  if (both == nullptr) return error != nullptr ? error : make_error("MemoryError", "out of memory");
  std::memcpy(both, text, n);
  std::memcpy(both + n, " [", 2);
  std::memcpy(both + n + 2, place, m);
  std::memcpy(both + n + 2 + m, "]", 2);
  FreeString(error);
  return both;
}

const char *cgotorch_number_tensor(const Scalar *number, Tensor *result) {
  return guard([&] {
    at::Tensor t = at::scalar_to_tensor(scalar(*number));
    t.unsafeGetTensorImpl()->set_wrapped_number(true);
    out(result, std::move(t));
  });
}

const char *cgotorch_check_tensor(Tensor t, const cgotorch_tensor_type *type) {
  if (t == nullptr) return make_error("TypeError", "expected a tensor, got none");
  const at::Tensor &tensor = reinterpret_cast<const at::Tensor &>(t);
  return guard([&] {
    if (!fits(tensor, *type)) mismatch(tensor, *type);
    if (c10::GradMode::is_enabled() && tensor.requires_grad()) {
      throw Failure{"RuntimeError",
                    "a compiled graph records no gradient, and this tensor requires one: detach "
                    "it, or switch recording off"};
    }
  });
}

const char *cgotorch_hold_words(const cgotorch_held *held, int64_t n) {
  return guard([&] {
    const Tensor *word = nullptr;
    // What comes before element k of list i has been held.
    const auto hold = [&](int64_t i, int64_t k) {
      Tensor &at = held[i].at[k];
      if (at == nullptr) return true;
      word = reinterpret_cast<const Tensor *>(at);
      at = cgotorch_hold(reinterpret_cast<int64_t>(word));
      return at != nullptr;
    };
    for (int64_t i = 0; i < n; i++) {
      for (int64_t k = 0; k < held[i].n; k++) {
        if (hold(i, k)) continue;
        cgotorch_drop_held(held, i);
        FreeTensors(held[i].at, k);
        // A word never gets a handle again: with one in it, it was memory that lacked.
        if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != nullptr) throw std::bad_alloc();
        throw Failure{"ValueError",
                      "an argument was used after Close, or after the Scope it was made in"};
      }
    }
  });
}

void cgotorch_drop_held(const cgotorch_held *held, int64_t n) {
  for (int64_t i = 0; i < n; i++) FreeTensors(held[i].at, held[i].n);
}

}  // extern "C"
