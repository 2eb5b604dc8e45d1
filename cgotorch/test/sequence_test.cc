// Sequence numbers of autograd's nodes (sequence.cc): prints a line a fact; exits 1 if one is
// wrong.
#include "../sequence.cc"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "facts.h"

namespace cgotorch {
__thread ThreadState tls;
}

using namespace cgotorch;
namespace sn = at::sequence_number;

static uint64_t reached() { return __atomic_load_n(&sequence_reached, __ATOMIC_RELAXED); }

// Stands for a call that records n nodes.
static std::vector<uint64_t> record(int n) {
  const Sequenced sequenced;
  std::vector<uint64_t> numbers;
  for (int i = 0; i < n; i++) numbers.push_back(sn::get_and_increment());
  return numbers;
}

static void on_thread(const std::function<void()> &f) {
  std::thread([&f] {
    tls.sequence = sequence_of_thread();
    f();
  }).join();
}

int main() {
  const uint64_t before = sn::peek();
  fact(sequence_found(), "libtorch's number is found");
  fact(sn::peek() == before, "it is as it was before");
  tls.sequence = sequence_of_thread();

  record(5);
  fact(sn::peek() == before + 5 && reached() == sn::peek(), "a thread counts as libtorch does");
  bool follows = true, together = true;
  for (int i = 0; i < 100; i++) {
    on_thread([&] {
      const uint64_t last = reached();
      follows &= record(3) == std::vector<uint64_t>{last, last + 1, last + 2};
    });
  }
  fact(follows && reached() == before + 305, "a thread continues where another has stopped");
  __atomic_store_n(&sequence_reached, uint64_t{1} << 60, __ATOMIC_RELAXED);
  fact(record(1)[0] == uint64_t{1} << 60, "however far that is");

  // A number that a thread has published is never forgotten, whatever others publish meanwhile.
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int n = 1; n < 4; n++)
    threads.emplace_back([&, n] {
      tls.sequence = sequence_of_thread();
      for (uint64_t last = 0; !stop;) {
        const auto numbers = record(n);
        if (numbers[0] <= last || reached() <= numbers.back()) together = false;
        last = numbers.back();
      }
    });
  for (int i = 0; i < 2000; i++) {
    const uint64_t last = record(2)[1];
    on_thread([&] { together &= record(1)[0] > last; });
  }
  stop = true;
  for (std::thread &t : threads) t.join();
  fact(together, "threads that record at the same time keep the order of each");

  // The variable is not found.
  on_thread([] {
    tls.sequence = &no_number;
    __atomic_store_n(&sequence_reached, uint64_t{1000}, __ATOMIC_RELAXED);
    fact(record(2) == std::vector<uint64_t>{1000, 1001}, "without the variable it is counted up");
    fact(reached() == 1002, "and published");
    on_thread([] { fact(record(1)[0] == 1002, "for those who have it"); });
    fact(record(1)[0] == 1003, "and back");
  });

  // Of the threads that the engine starts for devices.
  on_thread([] {
    tls.sequence = &sequence_reached;
    fact(record(2) == std::vector<uint64_t>{0, 1}, "a thread of a device counts for itself");
    fact(reached() == 1004, "which the others do not see");
  });
  return failures > 0;
}
