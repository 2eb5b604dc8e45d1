// aoti.cc: models that AOTInductor compiled. libtorch loads and runs them; this file unpacks them,
// checks what goes in, and changes constants under the feet of those who run.
#include <ATen/DynamicLibrary.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <elf.h>
#include <sys/utsname.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_map>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "aoti_checks.h"
#include "archive.h"
#include "files.h"
#include "internal.h"
#include "safetensors.h"

namespace cgotorch {
namespace {

using aoti::Checks;
using aoti::Shape;
using torch::inductor::AOTIModelContainerRunner;

[[noreturn]] void fail(const char *kind, const std::string &message) {
  throw Failure{kind, message};
}

// Unpacking ---------------------------------------------------------------------------------------

// A folder of our own that goes away.
class Folder {
 public:
  Folder() {
    const char *parent = std::getenv("TMPDIR");
    path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/gotorch-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr)
      fail("OSError", "create a folder " + path_ + ": " + std::strerror(errno));
  }
  Folder(const Folder &) = delete;
  Folder &operator=(const Folder &) = delete;
  ~Folder() { remove(); }

  const std::string &path() const { return path_; }
  void remove() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

 private:
  std::string path_;
};

// Changes the copy of a model's library that is about to be loaded.
class LibraryFile {
 public:
  explicit LibraryFile(const std::string &path)
      : file_(path, std::ios::in | std::ios::out | std::ios::binary) {
    std::vector<Elf64_Ehdr> head = read<Elf64_Ehdr>(0, 1);
    if (head.empty() || std::memcmp(head[0].e_ident, ELFMAG, SELFMAG) != 0 ||
        head[0].e_ident[EI_CLASS] != ELFCLASS64)
      return;  // dlopen says what is wrong with it
    head_ = head[0];
    segments_ = read<Elf64_Phdr>(head_.e_phoff, head_.e_phnum);
  }

  // Whether what is to be mapped is there; the loader trusts that.
  bool is_whole() {
    file_.seekg(0, std::ios::end);
    const auto size = static_cast<uint64_t>(file_.tellg());
    return std::all_of(segments_.begin(), segments_.end(), [&](const Elf64_Phdr &s) {
      return s.p_type != PT_LOAD || (s.p_offset <= size && s.p_filesz <= size - s.p_offset);
    });
  }

  // The library is linked to libtorch.so and does not say where that is. Nothing needs it: it is an
  // empty library that draws in libtorch_cpu.so and, in a build with CUDA, 250 MB more. From now on
  // it asks for libtorch_cpu.so instead, to which it is linked as well.
  void forget_libtorch() {
    const auto dynamic = std::find_if(segments_.begin(), segments_.end(),
                                      [](const Elf64_Phdr &s) { return s.p_type == PT_DYNAMIC; });
    if (dynamic == segments_.end()) return;
    auto entries = read<Elf64_Dyn>(dynamic->p_offset, dynamic->p_filesz / sizeof(Elf64_Dyn));
    const auto names = std::find_if(entries.begin(), entries.end(),
                                    [](const Elf64_Dyn &e) { return e.d_tag == DT_STRTAB; });
    if (names == entries.end()) return;
    const uint64_t names_at = offset_of(names->d_un.d_ptr);
    const auto needs = [&](std::string_view wanted) {
      return std::find_if(entries.begin(), entries.end(), [&](const Elf64_Dyn &e) {
        if (e.d_tag != DT_NEEDED) return false;
        return is_name(names_at + e.d_un.d_val, wanted);
      });
    };
    const auto libtorch = needs("libtorch.so"), cpu = needs("libtorch_cpu.so");
    if (libtorch == entries.end() || cpu == entries.end()) return;
    libtorch->d_un.d_val = cpu->d_un.d_val;
    write(dynamic->p_offset, entries);
  }

