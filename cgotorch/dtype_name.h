// How messages name dtypes.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace cgotorch {

// As Python prints it, "torch.float32".
inline std::string dtype_name(c10::ScalarType type) {
  return "torch." + std::string(c10::getDtypeNames(type).first);
}

}  // namespace cgotorch
