// runtime.cc: the entry points, the state of each OS thread, versions, CUDA and thread counts.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "cgroup.h"
#include "fork.h"
#include "late_devices.h"
#include "python.h"
#include "thunk.h"
#include "words.h"

namespace cgotorch {

__thread ThreadState tls;
int64_t settings_generation = 1;

namespace {

// Threads -----------------------------------------------------------------------------------------

// Never destroyed: threads may end after the process has begun to exit.
struct Threads {
  std::mutex mutex;
  std::vector<ThreadState *> alive;
  int64_t made = 0, freed = 0;  // of threads that ended
  int64_t count = 0;            // read by others without the mutex
};
Threads &threads() {
  static Threads *const t = new Threads;
  return *t;
}

// Threads per op. 0 until someone sets it: then libtorch's own default holds, or a share of it.
std::atomic<int64_t> num_threads{0};
std::atomic<int64_t> default_threads{0};  // libtorch's, once a share was asked for
std::atomic<int64_t> share{0};            // 0 until then

using SetThreads = void (*)(int);
// Of the OpenMP that libtorch uses: linking one would bring a second. It concerns the calling
// thread only and takes nanoseconds; at::set_num_threads resizes a process-wide pool besides, and
// fixes MKL's count for good.
SetThreads set_omp_threads() {
  static const auto set = [] {
    void *found = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    return reinterpret_cast<SetThreads>(found);
  }();
  return set;
}

}  // namespace

// While there are more such threads than processors they sleep between ops rather than wait awake,
// and that makes an op of 50 us three times slower.
void end_team() {
  using Pause = int (*)(int kind, int device);
  static const auto pause = reinterpret_cast<Pause>(dlsym(RTLD_DEFAULT, "omp_pause_resource"));
  static const auto host =
      reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_initial_device"));
  constexpr int kSoft = 1;
  if (pause != nullptr && host != nullptr) pause(kSoft, host());
}

namespace {

// The only thread that may still call, once cgotorch_end_other_threads has been.
std::atomic<const ThreadState *> last_thread{nullptr};

class Registration {
 public:
  explicit Registration(ThreadState *s) : state_(s) {
    const std::lock_guard<std::mutex> lock(threads().mutex);
    threads().alive.push_back(s);
    set_count();
  }
  ~Registration() {
    Threads &all = threads();
    const std::lock_guard<std::mutex> lock(all.mutex);
    all.made += state_->made;
    all.freed += state_->freed;
    all.alive.erase(std::find(all.alive.begin(), all.alive.end(), state_));
    set_count();
    end_words(*state_);
  }
  Registration(const Registration &) = delete;
  Registration &operator=(const Registration &) = delete;

