// The header of a safetensors file: eight bytes with its length, then JSON that names each tensor's
// dtype, shape and place in the data that follows. No part of libtorch is used here, so that the
// parser, which meets files from anywhere, can be tested on its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cgotorch::safetensors {

struct Entry {
  std::string name;
  std::string dtype;  // "F32"
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // in the data, which starts after the header
  uint64_t end = 0;
};

struct Header {
  std::vector<Entry> entries;  // in the order of the data
  std::vector<std::pair<std::string, std::string>> metadata;
};

// What is wrong with a file, in one line.
struct Malformed {
  std::string what;
};

// The format's own bound.
constexpr uint64_t kMaxHeader = 100'000'000;
// More dimensions than any operator takes.
constexpr size_t kMaxDims = 64;

// Reads the length from the first eight bytes of a file of file_size bytes. Throws Malformed.
uint64_t header_length(const unsigned char bytes[8], uint64_t file_size);

// Reads the JSON. Every name occurs once, and the data, of which there are data_size bytes, is used
// by exactly one tensor each, without gaps. Throws Malformed. What it does not know is whether
// begin, end, dtype and shape belong together.
Header parse(std::string_view json, uint64_t data_size);

bool is_utf8(std::string_view s);

// The eight bytes and the JSON, padded to a multiple of eight bytes. Strings must be UTF-8.
std::string format(const Header &header);

}  // namespace cgotorch::safetensors
