// What has to catch up when a library with a backend, libtorch_cuda.so for one, is loaded after
// libtorch was put to use.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace cgotorch {

// Calls f with each type of device that computes beside the processor and has a backend by now.
template <class F>
void for_each_backend(F &&f) {
  for (const c10::DeviceType type :
       {c10::DeviceType::CUDA, c10::DeviceType::XPU, c10::DeviceType::HPU, c10::DeviceType::MTIA,
        c10::DeviceType::MPS, c10::DeviceType::PrivateUse1}) {
    if (c10::impl::hasDeviceGuardImpl(type)) f(type);
  }
}

// The engine starts a thread for each device at the first backward pass. If that has been, it did
// not know of those that came later: starts them now.
void start_device_threads();

// Gives devices that came later the seed of the last ManualSeed.
void seed_devices();

// Both. Whoever loads a library that may have a backend calls it.
inline void devices_added() {
  start_device_threads();
  seed_devices();
}

}  // namespace cgotorch
