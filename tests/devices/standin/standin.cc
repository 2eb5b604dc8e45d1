// A device for the tests, as libtorch knows it under PrivateUse1: two of them, whose memory is the
// computer's. What a real device forbids fails here too: its addresses are none that the processor
// can read, its memory is bounded, and nothing is read from it while a graph is captured. Ops are
// done on the CPU, between copies. It is a library of operators, which a program may load at any
// time.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <set>
#include <vector>

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#endif

namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kDevices = 2, kStreams = 33;

// What an address on the device and the processor's address differ by.
constexpr uintptr_t kFar = uintptr_t{1} << 62;
void *far(void *p) { return reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(p) ^ kFar); }

struct Block {
  size_t bytes;
  int device;
  int64_t unused[6];
};
static_assert(sizeof(Block) == 64);

struct DeviceState {
  int64_t limit = int64_t{1} << 30;
  int64_t live = 0, peak = 0, allocated = 0, freed = 0, blocks = 0, ooms = 0;
  int64_t work[kStreams] = {};   // ops that each stream was given
  int64_t waits[kStreams] = {};  // events that each stream waits for
};

struct State {
  std::mutex mutex;
  DeviceState devices[kDevices];
  int streams = 0;  // handed out
  std::set<void *> pinned;
} state;

thread_local int current = 0;
thread_local int64_t current_stream[kDevices] = {};

// Of the thread that captures a graph.
using Captured = std::vector<std::function<void()>>;
thread_local Captured *capturing = nullptr;

void count_work() {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.devices[current].work[current_stream[current]]++;
}

void give_back(void *p) {
  if (p == nullptr) return;
  auto *block = static_cast<Block *>(far(p)) - 1;
  {
    const std::lock_guard<std::mutex> lock(state.mutex);
    DeviceState &d = state.devices[block->device];
    d.live -= static_cast<int64_t>(block->bytes);
    d.freed += static_cast<int64_t>(block->bytes);
    d.blocks--;
  }
  std::free(block);
}

struct Allocator final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t n) override {
    const c10::Device where(kType, static_cast<c10::DeviceIndex>(current));
    if (n == 0) return {nullptr, nullptr, &give_back, where};
    {
      const std::lock_guard<std::mutex> lock(state.mutex);
      DeviceState &d = state.devices[current];
      if (d.live + static_cast<int64_t>(n) > d.limit) {
        d.ooms++;
        TORCH_CHECK_WITH(OutOfMemoryError, false, "stand-in out of memory. Tried to allocate ", n,
                         " bytes");
      }
      d.live += static_cast<int64_t>(n);
      d.allocated += static_cast<int64_t>(n);
      d.peak = std::max(d.peak, d.live);
      d.blocks++;
    }
    auto *block = static_cast<Block *>(std::aligned_alloc(64, sizeof(Block) + (n + 63) / 64 * 64));
    block->bytes = n;
    block->device = current;
    void *p = far(block + 1);
    return {p, p, &give_back, where};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void *dst, const void *src, size_t n) const override {
    std::memcpy(far(dst), far(const_cast<void *>(src)), n);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr &, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex i) override {
    const std::lock_guard<std::mutex> lock(state.mutex);
    const DeviceState &d = state.devices[i];
    c10::CachingDeviceAllocator::DeviceStats s;
    for (auto *bytes :
         {&s.allocated_bytes, &s.reserved_bytes, &s.active_bytes, &s.requested_bytes}) {
      auto &all = (*bytes)[0];
      all.current = d.live;
      all.peak = d.peak;
      all.allocated = d.allocated;
      all.freed = d.freed;
    }
    s.allocation[0].current = d.blocks;
    s.num_ooms = d.ooms;
    return s;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex i) override {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.devices[i].peak = state.devices[i].live;
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex i) override {
    const std::lock_guard<std::mutex> lock(state.mutex);
    const DeviceState &d = state.devices[i];
    return {static_cast<size_t>(d.limit - d.live), static_cast<size_t>(d.limit)};
  }
};

Allocator *allocator() {
  static auto *const a = new Allocator;
  return a;
}

