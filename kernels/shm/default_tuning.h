#ifndef MPISTRAT_SHM_DEFAULT_TUNING_H_
#define MPISTRAT_SHM_DEFAULT_TUNING_H_

// The sizes at which one algorithm gives way to another on one node, unless a tuning says else.

#include <cstdint>

#include "mpistrat/shm.h"

namespace mpistrat {

// chunk_bytes, flat_bytes, whole_bytes, stream_bytes and remote_bytes, which is by kind.
constexpr MpistratTuning kDefaultTuning{256 << 10, 64 << 10, 128 << 10, 20 << 20, 0};

// From so many bytes on, of the longest block of any rank, arrays are read where they are: of two
// ranks, and of more. By then one copy through the kernel (about 1.5 us to agree on) takes less
// than two through the slots. By MpistratKind. Ranks that make the same call again and again find
// out what is faster (movement_choice.h, reduction/algorithm_choice.h); other calls of the
// same sizes follow.
struct ReadFrom {
  int64_t two, more;
};
constexpr ReadFrom kReadFrom[MPISTRAT_NUM_KINDS] = {
    {INT64_MAX, INT64_MAX},
    {4 << 20, INT64_MAX},    // all-reduce: more ranks' arrays are reduced as soon from slots
    {4 << 20, INT64_MAX},    // reduce
    {64 << 10, 128 << 10},   // reduce-scatter
    {256 << 10, INT64_MAX},  // bcast: its slots are filled and read at the same time
    {64 << 10, 2 << 20},     // allgather
    {INT64_MAX, 2 << 20},    // gather
    {32 << 10, 64 << 10},    // scatter
    {32 << 10, 64 << 10},    // alltoall
};

constexpr int64_t kRootedChunkBytes = 64 << 10;  // of reductions of two ranks to a root
// No processor has more of the last cache to itself. A virtual machine is told of all that its host
// has: of 300 MiB for 2 processors, where all-reduces of 16 MiB on 4 ranks took 9.6 ms through the
// caches and 6.9 ms past them. Those of two ranks, which may read each other's arrays where they
// are, took 2.0 ms and 2.6 ms: of these nothing is believed to be less than what is told.
constexpr int64_t kCacheOfCpu = 16 << 20;
constexpr int64_t kTimedBytes = 1 << 10;  // all-reduces from here on may be timed, and
constexpr int64_t kReadBytes = 64 << 10;  // those of two ranks from here on be read in place, too
                                          // (reduction/algorithm_choice.h)
// From here on all-reduces ask which arrays are registered, if the node has such memory. Measured,
// float32, us, 2 ranks, processors near: 16 KiB 1.8 through slots, 1.0 registered; 64 KiB 5.2 and
// 2.1; apart, 64 KiB 12 and 3. Private arrays lose 0.2 by the question: 8 KiB of 1.1.
constexpr int64_t kProbeBytes = 16 << 10;
constexpr int64_t kLongLapBytes = 2 << 20;  // two ranks' arrays up to here use the whole ring

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_DEFAULT_TUNING_H_
