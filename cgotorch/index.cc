// index.cc: a[...] as in Python, by the functions of at::indexing, which Python's own are made
// from.
#include <ATen/TensorIndexing.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "below_transforms.h"
#include "thunk.h"
#include "words.h"

namespace cgotorch {
namespace {

namespace ix = at::indexing;

using Terms = c10::SmallVector<ix::TensorIndex, 4>;

// A list of n elements as an index tensor where the indexed tensor is.
at::Tensor list_tensor(const void *data, int64_t n, at::ScalarType dtype,
                       const at::Device &device) {
  if (n < 0 || (n > 0 && data == nullptr))
    throw_value("an index list has a negative length, or no elements where it should");
  at::Tensor t;
  {
    const BelowTransforms below;
    t = at::empty({n}, at::TensorOptions(at::kCPU).dtype(dtype));
  }
  if (n > 0) std::memcpy(t.mutable_data_ptr(), data, static_cast<size_t>(n) * t.itemsize());
  return t.to(device);
}

void add_term(Terms &out, const IndexTerm &term, const at::Tensor &self) {
  switch (term.kind) {
    case IndexAt:
      out.emplace_back(term.start);
      return;
    case IndexSlice:
      out.emplace_back(ix::Slice(term.start, term.stop, term.step));
      return;
    case IndexEllipsis:
      out.emplace_back(ix::Ellipsis);
      return;
    case IndexNewAxis:
      out.emplace_back(ix::None);
      return;
    case IndexBool:
      out.emplace_back(term.start != 0);
      return;
    case IndexTensor:
      out.emplace_back(in(term.of.tensor, "index"));
      return;
    case IndexMask: {
      const at::Tensor &mask = in(term.of.tensor, "mask");
      TORCH_CHECK_INDEX(mask.scalar_type() == at::kBool || mask.scalar_type() == at::kByte,
                        "a mask must be a tensor of bool or uint8, not ", mask.scalar_type());
      out.emplace_back(mask);
      return;
    }
    case IndexInts:
      out.emplace_back(list_tensor(term.of.ints, term.start, at::kLong, self.device()));
      return;
    case IndexBools:
      out.emplace_back(list_tensor(term.of.bools, term.start, at::kBool, self.device()));
      return;
    default:
      throw_value("an IndexTerm is of an unknown kind");
  }
}

void check_terms(const IndexTerm *terms, int64_t n) {
  if (n < 0 || (n > 0 && terms == nullptr))
    throw_value("the number of index terms is negative, or terms is NULL");
}

Terms convert(const IndexTerm *terms, int64_t n, const at::Tensor &self) {
  Terms out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) add_term(out, terms[i], self);
  return out;
}

// Whether self is a dense CPU or CUDA tensor of the ordinary kind, and no mode (of functorch, of
// Python) wants to see the calls. Then the shortcuts below change nothing that can be observed.
bool plain(const at::Tensor &self) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet known(
      {DispatchKey::CPU, DispatchKey::CUDA, DispatchKey::AutogradCPU, DispatchKey::AutogradCUDA,
       DispatchKey::ADInplaceOrView, DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA});
  const c10::DispatchKeySet modes = c10::impl::tls_local_dispatch_key_set().included_;
  return (self.key_set() | known) == known &&
         (modes | c10::default_included_set) == c10::default_included_set;
}

bool records(const at::Tensor &t) { return at::GradMode::is_enabled() && t.requires_grad(); }
bool records(const at::Scalar &) { return false; }

bool has_tangent(const at::Tensor &t) { return t._fw_grad(0).defined(); }
bool has_tangent(const at::Scalar &) { return false; }

bool is_basic(const IndexTerm &term) { return term.kind >= IndexAt && term.kind <= IndexNewAxis; }

// A tensor of no dimensions counts as an integer or a bool: what it gives is found out by PyTorch.
bool copies(const IndexTerm &term) {
  if (term.kind != IndexTensor && term.kind != IndexMask) return !is_basic(term);
  return term.of.tensor != nullptr && in(term.of.tensor, "index").dim() > 0;
}

// The shape of self[terms], for basic terms.
struct Geometry {
  c10::SmallVector<int64_t, 6> sizes, strides;
  int64_t offset = 0;

  void add(int64_t size, int64_t stride) {
    sizes.push_back(size);
    strides.push_back(stride);
  }

