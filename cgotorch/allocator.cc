// How it works, from the bottom up:
//
//  pages   Segments of 32 MiB, aligned to their size, are cut into runs of 4 KiB pages. A free run
//          is clean (no memory behind it) or dirty, and coalesces with free neighbours of its kind.
//          Blocks of 2 MiB and more are mappings of their own, where huge pages make the first
//          touch six times cheaper and where giving back never splits one.
//  large   Blocks above 32 KiB. Free ones wait in a list per size class, last in first out, so that
//          the block which is still in the processor's cache comes back. Beyond the limit the
//          oldest go back to the operating system.
//  small   Up to 32 KiB, cut from runs; one lock and one list of runs per class ("shelf").
//  thread  A stack of free blocks per class ("magazine"), filled from and emptied to the shelf in
//          batches, at most 256 KiB in all. This is the path that a tiny tensor takes: no atomic
//          instruction, no lock, and one comparison that catches every other case, since whoever
//          needs the slow path has a magazine that is both empty and full.
//
// A pointer leads to its size class by the table at the start of its segment, so nothing is stored
// next to the data and tensors stay aligned to 64 bytes without padding.
//
// Nothing here has a destructor: tensors in static storage may be freed after everything else.

#include "allocator.h"
#include "fork.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <type_traits>

// Tools that watch memory must see each block come and go: with CGOTORCH_PLAIN_ALLOCATOR, and
// always under the address sanitizer, blocks are malloc's and only counted.
#if defined(__SANITIZE_ADDRESS__) && !defined(CGOTORCH_PLAIN_ALLOCATOR)
#define CGOTORCH_PLAIN_ALLOCATOR 1
#endif
#if defined(__has_feature) && !defined(CGOTORCH_PLAIN_ALLOCATOR)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define CGOTORCH_PLAIN_ALLOCATOR 1
#endif
#endif

