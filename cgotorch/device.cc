// device.cc: see device.h.
#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstring>
#include <memory>

#include "internal.h"

#if __has_include(<ATen/core/GraphImplInterface.h>)
#include <ATen/core/GraphImplInterface.h>
#define CGOTORCH_HAS_GRAPHS 1
#endif

namespace cgotorch {
namespace {

at::DeviceType device_type(int32_t type) { return device({type, -1}).type(); }

c10::impl::VirtualGuardImpl backend(at::DeviceType type) {
  return c10::impl::VirtualGuardImpl(type);
}

// The device with its index, the current one's where it has none.
at::Device indexed(Device d) {
  const at::Device given = device(d);
  const auto impl = backend(given.type());
  if (!given.has_index()) return impl.getDevice();
  // libtorch checks indices where memory is taken, and the rest is the driver's: out of range is
  // undefined for some.
  if (given.index() >= impl.deviceCount()) {
    throw Failure{"RuntimeError", "there is no device " + given.str() + ": there are " +
                                      std::to_string(impl.deviceCount()) + " of that type"};
  }
  return given;
}

at::Stream known(const Stream &s) {
  const at::Stream given = stream(s);
  indexed({static_cast<int32_t>(s.device_type), static_cast<int32_t>(s.device_index)});
  return given;
}

Stream pack(const at::Stream &s) {
  const auto p = s.pack3();
  return {p.stream_id, p.device_index, static_cast<int64_t>(p.device_type)};
}

Device pack(const at::Device &d) { return {static_cast<int32_t>(d.type()), d.index()}; }

c10::DeviceAllocator &allocator(at::DeviceType type) {
  // What getDeviceAllocator finds wrong it calls a bug.
  auto *found =
      type == at::kCPU ? nullptr : dynamic_cast<c10::DeviceAllocator *>(c10::GetAllocator(type));
  if (found == nullptr) {
    throw Failure{"NotImplementedError", "the allocator of " + c10::DeviceTypeName(type, true) +
                                             " devices keeps no statistics"};
  }
  return *found;
}

DeviceBytes bytes(const c10::CachingAllocator::StatArray &s) {
  const auto &all = s[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  return {all.current, all.peak, all.allocated, all.freed};
}

c10::Event &in(Event e) {
  if (e == nullptr) throw Failure{"TypeError", "argument 'event' must be an event, not none"};
  return *reinterpret_cast<c10::Event *>(e);
}

#ifdef CGOTORCH_HAS_GRAPHS
at::GraphImplInterface &in(DeviceGraph g) {
  if (g == nullptr) throw Failure{"TypeError", "argument 'graph' must be a graph, not none"};
  return *reinterpret_cast<at::GraphImplInterface *>(g);
}
#endif

}  // namespace
}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *GetAccelerator(int32_t *type) {
  return guard([&] {
    CUDAIsAvailable();
    const auto found = at::accelerator::getAccelerator(false);
    // libtorch names what it was built for, be there one or not.
    const bool any = found.has_value() && c10::impl::hasDeviceGuardImpl(*found) &&
                     backend(*found).deviceCount() > 0;
    *type = any ? static_cast<int32_t>(*found) : -1;
  });
}

const char *GetDeviceTypeName(int32_t type, const char **name) {
  return guard([&] { *name = strdup(c10::DeviceTypeName(device_type(type), true).c_str()); });
}

const char *GetDeviceCount(int32_t type, int64_t *n) {
  return guard([&] {
    if (type == static_cast<int32_t>(at::kCUDA) && !CUDAIsAvailable()) {
      *n = 0;
      return;
    }
    const at::DeviceType t = device_type(type);
    *n = c10::impl::hasDeviceGuardImpl(t) ? backend(t).deviceCount() : 0;
  });
}

const char *GetCurrentDevice(int32_t type, Device *result) {
  return guard([&] { *result = pack(backend(device_type(type)).getDevice()); });
}

const char *SetCurrentDevice(Device d, Device *previous) {
  return guard([&] {
    const at::Device next = indexed(d);
    const at::Device was = backend(next.type()).exchangeDevice(next);
    if (previous != nullptr) *previous = pack(was);
  });
}

const char *SynchronizeDevice(Device d) {
  return guard([&] {
    if (d.type == static_cast<int32_t>(at::kCPU)) return;
    const at::Device which = indexed(d);
    backend(which.type()).synchronizeDevice(which.index());
  });
}

const char *NewStream(Device d, int64_t priority, Stream *result) {
  return guard([&] {
    const at::Device which = indexed(d);
    if (priority < INT8_MIN || priority > INT8_MAX)
      throw_value("a stream's priority is a small number");
    *result = pack(backend(which.type()).getNewStream(which, static_cast<int>(priority)));
  });
}

const char *GetDefaultStream(Device d, Stream *result) {
  return guard([&] {
    const at::Device which = indexed(d);
    *result = pack(backend(which.type()).getDefaultStream(which));
  });
}

const char *GetCurrentStream(Device d, Stream *result) {
  return guard([&] {
    const at::Device which = indexed(d);
    *result = pack(backend(which.type()).getStream(which));
  });
}

const char *SetCurrentStream(Stream s, Stream *previous) {
  return guard([&] {
    const at::Stream next = known(s);
    const at::Stream was = backend(next.device_type()).exchangeStream(next);
    if (previous != nullptr) *previous = pack(was);
  });
}

const char *QueryStream(Stream s, bool *done) {
  return guard([&] { *done = known(s).query(); });
}

const char *SynchronizeStream(Stream s) {
  return guard([&] { known(s).synchronize(); });
}

const char *NewEvent(int32_t type, bool timing, Event *result) {
  return guard([&] {
    const at::DeviceType t = device_type(type);
    backend(t);
    // BACKEND_DEFAULT is what a backend's own events are, which measure; PyTorch's do not.
    const auto flag = timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT;
    *result = reinterpret_cast<Event>(new c10::Event(t, flag));
  });
}

const char *RecordEvent(Event e, Stream s) {
  return guard([&] { in(e).record(known(s)); });
}

const char *StreamWaitEvent(Stream s, Event e) {
  return guard([&] { in(e).block(known(s)); });
}

const char *QueryEvent(Event e, bool *done) {
  return guard([&] { *done = in(e).query(); });
}

const char *SynchronizeEvent(Event e) {
  return guard([&] { in(e).synchronize(); });
}

const char *EventElapsedTime(Event start, Event end, double *milliseconds) {
  return guard([&] { *milliseconds = in(start).elapsedTime(in(end)); });
}

void FreeEvent(Event e) {
  if (e == nullptr) return;
  enter_thread();
  delete reinterpret_cast<c10::Event *>(e);
}

const char *GetDeviceMemory(Device d, DeviceMemory *result) {
  return guard([&] {
    const at::Device which = indexed(d);
    const auto stats = allocator(which.type()).getDeviceStats(which.index());
    DeviceMemory m{};
    m.allocated = bytes(stats.allocated_bytes);
    m.reserved = bytes(stats.reserved_bytes);
    m.active = bytes(stats.active_bytes);
    m.requested = bytes(stats.requested_bytes);
    m.blocks = bytes(stats.allocation).current;
    m.retries = stats.num_alloc_retries;
    m.ooms = stats.num_ooms;
    *result = m;
  });
}

const char *ResetPeakDeviceMemory(Device d) {
  return guard([&] {
    const at::Device which = indexed(d);
    allocator(which.type()).resetPeakStats(which.index());
  });
}

const char *GetDeviceMemoryInfo(Device d, int64_t *free, int64_t *total) {
  return guard([&] {
    const at::Device which = indexed(d);
    const auto [unused, all] = allocator(which.type()).getMemoryInfo(which.index());
    *free = static_cast<int64_t>(unused);
    *total = static_cast<int64_t>(all);
  });
}

const char *EmptyDeviceCache(int32_t type) {
  return guard([&] { allocator(device_type(type)).emptyCache(); });
}

const char *NewDeviceGraph(int32_t type, DeviceGraph *result) {
  return guard([&] {
    const at::DeviceType t = device_type(type);
#ifdef CGOTORCH_HAS_GRAPHS
    if (at::has_graph_impl(t)) {
      *result = reinterpret_cast<DeviceGraph>(at::create_graph_impl(t).release());
      return;
    }
#endif
    throw Failure{"NotImplementedError", "graphs of " + c10::DeviceTypeName(t, true) +
                                             " devices cannot be captured by torch " +
                                             cgotorch_torch_loaded()};
  });
}

#ifdef CGOTORCH_HAS_GRAPHS
const char *BeginCapture(DeviceGraph g) {
  return guard([&] { in(g).capture_begin(); });
}
const char *EndCapture(DeviceGraph g) {
  return guard([&] { in(g).capture_end(); });
}
const char *ReplayGraph(DeviceGraph g) {
  return guard([&] { in(g).replay(); });
}
const char *ResetGraph(DeviceGraph g) {
  return guard([&] { in(g).reset(); });
}
void FreeDeviceGraph(DeviceGraph g) {
  if (g == nullptr) return;
  enter_thread();
  delete reinterpret_cast<at::GraphImplInterface *>(g);
}
#else
// There are no graphs to be given.
const char *BeginCapture(DeviceGraph) {
  return guard([] { throw_null("graph"); });
}
const char *EndCapture(DeviceGraph) {
  return guard([] { throw_null("graph"); });
}
const char *ReplayGraph(DeviceGraph) {
  return guard([] { throw_null("graph"); });
}
const char *ResetGraph(DeviceGraph) {
  return guard([] { throw_null("graph"); });
}
void FreeDeviceGraph(DeviceGraph) {}
#endif

}  // extern "C"
