// jit_checks.h: what a TorchScript file must keep to before libtorch reads it. libtorch takes the
// lengths in a file at their word, and reads nested values and code by recursion.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace cgotorch::jit {

// What is wrong with a pickle; "" if nothing. record_size is the length of a record of data by its
// key, or none where there is no such record.
std::string check_pickle(
    std::string_view pickle,
    const std::function<std::optional<uint64_t>(const std::string &key)> &record_size);

// What is wrong with source code; "" if nothing.
std::string check_source(std::string_view source);

}  // namespace cgotorch::jit
