// Facts about cgotorch/allocator.cc, one line each; with an argument only those that contain it,
// and with the argument `bench` the allocator's speed next to PyTorch's own in the same process.
// Exits with 1 if a fact does not hold.

#include "allocator.h"
#include "fork.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <c10/core/CPUAllocator.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kThreadLag = 256 << 10;  // what allocator.h promises for each thread

using Stats = struct cgotorch_allocator_stats;
using Block = c10::DataPtr;
using Clock = std::chrono::steady_clock;

Stats stats() {
  Stats s;
  cgotorch_allocator_stats(&s);
  return s;
}
int64_t polled_allocated() {
  return __atomic_load_n(&cgotorch_pressure()->allocated, __ATOMIC_RELAXED);
}
int64_t polled_live() { return __atomic_load_n(&cgotorch_pressure()->live, __ATOMIC_RELAXED); }

Block take(size_t n) { return c10::GetCPUAllocator()->allocate(n); }
Block take_touched(size_t n) {
  Block b = take(n);
  std::memset(b.get(), 1, n);
  return b;
}

int64_t resident() {
  long total = 0, pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == nullptr || fscanf(f, "%ld %ld", &total, &pages) != 2) abort();
  fclose(f);
  return int64_t{pages} * sysconf(_SC_PAGESIZE);
}
int64_t address_space() {
  long total = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f == nullptr || fscanf(f, "%ld", &total) != 1) abort();
  fclose(f);
  return int64_t{total} * sysconf(_SC_PAGESIZE);
}
int64_t page_faults() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Built with CGOTORCH_PLAIN_ALLOCATOR or a sanitizer: counts, but no cache.
bool plain() { return stats().cache_limit == 0; }