  // Fills in the geometry, or returns false where PyTorch has something to say about the terms.
  bool apply(const at::Tensor &self, const IndexTerm *terms, int64_t n) {
    const at::IntArrayRef from = self.sizes(), by = self.strides();
    const int64_t ndim = self.dim();
    int64_t named = 0, ellipses = 0;
    for (int64_t i = 0; i < n; i++) {
      named += terms[i].kind == IndexAt || terms[i].kind == IndexSlice;
      ellipses += terms[i].kind == IndexEllipsis;
    }
    if (named > ndim || ellipses > 1) return false;
    offset = self.storage_offset();
    int64_t dim = 0;
    for (int64_t i = 0; i < n; i++) {
      const IndexTerm &term = terms[i];
      switch (term.kind) {
        case IndexAt: {
          const int64_t size = from[dim], at = term.start;
          if (at >= size || at < -size) return false;
          offset += (at < 0 ? at + size : at) * by[dim++];
          break;
        }
        case IndexSlice:
          if (!apply_slice(term, from[dim], by[dim])) return false;
          dim++;
          break;
        case IndexEllipsis:
          for (const int64_t end = dim + ndim - named; dim < end; dim++) add(from[dim], by[dim]);
          break;
        default:  // IndexNewAxis, with the stride that unsqueeze gives it
          add(1, dim < ndim ? from[dim] * by[dim] : 1);
      }
    }
    for (; dim < ndim; dim++) add(from[dim], by[dim]);
    return true;
  }

  bool apply_slice(const IndexTerm &term, int64_t size, int64_t stride) {
    constexpr int64_t huge = int64_t{1} << 31;  // beyond it the arithmetic could overflow
    if (term.step <= 0 || term.step > huge) return false;
    const auto clamp = [size](int64_t at) {
      return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
    };
    const int64_t start = clamp(term.start), stop = std::max(start, clamp(term.stop));
    add((stop - start + term.step - 1) / term.step, stride * term.step);
    offset += start * stride;
    return true;
  }
};

at::Tensor get(const at::Tensor &self, const IndexTerm *terms, int64_t n) {
  check_terms(terms, n);
  if (plain(self) && !records(self) && !has_tangent(self)) {
    if (std::all_of(terms, terms + n, is_basic)) {
      // One view for all terms, instead of one each. With nothing to record, autograd would only
      // pass the call on; below it, the view is entered as a view of self.
      Geometry g;
      if (g.apply(self, terms, n)) {
        const at::AutoDispatchBelowAutograd guard;
        return self.as_strided(g.sizes, g.strides, g.offset);
      }
    } else if (std::any_of(terms, terms + n, copies)) {
      // The result is no view, so that not even that needs to be done.
      const at::AutoDispatchBelowADInplaceOrView guard;
      return ix::get_item(self, convert(terms, n, self));
    }
  }
  return ix::get_item(self, convert(terms, n, self));
}

// Only what every supported torch has is used below; its functions for numbers are newer.

void copy_to(const at::Tensor &view, const at::Scalar &value) { view.fill_(value); }
void copy_to(const at::Tensor &view, const at::Tensor &value) { ix::copy_to(view, value); }

void put(at::Tensor self, const Terms &terms, const at::Scalar &value) {
  self.index_put_(terms, value);
}

const at::Tensor &tensor_like(const at::Tensor &value, const at::Tensor &) { return value; }
at::Tensor tensor_like(const at::Scalar &value, const at::Tensor &self) {
  return at::scalar_tensor(value, self.options());
}

void add_to(const at::Tensor &view, const at::Scalar &value) { view.add_(value); }

void add_to(const at::Tensor &view, const at::Tensor &value) {
  // As set_item does: leading ones of the value do not count.
  view.add_(value.view_symint(ix::slicePrefix1sSize(value.sym_sizes())));
}

// self[terms] += value, once for each time that an element is named.
template <class Value>
void accumulate(const at::Tensor &self, const Terms &terms, const Value &value) {
  std::vector<at::Tensor> indices;
  at::Tensor view = ix::impl::applySlicing(self, terms, indices, false, self.device(),
                                           c10::SymIntArrayRef(self.sym_sizes()));
  if (indices.empty()) return add_to(view, value);
  const at::Tensor tensor = tensor_like(value, self);
  view.index_put_(ix::impl::typeConvertIndices(view, std::move(indices)),
                  tensor.view_symint(ix::slicePrefix1sSize(tensor.sym_sizes())), true);
}

// ix::set_item passes by a False that stands alone: the value would be checked by nobody, and have
// no gradient. As with other terms it is broadcast to no elements here.
void put(const at::Tensor &self, const Terms &terms, const at::Tensor &value) {
  if (terms.size() == 1 && terms[0].is_boolean() && !terms[0].boolean())
    return accumulate(self, terms, value);
  ix::set_item(self, terms, value);
}

