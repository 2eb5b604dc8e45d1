// sequence.cc: the order of autograd's nodes, see Sequenced in internal.h.
#include <ATen/SequenceNumber.h>
#include <link.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "internal.h"

// Compilers address a thread-local variable of another library by these.
struct TLSIndex {
  unsigned long module, offset;
};
extern "C" void *__tls_get_addr(TLSIndex *index);

namespace cgotorch {

alignas(64) uint64_t sequence_reached = 0;

namespace {

namespace sn = at::sequence_number;

// Stands for libtorch's number where it was not found. It is greater than any.
constexpr uint64_t kNotFound = UINT64_MAX;
uint64_t no_number = kNotFound;

struct Block {
  uintptr_t code;  // an address in the library
  unsigned long module = 0;
  size_t size = 0;
};

int find_block(dl_phdr_info *info, size_t, void *out) {
  auto &block = *static_cast<Block *>(out);
  bool here = false;
  size_t size = 0;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const auto &segment = info->dlpi_phdr[i];
    if (segment.p_type == PT_LOAD)
      here |= block.code - info->dlpi_addr - segment.p_vaddr < segment.p_memsz;
    if (segment.p_type == PT_TLS) size = segment.p_memsz;
  }
  if (!here) return 0;
  block.module = info->dlpi_tls_modid;
  block.size = size;
  return 1;
}

// libtorch has no function that sets the number, so this looks for the variable among the
// thread-locals of libtorch's library: the one that counts when libtorch counts, and that libtorch
// reads when it was written.
std::optional<TLSIndex> find() noexcept {
  Block block{reinterpret_cast<uintptr_t>(&sn::peek)};
  if (dl_iterate_phdr(find_block, &block) == 0 || block.module == 0) return std::nullopt;
  const uint64_t start = sn::peek();
  for (size_t at = 0; at + sizeof(uint64_t) <= block.size; at += sizeof(uint64_t)) {
    TLSIndex index{block.module, at};
    auto *number = static_cast<volatile uint64_t *>(__tls_get_addr(&index));
    const uint64_t before = sn::peek();
    if (*number != before || sn::get_and_increment() != before || *number != before + 1) continue;
    *number = before + 1000;
    const bool read = sn::peek() == before + 1000;
    *number = read ? start : before + 1;
    if (read) return index;
  }
  return std::nullopt;
}

}  // namespace

uint64_t *sequence_of_thread() noexcept {
  static const std::optional<TLSIndex> found = find();
  if (!found) return &no_number;
  TLSIndex index = *found;
  return static_cast<uint64_t *>(__tls_get_addr(&index));
}

bool sequence_found() noexcept { return sequence_of_thread() != &no_number; }

void raise_sequence(uint64_t reached) noexcept {
  uint64_t *const number = tls.sequence;
  if (number == &no_number) {
    while (sn::peek() < reached) sn::get_and_increment();
  } else if (*number < reached) {
    *number = reached;
  }
}

namespace {
[[gnu::noinline, gnu::cold]] void publish_again(uint64_t number) noexcept {
  if (number == kNotFound) number = sn::peek();
  uint64_t reached = __atomic_load_n(&sequence_reached, __ATOMIC_RELAXED);
  while (number > reached && !__atomic_compare_exchange_n(&sequence_reached, &reached, number, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}
}  // namespace

// Of an op that records, for which twenty instructions are the most that this may take in all.
void publish_sequence(uint64_t number, uint64_t reached) noexcept {
  if (__builtin_expect(number == kNotFound, 0) ||
      __builtin_expect(!__atomic_compare_exchange_n(&sequence_reached, &reached, number, false,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED),
                       0))
    publish_again(number);
}

}  // namespace cgotorch
