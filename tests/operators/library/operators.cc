// A library of custom operators, for tests/test_operators.py: none of them is known to gotorch.
#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <stdexcept>

namespace {

using at::Tensor;

Tensor scale(const Tensor &x, const at::Scalar &by, int64_t times) {
  Tensor y = x;
  for (int64_t i = 0; i < times; i++) y = y * by;
  return y;
}

// Every kind of argument, given back as it came in.
std::tuple<std::vector<Tensor>, std::vector<std::optional<Tensor>>, std::vector<int64_t>,
           std::vector<double>, c10::List<bool>, std::vector<std::string>>
echo_lists(std::vector<Tensor> t, std::vector<std::optional<Tensor>> o, std::vector<int64_t> i,
           std::vector<double> f, c10::List<bool> b, std::vector<std::string> s) {
  return {std::move(t), std::move(o), std::move(i), std::move(f), std::move(b), std::move(s)};
}
std::tuple<at::Scalar, std::string, bool, double, at::Device, std::optional<at::ScalarType>,
           std::optional<int64_t>>
echo_values(const at::Scalar &n, std::string s, bool b, double f, at::Device d,
            std::optional<at::ScalarType> t, std::optional<int64_t> i) {
  return {n, std::move(s), b, f, d, t, i};
}
c10::Dict<std::string, Tensor> echo_dict(c10::Dict<std::string, Tensor> d) { return d; }

Tensor throw_int(const Tensor &) { throw 1; }
Tensor throw_text(const Tensor &) { throw std::runtime_error("a text\nof two lines"); }
Tensor throw_index(const Tensor &) { TORCH_CHECK_INDEX(false, "index 7 is out of bounds"); }

// Not made of others for torch.export, which has to call it.
Tensor affine(const Tensor &x, double by, at::IntArrayRef shift, std::optional<at::ScalarType> t,
              const at::Scalar &plus) {
  return (x * by + shift[0] + plus).to(t.value_or(x.scalar_type()));
}

// They write into their first argument.
void accumulate(Tensor &y, const Tensor &x) { y.add_(x); }
Tensor counted(Tensor &y, const Tensor &x) {
  y.mul_(2).add_(x);
  return y.sum() + 1;
}

// The backward throws what is no std::exception, on the engine's thread.
struct Rude : torch::autograd::Function<Rude> {
  static Tensor forward(torch::autograd::AutogradContext *, const Tensor &x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext *,
                                                 torch::autograd::variable_list) {
    throw std::runtime_error("rude");
  }
};
Tensor rude(const Tensor &x) { return Rude::apply(x); }

}  // namespace

TORCH_LIBRARY(gotorchtest, m) {
  m.def("scale(Tensor x, Scalar by=2, *, int times=1) -> Tensor", scale);
  m.def(
      "echo_lists(Tensor[] t, Tensor?[] o, int[] i, float[] f, bool[] b, str[] s) -> "
      "(Tensor[], Tensor?[], int[], float[], bool[], str[])",
      echo_lists);
  m.def(
      "echo_values(Scalar n, str s, bool b, float f, Device d, ScalarType? t, int? i) -> "
      "(Scalar, str, bool, float, Device, ScalarType?, int?)",
      echo_values);
  m.def("echo_dict(Dict(str, Tensor) d) -> Dict(str, Tensor)", echo_dict);
  m.def(
      "affine.Tensor(Tensor x, float by, int[] shift, *, ScalarType? t=None, Scalar plus=0) -> "
      "Tensor");
  m.def("accumulate(Tensor(a!) y, Tensor x) -> ()");
  m.def("counted(Tensor(a!) y, Tensor x) -> Tensor");
  m.def("throw_int(Tensor x) -> Tensor", throw_int);
  m.def("throw_text(Tensor x) -> Tensor", throw_text);
  m.def("throw_index(Tensor x) -> Tensor", throw_index);
  m.def("rude(Tensor x) -> Tensor", rude);
}

TORCH_LIBRARY_IMPL(gotorchtest, CPU, m) {
  m.impl("affine.Tensor", affine);
  m.impl("accumulate", accumulate);
  m.impl("counted", counted);
}