#define EXPECT(condition, ...)                                 \
  do {                                                         \
    if (!(condition)) {                                        \
      printf("  %s:%d: %s; ", __FILE__, __LINE__, #condition); \
      printf(" " __VA_ARGS__);                                 \
      printf("\n");                                            \
      return false;                                            \
    }                                                          \
  } while (0)
#define LL(x) static_cast<long long>(x)

// Runs in a copy of this process, so that what it does to the process stays there.
bool in_child(const std::function<bool()> &fact) {
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    const bool ok = fact();
    fflush(stdout);
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
  return true;
}

const char *program;

bool again(const char *name) {
  fflush(stdout);
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(120);
    execl(program, program, name, nullptr);
    _exit(127);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
  return true;
}

// The facts ------------------------------------------------------------------------------------

bool not_installed() {
  at::Tensor t = at::ones({1000});
  cgotorch_release_cached();
  cgotorch_set_cache_limit(-1);
  const Stats s = stats();
  EXPECT(s.live_bytes == 0 && s.live_blocks == 0 && s.allocated_bytes == 0);
  EXPECT(s.cached_bytes == 0 && s.local_bytes == 0);
  EXPECT(polled_allocated() == 0 && polled_live() == 0);
  return true;
}

bool install_twice() {
  at::Tensor before = at::full({300, 300}, 7);
  cgotorch_install_allocator();
  c10::Allocator *ours = c10::GetCPUAllocator();
  EXPECT(ours != c10::GetDefaultCPUAllocator());
  cgotorch_install_allocator();
  EXPECT(c10::GetCPUAllocator() == ours);
  at::Tensor after = before.add(1);
  EXPECT(after.sum().item<double>() == 8 * 90000);
  const int64_t live = stats().live_bytes;
  EXPECT(live >= 360000, "%lld", LL(live));
  before.reset();
  EXPECT(stats().live_bytes == live, "an older tensor was counted when it died");
  after.reset();
  EXPECT(stats().live_bytes == 0 && stats().live_blocks == 0);
  return true;
}

bool empty_blocks() {
  const Stats before = stats();
  Block b = take(0);
  EXPECT(b.get() == nullptr && b.get_context() == nullptr);
  c10::GetCPUAllocator()->raw_deallocate(c10::GetCPUAllocator()->raw_allocate(0));
  EXPECT(at::empty({0, 3}).numel() == 0);
  EXPECT(stats().live_blocks == before.live_blocks);
  EXPECT(stats().allocated_bytes == before.allocated_bytes);
  return true;
}

bool sizes() {
  std::vector<size_t> ns;
  for (size_t n = 1; n <= 5000; n += 7) ns.push_back(n);
  for (size_t n = 64; n <= size_t{64} << 20; n *= 2) {
    for (size_t part : {size_t{8}, size_t{9}, size_t{11}, size_t{15}}) {
      ns.insert(ns.end(), {n / 8 * part - 1, n / 8 * part, n / 8 * part + 1});
    }
  }
  for (size_t n : ns) {
    const Stats before = stats();
    Block b = take_touched(n);
    EXPECT(reinterpret_cast<uintptr_t>(b.get()) % 64 == 0, "%zu", n);
    EXPECT(b.get() == b.get_context() && b.device().is_cpu());
    const int64_t size = stats().live_bytes - before.live_bytes;
    const auto asked = static_cast<int64_t>(n);
    EXPECT(size >= asked && size <= std::max(asked + 63, asked + asked / 8), "%zu: %lld", n,
           LL(size));
    EXPECT(stats().live_blocks == before.live_blocks + 1);
    EXPECT(stats().allocated_bytes == before.allocated_bytes + size);
    b.clear();
    EXPECT(stats().live_bytes == before.live_bytes, "%zu", n);
    EXPECT(stats().live_blocks == before.live_blocks);
    EXPECT(stats().allocated_bytes == before.allocated_bytes + size);
  }
  return true;
}

// Blocks marked at both ends with their own address and size; an overlap destroys a mark.
struct Marked {
  Block block;
  size_t n = 0;

  static Marked make(size_t n) {
    n = std::max<size_t>(n, 16) & ~size_t{7};
    Marked m{take(n), n};
    m.words()[0] = m.words()[n / 8 - 1] = m.mark();
    m.words()[n / 16] = m.mark();
    return m;
  }
  uint64_t *words() const { return static_cast<uint64_t *>(block.get()); }
  uint64_t mark() const { return reinterpret_cast<uintptr_t>(block.get()) * 31 + n; }
  bool intact() const {
    return words()[0] == mark() && words()[n / 8 - 1] == mark() && words()[n / 16] == mark();
  }
};

size_t any_size(std::mt19937 &random) {
  const unsigned kind = random() % 100;
  if (kind < 60) return 1 + random() % 1024;
  if (kind < 85) return 1 + random() % (32 << 10);
  if (kind < 97) return 1 + random() % (512 << 10);
  return 1 + random() % (6 << 20);
}

bool overlap_and_threads() {
  const Stats before = stats();
  // Every thread frees what any thread made.
  struct Pool {
    std::mutex mutex;
    std::vector<Marked> blocks;
  } pools[16];
  std::atomic<bool> intact{true};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 8; seed++) {
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 60000; i++) {
        Pool &pool = pools[random() % std::size(pools)];
        Marked old;
        {
          std::lock_guard lock(pool.mutex);
          if (!pool.blocks.empty() && random() % 128 < pool.blocks.size()) {
            std::swap(pool.blocks[random() % pool.blocks.size()], pool.blocks.back());
            old = std::move(pool.blocks.back());
            pool.blocks.pop_back();
          }
        }
        if (old.n != 0 && !old.intact()) intact = false;
        old.block.clear();
        Marked m = Marked::make(any_size(random));
        std::lock_guard lock(pool.mutex);
        pool.blocks.push_back(std::move(m));
        if (i % 5000 == 0) {
          if (seed == 0) cgotorch_release_cached();
          if (stats().cached_bytes < 0) intact = false;
        }
      }
    });
  }
  for (auto &t : threads) t.join();
  int64_t blocks = 0;
  for (auto &pool : pools) {
    blocks += static_cast<int64_t>(pool.blocks.size());
    for (auto &m : pool.blocks) EXPECT(m.intact());
  }
  EXPECT(intact);
  EXPECT(stats().live_blocks == before.live_blocks + blocks, "%lld, %lld", LL(stats().live_blocks),
         LL(before.live_blocks + blocks));
  for (auto &pool : pools) pool.blocks.clear();
  EXPECT(stats().live_bytes == before.live_bytes, "%lld", LL(stats().live_bytes));
  EXPECT(stats().live_blocks == before.live_blocks);
  return true;
}

