// nccl.cc: see nccl.h.
//
// ProcessGroupNCCL.hpp needs headers of CUDA and NCCL that few have, for the private members of two
// classes. Here they are made in blocks that are large enough for any, by libtorch_cuda.so's own
// constructors. What is called afterwards are virtual functions of c10d::Backend.
#include "nccl.h"

#include <c10/util/env.h>
#include <c10/util/intrusive_ptr.h>
#include <dlfcn.h>

#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "internal.h"

namespace cgotorch {
namespace {

using c10::intrusive_ptr;

// Of libtorch_cuda.so, which is loaded: by Python not for all to see.
void *symbol(const char *name) {
  static void *const cuda = dlopen(
      (std::string(cgotorch_torch_lib()) + "/libtorch_cuda.so").c_str(), RTLD_LAZY | RTLD_NOLOAD);
  void *found = cuda != nullptr ? dlsym(cuda, name) : nullptr;
  if (found == nullptr)
    throw Failure{"RuntimeError", "libtorch_cuda.so of torch " +
                                      std::string(cgotorch_torch_loaded()) +
                                      " has no NCCL that gotorch knows: there is no " + name};
  return found;
}

// What construct makes in a block, as its base T. In torch 2.15 a ProcessGroupNCCL has 1,184 bytes.
// Half of the block must stay as it was.
template <class T, class F>
intrusive_ptr<T> made(const char *type, F &&construct) {
  constexpr size_t kRoom = 1 << 16;
  constexpr unsigned char kMark = 0xa5;
  auto *const block = static_cast<unsigned char *>(::operator new(kRoom));
  std::memset(block, kMark, kRoom);
  try {
    construct(block);
  } catch (...) {
    ::operator delete(block);
    throw;
  }
  // From here on the object frees its block.
  auto object = intrusive_ptr<T>::unsafe_steal_from_new(reinterpret_cast<T *>(block));
  const c10::intrusive_ptr_target &target = *object;
  bool right = std::string_view(typeid(target).name()) == type &&
               dynamic_cast<const void *>(&target) == static_cast<const void *>(block);
  for (size_t i = kRoom / 2; i < kRoom; i++) right = right && block[i] == kMark;
  if (!right)
    throw Failure{"RuntimeError", "NCCL of torch " + std::string(cgotorch_torch_loaded()) +
                                      " is not as libcgotorch expects it"};
  return object;
}

// While any lives a variable that nobody else has set has a value. Afterwards it has its default.
class WithVariable {
 public:
  struct Variable {
    const char *name, *value, *otherwise;
    bool theirs = c10::utils::has_env(name);  // before this library has set it
    std::mutex mutex{};
    int users = 0;
  };

  explicit WithVariable(Variable &of) : of_(of) {
    const std::lock_guard<std::mutex> lock(of_.mutex);
    if (of_.users++ == 0 && !of_.theirs) c10::utils::set_env(of_.name, of_.value);
  }
  ~WithVariable() {
    const std::lock_guard<std::mutex> lock(of_.mutex);
    if (--of_.users == 0 && !of_.theirs) c10::utils::set_env(of_.name, of_.otherwise);
  }
  WithVariable(const WithVariable &) = delete;
  WithVariable &operator=(const WithVariable &) = delete;

 private:
  Variable &of_;
};

}  // namespace

intrusive_ptr<c10d::Backend> new_nccl(const intrusive_ptr<c10d::Store> &store, int rank, int size,
                                      const c10d::Backend::Options &from) {
  need_cuda();
  using NewOptions = void (*)(void *, bool);
  using NewGroup =
      void (*)(void *, intrusive_ptr<c10d::Store>, int, int, intrusive_ptr<c10d::Backend::Options>);
  const auto new_options =
      reinterpret_cast<NewOptions>(symbol("_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb"));
  const auto new_group = reinterpret_cast<NewGroup>(
      symbol("_ZN4c10d16ProcessGroupNCCLC1EN3c1013intrusive_ptrINS_5StoreENS1_6detail34intrusive_"
             "target_default_null_typeIS3_EEEEiiNS2_INS0_7OptionsENS5_IS8_EEEE"));
  const auto options = made<c10d::Backend::Options>(
      "N4c10d16ProcessGroupNCCL7OptionsE",
      [&](void *block) { new_options(block, /*is_high_priority_stream=*/false); });
  options->timeout = from.timeout;
  options->group_name = from.group_name;
  options->group_desc = from.group_desc;
  options->global_ranks_in_group = from.global_ranks_in_group;
  // Whoever waits for a collective gets its error. Without these threads of NCCL's end the process
  // when a peer is late or gone.
  static WithVariable::Variable wait{"TORCH_NCCL_BLOCKING_WAIT", "1", "0"},
      monitor{"TORCH_NCCL_ENABLE_MONITORING", "0", "1"};
  const WithVariable blocking(wait), monitoring(monitor);
  return made<c10d::Backend>("N4c10d16ProcessGroupNCCLE",
                             [&](void *block) { new_group(block, store, rank, size, options); });
}

}  // namespace cgotorch
