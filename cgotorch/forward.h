// How forward mode differentiates functions for which libtorch itself has no formula.
#pragma once

namespace cgotorch {

// Registers what they are made of. May be called many times.
void register_forward();

}  // namespace cgotorch
