// Calls that function transforms have no part in.
#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace cgotorch {

// In its lifetime ops are not part of the function transforms around them. What is made then is a
// tensor with memory, as one from outside; ops must not be given what a transform has wrapped.
class BelowTransforms {
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::FuncTorchDynamicLayerBackMode})};
};

}  // namespace cgotorch
