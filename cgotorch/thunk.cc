// thunk.cc: what thunks need that is not worth inlining.
#include "thunk.h"

#include <utility>

namespace cgotorch {

int64_t meta_of_big(const c10::Storage &storage) {
  const c10::Device d = storage.device();
  if (d.is_cpu() || d.is_meta()) return kOwnFinalizer;
  return kOwnFinalizer | (int64_t{static_cast<int8_t>(d.type())} + 1) << 8 |
         (int64_t{d.index()} + 1) << 16 | static_cast<int64_t>(storage.nbytes() >> 10) << 24;
}

void describe(OutTensors &out, Tensor *data, int64_t len) {
  // Grown in place, from the back, so that no second array is needed.
  auto *grown = static_cast<OutTensor *>(
      std::realloc(data, sizeof(OutTensor) * static_cast<size_t>(len > 0 ? len : 1)));
  if (grown == nullptr) {
    // Nothing that could be returned: what was made is freed, and the list is empty.
    FreeTensors(data, len);
    FreeArray(data);
    out = {nullptr, 0};
    return;
  }
  const auto *handles = reinterpret_cast<const Tensor *>(grown);
  for (int64_t i = len; i-- > 0;) {
    const Tensor t = handles[i];
    grown[i] = {t, meta_of(t)};
  }
  out = {grown, len};
  entered_with_array(grown);
}

const char *requires_grad(Tensor &t) noexcept {
  return guard([&] {
    try {
      in_mut(t, "result").requires_grad_(true);
    } catch (...) {
      FreeTensor(std::exchange(t, nullptr));
      throw;
    }
  });
}

}  // namespace cgotorch
