// jit_checks.h: what a TorchScript file must keep to before libtorch reads it. libtorch takes the
// lengths in a file at their word, and reads nested values and code by recursion.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cgotorch::jit {

// What is wrong with a pickle; "" if nothing. record_size is the length of a record of data by its
// key, or none where there is no such record.
std::string check_pickle(
    std::string_view pickle,
    const std::function<std::optional<uint64_t>(const std::string &key)> &record_size);

// What is wrong with source code; "" if nothing.
std::string check_source(std::string_view source);

// Classes and functions of a file's code, and what each of them names. libtorch reads what is named
// while it reads what names it.
class Definitions {
 public:
  // Those of a record, "code/__torch__/nets.py".
  void add(std::string_view record, std::string_view source);
  // Whether they name each other so that one leads to another, and so on, too often.
  bool are_nested_too_deeply() const;

 private:
  std::unordered_map<std::string, std::vector<std::string>> names_;
};

}  // namespace cgotorch::jit
