// dispatch.cc: operators by name. Arguments are turned into IValues by the types of the schema, as
// PyTorch's own argument parser does, because an int may be meant as a float, a Scalar or a list.
#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_type.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <utility>

#include "boxing.h"
#include "fork.h"
#include "late_devices.h"

namespace cgotorch {
namespace {

// Never closed: its operators stay registered. Global, as Python's torch.ops.load_library loads
// them, so that one such library can use the symbols of another.
void load_library(const std::string &path) {
  std::string found;
  while (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const std::string why = dlerror();
    // Libraries that are built for Python need some of torch's that are loaded there already, and
    // do not say where they are: libtorch.so for one. "libtorch.so: cannot open shared object file:
    // ..."
    const std::string missing = why.substr(0, why.find(':'));
    const std::string beside = std::string(cgotorch_torch_lib()) + "/" + missing;
    const bool python = missing == "libtorch_python.so";
    if (python || missing == found || missing.find('/') != std::string::npos ||
        access(beside.c_str(), R_OK) != 0)
      throw Failure{"OSError",
                    why + (python ? "; it needs Python: link it without -ltorch_python" : "")};
    if (dlopen(beside.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr)
      throw Failure{"OSError", dlerror()};
    found = missing;
  }
}

struct Op {
  c10::OperatorHandle handle;
  const c10::FunctionSchema &schema() const { return handle.schema(); }
};

const Op &op_of(Operator op) {
  if (op == nullptr) throw Failure{"TypeError", "argument 'op' must be an operator, not NULL"};
  return *reinterpret_cast<const Op *>(op);
}

// Arguments ------------------------------------------------------------------------------------

const char *kind_name(int64_t kind) {
  static constexpr const char *kNames[] = {
      "None",  "Tensor", "bool",      "int",         "float",  "complex",
      "str",   "Device", "Generator", "Storage",     "Stream", "list",
      "tuple", "dict",   "object",    "named tuple", "enum"};
  return kind >= 0 && kind <= ValueEnum ? kNames[kind] : "an unknown kind of value";
}

// Walks over a flat array of values.
class Reader {
 public:
  Reader(const Value *values, int64_t n) : next_(values), end_(values + n) {}

  const Value &peek() const {
    if (next_ == end_) throw Failure{"ValueError", "the array of values ends too early"};
    return *next_;
  }
  const Value &take() {
    const Value &v = peek();
    next_++;
    return v;
  }
  bool done() const { return next_ == end_; }
  // The number of values that v claims to be followed by.
  int64_t elements(const Value &v) const {
    const int64_t per = v.kind == ValueDict ? 2 : 1;
    if (v.kind == ValueEnum && v.len != 0) throw Failure{"ValueError", "an enum has a value"};
    if (v.len < 0 || v.len > (end_ - next_) / per)
      throw Failure{"ValueError", "the array of values ends too early"};
    return v.len;
  }

 private:
  const Value *next_;
  const Value *end_;
};

bool sequence(const Value &v) {
  return v.kind == ValueList || v.kind == ValueTuple || v.kind == ValueNamedTuple;
}

// The names of a named tuple's fields, or of an enum's members, as one text.
std::string joined(const std::vector<std::string> &names) {
  std::string out;
  for (const auto &name : names) out += "\n" + name;
  return out;
}

std::string text_of(const Value &v) {
  return v.v.s == nullptr ? std::string() : std::string(v.v.s);
}

std::string text(const Value &v) {
  if (v.v.s == nullptr && v.len != 0) throw Failure{"ValueError", "a string is NULL"};
  return std::string(v.v.s == nullptr ? "" : v.v.s, static_cast<size_t>(v.len));
}

c10::IValue deduce(Reader &r);

// The type of all items: Any where they differ.
c10::TypePtr common_type(const std::vector<c10::IValue> &items) {
  c10::TypePtr type = c10::AnyType::get();
  if (!items.empty()) {
    type = items[0].type();
    for (const auto &item : items)
      if (*item.type() != *type) type = c10::AnyType::get();
    // The type of a tensor value is refined by its shape and dtype; that of a list is not.
    if (items[0].isTensor() && type->kind() != c10::TypeKind::AnyType)
      type = c10::TensorType::get();
    if (std::all_of(items.begin(), items.end(), [](const auto &i) { return i.isTensor(); }))
      type = c10::TensorType::get();
  }
  return type;
}

c10::TypePtr key_type(const std::vector<c10::IValue> &keys) {
  const c10::TypePtr type = common_type(keys);
  switch (type->kind()) {
    case c10::TypeKind::IntType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::TensorType:
    case c10::TypeKind::DeviceObjType:
      return type;
    default:
      throw Failure{"TypeError", "the keys of a dict must be of one type, and of one that may be"};
  }
}

c10::IValue deduce_list(Reader &r, int64_t n) {
  std::vector<c10::IValue> items;
  for (int64_t i = 0; i < n; i++) items.push_back(deduce(r));
  c10::impl::GenericList list(common_type(items));
  for (auto &item : items) list.push_back(std::move(item));
  return list;
}

c10::IValue scalar_value(const Value &v) {
  switch (v.kind) {
    case ValueBool:
      return v.v.i != 0;
    case ValueInt:
      return v.v.i;
    case ValueFloat:
      return v.v.f;
    default:
      return c10::complex<double>(v.v.c[0], v.v.c[1]);
  }
}

// A value where the schema says nothing about the type.
c10::IValue deduce(Reader &r) {
  const Value &v = r.take();
  switch (v.kind) {
    case ValueNone:
      return {};
    case ValueTensor:
      return v.v.tensor == nullptr ? at::Tensor() : in(v.v.tensor, "");
    case ValueBool:
    case ValueInt:
    case ValueFloat:
    case ValueComplex:
      return scalar_value(v);
    case ValueString:
      return text(v);
    case ValueDevice:
      return device(v.v.device);
    case ValueGenerator:
      return generator_opt(v.v.generator);
    case ValueStorage:
      return storage(v.v.storage, "");
    case ValueStream:
      return stream(v.v.stream);
    case ValueList:
      return deduce_list(r, r.elements(v));
    case ValueTuple: {
      std::vector<c10::IValue> items;
      for (int64_t i = 0, n = r.elements(v); i < n; i++) items.push_back(deduce(r));
      return c10::ivalue::Tuple::create(std::move(items));
    }
    case ValueDict: {
      const int64_t n = r.elements(v);
      if (n == 0) break;
      std::vector<c10::IValue> keys, items;
      for (int64_t i = 0; i < n; i++) {
        keys.push_back(deduce(r));
        items.push_back(deduce(r));
      }
      const c10::TypePtr of = common_type(items);
      c10::impl::GenericDict dict(key_type(keys), of);
      for (int64_t i = 0; i < n; i++) dict.insert_or_assign(keys[i], items[i]);
      return dict;
    }
    case ValueObject:
      if (v.v.object != nullptr) return *reinterpret_cast<const c10::IValue *>(v.v.object);
      break;
    default:
      break;
  }
  throw Failure{"TypeError", std::string("a value of kind ") + kind_name(v.kind) +
                                 " needs an argument that says its type"};
}

// What the schema expects, for the error messages.
struct Where {
  const std::string &callee;        // "" where it is no argument
  const std::string &name;          // of the argument
  std::optional<int32_t> repeated;  // of int[2]: 2
};

std::string said(const Where &where) {
  return where.callee.empty() ? where.name : "argument '" + where.name + "' of " + where.callee;
}

[[noreturn]] void mismatch(const Where &where, const c10::Type &type, const Value &v) {
  const bool none = v.kind == ValueTensor && v.v.tensor == nullptr;
  throw Failure{"TypeError", said(where) + " must be " + type.str() + ", not " +
                                 (none ? "None" : kind_name(v.kind))};
}

c10::IValue convert(const Where &where, const c10::Type &type, Reader &r);

c10::IValue convert_tuple(const Where &where, const c10::TupleType &type, Reader &r) {
  const Value &v = r.peek();
  const auto elements = type.elements();
  if (!sequence(v) || v.len != static_cast<int64_t>(elements.size())) mismatch(where, type, v);
  r.take();
  r.elements(v);
  if (v.kind == ValueNamedTuple && type.schema()) {
    std::vector<std::string> names;
    for (const auto &field : type.schema()->arguments()) names.push_back(field.name());
    const std::string given = text_of(v);
    if (given.substr(std::min(given.find('\n'), given.size())) != joined(names))
      throw Failure{"TypeError", said(where) + " must have the fields of " + type.annotation_str() +
                                     " in their order, and has others"};
  }
  std::vector<c10::IValue> items;
  for (const auto &element : elements) items.push_back(convert(where, *element, r));
  if (!type.schema()) return c10::ivalue::Tuple::create(std::move(items));
  return c10::ivalue::Tuple::createNamed(
      std::move(items),
      std::const_pointer_cast<c10::TupleType>(
          std::static_pointer_cast<const c10::TupleType>(type.shared_from_this())));
}

// A member of an enum, by its name.
c10::IValue convert_enum(const Where &where, const c10::EnumType &type, Reader &r) {
  const Value &v = r.peek();
  if (v.kind != ValueEnum) mismatch(where, type, v);
  r.take();
  const std::string given = text_of(v);
  const size_t at = std::min(given.find('\n'), given.size());
  const std::string of = given.substr(0, at), name = given.substr(std::min(at + 1, given.size()));
  const auto known = std::const_pointer_cast<c10::EnumType>(
      std::static_pointer_cast<const c10::EnumType>(type.shared_from_this()));
  if (!of.empty() && of != type.qualifiedClassName().qualifiedName())
    throw Failure{"TypeError", said(where) + " must be of the enum " +
                                   type.qualifiedClassName().qualifiedName() + ", and is of " + of};
  for (const auto &[member, value] : type.enumNamesValues())
    if (member == name)
      return c10::IValue(c10::make_intrusive<c10::ivalue::EnumHolder>(known, member, value));
  throw Failure{"ValueError", said(where) + ": the enum " +
                                  type.qualifiedClassName().qualifiedName() + " has no member '" +
                                  name + "'"};
}

c10::IValue convert_list(const Where &where, const c10::ListType &type, Reader &r) {
  const Value &v = r.peek();
  const c10::Type &element = *type.getElementType();
  // Kernels take lists of SymInts as lists of ints, and all of ours are ints.
  const bool symint = element.kind() == c10::TypeKind::SymIntType;
  c10::impl::GenericList list(symint ? c10::TypePtr(c10::IntType::get()) : type.getElementType());
  if (sequence(v)) {
    r.take();
    const int64_t n = r.elements(v);
    list.reserve(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; i++) list.push_back(convert(where, element, r));
  } else if (where.repeated.has_value() && v.kind != ValueNone) {
    // int[2] takes a single int for both.
    const c10::IValue item = convert(where, element, r);
    for (int32_t i = 0; i < *where.repeated; i++) list.push_back(item);
  } else {
    mismatch(where, type, v);
  }
  return list;
}

c10::IValue convert(const Where &where, const c10::Type &type, Reader &r) {
  const Value &v = r.peek();
  const auto expect = [&](bool ok) -> const Value & {
    if (!ok) mismatch(where, type, v);
    return r.take();
  };
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
      return in(expect(v.kind == ValueTensor && v.v.tensor != nullptr).v.tensor, "");
    case c10::TypeKind::OptionalType:
      if (v.kind == ValueNone || (v.kind == ValueTensor && v.v.tensor == nullptr)) {
        r.take();
        return {};
      }
      return convert(where, *type.castRaw<c10::OptionalType>()->getElementType(), r);
    case c10::TypeKind::NumberType:
      return scalar_value(expect(v.kind >= ValueBool && v.kind <= ValueComplex));
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
    case c10::TypeKind::QSchemeType:
      return expect(v.kind == ValueInt).v.i;
    case c10::TypeKind::FloatType:
    case c10::TypeKind::SymFloatType:
      expect(v.kind == ValueInt || v.kind == ValueFloat);
      return v.kind == ValueInt ? static_cast<double>(v.v.i) : v.v.f;
    case c10::TypeKind::ComplexType:
      expect(v.kind == ValueInt || v.kind == ValueFloat || v.kind == ValueComplex);
      return v.kind == ValueInt     ? c10::complex<double>(static_cast<double>(v.v.i))
             : v.kind == ValueFloat ? c10::complex<double>(v.v.f)
                                    : c10::complex<double>(v.v.c[0], v.v.c[1]);
    case c10::TypeKind::BoolType:
    case c10::TypeKind::SymBoolType:
      return expect(v.kind == ValueBool).v.i != 0;
    case c10::TypeKind::StringType:
      return text(expect(v.kind == ValueString));
    case c10::TypeKind::DeviceObjType:
      expect(v.kind == ValueDevice || v.kind == ValueString);
      if (v.kind == ValueDevice) return device(v.v.device);
      {
        const at::Device d(text(v));
        return device({static_cast<int32_t>(d.type()), d.index()});
      }
    case c10::TypeKind::GeneratorType:
      return generator_opt(
          expect(v.kind == ValueGenerator && v.v.generator != nullptr).v.generator);
    case c10::TypeKind::StorageType:
      return storage(expect(v.kind == ValueStorage && v.v.storage != nullptr).v.storage, "");
    case c10::TypeKind::StreamObjType:
      return stream(expect(v.kind == ValueStream).v.stream);
    case c10::TypeKind::NoneType:
      expect(v.kind == ValueNone);
      return {};
    case c10::TypeKind::ListType:
      return convert_list(where, type.expectRef<c10::ListType>(), r);
    case c10::TypeKind::TupleType:
      return convert_tuple(where, type.expectRef<c10::TupleType>(), r);
    case c10::TypeKind::EnumType:
      return convert_enum(where, type.expectRef<c10::EnumType>(), r);
    case c10::TypeKind::DictType: {
      const auto &of = type.expectRef<c10::DictType>();
      expect(v.kind == ValueDict);
      c10::impl::GenericDict dict(of.getKeyType(), of.getValueType());
      for (int64_t i = 0, n = r.elements(v); i < n; i++) {
        c10::IValue key = convert(where, *of.getKeyType(), r);
        dict.insert_or_assign(std::move(key), convert(where, *of.getValueType(), r));
      }
      return dict;
    }
    default: {
      // Classes, unions, type variables: the kernel checks.
      c10::IValue value = deduce(r);
      if (type.kind() == c10::TypeKind::ClassType && !value.isObject()) mismatch(where, type, v);
      return value;
    }
  }
}

}  // namespace

std::vector<c10::IValue> box_arguments(const Callee &callee, const Value *args, int64_t n_values,
                                       const char *const *names, int64_t n_args) {
  const auto &schema = callee.schema;
  const auto wanted = c10::ArrayRef<c10::Argument>(schema.arguments()).slice(callee.first);
  const auto fail = [&](const std::string &what) {
    throw Failure{"TypeError",
                  callee.name + " " + what + ". Its schema is " + c10::toString(schema)};
  };
  std::vector<c10::IValue> stack(wanted.size());
  std::vector<bool> given(wanted.size());
  Reader r(args, n_values);
  for (int64_t i = 0; i < n_args; i++) {
    int64_t at = i;
    if (names != nullptr && names[i] != nullptr) {
      const auto place = schema.argumentIndexWithName(names[i]);
      if (!place || static_cast<size_t>(*place) < callee.first)
        fail(std::string("has no argument '") + names[i] + "'");
      at = *place - static_cast<int64_t>(callee.first);
    } else if (i >= static_cast<int64_t>(wanted.size())) {
      fail("takes " + std::to_string(wanted.size()) + " arguments, not " + std::to_string(n_args));
    } else if (wanted[at].kwarg_only()) {
      fail("takes the argument '" + wanted[at].name() + "' by name only");
    }
    if (given[at]) fail("was given the argument '" + wanted[at].name() + "' twice");
    given[at] = true;
    stack[at] = convert({callee.name, wanted[at].name(), wanted[at].N()}, *wanted[at].type(), r);
  }
  if (!r.done()) throw Failure{"ValueError", "there are more values than arguments"};
  for (size_t i = 0; i < wanted.size(); i++) {
    if (given[i]) continue;
    if (!wanted[i].default_value()) fail("misses the argument '" + wanted[i].name() + "'");
    stack[i] = *wanted[i].default_value();
  }
  return stack;
}

c10::IValue box_value(const std::string &name, const c10::TypePtr &type, const Value *values,
                      int64_t n) {
  Reader r(values, n);
  c10::IValue v = convert({"", name, std::nullopt}, *type, r);
  if (!r.done()) throw Failure{"ValueError", "there are more values than one"};
  return v;
}

namespace {

// Results --------------------------------------------------------------------------------------

int64_t element_kind(const c10::IValue &list) {
  switch (list.toList().elementType()->kind()) {
    case c10::TypeKind::TensorType:
      return ValueTensor;
    case c10::TypeKind::BoolType:
      return ValueBool;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return ValueInt;
    case c10::TypeKind::FloatType:
      return ValueFloat;
    case c10::TypeKind::ComplexType:
      return ValueComplex;
    case c10::TypeKind::StringType:
      return ValueString;
    default:
      return ValueNone;
  }
}

// Frees what was made so far when a later value fails.
class Writer {
 public:
  explicit Writer(bool classes_only) : classes_only_(classes_only) {}
  Writer(const Writer &) = delete;
  Writer &operator=(const Writer &) = delete;
  ~Writer() {
    if (!values_.empty()) FreeValues(copy(), static_cast<int64_t>(values_.size()), true);
  }

