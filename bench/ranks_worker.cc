// Two ranks that call c10d directly, for `make bench`: the first reads "CASE ITERATIONS" lines and
// answers "WALL_NS CPU_NS", or "none" for a case other than "all_reduce_BYTES".
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#define USE_C10D_GLOO
#include <sys/wait.h>
#include <time.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
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

// Runs what the lines of `in` say as one of two ranks; `peer` gets the lines, too.
void run(const std::string &folder, int rank, std::FILE *in, std::FILE *peer) {
  at::set_num_threads(1);
  auto store = c10::make_intrusive<c10d::FileStore>(folder + "/meet", 2);
  auto options = c10d::ProcessGroupGloo::Options::create_default(std::chrono::seconds(60));
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, 2, options);
  const std::string prefix = "all_reduce_";
  std::map<std::string, at::Tensor> made;
  char name[100];
  long n;
  while (std::fscanf(in, "%99s %ld", name, &n) == 2) {
    const std::string text = name;
    if (text.compare(0, prefix.size(), prefix) != 0) {
      std::cout << "none" << std::endl;
      continue;
    }
    if (peer != nullptr) {
      std::fprintf(peer, "%s %ld\n", name, n);
      std::fflush(peer);
    }
    auto &t = made[text];
    if (!t.defined()) t = at::ones({std::stol(text.substr(prefix.size())) / 4});
    group->barrier()->wait();
    const int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    for (long i = 0; i < n; i++) {
      std::vector<at::Tensor> list = {t};
      c10d::AllreduceOptions of;
      of.reduceOp = c10d::ReduceOp::AVG;
      group->allreduce(list, of)->wait();
    }
    if (rank == 0)
      std::cout << now(CLOCK_MONOTONIC) - wall << " " << now(CLOCK_PROCESS_CPUTIME_ID) - cpu
                << std::endl;
  }
}

}  // namespace

int main(int argc, char **argv) {
  if (argc == 2) {  // rank 1
    run(argv[1], 1, stdin, nullptr);
    return 0;
  }
  char folder[] = "/tmp/ranksXXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  const std::string command = "exec '" + std::string(argv[0]) + "' " + folder;
  std::FILE *peer = popen(command.c_str(), "w");
  run(folder, 0, stdin, peer);
  pclose(peer);
  return std::system(("rm -r " + std::string(folder)).c_str());
}
