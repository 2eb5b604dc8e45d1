// words.cc: see words.h.
#include "allocator.h"
#include "thunk.h"
#include "words.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace cgotorch {

namespace {
bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }
}  // namespace

const bool calls_fence = !membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);

// Use ---------------------------------------------------------------------------------------------

Word *more_room(size_t n) {
  register_thread();
  const std::lock_guard<std::mutex> lock(threads_mutex());
  const auto used = static_cast<size_t>(tls.uses - tls.uses_first);
  const size_t size = std::max<size_t>(64, 2 * (used + n));
  Word *const words = new Word[size];
  std::copy_n(tls.uses_first, used, words);
  delete[] tls.uses_first;
  tls.uses_first = words;
  tls.uses_end = words + size;
  __atomic_store_n(&tls.uses, words + used, __ATOMIC_RELEASE);
  return tls.uses;
}

void throw_closed(const char *name) {
  throw Failure{"ValueError", std::string("argument '") + name +
                                  "' was used after Close, or after the Scope it was made in"};
}

UsesList::UsesList(const Word *words, int64_t n) : n_(static_cast<size_t>(n)) {
  Word *const at = room(n_);
  for (size_t i = 0; i < n_; i++)
    __atomic_store_n(&at[i], __atomic_load_n(&words[i], __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  using_words(at, n_);
}

UsedList::UsedList(const Word *words, int64_t n, const char *name, bool optional)
    : UsesList(words, n) {
  if (n_ > kFew) many_.reset(new Tensor[n_]);
  Tensor *const handles = many_ != nullptr ? many_.get() : few_;
  // What was written down, and not the list again, which its owner may be changing.
  const Word *const mine = tls.uses - n_;
  for (size_t i = 0; i < n_; i++) {
    if (mine[i] == nullptr && !optional) throw_null(name);
    handles[i] = used_opt(mine[i], name);
  }
}

// Close -------------------------------------------------------------------------------------------

namespace {

// What somebody used when it was last looked at.
struct Waiting {
  std::mutex mutex;
  std::vector<Closed> closed;
  std::atomic<bool> some{false};
};
Waiting &waiting() {
  static Waiting *const w = new Waiting;
  return *w;
}

void wait(const Closed *closed, int64_t n) noexcept {
  if (n == 0) return;
  Waiting &w = waiting();
  const std::lock_guard<std::mutex> lock(w.mutex);
  try {
    w.closed.insert(w.closed.end(), closed, closed + n);
    w.some = true;
  } catch (...) {
    // Out of memory: they are never freed.
  }
}

// Calls f with each word that a call uses.
template <class F>
void for_each_used(F &&f) {
  const std::lock_guard<std::mutex> lock(threads_mutex());
  for (const ThreadState *s : living_threads()) {
    const Word *const end = __atomic_load_n(&s->uses, __ATOMIC_ACQUIRE);
    for (const Word *at = s->uses_first; at < end; at++)
      if (const Word w = __atomic_load_n(at, __ATOMIC_RELAXED)) f(w);
  }
}

bool is_used(Word word) {
  bool found = false;
  for_each_used([&](Word w) { found |= w == word; });
  return found;
}

// Frees those that no call uses; those that are left are then the first, and it returns how many.
int64_t free_unused(Closed *closed, int64_t n) noexcept {
  // From here on who has read a handle has written down its word, for all to see.
  if (calls_fence) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  } else if (!membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) {
    return n;
  }
  // Calls use few words, and of those that are closed mostly none: a bit for each that is used, at
  // a place that others may have too.
  constexpr size_t kBits = 4096;
  uint64_t bits[kBits / 64];
  bool any = false;
  const auto place = [](Word w) { return reinterpret_cast<uintptr_t>(w) / sizeof(Word) % kBits; };
  for_each_used([&](Word w) {
    if (!any) std::memset(bits, 0, sizeof bits);
    any = true;
    bits[place(w) / 64] |= uint64_t{1} << place(w) % 64;
  });
  Closed *const unused = !any ? closed : std::partition(closed, closed + n, [&](const Closed &c) {
    return (bits[place(c.word) / 64] >> place(c.word) % 64 & 1) != 0 && is_used(c.word);
  });
  free_handles(&unused->handle, closed + n - unused, sizeof(Closed) / sizeof(Tensor));
  return unused - closed;
}

Tensor take_out(Word word) {
  return __atomic_exchange_n(const_cast<Tensor *>(word), nullptr, __ATOMIC_SEQ_CST);
}

// Takes the handles out of n words and frees them: word(i) says which.
template <class F>
void close_now(int64_t n, F &&word) noexcept {
  Closed some[256];
  int64_t have = 0;
  for (int64_t i = 0; i < n; i++) {
    const Word w = word(i);
    if (const Tensor t = take_out(w)) some[have++] = {w, t};
    if (have == std::ssize(some) || (i + 1 == n && have > 0)) {
      wait(some, free_unused(some, have));
      have = 0;
    }
  }
}

void take(ClosedByThread &c) {
  while (c.busy.test_and_set(std::memory_order_acquire)) sched_yield();
}
void give(ClosedByThread &c) { c.busy.clear(std::memory_order_release); }

class Busy {
 public:
  explicit Busy(ClosedByThread &c) : c_(c) { take(c); }
  ~Busy() { give(c_); }
  Busy(const Busy &) = delete;
  Busy &operator=(const Busy &) = delete;

 private:
  ClosedByThread &c_;
};

// The bytes of all tensors that are alive; 0 where it is not this library's allocator that counts.
const int64_t *const live = &cgotorch_pressure()->live;
int64_t live_bytes() { return __atomic_load_n(live, __ATOMIC_RELAXED); }

bool have_room_for_closed() noexcept {
  if (tls.closed != nullptr) return true;
  try {
    register_thread();
    auto *const closed = new ClosedByThread;
    closed->live = live_bytes();
    const std::lock_guard<std::mutex> lock(threads_mutex());
    tls.closed = closed;
    return true;
  } catch (...) {
    return false;
  }
}

// The bytes of a tensor that may as well be freed a little later; -1 for one that is part of a
// graph, or not an ordinary tensor of the processor: what others answer may be an exception. A call
// may be using it, and exchanging its storage: that is not looked into.
int64_t bytes_of_light(Tensor t) {
  const auto &impl = *reinterpret_cast<const at::TensorImpl *>(t);
  if (!impl.key_set().has(c10::DispatchKey::CPU) || impl.is_python_dispatch() ||
      impl.requires_grad() || !impl.unsafe_storage())
    return -1;
  const int64_t numel = impl.numel();  // of an expanded one perhaps more than bytes can be counted
  if (numel > ClosedByThread::kMostBytes) return -1;
  return numel * static_cast<int64_t>(impl.itemsize());
}

// A tensor of few elements may be the last that holds much memory: a view. How much cannot be
// looked up, but then more is alive than when the thread freed the last time. So it frees all that
// it owes when that is more by kMostGrowth, and by a part of what is alive: in a program with much
// memory the ups and downs of other threads are none of its business.
constexpr int64_t kMostGrowth = 1 << 20;
constexpr int64_t kGrowthPart = 32;

// The same where light tensors may be freed later, until the thread owes so many, or so many bytes:
// all of them, if they were small when they were made.
template <class F>
void close_words(int64_t n, F &&word, bool small) noexcept {
  constexpr int64_t kMost = ClosedByThread::kMost;
  if (n >= kMost || !have_room_for_closed()) return close_now(n, word);
  Closed now[2 * kMost];
  int64_t n_now = 0;
  {
    ClosedByThread &c = *tls.closed;
    const Busy busy(c);
    const int64_t alive = live_bytes();
    c.live = std::min(c.live, alive);
    const bool grown = alive - c.live > kMostGrowth + c.live / kGrowthPart;
    const auto all_now = [&] {
      std::copy_n(c.some, c.count(), now + n_now);
      n_now += c.count();
      c.empty();
    };
    if (c.count() + n > kMost) all_now();
    for (int64_t i = 0; i < n; i++) {
      const Word w = word(i);
      const Tensor t = take_out(w);
      if (t == nullptr) continue;
      int64_t bytes = small ? 0 : bytes_of_light(t);
      // Where nobody counts, four of them are the most that a thread owes.
      if (alive == 0 && bytes >= 0 && !small)
        bytes = std::max(bytes, ClosedByThread::kMostBytes / 4);
      if (bytes >= 0 && bytes <= ClosedByThread::kMostBytes - c.bytes) {
        c.add({w, t}, bytes);
      } else {
        now[n_now++] = {w, t};
      }
    }
    if (n_now > 0 || grown) all_now();
  }
  if (n_now == 0) return;
  wait(now, free_unused(now, n_now));
  tls.closed->live = live_bytes();
}

bool some_wait() { return (tls.closed != nullptr && tls.closed->count() > 0) || waiting().some; }

}  // namespace

void lock_words() {
  for (ThreadState *s : living_threads())
    if (s->closed != nullptr) take(*s->closed);
  waiting().mutex.lock();
}

void unlock_words() {
  waiting().mutex.unlock();
  for (ThreadState *s : living_threads())
    if (s->closed != nullptr) give(*s->closed);
}

void end_words(ThreadState &s) noexcept {
  delete[] s.uses_first;
  s.uses = s.uses_end = s.uses_first = nullptr;
  if (s.closed == nullptr) return;
  wait(s.closed->some, s.closed->count());
  delete s.closed;
  s.closed = nullptr;
}

}  // namespace cgotorch

