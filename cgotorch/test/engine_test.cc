// Backward passes on several threads while a backend with devices appears, as a library that is
// loaded late brings one. Prints a line a fact; exits 1 if one is wrong.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <thread>
#include <vector>

#include "facts.h"

namespace ag = torch::autograd;

// The list of queues, which passes read without a lock.
struct Engine : ag::Engine {
  static const auto &queues() {
    return ag::Engine::get_default_engine().*&Engine::device_ready_queues_;
  }
};

struct Devices : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::PrivateUse1> {
  c10::DeviceIndex deviceCount() const noexcept override { return 3; }
};

static void pass() {
  const float data[] = {1, 2};
  const int64_t size = 2;
  Tensor x, y, sum;
  must(TensorFromData(data, sizeof data, &size, 1, 6, &x));
  must(TensorSetRequiresGrad(x, true));
  must(Mul(x, x, &y));
  must(Sum(y, NULL, &sum));
  must(Backward(&sum, 1, NULL, NULL, false, NULL, 0));
  for (Tensor t : {x, y, sum}) FreeTensor(t);
}

static int64_t threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
}

int main() {
  const int64_t before = live();
  pass();
  const auto *first = Engine::queues().data();
  const size_t n = Engine::queues().size();
  fact(n >= 3, "there is a queue for each device that may come");

  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; i++)
    threads.emplace_back([&] {
      while (!stop) pass();
    });
  const int64_t without = threads_of_process();
  static const Devices devices;
  c10::impl::device_guard_impl_registry[static_cast<size_t>(c10::DeviceType::PrivateUse1)].store(
      &devices);
  for (int i = 0; i < 100; i++) pass();
  fact(threads_of_process() == without + 3,
       "a device has a thread, which the first pass after it starts");
  stop = true;
  for (std::thread &t : threads) t.join();
  fact(Engine::queues().data() == first && Engine::queues().size() == n,
       "the list of queues is as it was");
  fact(live() == before, "all handles were given back");
  return failures > 0;
}
