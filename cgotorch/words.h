// words.h: tensors that others may close while a call uses them.
//
// A tensor of Go's is a word of its memory with a handle in it, and closing it takes the handle
// out. So Go passes words, and a call first writes down which ones it uses, then reads them: from
// there on their handles are freed by nobody until the call is done (hazard pointers). Who closes,
// takes the handles out, and then looks at what all threads have written down.
//
// Between writing down and reading the processor must not change the order. A fence there would
// cost every call; membarrier(2), by which a thread has all others pass a fence, costs only who
// closes. It takes as long as a small op, so tensors that are not large are closed some at a time.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "internal.h"

namespace cgotorch {

// Where Go keeps a handle: nullptr there once the tensor is closed. No word stands for none.
using Word = const Tensor *;

// Where the kernel has no membarrier, every call passes a fence of its own.
extern const bool calls_fence __attribute__((visibility("hidden")));

// Makes room for n more words in what this thread uses. Throws std::bad_alloc.
Word *more_room(size_t n);

[[noreturn]] void throw_closed(const char *name);

inline Word *room(size_t n) {
  Word *const at = tls.uses;
  if (__builtin_expect(static_cast<size_t>(tls.uses_end - at) < n, 0)) return more_room(n);
  return at;
}

// Writes down n words that were put where room() said.
inline void using_words(Word *at, size_t n) {
  __atomic_store_n(&tls.uses, at + n, __ATOMIC_RELEASE);
  // Membarrier does the rest: see above.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (__builtin_expect(calls_fence, 0)) std::atomic_thread_fence(std::memory_order_seq_cst);
}

inline void used_words(size_t n) {
  // Counted, because what is used meanwhile may have moved the list.
  __atomic_store_n(&tls.uses, tls.uses - n, __ATOMIC_RELEASE);
}

// Uses words for its lifetime. Those of one thread are a stack: a callback may call again.
template <size_t N>
class Uses {
 public:
  template <class... W>
  explicit Uses(W... words) {
    static_assert(sizeof...(W) == N);
    Word *const at = room(N);
    size_t i = 0;
    (__atomic_store_n(&at[i++], words, __ATOMIC_RELAXED), ...);
    using_words(at, N);
  }
  ~Uses() { used_words(N); }
  Uses(const Uses &) = delete;
  Uses &operator=(const Uses &) = delete;
};
template <class... W>
Uses(W...) -> Uses<sizeof...(W)>;

// The handle in a word that is in use. Throws a ValueError if it was closed.
inline Tensor used(Word w, const char *name) {
  const Tensor t = __atomic_load_n(w, __ATOMIC_ACQUIRE);
  if (__builtin_expect(t == nullptr, 0)) throw_closed(name);
  return t;
}

// The same where no word is none.
inline Tensor used_opt(Word w, const char *name) { return w == nullptr ? nullptr : used(w, name); }

// Uses a list of words for its lifetime.
class UsesList {
 public:
  UsesList(const Word *words, int64_t n);
  ~UsesList() { used_words(n_); }
  UsesList(const UsesList &) = delete;
  UsesList &operator=(const UsesList &) = delete;

 protected:
  size_t n_;
};

// The same, with the handles in them: of a list whose elements may be none if `optional`.
class UsedList : private UsesList {
 public:
  UsedList(const Word *words, int64_t n, const char *name, bool optional = false);
  const Tensor *data() const { return many_ != nullptr ? many_.get() : few_; }
  int64_t size() const { return static_cast<int64_t>(n_); }

 private:
  static constexpr size_t kFew = 8;
  Tensor few_[kFew];
  std::unique_ptr<Tensor[]> many_;
};

// A handle that was taken out of a word.
struct Closed {
  Word word;
  Tensor handle;
};

// Tensors that a thread has closed and not freed yet. Others may take them over.
struct ClosedByThread {
  static constexpr int64_t kMost = 32;
  // By their elements, and beside those of which Go knows that they were small when they were made.
  static constexpr int64_t kMostBytes = 256 << 10;
  std::atomic_flag busy = ATOMIC_FLAG_INIT;  // held by who changes what follows
  std::atomic<int64_t> n{0};
  int64_t bytes = 0;
  int64_t live = 0;  // the thread's alone: the fewest bytes alive since it freed the last time
  Closed some[kMost];

  int64_t count() const { return n.load(std::memory_order_relaxed); }
  void add(const Closed &closed, int64_t of) {
    some[count()] = closed;
    n.store(count() + 1, std::memory_order_relaxed);
    bytes += of;
  }
  void empty() {
    n.store(0, std::memory_order_relaxed);
    bytes = 0;
  }
};

// FreeTensors for n handles that lie `step` apart.
void free_handles(const Tensor *first, int64_t n, size_t step) noexcept;

// For the thread that ends, with the mutex of threads locked: what it has closed goes to the
// others.
void end_words(ThreadState &s) noexcept;

// Around a fork, with the mutex of threads locked.
void lock_words();
void unlock_words();

// What f returns, which reads words: the message of what is thrown where one was closed.
template <class F>
inline const char *catching(F &&f) noexcept {
  try {
    return f();
  } catch (...) {
    return current_error();
  }
}

// What f returns of the handle in a word, which it uses meanwhile.
template <class F>
inline const char *with_word(int64_t address, const char *name, F &&f) noexcept {
  return catching([&] {
    const auto word = reinterpret_cast<Word>(address);
    const Uses uses(word);
    return f(used(word, name));
  });
}

// The threads that live (runtime.cc). A thread is among them from its first call on;
// register_thread sees to it sooner, and throws std::bad_alloc.
void register_thread();
std::mutex &threads_mutex();
const std::vector<ThreadState *> &living_threads();  // with the mutex locked

}  // namespace cgotorch
