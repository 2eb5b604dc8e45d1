// fork.cc: the library in the child of a fork.
//
// A fork copies the memory as it is in the middle of whatever other threads do. So the mutexes that
// any call may take are locked around it, in the order in which they nest. The allocator does the
// same for itself.
#include <pthread.h>

#include "internal.h"
#include "objects.h"
#include "words.h"

namespace cgotorch {

void keep_this_thread() noexcept;  // runtime.cc
std::mutex &tokens_mutex();
std::mutex &warnings_mutex();

namespace {

void before_fork() {
  threads_mutex().lock();
  lock_words();
  tokens_mutex().lock();
  warnings_mutex().lock();
  lock_objects();
}

void unlock() {
  unlock_objects();
  warnings_mutex().unlock();
  tokens_mutex().unlock();
  unlock_words();
}

void in_parent() {
  unlock();
  threads_mutex().unlock();
}

void in_child() {
  unlock();
  keep_this_thread();
  threads_mutex().unlock();
}

[[maybe_unused]] const bool prepared = pthread_atfork(before_fork, in_parent, in_child) == 0;

}  // namespace
}  // namespace cgotorch
