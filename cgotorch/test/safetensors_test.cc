// Gives the parser of safetensors headers what no writer writes. It runs under the address and
// undefined behaviour sanitisers, and checks what the parser promises of what it accepts.
#include "../safetensors.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unordered_set>

using namespace cgotorch::safetensors;

namespace {

const char *const kSeeds[] = {
    R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})",
    R"({"__metadata__":{"k":"v","\u00e9\ud83d\ude00":""},"a":{"dtype":"U8","shape":[],)"
    R"("data_offsets":[0,1]},"b":{"data_offsets":[1,17],"shape":[2],"dtype":"F64"}}  )",
    R"({})",
    R"({"\"\\\/\b\f\n\r\t":{"dtype":"BOOL","shape":[0,1],"data_offsets":[0,0]}})",
};

[[noreturn]] void fail(const char *what, const std::string &json) {
  std::printf("%s: %s\n", what, json.c_str());
  std::exit(1);
}

bool check(const std::string &json, uint64_t size) {
  Header h;
  try {
    // A copy of its own, so that a byte too far is noticed.
    std::string exact(json);
    exact.shrink_to_fit();
    h = parse(std::string_view(exact.data(), exact.size()), size);
  } catch (const Malformed &e) {
    if (e.what.empty()) fail("an error without a text", json);
    return false;
  }
  uint64_t at = 0;
  std::unordered_set<std::string> names;
  for (const Entry &e : h.entries) {
    if (e.begin != at || e.end < e.begin || !names.insert(e.name).second)
      fail("accepted overlapping or equal entries", json);
    if (e.shape.size() > kMaxDims || e.name.find('\0') != std::string::npos)
      fail("accepted a bad entry", json);
    at = e.end;
  }
  if (at != size) fail("accepted data of the wrong size", json);
  // What it has read, it writes and reads again.
  const std::string again = format(h);
  unsigned char length[8];
  std::memcpy(length, again.data(), 8);
  if (header_length(length, again.size() + size) != again.size() - 8 || again.size() % 8 != 0)
    fail("wrote a wrong length", json);
  const Header second = parse(std::string_view(again).substr(8), size);
  if (second.metadata != h.metadata || second.entries.size() != h.entries.size())
    fail("read back something else", json);
  return true;
}

}  // namespace

int main(int argc, char **argv) {
  const long rounds = argc > 1 ? std::atol(argv[1]) : 100000;
  std::mt19937_64 random(1);
  const auto below = [&random](uint64_t n) { return random() % n; };
  constexpr char kBytes[] = "{}[]:,\"\\u0123456789abcdefFU_ \n\x00\x7f\x80\xc3\xed\xff";
  for (const char *seed : kSeeds) {
    bool read = false;
    for (uint64_t size = 0; size < 32; size++) read = check(seed, size) || read;
    if (!read) fail("cannot read", seed);
  }
  long accepted = 0;
  for (long i = 0; i < rounds; i++) {
    std::string s = kSeeds[below(std::size(kSeeds))];
    for (uint64_t n = 1 + below(4); n > 0 && !s.empty(); n--) {
      const size_t at = below(s.size());
      switch (below(5)) {
        case 0:
          s[at] = kBytes[below(sizeof kBytes)];
          break;
        case 1:
          s.insert(at, 1, kBytes[below(sizeof kBytes)]);
          break;
        case 2:
          s.erase(at, 1 + below(8));
          break;
        case 3:
          s.insert(at, s.substr(below(s.size()), below(40)));
          break;
        default:
          s.resize(at);
      }
    }
    accepted += check(s, below(3) == 0 ? 0 : below(26));
  }
  for (long i = 0; i < rounds; i++) {
    unsigned char bytes[8];
    for (unsigned char &b : bytes) b = below(4) == 0 ? static_cast<unsigned char>(random()) : 0;
    const uint64_t size = random() >> below(64);
    try {
      const uint64_t n = header_length(bytes, size);
      if (n > kMaxHeader || n + 8 > size) fail("accepted a header beyond the file", "");
    } catch (const Malformed &) {
    }
  }
  std::printf("ok, %ld of %ld accepted\n", accepted, rounds);
  return accepted > 0 ? 0 : 1;
}
