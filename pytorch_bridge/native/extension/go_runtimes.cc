// go_runtimes.cc: see go_runtimes.h.
#include "go_runtimes.h"

#include <signal.h>

#include <array>
#include <atomic>

namespace {

using Handler = void (*)(int, siginfo_t *, void *);

std::array<Handler, 64> handlers;
std::atomic<size_t> count{0};  // of them; handlers below it never change

void ask_all(int signal, siginfo_t *info, void *context) {
  for (size_t i = 0, n = count.load(std::memory_order_acquire); i < n; i++)
    handlers[i](signal, info, context);
}

}  // namespace

void share_preemption() {
  struct sigaction now{};
  if (sigaction(SIGURG, nullptr, &now) != 0) return;
  // Go's takes the three arguments; a handler without them is the program's own.
  if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction == ask_all) return;
  const size_t n = count.load();
  if (n == handlers.size()) return;
  for (size_t i = 0; i < n; i++)
    if (handlers[i] == now.sa_sigaction) return;
  handlers[n] = now.sa_sigaction;
  count.store(n + 1, std::memory_order_release);
  if (n == 0) return;  // a single runtime keeps its own
  now.sa_sigaction = ask_all;
  sigaction(SIGURG, &now, nullptr);
}
