// What of nccl.cc needs no GPU: libtorch_cuda.so, in the folder that is the argument, has the
// constructors that it calls by their names, and makes with them what they are taken for. Prints
// what is wrong; nothing where all is right.
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <atomic>
#include <cstdio>
#include <thread>

// The source itself, without the question whether there is a GPU.
#define need_cuda skip_need_cuda
namespace cgotorch {
void skip_need_cuda() {}
}  // namespace cgotorch
#include "../nccl.cc"
#undef need_cuda

using namespace cgotorch;

static std::atomic<int> failed = 0;

static void fact(bool holds, const char *what) {
  if (!holds) {
    failed++;
    std::puts(what);
  }
}

static c10::intrusive_ptr<c10d::Backend::Options> options_as(const char *type) {
  return made<c10d::Backend::Options>(type, [](void *block) {
    using NewOptions = void (*)(void *, bool);
    reinterpret_cast<NewOptions>(symbol("_ZN4c10d16ProcessGroupNCCL7OptionsC1Eb"))(block, false);
  });
}

int main(int argc, char **argv) {
  if (argc != 2 ||
      dlopen((std::string(argv[1]) + "/libtorch_cuda.so").c_str(), RTLD_LAZY) == nullptr) {
    std::puts(dlerror());
    return 1;
  }
  const auto options = options_as("N4c10d16ProcessGroupNCCL7OptionsE");
  fact(options->backend == "nccl" && options->timeout.count() == 600000,
       "the options are not NCCL's");
  bool refused = false;
  try {
    options_as("N4c10d7BackendE");
  } catch (const Failure &) {
    refused = true;
  }
  fact(refused, "another class than the expected one is taken");
  refused = false;
  try {
    symbol("_ZN4c10d16ProcessGroupNCCL9NotThereEv");
  } catch (const Failure &) {
    refused = true;
  }
  fact(refused, "a constructor that is not there is called");

  const c10d::Backend::Options of("nccl", std::chrono::milliseconds(1000));
  std::vector<std::thread> threads;
  static WithVariable::Variable variable{"CGOTORCH_TEST_NCCL", "1", "0"};
  for (int i = 0; i < 4; i++) {
    threads.emplace_back([&of] {
      for (int k = 0; k < 200; k++) {
        const WithVariable set(variable);
        {
          const WithVariable another(variable);
        }
        fact(c10::utils::get_env("CGOTORCH_TEST_NCCL") == "1",
             "a group takes another's value away");
        try {
          new_nccl(c10::make_intrusive<c10d::HashStore>(), 0, 1, of)->shutdown();
        } catch (const c10::Error &e) {
          fact(std::string(e.what()).find("no GPUs found") != std::string::npos, e.what());
        }
      }
    });
  }
  for (std::thread &t : threads) t.join();
  for (const auto &[name, value] : {std::pair{"CGOTORCH_TEST_NCCL", "0"},
                                    {"TORCH_NCCL_BLOCKING_WAIT", "0"},
                                    {"TORCH_NCCL_ENABLE_MONITORING", "1"}})
    fact(c10::utils::get_env(name) == value, name);
  return failed != 0;
}