namespace cgotorch {
namespace {

constexpr size_t kAlignment = 64;

// The counters that Go polls, on a cache line of their own.
alignas(64) constinit struct cgotorch_pressure g_pressure{};

void add(int64_t &counter, int64_t n) {
  std::atomic_ref<int64_t>(counter).fetch_add(n, std::memory_order_relaxed);
}
int64_t read(int64_t &counter) {
  return std::atomic_ref<int64_t>(counter).load(std::memory_order_relaxed);
}

[[noreturn, gnu::noinline, gnu::cold]] void throw_out_of_memory(size_t n) {
  c10::profiledCPUMemoryReporter().OutOfMemory(n);
  TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate ", n,
              " bytes. Error code ", ENOMEM, " (Cannot allocate memory)");
}

#ifdef CGOTORCH_PLAIN_ALLOCATOR

constinit std::atomic<int64_t> g_blocks{0};

bool take_fast(size_t, void *&) { return false; }

void *take_slow(size_t n) {
  if (n == 0) return nullptr;
  void *p = nullptr;
  if (n > PTRDIFF_MAX || posix_memalign(&p, kAlignment, n) != 0) throw_out_of_memory(n);
  const auto size = static_cast<int64_t>(malloc_usable_size(p));
  add(g_pressure.allocated, size);
  add(g_pressure.live, size);
  g_blocks.fetch_add(1, std::memory_order_relaxed);
  return p;
}

void put(void *p) {
  if (p == nullptr) return;
  add(g_pressure.live, -static_cast<int64_t>(malloc_usable_size(p)));
  g_blocks.fetch_sub(1, std::memory_order_relaxed);
  free(p);
}

void prepare() {}
void collect(struct cgotorch_allocator_stats &stats) {
  stats.live_bytes = read(g_pressure.live);
  stats.live_blocks = g_blocks.load(std::memory_order_relaxed);
  stats.allocated_bytes = read(g_pressure.allocated);
}
void release() {}
void set_limit(int64_t) {}
void set_decay(int64_t) {}
void lock_all() {}
void unlock_all() {}

#else

// Size classes ---------------------------------------------------------------------------------

constexpr size_t kPage = 4096;
constexpr size_t kSegment = size_t{32} << 20;
constexpr size_t kSegmentPages = kSegment / kPage;
constexpr size_t kMaxSmall = size_t{32} << 10;
constexpr size_t kMinHuge = size_t{2} << 20;
constexpr size_t kMaxLarge = size_t{1} << 46;

constexpr unsigned kSmallClasses = 57;  // 0 is none of them: empty, large and huge blocks
constexpr unsigned kLargeClasses = 248;

constexpr unsigned small_class(size_t n) {
  if (n <= 1024) [[likely]]
    return static_cast<unsigned>((n + 63) / 64);
  if (n > kMaxSmall) return 0;
  const unsigned e = static_cast<unsigned>(std::bit_width(n - 1)) - 1;
  return static_cast<unsigned>(17 + (e - 10) * 8 + ((n - 1) >> (e - 3)) - 8);
}

constexpr size_t small_size(unsigned c) {
  if (c <= 16) return c * size_t{64};
  return size_t{(c - 17) % 8 + 9} << ((c - 17) / 8 + 7);
}

constexpr unsigned large_class(size_t n) {
  const unsigned e = static_cast<unsigned>(std::bit_width(n - 1)) - 1;
  return static_cast<unsigned>((e - 15) * 8 + ((n - 1) >> (e - 3)) - 8);
}

constexpr size_t large_size(unsigned c) { return size_t{c % 8 + 9} << (c / 8 + 12); }

struct SmallClass {
  uint32_t size;
  uint32_t most;     // blocks in a thread's magazine
  uint32_t batch;    // blocks that travel at once between thread and shelf
  uint32_t per_run;  // blocks in a run
  uint32_t run;      // the large class of a run
};

constexpr auto kSmall = [] {
  std::array<SmallClass, kSmallClasses> table{};
  for (unsigned c = 1; c < kSmallClasses; c++) {
    const size_t size = small_size(c);
    // At least eight blocks to a run, and a remainder of at most a 32nd.
    unsigned run = large_class(std::max<size_t>(64 << 10, 8 * size));
    while (large_size(run) % size * 32 > large_size(run)) run++;
    table[c].size = static_cast<uint32_t>(size);
    table[c].most = static_cast<uint32_t>(std::clamp<size_t>((64 << 10) / size, 4, 512));
    table[c].batch = std::min<uint32_t>(table[c].most / 4, 64);
    table[c].per_run = static_cast<uint32_t>(large_size(run) / size);
    table[c].run = run;
  }
  return table;
}();

constexpr size_t kSlots = [] {
  size_t n = 0;
  for (const auto &k : kSmall) n += k.most;
  return n;
}();

static_assert([] {
  for (unsigned c = 1; c < kSmallClasses; c++) {
    if (small_class(small_size(c)) != c || small_class(small_size(c) - 63) != c) return false;
    if (small_class(small_size(c) + 1) != (c + 1) % kSmallClasses) return false;
  }
  for (unsigned c = 0; c < kLargeClasses; c++) {
    if (large_class(large_size(c)) != c || large_class(large_size(c) + 1) != c + 1) return false;
    if (large_size(c) % kPage != 0) return false;
  }
  return small_size(kSmallClasses - 1) == kMaxSmall && large_class(kMaxSmall + 1) == 0 &&
         large_size(kLargeClasses - 1) == kMaxLarge;
}());

// Segments and runs ----------------------------------------------------------------------------

enum class State : uint8_t { kClean, kDirty, kTaken };
constexpr unsigned kFreeStates = 2;

struct alignas(64) Run {
  Run *prev, *next;    // in a list of cached runs, a bin of free ones, or a shelf
  Run *older, *newer;  // by the time it was freed
  void *returned;      // small: blocks that came back, linked through their first word
  uint32_t pages;
  uint32_t out;    // small: blocks that threads or tensors have
  uint32_t fresh;  // small: the first block that was never handed out
  uint8_t large_class, small_class;
  State state;
  bool huge;
};
static_assert(sizeof(Run) == 64);

struct Segment {
  uint8_t small_class[kSegmentPages];  // of the block on this page
  uint16_t first_page[kSegmentPages];  // of the run that ends here; for small runs on every page
  Run runs[kSegmentPages];             // valid at a run's first page
};

constexpr size_t kFirstPage = (sizeof(Segment) + kPage - 1) / kPage;
constexpr size_t kUsablePages = kSegmentPages - kFirstPage;

// A huge block's segment is one page before its data. Its page number, 1, never occurs elsewhere.
struct HugeSegment {
  uint8_t small_class[64];
  Run run;
};
static_assert(sizeof(HugeSegment) <= kPage && kFirstPage > 1);

template <class T>
uintptr_t address(T *p) {
  return reinterpret_cast<uintptr_t>(p);
}
template <class T>
Segment *segment_of(T *p) {
  return reinterpret_cast<Segment *>(address(p) & ~(kSegment - 1));
}
size_t page_of(const void *p) { return (address(p) & (kSegment - 1)) / kPage; }

Run *run_of_large(void *p) {
  const size_t page = page_of(p);
  Segment *segment = segment_of(p);
  return page == 1 ? &reinterpret_cast<HugeSegment *>(segment)->run : &segment->runs[page];
}
Run *run_of_small(void *p) {
  Segment *segment = segment_of(p);
  return &segment->runs[segment->first_page[page_of(p)]];
}

size_t first_page(Run *run) { return static_cast<size_t>(run - segment_of(run)->runs); }

char *data_of(Run *run) {
  return reinterpret_cast<char *>(segment_of(run)) + kPage * (run->huge ? 1 : first_page(run));
}

// Lists of runs, newest first. One run can be in a list of each kind of link.
template <Run *Run::*Newer, Run *Run::*Older>
struct List {
  Run *newest = nullptr, *oldest = nullptr;

