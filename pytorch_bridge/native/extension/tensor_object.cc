// tensor_object.cc: torch's Python tensors for compiled graphs, which know only handles.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/python_variable.h>

#include "cgotorch.h"
#include "graph_call.h"

namespace pytorch_bridge {
namespace {

::Tensor unwrap_constant(PyObject *object) {
  if (!THPVariable_Check(object)) {
    PyErr_Format(PyExc_TypeError, "expected a torch.Tensor, got %s", Py_TYPE(object)->tp_name);
    return nullptr;
  }
  return RetainTensor(reinterpret_cast<::Tensor>(THPVariable_Unpack(object).unsafeGetTensorImpl()));
}

::Tensor unwrap(PyObject *object) {
  if (!THPVariable_Check(object)) return unwrap_constant(object);
  const at::Tensor &tensor = THPVariable_Unpack(object);
  if (tensor._fw_grad(0).defined()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a compiled graph computes no derivatives in forward mode, and this tensor has "
                    "a tangent: pass unpack_dual(tensor).primal");
    return nullptr;
  }
  if (at::GradMode::is_enabled() && tensor.requires_grad()) {
    PyErr_SetString(PyExc_RuntimeError,
                    "a compiled graph records no gradient, and this tensor requires one: pass "
                    "tensor.detach(), call under torch.no_grad(), or compile pb.grad");
    return nullptr;
  }
  return RetainTensor(reinterpret_cast<::Tensor>(tensor.unsafeGetTensorImpl()));
}

PyObject *wrap(::Tensor t) {
  if (t == nullptr) return Py_NewRef(Py_None);
  try {
    // The bits of a handle are those of an at::Tensor, see internal.h.
    return THPVariable_Wrap(reinterpret_cast<const at::Tensor &>(t));
  } catch (const std::exception &e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
    return nullptr;
  }
}

}  // namespace

const pb_python tensor_objects = {unwrap, wrap, unwrap_constant};

}  // namespace pytorch_bridge
