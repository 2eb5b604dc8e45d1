// generator.cc: random number generators. Their methods ask the caller to hold the generator's
// lock.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include <mutex>

#include "internal.h"
#include "late_cuda.h"

namespace cgotorch {
namespace {

at::Generator &generator(Generator &g) {
  if (g == nullptr) throw Failure{"TypeError", "argument 'g' must be a generator, not none"};
  return reinterpret_cast<at::Generator &>(g);
}

Generator release(at::Generator &&g) {
  return reinterpret_cast<Generator>(g.unsafeReleaseGeneratorImpl());
}

template <class F>
const char *locked(Generator &g, F &&f) noexcept {
  return guard([&] {
    at::Generator &gen = generator(g);
    const std::lock_guard<std::mutex> lock(gen.mutex());
    f(gen);
  });
}

// The seed of the last ManualSeed that did not reach the GPUs.
std::mutex pending_mutex;
std::optional<uint64_t> pending;

}  // namespace

void seed_devices() {
  const std::lock_guard<std::mutex> lock(pending_mutex);
  if (!pending) return;
  const at::DeviceIndex n = at::detail::getCUDAHooks().deviceCount();
  for (at::DeviceIndex i = 0; i < n; i++) {
    at::Generator g = at::globalContext().defaultGenerator(at::Device(at::kCUDA, i));
    const std::lock_guard<std::mutex> own(g.mutex());
    g.set_current_seed(*pending);
  }
  pending.reset();
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *ManualSeed(uint64_t seed) {
  return guard([&] {
    // at::manual_seed asks about CUDA. Before libtorch_cuda.so is loaded the answer is no, for
    // good.
    const std::lock_guard<std::mutex> lock(pending_mutex);
    pending.reset();
    if (CUDAIsLoaded()) return at::manual_seed(seed);
    pending = seed;
    at::Generator g = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> own(g.mutex());
    g.set_current_seed(seed);
  });
}

const char *NewGenerator(Device d, Generator *result) {
  return guard([&] {
    const at::Device of = device(d);
    at::Generator g =
        of.is_cpu() ? at::make_generator<at::CPUGeneratorImpl>()
                    : at::globalContext().getAcceleratorHooksInterface(of.type()).getNewGenerator(
                          of.index());
    *result = release(std::move(g));
  });
}

const char *DefaultGenerator(Device d, Generator *result) {
  return guard(
      [&] { *result = release(at::Generator(at::globalContext().defaultGenerator(device(d)))); });
}

const char *GeneratorClone(Generator g, Generator *result) {
  return locked(g, [&](at::Generator &gen) { *result = release(gen.clone()); });
}

Generator RetainGenerator(Generator g) {
  if (g == nullptr) return nullptr;
  return release(at::Generator(reinterpret_cast<at::Generator &>(g)));
}

const char *GeneratorDevice(Generator g, Device *result) {
  return locked(g, [&](at::Generator &gen) {
    const at::Device d = gen.device();
    *result = Device{static_cast<int32_t>(d.type()), d.index()};
  });
}

const char *GeneratorManualSeed(Generator g, uint64_t seed) {
  return locked(g, [&](at::Generator &gen) { gen.set_current_seed(seed); });
}

const char *GeneratorSeed(Generator g, uint64_t *seed) {
  return locked(g, [&](at::Generator &gen) { *seed = gen.seed(); });
}

const char *GeneratorInitialSeed(Generator g, uint64_t *seed) {
  return locked(g, [&](at::Generator &gen) { *seed = gen.current_seed(); });
}

const char *GeneratorState(Generator g, Tensor *result) {
  return locked(g, [&](at::Generator &gen) { out(result, gen.get_state()); });
}

const char *GeneratorSetState(Generator g, Tensor state) {
  return locked(g, [&](at::Generator &gen) { gen.set_state(in(state, "state")); });
}

const char *GeneratorOffset(Generator g, uint64_t *offset) {
  return locked(g, [&](at::Generator &gen) { *offset = gen.get_offset(); });
}

const char *GeneratorSetOffset(Generator g, uint64_t offset) {
  return locked(g, [&](at::Generator &gen) { gen.set_offset(offset); });
}

}  // extern "C"
