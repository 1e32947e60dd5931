// What a compiled kernel asks of the threads that run it; included by language/prelude.h.
#pragma once
#include <cstddef>
#include <cstdint>

#ifndef PRETEND_LANES
#define PRETEND_LANES 64  // of a wavefront, as on AMD's data-centre GPUs; 32 is a CUDA warp
#endif

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
  constexpr dim3(uint3 of) : x(of.x), y(of.y), z(of.z) {}
  constexpr operator uint3() const { return {x, y, z}; }
};

#define PRETEND_EXPORT __attribute__((visibility("default")))

namespace pretend {

#if PRETEND_LANES == 64
using Mask = uint64_t;
#elif PRETEND_LANES == 32
using Mask = uint32_t;
#else
#error "PRETEND_LANES must be 32 or 64"
#endif
constexpr int kLanes = PRETEND_LANES;

// A place in the kernel's source, for messages and to tell one barrier from another.
struct Site {
  const char* file;
  int line;
  // As a default argument: of the call. (g++ takes a cast of __builtin_LINE() for a constant.)
  static constexpr Site of_call(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

struct Here {
  uint3 thread, block;
  dim3 block_size, grid_size;
};

// The thread that runs. The program holds it in its static thread-local memory: one instruction.
extern PRETEND_EXPORT thread_local Here* here __attribute__((tls_model("initial-exec")));

PRETEND_EXPORT void sync_block(Site site);
enum class Vote { kCount, kAnd, kOr };
PRETEND_EXPORT int sync_block_and_vote(Vote vote, bool mine, Site site);

// Barriers of a wavefront. A mask of 0 stands for "the lanes that come here", as AMD's shuffles
// without a mask have it: the barrier opens when all others have ended or wait elsewhere.
PRETEND_EXPORT void sync_lanes(Mask mask, Site site);
// Give `bytes` (at most 16) at `mine` to the other lanes and get those of lane `from`: rubbish
// where that lane does not take part, as its value is undefined on a GPU.
PRETEND_EXPORT void exchange(Mask mask, const void* mine, void* theirs, int bytes, int from,
                             Site site);
PRETEND_EXPORT Mask ballot(Mask mask, bool mine, Site site);  // bits of the lanes that said yes
PRETEND_EXPORT Mask lanes_here(Mask mask, Site site);         // bits of the lanes that came
PRETEND_EXPORT int lane();

// Let the other threads go on: called where a kernel may be waiting for one of them.
PRETEND_EXPORT void pause();

PRETEND_EXPORT void* dynamic_shared_memory();

// Whether the block has no more threads than __launch_bounds__ says; if not the launch has failed.
PRETEND_EXPORT bool keeps_bounds(unsigned long long most_threads);

}  // namespace pretend