  // glibc never unloads a library that has variables of inline functions in C++, because they are
  // unique in the process, nor one that has destructors waiting for the end of a thread. Models
  // share nothing, so the former become common symbols. The latter are of thread-local strings,
  // mostly empty, which may as well be lost: what would register a destructor calls a function that
  // does nothing.
  void allow_unloading() {
    const auto sections = read<Elf64_Shdr>(head_.e_shoff, head_.e_shnum);
    for (const Elf64_Shdr &section : sections) {
      if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
      auto symbols = read<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
      for (Elf64_Sym &s : symbols)
        if (ELF64_ST_BIND(s.st_info) == STB_GNU_UNIQUE)
          s.st_info = ELF64_ST_INFO(STB_WEAK, ELF64_ST_TYPE(s.st_info));

      const uint64_t names_at = sections[section.sh_link].sh_offset;
      const auto find = [&](std::string_view wanted) {
        return std::find_if(symbols.begin(), symbols.end(), [&](const Elf64_Sym &s) {
          return s.st_shndx == SHN_UNDEF && is_name(names_at + s.st_name, wanted);
        });
      };
      const auto registers = find("__cxa_thread_atexit");
      const auto nothing = find("aoti_torch_device_type_cpu");
      const auto versions = std::find_if(sections.begin(), sections.end(),
                                         [](const auto &v) { return v.sh_type == SHT_GNU_versym; });
      if (registers != symbols.end() && nothing != symbols.end() && versions != sections.end()) {
        auto version_of = read<Elf64_Half>(versions->sh_offset, symbols.size());
        if (version_of.empty()) continue;
        registers->st_name = nothing->st_name;
        version_of[static_cast<size_t>(registers - symbols.begin())] =
            version_of[static_cast<size_t>(nothing - symbols.begin())];
        write(versions->sh_offset, version_of);
      }
      write(section.sh_offset, symbols);
    }
  }

 private:
  template <class T>
  std::vector<T> read(uint64_t offset, uint64_t n) {
    file_.clear();
    file_.seekg(0, std::ios::end);
    const auto size = static_cast<uint64_t>(file_.tellg());
    if (offset > size || n > (size - offset) / sizeof(T)) return {};
    std::vector<T> out(n);
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(reinterpret_cast<char *>(out.data()), static_cast<std::streamsize>(n * sizeof(T)));
    return out;
  }
  template <class T>
  void write(uint64_t offset, const std::vector<T> &data) {
    file_.clear();
    file_.seekp(static_cast<std::streamoff>(offset));
    file_.write(reinterpret_cast<const char *>(data.data()),
                static_cast<std::streamsize>(data.size() * sizeof(T)));
  }
  bool is_name(uint64_t offset, std::string_view wanted) {
    const auto name = read<char>(offset, wanted.size() + 1);
    return !name.empty() && name.back() == '\0' && name.data() == wanted;
  }
  uint64_t offset_of(uint64_t address) const {
    for (const Elf64_Phdr &s : segments_)
      if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
        return address - s.p_vaddr + s.p_offset;
    return UINT64_MAX;
  }

  std::fstream file_;
  Elf64_Ehdr head_{};
  std::vector<Elf64_Phdr> segments_;
};

// This machine ------------------------------------------------------------------------------------

#if defined(__x86_64__)
bool has_amx_tile() {
  unsigned a, b, c, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1u << 24)) != 0;
}
#endif

// Whether the processor lacks instructions that go by this name in a package's metadata.
bool processor_lacks(std::string_view isa) {
#if defined(__x86_64__)
  if (isa == "AVX2") return !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma");
  if (isa == "AVX512")
    return !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq") ||
           !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512bw");
  if (isa == "AVX512_VNNI") return !__builtin_cpu_supports("avx512vnni");
  if (isa == "AMX_TILE") return !has_amx_tile();
#endif
  return false;
}

// The model ---------------------------------------------------------------------------------------

