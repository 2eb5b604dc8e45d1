// fork.cc: see fork.h.
//
// Left to libtorch and MKL are the mutexes of a graph's nodes, and what is initialised once. A
// child may wait for ever that runs a backward pass over a graph, or to leaves, that another thread
// of its parent was running one over, or that is the first to need what another thread was
// initialising.
#include "fork.h"

#include <ATen/CPUGeneratorImpl.h>
#include <pthread.h>

#include <ranges>
#include <utility>

#include "words.h"

namespace cgotorch {

constinit ForkMutexes fork_mutexes;

namespace {

// The default generator's mutex, while it is locked here. Who draws random numbers has it while he
// computes and takes memory.
std::mutex *drawing = nullptr;

std::mutex *const simple[] = {
    &fork_mutexes.dual,    &fork_mutexes.operators, &fork_mutexes.formulas,
    &fork_mutexes.printed, &fork_mutexes.warnings,  &fork_mutexes.tokens,
};

void before_fork() {
  fork_mutexes.profiles.lock();
  fork_mutexes.seeds.lock();
  // Where this library has computed nothing, libtorch may be one that it cannot call.
  if (__atomic_load_n(cgotorch_threads(), __ATOMIC_RELAXED) > 0) {
    end_team();  // OpenMP does not know of forks: the child would wait for threads it does not have
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    drawing = &generator.mutex();
    drawing->lock();
  }
  lock_profiles();
  lock_allocator();
  threads_mutex().lock();
  lock_words();
  for (std::mutex *m : simple) m->lock();
  fork_mutexes.objects.lock();
}

void unlock(bool child) {
  fork_mutexes.objects.unlock();
  for (std::mutex *m : simple | std::views::reverse) m->unlock();
  unlock_words();
  if (child) keep_this_thread();
  threads_mutex().unlock();
  unlock_allocator();
  unlock_profiles();
  if (drawing != nullptr) std::exchange(drawing, nullptr)->unlock();
  fork_mutexes.seeds.unlock();
  fork_mutexes.profiles.unlock();
}

[[maybe_unused]] const bool prepared =
    pthread_atfork(before_fork, [] { unlock(false); }, [] { unlock(true); }) == 0;

}  // namespace
}  // namespace cgotorch
