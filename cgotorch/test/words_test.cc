// Words that are closed while calls use them (words.h). Prints a line a fact; exits 1 if one is
// wrong. Its arguments are the numbers of the functions AddOut and Cat.
#include <allocator.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include <atomic>
#include <cstdarg>
#include <functional>
#include <future>
#include <new>
#include <thread>
#include <vector>

#include "facts.h"

// What the library calls
// ---------------------------------------------------------------------------

// The library makes its fences through libc's function, which this one stands before.
static std::atomic<int> fences{0};
static std::function<void()> *at_fence;  // called with each
static bool fences_fail;

extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long &x : a) x = va_arg(list, long);
  va_end(list);
  if (number == SYS_membarrier) {
    if (fences_fail || getenv("WORDS_TEST_WITHOUT_MEMBARRIER") != nullptr) {
      errno = ENOSYS;
      return -1;
    }
    if (a[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
      fences++;
      if (at_fence != nullptr) (*at_fence)();
    }
  }
  static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

// Arrays come from here, the lists of what threads use among them.
static thread_local bool no_memory;

static void *array(size_t n) { return no_memory ? nullptr : malloc(n > 0 ? n : 1); }
void *operator new[](size_t n) {
  if (void *p = array(n)) return p;
  throw std::bad_alloc();
}
void *operator new[](size_t n, const std::nothrow_t &) noexcept { return array(n); }
void operator delete[](void *p) noexcept { free(p); }
void operator delete[](void *p, size_t) noexcept { free(p); }
void operator delete[](void *p, const std::nothrow_t &) noexcept { free(p); }

// Tensors
// ------------------------------------------------------------------------------------------

enum { kSmall = 4, kBig = 1 << 17 };

// A tensor in a word, of n ones in memory that says when it was freed.
class Tracked {
 public:
  explicit Tracked(int64_t n = kSmall) : data_(static_cast<size_t>(n), 1.0f) {
    const Device cpu = {0, -1};
    const auto free_it = [](void *self) {
      auto *const ones = static_cast<Tracked *>(self);
      ones->freed_ = true;
      for (float &x : ones->data_) x = -1;
    };
    must(FromBlob(data_.data(), 4 * n, &n, 1, nullptr, 6, cpu, free_it, this, &word_));
  }
  ~Tracked() {
    close();
    while (cgotorch_free_closed()) sched_yield();
    if (freed_) return;
    fact(false, "what was closed is freed");
    exit(1);
  }
  Tracked(const Tracked &) = delete;
  Tracked &operator=(const Tracked &) = delete;

  int64_t word() { return reinterpret_cast<int64_t>(&word_); }
  bool close(bool small = false) {
    const int64_t w = word();
    return cgotorch_close(&w, 1, small);
  }
  bool closed() const { return __atomic_load_n(&word_, __ATOMIC_ACQUIRE) == nullptr; }
  bool freed() const { return freed_; }

 private:
  std::vector<float> data_;
  Tensor word_ = nullptr;
  std::atomic<bool> freed_{false};
};

// A tensor in a word that libtorch may make larger.
class Result {
 public:
  Result() {
    const int64_t n = 1;
    must(TensorFromData(nullptr, 4, &n, 1, 6, &word_));
  }
  ~Result() { FreeTensor(word_); }
  Result(const Result &) = delete;
  Result &operator=(const Result &) = delete;
  int64_t word() { return reinterpret_cast<int64_t>(&word_); }

 private:
  Tensor word_ = nullptr;
};

// Calls
// --------------------------------------------------------------------------------------------

static int64_t add_out, cat;

static const char *run_add_out(int64_t self, int64_t other, int64_t out) {
  struct {
    int64_t scope, self, other;
    Scalar alpha;
    int64_t out;
  } b = {0, self, other, {ScalarInt, {1}}, out};
  return cgotorch_call(add_out, reinterpret_cast<cgotorch_block *>(&b));
}

// Joins words, which lie in one row, and frees the result.
static const char *run_cat(const std::vector<int64_t> &words, float *sum) {
  struct {
    int64_t scope;
    const int64_t *words;
    int64_t n, dim;
    Tensor result;
    int64_t meta;
  } b = {0, words.data(), static_cast<int64_t>(words.size()), 0, nullptr, 0};
  const char *err = cgotorch_call(cat, reinterpret_cast<cgotorch_block *>(&b));
  if (err != nullptr) return err;
  std::vector<float> got(kSmall * words.size());
  must(TensorCopyOut(b.result, got.data(), static_cast<int64_t>(4 * got.size())));
  FreeTensor(b.result);
  *sum = 0;
  for (const float x : got) *sum += x;
  return nullptr;
}

// A call in the middle of which its thread waits: AddOut warns of a result of another size.
class Paused {
 public:
  Paused(int64_t self, int64_t other, int64_t out) {
    must(SetWarningHandler(
        [](void *p, const char *, const char *) {
          static_cast<Paused *>(p)->inside_.set_value();
          static_cast<Paused *>(p)->go_on_.get_future().wait();
        },
        this, nullptr));
    thread_ = std::thread([=, this] { error_ = run_add_out(self, other, out); });
    inside_.get_future().wait();
  }
  const char *end() {
    go_on_.set_value();
    thread_.join();
    must(SetWarningHandler(nullptr, nullptr, nullptr));
    return error_;
  }

 private:
  std::promise<void> inside_, go_on_;
  std::thread thread_;
  const char *error_ = nullptr;
};

// Facts
// --------------------------------------------------------------------------------------------

static void frees_after_the_call(int64_t n, bool small, const char *what) {
  Tracked x(n), other(1);
  Result out;
  Paused call(x.word(), other.word(), out.word());
  const bool waits = x.close(small);
  fact(waits && x.closed(), what);
  fact(cgotorch_free_closed() && cgotorch_free_closed() && !x.freed(),
       "it is not freed while a call uses it");
  fact(fails_like(run_add_out(x.word(), other.word(), out.word()),
                  "ValueError: argument 'self' was used after Close"),
       "a later call does not find it");
  fact(cgotorch_hold(x.word()) == nullptr, "and there is no second handle to it");
  Tracked another(n);
  another.close();
  fact(cgotorch_free_closed() && another.freed(), "others are freed meanwhile");
  fact(call.end() == nullptr, "the call that began before succeeds");
  fact(!x.freed(), "only who frees frees");
  fact(!cgotorch_free_closed() && x.freed(), "and it does, when the call is done");
  std::vector<float> got(static_cast<size_t>(n));
  must(cgotorch_copy_out(out.word(), got.data(), 4 * n));
  bool twos = true;
  for (const float g : got) twos = twos && g == 2;
  fact(twos, "the call computed with it");
}

static void waits_for_others(void) {
  {
    std::vector<Tracked> some(31);
    bool waited = true, freed = false;
    for (Tracked &x : some) waited = x.close() && waited;
    for (Tracked &x : some) freed = x.freed() || freed;
    fact(waited && !freed, "small tensors wait for others to be freed with");
    Tracked two[2];
    two[0].close();
    fact(!some[0].freed(), "up to 32 of them");
    two[1].close();
    bool all = true;
    for (Tracked &x : some) all = x.freed() && all;
    fact(all && two[0].freed() && two[1].freed(), "and with the next one all are freed");
  }
  Tracked x, y(kBig);
  x.close();
  fact(!x.freed() && !cgotorch_free_closed() && x.freed(), "or somebody who frees");
  fact(!y.close() && y.freed(), "a big one is freed at once");
  Tracked z, big(kBig);
  z.close();
  fact(!big.close() && z.freed(), "and the small ones with it");
  fact(!z.close() && !big.close(), "closing twice does nothing");
  std::vector<Tracked> row(40);
  std::vector<int64_t> words;
  for (Tracked &o : row) words.push_back(o.word());
  fact(!cgotorch_close(words.data(), 40, true) && row[0].freed() && row[39].freed(),
       "many are freed at once");
  Tracked first(1 << 14), second(1 << 14), third(1 << 14), fourth(1 << 14), fifth(1 << 14);
  fact(first.close() && second.close() && third.close() && fourth.close() && !first.freed() &&
           !fourth.freed(),
       "a thread may owe 256 KiB");
  fact(!fifth.close() && first.freed() && fifth.freed(), "and frees them with what is more");
  int64_t in_scope[3];
  Tracked a, b, c;
  Tracked *const made[3] = {&a, &b, &c};
  for (int i = 0; i < 3; i++)
    in_scope[i] = reinterpret_cast<int64_t>(cgotorch_hold(made[i]->word()));
  const int64_t before = live();
  fact(cgotorch_scope_leave(0, in_scope, 3) && in_scope[0] == 0 && in_scope[2] == 0,
       "a scope's end closes what was made inside");
  fact(!cgotorch_free_closed() && live() == before - 3, "which is freed with the others");
}

// A tensor of few elements, the last that holds 4 MB.
static void much_held_by_few(Tensor *word) {
  const int64_t n = 1 << 20;
  Tensor big;
  must(Empty(&n, 1, nullptr, nullptr, nullptr, nullptr, nullptr, &big));
  must(Narrow(big, 0, 5, 3, word));
  FreeTensor(big);
}

static bool close_one(Tensor *word) {
  const int64_t w = reinterpret_cast<int64_t>(word);
  return cgotorch_close(&w, 1, false);
}

static int64_t live_bytes(void) { return cgotorch_pressure()->live; }

static void what_few_elements_hold(void) {
  Tensor word;
  Tracked x, y;
  x.close();
  const int64_t before = live_bytes();
  much_held_by_few(&word);
  fact(live_bytes() > before + (4 << 20) - 1 && !close_one(&word) && live_bytes() == before &&
           x.freed(),
       "where more is alive than before, all that a thread owes is freed");

  // It may have come by its memory after Go was told that it is small.
  const int64_t one = 1, n = 1 << 20;
  must(Empty(&one, 1, nullptr, nullptr, nullptr, nullptr, nullptr, &word));
  must(Resize_(word, &n, 1, nullptr, nullptr));
  fact(!cgotorch_scope_leave(0, reinterpret_cast<int64_t *>(&word), 1) && live_bytes() <= before,
       "the same at a scope's end");

  much_held_by_few(&word);
  y.close(true);
  fact(y.freed(), "whatever is closed then");
  Tracked z;
  fact(z.close() && !z.freed(), "what comes later waits again");
  fact(close_one(&word), "and so does what was there before");
  fact(!cgotorch_free_closed() && z.freed() && live_bytes() <= before, "for who frees");

  const int64_t shape[] = {1ll << 31, 1ll << 31};
  Tensor small;
  must(Empty(&one, 1, nullptr, nullptr, nullptr, nullptr, nullptr, &small));
  must(Expand(small, shape, 2, false, &word));
  FreeTensor(small);
  fact(!close_one(&word), "more elements than bytes can be counted are not few");
}

// As in Python, where this library's allocator does not count.
static void nobody_counts(void) {
  Tracked x[5];
  bool wait = true;
  for (int i = 0; i < 4; i++) wait = wait && x[i].close();
  fact(wait && !x[0].freed() && !x[3].freed(),
       "a thread may owe four tensors where nobody counts what they hold");
  fact(!x[4].close() && x[0].freed() && x[4].freed(), "and frees them with the next");
  Tracked small[6];
  for (Tracked &s : small) s.close(true);
  fact(!small[0].freed() && !cgotorch_free_closed() && small[0].freed(),
       "those that are known to be small wait all the same");
}

static void threads_hand_over(void) {
  const int64_t threads = __atomic_load_n(cgotorch_threads(), __ATOMIC_RELAXED);
  Tracked x, y;
  std::thread([&] {
    x.close();
    y.close(true);
  }).join();
  fact(x.closed() && y.closed() && !x.freed() && !y.freed(),
       "what a thread has closed outlives the thread");
  fact(__atomic_load_n(cgotorch_threads(), __ATOMIC_RELAXED) == threads, "the thread is forgotten");
  fact(!cgotorch_free_closed() && x.freed() && y.freed(), "and others free it");

  Tracked z, other(1);
  Result out;
  Paused call(z.word(), other.word(), out.word());
  std::thread([&] { z.close(); }).join();
  fact(cgotorch_free_closed() && !z.freed(), "but not while a call uses it");
  must(call.end());
  fact(!cgotorch_free_closed() && z.freed(), "which may be the last that its thread does");

  // One thread closes, and another frees what that one has closed.
  Tracked w;
  std::promise<void> closed, freed;
  std::thread closer([&] {
    w.close();
    closed.set_value();
    freed.get_future().wait();
  });
  closed.get_future().wait();
  fact(!cgotorch_free_closed() && w.freed(),
       "what a living thread has closed is freed by others too");
  freed.set_value();
  closer.join();
}

static void lists(void) {
  std::vector<Tracked> some(100);
  for (const size_t n : {size_t{1}, size_t{8}, size_t{9}, size_t{100}}) {
    std::vector<int64_t> words;
    for (size_t i = 0; i < n; i++) words.push_back(some[i].word());
    words.push_back(words[0]);
    float sum = 0;
    must(run_cat(words, &sum));
    fact(sum == static_cast<float>(kSmall * (n + 1)), "a list of words, one of them twice");
  }
  std::vector<int64_t> words;
  for (Tracked &x : some) words.push_back(x.word());
  some[77].close();
  float sum = 0;
  fact(fails_like(run_cat(words, &sum), "ValueError: argument 'tensors' was used after Close"),
       "a list with one that was closed");
  words[77] = 0;
  fact(fails_like(run_cat(words, &sum), "TypeError"), "a list with none in it");
  fact(!cgotorch_free_closed() && some[77].freed(), "calls that failed use nothing any more");
}

// Before a handle is freed all threads have passed a fence, after it was taken out.
static void fences_come_between(void) {
  Tracked x(kBig);
  bool right = false;
  std::function<void()> look = [&] { right = x.closed() && !x.freed(); };
  at_fence = &look;
  const int before = fences;
  x.close();
  at_fence = nullptr;
  fact(fences == before + 1 && right && x.freed(), "a fence between taking out and freeing");

  fences_fail = true;
  Tracked y(kBig);
  fact(y.close() && !y.freed() && cgotorch_free_closed() && !y.freed(),
       "without a fence nothing is freed");
  fences_fail = false;
  fact(!cgotorch_free_closed() && y.freed(), "until there is one");
}

static void out_of_memory(void) {
  Tracked x, y;
  // A thread of its own, which has no list yet.
  std::thread([&] {
    no_memory = true;
    const bool none = cgotorch_hold(x.word()) == nullptr;
    Tensor at[2] = {reinterpret_cast<Tensor>(x.word()), nullptr};
    const cgotorch_held held = {at, 2};
    const char *err = cgotorch_hold_words(&held, 1);
    const char *list = run_add_out(x.word(), x.word(), y.word());
    x.close();
    no_memory = false;
    fact(none && !y.closed(), "no second handle where memory is out");
    fact(fails_like(err, "MemoryError"), "of which a list of words tells");
    fact(fails_like(list, "MemoryError"), "and so does a call");
  }).join();
  fact(!cgotorch_free_closed() && x.freed(), "closing needs none");
}

// A thread that copies what others close, at once, again and again.
static void at_random(void) {
  std::atomic<Tracked *> now{nullptr};
  std::atomic<int> used{0};
  std::atomic<bool> right{true}, stop{false};
  std::thread user([&] {
    float got[kBig];
    while (!stop) {
      Tracked *const x = now;
      if (x == nullptr) {
        sched_yield();
        continue;
      }
      used++;
      const char *err = nullptr;
      for (int i = 0; err == nullptr; i++) {
        err = cgotorch_copy_out(x->word(), got, sizeof got);
        if (err == nullptr) right = right && got[0] == 1 && got[kBig - 1] == 1;
      }
      right = right && strstr(err, "used after Close") != nullptr;
      FreeString(err);
      now = nullptr;
    }
  });
  for (int i = 0; i < 2000; i++) {
    Tracked x(kBig);
    now = &x;
    while (used <= i) sched_yield();
    x.close();
    while (now != nullptr) sched_yield();
  }
  stop = true;
  user.join();
  fact(right, "who uses what others close computes with it, or finds it closed");
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  add_out = atoll(argv[1]);
  cat = atoll(argv[2]);
  nobody_counts();
  cgotorch_install_allocator();
  const Result counted;  // from here on something is alive
  {
    Tracked x, y;
    Result out;
    must(run_add_out(x.word(), y.word(), out.word()));  // what is made once is there
  }
  const int64_t start = live();
  frees_after_the_call(kSmall, false, "a small tensor is closed while a call uses it");
  frees_after_the_call(kSmall, true, "the same where it is known to be small");
  frees_after_the_call(kBig, false, "a big one");
  waits_for_others();
  what_few_elements_hold();
  threads_hand_over();
  lists();
  if (getenv("WORDS_TEST_WITHOUT_MEMBARRIER") == nullptr) fences_come_between();
  out_of_memory();
  at_random();
  fact(live() == start, "all handles were given back");
  return failures != 0;
}