  void push(Run *run) {
    run->*Newer = nullptr;
    run->*Older = newest;
    (newest != nullptr ? newest->*Newer : oldest) = run;
    newest = run;
  }
  void remove(Run *run) {
    (run->*Newer != nullptr ? run->*Newer->*Older : newest) = run->*Older;
    (run->*Older != nullptr ? run->*Older->*Newer : oldest) = run->*Newer;
  }
};
using Stack = List<&Run::prev, &Run::next>;
using Ages = List<&Run::newer, &Run::older>;

// What the operating system does ---------------------------------------------------------------

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack it, older kernels refuse it
#endif

constinit size_t g_system_page = kPage;  // set at installation

// Memory at a multiple of kSegment, or nullptr. It is reserved without access first, so that only
// what is kept counts towards the system's commit limit.
char *map_aligned(size_t bytes) {
  void *raw = mmap(nullptr, bytes + kSegment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char *begin = static_cast<char *>(raw);
  char *base = reinterpret_cast<char *>((address(raw) + kSegment - 1) & ~(kSegment - 1));
  if (base != begin) munmap(begin, static_cast<size_t>(base - begin));
  if (base != begin + kSegment) {
    munmap(base + bytes, static_cast<size_t>(begin + kSegment - base));
  }
  if (mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, bytes);
    return nullptr;
  }
  return base;
}

// Advises on the whole pages of the system in a range; errors change nothing but speed.
void advise(char *begin, size_t bytes, int advice) {
  const uintptr_t from = (address(begin) + g_system_page - 1) & ~(g_system_page - 1);
  const uintptr_t to = (address(begin) + bytes) & ~(g_system_page - 1);
  if (from >= to) return;
  const int saved = errno;
  madvise(reinterpret_cast<void *>(from), to - from, advice);
  errno = saved;
}

size_t round_to_system_page(size_t n) { return (n + g_system_page - 1) & ~(g_system_page - 1); }

Run *map_huge(unsigned c) {
  const size_t bytes = round_to_system_page(kPage + large_size(c));
  char *base = map_aligned(bytes);
  if (base == nullptr) return nullptr;
  advise(base, bytes, MADV_HUGEPAGE);
  Run *run = new (&reinterpret_cast<HugeSegment *>(base)->run) Run{};
  run->large_class = static_cast<uint8_t>(c);
  run->huge = true;
  return run;
}

void unmap_huge(Run *run) {
  munmap(segment_of(run), round_to_system_page(kPage + large_size(run->large_class)));
}

int64_t milliseconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1000000;
}

// Large blocks ---------------------------------------------------------------------------------

constexpr int64_t kSlack = int64_t{64} << 20;  // cached beyond what the peaks allow
constexpr int64_t kTick = int64_t{1} << 20;    // bytes between looks at the clock

// Bins hold free runs of at least so many pages: each number up to 15, then as the size classes, so
// that every run in the bin of a class is long enough for it.
constexpr unsigned kBins = 88;
constexpr unsigned bin_of(size_t pages) {
  if (pages < 8) return static_cast<unsigned>(pages);
  const unsigned e = static_cast<unsigned>(std::bit_width(pages)) - 1;
  return static_cast<unsigned>((e - 2) * 8 + (pages >> (e - 3)) - 8);
}
static_assert(bin_of(7) == 7 && bin_of(8) == 8 && bin_of(15) == 15 && bin_of(16) == 16 &&
              bin_of(17) == 16 && bin_of(18) == 17 && bin_of(kSegmentPages - 1) == kBins - 1);

#ifndef CGOTORCH_HUGE_MAPS
#define CGOTORCH_HUGE_MAPS 16384
#endif

class Large {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // A block of this class, or nullptr when even an empty cache does not help.
  Run *take(unsigned c) {
    Lock lock(mutex);
    bool clean = false;
    Run *run = obtain(lock, c, &clean);
    if (run == nullptr) {
      lock.unlock();
      release();
      lock.lock();
      run = obtain(lock, c, &clean);
      if (run == nullptr) return nullptr;
    }
    const auto size = static_cast<int64_t>(large_size(c));
    taken++;
    used += size;
    volume += size;
    window_peak = std::max(window_peak, used);
    if (volume >= next_tick) tick();
    trim(lock);
    lock.unlock();
    // One call for all pages costs half of what touching them one by one does. Not for huge blocks:
    // those may be meant to stay mostly untouched.
    if (clean) advise(data_of(run), large_size(c), MADV_POPULATE_WRITE);
    return run;
  }

  void put(Run *run) {
    Lock lock(mutex);
    const auto size = static_cast<int64_t>(large_size(run->large_class));
    taken--;
    used -= size;
    cached += size;
    by_class[run->large_class].push(run);
    ages.push(run);
    trim(lock);
  }

  // Gives back all that is free now, but not what others free meanwhile, and forgets the peaks.
  void release() {
    Lock lock(mutex);
    window_peak = last_peak = used;
    int64_t todo = cached + dirty;
    while (todo > 0 && give_back_oldest(lock, &todo)) {
    }
    while (Run *run = whole_segment()) drop_segment(lock, run);
  }

  void maintain() {
    Lock lock(mutex, std::try_to_lock);
    if (!lock) return;
    tick();
    trim(lock);
  }

  void set_limit(int64_t bytes) {
    Lock lock(mutex);
    fixed_limit = bytes;
    trim(lock);
  }

