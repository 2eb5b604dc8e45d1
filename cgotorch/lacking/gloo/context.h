// A stand-in for a header of gloo, which libtorch contains and whose headers torch does not bring.
// c10d's ProcessGroupGloo.hpp includes it. Only what that header names is here, and it is found
// only where the real one is not. distributed.cc proves what it can of it when it first runs.
#pragma once

#include <chrono>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
