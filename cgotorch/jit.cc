// jit.cc: TorchScript. libtorch reads, runs and writes scripts; this file looks at files first, and
// turns values and errors into those of C.
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/core/Dict.h>
#include <ATen/core/class_type.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/ops/_validate_sparse_compressed_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/csrc/jit/serialization/export.h>
#include <torch/csrc/jit/serialization/import.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "archive.h"
#include "boxing.h"
#include "jit_checks.h"

namespace cgotorch {
namespace {

using c10::IValue;
using c10::TypeKind;

// Errors ------------------------------------------------------------------------------------------

std::string_view first_line(std::string_view s) {
  const size_t from = s.find_first_not_of("\n ");
  if (from == std::string_view::npos) return "";
  s.remove_prefix(from);
  return s.substr(0, s.find('\n'));
}

constexpr std::string_view kFailed =
    "The following operation failed in the TorchScript interpreter.";

// The message of an error in a script. libtorch puts the script's call stack before it, in many
// lines.
std::string_view message_of(std::string_view text) {
  constexpr std::string_view kHere = "<--- HERE\n", kError = "\nRuntimeError: ";
  if (text.find(kFailed) == std::string_view::npos) return first_line(text);
  const size_t here = text.rfind(kHere);
  if (here != std::string_view::npos) text.remove_prefix(here + kHere.size() - 1);
  const size_t error = text.find(kError);
  if (error != std::string_view::npos) text.remove_prefix(error + kError.size());
  return first_line(text);
}

// The name of an exception's class, for as long as the calling thread has no other one. Python
// names "builtins.ValueError" for a class of its own, and a script's own class "__torch__.MyError".
const char *kind_of(const std::string &qualified) {
  static thread_local std::string kind;
  kind = qualified.substr(qualified.rfind('.') + 1);
  const bool is_name = !kind.empty() && std::all_of(kind.begin(), kind.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  });
  if (!is_name) kind = "RuntimeError";
  return kind.c_str();
}

// Runs what runs scripts. Errors have the script's message instead of a traceback.
template <class F>
void script(F &&f) {
  try {
    f();
  } catch (const torch::jit::JITException &e) {
    const auto original = e.getOriginalMsg();
    std::string_view message = original ? first_line(*original) : message_of(e.what());
    // Of an assert libtorch has no class.
    constexpr std::string_view kAssert = "AssertionError: ";
    std::string kind = e.getPythonClassName().value_or("RuntimeError");
    if (!e.getPythonClassName() && message.substr(0, kAssert.size()) == kAssert) {
      kind = "AssertionError";
      message.remove_prefix(kAssert.size());
    }
    throw Failure{kind_of(kind), std::string(message)};
  } catch (const torch::jit::ObjectAttributeError &e) {
    throw Failure{"AttributeError", e.what()};
  } catch (const c10::NotImplementedError &e) {
    throw Failure{"NotImplementedError", std::string(message_of(e.what_without_backtrace()))};
  } catch (const c10::Error &e) {
    const std::string text = e.what_without_backtrace();
    if (text.find(kFailed) == std::string::npos) throw;
    const bool memory = dynamic_cast<const c10::OutOfMemoryError *>(&e) != nullptr;
    throw Failure{memory ? "OutOfMemoryError" : "RuntimeError", python_message(message_of(text))};
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &e) {
    throw Failure{"RuntimeError", python_message(message_of(e.what()))};
  }
}

// Objects -----------------------------------------------------------------------------------------

Object give(IValue v) {
  auto out = std::make_unique<IValue>(std::move(v));
  return reinterpret_cast<Object>(out.release());
}

torch::jit::Object object(Object o) {
  if (o == nullptr) throw Failure{"TypeError", "the object is NULL"};
  const auto &v = *reinterpret_cast<const IValue *>(o);
  if (v.isNone()) throw Failure{"ValueError", "the object was used after Close"};
  if (!v.isObject())
    throw Failure{"TypeError",
                  "a value of type " + v.type()->annotation_str() + " is no object of a class"};
  return torch::jit::Object(v.toObject());
}

torch::jit::Module module(Object o) {
  const auto found = object(o);
  if (!found.type()->is_module())
    throw Failure{"TypeError", found.type()->annotation_str() + " is no module"};
  return torch::jit::Module(found._ivalue());
}

void unbox_one(IValue v, Value **result, int64_t *n) { unbox({std::move(v)}, true, result, n); }

IValue tuple(std::vector<IValue> items) { return c10::ivalue::Tuple::create(std::move(items)); }

using Items = c10::impl::GenericList;
Items items() { return Items(c10::AnyType::get()); }

IValue describe(const torch::jit::Object &o) {
  const auto type = o.type();
  const bool module = type->is_module();
  Items attributes = items(), methods = items();
  for (size_t i = 0; i < type->numAttributes(); i++)
    attributes.push_back(tuple({type->getAttributeName(i), type->getAttribute(i)->annotation_str(),
                                module && type->is_parameter(i), module && type->is_buffer(i)}));
  for (const torch::jit::Function *method : type->methods()) {
    const auto &schema = method->getSchema();
    Items arguments = items();
    const auto &all = schema.arguments();
    for (size_t i = 1; i < all.size(); i++) {
      const auto &value = all[i].default_value();
      arguments.push_back(tuple({all[i].name(), all[i].type()->annotation_str(), value.has_value(),
                                 value.value_or(IValue())}));
    }
    const c10::TypePtr returns =
        schema.returns().size() == 1 ? schema.returns()[0].type() : c10::NoneType::get();
    Items results = items();
    if (const auto of = returns->cast<c10::TupleType>()) {
      for (size_t i = 0; i < of->elements().size(); i++)
        results.push_back(tuple({of->schema() ? of->schema()->arguments()[i].name() : "",
                                 of->elements()[i]->annotation_str()}));
    } else {
      results.push_back(tuple({std::string(), returns->annotation_str()}));
    }
    methods.push_back(tuple(
        {method->name(), c10::toString(schema), returns->annotation_str(), arguments, results}));
  }
  return tuple({type->name() ? type->name()->qualifiedName() : type->annotation_str(), module,
                attributes, methods});
}

// Modules -----------------------------------------------------------------------------------------

struct NamedModule {
  std::string name;
  c10::intrusive_ptr<c10::ivalue::Object> module;
};

// The name of what is in a module.
std::string below(const std::string &name, const std::string &attribute) {
  return name.empty() ? attribute : name + "." + attribute;
}

// known are the modules that were found, or with repeat those on the way: by an interface a module
// may contain itself.
void walk(const std::string &name, const c10::intrusive_ptr<c10::ivalue::Object> &m, bool repeat,
          std::unordered_set<const void *> &known, std::vector<NamedModule> &found) {
  if (!known.insert(m.get()).second) return;
  found.push_back({name, m});
  const auto type = m->type();
  for (size_t i = 0; i < type->numAttributes(); i++)
    if (type->getAttribute(i)->is_module() && m->getSlot(i).isObject())
      walk(below(name, type->getAttributeName(i)), m->getSlot(i).toObject(), repeat, known, found);
  if (repeat) known.erase(m.get());
}

// The modules in a module, in the order of Python's named_modules: each once, or by all of their
// names.
std::vector<NamedModule> modules(const torch::jit::Module &root, bool repeat) {
  std::unordered_set<const void *> known;
  std::vector<NamedModule> found;
  walk("", root._ivalue(), repeat, known, found);
  return found;
}

IValue tensors(const torch::jit::Module &root, int64_t kinds, bool once) {
  c10::Dict<std::string, at::Tensor> out;
  std::unordered_set<const void *> known;
  for (const auto &[name, m] : modules(root, !once)) {
    const auto type = m->type();
    for (const int64_t kind : {JITParameters, JITBuffers}) {
      if ((kinds & kind) == 0) continue;
      for (size_t i = 0; i < type->numAttributes(); i++) {
        if (!(kind == JITParameters ? type->is_parameter(i) : type->is_buffer(i))) continue;
        const IValue &v = m->getSlot(i);
        if (!v.isTensor() || !v.toTensor().defined()) continue;
        if (once && !known.insert(v.toTensor().unsafeGetTensorImpl()).second) continue;
        out.insert_or_assign(below(name, type->getAttributeName(i)), v.toTensor());
      }
    }
  }
  return out;
}

// Loading -----------------------------------------------------------------------------------------

// Holds what was read to the types that the code gives it: the interpreter believes them.
class Types {
 public:
  explicit Types(const std::string &path) : path_(path) {}

