// warnings.cc: libtorch's warnings on their way to the program.
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <typeinfo>
#include <unordered_set>
#include <variant>

#include "fork.h"
#include "internal.h"

// Where a thread's warnings are gathered.
struct cgotorch_warnings {
  struct Warning {
    const char *kind;
    std::string message;
  };
  cgotorch_warnings *outer;
  c10::WarningHandler *before;  // the thread's
  std::vector<Warning> warnings;
  std::vector<Tensor> results;
  std::vector<void *> arrays;
};

namespace cgotorch {
namespace {

__thread cgotorch_warnings *gathering __attribute__((tls_model("initial-exec"))) = nullptr;

struct Handler {
  WarningHandler fn;
  void *data;
  void (*release)(void *) = nullptr;

  Handler(WarningHandler f, void *d) : fn(f), data(d) {}
  Handler(const Handler &) = delete;
  Handler &operator=(const Handler &) = delete;
  ~Handler() {
    if (release != nullptr) release(data);
  }
};

// Neither is ever destroyed: threads may warn after the process has begun to exit.
struct Current {  // under fork_mutexes.warnings
  std::shared_ptr<Handler> handler;
};
Current &current() {
  static Current *const c = new Current;
  return *c;
}

class Forward final : public c10::WarningHandler {
 public:
  void process(const c10::Warning &warning) override {
    const auto type = warning.type();
    const bool deprecation = std::holds_alternative<c10::Warning::DeprecationWarning>(type);
    const char *kind = deprecation ? "DeprecationWarning" : "UserWarning";
    std::string message = python_message(warning.msg());
    if (gathering != nullptr) {
      gathering->warnings.push_back({kind, std::move(message)});
      tls.settings = 0;  // results must be noted from now on, see apply_settings
      return;
    }
    std::shared_ptr<Handler> handler;
    {
      const std::lock_guard<std::mutex> lock(fork_mutexes.warnings);
      handler = current().handler;
    }
    if (handler) {
      handler->fn(handler->data, kind, message.c_str());
    } else {
      c10::WarningHandler::process(warning);
    }
  }
};
Forward &forward() {
  static auto *const f = new Forward;
  return *f;
}

std::atomic<bool> forwarding{false};

}  // namespace

void forward_warnings() noexcept {
  if (!forwarding.load()) return;
  // A handler that is not libtorch's own is Python's, or that of a backward pass, which passes on
  // what it got when it is through.
  const c10::WarningHandler &now = *c10::WarningUtils::get_warning_handler();
  if (typeid(now) == typeid(c10::WarningHandler)) {
    c10::WarningUtils::set_warning_handler(&forward());
  }
}

bool gathered_some() noexcept { return gathering != nullptr && !gathering->warnings.empty(); }

void entered_with(Tensor result) noexcept {
  apply_settings(tls);
  if (!gathered_some()) return;
  try {
    gathering->results.push_back(result);
  } catch (...) {
    // Out of memory: if the result is refused, it stays.
  }
}

void entered_with_array(void *array) noexcept {
  if (!gathered_some()) return;
  try {
    gathering->arrays.push_back(array);
  } catch (...) {
  }
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *SetWarningHandler(WarningHandler handler, void *data, void (*release)(void *data)) {
  return guard([&] {
    std::shared_ptr<Handler> next;  // after the lock is given back: the handler before
    if (handler != nullptr) next = std::make_shared<Handler>(handler, data);
    forward();
    {
      const std::lock_guard<std::mutex> lock(fork_mutexes.warnings);
      next.swap(current().handler);
      if (current().handler) current().handler->release = release;
    }
    if (!forwarding.exchange(true)) {
      // Every thread has a handler of its own in libtorch, and changes it at its next call.
      __atomic_add_fetch(&settings_generation, 1, __ATOMIC_RELEASE);
    }
    enter_thread();
  });
}

void PrintWarningOnce(void *data, const char *, const char *message) {
  // Messages may contain numbers, so that there is no end of different ones.
  constexpr size_t kRemembered = 1000;
  static auto *const printed = new std::unordered_set<std::string>;
  try {
    std::string line = data == nullptr ? "" : static_cast<const char *>(data);
    line.append(line.empty() ? "" : " ").append(message).append("\n");
    const std::lock_guard<std::mutex> lock(fork_mutexes.printed);
    if (printed->size() >= kRemembered) printed->clear();
    if (printed->insert(line).second) std::fwrite(line.data(), 1, line.size(), stderr);
  } catch (...) {
    std::fputs(message, stderr);
  }
}

struct cgotorch_warnings *cgotorch_gather_warnings(void) {
  enter_thread();
  auto *before = c10::WarningUtils::get_warning_handler();
  auto *w = new (std::nothrow) cgotorch_warnings{gathering, before, {}, {}, {}};
  if (w == nullptr) return nullptr;
  gathering = w;
  c10::WarningUtils::set_warning_handler(&forward());
  return w;
}

struct cgotorch_warnings *cgotorch_gathered_warnings(struct cgotorch_warnings *w) {
  if (w == nullptr) return nullptr;
  gathering = w->outer;
  c10::WarningUtils::set_warning_handler(w->before);
  if (gathered_some()) tls.settings = 0;
  if (!w->warnings.empty()) return w;
  delete w;
  return nullptr;
}

struct cgotorch_warnings *cgotorch_swap_warnings(struct cgotorch_warnings *w) {
  auto *before = std::exchange(gathering, w);
  if (gathered_some()) tls.settings = 0;
  return before;
}

const char *cgotorch_warning(const struct cgotorch_warnings *w, int64_t i, const char **kind) {
  if (i < 0 || i >= static_cast<int64_t>(w->warnings.size())) return nullptr;
  *kind = w->warnings[static_cast<size_t>(i)].kind;
  return w->warnings[static_cast<size_t>(i)].message.c_str();
}

void cgotorch_free_warnings(struct cgotorch_warnings *w, bool results) {
  if (results) {
    FreeTensors(w->results.data(), static_cast<int64_t>(w->results.size()));
    for (void *array : w->arrays) FreeArray(array);
  }
  delete w;
}

}  // extern "C"
