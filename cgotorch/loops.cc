// loops.cc: see loops.h.

// GCC sees one in torch's SmallVector, which the iterator below brings along.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/from_blob.h>
#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "internal.h"

namespace cgotorch {
namespace {

constexpr int kDims = 12;         // of a shape; more go to PyTorch's functions
constexpr int kTensors = 64;      // inputs
constexpr int64_t kBlock = 4096;  // elements: a few such arrays stay in the nearest cache
constexpr int64_t kVectors = 64;  // no kernel takes more elements than these at a time

using Sizes = std::array<int64_t, kDims>;

// How an input is read: along with the result, or by steps of its own.
struct Source {
  const char *data;
  int64_t itemsize;
  bool flat;    // element i of the result's memory goes with element i of its own
  bool single;  // it has one element
  int ndim;     // without flat and single: the coalesced dimensions, outermost first
  Sizes sizes;
  Sizes strides;  // in elements, 0 where it is the same all along

  bool row() const { return ndim == 2 && strides[0] == 0 && strides[1] == 1; }
  int64_t inner() const { return sizes[ndim - 1]; }
  // Elements of buffer for blocks of n.
  int64_t room(int64_t n) const { return row() && inner() <= kBlock ? n + inner() : n; }
};

// Whether nothing but PyTorch's ordinary CPU kernel would run for a tensor: no mode of Python, no
// transform, no negative view.
bool ordinary(const at::Tensor &t) {
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  const c10::DispatchKeySet skipped = c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                      c10::autocast_dispatch_keyset |
                                      c10::DispatchKeySet(c10::DispatchKey::BackendSelect);
  const c10::DispatchKeySet keys = ((t.key_set() | local.included_) - local.excluded_) - skipped;
  return keys.highestPriorityTypeId() == c10::DispatchKey::CPU;
}

class Loop {
 public:
  Loop(const cgotorch_loop &loop, const Tensor *inputs)
      : loop_(loop), inputs_(reinterpret_cast<const at::Tensor *>(inputs)) {}

  // Whether the loop gives what PyTorch gives.
  bool fits() {
    for (int i = 0; i < loop_.n_inputs; i++) {
      const at::Tensor &t = inputs_[i];
      if (!t.defined() || !ordinary(t) || t.dim() > kDims ||
          static_cast<int32_t>(t.scalar_type()) != loop_.types[i])
        return false;
      Source &s = sources_[i];
      s.data = static_cast<const char *>(t.const_data_ptr());
      s.itemsize = static_cast<int64_t>(t.element_size());
      s.single = t.numel() == 1;
    }
    if (!shaped() || !(in_order() || (!loop_.contiguous && alike()))) return false;
    for (int i = 0; i < loop_.n_inputs; i++) {
      if ((loop_.single >> i & 1) && !sources_[i].single) return false;
      if ((loop_.direct >> i & 1) && !kernel_reads(sources_[i])) return false;
    }
    return loop_.in_place == nullptr || writable();
  }

  void allocate(Tensor *outputs) {
    for (int o = 0; o < loop_.n_outputs; o++) {
      const int32_t i = loop_.in_place == nullptr ? -1 : loop_.in_place[o];
      at::Tensor made;
      if (i >= 0) {
        made = inputs_[i];
        made.unsafeGetTensorImpl()->bump_version();
        // A copy on write is made here, and read from then on.
        sources_[i].data = static_cast<const char *>(made.data_ptr());
      } else {
        const at::ScalarType type = dtype(loop_.types[loop_.n_inputs + o]);
        made = strides_ == nullptr
                   ? at::Tensor(at::detail::empty_cpu(shape(), type))
                   : at::Tensor(at::detail::empty_strided_cpu(
                         shape(), at::IntArrayRef(strides_, static_cast<size_t>(ndim_)), type));
      }
      results_[o] = static_cast<char *>(made.data_ptr());
      result_sizes_[o] = static_cast<int64_t>(made.element_size());
      out(&outputs[o], std::move(made));
    }
  }

  const char *run() const {
    const c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
    const bool recording = c10::GradMode::is_enabled();
    std::atomic<const char *> error{nullptr};
    const auto part = [&](int64_t begin, int64_t end) {
      c10::impl::ForceDispatchKeyGuard as_outside(keys);
      c10::AutoGradMode grad(recording);
      const char *mine = chunk(begin, end);
      const char *none = nullptr;
      if (mine != nullptr && !error.compare_exchange_strong(none, mine)) FreeString(mine);
    };
    if (count_ < at::internal::GRAIN_SIZE || at::get_num_threads() == 1 || at::in_parallel_region())
      part(0, count_);
    else
      each_part(part);
    return error.load();
  }