using namespace cgotorch;

namespace {
Word word_at(int64_t address) { return reinterpret_cast<Word>(address); }
}  // namespace

extern "C" {

bool cgotorch_scope_leave(int64_t previous, int64_t *row, int64_t n) {
  tls.scope = previous;
  if (n == 0) return false;
  close_words(n, [row](int64_t i) { return reinterpret_cast<Word>(row + i); }, true);
  return some_wait();
}

bool cgotorch_close(const int64_t *words, int64_t n, bool small) {
  close_words(n, [words](int64_t i) { return word_at(words[i]); }, small);
  return some_wait();
}

bool cgotorch_free_closed(void) {
  Waiting &w = waiting();
  std::vector<Closed> all;
  {
    const std::lock_guard<std::mutex> lock(w.mutex);
    all.swap(w.closed);
    w.some = false;
  }
  {
    const std::lock_guard<std::mutex> lock(threads_mutex());
    for (ThreadState *s : living_threads()) {
      if (s->closed == nullptr) continue;
      const Busy busy(*s->closed);
      try {
        all.insert(all.end(), s->closed->some, s->closed->some + s->closed->count());
        s->closed->empty();
      } catch (...) {
        // Out of memory: they stay with their thread.
      }
    }
  }
  if (all.empty()) return false;
  const int64_t left = free_unused(all.data(), static_cast<int64_t>(all.size()));
  wait(all.data(), left);
  return left > 0;
}

Tensor cgotorch_hold(int64_t word) {
  try {
    const Word w = word_at(word);
    const Uses uses(w);
    const Tensor t = __atomic_load_n(w, __ATOMIC_ACQUIRE);
    if (t == nullptr) return nullptr;
    c10::raw::intrusive_ptr::incref(reinterpret_cast<at::TensorImpl *>(t));
    count_up(tls.made);
    return t;
  } catch (...) {
    return nullptr;
  }
}

}  // extern "C"