  void check(const IValue &v, const c10::TypePtr &type, const std::string &where) {
    switch (type->kind()) {
      case TypeKind::OptionalType:
        if (!v.isNone()) check(v, type->expectRef<c10::OptionalType>().getElementType(), where);
        return;
      case TypeKind::ListType: {
        if (!v.isList()) wrong(v, type, where);
        const auto &element = type->expectRef<c10::ListType>().getElementType();
        for (const IValue &item : v.toListRef()) check(item, element, where);
        return;
      }
      case TypeKind::DictType: {
        if (!v.isGenericDict()) wrong(v, type, where);
        const auto &of = type->expectRef<c10::DictType>();
        for (const auto &entry : v.toGenericDict()) {
          check(entry.key(), of.getKeyType(), where);
          check(entry.value(), of.getValueType(), where);
        }
        return;
      }
      case TypeKind::TupleType: {
        const auto elements = type->expectRef<c10::TupleType>().elements();
        if (!v.isTuple() || v.toTupleRef().elements().size() != elements.size())
          wrong(v, type, where);
        for (size_t i = 0; i < elements.size(); i++)
          check(v.toTupleRef().elements()[i], elements[i], where);
        return;
      }
      case TypeKind::TensorType:
        if (!v.isTensor()) wrong(v, type, where);
        tensor(v.toTensor(), where);
        return;
      case TypeKind::AnyType:
        break;
      default:
        // A Union, an interface, a class: what the value says of itself.
        if (!v.type()->isSubtypeOf(*type)) wrong(v, type, where);
    }
    within(v, where);
  }

