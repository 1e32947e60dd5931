#ifndef MPISTRAT_SHM_DEFAULT_TUNING_H_
#define MPISTRAT_SHM_DEFAULT_TUNING_H_

// The sizes at which one algorithm gives way to another on one node, unless a tuning says else.

#include <cstdint>

#include "mpistrat/shm.h"

namespace mpistrat {

// chunk_bytes, flat_bytes, whole_bytes, stream_bytes and remote_bytes.
constexpr MpistratTuning kDefaultTuning{256 << 10, 64 << 10, 128 << 10, 20 << 20, 4 << 20};

constexpr int64_t kTimedBytes = 1 << 10;    // all-reduces from here on may be timed, and
constexpr int64_t kReadBytes = 64 << 10;    // those of two ranks from here on be read in place, too
                                            // (reduction/algorithm_choice.h)
constexpr int64_t kProbeBytes = 128 << 10;  // shorter arrays gain nothing from being in place
constexpr int64_t kLongLapBytes = 2 << 20;  // two ranks' arrays up to here use the whole ring

}  // namespace mpistrat

#endif  // MPISTRAT_SHM_DEFAULT_TUNING_H_