  void set_decay(int64_t ms) {
    Lock lock(mutex);
    decay = ms;
  }

  int64_t limit() const {
    if (fixed_limit >= 0) return fixed_limit;
    return kSlack + std::max(window_peak, last_peak) - used;
  }

  std::mutex mutex;
  int64_t taken = 0;              // blocks, and runs that small blocks are cut from
  int64_t cached = 0, dirty = 0;  // bytes in by_class; bytes in the dirty bins

 private:
  struct Bins {
    Stack stacks[kBins];
    uint64_t filled[(kBins + 63) / 64] = {};

    void push(Run *run) {
      const unsigned b = bin_of(run->pages);
      stacks[b].push(run);
      filled[b / 64] |= uint64_t{1} << b % 64;
    }
    void remove(Run *run) {
      const unsigned b = bin_of(run->pages);
      stacks[b].remove(run);
      if (stacks[b].newest == nullptr) filled[b / 64] &= ~(uint64_t{1} << b % 64);
    }
    Run *at_least(size_t pages) const {
      unsigned b = bin_of(pages);
      for (unsigned word = b / 64, skip = b % 64; word < std::size(filled); word++, skip = 0) {
        if (const uint64_t bits = filled[word] >> skip << skip) {
          return stacks[word * 64 + static_cast<unsigned>(std::countr_zero(bits))].newest;
        }
      }
      return nullptr;
    }
  };

  Run *obtain(Lock &lock, unsigned c, bool *clean) {
    Run *run = by_class[c].newest;
    if (run != nullptr) {
      uncache(run);
      return run;
    }
    const size_t size = large_size(c);
    // Linux allows a process 65,530 mappings, so when there are many huge blocks the smaller ones
    // are cut from segments too.
    if (size < kMinHuge || (huge_maps >= CGOTORCH_HUGE_MAPS && size <= kSegment / 2)) {
      run = cut_pages(size, clean);
      if (run == nullptr && add_segment()) run = cut_pages(size, clean);
      if (run == nullptr) return nullptr;
      run->large_class = static_cast<uint8_t>(c);
      segment_of(run)->small_class[first_page(run)] = 0;
      return run;
    }
    huge_maps++;
    lock.unlock();
    run = map_huge(c);
    lock.lock();
    if (run == nullptr) huge_maps--;
    return run;
  }

  Run *cut_pages(size_t size, bool *clean) {
    const size_t pages = size / kPage;
    if (Run *run = cut(State::kDirty, pages)) return run;
    if (Run *run = recycle(static_cast<int64_t>(size), pages)) return run;
    Run *run = cut(State::kClean, pages);
    *clean = run != nullptr;
    return run;
  }

  // Where new memory would push old memory out, first try to make the one from the other: sizes
  // that differ from step to step, as with sentences of any length, would otherwise page-fault all
  // the time. Old blocks merge with their neighbours until one is long enough.
  Run *recycle(int64_t size, size_t pages) {
    const int64_t peak = std::max({window_peak, last_peak, used + size});
    const int64_t room = fixed_limit >= 0 ? fixed_limit : kSlack + peak - used - size;
    int tries = 64;
    for (Run *run = ages.oldest, *newer; run != nullptr; run = newer) {
      if (cached + dirty <= room || tries-- == 0) break;
      newer = run->newer;
      if (run->huge) continue;
      uncache(run);
      insert(run, State::kDirty);
      if (Run *fit = cut(State::kDirty, pages)) return fit;
    }
    return nullptr;
  }

  void uncache(Run *run) {
    by_class[run->large_class].remove(run);
    ages.remove(run);
    cached -= static_cast<int64_t>(large_size(run->large_class));
  }

  void set_extent(Run *run, size_t pages) {
    Segment *segment = segment_of(run);
    const size_t first = first_page(run);
    run->pages = static_cast<uint32_t>(pages);
    segment->first_page[first] = static_cast<uint16_t>(first);
    segment->first_page[first + pages - 1] = static_cast<uint16_t>(first);
  }

  void insert(Run *run, State state) {
    Segment *segment = segment_of(run);
    const size_t first = first_page(run), end = first + run->pages;
    if (first > kFirstPage) {
      Run *before = &segment->runs[segment->first_page[first - 1]];
      if (before->state == state) {
        withdraw(before);
        set_extent(before, before->pages + run->pages);
        run = before;
      }
    }
    if (end < kSegmentPages && segment->runs[end].state == state) {
      Run *after = &segment->runs[end];
      withdraw(after);
      set_extent(run, run->pages + after->pages);
    }
    run->state = state;
    free_runs[static_cast<unsigned>(state)].push(run);
    if (state == State::kDirty) {
      dirty_ages.push(run);
      dirty += static_cast<int64_t>(run->pages * kPage);
    } else if (run->pages == kUsablePages) {
      whole_segments++;
    }
  }

  void withdraw(Run *run) {
    free_runs[static_cast<unsigned>(run->state)].remove(run);
    if (run->state == State::kDirty) {
      dirty_ages.remove(run);
      dirty -= static_cast<int64_t>(run->pages * kPage);
    } else if (run->pages == kUsablePages) {
      whole_segments--;
    }
    run->state = State::kTaken;
  }