// An event is when its stream had been given so much, on a clock.
struct Event {
  int64_t work;
  std::chrono::steady_clock::time_point at;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device was = getDevice();
    setDevice(d);
    return was;
  }
  c10::Device getDevice() const override {
    return c10::Device(kType, static_cast<c10::DeviceIndex>(current));
  }
  void setDevice(c10::Device d) const override {
    TORCH_CHECK(d.index() >= 0 && d.index() < kDevices, "invalid device index ", d.index());
    current = d.index();
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override { current = d.index(); }
  static c10::Stream stream(c10::Device d, int64_t id) {
    return c10::Stream(c10::Stream::UNSAFE, d, id);
  }
  c10::Stream getStream(c10::Device d) const override {
    return stream(d, current_stream[d.index()]);
  }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    const std::lock_guard<std::mutex> lock(state.mutex);
    return stream(d, 1 + state.streams++ % (kStreams - 1));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override {
    return getNewStream(d, 0);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    const c10::Stream was = getStream(s.device());
    current_stream[s.device_index()] = s.id();
    return was;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }
  bool queryStream(const c10::Stream &) const override { return true; }
  void synchronizeStream(const c10::Stream &) const override {
    TORCH_CHECK(capturing == nullptr, "operation not permitted when stream is capturing");
  }
  void synchronizeDevice(c10::DeviceIndex) const override {
    TORCH_CHECK(capturing == nullptr, "operation not permitted when stream is capturing");
  }
  void destroyEvent(void *event, c10::DeviceIndex) const noexcept override {
    delete static_cast<Event *>(event);
  }
  void record(void **event, const c10::Stream &s, c10::DeviceIndex, c10::EventFlag) const override {
    if (*event == nullptr) *event = new Event;
    const std::lock_guard<std::mutex> lock(state.mutex);
    *static_cast<Event *>(*event) = {state.devices[s.device_index()].work[s.id()],
                                     std::chrono::steady_clock::now()};
  }
  void block(void *event, const c10::Stream &s) const override {
    if (event == nullptr) return;
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.devices[s.device_index()].waits[s.id()]++;
  }
  bool queryEvent(void *) const override { return true; }
  void synchronizeEvent(void *) const override {}
  double elapsedTime(void *a, void *b, c10::DeviceIndex) const override {
    const auto &first = *static_cast<Event *>(a), &second = *static_cast<Event *>(b);
    return std::chrono::duration<double, std::milli>(second.at - first.at).count();
  }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

// Pinned memory is any memory that is known to be.
void unpin(void *p) {
  const std::lock_guard<std::mutex> lock(state.mutex);
  state.pinned.erase(p);
  std::free(p);
}
struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void *p = std::aligned_alloc(64, (n + 64) / 64 * 64);
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.pinned.insert(p);
    return {p, p, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &unpin; }
  void copy_data(void *dst, const void *src, size_t n) const override { std::memcpy(dst, src, n); }
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return kDevices; }
  void setCurrentDevice(c10::DeviceIndex i) const override { Guard().setDevice({kType, i}); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex i) const override {
    return Guard().exchangeDevice({kType, i}).index();
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex i) const override {
    return exchangeDevice(i);
  }
  bool isPinnedPtr(const void *p) const override {
    const std::lock_guard<std::mutex> lock(state.mutex);
    const auto after = state.pinned.upper_bound(const_cast<void *>(p));
    return after != state.pinned.begin() && *std::prev(after) == p;
  }
  c10::Allocator *getPinnedMemoryAllocator() const override {
    static auto *const a = new PinnedAllocator;
    return a;
  }
  const at::Generator &getDefaultGenerator(c10::DeviceIndex i) const override {
    static auto *const all = new std::vector<at::Generator>{
        at::make_generator<at::CPUGeneratorImpl>(), at::make_generator<at::CPUGeneratorImpl>()};
    return all->at(static_cast<size_t>(i < 0 ? current : i));
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return at::make_generator<at::CPUGeneratorImpl>();
  }
  void resizePrivateUse1Bytes(const c10::Storage &s, size_t n) const override {
    auto data = allocator()->allocate(n);
    if (const size_t both = std::min(n, s.nbytes()); both > 0)
      std::memcpy(far(data.mutable_get()), far(s.mutable_data()), both);
    s.set_data_ptr_noswap(std::move(data));
    s.set_nbytes(n);
  }
};

// Ops -------------------------------------------------------------------------------------------

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype,
                 std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kType)));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), allocator(),
                                   c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}
at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(device.value_or(c10::Device(kType)));
  return at::detail::empty_strided_generic(
      C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride), allocator(),
      c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::dtype_or_default(dtype));
}

// The same tensor for the processor, on the same memory.
at::Tensor near(const at::Tensor &t) {
  if (t.device().type() != kType) return t;
  void *data = t.storage().nbytes() == 0 ? nullptr : far(t.storage().mutable_data());
  at::Storage storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                      c10::DataPtr(data, c10::Device(c10::DeviceType::CPU)));
  auto impl = c10::make_intrusive<at::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  impl->set_sizes_and_strides(t.sizes(), t.strides(), t.storage_offset());
  return at::Tensor(std::move(impl));
}

at::Tensor copy_from(const at::Tensor &from, const at::Tensor &to, bool non_blocking) {
  count_work();
  const bool reads = to.device().type() != kType;
  TORCH_CHECK(capturing == nullptr || !reads || non_blocking,
              "operation not permitted when stream is capturing");
  const auto copy = [from, to] {
    const at::NoGradGuard no_graph;
    near(to).copy_(near(from));
  };
  copy();
  if (capturing != nullptr && !reads) capturing->push_back(copy);
  return to;
}