// Lets this file see what libtorch's class keeps for its subclasses. There are no objects of it.
struct Runner : AOTIModelContainerRunner {
  static constexpr auto library() { return &Runner::model_so_; }
  static constexpr auto container() { return &Runner::container_handle_; }
};

// The C functions of a model's library. libtorch's class has none for the number of inputs or the
// order of constants.
class Library {
 public:
  explicit Library(AOTIModelContainerRunner &runner)
      : library_(*(runner.*Runner::library())), container_(runner.*Runner::container()) {}

  int64_t count(const char *function) const {
    size_t n = 0;
    check(function, get<AOTIRuntimeError (*)(Container, size_t *)>(function)(container_, &n));
    return static_cast<int64_t>(n);
  }
  template <class T>
  T of(const char *function, int64_t index) const {
    T result{};
    check(function, get<AOTIRuntimeError (*)(Container, size_t, T *)>(function)(
                        container_, static_cast<size_t>(index), &result));
    return result;
  }

 private:
  using Container = AOTInductorModelContainerHandle;
  template <class F>
  F get(const char *function) const {
    return reinterpret_cast<F>(library_.sym(function));
  }
  static void check(const char *function, AOTIRuntimeError err) {
    if (err != AOTI_RUNTIME_SUCCESS) fail("RuntimeError", std::string(function) + " failed");
  }
  at::DynamicLibrary &library_;
  Container container_;
};

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype,
                         at::Device device) {
  return at::_ops::empty_strided::call(c10::fromIntArrayRefSlow(sizes),
                                       c10::fromIntArrayRefSlow(strides), dtype, at::kStrided,
                                       device, false);
}

// "float32".
std::string name_of(at::ScalarType t) { return std::string(c10::getDtypeNames(t).first); }

// What is in the compiled code is nothing that autograd and autocast should see.
struct Plain {
  at::NoGradGuard no_grad;
  c10::impl::ExcludeDispatchKeyGuard no_autocast{c10::autocast_dispatch_keyset};
};

class Model {
 public:
  Model(const std::string &path, const AOTIOptions &options);

  std::vector<at::Tensor> run(const Tensor *inputs, int64_t n);
  void set_constants(const char *const *names, const Tensor *tensors, int64_t n, bool all);
  std::vector<at::Tensor> constants();
  const AOTIInfo &info() const { return info_; }

 private:
  struct Constant {
    std::string variable;  // its name in the compiled code
    std::string name;
    at::ScalarType dtype;
    std::optional<at::Device> device;
    std::vector<int64_t> sizes, strides;
    bool is_set;
  };
  // The numbers behind an AOTITensorInfo.
  struct Numbers {
    std::vector<int64_t> sizes, min, max;
  };

  std::string choose(const char *wanted);
  std::string unpack();
  void read_metadata(const std::string &json);
  void check_machine();
  void start(const std::string &library, const AOTIOptions &options);
  void find_constants(const Library &library);
  void describe();
  const at::Tensor &input(const Tensor *inputs, int64_t i);
  void require_constants();

  std::string path_;
  std::string name_;
  Folder folder_;
  std::optional<Archive> archive_;
  std::string source_;
  std::string blob_;
  std::vector<std::pair<std::string, std::string>> metadata_;
  Checks checks_;
  std::vector<std::optional<at::ScalarType>> dtypes_;  // of the inputs
  bool unchecked_ = false;
  at::Device device_ = at::kCPU;
  int64_t num_runners_ = 0, n_inputs_ = 0, n_outputs_ = 0;
  std::unique_ptr<AOTIModelContainerRunner> runner_;

  std::mutex mutex_;  // for changing constants
  std::vector<Constant> constants_;
  bool folds_ = false;                // some constants are computed from others when these are set
  std::atomic<bool> complete_{true};  // all constants are set

  std::vector<std::string> specs_;
  std::vector<const char *> metadata_pointers_;
  std::vector<Numbers> numbers_;
  std::vector<AOTITensorInfo> input_infos_, constant_infos_;
  AOTIInfo info_{};
};