 private:
  // Calls f with parts of the elements, by PyTorch's threads. A TensorIterator over the first
  // result does that: it divides the elements as the one in a kernel does, and is in libtorch, so
  // that the threads are those of its runtime.
  template <class F>
  void each_part(const F &f) const {
    const auto type = dtype(loop_.types[loop_.n_inputs]);
    const at::Tensor whole = at::from_blob(results_[0], {count_}, type);
    at::TensorIterator parts =
        at::TensorIteratorConfig().add_owned_const_input(whole).check_all_same_dtype(false).build();
    parts.for_each([&](char **data, const int64_t *, int64_t n) {
      const int64_t begin = (data[0] - results_[0]) / result_sizes_[0];
      f(begin, begin + n);
    });
  }

  at::IntArrayRef shape() const { return {full_.data(), static_cast<size_t>(ndim_)}; }

  // The shape of all inputs, and whether they broadcast to it as they should.
  bool shaped() {
    ndim_ = 0;
    for (int i = 0; i < loop_.n_inputs; i++)
      ndim_ = std::max(ndim_, static_cast<int>(inputs_[i].dim()));
    std::fill_n(full_.begin(), ndim_, 1);
    for (int i = 0; i < loop_.n_inputs; i++) {
      const at::IntArrayRef sizes = inputs_[i].sizes();
      const int before = ndim_ - static_cast<int>(sizes.size());
      for (int d = before; d < ndim_; d++) {
        const int64_t size = sizes[static_cast<size_t>(d - before)];
        if (size == 1 || size == full_[d]) continue;
        if (full_[d] != 1) return false;
        full_[d] = size;
      }
    }
    count_ = 1;
    for (int d = 0; d < ndim_; d++) count_ *= full_[d];
    if (count_ == 0) return false;
    for (int k = 0; k < loop_.n_shapes; k++)
      if (!whole(loop_.shapes[k])) return false;
    return true;
  }

  // Whether a set of inputs has the whole shape.
  bool whole(uint64_t set) const {
    int dims = 0;
    for (int i = 0; i < loop_.n_inputs; i++)
      if (set >> i & 1) dims = std::max(dims, static_cast<int>(inputs_[i].dim()));
    if (dims != ndim_) return false;
    for (int d = 0; d < ndim_; d++) {
      bool found = full_[d] == 1;
      for (int i = 0; i < loop_.n_inputs && !found; i++) {
        const at::Tensor &t = inputs_[i];
        const int64_t before = ndim_ - t.dim();
        found = (set >> i & 1) && d >= before && t.size(d - before) == full_[d];
      }
      if (!found) return false;
    }
    return true;
  }

  // All inputs have their dimensions in C's order, so PyTorch's results are contiguous.
  bool in_order() {
    strides_ = nullptr;
    for (int i = 0; i < loop_.n_inputs; i++) {
      const at::Tensor &t = inputs_[i];
      Source &s = sources_[i];
      s.flat = false;
      if (s.single) continue;
      const int before = ndim_ - static_cast<int>(t.dim());
      Sizes strides;
      for (int d = 0; d < ndim_; d++) {
        const bool same = d < before || (full_[d] != 1 && t.size(d - before) == 1);
        strides[d] = same ? 0 : t.stride(d - before);
        if (strides[d] == 0) continue;
        // As TensorIterator sorts dimensions: by strides, equal ones by size.
        for (int e = 0; e < d; e++)
          if (strides[e] != 0 &&
              (strides[d] > strides[e] || (strides[d] == strides[e] && full_[d] > full_[e])))
            return false;
      }
      coalesce(s, strides);
      if (s.ndim == 1 && s.strides[0] == 1) s.flat = true;
    }
    return true;
  }

  void coalesce(Source &s, const Sizes &strides) const {
    s.ndim = 0;
    for (int d = 0; d < ndim_; d++) {
      if (full_[d] == 1) continue;
      if (s.ndim > 0 && s.strides[s.ndim - 1] == strides[d] * full_[d]) {
        s.sizes[s.ndim - 1] *= full_[d];
        s.strides[s.ndim - 1] = strides[d];
      } else {
        s.sizes[s.ndim] = full_[d];
        s.strides[s.ndim++] = strides[d];
      }
    }
  }

