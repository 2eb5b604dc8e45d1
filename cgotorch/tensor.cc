// tensor.cc: handles, what a tensor is, and its memory.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/lift_fresh.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "below_transforms.h"
#include "internal.h"
#include "late_devices.h"
#include "words.h"

namespace cgotorch {
namespace {

inline void free_one(Tensor t) {
  if (t == nullptr) return;
  enter_thread();
  count_up(tls.freed);
  c10::raw::intrusive_ptr::decref(reinterpret_cast<at::TensorImpl *>(t));
}

bool plain(const at::TensorImpl &t) {
  return t.layout() == at::kStrided && !t.is_python_dispatch();
}

// What a vmap has wrapped answers questions about the order of its elements with errors.
bool batched(const at::TensorImpl &t) {
  return t.key_set().has_any(c10::DispatchKeySet(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::BatchedNestedTensor}));
}

// Whether there is a device for which memory could be pinned.
bool has_backend() {
  bool found = false;
  for_each_backend([&](at::DeviceType) { found = true; });
  return found;
}

void fill_info(const at::Tensor &t, TensorInfo *info) {
  const at::TensorImpl &p = *t.unsafeGetTensorImpl();
  int32_t flags = 0;
  const auto flag = [&flags](bool on, int32_t bit) {
    if (on) flags |= bit;
  };
  *info = TensorInfo{};
  info->ndim = p.dim();
  info->numel = p.numel();
  info->dtype = static_cast<ScalarType>(p.dtype().toScalarType());
  info->itemsize = static_cast<int64_t>(p.itemsize());
  info->layout = static_cast<Layout>(p.layout());
  info->device = {static_cast<int32_t>(p.device().type()), p.device().index()};
  if (t.is_nested()) {
    flags |= TensorNested;
  } else {
    info->sizes = p.sizes().data();
    if (plain(p)) {
      info->strides = p.strides().data();
      flag(p.is_contiguous(), TensorContiguous);
      flag(!batched(p) && (p.is_contiguous(at::MemoryFormat::ChannelsLast) ||
                           p.is_contiguous(at::MemoryFormat::ChannelsLast3d)),
           TensorChannelsLast);
      flag(p.is_non_overlapping_and_dense(), TensorNonOverlapping);
    }
  }
  if (p.has_storage()) {
    const at::Storage &s = p.storage();
    flags |= TensorHasStorage;
    info->storage_offset = p.storage_offset();
    info->storage_nbytes = static_cast<int64_t>(s.nbytes());
    info->storage_id = reinterpret_cast<int64_t>(s.unsafeGetStorageImpl());
    info->storage_uses = static_cast<int64_t>(s.use_count());
    const auto *base = static_cast<const char *>(s.data());
    if (base != nullptr && info->numel > 0)
      info->data = const_cast<char *>(base + info->storage_offset * info->itemsize);
  }
  info->uses = static_cast<int64_t>(t.use_count());
  const bool inference = t.is_inference();
  info->version = inference ? -1 : static_cast<int64_t>(t._version());
  flag(inference, TensorInference);
  flag(t.requires_grad(), TensorRequiresGrad);
  const bool leaf = t.is_leaf();
  flag(leaf, TensorIsLeaf);
  flag(!leaf, TensorHasGradFn);
  flag(!leaf && t.retains_grad(), TensorRetainsGrad);
  flag(t.is_conj(), TensorConj);
  flag(t.is_neg(), TensorNeg);
  flag(t.is_quantized(), TensorQuantized);
  flag(p.is_wrapped_number(), TensorWrappedNumber);
  if (info->data != nullptr && p.device().is_cpu() && has_backend())
    flag(t.is_pinned(), TensorPinned);
  info->flags = flags;
}

// Frees the caller's memory when the storage goes, once a tensor has taken it over.
struct Blob {
  void (*deleter)(void *);
  void *context;
  bool owned = false;
};

void drop_blob(void *p) {
  std::unique_ptr<Blob> blob(static_cast<Blob *>(p));
  if (blob->owned && blob->deleter != nullptr) blob->deleter(blob->context);
}

// Whether every element of the shape lies within the first nbytes.
void check_extent(at::IntArrayRef sizes, const int64_t *strides, int64_t itemsize, int64_t nbytes) {
  int64_t last = 0, step = 1;
  bool empty = false, overflow = false;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] < 0) throw Failure{"ValueError", "a size is negative"};
    const int64_t stride = strides != nullptr ? strides[i] : step;
    if (stride < 0) throw Failure{"ValueError", "a stride is negative"};
    if (sizes[i] == 0) {
      empty = true;
      continue;
    }
    int64_t reach;
    overflow |= __builtin_mul_overflow(sizes[i] - 1, stride, &reach);
    overflow |= __builtin_add_overflow(last, reach, &last);
    overflow |= __builtin_mul_overflow(step, sizes[i], &step);
  }
  if (empty) return;
  int64_t needed;
  overflow |= __builtin_add_overflow(last, 1, &last);
  overflow |= __builtin_mul_overflow(last, itemsize, &needed);
  if (overflow || needed > nbytes) {
    throw Failure{"ValueError", "the shape needs " +
                                    (overflow ? std::string("too many") : std::to_string(needed)) +
                                    " bytes, the memory has " + std::to_string(nbytes)};
  }
}

