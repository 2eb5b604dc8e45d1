// What has to catch up when libtorch_cuda.so is loaded after libtorch was put to use. Called once,
// by what loads it.
#pragma once

namespace cgotorch {

// The engine starts a thread for each GPU at the first backward pass. If that has been, it knew of
// none: starts them now.
void start_device_threads();

// Gives the GPUs the seed of the last ManualSeed, which found none.
void seed_devices();

}  // namespace cgotorch
