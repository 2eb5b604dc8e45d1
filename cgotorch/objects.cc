// objects.cc: see objects.h.
//
// Objects of up to 512 bytes come from spans of 64 KiB, all in one region of reserved address
// space, each with objects of one size. That tells operator delete whose an address is: outside the
// region it is malloc's. The region is only addresses, which no limit but that of the address space
// counts; it is made memory in steps as spans are cut. Free objects are chained in lists of kBatch;
// a thread has one list in use and a stack of full ones per size, and hands whole lists to the
// others when it has too many. So the lock is taken once in kBatch times at most, and no chain is
// ever walked.
#include "objects.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <new>
#include <string>

#include "fork.h"
#include "internal.h"

// The sanitizers bring their own operator new.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

extern "C" int cgotorch_install_objects(void) { return 0; }
extern "C" int64_t cgotorch_object_bytes(void) { return 0; }

#else

namespace {

using cgotorch::fork_mutexes;

constexpr size_t kRegionBytes = size_t{1} << 34;
constexpr size_t kSpanBytes = size_t{1} << 16;
constexpr size_t kCommitBytes = size_t{1} << 22;  // of the region that become memory at once
constexpr size_t kLargest = 512;
constexpr size_t kStep = 16;  // of sizes, and the alignment that operator new promises
constexpr size_t kSizes = kLargest / kStep + 1;
constexpr uint32_t kBatch = 32;
constexpr uint32_t kKept = 64;  // full lists per size and thread

// A free object. The first of a full list links to the next list.
struct Free {
  Free *next;
  Free *next_list;
};
static_assert(sizeof(Free) <= kStep);
static_assert(kCommitBytes % kSpanBytes == 0 && kRegionBytes % kCommitBytes == 0);

struct List {
  Free *head;
  uint32_t n;      // at least the length of the chain at head
  uint32_t lists;  // full ones
  Free *full;
};

__thread List lists[kSizes] __attribute__((tls_model("initial-exec")));
__thread bool thread_ended __attribute__((tls_model("initial-exec")));

uintptr_t region = 0;
std::atomic<bool> active{false};
uint8_t span_size[kRegionBytes / kSpanBytes];  // in steps

// Constant-initialised, and never destroyed: new and delete are called before and after main.
struct Shared {  // under fork_mutexes.objects
  std::atomic<size_t> spans{0};
  size_t committed = 0;  // bytes of the region
  Free *full[kSizes] = {};
};
constinit Shared shared;

inline bool ours(const void *p) {
  // Also false while there is no region, because user addresses are below 2^47.
  return reinterpret_cast<uintptr_t>(p) - region < kRegionBytes && region != 0;
}

// Gives a thread's lists to the others when it ends.
struct Flush {
  ~Flush() {
    const std::lock_guard<std::mutex> lock(fork_mutexes.objects);
    for (size_t s = 0; s < kSizes; s++) {
      List &l = lists[s];
      if (l.head != nullptr) {
        l.head->next_list = l.full;
        l.full = l.head;
      }
      while (l.full != nullptr) {
        Free *const list = l.full;
        l.full = list->next_list;
        list->next_list = shared.full[s];
        shared.full[s] = list;
      }
      // What is still freed on this thread goes to the others one by one.
      l = List{nullptr, kBatch - 1, kKept, nullptr};
    }
    thread_ended = true;
  }
};

// Cuts a new span into full lists and returns them chained; nullptr when the region is used up, or
// the system gives no memory for it.
Free *cut_span(size_t steps) {
  const size_t span = shared.spans.load(std::memory_order_relaxed);
  if (span == kRegionBytes / kSpanBytes) return nullptr;
  if (span * kSpanBytes == shared.committed) {
    char *const next = reinterpret_cast<char *>(region) + shared.committed;
    if (mprotect(next, kCommitBytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
    shared.committed += kCommitBytes;
  }
  shared.spans.store(span + 1, std::memory_order_relaxed);
  span_size[span] = static_cast<uint8_t>(steps);
  char *const start = reinterpret_cast<char *>(region) + span * kSpanBytes;
  const size_t size = steps * kStep;
  Free *all = nullptr;
  for (size_t i = kSpanBytes / size / kBatch; i-- > 0;) {
    char *const list = start + i * kBatch * size;
    for (uint32_t k = 0; k < kBatch; k++) {
      auto *object = reinterpret_cast<Free *>(list + k * size);
      object->next = k + 1 < kBatch ? reinterpret_cast<Free *>(list + (k + 1) * size) : nullptr;
    }
    reinterpret_cast<Free *>(list)->next_list = all;
    all = reinterpret_cast<Free *>(list);
  }
  return all;
}

__attribute__((noinline)) void *new_slow(size_t steps) {
  List &l = lists[steps];
  Free *list = l.full;
  if (list != nullptr) {
    l.full = list->next_list;
    l.lists--;
  } else {
    thread_local Flush flush;
    (void)flush;
    const std::lock_guard<std::mutex> lock(fork_mutexes.objects);
    list = shared.full[steps];
    if (list == nullptr) list = cut_span(steps);
    if (list == nullptr) return nullptr;
    shared.full[steps] = list->next_list;
    if (__builtin_expect(thread_ended, 0)) {
      // This thread keeps no lists any more: the rest goes back.
      if (Free *const rest = list->next) {
        rest->next_list = shared.full[steps];
        shared.full[steps] = rest;
      }
      return list;
    }
  }
  l.head = list->next;
  l.n = kBatch - 1;
  return list;
}

__attribute__((noinline)) void delete_slow(size_t steps) {
  List &l = lists[steps];
  Free *const list = l.head;
  l.head = nullptr;
  if (l.lists < kKept) {
    l.n = 0;
    list->next_list = l.full;
    l.full = list;
    l.lists++;
    return;
  }
  l.n = thread_ended ? kBatch - 1 : 0;
  const std::lock_guard<std::mutex> lock(fork_mutexes.objects);
  list->next_list = shared.full[steps];
  shared.full[steps] = list;
}

inline void put(void *p, size_t steps) {
  List &l = lists[steps];
  auto *object = static_cast<Free *>(p);
  object->next = l.head;
  l.head = object;
  if (__builtin_expect(++l.n == kBatch, 0)) delete_slow(steps);
}

inline size_t steps_of(size_t n) { return n == 0 ? 1 : (n + kStep - 1) / kStep; }

inline size_t span_steps(const void *p) {
  return span_size[(reinterpret_cast<uintptr_t>(p) - region) / kSpanBytes];
}

__attribute__((noinline)) void *from_malloc(size_t n) {
  for (;;) {
    if (void *p = std::malloc(n == 0 ? 1 : n)) return p;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

// Whether a symbol that all libraries look up is this library's.
bool bound_here(const char *symbol) {
  Dl_info found{}, here{};
  void *p = dlsym(RTLD_DEFAULT, symbol);
  return p != nullptr && dladdr(p, &found) != 0 &&
         dladdr(reinterpret_cast<void *>(&bound_here), &here) != 0 &&
         found.dli_fbase == here.dli_fbase;
}

// Whether what libtorch and libstdc++ make really comes from here.
bool serves_others() {
  const at::Tensor t = at::Tensor(c10::make_intrusive<at::TensorImpl>(
      c10::DispatchKeySet(c10::DispatchKey::CPU), caffe2::TypeMeta::Make<float>(), at::kCPU));
  const at::Tensor made_by_torch = t.detach();
  const std::string made_by_libstdcxx(100, 'x');
  return ours(made_by_torch.unsafeGetTensorImpl()) && ours(made_by_libstdcxx.data());
}

}  // namespace

void *operator new(size_t n) {
  if (__builtin_expect(n <= kLargest && active.load(std::memory_order_relaxed), 1)) {
    const size_t steps = steps_of(n);
    List &l = lists[steps];
    if (Free *const object = l.head) {
      Free *const next = object->next;
      l.head = next;
      l.n--;
      // What was freed long ago has left the caches: the next object of this size is fetched while
      // the caller fills this one.
      for (size_t at = 0; at < steps * kStep; at += 64) {
        __builtin_prefetch(reinterpret_cast<char *>(next) + at, 1);
      }
      return object;
    }
    if (void *p = new_slow(steps)) return p;
  }
  return from_malloc(n);
}

void operator delete(void *p) noexcept {
  if (ours(p)) {
    put(p, span_steps(p));
  } else {
    std::free(p);
  }
}

void operator delete(void *p, size_t n) noexcept {
  if (ours(p)) {
    put(p, steps_of(n));
  } else {
    std::free(p);
  }
}

extern "C" int cgotorch_install_objects(void) {
  static const bool installed = [] {
    for (const char *symbol : {"_Znwm", "_ZdlPv", "_ZdlPvm"})
      if (!bound_here(symbol)) return false;
    void *p =
        mmap(nullptr, kRegionBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return false;  // a limit on address space
    region = reinterpret_cast<uintptr_t>(p);
    active = true;
    try {
      if (serves_others()) return true;
    } catch (...) {
    }
    active = false;
    return false;
  }();
  return installed;
}

extern "C" int64_t cgotorch_object_bytes(void) {
  return static_cast<int64_t>(shared.spans.load(std::memory_order_relaxed) * kSpanBytes);
}

#endif
