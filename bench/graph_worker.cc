// Graphs without Python for `make bench`: `graph_worker calls` makes the calls of a graph by hand,
// `graph_worker FOLDER` runs AOTInductor's packages, FOLDER/CASE.pt2. Reads "CASE ITERATIONS"
// lines, answers "WALL_NS CPU_NS", or "none" for a case that it does not have.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <time.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

int64_t now(clockid_t clock) {
  timespec t;
  clock_gettime(clock, &t);
  return t.tv_sec * int64_t{1000000000} + t.tv_nsec;
}

using Inputs = std::vector<at::Tensor>;

// As bench/graph_models.py has them.
std::map<std::string, Inputs> inputs() {
  const auto r = [](at::IntArrayRef size, at::ScalarType dtype = at::kFloat) {
    return at::randn(size, dtype);
  };
  return {
      {"mlp_1", {r({1, 784})}},
      {"mlp_64", {r({64, 784})}},
      {"products", {r({2, 2}), r({2, 2}), r({2, 2})}},
      {"exact_small", {r({64, 128}), r({64, 128})}},
      {"exact_large", {r({1000, 1000}), r({1000, 1000})}},
      {"gelu_small", {r({64, 128}), r({128})}},
      {"gelu_large", {r({1000, 1000}), r({1000})}},
      {"gelu_bfloat16", {r({1000, 1000}, at::kBFloat16), r({1000}, at::kBFloat16)}},
      {"gelu_float16", {r({1000, 1000}, at::kHalf), r({1000}, at::kHalf)}},
  };
}

std::function<void(const Inputs &)> by_hand(const std::string &name) {
  if (name.starts_with("mlp")) {
    auto w1 = at::randn({128, 784}), b1 = at::randn({128});
    auto w2 = at::randn({10, 128}), b2 = at::randn({10});
    return [=](const Inputs &in) { at::linear(at::relu(at::linear(in[0], w1, b1)), w2, b2); };
  }
  if (name == "products") {
    return [](const Inputs &in) {
      at::Tensor x = in[0];
      for (int i = 0; i < 50; i++) x = at::matmul(at::matmul(x, in[1]), in[2]);
    };
  }
  if (name.starts_with("exact")) {
    return [](const Inputs &in) {
      const auto &x = in[0], &y = in[1];
      const auto e = at::add(at::square(at::sub(at::mul(at::add(x, y), 0.5), y)), 1.0);
      at::abs(at::neg(at::mul(at::relu(at::mul(x, at::reciprocal(e))), y)));
    };
  }
  return [](const Inputs &in) {
    const auto u = at::add(in[0], in[1]);
    const auto inner = at::mul(at::mul(at::add(at::mul(at::mul(u, u), 0.044715), 1.0), u),
                               std::sqrt(2 / std::acos(-1.0)));
    at::mul(at::mul(at::add(at::tanh(inner), 1.0), u), 0.5);
  };
}

std::function<void(const Inputs &)> by_inductor(const std::string &folder,
                                                const std::string &name) {
  auto model =
      std::make_shared<torch::inductor::AOTIModelPackageLoader>(folder + "/" + name + ".pt2");
  return [model](const Inputs &in) { model->run(in); };
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  const std::string mode = argv[1];
  at::set_num_threads(1);
  const c10::InferenceMode inference;
  const auto all = inputs();
  std::map<std::string, std::function<void(const Inputs &)>> known;
  std::string name;
  int64_t n;
  while (std::cin >> name >> n) {
    const auto found = all.find(name);
    if (found == all.end()) {
      std::cout << "none" << std::endl;
      continue;
    }
    auto &call = known[name];
    if (!call) call = mode == "calls" ? by_hand(name) : by_inductor(mode, name);
    const int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (int64_t i = 0; i < n; i++) call(found->second);
    std::cout << now(CLOCK_MONOTONIC) - wall << " " << now(CLOCK_PROCESS_CPUTIME_ID) - cpu
              << std::endl;
  }
}