  // All inputs lie alike and without gaps, as transposed or channels-last tensors do: so do the
  // results.
  bool alike() {
    const at::Tensor *first = nullptr;
    for (int i = 0; i < loop_.n_inputs; i++) {
      const at::Tensor &t = inputs_[i];
      Source &s = sources_[i];
      s.flat = !s.single;
      if (s.single) continue;
      if (first != nullptr ? t.strides() != first->strides() || t.sizes() != first->sizes()
                           : t.sizes() != shape() || !t.is_non_overlapping_and_dense())
        return false;
      if (first == nullptr) first = &t;
    }
    if (first == nullptr) return false;
    for (int d = 0; d < ndim_; d++)
      if (full_[d] == 1 && (d > 0 || first->stride(0) != count_)) return false;
    strides_ = first->strides().data();
    return true;
  }

  // Whether a kernel that is given a block of the input finds its elements where they stand in the
  // whole: in rows without a rest.
  bool kernel_reads(const Source &s) const {
    if (s.flat || count_ == 1) return true;
    if (loop_.contiguous || s.single || s.strides[s.ndim - 1] != 1 || s.inner() % kVectors != 0)
      return false;
    return count_ < at::internal::GRAIN_SIZE || at::get_num_threads() == 1;
  }

  // Whether what is written has no other reader than the one that reads an element before it is
  // written.
  bool writable() const {
    for (int o = 0; o < loop_.n_outputs; o++) {
      const int32_t i = loop_.in_place[o];
      if (i < 0) continue;
      const at::Tensor &t = inputs_[i];
      if (!(sources_[i].flat || count_ == 1) || t.sizes() != shape()) return false;
      for (int j = 0; j < loop_.n_inputs; j++)
        if (j != i && at::get_overlap_status(inputs_[j], t) != at::MemOverlapStatus::No)
          return false;
    }
    return true;
  }

  const char *chunk(int64_t begin, int64_t end) const {
    const void *in[kTensors];
    void *outs[kTensors];
    bool own_pace = loop_.n_scratch > 0;
    for (int i = 0; i < loop_.n_inputs; i++)
      own_pace = own_pace || !(sources_[i].flat || (loop_.single >> i & 1));
    const int64_t most = own_pace ? std::min(end - begin, 2 * kBlock) : end - begin;

    std::vector<c10::DataPtr> buffers;
    std::vector<bool> filled;
    std::vector<at::Tensor> held;
    std::vector<void *> scratch;
    if (own_pace) {
      buffers.resize(static_cast<size_t>(loop_.n_inputs));
      filled.resize(static_cast<size_t>(loop_.n_inputs));
      for (int k = 0; k < loop_.n_scratch; k++) {
        const at::ScalarType type = dtype(loop_.types[loop_.n_inputs + loop_.n_outputs + k]);
        held.emplace_back(at::detail::empty_cpu({most}, type));
        scratch.push_back(held.back().data_ptr());
      }
    }
    cgotorch_loop_block block;
    block.inputs = in;
    block.outputs = outs;
    block.scratch = scratch.data();
    block.tensors = reinterpret_cast<const Tensor *>(held.data());
    while (begin < end) {
      // No short block at the end: kernels may choose by the number of elements.
      block.n = end - begin < 2 * kBlock || !own_pace ? end - begin : kBlock;
      for (int i = 0; i < loop_.n_inputs; i++) {
        const Source &s = sources_[i];
        const size_t k = static_cast<size_t>(i);
        if (loop_.single >> i & 1)
          in[i] = s.data;
        else if (s.flat)
          in[i] = s.data + begin * s.itemsize;
        else {
          if (!buffers[k])
            buffers[k] = c10::GetCPUAllocator()->allocate(
                static_cast<size_t>(s.single ? most : s.room(most)) * itemsize(i));
          bool done = filled[k];
          in[i] = fetch(s, itemsize(i), begin, block.n, most, static_cast<char *>(buffers[k].get()),
                        done);
          filled[k] = done;
        }
      }
      for (int o = 0; o < loop_.n_outputs; o++) outs[o] = results_[o] + begin * result_sizes_[o];
      for (at::Tensor &t : held)
        if (t.numel() != block.n) t.unsafeGetTensorImpl()->set_sizes_contiguous({block.n});
      if (const char *error = loop_.code(&block)) return error;
      begin += block.n;
    }
    return nullptr;
  }