constexpr const char *kModels = "data/aotinductor/";

std::string Model::choose(const char *wanted) {
  std::set<std::string> names;
  for (const std::string &record : archive_->records()) {
    if (record.rfind(kModels, 0) != 0) continue;
    const size_t start = std::strlen(kModels), end = record.find('/', start);
    if (end != std::string::npos && end > start) names.insert(record.substr(start, end - start));
  }
  if (names.empty())
    fail("ValueError", path_ +
                           " holds no compiled model; a file of torch.export.save or torch.save is "
                           "no package of torch._inductor.aoti_compile_and_package");
  std::string list;
  for (const std::string &name : names) list += (list.empty() ? "'" : ", '") + name + "'";
  if (wanted != nullptr) {
    if (names.count(wanted) == 0)
      fail("KeyError", path_ + " has no model '" + wanted + "'; it has " + list);
    return wanted;
  }
  if (names.size() == 1) return *names.begin();
  if (names.count("model") == 0)
    fail("KeyError", path_ + " has several models, so one must be named: " + list);
  return "model";
}

// Writes the files of the model into the folder and returns the path of its library.
std::string Model::unpack() {
  const std::string prefix = kModels + name_ + "/";
  std::vector<std::string> libraries;
  bool compiled = true;
  for (const std::string &record : archive_->records()) {
    std::string name;
    if (record.starts_with(prefix)) {
      name = record.substr(prefix.size());
    } else if (record.starts_with("data/constants/")) {
      name = record.substr(record.rfind('/') + 1);  // where libtorch looks for it
    } else {
      continue;
    }
    const std::filesystem::path relative(name);
    if (name.empty() || relative.is_absolute() ||
        std::find(relative.begin(), relative.end(), "..") != relative.end())
      fail("ValueError", path_ + " has a file with the name '" + name + "'");
    if (name.ends_with(".wrapper.cpp")) source_ += archive_->content(record);
    if (name.ends_with(".cpp")) compiled = false;
    if (name.ends_with(".cpp") || name.ends_with(".o")) continue;
    const std::string to = folder_.path() + "/" + name;
    archive_->extract(record, to);
    if (name.ends_with(".so")) libraries.push_back(to);
    if (name.ends_with(".blob")) blob_ = to;
  }
  if (libraries.size() > 1) {
    const auto rest = std::remove_if(libraries.begin(), libraries.end(), [](const std::string &l) {
      return !l.ends_with(".wrapper.so");
    });
    libraries.erase(rest, libraries.end());
  }
  if (libraries.empty() && !compiled)
    fail("ValueError", path_ + " holds source only; compile it without package_cpp_only");
  if (libraries.size() != 1)
    fail("ValueError", path_ + " holds " + std::to_string(libraries.size()) +
                           " libraries of the model '" + name_ + "', where there should be one");
  LibraryFile library(libraries[0]);
  if (!library.is_whole())
    fail("ValueError", path_ + " has a truncated library of the model '" + name_ + "'");
  library.forget_libtorch();
  library.allow_unloading();
  return libraries[0];
}

void Model::read_metadata(const std::string &json) {
  // An object of strings is what safetensors calls metadata.
  try {
    metadata_ = safetensors::parse("{\"__metadata__\":" + json + "}", 0).metadata;
  } catch (const safetensors::Malformed &) {
    fail("ValueError", path_ + " has metadata that is not an object of strings");
  }
}

