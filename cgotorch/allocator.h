// The CPU allocator behind every tensor of a Go program: it caches freed memory and counts it.
//
// Go's collector sees eight bytes where a tensor holds megabytes, so something has to tell it how
// much native memory is alive and how much has been made since the last collection. An allocator
// is the one place that sees all of it exactly, autograd's saved tensors too and views only once.
// And because it need not serve anything but tensors it is faster than malloc.
//
// Bytes are counted as they are handed out, after rounding to a size class: multiples of 64 up to
// 1 KiB, then eight classes to each power of two, so at most 12.5 % above what was asked for. The
// classes of two allocators with equal requests are equal, hence counts are exact and repeatable.
//
// No function here throws, all may be called from any thread, and all work (with zeros) where the
// allocator was never installed, which is the case when Go is loaded into Python.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

// Makes this allocator PyTorch's CPU allocator, for good. Tensors made before keep their memory and
// their deleter. Calling it again does nothing.
void cgotorch_install_allocator(void);

// Two counters to poll with plain atomic loads, without a call. Both lag behind, by at most 256 KiB
// per thread: `allocated`, all bytes ever handed out, is late; `live`, the bytes in use, is never
// below the truth. Blocks above 32 KiB show at once.
struct cgotorch_pressure {
  int64_t allocated;
  int64_t live;
};
// The address never changes and stays valid until the process ends.
struct cgotorch_pressure *cgotorch_pressure(void);

// What the counters say, summed over all threads; exact when no other thread is allocating.
struct cgotorch_allocator_stats {
  int64_t live_bytes;       // in use by tensors
  int64_t live_blocks;      // ... in that many blocks; empty tensors have none
  int64_t allocated_bytes;  // handed out since the start; live_bytes plus what was freed
  int64_t cached_bytes;     // resident and free, to be handed out again
  int64_t local_bytes;      // the part of cached_bytes that threads hold, at most 256 KiB each
  int64_t cache_limit;      // the most that is cached in large blocks now
};
void cgotorch_allocator_stats(struct cgotorch_allocator_stats *stats);

// Gives the cache back to the operating system. What other threads hold locally follows when they
// next run out of it or overflow.
void cgotorch_release_cached(void);

// Bounds the large blocks that are kept when free. Negative, the default, means: what the program
// used at its recent peak and does not use now, and 64 MiB more. So a training step that goes up
// and down by gigabytes finds its pages again, and resident memory stays within 64 MiB of the
// recent peak. Recently is the last 10 seconds, or until 16 times the peak has been allocated,
// whichever is shorter; at most twice that. While nothing is allocated nothing is given back.
void cgotorch_set_cache_limit(int64_t bytes);
// Sets those seconds, in milliseconds.
void cgotorch_set_cache_decay(int64_t milliseconds);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