  Run *cut(State state, size_t pages) {
    Run *run = free_runs[static_cast<unsigned>(state)].at_least(pages);
    if (run == nullptr) return nullptr;
    withdraw(run);
    if (const size_t rest = run->pages - pages) {
      Run *tail = new (run + pages) Run{};
      tail->state = State::kTaken;
      set_extent(tail, rest);
      set_extent(run, pages);
      insert(tail, state);
    }
    return run;
  }

  bool add_segment() {
    char *base = map_aligned(kSegment);
    if (base == nullptr) return false;
    Run *run = new (&reinterpret_cast<Segment *>(base)->runs[kFirstPage]) Run{};
    run->state = State::kTaken;
    set_extent(run, kUsablePages);
    insert(run, State::kClean);
    return true;
  }

  Run *whole_segment() const {
    if (whole_segments == 0) return nullptr;
    Run *run = free_runs[static_cast<unsigned>(State::kClean)].stacks[kBins - 1].newest;
    while (run != nullptr && run->pages != kUsablePages) run = run->next;
    return run;
  }

  void drop_segment(Lock &lock, Run *run) {
    withdraw(run);
    lock.unlock();
    munmap(segment_of(run), kSegment);
    lock.lock();
  }

  // The system calls happen without the lock: they take as long as an operation on a tensor. While
  // they do the run is nobody's, so no neighbour merges with it.
  bool give_back_oldest(Lock &lock, int64_t *todo) {
    Run *run = dirty_ages.oldest;
    if (run != nullptr) {
      withdraw(run);
    } else {
      run = ages.oldest;
      if (run == nullptr) return false;
      uncache(run);
    }
    const bool huge = run->huge;
    if (huge) huge_maps--;
    const size_t size = huge ? large_size(run->large_class) : run->pages * kPage;
    *todo -= static_cast<int64_t>(size);
    lock.unlock();
    if (huge) {
      unmap_huge(run);
    } else {
      advise(data_of(run), size, MADV_DONTNEED);
    }
    lock.lock();
    if (!huge) insert(run, State::kClean);
    return true;
  }

  void trim(Lock &lock) {
    for (int64_t todo = 0; cached + dirty > limit();) {
      if (!give_back_oldest(lock, &todo)) break;
    }
    while (whole_segments > 1) drop_segment(lock, whole_segment());
  }

  void tick() {
    next_tick = volume + kTick;
    const int64_t now = milliseconds();
    if (now - window_start < decay && volume < 16 * std::max(window_peak, kSlack)) return;
    last_peak = window_peak;
    window_peak = used;
    window_start = now;
    volume = 0;
    next_tick = kTick;
  }

  Stack by_class[kLargeClasses];
  Ages ages;  // of all in by_class
  Bins free_runs[kFreeStates];
  Ages dirty_ages;
  int64_t whole_segments = 0;  // that are one clean run
  int64_t huge_maps = 0;
  int64_t used = 0;  // bytes in blocks, and in runs that small blocks are cut from
  int64_t fixed_limit = -1;
  // The peaks of `used` in this window of time and in the one before.
  int64_t window_peak = 0, last_peak = 0, window_start = 0, decay = 10000;
  int64_t volume = 0, next_tick = 0;  // bytes handed out in this window
};

// Small blocks ---------------------------------------------------------------------------------

struct alignas(64) Shelf {
  std::mutex mutex;
  Stack runs;                        // that have a block to give
  std::atomic<int64_t> outside{0};   // blocks that threads or tensors have
  std::atomic<int64_t> capacity{0};  // blocks in all runs of the class
};

struct alignas(32) Magazine {
  std::atomic<void **> top{nullptr};  // read by other threads, for the statistics
  void **bottom = nullptr, **limit = nullptr;
  int64_t size = 0;
};

constexpr int64_t kThreadBytes = int64_t{256} << 10;  // what magazines may hold
constexpr int64_t kStep = int64_t{256} << 10;         // what may be allocated before it is told

struct alignas(64) ThreadCache {
  std::atomic<int64_t> room{0};  // kStep less the bytes allocated and not yet told
  Magazine magazines[kSmallClasses];
  int64_t promised = 0;  // bytes, if all magazines were full
  unsigned victim = 0;   // the class that last gave up capacity
  uint64_t epoch = 0;
  ThreadCache *next = nullptr;
  bool owned = false;
};

struct Shared {
  Large large;
  Shelf shelves[kSmallClasses];
  std::mutex registry_mutex;
  ThreadCache *registry = nullptr;  // all there ever were; those of ended threads are used again
  std::atomic<uint64_t> epoch{0};   // raised to make threads empty their magazines
  pthread_key_t key = 0;
  bool have_key = false;
};
static_assert(std::is_trivially_destructible_v<Shared>);

constinit Shared g;

// Where a thread without a cache looks: every magazine there is empty and full, so it takes the
// slow path, and nothing ever writes to these.
constinit ThreadCache g_newcomer;
constinit ThreadCache g_departed;

