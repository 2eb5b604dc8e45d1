// fork.h: the locks that a fork takes.
//
// A fork copies the memory as it is in the middle of whatever other threads do, and the child has
// none of these threads: what they have locked stays locked. So fork.cc locks every mutex of the
// process around a fork, and one that is new belongs here.
#pragma once

#include <mutex>

namespace cgotorch {

// In the order in which they nest: who holds one locks only those after it.
struct ForkMutexes {
  std::mutex profiles;   // who starts or stops a profile
  std::mutex seeds;      // the last ManualSeed
  std::mutex dual;       // the level of forward mode
  std::mutex operators;  // those that were found by name
  std::mutex formulas;   // of FLOPs, by operator
  std::mutex printed;    // warnings that were printed
  std::mutex warnings;   // the handler
  std::mutex tokens;
  std::mutex objects;  // operator new
};
// Constant-initialised and never destroyed: it is used before and after main.
extern constinit ForkMutexes fork_mutexes;

// Mutexes that are several of a kind, or whose data lies beside them.
void lock_profiles();  // those of each profile, and of the memory that they record (profiler.cc)
void unlock_profiles();
void lock_allocator();  // allocator.cc
void unlock_allocator();

// In the child of a fork, with the mutex of threads locked: only the calling thread has come with
// it (runtime.cc).
void keep_this_thread() noexcept;
// Ends the team of threads that the calling thread computes with, which OpenMP would keep for its
// next op (runtime.cc).
void end_team();

}  // namespace cgotorch