 private:
  static void set_count() {
    __atomic_store_n(&threads().count, static_cast<int64_t>(threads().alive.size()),
                     __ATOMIC_RELAXED);
  }
  ThreadState *state_;
};

}  // namespace

void register_thread() { thread_local Registration registration(&tls); }

// The memory of the others' state becomes that of new threads.
void keep_this_thread() noexcept {
  Threads &all = threads();
  for (ThreadState *s : all.alive) {
    if (s == &tls) continue;
    all.made += s->made;
    all.freed += s->freed;
    end_words(*s);
  }
  std::erase_if(all.alive, [](const ThreadState *s) { return s != &tls; });
  __atomic_store_n(&all.count, static_cast<int64_t>(all.alive.size()), __ATOMIC_RELAXED);
}

std::mutex &threads_mutex() { return threads().mutex; }
const std::vector<ThreadState *> &living_threads() { return threads().alive; }

void apply_settings(ThreadState &s) noexcept {
  if (const ThreadState *last = last_thread.load(); last != nullptr && last != &s) {
    for (;;) pause();
  }
  if (s.sequence == nullptr) s.sequence = sequence_of_thread();
  try {
    register_thread();
    const bool own_alone = s.settings < 0;
    const int64_t generation = __atomic_load_n(&settings_generation, __ATOMIC_ACQUIRE);
    forward_warnings();
    const int64_t all = own_alone ? 0 : num_threads.load();
    if (const int64_t part = own_alone ? 0 : share.load(); all > 0) {
      at::set_num_threads(static_cast<int>(all));
    } else if (part > 0) {
      at::get_num_threads();  // libtorch sets the count itself when it is first asked for it
      set_omp_threads()(static_cast<int>(part));
      if (part == 1) end_team();
    } else if (s.before > 0) {
      set_omp_threads()(static_cast<int>(s.before));
    }
    s.before = 0;
    if (s.own > 0) {
      s.before = at::get_num_threads();
      set_omp_threads()(static_cast<int>(s.own));
    }
    s.settings = gathered_some() ? 0 : generation;
  } catch (...) {
    // Out of memory: this thread computes with the default and is tried again at its next call.
  }
}

namespace {

// Tokens ------------------------------------------------------------------------------------------

struct Tokens {  // under fork_mutexes.tokens
  std::vector<int64_t> waiting;
  int64_t queued = 0;  // read by others without the mutex
};
Tokens &tokens() {
  static Tokens *const t = new Tokens;
  return *t;
}

// Versions ----------------------------------------------------------------------------------------

std::string find_torch_lib() {
  Dl_info info{};
  // The address must be libtorch_cpu.so's own, not that of this library's PLT entry for it.
  void *symbol = dlsym(RTLD_DEFAULT, "_ZN2at15get_num_threadsEv");
  if (symbol == nullptr) symbol = reinterpret_cast<void *>(&at::get_num_threads);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

const std::string &torch_lib() {
  static const std::string lib = find_torch_lib();
  return lib;
}

std::string find_version() {
  // A wheel has torch/version.py, a libtorch archive has build-version.
  std::ifstream python(torch_lib() + "/../version.py");
  for (std::string line; std::getline(python, line);) {
    if (line.rfind("__version__", 0) != 0) continue;
    const size_t open = line.find_first_of("'\"");
    const size_t close = line.find_last_of("'\"");
    if (open != std::string::npos && close > open) return line.substr(open + 1, close - open - 1);
  }
  std::ifstream archive(torch_lib() + "/../build-version");
  std::string line;
  std::getline(archive, line);
  return line;
}

const std::string &torch_loaded() {
  static const std::string version = find_version();
  return version;
}

// "2.15.0" of "2.15.0+cu132": builds of one version share their ABI.
std::string_view public_version(std::string_view v) { return v.substr(0, v.find('+')); }

// CUDA --------------------------------------------------------------------------------------------

bool cuda_linked() { return c10::impl::hasDeviceGuardImpl(at::DeviceType::CUDA); }

// Why CUDA cannot be used, or "".
std::string load_cuda() {
  const std::string path = torch_lib() + "/libtorch_cuda.so";
  if (!cuda_linked()) {
    if (!std::ifstream(path).good()) {
      return "CUDA is not available: torch " + torch_loaded() +
             " is a build without it, or was bundled without it; install a CUDA build of torch "
             "and build gotorch again, or bundle without --cpu";
    }
    if (dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
      const char *why = dlerror();
      return "CUDA is not available: " + std::string(why != nullptr ? why : path);
    }
  }
  const at::CUDAHooksInterface &hooks = at::detail::getCUDAHooks();
  if (typeid(hooks) == typeid(at::CUDAHooksInterface)) {
    // libtorch was asked about CUDA before, as every backward pass does, and keeps an object that
    // says no. It has no members, and those of libtorch_cuda.so have none: their virtual functions
    // are all that tells them apart.
    const auto real = at::CUDAHooksRegistry()->Create("CUDAHooks", at::CUDAHooksArgs{});
    static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void *));
    if (real == nullptr) return "CUDA is not available: libtorch_cuda.so has no hooks";
    std::memcpy(const_cast<void *>(static_cast<const void *>(&hooks)), real.get(), sizeof(void *));
  }
  if (!hooks.hasCUDA()) {
    return "CUDA is not available: no NVIDIA GPU or driver was found; nvidia-smi shows what the "
           "driver sees";
  }
  devices_added();
  return "";
}

const std::string &cuda_problem() {
  static const std::string problem = load_cuda();
  return problem;
}

}  // namespace

