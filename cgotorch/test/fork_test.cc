// The child of a fork works, whatever other threads were doing. Prints a line a fact; exits 1 if
// one is wrong. Its argument is the number of the function AddOut.
#include <allocator.h>
#include <objects.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "facts.h"

static int64_t add_out;

// Does what any call may do: makes and frees objects of all sizes, here and on a thread that ends,
// makes tensors, computes with them, closes them, and counts.
static void work(unsigned seed, const std::atomic<bool> &stop) {
  std::mt19937 random(seed);
  std::vector<std::unique_ptr<char[]>> arrays(64);
  std::vector<std::vector<char>> objects(256);
  while (!stop) {
    for (auto &o : objects) o = std::vector<char>(random() % 600);
    arrays[random() % arrays.size()].reset(new char[random() % 100000]);
    Tensor words[3];
    const int64_t n = 1 + static_cast<int64_t>(random() % 1000);
    for (Tensor &t : words) must(TensorFromData(nullptr, 4 * n, &n, 1, 6, &t));
    const auto at = [&](int i) { return reinterpret_cast<int64_t>(&words[i]); };
    struct {
      int64_t scope, self, other;
      Scalar alpha;
      int64_t out;
    } b = {0, at(0), at(1), {ScalarInt, {1}}, at(2)};
    must(cgotorch_call(add_out, reinterpret_cast<cgotorch_block *>(&b)));
    const int64_t all[] = {at(0), at(1), at(2)};
    cgotorch_close(all, 3, random() % 2 == 0);
    cgotorch_queue_token(nullptr);
    int64_t token;
    cgotorch_take_tokens(&token, 1);
    live();
    while (cgotorch_free_closed()) usleep(1);
  }
}

// Whether a child does a round of work before the time is over.
static bool child_works() {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);
    std::atomic<bool> stop{false};
    const auto round = [&stop](unsigned seed) {
      std::thread later([&stop] {
        usleep(20000);
        stop = true;
      });
      work(seed, stop);
      later.join();
      stop = false;
    };
    round(1);
    std::thread(round, 2u).join();
    _exit(*cgotorch_threads() == 1 ? 0 : 3);
  }
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  add_out = std::atoll(argv[1]);
  must(SetNumThreads(1));  // OpenMP has no threads in a child
  fact(cgotorch_install_objects(), "operator new is the library's");
  cgotorch_install_allocator();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 10; seed < 14; seed++) threads.emplace_back(work, seed, std::cref(stop));
  int worked = 0;
  constexpr int kForks = 32;
  for (int i = 0; i < kForks; i++) worked += child_works();
  fact(worked == kForks, "children work");
  stop = true;
  for (std::thread &t : threads) t.join();
  while (cgotorch_free_closed()) usleep(1000);
  fact(live() == 0, "nothing is left in the parent");
  return failures > 0;
}