bool polling() {
  const int64_t allocated = polled_allocated(), live = polled_live();
  {
    Block large = take(1 << 20);
    EXPECT(polled_allocated() == allocated + kMiB && polled_live() == live + kMiB);
  }
  EXPECT(polled_live() == live);
  const int64_t exact = stats().live_bytes;
  std::vector<Block> kept;
  for (int i = 0; i < 300000; i++) {
    Block b = take(100);
    if (i % 10 == 0) kept.push_back(std::move(b));
    if (i % 1000 != 0) continue;
    const Stats s = stats();
    EXPECT(s.live_bytes == exact + 128 * static_cast<int64_t>(kept.size()));
    const int64_t late = s.allocated_bytes - polled_allocated();
    const int64_t above = polled_live() - s.live_bytes;
    EXPECT(late >= 0 && late <= kThreadLag, "%lld", LL(late));
    EXPECT(above >= 0 && above <= kThreadLag, "%lld", LL(above));
  }
  // A thread that only frees tells it too.
  std::thread([&] { kept.clear(); }).join();
  const int64_t above = polled_live() - stats().live_bytes;
  EXPECT(above >= 0 && above <= kThreadLag, "%lld", LL(above));
  return true;
}

bool producer_and_consumer() {
  cgotorch_release_cached();
  const Stats before = stats();
  std::mutex mutex;
  std::vector<Block> queue;
  std::atomic<bool> done{false};
  int64_t most_cached = 0;
  std::thread producer([&] {
    for (int i = 0; i < 2000000;) {
      std::vector<Block> batch;
      for (int j = 0; j < 100; j++, i++) batch.push_back(take(i % 3 == 0 ? 16 : 1000));
      for (;;) {
        std::lock_guard lock(mutex);
        if (queue.size() > 10000) continue;
        std::move(batch.begin(), batch.end(), std::back_inserter(queue));
        break;
      }
    }
    done = true;
  });
  for (int i = 0;; i++) {
    const bool last = done;
    std::vector<Block> batch;
    {
      std::lock_guard lock(mutex);
      batch.swap(queue);
    }
    batch.clear();
    if (i % 64 == 0) most_cached = std::max(most_cached, stats().cached_bytes);
    if (last) break;
  }
  producer.join();
  EXPECT(stats().live_bytes == before.live_bytes);
  // 10,000 blocks of 1 KiB in flight, and the two threads' own lists.
  EXPECT(most_cached <= before.cached_bytes + 16 * kMiB, "%lld", LL(most_cached));
  return true;
}

bool thread_ends() {
  const Stats before = stats();
  for (int round = 0; round < 50; round++) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) {
      threads.emplace_back([] {
        std::vector<Block> blocks;
        for (size_t n = 64; n <= 32 << 10; n += 64) blocks.push_back(take(n));
      });
    }
    for (auto &t : threads) t.join();
  }
  EXPECT(stats().live_blocks == before.live_blocks);
  EXPECT(stats().local_bytes == before.local_bytes, "%lld, %lld", LL(stats().local_bytes),
         LL(before.local_bytes));
  return true;
}

pthread_key_t late_key;
std::vector<Block> *late_blocks() {
  auto *blocks = new std::vector<Block>;
  for (size_t n = 16; n <= 128 << 10; n *= 2) blocks->push_back(take_touched(n));
  return blocks;
}

bool freed_while_a_thread_ends() {
  const Stats before = stats();
  // Made after the allocator's own key, so this destructor runs after the allocator's, twice.
  pthread_key_create(&late_key, [](void *p) {
    auto *blocks = static_cast<std::vector<Block> *>(p);
    const bool first = blocks->size() > 2;
    delete blocks;
    if (first) pthread_setspecific(late_key, new std::vector<Block>(2));
    at::Tensor t = at::ones({2, 2}).add(1);
  });
  for (int i = 0; i < 20; i++) {
    std::thread([] {
      thread_local at::Tensor kept = at::ones({100});
      thread_local std::vector<Block> *more = late_blocks();
      pthread_setspecific(late_key, more);
      kept.add_(1);
    }).join();
  }
  pthread_key_delete(late_key);
  EXPECT(stats().live_bytes == before.live_bytes, "%lld", LL(stats().live_bytes));
  EXPECT(stats().local_bytes == before.local_bytes, "%lld", LL(stats().local_bytes));
  return true;
}