 private:
  // Looks at what a type does not tell of: a list and a dict say what is in them.
  void within(const IValue &v, const std::string &where) {
    if (v.isTensor()) {
      tensor(v.toTensor(), where);
    } else if (v.isObject()) {
      object(*v.toObject(), where);
    } else if (v.isTuple()) {
      for (const IValue &item : v.toTupleRef().elements()) within(item, where);
    } else if (v.isList() || v.isGenericDict()) {
      check(v, v.type(), where);
    }
  }

  void object(const c10::ivalue::Object &o, const std::string &where) {
    if (!known_.insert(&o).second) return;
    const auto type = o.type();
    for (size_t i = 0; i < type->numAttributes(); i++) {
      const std::string name = below(where, type->getAttributeName(i));
      if (i >= o.slots().size())
        throw Failure{"ValueError", path_ + " is damaged: it has no value of '" + name + "'"};
      check(o.getSlot(i), type->getAttribute(i), name);
    }
  }

  // Indices of sparse tensors are read without a look at them, and so are scales.
  void tensor(const at::Tensor &t, const std::string &where) {
    if (!t.defined() || !known_.insert(t.unsafeGetTensorImpl()).second) return;
    try {
      if (t.is_sparse()) {
        at::_validate_sparse_coo_tensor_args(t._indices(), t._values(), t.sizes(),
                                             t.is_coalesced());
      } else if (at::sparse_csr::is_sparse_compressed(t)) {
        const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(t);
        at::_validate_sparse_compressed_tensor_args(compressed, plain, t.values(), t.sizes(),
                                                    t.layout());
      } else if (t.is_quantized() && t.qscheme() != at::kPerTensorAffine) {
        const int64_t axis = t.q_per_channel_axis();
        TORCH_CHECK(axis >= 0 && axis < t.dim(), "its axis is ", axis);
        TORCH_CHECK(t.q_per_channel_scales().numel() == t.size(axis) &&
                        t.q_per_channel_zero_points().numel() == t.size(axis),
                    "it does not have a scale for each of its ", t.size(axis), " channels");
      }
    } catch (const c10::Error &e) {
      throw Failure{"ValueError", path_ + " is damaged: the tensor '" + where +
                                      "': " + std::string(first_line(e.what_without_backtrace()))};
    }
  }