template <class Value>
void set_any(const at::Tensor &self, const IndexTerm *terms, int64_t n, const Value &value,
             bool add) {
  const Terms converted = convert(terms, n, self);
  if (add)
    accumulate(self, converted, value);
  else
    put(self, converted, value);
}

template <class Value>
void set(const at::Tensor &self, const IndexTerm *terms, int64_t n, const Value &value, bool add) {
  check_terms(terms, n);
  const bool shortcut = plain(self) && !records(self) && !records(value) && !has_tangent(self) &&
                        !has_tangent(value) &&
                        self.is_inference() == c10::InferenceMode::is_enabled();
  if (!shortcut) return set_any(self, terms, n, value, add);
  {
    // Nobody sees the view that is written through, so autograd need not hear of it; that self has
    // changed is said below.
    const at::AutoDispatchBelowADInplaceOrView guard;
    Geometry g;
    if (std::all_of(terms, terms + n, is_basic) && g.apply(self, terms, n)) {
      const at::Tensor view = self.as_strided(g.sizes, g.strides, g.offset);
      if (add)
        add_to(view, value);
      else
        copy_to(view, value);
    } else {
      set_any(self, terms, n, value, add);
    }
  }
  if (!self.is_inference()) self.unsafeGetTensorImpl()->bump_version();
}

bool has_word(const IndexTerm &term) { return term.kind == IndexTensor || term.kind == IndexMask; }

std::vector<Word> words_of(const IndexTerm *terms, int64_t n) {
  std::vector<Word> words;
  for (int64_t i = 0; i < n; i++)
    if (has_word(terms[i])) words.push_back(reinterpret_cast<Word>(terms[i].start));
  return words;
}

// Calls f with the same terms, with handles where these have words.
template <class F>
const char *with_handles(const IndexTerm *terms, int64_t n, F &&f) {
  if (std::none_of(terms, terms + n, has_word)) return f(terms);
  const std::vector<Word> words = words_of(terms, n);
  const UsesList uses(words.data(), static_cast<int64_t>(words.size()));
  std::vector<IndexTerm> used_terms(terms, terms + n);
  for (size_t i = 0, k = 0; i < used_terms.size(); i++) {
    if (!has_word(terms[i])) continue;
    used_terms[i].of.tensor = used(words[k++], ("terms[" + std::to_string(i) + "]").c_str());
  }
  return f(used_terms.data());
}

struct ItemBlock {
  cgotorch_block head;
  OutTensor result;
};

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *GetItem(Tensor self, const IndexTerm *terms, int64_t n, Tensor *result) {
  return guard([&] { out(result, get(in(self, "self"), terms, n)); });
}

const char *SetItem(Tensor self, const IndexTerm *terms, int64_t n, Tensor value, bool accumulate) {
  return guard([&] { set(in(self, "self"), terms, n, in(value, "value"), accumulate); });
}

const char *SetItemScalar(Tensor self, const IndexTerm *terms, int64_t n, Scalar value,
                          bool accumulate) {
  return guard([&] { set(in(self, "self"), terms, n, scalar(value), accumulate); });
}

const char *cgotorch_get_item(int64_t self, const IndexTerm *terms, int64_t n,
                              cgotorch_block *block) {
  auto *b = reinterpret_cast<ItemBlock *>(block);
  const auto word = reinterpret_cast<Word>(self);
  const char *err = catching([&] {
    const Uses uses(word);
    const Tensor t = used(word, "self");
    return with_handles(
        terms, n, [&](const IndexTerm *with) { return GetItem(t, with, n, &b->result.handle); });
  });
  if (err == nullptr) describe(b->result);
  block->scope = tls.scope;
  return err;
}

const char *cgotorch_set_item(int64_t self, const IndexTerm *terms, int64_t n,
                              const ItemValue *value) {
  const auto word = reinterpret_cast<Word>(self), value_word = reinterpret_cast<Word>(value->word);
  return catching([&] {
    const Uses uses(word, value_word);
    const Tensor t = used(word, "self"), v = used_opt(value_word, "value");
    const bool accumulate = value->accumulate != 0;
    return with_handles(terms, n, [&](const IndexTerm *with) {
      return v != nullptr ? SetItem(t, with, n, v, accumulate)
                          : SetItemScalar(t, with, n, value->scalar, accumulate);
    });
  });
}

}  // extern "C"
