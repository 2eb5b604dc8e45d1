// The checkpoints that are open, for the engine: see checkpoint.cc.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace cgotorch {

// Whether one is open on the calling thread.
bool checkpoint_is_open();

// What ops of the calling thread save with; null where no checkpoint is open.
std::unique_ptr<torch::autograd::SavedVariableHooks> checkpoint_hooks();

}  // namespace cgotorch