bool forks() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; seed++) {
    threads.emplace_back([&stop, seed] {
      std::mt19937 random(seed);
      std::vector<Block> blocks(64);
      while (!stop) {
        blocks[random() % blocks.size()] = take(any_size(random));
        if (random() % 1000 == 0) cgotorch_release_cached();
      }
    });
  }
  bool ok = true;
  for (int i = 0; i < 40 && ok; i++) {
    ok = in_child([] {
      alarm(20);
      auto work = [] {
        std::vector<Marked> blocks;
        for (size_t n = 16; n < 8 << 20; n += n / 8 + 1) blocks.push_back(Marked::make(n));
        for (auto &m : blocks) EXPECT(m.intact());
        return true;
      };
      bool in_thread = false;
      std::thread([&] { in_thread = work(); }).join();
      const bool here = work();
      cgotorch_release_cached();
      return in_thread && here && stats().live_blocks >= 0;
    });
  }
  stop = true;
  for (auto &t : threads) t.join();
  return ok;
}

std::atomic<bool> forking{false};
std::atomic<int> locked_meanwhile{0};
thread_local bool watched = false;

// Whoever forks has all the locks, or the child begins with what another thread had half done.
bool fork_locks_out() {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; seed++) {
    threads.emplace_back([&stop, seed] {
      watched = true;
      std::mt19937 random(seed);
      std::vector<Block> blocks(64);
      // Large blocks in two of the threads: there a lock is taken each time, and no other before
      // it.
      while (!stop) blocks[random() % blocks.size()] = take(seed < 2 ? 100000 : any_size(random));
      blocks.clear();
    });
  }
  bool ok = true;
  for (int i = 0; i < 20 && ok; i++) ok = in_child([] { return true; });
  stop = true;
  for (auto &t : threads) t.join();
  EXPECT(locked_meanwhile == 0, "%d times", locked_meanwhile.load());
  return ok;
}

// What is registered first is called last, with all locks taken.
void watch_forks() {
  pthread_atfork(
      [] {
        forking = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      },
      [] { forking = false; }, [] { forking = false; });
}

at::Tensor freed_at_exit_first;
std::vector<at::Tensor> freed_at_exit;