Storage release_storage(at::Storage &&s) {
  return reinterpret_cast<Storage>(s.unsafeReleaseStorageImpl());
}

}  // namespace

void free_handles(const Tensor *first, int64_t n, size_t step) noexcept {
  // The objects have mostly left the caches by now: each is fetched while those before are freed,
  // first the tensor, then the storage that it points to.
  constexpr int64_t kAhead = 6, kStorageAhead = 3;
  const auto handle = [first, step](int64_t i) { return first[static_cast<size_t>(i) * step]; };
  for (int64_t i = 0; i < n; i++) {
    if (i + kAhead < n) {
      const char *object = reinterpret_cast<const char *>(handle(i + kAhead));
      for (size_t at = 0; at < sizeof(at::TensorImpl); at += 64) __builtin_prefetch(object + at, 1);
    }
    if (i + kStorageAhead < n && handle(i + kStorageAhead) != nullptr) {
      const auto *impl = reinterpret_cast<const at::TensorImpl *>(handle(i + kStorageAhead));
      const auto *storage =
          reinterpret_cast<const char *>(impl->unsafe_storage().unsafeGetStorageImpl());
      for (size_t at = 0; at < sizeof(at::StorageImpl); at += 64)
        __builtin_prefetch(storage + at, 1);
    }
    free_one(handle(i));
  }
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

void FreeTensor(Tensor t) { free_one(t); }

void FreeTensors(const Tensor *t, int64_t n) { free_handles(t, n, 1); }

Tensor RetainTensor(Tensor t) {
  if (t == nullptr) return nullptr;
  return release(at::Tensor(in(t, "t")));
}

const char *GetTensorInfo(Tensor t, TensorInfo *info) {
  return guard([&] { fill_info(in(t, "t"), info); });
}

const char *cgotorch_info(int64_t word, TensorInfo *info, int64_t *dims, int64_t n) {
  return with_word(word, "self", [=](Tensor t) {
    TensorInfo found;
    if (const char *err = GetTensorInfo(t, &found)) return err;
    if (2 * found.ndim <= n) {
      if (found.sizes != nullptr) std::copy_n(found.sizes, found.ndim, dims);
      if (found.strides != nullptr) std::copy_n(found.strides, found.ndim, dims + found.ndim);
    }
    *info = found;
    return static_cast<const char *>(nullptr);
  });
}

const char *TensorData(Tensor t, void **data) {
  return guard([&] {
    const at::Tensor &a = in(t, "t");
    *data = a.has_storage() && a.layout() == at::kStrided && a.numel() > 0 &&
                    a.storage().data() != nullptr
                ? a.mutable_data_ptr()
                : nullptr;
  });
}

const char *TensorItem(Tensor t, Scalar *result) {
  return guard([&] { *result = from_scalar(in(t, "t").item()); });
}

const char *TensorCopyOut(Tensor t, void *dst, int64_t nbytes) {
  return guard([&] {
    at::Tensor a = in(t, "t");
    a = without_grad_wrappers(std::move(a));
    const BelowTransforms below;
    if (batched(*a.unsafeGetTensorImpl()))
      throw Failure{"RuntimeError",
                    "vmap: the elements of a tensor cannot be read inside of the function that is "
                    "mapped, where it stands for many; return it, and read the result"};
    const bool direct = a.device().is_cpu() && plain(*a.unsafeGetTensorImpl()) && !a.is_nested() &&
                        a.is_contiguous() && !a.is_conj() && !a.is_neg();
    if (!direct) {
      const at::NoGradGuard no_graph;
      if (a.is_nested()) throw Failure{"ValueError", "a nested tensor has no single shape"};
      if (a.layout() != at::kStrided) a = a.to_dense();
      a = a.to(at::kCPU).resolve_conj().resolve_neg().contiguous();
    }
    const int64_t have = a.numel() * static_cast<int64_t>(a.itemsize());
    if (have != nbytes) {
      throw Failure{"ValueError", "the tensor has " + std::to_string(have) +
                                      " bytes, the place to copy to " + std::to_string(nbytes)};
    }
    if (nbytes > 0) std::memcpy(dst, a.const_data_ptr(), static_cast<size_t>(nbytes));
  });
}

const char *cgotorch_data(int64_t word, void **data) {
  return with_word(word, "self", [=](Tensor t) { return TensorData(t, data); });
}

const char *cgotorch_item(int64_t word, Scalar *result) {
  return with_word(word, "self", [=](Tensor t) { return TensorItem(t, result); });
}

const char *cgotorch_copy_out(int64_t word, void *dst, int64_t nbytes) {
  return with_word(word, "self", [=](Tensor t) { return TensorCopyOut(t, dst, nbytes); });
}

const char *TensorFromData(const void *src, int64_t nbytes, const int64_t *sizes, int64_t ndim,
                           ScalarType type, Tensor *result) {
  return guard([&] {
    const at::ScalarType s = dtype(type);
    const at::IntArrayRef shape = ints(sizes, ndim);
    check_extent(shape, nullptr, static_cast<int64_t>(c10::elementSize(s)), nbytes);
    at::Tensor t;
    {
      const BelowTransforms below;
      t = at::empty(shape, at::TensorOptions().dtype(s).device(at::kCPU));
    }
    if (t.numel() * static_cast<int64_t>(t.itemsize()) != nbytes) {
      throw Failure{"ValueError", "the shape needs " + std::to_string(t.numel() * t.itemsize()) +
                                      " bytes, the data has " + std::to_string(nbytes)};
    }
    if (src != nullptr && nbytes > 0)
      std::memcpy(t.mutable_data_ptr(), src, static_cast<size_t>(nbytes));
    // A function that is transformed may change it in place.
    if (TransformDepth() > 0) t = at::lift_fresh(t);
    out(result, std::move(t));
  });
}

const char *FromBlob(void *data, int64_t nbytes, const int64_t *sizes, int64_t ndim,
                     const int64_t *strides, ScalarType type, Device where,
                     void (*deleter)(void *context), void *context, Tensor *result) {
  return guard([&] {
    const at::ScalarType s = dtype(type);
    const at::Device place = device(where);
    const at::IntArrayRef shape = ints(sizes, ndim);
    check_extent(shape, strides, static_cast<int64_t>(c10::elementSize(s)),
                 data == nullptr ? 0 : nbytes);
    auto blob = std::make_unique<Blob>(Blob{deleter, context});
    Blob *held = blob.get();
    auto maker = at::for_blob(data, shape);
    maker.context(blob.release(), drop_blob)
        .options(at::TensorOptions().dtype(s).device(place))
        .target_device(place);
    if (strides != nullptr) maker.strides(ints(strides, ndim));
    at::Tensor t = maker.make_tensor();
    held->owned = true;
    out(result, std::move(t));
  });
}

const char *GetQuantizerInfo(Tensor t, QuantizerInfo *info) {
  return guard([&] {
    const at::Tensor &a = in(t, "t");
    QuantizerInfo q{};
    const at::QScheme scheme = a.qscheme();
    q.qscheme = static_cast<int64_t>(scheme);
    if (scheme == at::kPerTensorAffine || scheme == at::kPerTensorSymmetric) {
      q.scale = a.q_scale();
      q.zero_point = a.q_zero_point();
    } else {
      q.axis = a.q_per_channel_axis();
    }
    *info = q;
  });
}

const char *GetDefaultDtype(ScalarType *result) {
  return guard([&] { *result = static_cast<ScalarType>(c10::get_default_dtype_as_scalartype()); });
}

const char *SetDefaultDtype(ScalarType type) {
  return guard([&] {
    const at::ScalarType s = dtype(type);
    if (!c10::isFloatingType(s)) {
      throw Failure{"TypeError", "only floating-point types are supported as the default type"};
    }
    c10::set_default_dtype(c10::scalarTypeToTypeMeta(s));
  });
}

const char *TensorStorage(Tensor t, Storage *result) {
  return guard([&] { *result = release_storage(at::Storage(in(t, "t").storage())); });
}

const char *StorageNbytes(Storage s, int64_t *nbytes) {
  return guard([&] { *nbytes = static_cast<int64_t>(storage(s, "s").nbytes()); });
}

const char *StorageData(Storage s, void **data) {
  return guard([&] { *data = storage(s, "s").mutable_data(); });
}

Storage RetainStorage(Storage s) {
  if (s == nullptr) return nullptr;
  return release_storage(at::Storage(reinterpret_cast<const at::Storage &>(s)));
}

void FreeStorage(Storage s) {
  if (s == nullptr) return;
  at::Storage(
      c10::intrusive_ptr<c10::StorageImpl>::reclaim(reinterpret_cast<c10::StorageImpl *>(s)));
}

void FreeGenerator(Generator g) {
  if (g == nullptr) return;
  at::Generator(
      c10::intrusive_ptr<c10::GeneratorImpl>::reclaim(reinterpret_cast<c10::GeneratorImpl *>(g)));
}

}  // extern "C"