  void add(const c10::IValue &v);

  Value *copy() const {
    const size_t bytes = sizeof(Value) * std::max<size_t>(values_.size(), 1);
    auto *out = static_cast<Value *>(std::malloc(bytes));
    if (out != nullptr && !values_.empty()) std::memcpy(out, values_.data(), bytes);
    return out;
  }
  void release(Value **values, int64_t *n) {
    *values = copy();
    if (*values == nullptr) throw std::bad_alloc();
    *n = static_cast<int64_t>(values_.size());
    values_.clear();
  }

 private:
  Value &push(int64_t kind, int64_t len = 0) {
    values_.emplace_back();
    values_.back().kind = kind;
    values_.back().len = len;
    return values_.back();
  }
  void push_string(int64_t kind, const std::string &s, int64_t len) {
    const char *copy = copy_string(s);
    push(kind, len).v.s = copy;
  }
  std::vector<Value> values_;
  bool classes_only_;
  int depth_ = 0;
};

void Writer::add(const c10::IValue &v) {
  constexpr int kMaxDepth = 1000;
  if (depth_ == kMaxDepth)
    throw Failure{"ValueError", "a result is nested too deeply, or contains itself"};
  depth_++;
  if (v.isNone()) {
    push(ValueNone);
  } else if (v.isTensor()) {
    push(ValueTensor).v.tensor = cgotorch::release(at::Tensor(v.toTensor()));
  } else if (v.isBool()) {
    push(ValueBool).v.i = v.toBool();
  } else if (v.isInt()) {
    push(ValueInt).v.i = v.toInt();
  } else if (v.isSymInt()) {
    push(ValueInt).v.i = v.toSymInt().expect_int();
  } else if (v.isDouble()) {
    push(ValueFloat).v.f = v.toDouble();
  } else if (v.isComplexDouble()) {
    const auto c = v.toComplexDouble();
    Value &out = push(ValueComplex);
    out.v.c[0] = c.real();
    out.v.c[1] = c.imag();
  } else if (v.isString()) {
    const std::string &s = v.toStringRef();
    push_string(ValueString, s, static_cast<int64_t>(s.size()));
  } else if (v.isDevice()) {
    const at::Device d = v.toDevice();
    push(ValueDevice).v.device = {static_cast<int32_t>(d.type()), d.index()};
  } else if (v.isGenerator()) {
    push(ValueGenerator).v.generator =
        reinterpret_cast<Generator>(at::Generator(v.toGenerator()).unsafeReleaseGeneratorImpl());
  } else if (v.isStorage()) {
    push(ValueStorage).v.storage =
        reinterpret_cast<Storage>(at::Storage(v.toStorage()).unsafeReleaseStorageImpl());
  } else if (v.isStream()) {
    const auto s = v.toStream().pack3();
    push(ValueStream).v.stream = {s.stream_id, s.device_index, static_cast<int64_t>(s.device_type)};
  } else if (v.isList()) {
    const auto items = v.toListRef();
    push(ValueList, static_cast<int64_t>(items.size())).v.i = element_kind(v);
    for (const auto &item : items) add(item);
  } else if (v.isTuple()) {
    const auto &items = v.toTupleRef().elements();
    const auto n = static_cast<int64_t>(items.size());
    const auto type = v.toTuple()->type();
    if (type->schema()) {
      std::vector<std::string> names;
      for (const auto &field : type->schema()->arguments()) names.push_back(field.name());
      push_string(ValueNamedTuple,
                  (type->name() ? type->name()->qualifiedName() : "") + joined(names), n);
    } else {
      push(ValueTuple, n);
    }
    for (const auto &item : items) add(item);
  } else if (v.isGenericDict()) {
    const auto dict = v.toGenericDict();
    push(ValueDict, static_cast<int64_t>(dict.size()));
    for (const auto &entry : dict) {
      add(entry.key());
      add(entry.value());
    }
  } else if (v.isEnum()) {
    const auto holder = v.toEnumHolder();
    push_string(ValueEnum, holder->qualifiedClassName() + "\n" + holder->name(), 0);
    add(holder->value());
  } else if (classes_only_ && !v.isObject()) {
    throw Failure{"NotImplementedError", "a value of type " + v.type()->annotation_str() +
                                             " has no form outside of scripts"};
  } else {
    auto object = std::make_unique<c10::IValue>(v);
    push(ValueObject, v.isModule() ? 1 : 0).v.object = reinterpret_cast<Object>(object.release());
  }
  depth_--;
}

}  // namespace

void unbox(const std::vector<c10::IValue> &from, bool classes_only, Value **values, int64_t *n) {
  Writer w(classes_only);
  for (const auto &v : from) w.add(v);
  w.release(values, n);
}

const char *copy_string(const std::string &s) {
  auto *out = static_cast<char *>(std::malloc(s.size() + 1));
  if (out == nullptr) throw std::bad_alloc();
  std::memcpy(out, s.c_str(), s.size() + 1);
  return out;
}

namespace {

[[noreturn]] void unknown(const c10::OperatorName &name) {
  std::string overloads;
  for (const auto &known : c10::Dispatcher::singleton().getAllOpNames()) {
    if (known.name != name.name) continue;
    overloads += overloads.empty() ? "" : ", ";
    overloads += "'" + known.overload_name + "'";
  }
  if (overloads.empty())
    throw Failure{"AttributeError", "there is no operator '" + name.name + "'"};
  throw Failure{"AttributeError", "operator '" + name.name + "' has no overload '" +
                                      name.overload_name + "'; it has " + overloads};
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *FindOperator(const char *name, const char *overload, Operator *result) {
  return guard([&] {
    static auto *known = new std::map<std::pair<std::string, std::string>, std::unique_ptr<Op>>();
    const std::pair<std::string, std::string> key(str(name, "name"), str(overload, "overload"));
    const std::lock_guard<std::mutex> lock(fork_mutexes.operators);
    auto it = known->find(key);
    if (it == known->end()) {
      const c10::OperatorName of(key.first, key.second);
      const auto handle = c10::Dispatcher::singleton().findSchema(of);
      if (!handle) unknown(of);
      it = known->emplace(key, std::make_unique<Op>(Op{*handle})).first;
    }
    *result = reinterpret_cast<Operator>(it->second.get());
  });
}

const char *OperatorSchema(Operator op, const char **result) {
  return guard([&] { *result = copy_string(c10::toString(op_of(op).schema())); });
}

int64_t OperatorArity(Operator op) {
  return op == nullptr ? 0 : static_cast<int64_t>(op_of(op).schema().arguments().size());
}

int64_t OperatorArgument(Operator op, const char *name) {
  if (op == nullptr || name == nullptr) return -1;
  return op_of(op).schema().argumentIndexWithName(name).value_or(-1);
}

const char *CallOperator(Operator op, const Value *args, int64_t n_values, const char *const *names,
                         int64_t n_args, Value **results, int64_t *n_results) {
  return guard([&] {
    const auto &schema = op_of(op).schema();
    auto stack = box_arguments({schema, c10::toString(schema.operator_name())}, args, n_values,
                               names, n_args);
    op_of(op).handle.callBoxed(&stack);
    unbox(stack, false, results, n_results);
  });
}

void FreeValues(Value *values, int64_t n, bool handles) {
  if (values == nullptr) return;
  for (int64_t i = 0; i < n; i++) {
    const Value &v = values[i];
    if (v.kind == ValueString || v.kind == ValueNamedTuple || v.kind == ValueEnum)
      std::free(const_cast<char *>(v.v.s));
    if (v.kind == ValueObject) FreeObject(v.v.object);
    if (!handles) continue;
    if (v.kind == ValueTensor) FreeTensor(v.v.tensor);
    if (v.kind == ValueGenerator) FreeGenerator(v.v.generator);
    if (v.kind == ValueStorage) FreeStorage(v.v.storage);
  }
  std::free(values);
}

Object RetainObject(Object object) {
  if (object == nullptr) return nullptr;
  return reinterpret_cast<Object>(new c10::IValue(*reinterpret_cast<const c10::IValue *>(object)));
}

void FreeObject(Object object) { delete reinterpret_cast<c10::IValue *>(object); }

const char *ListOperators(const char **result) {
  return guard([&] {
    std::vector<std::string> lines;
    auto &dispatcher = c10::Dispatcher::singleton();
    for (const auto &name : dispatcher.getAllOpNames())
      if (const auto handle = dispatcher.findSchema(name))
        lines.push_back(c10::toString(handle->schema()));
    std::sort(lines.begin(), lines.end());
    std::string out;
    for (const auto &line : lines) out += line + "\n";
    *result = copy_string(out);
  });
}

const char *LoadOperatorLibrary(const char *path) {
  return guard([&] {
    load_library(std::string(str(path, "path")));
    devices_added();  // it may bring a backend
  });
}

}  // extern "C"
