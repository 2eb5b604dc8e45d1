// The reference of `make bench`: the same work as the other workers, written against libtorch's C++
// directly. Reads "CASE ITERATIONS" lines, answers "WALL_NS CPU_NS" (CPU over all threads).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <time.h>

#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

int64_t now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

using Case = std::function<void(int64_t)>;

at::Tensor param(at::IntArrayRef size) { return (at::randn(size) * 0.05).requires_grad_(true); }

void sgd(std::vector<at::Tensor> &params, double lr) {
  c10::AutoGradMode off(false);
  for (auto &p : params) {
    p.add_(p.grad(), -lr);
    p.mutable_grad() = at::Tensor();
  }
}

}  // namespace

int main() {
  at::set_num_threads(1);
  at::manual_seed(0);
  auto a = at::randn({2, 2}), b = at::randn({2, 2});
  auto x1 = at::randn({1, 784}), x64 = at::randn({64, 784});
  auto y64 = at::randint(10, {64}, at::kLong);
  auto w1 = param({128, 784}), b1 = param({128}), w2 = param({10, 128}), b2 = param({10});
  std::vector<at::Tensor> mlp{w1, b1, w2, b2};
  auto forward = [&](const at::Tensor &x) {
    return at::linear(at::relu(at::linear(x, w1, b1)), w2, b2);
  };
  // The network of examples/digits.
  auto c1 = param({32, 1, 3, 3}), cb1 = param({32}), c2 = param({64, 32, 3, 3}), cb2 = param({64});
  auto l1 = param({128, 1600}), lb1 = param({128}), l2 = param({10, 128}), lb2 = param({10});
  std::vector<at::Tensor> cnn{c1, cb1, c2, cb2, l1, lb1, l2, lb2};
  auto images = at::randn({64, 1, 28, 28});

  std::map<std::string, Case> cases;
  cases["add"] = [&](int64_t n) {
    while (n--) at::add(a, b);
  };
  cases["mm"] = [&](int64_t n) {
    while (n--) at::mm(a, b);
  };
  cases["relu"] = [&](int64_t n) {
    while (n--) at::relu(a);
  };
  cases["transpose"] = [&](int64_t n) {
    while (n--) at::transpose(a, 0, 1);
  };
  cases["mlp_forward_1"] = [&](int64_t n) {
    c10::AutoGradMode off(false);
    while (n--) forward(x1);
  };
  cases["mlp_forward_64"] = [&](int64_t n) {
    c10::AutoGradMode off(false);
    while (n--) forward(x64);
  };
  cases["mlp_step_64"] = [&](int64_t n) {
    while (n--) {
      at::cross_entropy_loss(forward(x64), y64).backward();
      sgd(mlp, 0.01);
    }
  };
  cases["cnn_step_64"] = [&](int64_t n) {
    while (n--) {
      auto h = at::max_pool2d(at::relu(at::conv2d(images, c1, cb1)), {2, 2});
      h = at::max_pool2d(at::relu(at::conv2d(h, c2, cb2)), {2, 2});
      h = at::linear(at::relu(at::linear(at::flatten(h, 1), l1, lb1)), l2, lb2);
      at::cross_entropy_loss(h, y64).backward();
      sgd(cnn, 0.01);
    }
  };

  std::string name;
  int64_t n;
  while (std::cin >> name >> n) {
    auto found = cases.find(name);
    if (found == cases.end()) {
      std::cout << "none" << std::endl;
      continue;
    }
    auto wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    found->second(n);
    wall = now(CLOCK_MONOTONIC) - wall;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    std::cout << wall << " " << cpu << std::endl;
  }
}
