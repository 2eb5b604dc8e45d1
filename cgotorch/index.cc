// index.cc: a[...] as in Python, by the functions of at::indexing, which Python's own are made from.
#define AT_PER_OPERATOR_HEADERS  // or TensorIndexing.h takes in all of ATen's functions
#include <ATen/TensorIndexing.h>
#include <c10/util/SmallVector.h>

#include <cstring>
#include <vector>

#include "thunk.h"

namespace cgotorch {
namespace {

namespace ix = at::indexing;

using Terms = c10::SmallVector<ix::TensorIndex, 4>;

// A list of n elements as an index tensor where the indexed tensor is.
at::Tensor list_tensor(const void *data, int64_t n, at::ScalarType dtype, const at::Device &device) {
  if (n < 0 || (n > 0 && data == nullptr)) throw_value("an index list");
  at::Tensor t = at::empty({n}, at::TensorOptions(at::kCPU).dtype(dtype));
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
      throw_value("an IndexTerm's kind");
  }
}

Terms convert(const IndexTerm *terms, int64_t n, const at::Tensor &self) {
  Terms out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) add_term(out, terms[i], self);
  return out;
}

at::Tensor get(const at::Tensor &self, const IndexTerm *terms, int64_t n) {
  return ix::get_item(self, convert(terms, n, self));
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
  const at::Tensor tensor = ix::asTensor(value, self);
  view.index_put_(ix::impl::typeConvertIndices(view, std::move(indices)),
                  tensor.view_symint(ix::slicePrefix1sSize(tensor.sym_sizes())), true);
}

template <class Value>
void set(const at::Tensor &self, const IndexTerm *terms, int64_t n, const Value &value, bool add) {
  const Terms converted = convert(terms, n, self);
  if (add)
    accumulate(self, converted, value);
  else
    ix::set_item(self, converted, value);
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

const char *cgotorch_get_item(Tensor self, const IndexTerm *terms, int64_t n,
                              cgotorch_block *block) {
  enter_thread();
  auto *b = reinterpret_cast<ItemBlock *>(block);
  const char *err = GetItem(self, terms, n, &b->result.handle);
  if (err == nullptr) describe(b->result);
  block->scope = tls.scope;
  return err;
}

const char *cgotorch_set_item(Tensor self, const IndexTerm *terms, int64_t n,
                              const ItemValue *value) {
  enter_thread();
  const bool accumulate = value->accumulate != 0;
  if (value->tensor != nullptr) return SetItem(self, terms, n, value->tensor, accumulate);
  return SetItemScalar(self, terms, n, value->scalar, accumulate);
}

}  // extern "C"
