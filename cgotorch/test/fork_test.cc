// The child of a fork works, whatever other threads were doing. Prints a line a fact; exits 1 if
// one is wrong. Its argument is the number of the function AddOut.
#include <allocator.h>
#include <objects.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "facts.h"

static int64_t add_out;

static Tensor tensor(int64_t n) {
  const std::vector<float> data(static_cast<size_t>(n), 1.5F);
  Tensor t;
  must(TensorFromData(data.data(), 4 * n, &n, 1, 6, &t));
  return t;
}

static Tensor leaf(int64_t n) {
  Tensor t = tensor(n);
  must(TensorSetRequiresGrad(t, true));
  return t;
}

static Tensor square(Tensor x) {
  Tensor y;
  must(Mul(x, x, &y));
  return y;
}

// Makes tensors, computes with them, closes them, and counts.
static void handles(std::mt19937 &random) {
  Tensor words[3];
  for (Tensor &t : words) t = tensor(1000);
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

static void objects(std::mt19937 &random) {
  std::vector<std::vector<char>> some(256);
  for (auto &o : some) o = std::vector<char>(random() % 600);
  const std::unique_ptr<char[]> array(new char[random() % 100000]);
}

// More elements than libtorch computes on one thread.
static void teams(std::mt19937 &) {
  Tensor x = tensor(100000);
  FreeTensor(square(x));
  FreeTensor(x);
}

static const char *hook(void *, Tensor grad, Tensor *result) { return Exp(grad, result); }

static const char *recompute(void *, Checkpoint frame) {
  Tensor x;
  if (const char *err = CheckpointInputs(frame, &x)) return err;
  const bool before = SetGradMode(true);
  EnterRecompute(frame);
  Tensor y = square(x);
  const char *err = LeaveRecompute(true);
  SetGradMode(before);
  FreeTensor(y);
  FreeTensor(x);
  return err;
}

// A backward pass through a checkpoint and hooks.
static void backward(std::mt19937 &) {
  Tensor x = leaf(1000);
  must(EnterCheckpoint(&x, 1, recompute, nullptr, nullptr));
  Tensor y = square(x);
  LeaveCheckpoint();
  must(RegisterHook(y, hook, nullptr, nullptr, nullptr));
  must(RegisterHook(x, hook, nullptr, nullptr, nullptr));
  Tensor sum, grad;
  must(Sum(y, nullptr, &sum));
  must(Backward(&sum, 1, nullptr, nullptr, false, nullptr, 0));
  must(TensorGrad(x, &grad));
  for (Tensor t : {x, y, sum, grad}) FreeTensor(t);
}

static void random_numbers(std::mt19937 &random) {
  Tensor x = tensor(20000), y;
  if (random() % 8 == 0) must(ManualSeed(random()));
  must(RandnLike(x, nullptr, nullptr, nullptr, nullptr, nullptr, &y));
  FreeTensor(x);
  FreeTensor(y);
}

static void operators(std::mt19937 &) {
  Operator op;
  must(FindOperator("aten::add", "Tensor", &op));
}

static void flops(std::mt19937 &) {
  int64_t place, n;
  must(EnterFlopCounter(&place));
  const int64_t sizes[] = {4, 4};
  Tensor x, y;
  must(Rand(sizes, 2, nullptr, nullptr, nullptr, nullptr, &x));
  must(MM(x, x, &y));
  FreeTensor(x);
  FreeTensor(y);
  FlopEvent *events;
  must(LeaveFlopCounter(place, &events, &n));
  FreeArray(events);
}

static void forward_mode(std::mt19937 &) {
  int64_t level;
  must(EnterTransform(TransformJVP, 0, 0, &level));
  must(LeaveTransform(level));
}

static void warnings(std::mt19937 &random) {
  PrintWarningOnce(nullptr, "UserWarning", "printed once");
  if (random() % 8 == 0) must(SetWarningHandler(PrintWarningOnce, nullptr, nullptr));
}

static void profiles(std::mt19937 &) {
  const ProfileOptions options = {true, true, true, false, 1000, 0};
  int64_t profile;
  const char *err = StartProfile(&options, &profile);
  if (err != nullptr) return FreeString(err);  // 16 threads may have one
  Tensor x = tensor(100);
  FreeTensor(square(x));
  FreeTensor(x);
  must(StopProfile(profile, nullptr));
}

struct Task {
  const char *name;
  void (*run)(std::mt19937 &);
};
static const Task tasks[] = {
    {"handles", handles},   {"objects", objects},           {"teams", teams},
    {"backward", backward}, {"random", random_numbers},     {"operators", operators},
    {"flops", flops},       {"forward mode", forward_mode}, {"warnings", warnings},
    {"profiles", profiles},
};

static void work(unsigned seed, const std::atomic<bool> &stop) {
  std::mt19937 random(seed);
  while (!stop) tasks[random() % std::size(tasks)].run(random);
}

static const char *volatile running = "nothing";

// Whether a child does everything before its time is over.
static bool child_works() {
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGALRM, [](int) {
      const char *const name = running;
      (void)!write(1, "     hangs: ", 12);
      (void)!write(1, name, strlen(name));
      (void)!write(1, "\n", 1);
      _exit(4);
    });
    alarm(60);
    const auto round = [](unsigned seed) {
      std::mt19937 random(seed);
      for (const Task &t : tasks) {
        running = t.name;
        t.run(random);
      }
    };
    round(1);
    std::thread(round, 2u).join();
    running = "the end";
    _exit(*cgotorch_threads() == 1 ? 0 : 3);
  }
  int status = 0;
  return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
         WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  add_out = std::atoll(argv[1]);
  must(SetNumThreads(2));
  fact(cgotorch_install_objects(), "operator new is the library's");
  cgotorch_install_allocator();
  std::mt19937 random(1);
  for (const Task &t : tasks) t.run(random);  // what MKL and others make once is there
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned seed = 10; seed < 14; seed++) threads.emplace_back(work, seed, std::cref(stop));
  int worked = 0;
  constexpr int kForks = 32;
  for (int i = 0; i < kForks; i++) {
    teams(random);  // which the child does not have
    worked += child_works();
  }
  fact(worked == kForks, "children work");
  stop = true;
  for (std::thread &t : threads) t.join();
  while (cgotorch_free_closed()) usleep(1000);
  fact(live() == 0, "nothing is left in the parent");
  return failures > 0;
}