  [[noreturn]] void wrong(const IValue &v, const c10::TypePtr &type, const std::string &where) {
    throw Failure{"ValueError", path_ + " is damaged: '" + where + "' is " + v.tagKind() +
                                    ", where its class has " + type->annotation_str()};
  }

  const std::string &path_;
  std::unordered_set<const void *> known_;
};

// Names the format of an archive of torch that has no script in it.
std::string other_format(const Archive &archive) {
  for (const std::string &record : archive.records())
    if (record.starts_with("data/aotinductor") || record.starts_with("models/") ||
        record == "archive_format" || record == "serialized_exported_program.json")
      return " is a package of torch.export: load it with package aoti if AOTInductor compiled it, "
             "or export it anew with export_model";
  return archive.has("data.pkl") ? " was written by torch.save: read it with gotorch.Load, or as a "
                                   "state dict with nn.Load"
                                 : " is no TorchScript file";
}

// A file of which each byte is read once, so that libtorch gets what was checked, whatever is
// written into the file meanwhile. All of it is kept but the data of tensors, which is checked as
// it comes into the tensors' memory.
class ReadOnce : public caffe2::serialize::ReadAdapterInterface {
 public:
  using Check = std::function<void(const std::string &record)>;

  explicit ReadOnce(std::shared_ptr<ReadAdapterInterface> file) : file_(std::move(file)) {}

  // A record that is read as a whole, from now on, into the memory where it stays. check reads it
  // again from here.
  void add_tensor(const std::string &record, uint64_t offset, uint64_t size) {
    tensors_.emplace(offset, Tensor{record, size});
    left_.insert(record);
  }
  void check_tensors(Check check) { check_ = std::move(check); }

  // Checks the records that were not read. Nothing is kept any more.
  void check_rest() {
    const Check check = std::exchange(check_, nullptr);
    keep_ = false;
    if (failed_) std::rethrow_exception(failed_);
    for (const std::string &record : left_) check(record);
  }

  size_t size() const override { return file_->size(); }

  size_t read(uint64_t offset, void *to, size_t n, const char * = "") const override {
    if (now_ != nullptr && offset >= now_at_ && offset - now_at_ <= now_size_ &&
        n <= now_size_ - (offset - now_at_)) {
      std::memcpy(to, now_ + (offset - now_at_), n);
      return n;
    }
    const auto tensor = check_ ? tensors_.find(offset) : tensors_.end();
    if (tensor != tensors_.end() && tensor->second.size == n)
      return read_tensor(tensor->second, offset, to);
    size_t done = 0;
    while (done < n) {
      const uint64_t at = offset + done, within = at % kBlock;
      const std::string &bytes = block(at / kBlock);
      if (bytes.size() <= within) break;
      const size_t part = std::min<size_t>(n - done, bytes.size() - within);
      std::memcpy(static_cast<char *>(to) + done, bytes.data() + within, part);
      done += part;
    }
    return done;
  }

 private:
  static constexpr uint64_t kBlock = 4096;
  struct Tensor {
    std::string record;
    uint64_t size;
  };

  size_t read_tensor(const Tensor &tensor, uint64_t offset, void *to) const {
    if (file_->read(offset, to, tensor.size) != tensor.size) return 0;
    now_ = static_cast<const char *>(to);
    now_at_ = offset;
    now_size_ = tensor.size;
    size_t got = tensor.size;
    try {
      check_(tensor.record);
      left_.erase(tensor.record);
    } catch (...) {  // who reads here is written in C
      failed_ = std::current_exception();
      got = 0;
    }
    now_ = nullptr;
    return got;
  }

