// How Go calls: a thunk reads the arguments of one C function from a block of eight-byte fields and
// leaves the results there. Generated thunks are written with these.
#pragma once

#include "words.h"

namespace cgotorch {

using Thunk = const char *(*)(void *block);

extern const Thunk thunks[];
extern const int64_t thunk_count;
extern const char api_hash[];

// Above this many bytes of storage a tensor gets a finaliser of its own in Go: its slot in a shared
// slab would keep the memory of up to a slab's worth of dead neighbours alive.
constexpr size_t kSlabBytes = 4096;

// What a block says about a tensor in its outputs: 0, or kOwnFinalizer; and for one that is not in
// the computer's memory also where it is and how much it takes, so that Go sees when to look for
// dead ones: the device's type plus one from bit 8, its index plus one from bit 16, KiB from
// bit 24.
constexpr int64_t kOwnFinalizer = 1;

int64_t meta_of_big(const c10::Storage &storage);

struct OutTensor {
  Tensor handle;
  int64_t meta;
};

struct OutTensors {
  OutTensor *data;
  int64_t len;
};

inline int64_t meta_of(Tensor t) {
  if (t == nullptr) return 0;
  auto *impl = reinterpret_cast<c10::TensorImpl *>(t);
  // unsafe_storage, because has_storage is virtual: what has its storage elsewhere counts as big.
  const c10::Storage &storage = impl->unsafe_storage();
  if (!storage) return kOwnFinalizer;
  if (storage.nbytes() > kSlabBytes) return meta_of_big(storage);
  return impl->requires_grad() ? kOwnFinalizer : 0;
}

inline void describe(OutTensor &t) { t.meta = meta_of(t.handle); }

// Takes over the array of handles that a C function returned.
void describe(OutTensors &out, Tensor *data, int64_t len);

const char *requires_grad(Tensor &t) noexcept;

// Go's enums are libtorch's plus one, so that zero is "unset".
inline ScalarType go_dtype(int64_t v) { return static_cast<ScalarType>(v - 1); }
inline Layout go_layout(int64_t v) { return static_cast<Layout>(v - 1); }
inline MemoryFormat go_memory_format(int64_t v) { return static_cast<MemoryFormat>(v - 1); }
inline Device go_device(int64_t v) {
  return Device{static_cast<int32_t>(v >> 16) - 1, static_cast<int32_t>(v & 0xffff) - 1};
}

template <class T, T (*decode)(int64_t)>
class OptEnum {
 public:
  explicit OptEnum(int64_t v) : set_(v != 0), value_(decode(v)) {}
  const T *get() const { return set_ ? &value_ : nullptr; }

 private:
  bool set_;
  T value_;
};
using OptScalarType = OptEnum<ScalarType, go_dtype>;
using OptLayout = OptEnum<Layout, go_layout>;
using OptMemoryFormat = OptEnum<MemoryFormat, go_memory_format>;
using OptDevice = OptEnum<Device, go_device>;

}  // namespace cgotorch