  size_t itemsize(int i) const { return c10::elementSize(dtype(loop_.types[i])); }

  static void copy(char *to, const char *from, int64_t n, int64_t stride, size_t itemsize) {
    switch (itemsize) {
      case 1:
        return strided<uint8_t>(to, from, n, stride);
      case 2:
        return strided<uint16_t>(to, from, n, stride);
      case 4:
        return strided<uint32_t>(to, from, n, stride);
      default:
        return strided<uint64_t>(to, from, n, stride);
    }
  }

  template <class T>
  static void strided(char *to, const char *from, int64_t n, int64_t stride) {
    T *a = reinterpret_cast<T *>(to);
    const T *b = reinterpret_cast<const T *>(from);
    if (stride == 1)
      std::memcpy(a, b, static_cast<size_t>(n) * sizeof(T));
    else if (stride == 0)
      std::fill_n(a, n, *b);
    else
      for (int64_t i = 0; i < n; i++) a[i] = b[i * stride];
  }

  // n elements of an input from the result's element `begin` on, in a row: in the buffer, or where
  // they are.
  static const void *fetch(const Source &s, size_t itemsize, int64_t begin, int64_t n, int64_t most,
                           char *buffer, bool &filled) {
    if (s.single) {
      if (!filled) copy(buffer, s.data, most, 0, itemsize);
      filled = true;
      return buffer;
    }
    const int64_t inner = s.inner(), step = s.strides[s.ndim - 1];
    const int64_t bytes = static_cast<int64_t>(itemsize);
    if (s.row() && inner <= kBlock) {
      // The row again and again, once for all blocks.
      if (!filled) {
        const int64_t length = most + inner;
        for (int64_t at = 0; at < length; at += inner)
          std::memcpy(buffer + at * bytes, s.data,
                      static_cast<size_t>(std::min(inner, length - at) * bytes));
      }
      filled = true;
      return buffer + begin % inner * bytes;
    }
    Sizes index;
    int64_t rest = begin, offset = 0;
    for (int d = s.ndim - 1; d >= 0; d--) {
      index[d] = rest % s.sizes[d];
      rest /= s.sizes[d];
      offset += index[d] * s.strides[d];
    }
    const int last = s.ndim - 1;
    if (step == 1 && index[last] + n <= inner) return s.data + offset * bytes;
    for (int64_t made = 0; made < n;) {
      const int64_t piece = std::min(inner - index[last], n - made);
      copy(buffer + made * bytes, s.data + offset * bytes, piece, step, itemsize);
      made += piece;
      offset -= index[last] * step;
      index[last] = 0;
      for (int d = last - 1; d >= 0; d--) {
        offset += s.strides[d];
        if (++index[d] < s.sizes[d]) break;
        offset -= s.sizes[d] * s.strides[d];
        index[d] = 0;
      }
    }
    return buffer;
  }

  const cgotorch_loop &loop_;
  const at::Tensor *inputs_;
  int ndim_ = 0;
  int64_t count_ = 0;
  Sizes full_;
  const int64_t *strides_ = nullptr;  // of the results, where they are not contiguous
  std::array<Source, kTensors> sources_;
  std::array<char *, kTensors> results_;
  std::array<int64_t, kTensors> result_sizes_;
};

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *cgotorch_run_loop(const cgotorch_loop *loop, const Tensor *inputs, Tensor *outputs,
                              bool *done) {
  *done = false;
  std::fill_n(outputs, loop->n_outputs, nullptr);
  const char *error = nullptr;
  const char *failed = guard([&] {
    Loop work(*loop, inputs);
    if (!work.fits()) return;
    work.allocate(outputs);
    *done = true;
    error = work.run();
  });
  if (failed != nullptr) error = failed;
  if (error != nullptr) {
    FreeTensors(outputs, loop->n_outputs);
    std::fill_n(outputs, loop->n_outputs, nullptr);
  }
  return error;
}

const char *cgotorch_write_back(Tensor input, Tensor *result) {
  return guard([&] {
    const at::Tensor &to = in(input, "input");
    const at::Tensor &made = reinterpret_cast<const at::Tensor &>(*result);
    if (made.sizes() != to.sizes() || made.strides() != to.strides()) return;
    to.copy_(made);
    FreeTensor(*result);
    *result = RetainTensor(input);
  });
}

}  // extern "C"