// One word of static TLS: read without a call even from a library that was loaded late.
[[gnu::tls_model("initial-exec")]] constinit thread_local ThreadCache *t_cache = &g_newcomer;

bool start_run(unsigned c) {
  const SmallClass &k = kSmall[c];
  Run *run = g.large.take(k.run);
  if (run == nullptr) return false;
  Segment *segment = segment_of(run);
  const size_t first = first_page(run);
  for (size_t i = 0; i < run->pages; i++) segment->small_class[first + i] = static_cast<uint8_t>(c);
  for (size_t i = 1; i + 1 < run->pages; i++) {
    segment->first_page[first + i] = static_cast<uint16_t>(first);
  }
  run->small_class = static_cast<uint8_t>(c);
  run->returned = nullptr;
  run->out = run->fresh = 0;
  g.shelves[c].runs.push(run);
  g.shelves[c].capacity.fetch_add(k.per_run, std::memory_order_relaxed);
  return true;
}

// Up to `want` blocks; none when memory has run out.
size_t fetch(unsigned c, void **blocks, size_t want) {
  const SmallClass &k = kSmall[c];
  Shelf &shelf = g.shelves[c];
  size_t n = 0;
  {
    std::lock_guard lock(shelf.mutex);
    while (n < want) {
      Run *run = shelf.runs.newest;
      if (run == nullptr) {
        if (n > 0 || !start_run(c)) break;
        continue;
      }
      for (; n < want && run->out < k.per_run; run->out++) {
        if (void *p = run->returned) {
          run->returned = *static_cast<void **>(p);
          blocks[n++] = p;
        } else {
          blocks[n++] = data_of(run) + size_t{run->fresh++} * k.size;
        }
      }
      if (run->out == k.per_run) shelf.runs.remove(run);
    }
    shelf.outside.fetch_add(static_cast<int64_t>(n), std::memory_order_relaxed);
  }
  add(g_pressure.live, static_cast<int64_t>(n * k.size));
  return n;
}

void give(unsigned c, void **blocks, size_t n) {
  const SmallClass &k = kSmall[c];
  Shelf &shelf = g.shelves[c];
  Run *empty = nullptr;
  {
    std::lock_guard lock(shelf.mutex);
    for (size_t i = 0; i < n; i++) {
      Run *run = run_of_small(blocks[i]);
      *static_cast<void **>(blocks[i]) = run->returned;
      run->returned = blocks[i];
      if (run->out == k.per_run) shelf.runs.push(run);
      if (--run->out == 0) {
        shelf.runs.remove(run);
        shelf.capacity.fetch_sub(k.per_run, std::memory_order_relaxed);
        run->next = empty;
        empty = run;
      }
    }
    shelf.outside.fetch_sub(static_cast<int64_t>(n), std::memory_order_relaxed);
  }
  add(g_pressure.live, -static_cast<int64_t>(n * k.size));
  while (Run *run = empty) {
    empty = run->next;
    segment_of(run)->small_class[first_page(run)] = 0;
    g.large.put(run);
  }
}

// Threads --------------------------------------------------------------------------------------

size_t held(const Magazine &m) {
  return static_cast<size_t>(m.top.load(std::memory_order_relaxed) - m.bottom);
}

// Gives the oldest blocks back; the newest are the ones still in the processor's cache.
void give_oldest(ThreadCache &t, unsigned c, size_t n) {
  Magazine &m = t.magazines[c];
  void **top = m.top.load(std::memory_order_relaxed);
  give(c, m.bottom, n);
  std::copy(m.bottom + n, top, m.bottom);
  m.top.store(top - n, std::memory_order_relaxed);
}

void empty_magazines(ThreadCache &t) {
  for (unsigned c = 1; c < kSmallClasses; c++) {
    while (const size_t n = held(t.magazines[c])) {
      give_oldest(t, c, std::min<size_t>(n, kSmall[c].batch));
    }
  }
}

void tell_allocated(ThreadCache &t) {
  add(g_pressure.allocated, kStep - t.room.load(std::memory_order_relaxed));
  t.room.store(kStep, std::memory_order_relaxed);
}

void step(ThreadCache &t) {
  tell_allocated(t);
  g.large.maintain();
}

ThreadCache *new_cache() {
  const size_t bytes = round_to_system_page(sizeof(ThreadCache) + kSlots * sizeof(void *));
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto *t = new (memory) ThreadCache;
  t->room.store(kStep, std::memory_order_relaxed);
  auto **slots = reinterpret_cast<void **>(t + 1);
  for (unsigned c = 1; c < kSmallClasses; c++) {
    Magazine &m = t->magazines[c];
    m.size = kSmall[c].size;
    m.bottom = m.limit = slots;
    m.top.store(slots, std::memory_order_relaxed);
    slots += kSmall[c].most;
  }
  return t;
}

// Runs when a thread ends, after its thread_local objects are gone. Other libraries' destructors
// may follow and free tensors: those go past the magazines.
void leave(void *cache) {
  auto &t = *static_cast<ThreadCache *>(cache);
  t_cache = &g_departed;
  empty_magazines(t);
  tell_allocated(t);
  for (Magazine &m : t.magazines) m.limit = m.bottom;
  t.promised = 0;
  std::lock_guard lock(g.registry_mutex);
  t.owned = false;
}

