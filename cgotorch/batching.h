// How a vmap computes functions that libtorch itself only has in a loop over the batch.
#pragma once

namespace cgotorch {

// Registers them, where nobody has. May be called many times.
void register_batching();

}  // namespace cgotorch