// Leaves tensors of both allocators to the destructors of static storage, and threads at work.
int leave_process() {
  freed_at_exit_first = at::ones({10});
  cgotorch_install_allocator();
  static at::Tensor local = at::ones({20});
  for (int64_t n = 1; n < 4 << 20; n *= 2) freed_at_exit.push_back(at::ones({n}));
  for (int i = 0; i < 3; i++) {
    std::thread([] {
      for (;;) take(100), take(100000);
    }).detach();
  }
  atexit([] { freed_at_exit.push_back(at::ones({3})); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  exit(0);
}

bool refuses(const std::function<void()> &f, size_t n) {
  try {
    f();
  } catch (const c10::Error &e) {
    const std::string want = "DefaultCPUAllocator: can't allocate memory: you tried to allocate " +
                             std::to_string(n) + " bytes.";
    const std::string got = e.what_without_backtrace();
    EXPECT(got.rfind(want, 0) == 0, "%s", got.c_str());
    return true;
  }
  EXPECT(false, "%zu bytes were allocated", n);
}

bool too_much() {
  const Stats before = stats();
  for (size_t n : {size_t{1} << 45, size_t{1} << 47, size_t{1} << 62, SIZE_MAX, SIZE_MAX - 63}) {
    EXPECT(refuses([n] { take(n); }, n));
  }
  EXPECT(refuses([] { at::empty({int64_t{1} << 46}); }, size_t{1} << 48));
  EXPECT(stats().live_bytes == before.live_bytes && stats().live_blocks == before.live_blocks);
  EXPECT(stats().allocated_bytes == before.allocated_bytes);
  EXPECT(stats().cache_limit <= 64 * kMiB + before.cache_limit, "a refusal became the peak");
  return true;
}

bool cache_before_refusal() {
  return in_child([] {
    cgotorch_set_cache_limit(INT64_MAX);
    std::vector<Block> blocks;
    for (int i = 0; i < 400; i++) blocks.push_back(take_touched(1 << 20));
    for (int i = 0; i < 20; i++) blocks.push_back(take_touched(5 << 20));
    for (int i = 0; i < 100000; i++) blocks.push_back(take_touched(1000));
    blocks.clear();
    EXPECT(stats().cached_bytes > 550 * kMiB, "%lld", LL(stats().cached_bytes));
    std::vector<Block> small;
    small.reserve(12 << 20);
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = static_cast<rlim_t>(address_space() + 40 * kMiB);
    setrlimit(RLIMIT_AS, &limit);
    {
      Block large = take(400 << 20);
      EXPECT(stats().cached_bytes < 100 * kMiB, "%lld", LL(stats().cached_bytes));
      EXPECT(refuses([] { take(size_t{2} << 30); }, size_t{2} << 30));
    }
    // All sizes run out in good order, and come back.
    for (size_t n :
         {size_t{64}, size_t{4096}, size_t{32} << 10, size_t{300} << 10, size_t{3} << 20}) {
      EXPECT(refuses(
          [&] {
            for (;;) small.push_back(take(n));
          },
          n));
      EXPECT(small.size() * n > (400 << 20), "%zu blocks of %zu", small.size(), n);
      small.clear();
      small.push_back(take(n));
    }
    return true;
  });
}

bool steady_loop() {
  cgotorch_release_cached();
  const int64_t start = resident();
  int64_t most = 0;
  std::vector<at::Tensor> ten(10);
  for (int i = 0; i < 100000; i++) {
    ten[static_cast<size_t>(i) % 10] = at::empty({512, 512});
    static_cast<char *>(ten[static_cast<size_t>(i) % 10].data_ptr())[i] = 1;
    if (i % 10 == 9) ten.assign(10, at::Tensor());
    if (i % 1000 == 0) most = std::max(most, resident() - start);
  }
  EXPECT(most < 24 * kMiB, "%lld MiB", LL(most / kMiB));
  return true;
}

// Up by 400 MB and down again, as the forward and the backward pass do.
bool peaks_are_remembered() {
  cgotorch_release_cached();
  int64_t faults = 0, most = 0;
  const int64_t start = resident();
  for (int step = 0; step < 20; step++) {
    if (step == 2) faults = page_faults();
    std::vector<Block> saved;
    for (int layer = 0; layer < 200; layer++) {
      saved.push_back(take_touched(2000000));
      take_touched(300000);
    }
    most = std::max(most, resident() - start);
  }
  faults = (page_faults() - faults) / 18;
  EXPECT(faults < 500, "%lld page faults in a step", LL(faults));
  EXPECT(most < 480 * kMiB, "%lld MiB", LL(most / kMiB));
  return true;
}

// Sentences of any length: no two steps use the same sizes.
bool sizes_that_change() {
  cgotorch_release_cached();
  std::mt19937 random(1);
  const int64_t start = resident();
  int64_t most = 0, most_live = 0, faults = 0, pages = 0;
  for (int step = 0; step < 150; step++) {
    if (step == 20) faults = page_faults();
    const size_t length = 64 + random() % 448;
    std::vector<Block> saved;
    for (size_t layer = 0; layer < 100; layer++) {
      for (size_t width : {256, 1024, 3072}) {
        saved.push_back(take_touched(length * width));
        if (step >= 20) pages += static_cast<int64_t>(length * width / 4096);
        take_touched(length * width / 2);
      }
    }
    most = std::max(most, resident() - start);
    most_live = std::max(most_live, stats().live_bytes);
  }
  faults = page_faults() - faults;
  EXPECT(most < most_live + 80 * kMiB, "%lld MiB, live %lld", LL(most / kMiB),
         LL(most_live / kMiB));
  printf("  %.1f%% of the pages were faulted in again, most resident %lld MiB, live %lld MiB\n",
         100.0 * static_cast<double>(faults) / static_cast<double>(pages), LL(most / kMiB),
         LL(most_live / kMiB));
  EXPECT(faults * 10 < pages, "%lld of %lld", LL(faults), LL(pages));
  return true;
}

bool release_gives_back() {
  cgotorch_release_cached();
  const int64_t start = resident(), cached = stats().cached_bytes;
  std::vector<Block> kept;  // here and there, so that what is free lies in pieces
  {
    std::vector<Block> blocks;
    blocks.reserve(400000);
    for (int i = 0; i < 300; i++) {
      for (int j = 0; j < 1000; j++) blocks.push_back(take_touched(1000));
      blocks.push_back(take_touched(700000));
      if (i % 30 == 0) kept.push_back(take_touched(700000));
    }
    for (int i = 0; i < 10; i++) blocks.push_back(take_touched(20000000));
    EXPECT(resident() - start > 580 * kMiB);
  }
  EXPECT(stats().cached_bytes > 64 * kMiB);
  cgotorch_release_cached();
  EXPECT(stats().cached_bytes <= cached + kMiB, "%lld", LL(stats().cached_bytes));
  EXPECT(resident() - start < 32 * kMiB, "%lld MiB", LL((resident() - start) / kMiB));
  return true;
}

bool other_threads_follow() {
  std::mutex mutex;
  mutex.lock();
  std::atomic<int> stage{0};
  const int64_t before = stats().local_bytes;
  std::thread other([&] {
    {
      std::vector<Block> blocks(200);
      for (auto &b : blocks) b = take(1000);
    }
    stage = 1;
    while (stage == 1) std::this_thread::yield();
    Block b = take(8000);  // of a class that this thread has none of
    stage = 3;
    while (stage == 3) std::this_thread::yield();
  });
  while (stage == 0) std::this_thread::yield();
  const int64_t held = stats().local_bytes;
  cgotorch_release_cached();
  stage = 2;
  while (stage == 2) std::this_thread::yield();
  const int64_t left = stats().local_bytes;
  stage = 4;
  other.join();
  mutex.unlock();
  EXPECT(held - before >= 32 << 10, "%lld", LL(held - before));
  EXPECT(left <= 16 << 10, "%lld", LL(left));
  return true;
}

void make_peak() {
  std::vector<Block> blocks;
  for (int i = 0; i < 300; i++) blocks.push_back(take(2 << 20));
}

bool peaks_are_forgotten() {
  cgotorch_release_cached();
  // By time, and while there are only tiny tensors.
  cgotorch_set_cache_decay(30);
  make_peak();
  EXPECT(stats().cached_bytes >= 600 * kMiB, "%lld", LL(stats().cached_bytes));
  const auto start = Clock::now();
  while (seconds_since(start) < 0.3) take(16);
  EXPECT(stats().cached_bytes <= 70 * kMiB, "%lld", LL(stats().cached_bytes));
  // By volume, when time stands still.
  cgotorch_set_cache_decay(INT64_MAX / 2);
  make_peak();
  EXPECT(stats().cached_bytes >= 600 * kMiB, "%lld", LL(stats().cached_bytes));
  for (int i = 0; i < 2 * 16 * 620; i++) take(1 << 20);
  EXPECT(stats().cached_bytes <= 70 * kMiB, "%lld", LL(stats().cached_bytes));
  cgotorch_set_cache_decay(10000);
  return true;
}

bool limits() {
  cgotorch_release_cached();
  for (int64_t limit : {int64_t{0}, 8 * kMiB, 100 * kMiB}) {
    cgotorch_set_cache_limit(limit);
    EXPECT(stats().cache_limit == limit);
    make_peak();
    for (size_t n = 40 << 10; n < 2 << 20; n += 100000) take_touched(n);
    EXPECT(stats().cached_bytes <= limit + kMiB, "%lld", LL(stats().cached_bytes));
  }
  cgotorch_set_cache_limit(-1);
  EXPECT(stats().cache_limit >= 64 * kMiB);
  return true;
}

bool copies() {
  Block b = take(1000);
  for (int i = 0; i < 1000; i++) static_cast<char *>(b.get())[i] = static_cast<char>(i);
  Block c = c10::GetCPUAllocator()->clone(b.get(), 1000);
  EXPECT(c.get() != b.get() && std::memcmp(b.get(), c.get(), 1000) == 0);
  EXPECT(c10::GetCPUAllocator()->is_simple_data_ptr(c));
  EXPECT(c.get_deleter() == c10::GetCPUAllocator()->raw_deleter());
  at::Tensor t = at::arange(6);
  t.resize_({100000});
  EXPECT(t.narrow(0, 0, 6).sum().item<int64_t>() == 15);
  return true;
}

struct Fact {
  const char *name;
  bool (*holds)();
  bool needs_cache;
};

const Fact kFacts[] = {
    {"not installed: zeros, and every function works", not_installed, false},
    {"installing twice is once, and older tensors keep their memory", install_twice, false},
    {"empty blocks are null", empty_blocks, false},
    {"aligned, counted exactly, at most an eighth too large", sizes, true},
    {"blocks of eight threads never overlap, and counts are exact afterwards", overlap_and_threads,
     false},
    {"polled counters are at most 256 KiB per thread late", polling, true},
    {"freeing on another thread keeps memory bounded", producer_and_consumer, false},
    {"a thread that ends returns what it held", thread_ends, false},
    {"blocks can be freed after their thread's cache is gone", freed_while_a_thread_ends, false},
    {"a fork in the middle of everything works on", forks, false},
    {"a fork waits until no other thread is inside", fork_locks_out, true},
    {"tensors can be freed while the process exits", [] { return again("exit"); }, false},
    {"too much is refused in PyTorch's words", too_much, false},
    {"the cache is given up before memory is refused", cache_before_refusal, true},
    {"100,000 tensors of 1 MB keep resident memory flat", steady_loop, false},
    {"a step that goes up and down finds its pages again", peaks_are_remembered, true},
    {"sizes that change at each step are made from old memory", sizes_that_change, true},
    {"release gives memory back to the system", release_gives_back, true},
    {"release reaches the other threads when they next run out", other_threads_follow, true},
    {"a peak is forgotten with time and with volume", peaks_are_forgotten, true},
    {"the cache keeps to its limit", limits, true},
    {"clone, resize and raw_deleter work as c10::Allocator asks", copies, false},
};

// The benchmark --------------------------------------------------------------------------------

template <class F>
double nanoseconds(const F &f, int n) {
  const auto start = Clock::now();
  for (int i = 0; i < n; i++) f();
  return seconds_since(start) * 1e9 / n;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

template <class F>
void compare(const char *name, int n, const F &f) {
  static c10::Allocator *const ours = c10::GetCPUAllocator();
  std::vector<double> a, b, ratio;
  for (int i = 0; i < 31; i++) {
    c10::SetCPUAllocator(c10::GetDefaultCPUAllocator(), 1);
    f();
    a.push_back(nanoseconds(f, n));
    c10::SetCPUAllocator(ours, 1);
    f();
    b.push_back(nanoseconds(f, n));
    ratio.push_back(b.back() / a.back());
  }
  printf("%-34s %10.1f ns %10.1f ns %7.3f\n", name, median(a), median(b), median(ratio));
}

int bench() {
  cgotorch_install_allocator();
  at::set_num_threads(1);
  c10::AutoGradMode no_grad(false);
  printf("%-34s %13s %13s %7s\n", "", "PyTorch's", "this one", "ratio");
  at::Tensor a = at::ones({2, 2}), b = at::ones({2, 2});
  compare("allocate and free 16 bytes", 100000, [] { take(16); });
  compare("empty 2x2", 50000, [] { at::empty({2, 2}); });
  compare("add 2x2", 30000, [&] { at::add(a, b); });
  compare("mm 2x2", 30000, [&] { at::mm(a, b); });
  compare("relu 2x2", 30000, [&] { at::relu(a); });
  at::Tensor c = at::ones({64, 128}), d = at::ones({256, 128});
  compare("relu 64x128", 5000, [&] { at::relu(c); });
  compare("relu 256x128", 3000, [&] { at::relu(d); });
  compare("ones 1 MB, freed one at a time", 200, [] { at::ones({512, 512}); });
  std::vector<at::Tensor> ten(10);
  compare("ones 1 MB, freed ten at a time", 20, [&] {
    for (auto &t : ten) t = at::ones({512, 512});
    for (auto &t : ten) t.reset();
  });
  compare("ones 4 MB, freed four at a time", 5, [&] {
    for (size_t i = 0; i < 4; i++) ten[i] = at::ones({1024, 1024});
    for (auto &t : ten) t.reset();
  });
  compare("ones 40 MB", 2, [&] { at::ones({10, 1024, 1024}); });
  return 0;
}

}  // namespace

// In place of the C library's, for all of this program.
extern "C" int pthread_mutex_lock(pthread_mutex_t *mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t *);
  static Lock const next = reinterpret_cast<Lock>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  const int got = next(mutex);
  if (watched && forking) locked_meanwhile++;
  return got;
}

int main(int argc, char **argv) {
  program = argv[0];
  const std::string argument = argc > 1 ? argv[1] : "";
  if (argument == "exit") return leave_process();
  if (argument == "bench") return bench();
  int failed = 0;
  watch_forks();
  using namespace cgotorch;
  pthread_atfork(lock_allocator, unlock_allocator, unlock_allocator);  // as fork.cc
  if (!argument.empty()) cgotorch_install_allocator();
  for (const Fact &fact : kFacts) {
    if (std::string(fact.name).find(argument) == std::string::npos) continue;
    const bool skip = fact.needs_cache && plain();
    const auto start = Clock::now();
    const bool ok = skip || fact.holds();
    if (!ok) failed++;
    printf("%-5s %s (%.2f s)\n",
           skip ? "n/a"
           : ok ? "ok"
                : "FAIL",
           fact.name, seconds_since(start));
    fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}