// This thread's cache, made if need be; nullptr if it can have none.
ThreadCache *current() {
  ThreadCache *t = t_cache;
  if (t == &g_departed) return nullptr;
  if (t == &g_newcomer) {
    if (!g.have_key) return nullptr;
    std::lock_guard lock(g.registry_mutex);
    for (t = g.registry; t != nullptr && t->owned;) t = t->next;
    if (t == nullptr) {
      if ((t = new_cache()) == nullptr) return nullptr;
      t->next = g.registry;
      g.registry = t;
    }
    if (pthread_setspecific(g.key, t) != 0) return nullptr;
    t->owned = true;
    t->epoch = g.epoch.load(std::memory_order_relaxed);
    t_cache = t;
  } else if (t->epoch != g.epoch.load(std::memory_order_relaxed)) {
    t->epoch = g.epoch.load(std::memory_order_relaxed);
    empty_magazines(*t);
  }
  return t;
}

// Lets a magazine hold a batch more, at the cost of others once the thread's share is used up.
bool grow(ThreadCache &t, unsigned c) {
  const SmallClass &k = kSmall[c];
  Magazine &m = t.magazines[c];
  if (static_cast<size_t>(m.limit - m.bottom) + k.batch > k.most) return false;
  const int64_t bytes = int64_t{k.batch} * k.size;
  for (unsigned i = 1; i < kSmallClasses && t.promised + bytes > kThreadBytes; i++) {
    t.victim = t.victim % (kSmallClasses - 1) + 1;
    const SmallClass &other = kSmall[t.victim];
    Magazine &from = t.magazines[t.victim];
    if (t.victim == c || from.limit == from.bottom) continue;
    from.limit -= other.batch;
    t.promised -= int64_t{other.batch} * other.size;
    const auto room = static_cast<size_t>(from.limit - from.bottom);
    if (held(from) > room) give_oldest(t, t.victim, held(from) - room);
  }
  if (t.promised + bytes > kThreadBytes) return false;
  m.limit += k.batch;
  t.promised += bytes;
  return true;
}

void *take_small(unsigned c) {
  const SmallClass &k = kSmall[c];
  void *p = nullptr;
  ThreadCache *t = current();
  if (t == nullptr) {
    if (fetch(c, &p, 1) != 0) add(g_pressure.allocated, k.size);
    return p;
  }
  Magazine &m = t->magazines[c];
  void **top = m.top.load(std::memory_order_relaxed);
  if (top == m.bottom) {
    if (m.limit == m.bottom && !grow(*t, c)) {
      if (fetch(c, &p, 1) == 0) return nullptr;
    } else {
      const size_t n = fetch(c, m.bottom, k.batch);
      if (n == 0) return nullptr;
      top = m.bottom + n;
    }
  }
  if (p == nullptr) {
    p = *--top;
    m.top.store(top, std::memory_order_relaxed);
  }
  const int64_t room = t->room.load(std::memory_order_relaxed) - k.size;
  t->room.store(room, std::memory_order_relaxed);
  if (room < 0) step(*t);
  return p;
}

void *take_large(size_t n) {
  if (n > kMaxLarge) return nullptr;
  const unsigned c = large_class(n);
  Run *run = g.large.take(c);
  if (run == nullptr) return nullptr;
  add(g_pressure.allocated, static_cast<int64_t>(large_size(c)));
  add(g_pressure.live, static_cast<int64_t>(large_size(c)));
  return data_of(run);
}

void release() {
  g.epoch.fetch_add(1, std::memory_order_relaxed);
  ThreadCache *t = t_cache;
  if (t != &g_newcomer && t != &g_departed) {
    t->epoch = g.epoch.load(std::memory_order_relaxed);
    empty_magazines(*t);
  }
  g.large.release();
}

void *take_slow(size_t n) {
  if (n == 0) return nullptr;
  const unsigned c = small_class(n);
  void *p = c != 0 ? take_small(c) : take_large(n);
  if (p == nullptr) {
    release();
    p = c != 0 ? take_small(c) : take_large(n);
    if (p == nullptr) throw_out_of_memory(n);
  }
  return p;
}

[[gnu::noinline, gnu::cold]] void put_slow(void *p) {
  const unsigned c = segment_of(p)->small_class[page_of(p)];
  if (c == 0) {
    Run *run = run_of_large(p);
    add(g_pressure.live, -static_cast<int64_t>(large_size(run->large_class)));
    g.large.put(run);
    return;
  }
  ThreadCache *t = current();
  if (t == nullptr) return give(c, &p, 1);
  Magazine &m = t->magazines[c];
  void **top = m.top.load(std::memory_order_relaxed);
  if (top == m.limit && !grow(*t, c)) {
    if (m.limit == m.bottom) return give(c, &p, 1);
    give_oldest(*t, c, kSmall[c].batch);
    top = m.top.load(std::memory_order_relaxed);
  }
  *top = p;
  m.top.store(top + 1, std::memory_order_relaxed);
}

