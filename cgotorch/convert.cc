// convert.cc: C arguments to ATen's and back, where it takes more than a line. A number from
// outside is checked before it becomes an enum, because ATen's switches have no case for others.
#include <ATen/core/List.h>
#include <c10/core/SymIntArrayRef.h>

#include <memory>

#include "internal.h"

namespace cgotorch {
namespace {

[[noreturn]] void throw_number(const char *kind, const char *what, int64_t number) {
  throw Failure{kind, std::string(what) + " " + std::to_string(number)};
}

}  // namespace

c10::SymIntArrayRef symints(const int64_t *p, int64_t n) {
  return c10::fromIntArrayRefSlow(ints(p, n));
}

at::Scalar scalar(const Scalar &s) {
  switch (s.kind) {
    case ScalarBool:
      return at::Scalar(s.v.i != 0);
    case ScalarInt:
      return at::Scalar(s.v.i);
    case ScalarUInt:
      return at::Scalar(static_cast<uint64_t>(s.v.i));
    case ScalarFloat:
      return at::Scalar(s.v.f);
    case ScalarComplex:
      return at::Scalar(c10::complex<double>(s.v.c[0], s.v.c[1]));
    case ScalarNone:
      throw Failure{"TypeError", "a number is required, not none"};
    default:
      throw_number("TypeError", "unknown kind of Scalar", s.kind);
  }
}

std::vector<at::Scalar> scalars(const Scalar *p, int64_t n) {
  std::vector<at::Scalar> out;
  out.reserve(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; i++) out.push_back(scalar(p[i]));
  return out;
}

Scalar from_scalar(const at::Scalar &s) {
  Scalar out{};
  if (s.isComplex()) {
    const auto z = s.toComplexDouble();
    out.kind = ScalarComplex;
    out.v.c[0] = z.real();
    out.v.c[1] = z.imag();
  } else if (s.isFloatingPoint()) {
    out.kind = ScalarFloat;
    out.v.f = s.toDouble();
  } else if (s.isBoolean()) {
    out.kind = ScalarBool;
    out.v.i = s.toBool();
  } else if (s.type() == at::ScalarType::UInt64) {
    out.kind = ScalarUInt;
    out.v.i = static_cast<int64_t>(s.toUInt64());
  } else {
    out.kind = ScalarInt;
    out.v.i = s.toLong();
  }
  return out;
}

at::ScalarType dtype(ScalarType t) {
  if (t < 0 || t >= static_cast<ScalarType>(at::ScalarType::Undefined))
    throw_number("TypeError", "this torch has no dtype number", t);
  return static_cast<at::ScalarType>(t);
}

at::Layout layout(Layout l) {
  if (l < 0 || l >= static_cast<Layout>(at::Layout::NumOptions))
    throw_number("TypeError", "this torch has no layout number", l);
  return static_cast<at::Layout>(l);
}

at::MemoryFormat memory_format(MemoryFormat f) {
  if (f < 0 || f >= static_cast<MemoryFormat>(at::MemoryFormat::NumOptions))
    throw_number("TypeError", "this torch has no memory format number", f);
  return static_cast<at::MemoryFormat>(f);
}

at::Device device(Device d) {
  if (d.type < 0 || d.type >= c10::COMPILE_TIME_MAX_DEVICE_TYPES)
    throw_number("RuntimeError", "this torch has no device type number", d.type);
  const c10::DeviceIndex index = device_index(d.index);
  const auto type = static_cast<at::DeviceType>(d.type);
  if (type == at::DeviceType::CUDA) need_cuda();
  return at::Device(type, index);
}

c10::DeviceIndex device_index(int64_t i) {
  if (i < -1 || i > INT8_MAX) throw_number("RuntimeError", "device index out of range:", i);
  return static_cast<c10::DeviceIndex>(i);
}

at::Stream stream(const Stream &s) {
  const at::Device d =
      device({static_cast<int32_t>(s.device_type), static_cast<int32_t>(s.device_index)});
  return at::Stream::unpack3(s.id, d.index(), d.type());
}

void out_list(Tensor **result, int64_t *result_len, std::vector<at::Tensor> &&t) {
  // malloc(0) may return NULL, which would read as a failure.
  auto *array = static_cast<Tensor *>(std::malloc(sizeof(Tensor) * (t.empty() ? 1 : t.size())));
  if (array == nullptr) throw std::bad_alloc();
  for (size_t i = 0; i < t.size(); i++) array[i] = release(std::move(t[i]));
  *result = array;
  *result_len = static_cast<int64_t>(t.size());
}

}  // namespace cgotorch

extern "C" void FreeArray(void *array) { std::free(array); }