  const std::string &block(uint64_t i) const {
    const auto known = blocks_.find(i);
    if (known != blocks_.end()) return known->second;
    std::string bytes(kBlock, '\0');
    bytes.resize(i < file_->size() / kBlock + 1 ? file_->read(i * kBlock, bytes.data(), kBlock)
                                                : 0);
    if (keep_) return blocks_.emplace(i, std::move(bytes)).first->second;
    return other_ = std::move(bytes);
  }

  std::shared_ptr<ReadAdapterInterface> file_;
  std::unordered_map<uint64_t, Tensor> tensors_;
  Check check_;
  bool keep_ = true;
  mutable std::unordered_map<uint64_t, std::string> blocks_;
  mutable std::string other_;
  mutable std::unordered_set<std::string> left_;  // tensors that were not checked
  mutable std::exception_ptr failed_;
  // What was just read, and where from.
  mutable const char *now_ = nullptr;
  mutable uint64_t now_at_ = 0, now_size_ = 0;
};

bool is_tensor(const std::string &record) {
  return record.starts_with("data/") || record.starts_with("constants/");
}

// All but the data of tensors.
void check_file(Archive &archive, const std::string &path) {
  const auto damaged = [&](const std::string &record, const std::string &why) {
    if (!why.empty()) throw Failure{"ValueError", path + " is damaged: " + record + " " + why};
  };
  if (archive.has("model.json"))
    throw Failure{"NotImplementedError", path +
                                             " was written by a PyTorch before 1.3: load and save "
                                             "it once with torch.jit in Python"};
  if (!archive.has("constants.pkl") || !archive.has("data.pkl"))
    throw Failure{"ValueError", path + other_format(archive)};
  // libtorch takes the bytes as they are.
  if (archive.has("byteorder")) {
    const std::string order = archive.content("byteorder");
    if (order == "big")
      throw Failure{"NotImplementedError",
                    path + " was written on a big-endian machine, and this is a little-endian one"};
    if (order != "little") damaged("byteorder", "is neither little nor big");
  }
  for (const std::string name : {"data", "constants"}) {
    const std::string record = name + ".pkl";
    const auto size_of = [&](const std::string &key) {
      const std::string data = name + "/" + key;
      return archive.has(data) ? std::optional(archive.size(data)) : std::nullopt;
    };
    std::string why;
    try {
      why = jit::check_pickle(archive.content(record), size_of);
    } catch (const std::domain_error &e) {
      throw Failure{"NotImplementedError", path + ": " + record + " " + e.what()};
    }
    damaged(record, why);
  }
  jit::Definitions definitions;
  for (const std::string &record : archive.records()) {
    if (!record.starts_with("code/") || !record.ends_with(".py")) {
      if (!is_tensor(record)) archive.check(record);
      continue;
    }
    const std::string source = archive.content(record);
    damaged(record, jit::check_source(source));
    definitions.add(record, source);
  }
  if (definitions.are_nested_too_deeply())
    damaged("code", "has classes that are nested too deeply");
}

IValue extra_files(Archive &archive) {
  constexpr std::string_view kFolder = "extra/";
  c10::Dict<std::string, std::string> out;
  for (const std::string &record : archive.records())
    if (record.starts_with(kFolder))
      out.insert_or_assign(record.substr(kFolder.size()), archive.content(record));
  return out;
}

torch::jit::Module load(const JITSource &source, IValue *extra) {
  const std::string path(str(source.path, "path"));
  std::shared_ptr<caffe2::serialize::ReadAdapterInterface> file;
  if (source.data != nullptr)
    file = std::make_shared<OpenBytes>(source.data, static_cast<size_t>(source.size));
  else
    file = std::make_shared<OpenFile>(static_cast<int>(source.fd), path);
  const auto device = device_opt(source.map_location);
  const auto once = std::make_shared<ReadOnce>(file);
  Archive archive(path, once, "is no TorchScript file, or a truncated one",
                  source.ignore_checksums);
  check_file(archive, path);
  *extra = extra_files(archive);
  {
    caffe2::serialize::PyTorchStreamReader reader(once);
    for (const std::string &record : archive.records()) {
      if (!is_tensor(record)) continue;
      try {
        once->add_tensor(record, reader.getRecordOffset(record), archive.size(record));
      } catch (const c10::Error &) {
        archive.check(record);  // says that the file is damaged
      }
    }
  }
  once->check_tensors([&](const std::string &record) { archive.check(record); });
  const auto failed = [&](std::string_view why) {
    once->check_rest();  // a damaged file explains the rest
    return Failure{"RuntimeError", path + ": " + std::string(message_of(why))};
  };
  torch::jit::Module m;
  try {
    // Without the places in Python's files that the code comes from: they are one more pickle.
    m = torch::jit::load(once, device, /*load_debug_files=*/false);
  } catch (const c10::Error &e) {
    throw failed(e.what_without_backtrace());
  } catch (const std::bad_alloc &) {
    throw;
  } catch (const std::exception &e) {
    throw failed(e.what());
  }
  once->check_rest();
  Types(path).check(m._ivalue(), m.type(), "");
  return m;
}

// Saving ------------------------------------------------------------------------------------------

// Checks that libtorch's pickler lacks: it follows a value that contains itself until the stack is
// full, and writes a tensor without memory in a form that nobody can read.
class Savable {
 public:
  void check(const IValue &v) {
    if (v.isTensor() && v.toTensor().defined() && v.toTensor().is_meta())
      throw Failure{"NotImplementedError",
                    "the module has a tensor on the device meta, which has no numbers to save"};
    if (!(v.isObject() || v.isTuple() || v.isList() || v.isGenericDict())) return;
    const auto [known, fresh] = ended_.emplace(v.internalToPointer(), false);
    if (!fresh && known->second) return;
    if (!fresh) throw Failure{"ValueError", "the module has a value that contains itself"};
    if (++depth_ > 1000)
      throw Failure{"ValueError", "the module has values that are nested too deeply"};
    if (v.isObject()) {
      for (const IValue &item : v.toObjectRef().slots()) check(item);
    } else if (v.isTuple()) {
      for (const IValue &item : v.toTupleRef().elements()) check(item);
    } else if (v.isList()) {
      for (const IValue &item : v.toListRef()) check(item);
    } else {
      for (const auto &entry : v.toGenericDict()) check(entry.value());
    }
    depth_--;
    ended_[v.internalToPointer()] = true;
  }

