// boundary.cc: torch.Tensor to a handle of the C ABI and back, without a copy.
//
// A handle is the at::TensorImpl that a Python tensor holds, with one more reference. libtorch
// keeps the Python object of a TensorImpl, so a tensor that comes back is the object that went.
#include <torch/csrc/autograd/python_variable.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "cgotorch.h"
#include "go_runtimes.h"
#include "graph_call.h"
#include "python.h"

namespace {

std::string name_of_type(py::handle object) {
  return py::str(py::type::handle_of(object).attr("__qualname__")).cast<std::string>();
}

// The tensor in object; nullptr for None. Borrowed from object.
::Tensor tensor_of(py::handle object, const char *function) {
  if (object.is_none()) return nullptr;
  if (!THPVariable_Check(object.ptr())) {
    throw py::type_error(std::string(function) + "() needs a torch.Tensor or None, not " +
                         name_of_type(object));
  }
  return reinterpret_cast<::Tensor>(THPVariable_Unpack(object.ptr()).unsafeGetTensorImpl());
}

::Tensor handle_of(py::handle object, const char *function) {
  if (!PyLong_CheckExact(object.ptr())) {
    throw py::type_error(std::string(function) + "() needs a handle, an int, not " +
                         name_of_type(object));
  }
  const uint64_t bits = PyLong_AsUnsignedLongLong(object.ptr());
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  // What is out of range is -1. Handles are addresses of objects that hold pointers.
  if (bits % alignof(void *) != 0) {
    throw py::value_error(std::string(function) + "(): " + py::repr(object).cast<std::string>() +
                          " is no handle");
  }
  return reinterpret_cast<::Tensor>(bits);
}

py::object to_int(::Tensor t) {
  return py::reinterpret_steal<py::object>(
      PyLong_FromUnsignedLongLong(reinterpret_cast<uint64_t>(t)));
}

py::object wrap(::Tensor t) {
  if (t == nullptr) return py::none();
  // The bits of a handle are those of an at::Tensor, see internal.h.
  PyObject *object = THPVariable_Wrap(reinterpret_cast<const at::Tensor &>(t));
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

}  // namespace

PYBIND11_MODULE(_compiled, m) {
  if (const char *problem = cgotorch_check()) {
    const std::string text = problem;
    FreeString(problem);
    throw py::import_error(
        text.substr(text.find(": ") == std::string::npos ? 0 : text.find(": ") + 2));
  }
  m.def(
      "to_handle", [](py::handle t) { return to_int(RetainTensor(tensor_of(t, "to_handle"))); },
      py::arg("tensor"), py::pos_only());
  m.def(
      "borrow", [](py::handle t) { return to_int(tensor_of(t, "borrow")); }, py::arg("tensor"),
      py::pos_only());
  m.def(
      "from_handle",
      [](py::handle handle) {
        const ::Tensor t = handle_of(handle, "from_handle");
        py::object object = wrap(t);
        FreeTensor(t);
        return object;
      },
      py::arg("handle"), py::pos_only());
  m.def(
      "peek_handle", [](py::handle handle) { return wrap(handle_of(handle, "peek_handle")); },
      py::arg("handle"), py::pos_only());
  m.def(
      "free_handle", [](py::handle handle) { FreeTensor(handle_of(handle, "free_handle")); },
      py::arg("handle"), py::pos_only());
  m.def(
      "call_shared",
      [](uint64_t address, int64_t index, const py::bytes &request) {
        using Function = int64_t(int64_t index, const void *request, int64_t n, void **reply);
        char *data = nullptr;
        Py_ssize_t n = 0;
        PyBytes_AsStringAndSize(request.ptr(), &data, &n);
        void *reply = nullptr;
        int64_t size = 0;
        {
          const py::gil_scoped_release released;
          size = reinterpret_cast<Function *>(address)(index, data, n, &reply);
        }
        const std::unique_ptr<void, decltype(&std::free)> owned(reply, &std::free);
        return py::bytes(static_cast<const char *>(reply), static_cast<size_t>(size));
      },
      py::arg("address"), py::arg("index"), py::arg("request"), py::pos_only());
  m.def("end_other_threads", cgotorch_end_other_threads, py::call_guard<py::gil_scoped_release>());
  m.def("share_preemption", share_preemption);
  m.def("live_handles", [] {
    int64_t made = 0, freed = 0;
    cgotorch_handles(&made, &freed);
    return made - freed;
  });
  if (!pytorch_bridge::add_graphs(m.ptr())) throw py::error_already_set();
}