const at::Tensor &resize(const at::Tensor &t, c10::SymIntArrayRef size,
                         std::optional<at::MemoryFormat>) {
  const c10::IntArrayRef sizes = C10_AS_INTARRAYREF_SLOW(size);
  if (t.sizes() == sizes) return t;  // with its strides
  auto *impl = t.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t bytes =
      static_cast<size_t>(impl->numel() + impl->storage_offset()) * impl->dtype().itemsize();
  if (bytes > impl->storage().nbytes()) Hooks().resizePrivateUse1Bytes(impl->storage(), bytes);
  return t;
}
at::Tensor copy_from_and_resize(const at::Tensor &from, const at::Tensor &to) {
  resize(to, from.sym_sizes(), {});
  return copy_from(from, to, false);
}

void record_stream(at::Tensor &t, c10::Stream s) {
  allocator()->recordStream(t.storage().data_ptr(), s);
}

void tensors_of(const c10::IValue &v, std::vector<at::Tensor> &all) {
  if (v.isTensor()) all.push_back(v.toTensor());
  if (v.isTensorList())
    for (const at::Tensor &t : v.toTensorVector()) all.push_back(t);
}

void fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  // A copy in a view's place would be read before anything is written into it.
  for (const c10::Argument &r : op.schema().returns())
    TORCH_CHECK(r.alias_info() == nullptr || r.alias_info()->isWrite(), op.schema().name(),
                " is a view, which the stand-in lacks");
  count_work();
  Captured *const into = std::exchange(capturing, nullptr);
  const size_t inputs = op.schema().arguments().size(), outputs = op.schema().returns().size();
  torch::jit::Stack given(stack->end() - static_cast<ptrdiff_t>(inputs), stack->end());
  at::native::cpu_fallback(op, stack);
  capturing = into;
  if (into == nullptr) return;
  std::vector<at::Tensor> made;
  for (const c10::IValue &v : torch::jit::last(*stack, outputs)) tensors_of(v, made);
  into->push_back([op, given, made, outputs] {
    torch::jit::Stack again = given;
    at::native::cpu_fallback(op, &again);
    std::vector<at::Tensor> now;
    for (const c10::IValue &v : torch::jit::last(again, outputs)) tensors_of(v, now);
    const at::NoGradGuard no_graph;
    for (size_t i = 0; i < made.size(); i++)
      if (!now[i].is_same(made[i])) near(made[i]).copy_(near(now[i]));
  });
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize);
  m.impl("record_stream", record_stream);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("unfold", at::native::unfold);
  m.impl("set_.source_Storage_storage_offset", at::native::set_storage_cpu_);
}

// What tests set and ask.
TORCH_LIBRARY(standin, m) {
  m.def("limit(int device, int bytes) -> ()", [](int64_t device, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    state.devices[device].limit = bytes;
  });
  m.def("work(int device, int stream) -> int", [](int64_t device, int64_t stream) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.devices[device].work[stream];
  });
  m.def("waits(int device, int stream) -> int", [](int64_t device, int64_t stream) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    return state.devices[device].waits[stream];
  });
}

#if __has_include(<ATen/core/GraphImplInterface.h>)
// The ops that were given, done again into the same memory.
struct Graph final : at::GraphImplInterface {
  explicit Graph(const at::GraphImplArgs &) {}
  void capture_begin(c10::MempoolId_t, at::GraphCaptureMode) override {
    TORCH_CHECK(capturing == nullptr, "a graph is being captured");
    TORCH_CHECK(current_stream[current] != 0, "graphs must be captured on a non-default stream");
    captured.clear();
    capturing = &captured;
  }
  void capture_end() override {
    TORCH_CHECK(capturing == &captured, "no graph is being captured");
    capturing = nullptr;
  }
  void instantiate() override {}
  void replay() override {
    TORCH_CHECK(!captured.empty(), "replay without a capture");
    for (const auto &work : captured) work();
  }
  void reset() override { captured.clear(); }
  c10::MempoolId_t pool() const override { return {0, 0}; }
  void enable_debug_mode() override {}
  void debug_dump(const std::string &) override {}
  Captured captured;
};
#endif

[[maybe_unused]] const bool registered = [] {
  c10::register_privateuse1_backend("standin");
  c10::SetAllocator(kType, allocator());
  at::RegisterPrivateUse1HooksInterface(new Hooks);
  return true;
}();

}  // namespace

#if __has_include(<ATen/core/GraphImplInterface.h>)
namespace at {
C10_REGISTER_TYPED_CLASS(GraphImplRegistry, "STANDIN", ::Graph)
}  // namespace at
#endif