 private:
  std::unordered_map<const void *, bool> ended_;
  int depth_ = 0;
};

torch::jit::ExtraFilesMap extra_map(const Value *values, int64_t n) {
  const IValue v =
      box_value("the extra files",
                c10::DictType::create(c10::StringType::get(), c10::StringType::get()), values, n);
  torch::jit::ExtraFilesMap out;
  for (const auto &entry : v.toGenericDict())
    out.emplace(entry.key().toStringRef(), entry.value().toStringRef());
  return out;
}

void write_all(int fd, const void *data, size_t n) {
  for (const char *p = static_cast<const char *>(data); n > 0;) {
    const ssize_t done = ::write(fd, p, std::min<size_t>(n, SSIZE_MAX));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_errno("the TorchScript file", "write");
    p += done;
    n -= static_cast<size_t>(done);
  }
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *JITLoad(const JITSource *source, Object *result, Value **extra, int64_t *n_extra) {
  return guard([&] {
    if (source == nullptr) throw Failure{"TypeError", "argument 'source' is NULL"};
    IValue files;
    torch::jit::Module m;
    script([&] { m = load(*source, &files); });
    const auto free = [](Object o) { FreeObject(o); };
    std::unique_ptr<std::remove_pointer_t<Object>, decltype(free)> made(give(m._ivalue()), free);
    unbox_one(files, extra, n_extra);
    *result = made.release();
  });
}

const char *JITSave(Object m, int64_t fd, const Value *extra, int64_t n_extra) {
  return guard([&] {
    script([&] {
      Savable().check(module(m)._ivalue());
      torch::jit::ExportModule(
          module(m),
          [&](const void *data, size_t n) {
            write_all(static_cast<int>(fd), data, n);
            return n;
          },
          extra_map(extra, n_extra));
    });
  });
}

const char *JITSetProfilingMode(bool on, bool *was) {
  return guard([&] {
    const bool before = torch::jit::getProfilingMode().exchange(on);
    if (was != nullptr) *was = before;
  });
}

const char *JITDescribe(Object o, Value **result, int64_t *n_result) {
  return guard([&] { unbox({describe(object(o))}, false, result, n_result); });
}

const char *JITGetAttr(Object o, const char *name, Value **result, int64_t *n_result) {
  return guard([&] {
    script([&] {
      const auto found = object(o);
      const std::string of(str(name, "name"));
      unbox_one(found.has_property(of) ? found.get_property(of).getter_func({}) : found.attr(of),
                result, n_result);
    });
  });
}

const char *JITSetAttr(Object o, const char *name, const Value *value, int64_t n_value) {
  return guard([&] {
    script([&] {
      auto found = object(o);
      const std::string of(str(name, "name"));
      if (found.has_property(of)) {
        const auto property = found.get_property(of);
        if (!property.setter_func)
          throw Failure{"AttributeError", "the property '" + of + "' can only be read"};
        const auto &schema = property.setter_func->function().getSchema();
        (*property.setter_func)(
            {box_value("'" + of + "'", schema.arguments().at(1).type(), value, n_value)});
        return;
      }
      const auto type = found.type();
      const auto slot = type->findAttributeSlot(of);
      if (!slot)
        throw Failure{"AttributeError", type->annotation_str() + " has no attribute '" + of + "'" +
                                            (type->findConstantSlot(of) ? " that may change" : "")};
      found._ivalue()->setSlot(
          *slot, box_value("'" + of + "'", type->getAttribute(*slot), value, n_value));
    });
  });
}

const char *JITCall(Object o, const char *name, const Value *args, int64_t n_values,
                    const char *const *names, int64_t n_args, Value **result, int64_t *n_result) {
  return guard([&] {
    const auto found = object(o);
    const std::string of(str(name, "method"));
    const auto method = found.find_method(of);
    if (!method)
      throw Failure{"AttributeError",
                    found.type()->annotation_str() + " has no method '" + of + "'"};
    auto stack =
        box_arguments({method->function().getSchema(), of, 1}, args, n_values, names, n_args);
    IValue v;
    script([&] { v = (*method)(std::move(stack)); });
    unbox_one(std::move(v), result, n_result);
  });
}

const char *JITTensors(Object m, int64_t kinds, bool once, Value **result, int64_t *n_result) {
  return guard([&] { unbox_one(tensors(module(m), kinds, once), result, n_result); });
}

const char *JITModules(Object m, bool all, Value **result, int64_t *n_result) {
  return guard([&] {
    c10::impl::GenericDict out(c10::StringType::get(), c10::AnyType::get());
    const auto root = module(m);
    if (all) {
      for (const auto &[name, part] : modules(root, false)) out.insert_or_assign(name, part);
    } else {
      const auto type = root.type();
      for (size_t i = 0; i < type->numAttributes(); i++)
        if (type->getAttribute(i)->is_module() && root._ivalue()->getSlot(i).isObject())
          out.insert_or_assign(type->getAttributeName(i), root._ivalue()->getSlot(i));
    }
    unbox_one(out, result, n_result);
  });
}

const char *JITTrain(Object m, bool on) {
  return guard([&] {
    for (const auto &[name, part] : modules(module(m), false)) {
      const auto slot = part->type()->findAttributeSlot("training");
      if (slot && part->type()->getAttribute(*slot)->kind() == TypeKind::BoolType)
        part->setSlot(*slot, on);
    }
  });
}

void JITClose(Object o) {
  if (o != nullptr) *reinterpret_cast<IValue *>(o) = IValue();
}

}  // extern "C"