void Model::check_machine() {
  const auto get = [&](std::string_view key) -> std::string {
    for (const auto &[k, v] : metadata_)
      if (k == key) return v;
    return "";
  };
  const auto wrong = [&](const std::string &what) {
    fail("RuntimeError", path_ + " was compiled for " + what);
  };
  const std::string machine = get("AOTI_MACHINE"), platform = get("AOTI_PLATFORM");
  struct utsname here;
  if (uname(&here) == 0) {
    if (!machine.empty() && machine != here.machine)
      wrong(machine + " processors; this one is " + here.machine);
    if (!platform.empty() && platform != "linux") wrong(platform + "; this is Linux");
  }
  std::istringstream isas(get("AOTI_CPU_ISA"));
  for (std::string isa; isas >> isa;)
    if (processor_lacks(isa)) wrong(isa + " instructions, which this processor lacks");
  const std::string key = get("AOTI_DEVICE_KEY");
  if (key.empty()) fail("ValueError", path_ + " does not say what device it was compiled for");
  try {
    device_ = at::Device(key);
  } catch (const c10::Error &) {
    fail("ValueError", path_ + " was compiled for the device '" + key + "', which torch lacks");
  }
}

void Model::start(const std::string &library, const AOTIOptions &options) {
  if (device_.is_cuda()) need_cuda();
  const auto &runners = torch::inductor::getAOTIModelRunnerRegistry();
  const std::string key = c10::DeviceTypeName(device_.type(), true);
  const auto make = runners.find(key);
  if (make == runners.end())
    fail("RuntimeError", path_ + " was compiled for " + key + ", which this torch cannot run on");
  if (!device_.is_cpu()) {
    const auto current = [&] {
      return c10::impl::VirtualGuardImpl(device_.type()).getDevice().index();
    };
    device_.set_index(options.device_index < 0 ? current() : device_index(options.device_index));
  } else if (options.device_index > 0) {
    fail("ValueError", path_ + " was compiled for the CPU");
  }
  if (num_runners_ == 0) {
    const bool one = options.single_threaded || !device_.is_cpu();
    num_runners_ = one ? 1 : std::max(1u, std::thread::hardware_concurrency());
  }
  runner_ = make->second(library, static_cast<size_t>(num_runners_), device_.str(), folder_.path(),
                         options.single_threaded);
  if (!blob_.empty()) runner_->update_constant_buffer_from_blob(blob_);
}

void Model::find_constants(const Library &library) {
  const auto set = runner_->extract_constants_map(/*use_inactive=*/false);
  const int64_t n = library.count("AOTInductorModelContainerGetNumConstants");
  for (int64_t i = 0; i < n; i++) {
    if (library.of<bool>("AOTInductorModelContainerGetConstantFromFolded", i)) {
      folds_ = true;
      continue;
    }
    Constant c;
    c.variable = library.of<const char *>("AOTInductorModelContainerGetConstantName", i);
    c.name = library.of<const char *>("AOTInductorModelContainerGetConstantOriginalFQN", i);
    c.dtype = dtype(library.of<int32_t>("AOTInductorModelContainerGetConstantDtype", i));
    const auto it = set.find(c.name);
    c.is_set = it != set.end() && it->second.defined();
    if (c.is_set) {
      c.sizes = it->second.sizes().vec();
      c.strides = it->second.strides().vec();
      c.device = it->second.device();
    } else {
      complete_ = false;
      const auto &known = checks_.constants[c.variable];
      if (known.sizes.size() != known.strides.size())
        fail("ValueError", path_ + " does not say what size the constant '" + c.name + "' has");
      c.sizes = known.sizes;
      c.strides = known.strides;
    }
    constants_.push_back(std::move(c));
  }
}