void need_cuda() {
  if (!cuda_problem().empty()) throw Failure{"RuntimeError", cuda_problem()};
}

}  // namespace cgotorch

using namespace cgotorch;

namespace {
inline const char *run_thunk(int64_t i, cgotorch_block *block) {
  return catching([=] { return thunks[i](block); });
}
inline void run(int64_t i, cgotorch_block *block) {
  const char *err = run_thunk(i, block);
  block->scope =
      __builtin_expect(err == nullptr, 1) ? tls.scope : reinterpret_cast<int64_t>(err) + 1;
}
}  // namespace

extern "C" {

void cgotorch_run(int64_t i, cgotorch_block *block) { run(i, block); }

void cgotorch_end_other_threads(void) {
  enter_thread();
  if (__atomic_load_n(cgotorch_threads(), __ATOMIC_RELAXED) <= 1) return;
  last_thread.store(&tls);
  __atomic_add_fetch(&settings_generation, 1, __ATOMIC_RELEASE);
  usleep(50'000);
}

const char *cgotorch_block_error(cgotorch_block *block) {
  return reinterpret_cast<const char *>(std::exchange(block->scope, 0) - 1);
}

const char *cgotorch_call(int64_t i, cgotorch_block *block) {
  const char *err = run_thunk(i, block);
  block->scope = tls.scope;
  return err;
}

int64_t cgotorch_swap_word(int64_t word) { return std::exchange(tls.word, word); }

const char *cgotorch_api_hash(void) { return api_hash; }

void *cgotorch_scope_enter(int64_t scope) {
  void *previous = cgotorch_scope_get();
  tls.scope = scope;
  return previous;
}

void cgotorch_free(const int64_t *handles, int64_t n) {
  FreeTensors(reinterpret_cast<const Tensor *>(handles), n);
}

int64_t cgotorch_meta(Tensor t) { return meta_of(t); }

void *cgotorch_scope_get(void) { return reinterpret_cast<void *>(tls.scope); }

void cgotorch_handles(int64_t *made, int64_t *freed) {
  Threads &all = threads();
  const std::lock_guard<std::mutex> lock(all.mutex);
  // Freed first: a handle that is made and freed meanwhile must not count as freed only.
  int64_t f = all.freed, m = all.made;
  for (ThreadState *s : all.alive) f += __atomic_load_n(&s->freed, __ATOMIC_RELAXED);
  for (ThreadState *s : all.alive) m += __atomic_load_n(&s->made, __ATOMIC_RELAXED);
  *made = m;
  *freed = f;
}

const int64_t *cgotorch_threads(void) { return &threads().count; }

void cgotorch_queue_token(void *token) {
  Tokens &t = tokens();
  const std::lock_guard<std::mutex> lock(fork_mutexes.tokens);
  t.waiting.push_back(reinterpret_cast<int64_t>(token));
  __atomic_store_n(&t.queued, t.queued + 1, __ATOMIC_RELEASE);
}

int64_t cgotorch_take_tokens(int64_t *out, int64_t n) {
  Tokens &t = tokens();
  const std::lock_guard<std::mutex> lock(fork_mutexes.tokens);
  const int64_t taken = std::min<int64_t>(n, static_cast<int64_t>(t.waiting.size()));
  for (int64_t i = 0; i < taken; i++) {
    out[i] = t.waiting.back();
    t.waiting.pop_back();
  }
  return taken;
}

const int64_t *cgotorch_tokens_queued(void) { return &tokens().queued; }

const char *cgotorch_torch_built(void) { return CGOTORCH_TORCH_VERSION; }

const char *cgotorch_torch_loaded(void) { return torch_loaded().c_str(); }

const char *cgotorch_torch_lib(void) { return torch_lib().c_str(); }

const char *cgotorch_check(void) {
  const std::string &loaded = torch_loaded();
  if (loaded.empty() || public_version(loaded) == public_version(CGOTORCH_TORCH_VERSION))
    return nullptr;
  return guard([&] {
    throw Failure{"RuntimeError",
                  "libcgotorch.so was built for torch " CGOTORCH_TORCH_VERSION ", but torch " +
                      loaded + " is installed in " + torch_lib() +
                      "; in a checkout type: make build, elsewhere: gotorch doctor"};
  });
}

bool cgotorch_in_python(void) {
  const auto initialized = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return initialized != nullptr && initialized() != 0;
}

const char *CUDALoad(void) {
  return guard([] { need_cuda(); });
}

bool CUDAIsAvailable(void) {
  try {
    need_cuda();
    return true;
  } catch (...) {
    return false;
  }
}

int64_t CUDADeviceCount(void) {
  if (!CUDAIsAvailable()) return 0;
  return at::detail::getCUDAHooks().deviceCount();
}

bool CUDAIsLoaded(void) { return cuda_linked(); }

const char *CUDASynchronize(int64_t index) {
  return guard([&] {
    const at::Device d =
        device({static_cast<int32_t>(at::DeviceType::CUDA), static_cast<int32_t>(index)});
    at::detail::getCUDAHooks().init();
    const c10::impl::VirtualGuardImpl impl(at::DeviceType::CUDA);
    impl.synchronizeDevice(d.has_index() ? d.index() : impl.getDevice().index());
  });
}

int64_t GetNumThreads(void) {
  enter_thread();
  const int64_t n = default_threads.load();
  if (n > 0 && num_threads.load() == 0 && tls.own == 0) return n;
  return at::get_num_threads();
}

int64_t cgotorch_own_threads(int64_t n) {
  if (set_omp_threads() == nullptr) return 0;
  enter_thread();
  const int64_t old = std::exchange(tls.own, std::clamp<int64_t>(n, 0, INT32_MAX));
  if (tls.own == old) return old;
  // Of a thread that could not enter, the next call applies everything.
  if (!thread_is_late()) tls.settings = -1;
  enter_thread();
  return old;
}

void cgotorch_share_threads(int64_t callers) {
  if (num_threads.load() > 0 || set_omp_threads() == nullptr) return;
  if (at::globalContext().deterministicAlgorithms()) callers = 1;
  int64_t all = default_threads.load();
  if (all == 0) {
    enter_thread();
    default_threads = all = tls.before > 0 ? tls.before : at::get_num_threads();
  }
  const int64_t n = std::max<int64_t>(1, all / std::max<int64_t>(1, callers));
  if (share.exchange(n) != n) __atomic_add_fetch(&settings_generation, 1, __ATOMIC_RELEASE);
}

void cgotorch_limit_threads(int64_t n) {
  if (num_threads.load() > 0 || set_omp_threads() == nullptr) return;
  enter_thread();
  if (n < 1 || n >= at::get_num_threads()) return;
  default_threads = n;
  cgotorch_share_threads(1);
}

const char *SetNumThreads(int64_t n) {
  return guard([&] {
    if (n < 1 || n > INT32_MAX)
      throw Failure{"RuntimeError", "set_num_threads expects a positive integer"};
    num_threads.store(n);
    __atomic_add_fetch(&settings_generation, 1, __ATOMIC_RELEASE);
    enter_thread();
  });
}

int64_t GetNumInteropThreads(void) { return static_cast<int64_t>(at::get_num_interop_threads()); }

const char *SetNumInteropThreads(int64_t n) {
  return guard([&] {
    if (n < 1 || n > INT32_MAX)
      throw Failure{"RuntimeError", "set_num_interop_threads expects a positive integer"};
    at::set_num_interop_threads(static_cast<int>(n));
  });
}

}  // extern "C"
