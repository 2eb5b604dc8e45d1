// nccl.h: c10d's NCCL, which is in libtorch_cuda.so alone.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace cgotorch {

// The backend that torch.distributed makes of these. Throws where there is no GPU, or a libtorch
// without NCCL. Its communicators begin with the first collective.
c10::intrusive_ptr<c10d::Backend> new_nccl(const c10::intrusive_ptr<c10d::Store> &store, int rank,
                                           int size, const c10d::Backend::Options &options);

}  // namespace cgotorch