// Fills what AOTIGetInfo gives out.
void Model::describe() {
  numbers_.reserve(static_cast<size_t>(n_inputs_) + constants_.size());  // pointers stay valid
  for (int64_t i = 0; i < n_inputs_; i++) {
    AOTITensorInfo info{"", -1, -1, -1, nullptr, nullptr, nullptr};
    Numbers &numbers = numbers_.emplace_back();
    if (static_cast<size_t>(i) < checks_.inputs.size()) {
      const aoti::Input &in = checks_.inputs[static_cast<size_t>(i)];
      if (const auto t = dtypes_[static_cast<size_t>(i)]) info.dtype = static_cast<ScalarType>(*t);
      info.device_type = in.device_type;
      if (in.is_complete) info.ndim = static_cast<int64_t>(in.dims.size());
      for (const aoti::Dim &d : in.dims) {
        const auto size = d.size.number();
        numbers.sizes.push_back(size.value_or(-1));
        numbers.min.push_back(size.value_or(d.min));
        numbers.max.push_back(size.value_or(d.max));
      }
    }
    info.sizes = numbers.sizes.data();
    info.min = numbers.min.data();
    info.max = numbers.max.data();
    input_infos_.push_back(info);
  }
  for (const Constant &c : constants_)
    constant_infos_.push_back({c.name.c_str(), static_cast<ScalarType>(c.dtype),
                               static_cast<int32_t>(c.device.value_or(device_).type()),
                               static_cast<int64_t>(c.sizes.size()), c.sizes.data(), nullptr,
                               nullptr});
  for (const auto &[key, value] : metadata_) {
    metadata_pointers_.push_back(key.c_str());
    metadata_pointers_.push_back(value.c_str());
  }
  specs_ = runner_->get_call_spec();
  specs_.resize(2);
  info_.model_name = name_.c_str();
  info_.device = {static_cast<int32_t>(device_.type()), device_.index()};
  info_.num_runners = num_runners_;
  info_.n_inputs = n_inputs_;
  info_.inputs = input_infos_.data();
  info_.n_outputs = n_outputs_;
  info_.n_constants = static_cast<int64_t>(constant_infos_.size());
  info_.constants = constant_infos_.data();
  info_.n_metadata = static_cast<int64_t>(metadata_.size());
  info_.metadata = metadata_pointers_.data();
  info_.in_spec = specs_[0].c_str();
  info_.out_spec = specs_[1].c_str();
}

