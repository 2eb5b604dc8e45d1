// generator.cc: random number generators. Their methods ask the caller to hold the generator's
// lock.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <mutex>

#include "fork.h"
#include "internal.h"
#include "late_devices.h"

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

void set_seed(at::Generator g, uint64_t seed) {
  const std::lock_guard<std::mutex> lock(g.mutex());
  g.set_current_seed(seed);
}

// The seed of the last ManualSeed, and the types of devices that it has reached, by their numbers.
struct Seeded {  // under fork_mutexes.seeds
  std::optional<uint64_t> seed;
  uint64_t types = 0;
} seeded;

// Seeds what it has not reached. at::manual_seed would ask about CUDA: before libtorch_cuda.so is
// loaded the answer is no, for good. seeded is locked.
void seed_others() {
  for_each_backend([](at::DeviceType type) {
    const uint64_t bit = uint64_t{1} << static_cast<int>(type);
    if ((seeded.types & bit) != 0) return;
    const at::DeviceIndex n = c10::impl::VirtualGuardImpl(type).deviceCount();
    for (at::DeviceIndex i = 0; i < n; i++) {
      at::Generator g;
      try {
        g = at::globalContext().defaultGenerator(at::Device(type, i));
      } catch (const c10::Error &) {
        // There are backends that have no generators: they draw their numbers on the CPU.
        if (type == at::kCUDA) throw;
        break;
      }
      set_seed(std::move(g), *seeded.seed);
    }
    seeded.types |= bit;
  });
}

}  // namespace

void seed_devices() {
  const std::lock_guard<std::mutex> lock(fork_mutexes.seeds);
  if (seeded.seed) seed_others();
}

}  // namespace cgotorch

using namespace cgotorch;

extern "C" {

const char *ManualSeed(uint64_t seed) {
  return guard([&] {
    const std::lock_guard<std::mutex> lock(fork_mutexes.seeds);
    seeded.seed = seed;
    seeded.types = 0;
    set_seed(at::detail::getDefaultCPUGenerator(), seed);
    seed_others();
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