// A block that costs neither a lock nor a call, if there is one.
inline bool take_fast(size_t n, void *&p) {
  ThreadCache *t = t_cache;
  Magazine &m = t->magazines[small_class(n)];
  void **top = m.top.load(std::memory_order_relaxed);
  const int64_t room = t->room.load(std::memory_order_relaxed) - m.size;
  if (top == m.bottom || room < 0) [[unlikely]]
    return false;
  p = *--top;
  m.top.store(top, std::memory_order_relaxed);
  t->room.store(room, std::memory_order_relaxed);
  return true;
}

void put(void *p) {
  if (p == nullptr) return;
  Magazine &m = t_cache->magazines[segment_of(p)->small_class[page_of(p)]];
  void **top = m.top.load(std::memory_order_relaxed);
  if (top == m.limit) [[unlikely]]
    return put_slow(p);
  *top = p;
  m.top.store(top + 1, std::memory_order_relaxed);
}

void prepare() {
  g_system_page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  g.have_key = pthread_key_create(&g.key, leave) == 0;
}

void collect(struct cgotorch_allocator_stats &stats) {
  stats.allocated_bytes = read(g_pressure.allocated);
  stats.live_bytes = read(g_pressure.live);
  {
    std::lock_guard lock(g.registry_mutex);
    for (ThreadCache *t = g.registry; t != nullptr; t = t->next) {
      stats.allocated_bytes += kStep - t->room.load(std::memory_order_relaxed);
      for (unsigned c = 1; c < kSmallClasses; c++) {
        const auto blocks = static_cast<int64_t>(held(t->magazines[c]));
        stats.live_blocks -= blocks;
        stats.local_bytes += blocks * kSmall[c].size;
      }
    }
  }
  stats.live_bytes -= stats.local_bytes;
  stats.cached_bytes = stats.local_bytes;
  for (unsigned c = 1; c < kSmallClasses; c++) {
    const int64_t outside = g.shelves[c].outside.load(std::memory_order_relaxed);
    stats.live_blocks += outside;
    const int64_t capacity = g.shelves[c].capacity.load(std::memory_order_relaxed);
    stats.cached_bytes += (capacity - outside) * kSmall[c].size;
    stats.live_blocks -= capacity / kSmall[c].per_run;
  }
  std::lock_guard lock(g.large.mutex);
  stats.live_blocks += g.large.taken;
  stats.cached_bytes += g.large.cached + g.large.dirty;
  stats.cache_limit = g.large.limit();
}

void set_limit(int64_t bytes) { g.large.set_limit(bytes); }
void set_decay(int64_t ms) { g.large.set_decay(ms); }

// In the order in which they nest. Blocks in the magazines of other threads are lost to the child
// of a fork.
void lock_all() {
  g.registry_mutex.lock();
  for (Shelf &shelf : g.shelves) shelf.mutex.lock();
  g.large.mutex.lock();
}
void unlock_all() {
  g.large.mutex.unlock();
  for (Shelf &shelf : g.shelves) shelf.mutex.unlock();
  g.registry_mutex.unlock();
}

#endif  // CGOTORCH_PLAIN_ALLOCATOR

// PyTorch's side -------------------------------------------------------------------------------

class Allocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    void *p;
    if (!take_fast(n, p)) [[unlikely]]
      return allocate_slow(n);
    return {p, p, &put, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &put; }
  void copy_data(void *dest, const void *src, std::size_t n) const override {
    default_copy_data(dest, src, n);
  }

 private:
  // Not inlined, so that the fast path needs no stack frame.
  [[gnu::noinline, gnu::cold]] static c10::DataPtr allocate_slow(size_t n) {
    void *p = take_slow(n);
    return {p, p, &put, c10::Device(c10::DeviceType::CPU)};
  }
};

bool install() {
  prepare();
  // Deleters and the thread's end point into this library, so it must never be unloaded.
  Dl_info self;
  if (dladdr(reinterpret_cast<void *>(&put), &self) != 0) {
    dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
  alignas(Allocator) static char memory[sizeof(Allocator)];
  // Above the default's priority, and below that of a program which insists on its own.
  c10::SetCPUAllocator(new (memory) Allocator, 1);
  return true;
}

}  // namespace

void lock_allocator() { lock_all(); }
void unlock_allocator() { unlock_all(); }

}  // namespace cgotorch

void cgotorch_install_allocator(void) {
  [[maybe_unused]] static const bool installed = cgotorch::install();
}

struct cgotorch_pressure *cgotorch_pressure(void) { return &cgotorch::g_pressure; }

void cgotorch_allocator_stats(struct cgotorch_allocator_stats *stats) {
  *stats = {};
  cgotorch::collect(*stats);
}

void cgotorch_release_cached(void) { cgotorch::release(); }
void cgotorch_set_cache_limit(int64_t bytes) { cgotorch::set_limit(bytes); }
void cgotorch_set_cache_decay(int64_t milliseconds) { cgotorch::set_decay(milliseconds); }