Model::Model(const std::string &path, const AOTIOptions &options)
    : path_(path), unchecked_(options.unchecked), num_runners_(options.num_runners) {
  if (num_runners_ < 0 || num_runners_ > 10'000)
    fail("ValueError", "num_runners must be between 1 and 10,000");
  if (options.single_threaded && num_runners_ > 1)
    fail("ValueError", "single_threaded goes with one runner");
  archive_.emplace(path, std::make_shared<OpenFile>(path),
                   "is no AOTInductor package, or a truncated one", options.ignore_checksums);
  name_ = choose(options.model_name);
  const std::string library = unpack();
  const std::string described = library.substr(0, library.rfind('.')) + "_metadata.json";
  std::ifstream file(described);
  if (!file) fail("ValueError", path_ + " has no metadata");
  std::stringstream json;
  json << file.rdbuf();
  read_metadata(json.str());
  archive_.reset();
  check_machine();

  checks_ = aoti::read_checks(source_);
  source_ = std::string();
  start(library, options);
  const Library functions(*runner_);
  n_inputs_ = functions.count("AOTInductorModelContainerGetNumInputs");
  n_outputs_ = functions.count("AOTInductorModelContainerGetNumOutputs");
  const auto &known = c10::getStringToDtypeMap();
  for (const aoti::Input &in : checks_.inputs) {
    const auto it = known.find(in.dtype);
    dtypes_.push_back(it == known.end() ? std::nullopt : std::optional(it->second));
  }
  if (!unchecked_) {
    bool all = checks_.inputs.size() == static_cast<size_t>(n_inputs_);
    for (const auto &t : dtypes_) all = all && t;
    if (!all)
      fail("ValueError", path_ +
                             " does not say what its inputs must be like, and compiled code does "
                             "not look: with the wrong ones it would crash. Load it unchecked if "
                             "they are always right");
  }
  find_constants(functions);
  describe();
  // Code for the CPU is in memory by now; for GPUs parts are read when they are first used.
  if (device_.is_cpu()) folder_.remove();
}

// The i-th input, if it has the right kind of memory.
const at::Tensor &Model::input(const Tensor *inputs, int64_t i) {
  const at::Tensor &t = in(inputs[i], "inputs");
  if (t.requires_grad() && at::GradMode::is_enabled())
    fail("RuntimeError",
         "input " + std::to_string(i) +
             " requires a gradient, and compiled code computes none: run it without "
             "grad mode, or detach the input");
  if (unchecked_) return t;
  if (t.layout() != at::kStrided || t.is_nested() || t.is_quantized() || !t.has_storage())
    fail("ValueError", "input " + std::to_string(i) + " is not a dense tensor");
  const auto wanted = dtypes_[static_cast<size_t>(i)];
  if (wanted && t.scalar_type() != *wanted)
    fail("TypeError", "input " + std::to_string(i) + " must be " + name_of(*wanted) + ", but is " +
                          name_of(t.scalar_type()));
  const int type = checks_.inputs[static_cast<size_t>(i)].device_type;
  if (type >= 0) {
    at::Device device(static_cast<at::DeviceType>(type));
    if (device.type() == device_.type()) device = device_;
    if (t.device() != device)
      fail("ValueError", "input " + std::to_string(i) + " must be on " + device.str() +
                             ", but is on " + t.device().str());
  }
  return t;
}

void Model::require_constants() {
  if (complete_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string names;
  for (const Constant &c : constants_)
    if (!c.is_set) names += (names.empty() ? "'" : ", '") + c.name + "'";
  if (!names.empty())
    fail("RuntimeError", "the package came without the constants " + names +
                             ", which must be set before the model can run");
}

std::vector<at::Tensor> Model::run(const Tensor *inputs, int64_t n) {
  if (n != n_inputs_)
    fail("TypeError",
         "the model takes " + std::to_string(n_inputs_) + " inputs, but got " + std::to_string(n));
  require_constants();
  std::vector<at::Tensor> args;
  args.reserve(static_cast<size_t>(n));
  std::vector<Shape> shapes;
  if (unchecked_) {
    for (int64_t i = 0; i < n; i++) args.push_back(input(inputs, i));
  } else {
    for (int64_t i = 0; i < n; i++) {
      // As the code reads it: memory that holds its very elements.
      args.push_back(input(inputs, i).resolve_conj().resolve_neg());
      const at::Tensor &t = args.back();
      shapes.push_back({t.sizes().data(), t.strides().data(), t.sizes().size()});
    }
  }
  const Plain guard;
  if (!unchecked_) {
    aoti::Values values;
    const std::string problem = aoti::check_sizes(checks_, shapes, values);
    if (!problem.empty()) fail("ValueError", problem);
    for (size_t i = 0; i < args.size(); i++) {
      const auto strides = aoti::other_strides(checks_.inputs[i], shapes[i], values);
      if (!strides) continue;
      at::Tensor copy =
          empty_strided(args[i].sizes(), *strides, args[i].scalar_type(), args[i].device());
      args[i] = copy.copy_(args[i]);
    }
  }
  return runner_->run(args);
}

void Model::set_constants(const char *const *names, const Tensor *tensors, int64_t n, bool all) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Plain guard;
  std::vector<const at::Tensor *> given(constants_.size());
  for (int64_t i = 0; i < n; i++) {
    const std::string name(str(names[i], "names"));
    const at::Tensor &t = in(tensors[i], "tensors");
    const auto it = std::find_if(constants_.begin(), constants_.end(),
                                 [&](const Constant &c) { return c.name == name; });
    if (it == constants_.end())
      fail("KeyError",
           "the compiled model has no constant '" + name +
               "'; parameters of one dimension and at most 8 elements are compiled into "
               "the code");
    const auto place = static_cast<size_t>(it - constants_.begin());
    if (given[place] != nullptr) fail("ValueError", "two tensors are named '" + name + "'");
    if (t.scalar_type() != it->dtype)
      fail("TypeError", "the constant '" + name + "' is " + name_of(it->dtype) +
                            ", but the tensor is " + name_of(t.scalar_type()));
    if (t.layout() != at::kStrided || t.is_nested() || t.is_meta())
      fail("ValueError", "the tensor for '" + name + "' is not dense");
    if (!t.sizes().equals(it->sizes)) {
      std::ostringstream s;
      s << "the constant '" << name << "' has shape " << at::IntArrayRef(it->sizes)
        << ", but the tensor has " << t.sizes();
      fail("ValueError", s.str());
    }
    given[place] = &t;
  }
  std::string missing;
  for (size_t i = 0; i < constants_.size(); i++)
    if (given[i] == nullptr && (all || !constants_[i].is_set))
      missing += (missing.empty() ? "'" : ", '") + constants_[i].name + "'";
  if (!missing.empty()) fail("KeyError", "tensors are missing for the constants " + missing);
  if (constants_.empty()) return;

  // The runtime keeps two sets. One is filled here while the other is in use, and then they change
  // places when no run is going on. It copies a tensor's whole storage to the constant's place, so
  // that must be of the constant's very size and form.
  auto current = runner_->extract_constants_map(/*use_inactive=*/false);
  std::vector<at::Tensor> fresh;
  fresh.reserve(constants_.size());
  torch::inductor::TensorConstantMap map;
  for (size_t i = 0; i < constants_.size(); i++) {
    const Constant &c = constants_[i];
    at::Tensor t = empty_strided(c.sizes, c.strides, c.dtype, c.device.value_or(device_));
    t.copy_(given[i] != nullptr ? *given[i] : current.at(c.name));
    fresh.push_back(std::move(t));
    map.emplace(c.variable, &fresh.back());
  }
  runner_->update_constant_buffer(map, /*use_inactive=*/true, /*validate_full_updates=*/false);
  // What is computed from constants alone is computed anew; where there is nothing, libtorch would
  // warn.
  if (folds_) runner_->run_const_fold(/*use_inactive=*/true);
  runner_->swap_constant_buffer();
  current.clear();
  // With computed constants the runtime crashes when a set that was freed is filled again: it looks
  // at those that are gone. So the other set stays, and is filled in place the next time.
  if (!folds_) runner_->free_inactive_constant_buffer();
  for (Constant &c : constants_) c.is_set = true;
  complete_ = true;
}

std::vector<at::Tensor> Model::constants() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Plain guard;
  const auto current = runner_->extract_constants_map(/*use_inactive=*/false);
  std::vector<at::Tensor> out;
  for (const Constant &c : constants_) {
    const auto it = current.find(c.name);
    out.push_back(it == current.end() ? at::Tensor() : it->second.clone());
  }
  return out;
}

