// What ops save elsewhere than in the graph, for the engine: see checkpoint.cc.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace cgotorch {

// Whether the calling thread is in a checkpoint, or where what is saved is fetched.
bool saves_elsewhere();

// What ops of the calling thread save with; null where they save in the graph.
std::unique_ptr<torch::autograd::SavedVariableHooks> saving_hooks();

}  // namespace cgotorch
