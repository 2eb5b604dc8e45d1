// profiler.cc: records calls of ATen's functions, ranges and memory.
//
// The calls on the processor are seen by an observer, as Kineto's are. Kineto's own observer cannot
// be used: it keeps pointers into its buffers while a call runs and frees them when the profile
// stops, so that a call of another thread which ends a moment later writes into freed memory. A
// Python program whose profile concerns its one thread never sees that; goroutines would all the
// time. Here a call owns a share of its buffer, and a buffer says whether its profile is over. What
// a device does is left to Kineto, which alone can know.
#include <ATen/Context.h>
#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <sys/syscall.h>
#include <time.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/util.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>

#include "fork.h"
#include "internal.h"

namespace cgotorch {
namespace {

namespace kineto = torch::autograd::profiler;
namespace prof = torch::profiler::impl;

constexpr size_t kMaxProfiles = 16;
constexpr size_t kMaxList = 64;  // tensors of a list whose sizes are kept

// A steady clock, for durations, beside that of the wall, for traces.
int64_t read_clock(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
int64_t now() { return read_clock(CLOCK_MONOTONIC); }

class Names {
 public:
  Names() : bytes_(1, '\0') { places_.emplace("", 0); }
  int64_t place(std::string_view name) {
    const auto at = places_.find(name);
    if (at != places_.end()) return at->second;
    const auto p = static_cast<int64_t>(bytes_.size());
    bytes_.append(name.substr(0, name.find('\0')));
    bytes_.push_back('\0');
    places_.emplace(name, p);
    return p;
  }
  std::string_view at(int64_t place) const { return bytes_.c_str() + place; }
  const std::string &bytes() const { return bytes_; }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::string bytes_;
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> places_;
};

struct Session {
  uint64_t serial = 0;
  ProfileOptions options{};
  int64_t wall = 0, start = 0;  // both clocks at the start
  std::atomic<int64_t> events{0}, memory{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<struct Buffer>> buffers;
};

// What a profile has of one thread.
struct Buffer {
  explicit Buffer(std::shared_ptr<Session> s)
      : session(std::move(s)), system_thread(static_cast<int64_t>(syscall(SYS_gettid))) {}
  const std::shared_ptr<Session> session;
  const int64_t system_thread;

  std::mutex mutex;  // of all below
  bool over = false;
  std::vector<ProfileEvent> events;
  std::vector<ProfileMemory> memory;
  std::vector<int64_t> ints;
  std::vector<int64_t> open;  // events that run, the innermost last
  Names names;
};

struct Slot {
  std::mutex mutex;
  std::shared_ptr<Session> session;
  std::atomic<uint64_t> serial{0};  // of the session; 0 without one
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};
// Never destroyed: memory is freed until the very end of a process.
Slot *const slots = new Slot[kMaxProfiles];
uint64_t last_serial = 0;  // under fork_mutexes.profiles

// A thread's buffers, by the slots. `ended` is for who frees memory after thread locals have gone.
struct Mine {
  uint64_t serial[kMaxProfiles] = {};
  std::shared_ptr<Buffer> buffer[kMaxProfiles];
};
__thread bool ended __attribute__((tls_model("initial-exec"))) = false;

// On the heap: a process that loads the library late has little room for thread locals.
struct OfThread {
  Mine *mine = nullptr;
  ~OfThread() {
    ended = true;
    delete mine;
  }
};

__thread cgotorch_profile_place place __attribute__((tls_model("initial-exec"))) = {};

// The calling thread's buffer in the profile of a slot, if there is one.
std::shared_ptr<Buffer> my_buffer(size_t i) {
  const uint64_t serial = slots[i].serial.load(std::memory_order_acquire);
  if (serial == 0 || ended) return nullptr;
  static thread_local OfThread of_thread;
  if (of_thread.mine == nullptr) of_thread.mine = new Mine;
  Mine &mine = *of_thread.mine;
  if (mine.serial[i] == serial) return mine.buffer[i];
  std::shared_ptr<Buffer> made;
  {
    const std::lock_guard<std::mutex> lock(slots[i].mutex);
    if (const auto &session = slots[i].session) {
      made = std::make_shared<Buffer>(session);
      const std::lock_guard<std::mutex> lock_session(session->mutex);
      session->buffers.push_back(made);
    }
  }
  mine.buffer[i] = made;
  mine.serial[i] = made != nullptr ? made->session->serial : 0;
  return made;
}

// Inputs -----------------------------------------------------------------------------------------

void add_tensor(Buffer &b, const at::Tensor &t) {
  const size_t before = b.ints.size();
  try {
    if (!t.defined() || t.is_nested()) {
      b.ints.push_back(0);
      return;
    }
    const auto sizes = t.sizes();
    b.ints.push_back(1);
    b.ints.push_back(b.names.place(t.dtype().name()));
    b.ints.push_back(static_cast<int64_t>(sizes.size()));
    b.ints.insert(b.ints.end(), sizes.begin(), sizes.end());
  } catch (const c10::Error &) {  // symbolic sizes
    b.ints.resize(before);
    b.ints.push_back(0);
  }
}

constexpr size_t kMaxNumbers = 30;  // Kineto's limit

// What Kineto calls a ScalarList: it looks at the first element.
bool is_scalar_list(const c10::IValue &v) {
  if (!v.isList()) return false;
  const auto list = v.toListRef();
  return list.empty() || (list[0].isScalar() && list.size() <= kMaxNumbers);
}

void add_input(Buffer &b, const c10::IValue &v) {
  if (v.isTensor()) {
    add_tensor(b, v.toTensor());
  } else if (v.isScalar()) {
    b.ints.push_back(3);
  } else if (v.isTensorList()) {
    const auto list = v.toTensorList();
    const size_t n = std::min(list.size(), kMaxList);
    b.ints.insert(b.ints.end(), {2, static_cast<int64_t>(list.size()), static_cast<int64_t>(n)});
    for (size_t i = 0; i < n; i++) add_tensor(b, list.get(i));
  } else {
    b.ints.push_back(is_scalar_list(v) ? 4 : 0);
  }
}

// Of what it has no formula for Kineto warns, each time.
class Silent final : public c10::WarningHandler {
  void process(const c10::Warning &) override {}
};

// Kineto's estimate, which goes by other formulas than the counter's in flops.cc: torch.profiler's.
int64_t estimate(const at::RecordFunction &fn) {
  static const std::set<std::string_view> known{"aten::mm",  "aten::addmm",   "aten::conv2d",
                                                "aten::bmm", "aten::baddbmm", "aten::mul",
                                                "aten::add"};
  const char *name = fn.name();
  if (!known.contains(name)) return 0;
  static Silent silent;
  const c10::WarningUtils::WarningHandlerGuard guard(&silent);
  try {
    const auto args = prof::saveExtraArgs(fn);
    return args.empty() ? 0 : static_cast<int64_t>(prof::computeFlops(name, args));
  } catch (...) {  // of arguments with which the call fails, too
    return 0;
  }
}

// Calls ------------------------------------------------------------------------------------------

struct Context final : at::ObserverContext {
  Context(std::shared_ptr<Buffer> b, int64_t i) : buffer(std::move(b)), index(i) {}
  const std::shared_ptr<Buffer> buffer;
  const int64_t index;
};

bool left_out(const ProfileOptions &options) {
  return options.goroutine != 0 && options.goroutine != place.goroutine;
}

std::unique_ptr<at::ObserverContext> begin_call(size_t slot, const at::RecordFunction &fn) {
  try {
    const auto b = my_buffer(slot);
    if (b == nullptr) return nullptr;
    Session &s = *b->session;
    if (left_out(s.options)) return nullptr;
    if (s.events.fetch_add(1, std::memory_order_relaxed) >= s.options.max_events) return nullptr;
    ProfileEvent e{};
    e.end = -1;
    e.scope = static_cast<int64_t>(fn.scope());
    e.thread = static_cast<int64_t>(at::RecordFunction::currentThreadId());
    e.forward_thread = static_cast<int64_t>(fn.forwardThreadId());
    e.system_thread = b->system_thread;
    e.sequence = fn.seqNr();
    e.goroutine = place.goroutine;
    e.call = place.call;
    e.site = place.site;
    e.inputs = -1;
    if (s.options.flops) e.flops = estimate(fn);

    const std::lock_guard<std::mutex> lock(b->mutex);
    if (b->over) return nullptr;
    e.name = b->names.place(fn.name());
    e.overload = b->names.place(fn.overload_name());
    e.parent = b->open.empty() ? -1 : b->open.back();
    const size_t index = b->events.size(), ints = b->ints.size();
    try {
      if (s.options.shapes) {
        e.inputs = static_cast<int64_t>(ints);
        const auto inputs = fn.inputs();
        b->ints.push_back(static_cast<int64_t>(inputs.size()));
        for (const c10::IValue &v : inputs) add_input(*b, v);
      }
      auto context = std::make_unique<Context>(b, static_cast<int64_t>(index));
      b->events.push_back(e);
      b->open.push_back(static_cast<int64_t>(index));
      b->events.back().start = now();
      return context;
    } catch (...) {  // half of an event would be taken for a whole one
      b->events.resize(index);
      b->ints.resize(ints);
      throw;
    }
  } catch (...) {  // no memory: the call is not in the profile
    return nullptr;
  }
}

void end_call(at::ObserverContext *context) {
  const int64_t end = now();
  const auto *c = static_cast<Context *>(context);
  if (c == nullptr) return;
  Buffer &b = *c->buffer;
  const std::lock_guard<std::mutex> lock(b.mutex);
  if (b.over) return;
  ProfileEvent &e = b.events[static_cast<size_t>(c->index)];
  e.end = end;
  e.end_thread = static_cast<int64_t>(at::RecordFunction::currentThreadId());
  // The innermost one, unless calls that are asynchronous end in another order.
  const auto at = std::find(b.open.rbegin(), b.open.rend(), c->index);
  if (at != b.open.rend()) b.open.erase(std::next(at).base());
}

// Callbacks are functions without data, so there is a pair for each slot.
template <size_t slot>
std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction &fn) {
  return begin_call(slot, fn);
}
void end(const at::RecordFunction &, at::ObserverContext *context) { end_call(context); }

using Begin = at::RecordFunctionCallback::StartCallback;
template <size_t... i>
std::array<Begin, sizeof...(i)> begins(std::index_sequence<i...>) {
  return {&begin<i>...};
}

// Memory -----------------------------------------------------------------------------------------

// While a profile records memory, the allocator is wrapped. What it gives out then remembers that,
// so that it is known when it is freed, whenever that is; no other call pays for it.

struct Shard {
  std::mutex mutex;
  std::unordered_map<void *, size_t> blocks;
};
constexpr size_t kShards = 64;
Shard *const shards = new Shard[kShards];
std::atomic<int64_t> tracked{0};  // bytes in them
std::atomic<bool> recording_memory{false};

Shard &shard_of(void *p) { return shards[(reinterpret_cast<uintptr_t>(p) >> 6) % kShards]; }

void record_memory(void *p, int64_t bytes, int64_t total) noexcept {
  const int64_t time = now();
  for (size_t i = 0; i < kMaxProfiles; i++) {
    if (slots[i].serial.load(std::memory_order_relaxed) == 0) continue;
    try {
      const auto b = my_buffer(i);
      if (b == nullptr || !b->session->options.memory || left_out(b->session->options)) continue;
      Session &s = *b->session;
      const bool room = s.memory.fetch_add(1, std::memory_order_relaxed) < s.options.max_events;
      const std::lock_guard<std::mutex> lock(b->mutex);
      if (b->over) continue;
      const int64_t parent = b->open.empty() ? -1 : b->open.back();
      if (parent >= 0) b->events[static_cast<size_t>(parent)].memory += bytes;
      if (room)
        b->memory.push_back({time, static_cast<int64_t>(reinterpret_cast<uintptr_t>(p)), bytes,
                             total, parent,
                             static_cast<int64_t>(at::RecordFunction::currentThreadId()),
                             b->system_thread, place.goroutine});
    } catch (...) {
    }
  }
}

c10::DeleterFnPtr wrapped_deleter = nullptr;

void free_block(void *p) {
  size_t n = 0;
  {
    Shard &s = shard_of(p);
    const std::lock_guard<std::mutex> lock(s.mutex);
    const auto at = s.blocks.find(p);
    if (at != s.blocks.end()) {
      n = at->second;
      s.blocks.erase(at);
    }
  }
  if (n > 0) {
    const auto bytes = static_cast<int64_t>(n);
    const int64_t total = tracked.fetch_sub(bytes) - bytes;
    if (recording_memory.load(std::memory_order_relaxed)) record_memory(p, -bytes, total);
  }
  wrapped_deleter(p);
}

class Recorder final : public c10::Allocator {
 public:
  explicit Recorder(c10::Allocator *a) : wrapped_(a) {}
  c10::Allocator *wrapped() const { return wrapped_; }
  c10::DataPtr allocate(size_t n) override {
    c10::DataPtr d = wrapped_->allocate(n);
    void *p = d.get();
    // Storages keep their allocator, and ask it again when they grow after the profile.
    if (n == 0 || p == nullptr || p != d.get_context() || d.get_deleter() != wrapped_deleter ||
        !recording_memory.load(std::memory_order_relaxed))
      return d;
    {
      Shard &s = shard_of(p);
      const std::lock_guard<std::mutex> lock(s.mutex);
      s.blocks[p] = n;  // may throw: then d frees p
    }
    const c10::Device device = d.device();
    d.release_context();
    const auto bytes = static_cast<int64_t>(n);
    record_memory(p, bytes, tracked.fetch_add(bytes) + bytes);
    return {p, p, &free_block, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &free_block; }
  void copy_data(void *dest, const void *src, std::size_t n) const override {
    default_copy_data(dest, src, n);
  }

 private:
  c10::Allocator *const wrapped_;
};

Recorder *recorder = nullptr;  // never freed
int64_t memory_profiles = 0;

// Makes an allocator that of the computer's memory: above whatever priority that has.
void set_cpu_allocator(c10::Allocator *a) {
  for (int priority = 0; priority < 256; priority++) {
    c10::SetAllocator(c10::DeviceType::CPU, a, static_cast<uint8_t>(priority));
    if (c10::GetAllocator(c10::DeviceType::CPU) == a) return;
  }
}

// Both with fork_mutexes.profiles locked.
void begin_memory() {
  if (memory_profiles == 0) {
    c10::Allocator *a = c10::GetAllocator(c10::DeviceType::CPU);
    if (recorder == nullptr) {
      if (a->raw_deleter() == nullptr)
        throw Failure{"RuntimeError",
                      "memory cannot be recorded: the program's allocator has no deleter"};
      wrapped_deleter = a->raw_deleter();
      recorder = new Recorder(a);
    } else if (a != recorder->wrapped()) {
      throw Failure{
          "RuntimeError",
          "memory cannot be recorded: the program has changed its allocator since it was"};
    }
    recording_memory = true;
    set_cpu_allocator(recorder);
  }
  memory_profiles++;
}

void end_memory() {
  if (--memory_profiles > 0) return;
  recording_memory = false;
  set_cpu_allocator(recorder->wrapped());
}

// Devices ----------------------------------------------------------------------------------------

// Kineto for the GPU alone, so that its observer of calls has no part. The state is that of all
// threads, so that any of them may stop it.
prof::ProfilerConfig device_config() {
  prof::ExperimentalConfig experimental;
  experimental.profile_all_threads = true;
  return prof::ProfilerConfig(prof::ProfilerState::KINETO, false, false, false, false, false,
                              experimental);
}

bool device_profile = false;

void begin_device() {
  if (device_profile)
    throw Failure{"RuntimeError",
                  "another profile records the GPU, and only one can: stop it, or leave the GPU "
                  "out of this one's activities"};
  need_cuda();
  const std::set<prof::ActivityType> activities{prof::ActivityType::CUDA};
  kineto::prepareProfiler(device_config(), activities);
  kineto::enableProfiler(device_config(), activities);
  device_profile = true;
}

std::vector<ProfileActivity> end_device(Names &names) {
  device_profile = false;
  const auto result = kineto::disableProfiler();
  std::vector<ProfileActivity> activities;
  if (result == nullptr) return activities;
  for (const kineto::KinetoEvent &e : result->events()) {
    ProfileActivity a{};
    a.start = static_cast<int64_t>(e.startNs());
    a.end = a.start + static_cast<int64_t>(e.durationNs());
    a.name = names.place(e.name());
    a.device_type = static_cast<int64_t>(e.deviceType());
    a.device_index = e.deviceIndex();
    a.resource = e.deviceResourceId();
    a.correlation = static_cast<int64_t>(e.correlationId());
    a.linked = static_cast<int64_t>(e.linkedCorrelationId());
    activities.push_back(a);
  }
  return activities;
}

// Results ----------------------------------------------------------------------------------------

template <class T>
void hand_over(T *&to, int64_t &len, const std::vector<T> &from) {
  to = static_cast<T *>(std::malloc(sizeof(T) * std::max<size_t>(from.size(), 1)));
  if (to == nullptr) throw std::bad_alloc();
  if (!from.empty()) std::memcpy(to, from.data(), sizeof(T) * from.size());
  len = static_cast<int64_t>(from.size());
}

// Places of names in a buffer are places in `names` from now on.
void rename_inputs(std::vector<int64_t> &ints, const Names &old, Names &names) {
  size_t i = 0;
  const auto input = [&](const auto &self) -> void {
    switch (ints[i++]) {
      case 1: {
        ints[i] = names.place(old.at(ints[i]));
        i += 2 + static_cast<size_t>(ints[i + 1]);
        break;
      }
      case 2: {
        const int64_t n = ints[i + 1];
        i += 2;
        for (int64_t k = 0; k < n; k++) self(self);
        break;
      }
      default:
        break;
    }
  };
  while (i < ints.size()) {
    const int64_t n = ints[i++];
    for (int64_t k = 0; k < n; k++) input(input);
  }
}

}  // namespace

void lock_profiles() {
  for (size_t i = 0; i < kMaxProfiles; i++) slots[i].mutex.lock();
  for (size_t i = 0; i < kShards; i++) shards[i].mutex.lock();
}

void unlock_profiles() {
  for (size_t i = 0; i < kShards; i++) shards[i].mutex.unlock();
  for (size_t i = 0; i < kMaxProfiles; i++) slots[i].mutex.unlock();
}

}  // namespace cgotorch

using namespace cgotorch;

struct cgotorch_range {
  explicit cgotorch_range(at::StepCallbacks &&callbacks) : function(std::move(callbacks)) {}
  at::RecordFunction function;
};

extern "C" {

const char *StartProfile(const ProfileOptions *options, int64_t *profile) {
  return guard([&] {
    if (options == nullptr) throw_null("options");
    if (options->max_events < 0) throw_value("max_events must not be negative");
    static const auto all = begins(std::make_index_sequence<kMaxProfiles>{});
    const std::lock_guard<std::mutex> lock(fork_mutexes.profiles);
    size_t i = 0;
    while (i < kMaxProfiles && slots[i].serial.load() != 0) i++;
    if (i == kMaxProfiles)
      throw Failure{"RuntimeError", std::to_string(kMaxProfiles) +
                                        " profiles are being recorded, and there can be no more: "
                                        "stop one"};
    auto session = std::make_shared<Session>();
    session->options = *options;
    session->serial = ++last_serial;
    auto callback = at::RecordFunctionCallback(all[i], &end)
                        .needsInputs(options->shapes || options->flops)
                        .needsIds(true);
    if (options->device) begin_device();
    try {
      if (options->memory) begin_memory();
    } catch (...) {
      Names none;
      if (options->device) end_device(none);
      throw;
    }
    session->wall = read_clock(CLOCK_REALTIME);
    session->start = now();
    {
      const std::lock_guard<std::mutex> lock_slot(slots[i].mutex);
      slots[i].session = session;
    }
    slots[i].callback = at::addGlobalCallback(callback);
    slots[i].serial.store(session->serial, std::memory_order_release);
    *profile = static_cast<int64_t>(session->serial);
  });
}

const char *StopProfile(int64_t profile, ProfileData **result) {
  return guard([&] {
    std::shared_ptr<Session> session;
    Names names;
    std::vector<ProfileActivity> activities;
    const std::lock_guard<std::mutex> lock(fork_mutexes.profiles);
    size_t i = 0;
    while (i < kMaxProfiles &&
           (profile <= 0 || slots[i].serial.load() != static_cast<uint64_t>(profile)))
      i++;
    if (i == kMaxProfiles) throw Failure{"ValueError", "there is no such profile; it was stopped"};
    at::removeCallback(slots[i].callback);
    slots[i].serial.store(0, std::memory_order_release);
    {
      const std::lock_guard<std::mutex> lock_slot(slots[i].mutex);
      session.swap(slots[i].session);
    }
    if (session->options.memory) end_memory();
    if (session->options.device) activities = end_device(names);
    const int64_t offset = session->wall - session->start;
    std::vector<std::shared_ptr<Buffer>> buffers;
    {
      const std::lock_guard<std::mutex> lock(session->mutex);
      buffers.swap(session->buffers);
    }
    std::vector<ProfileEvent> events;
    std::vector<ProfileMemory> memory;
    std::vector<int64_t> ints;
    // From then on nothing begins, so that what has not ended is not said to have begun later.
    for (const auto &b : buffers) {
      const std::lock_guard<std::mutex> lock(b->mutex);
      b->over = true;
    }
    const int64_t stop = now();
    for (const auto &b : buffers) {
      std::vector<ProfileEvent> some;
      std::vector<ProfileMemory> some_memory;
      std::vector<int64_t> some_ints, some_open;
      Names some_names;
      {
        const std::lock_guard<std::mutex> lock(b->mutex);
        some.swap(b->events);
        some_memory.swap(b->memory);
        some_ints.swap(b->ints);
        some_open.swap(b->open);
        std::swap(some_names, b->names);
      }
      if (result == nullptr) continue;
      const auto first = static_cast<int64_t>(events.size());
      const auto first_int = static_cast<int64_t>(ints.size());
      rename_inputs(some_ints, some_names, names);
      ints.insert(ints.end(), some_ints.begin(), some_ints.end());
      for (ProfileEvent &e : some) {
        e.start += offset;
        if (e.end >= 0) e.end += offset;
        if (e.parent >= 0) e.parent += first;
        if (e.inputs >= 0) e.inputs += first_int;
        e.name = names.place(some_names.at(e.name));
        e.overload = names.place(some_names.at(e.overload));
      }
      events.insert(events.end(), some.begin(), some.end());
      for (ProfileMemory &m : some_memory) {
        m.time += offset;
        if (m.parent >= 0) m.parent += first;
      }
      memory.insert(memory.end(), some_memory.begin(), some_memory.end());
    }
    if (result == nullptr) return;
    std::unique_ptr<ProfileData, decltype(&FreeProfile)> data(
        static_cast<ProfileData *>(std::calloc(1, sizeof(ProfileData))), &FreeProfile);
    if (data == nullptr) throw std::bad_alloc();
    data->start = session->wall;
    data->clock = session->start;
    data->stop = stop + offset;
    hand_over(data->events, data->events_len, events);
    hand_over(data->memory, data->memory_len, memory);
    hand_over(data->activities, data->activities_len, activities);
    hand_over(data->ints, data->ints_len, ints);
    const std::string &bytes = names.bytes();
    hand_over(data->names, data->names_len, std::vector<char>(bytes.begin(), bytes.end()));
    const int64_t most = session->options.max_events;
    data->dropped_events = std::max<int64_t>(0, session->events.load() - most);
    data->dropped_memory = std::max<int64_t>(0, session->memory.load() - most);
    *result = data.release();
  });
}

void FreeProfile(ProfileData *data) {
  if (data == nullptr) return;
  std::free(data->events);
  std::free(data->memory);
  std::free(data->activities);
  std::free(data->ints);
  std::free(data->names);
  std::free(data);
}

const char *EnterRange(const char *name, ProfileRange *range) {
  return guard([&] {
    const std::string_view text = str(name, "name");
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks) {
      *range = nullptr;
      return;
    }
    auto r = std::make_unique<cgotorch_range>(std::move(*callbacks));
    r->function.before(text);
    *range = r.release();
  });
}

void LeaveRange(ProfileRange range) { delete range; }

cgotorch_profile_place cgotorch_profile_enter(cgotorch_profile_place next) {
  const cgotorch_profile_place before = place;
  place = next;
  if (before.goroutine != 0) place.goroutine = before.goroutine;
  return before;
}

void cgotorch_profile_leave(cgotorch_profile_place before) { place = before; }

int64_t cgotorch_profile_clock(void) { return now(); }

}  // extern "C"