Model &model(AOTIModel m) {
  if (m == nullptr) throw_null("m");
  return *reinterpret_cast<Model *>(m);
}

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *AOTILoad(const char *path, const AOTIOptions *options, AOTIModel *result) {
  return guard([&] {
    AOTIOptions opts{};
    opts.device_index = -1;
    if (options != nullptr) opts = *options;
    *result = reinterpret_cast<AOTIModel>(new Model(std::string(str(path, "path")), opts));
  });
}

const char *AOTIRun(AOTIModel m, const Tensor *inputs, int64_t n_inputs, Tensor **results,
                    int64_t *n_results) {
  return guard([&] { out_list(results, n_results, model(m).run(inputs, n_inputs)); });
}

const char *AOTISetConstants(AOTIModel m, const char *const *names, const Tensor *tensors,
                             int64_t n, bool all) {
  return guard([&] { model(m).set_constants(names, tensors, n, all); });
}

const char *AOTIConstants(AOTIModel m, Tensor **results, int64_t *n_results) {
  return guard([&] { out_list(results, n_results, model(m).constants()); });
}

void AOTIGetInfo(AOTIModel m, AOTIInfo *info) { *info = model(m).info(); }

void AOTIFree(AOTIModel m) { delete reinterpret_cast<Model *>(m); }

}  // extern "C"
